//! `sennit serve`: runs the broker in this process until a signal ends it.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use sennit_server::{
    Access, Config, HostName, HttpOrigin, PublicUrl, StreamStorage, StreamStorageRule,
};
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::{
    address::{self, HTTP_PORT, NATIVE_PORT},
    allocator,
    exit::{Exit, Failure},
    output::{print_json, print_to_stderr},
    quantity::{self, size},
};

const EXAMPLES: &str = "\
Examples:
  sennit serve
  sennit serve --data /var/lib/sennit --log-json
  sennit serve --listen 0.0.0.0:4438 --http 0.0.0.0:4437 --init-admin
  sennit serve --listen 0.0.0.0:4438 --insecure-no-auth   anybody who reaches it may do anything

An address is host:port; what it leaves out is filled in: localhost, :4438 (every address of this
machine), 4438 (this machine's loopback). Port 0 is a free port; the addresses taken are printed on
standard output. SIGTERM and Ctrl-C end it cleanly. RUST_LOG says what is logged (info).";

/// The arguments of `sennit serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder of all data; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// The address of the native protocol
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4438")]
    #[arg(value_parser = |text: &str| address::listen(text, NATIVE_PORT))]
    listen: SocketAddr,
    /// The address of HTTP: streams, /healthz, /readyz, /metrics and backups
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4437")]
    #[arg(value_parser = |text: &str| address::listen(text, HTTP_PORT))]
    http: SocketAddr,
    /// The number of HTTP connections that are served at once; more of them wait
    #[arg(long, value_name = "N", default_value_t = Config::default().http_connections)]
    http_connections: usize,
    /// A host that HTTP requests may name in Host, besides localhost, this machine's addresses and
    /// the host of --streams-public-url; may be given often. If --http is not an address of this
    /// machine alone, any IP address is allowed too
    #[arg(long, value_name = "NAME")]
    http_host: Vec<HostName>,
    /// An origin whose pages in browsers may read and change HTTP streams, as
    /// `https://app.example.com`, or * to let all pages read; may be given often. Pages of this
    /// machine are allowed if they name it as this machine
    #[arg(long, value_name = "ORIGIN")]
    http_origin: Vec<HttpOrigin>,
    /// The number of shards of a new data directory, 1 to 1024; a directory keeps its number
    /// [default: one per core]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// The number of cores, each with a thread, that run the shards and serve connections, 1 to
    /// 1024; a core may run several shards, or none [default: one per shard]
    #[arg(long, value_name = "N")]
    cores: Option<u32>,
    /// The length of a segment of a new data directory's journals, at least 20MiB [default: 64MiB,
    /// less on a small disk]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    segment_size: Option<u64>,
    /// Segments of each shard's journal beyond which the oldest is emptied into packs
    #[arg(long, value_name = "N", default_value_t = Config::default().journal_segments)]
    journal_segments: usize,
    /// The storage of HTTP streams whose creator names none: memory, file-fast, file-durable, acid
    #[arg(long, value_name = "MODE", default_value_t = Config::default().streams_storage)]
    streams_storage: StreamStorage,
    /// The storage of HTTP streams whose names begin with PREFIX, if their creators name none; may
    /// be given often, the longest prefix counts
    #[arg(long, value_name = "PREFIX=MODE")]
    streams_storage_rule: Vec<StreamStorageRule>,
    /// The public URL of the HTTP port, for example of a TLS proxy: the beginning of Location and
    /// of the callback addresses of webhooks [default: http:// and the Host of the request]
    #[arg(long, value_name = "URL")]
    streams_public_url: Option<PublicUrl>,
    /// The time that a read of an HTTP stream waits for new content
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = quantity::duration)]
    streams_long_poll_timeout: Duration,
    /// For development: allow webhooks on this machine, and without TLS
    #[arg(long)]
    streams_allow_private_webhooks: bool,
    /// How the journal is written: around the page cache or through it
    #[arg(long, value_enum, default_value = "auto")]
    io: IoKind,
    /// The time for one scrub of everything at rest, which looks for damage; off: no scrub
    #[arg(long, value_name = "DURATION|off", default_value = "7d", value_parser = scrub_every)]
    scrub_every: ScrubEvery,
    /// Create an admin API key at the start, if there is no key and no user yet, and print it once
    /// [default: false; true in a container, if an address can be reached from outside of it]
    #[arg(long, value_name = "true|false", env = "SENNIT_INIT_ADMIN", num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    init_admin: Option<bool>,
    /// Listen on non-loopback addresses though nobody is asked for credentials
    #[arg(long)]
    insecure_no_auth: bool,
    /// End when standard input ends: for programs that start a broker and must not leave it running
    #[arg(long)]
    until_stdin_ends: bool,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,
    /// Print the addresses as a JSON object
    #[arg(long)]
    json: bool,
}

/// A wrapper, because clap gives an `Option` another meaning.
#[derive(Clone, Copy, Debug)]
struct ScrubEvery(Option<Duration>);

fn scrub_every(text: &str) -> Result<ScrubEvery, String> {
    match text {
        "off" => Ok(ScrubEvery(None)),
        text => quantity::duration(text).map(|every| ScrubEvery(Some(every))),
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum IoKind {
    /// Direct where the file system allows
    Auto,
    /// Around the page cache
    Direct,
    /// Through the page cache
    Buffered,
}

/// Runs the broker until it is stopped.
///
/// # Errors
/// It cannot start, or its journal has failed.
pub fn run(args: &Args) -> Result<(), Failure> {
    log_to_standard_error(args.log_json);
    let config = Config {
        data: args.data.clone(),
        listen: args.listen,
        http: args.http,
        http_connections: args.http_connections,
        http_hosts: args.http_host.clone(),
        http_origins: args.http_origin.clone(),
        shards: args.shards,
        cores: args.cores,
        access: match args.io {
            IoKind::Auto => Access::Auto,
            IoKind::Direct => Access::Direct,
            IoKind::Buffered => Access::Buffered,
        },
        streams_storage: args.streams_storage,
        streams_public_url: args.streams_public_url.clone(),
        streams_storage_rules: args.streams_storage_rule.clone(),
        streams_long_poll_timeout: args.streams_long_poll_timeout,
        streams_allow_private_webhooks: args.streams_allow_private_webhooks,
        segment_bytes: args.segment_size,
        journal_segments: args.journal_segments,
        insecure_no_auth: args.insecure_no_auth,
        init_admin: args.init_admin.unwrap_or_else(|| begins_in_container(args)),
        scrub_every: args.scrub_every.0,
        give_back: allocator::give_back,
        ..Config::default()
    };
    let as_json = args.json;
    sennit_server::serve(config, stop_signal(args.until_stdin_ends), move |started| {
        let (listen, http) = (started.addresses.listen, started.addresses.http);
        let admin_key = started.admin_key.as_ref().map(|key| key.as_str());
        let said = if as_json {
            let mut said = json!({ "listen": listen.to_string(), "http": http.to_string() });
            if let Some(key) = admin_key {
                said["admin_key"] = key.into();
            }
            print_json(&said)
        } else {
            print_to_stderr(&format!("sennit listens on {listen}, http on {http}"));
            if let Some(key) = admin_key {
                print_to_stderr(&format!(
                    "the admin key, which is not shown again; to use it:\n  export SENNIT_KEY={key}"
                ));
            }
            Ok(())
        };
        if let Err(failure) = said {
            print_to_stderr(&failure.to_string());
        }
    })
    .map_err(|error| {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failed };
        Failure::new(exit, error.to_string())
    })
}

/// Whether the broker listens beyond a container that it runs in, and nobody has said that this is meant.
fn begins_in_container(args: &Args) -> bool {
    let is_beyond = !(args.listen.ip().is_loopback() && args.http.ip().is_loopback());
    let variables = ["container", "KUBERNETES_SERVICE_HOST"];
    let is_container = variables.iter().any(|name| std::env::var_os(name).is_some())
        || ["/.dockerenv", "/run/.containerenv"]
            .iter()
            .any(|file| std::fs::exists(file).unwrap_or(false));
    is_beyond && is_container && !args.insecure_no_auth
}

fn log_to_standard_error(as_json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if as_json {
        builder.json().init();
    } else {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        builder.with_ansi(terminal && !no_color).init();
    }
}

/// Waits for a signal to stop.
async fn stop_signal(until_stdin_ends: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let stdin = async {
        match until_stdin_ends {
            true => stdin_ended().await,
            false => std::future::pending().await,
        }
    };
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminated) => drop(terminated.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
        () = stdin => {}
    }
}

/// Reads standard input to its end, on a thread of its own.
async fn stdin_ended() {
    let (ended, end) = tokio::sync::oneshot::channel();
    let read = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    };
    match std::thread::Builder::new().name("stdin".into()).spawn(read) {
        Ok(_) => drop(end.await),
        Err(_) => std::future::pending().await,
    }
}

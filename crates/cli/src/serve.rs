//! `sennit serve`: runs the broker in this process until a signal ends it.

use std::net::{IpAddr, SocketAddr};

use sennit_server::{NODE_ID_MAX, TlsAddress};
use sennit_settings::Problem;
use serde_json::json;

use crate::{
    allocator,
    cluster_options::{ClusterOptions, HEADING},
    exit::{Exit, Failure},
    logging::log_to_standard_error,
    output::{print_json, print_to_stderr},
    reload::{ReloadSignals, SettingsReload},
    settings::{SettingFlags, SettingSources, Start, failure_of},
};

const EXAMPLES: &str = "\
Examples:
  sennit serve
  sennit serve --data /var/lib/sennit --log-json
  sennit serve --tls self
  sennit serve --tls cert.pem,key.pem
  sennit serve --listen 0.0.0.0:4438 --http 0.0.0.0:4437 --init-admin
  sennit serve --config /etc/sennit/sennit.toml
  sennit serve --listen 0.0.0.0:4438 --insecure-no-auth   anybody who reaches it may do anything

An address is host:port; what it leaves out is filled in: localhost, :4438 (every address of this
machine), 4438 (this machine's loopback). Port 0 is a free port; the addresses taken are printed on
standard output. SIGTERM and Ctrl-C end it cleanly.

Flags come before environment variables, these before the file that --config names. `sennit config`
checks and shows the result. SIGHUP has the broker read its settings again: what can change while it
runs is changed, and the log says what needs a restart.";

/// The arguments of `sennit serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    settings: SettingFlags,
    /// End when standard input ends: for programs that start a broker and must not leave it running
    #[arg(long)]
    until_stdin_ends: bool,
    /// Be this node of a cluster: a new data directory belongs to it
    ///
    /// An existing directory keeps what it is: that of a node is served as such with or without the
    /// flag, any other is refused with it.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(NODE_ID_MAX)))]
    node_id: Option<u16>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Print the addresses as a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the broker until it is stopped.
///
/// # Errors
/// Its settings are wrong, it cannot start, or its journal has failed.
pub fn run(args: Args) -> Result<(), Failure> {
    let hangups = ReloadSignals::take()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot take SIGHUPs: {error}")))?;
    let mut defaults = Start::default();
    defaults.broker.give_back = allocator::give_back;
    defaults.broker.tell_admin_key = match args.json {
        true => |key| report(print_json(&json!({ "admin_key": key }))),
        false => tell_admin_key,
    };
    defaults.broker.node_id = args.node_id;
    defaults.broker.cluster = args.cluster.settings();
    let sources = SettingSources::new(args.settings, defaults);
    let resolved = sources.load().map_err(|problems| failure_of(&problems))?;
    let Start { broker, log_format, log_filter, .. } = resolved.values.clone();
    let filter = log_to_standard_error(log_format, &log_filter)
        .map_err(|why| Failure::new(Exit::Usage, why))?;
    for Problem { source, text } in &resolved.warnings {
        tracing::warn!(%source, "{text}");
    }
    let (sender, reloads) = tokio::sync::mpsc::unbounded_channel();
    let reload = SettingsReload { sources, running: resolved.values, filter, broker: sender };
    let as_json = args.json;
    let stop = stop_signal(args.until_stdin_ends, reload.reload_on_signals(hangups));
    sennit_server::serve_and_reload(broker, stop, reloads, move |started| {
        let (listen, http) = (started.addresses.listen, started.addresses.http);
        let admin_key = started.admin_key.as_ref().map(|key| key.as_str());
        let said = if as_json {
            let mut said = json!({ "listen": listen.to_string(), "http": http.to_string() });
            if let Some(cluster) = started.addresses.cluster {
                said["cluster"] = cluster.to_string().into();
            }
            if let Some(tls) = &started.addresses.tls {
                said["tls"] = json!({ "fingerprint": tls.fingerprint.to_string() });
            }
            if let Some(key) = admin_key {
                said["admin_key"] = key.into();
            }
            print_json(&said)
        } else {
            let how = if started.addresses.tls.is_some() { ", both with TLS" } else { "" };
            print_to_stderr(&format!("sennit listens on {listen}, http on {http}{how}"));
            if let Some(cluster) = started.addresses.cluster {
                print_to_stderr(&format!("other nodes reach it on {cluster}"));
            }
            if let Some(tls) = &started.addresses.tls {
                print_to_stderr(&tls_line(tls, listen));
            }
            if let Some(key) = admin_key {
                tell_admin_key(key);
            }
            Ok(())
        };
        report(said);
    })
    .map_err(|error| {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failed };
        Failure::new(exit, error.to_string())
    })
}

/// Tells people a new admin key.
fn tell_admin_key(key: &str) {
    print_to_stderr(&format!(
        "the admin key, which is not shown again; to use it:\n  export SENNIT_KEY={key}"
    ));
}

/// Says on standard error that something could not be printed.
fn report(printed: Result<(), Failure>) {
    if let Err(failure) = printed {
        print_to_stderr(&failure.to_string());
    }
}

/// What a client is told so that it knows the broker.
fn tls_line(tls: &TlsAddress, listen: SocketAddr) -> String {
    let host = match listen.ip() {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let (fingerprint, port) = (&tls.fingerprint, listen.port());
    let whose = if tls.is_own { "the broker's own authority" } else { "its certificate" };
    format!(
        "{whose} is {fingerprint}; clients know it by\n  \
         sennit topic list --server {host}:{port} --tls-fingerprint {fingerprint}"
    )
}

/// Waits for a signal to stop, or until the reloads end.
async fn stop_signal(until_stdin_ends: bool, reloads: impl Future<Output = ()>) {
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
        () = reloads => {}
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

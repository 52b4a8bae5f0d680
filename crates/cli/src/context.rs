//! `sennit context`: brokers by name, with how to reach them and a credential, in a file that its owner alone may read.

use std::{
    io::{self, Read as _},
    path::PathBuf,
};

use sennit_client::{CertificateFiles, Fingerprint};
use serde_json::json;

use crate::{
    address::{http_brokers, native_brokers},
    context_file::{CREDENTIAL_BYTES_MAX, Context, Contexts, Credential, path},
    exit::{Exit, Failure},
    output::{print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit context add prod --server broker.example --http https://broker.example --tls-ca ca.pem
  sennit context add prod --credential-file key.txt        keeps the rest, replaces the credential
  pass show sennit | sennit context add prod --credential-file -
  sennit context use prod
  sennit topic list --context dev

The file is $XDG_CONFIG_HOME/sennit/contexts.toml, or ~/.config/sennit/contexts.toml. Options and
environment variables win over the context; one that names a broker has no context used, unless
--context names one.";

/// The arguments of `sennit context`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Add a context, or change what is named here of one that exists; the first one is used
    Add(Box<Add>),
    /// Use a context from now on
    Use {
        /// Its name
        name: String,
    },
    /// List the contexts; credentials are not shown
    List {
        /// Print JSON, a line for each context
        #[arg(long)]
        json: bool,
    },
    /// Remove a context with its credential
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Its name
    #[arg(value_parser = name)]
    name: String,
    /// The broker's address, host and port; of a cluster several nodes' addresses with commas between
    #[arg(long, value_name = "ADDRESSES")]
    #[arg(value_parser = checked(|text| native_brokers(text).map(drop)))]
    server: Option<String>,
    /// The broker's HTTP address, host and port; of a cluster several nodes' addresses
    #[arg(long, value_name = "ADDRESSES")]
    #[arg(value_parser = checked(|text| http_brokers(text).map(drop)))]
    http: Option<String>,
    /// Connect by TLS
    #[arg(long)]
    tls: bool,
    /// Trust the authorities of this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "tls_fingerprint")]
    tls_ca: Option<PathBuf>,
    /// Trust the certificate or the authority with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    tls_fingerprint: Option<Fingerprint>,
    /// The certificate to show: two PEM files, the chain and its key
    #[arg(long, value_name = "CERT,KEY")]
    tls_cert: Option<CertificateFiles>,
    /// The name that the broker's certificate is for
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Read the credential, a key or a token, from this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "credential_env")]
    credential_file: Option<PathBuf>,
    /// Read the credential from this environment variable
    #[arg(long, value_name = "VARIABLE")]
    credential_env: Option<String>,
}

/// A parser that keeps the text if it is good.
fn checked(
    is_good: impl Fn(&str) -> Result<(), String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| is_good(text).map(|()| text.to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("use 1 to 64 of a-z A-Z 0-9 - _ .".into()),
    }
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be used, or there is no such context.
pub fn run(args: Args) -> Result<(), Failure> {
    let no_home = || Failure::new(Exit::Usage, "contexts need XDG_CONFIG_HOME or HOME");
    let path = path().ok_or_else(no_home)?;
    let mut all = Contexts::read(&path)?;
    match args.verb {
        Verb::Add(add) => {
            let name = add.name.clone();
            let before = all.contexts.remove(&name).unwrap_or_default();
            all.contexts.insert(name.clone(), add.onto(before)?);
            all.current.get_or_insert(name);
            all.write(&path)
        }
        Verb::Use { name } => {
            all.named(&name)?;
            all.current = Some(name);
            all.write(&path)
        }
        Verb::List { json } => list(&all, json),
        Verb::Remove { name } => {
            all.named(&name)?;
            all.contexts.remove(&name);
            if all.current.as_ref() == Some(&name) {
                all.current = None;
                print_to_stderr("no context is used any more; `sennit context use` names one");
            }
            all.write(&path)
        }
    }
}

impl Add {
    /// The context, of what was there and what is named.
    fn onto(self, before: Context) -> Result<Context, Failure> {
        let credential = self.credential()?;
        let whole = |path: PathBuf| -> Result<String, Failure> {
            let whole = std::path::absolute(&path)
                .map_err(|error| Failure::from(error).about(path.display()))?;
            let not_text = || Failure::new(Exit::Usage, format!("{} is not UTF-8", path.display()));
            whole.to_str().map(str::to_owned).ok_or_else(not_text)
        };
        let (has_ca, has_pin) = (self.tls_ca.is_some(), self.tls_fingerprint.is_some());
        let tls_cert = match self.tls_cert {
            Some(files) => Some(format!("{},{}", whole(files.certificate)?, whole(files.key)?)),
            None => before.tls_cert,
        };
        let tls_ca = self.tls_ca.map(whole).transpose()?;
        let fingerprint = self.tls_fingerprint.map(|fingerprint| fingerprint.to_string());
        Ok(Context {
            server: self.server.or(before.server),
            http: self.http.or(before.http),
            tls: self.tls || before.tls,
            // The two exclude each other: the new one replaces the other.
            tls_ca: tls_ca.or(before.tls_ca.filter(|_| !has_pin)),
            tls_fingerprint: fingerprint.or(before.tls_fingerprint.filter(|_| !has_ca)),
            tls_cert,
            tls_server_name: self.tls_server_name.or(before.tls_server_name),
            credential: credential.or(before.credential),
        })
    }

    fn credential(&self) -> Result<Option<Credential>, Failure> {
        let mut text = String::new();
        let most = CREDENTIAL_BYTES_MAX as u64 + 2;
        match (&self.credential_file, &self.credential_env) {
            (None, None) => return Ok(None),
            (Some(path), _) => {
                let read = match path.to_str() {
                    Some("-") => io::stdin().lock().take(most).read_to_string(&mut text),
                    _ => std::fs::File::open(path)
                        .and_then(|file| file.take(most).read_to_string(&mut text)),
                };
                read.map_err(|error| Failure::from(error).about(path.display()))?;
            }
            (None, Some(variable)) => {
                let missing = |_| {
                    Failure::new(Exit::Usage, format!("{variable} is not set, or is not UTF-8"))
                };
                text = std::env::var(variable).map_err(missing)?;
            }
        }
        Credential::new(&text).map(Some).map_err(|wrong| Failure::new(Exit::Usage, wrong))
    }
}

fn list(all: &Contexts, as_json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (name, context) in &all.contexts {
        let is_current = all.current.as_ref() == Some(name);
        let has_credential = context.credential.is_some();
        if as_json {
            print_json(&json!({
                "name": name,
                "current": is_current,
                "server": context.server,
                "http": context.http,
                "tls": context.tls,
                "tls_ca": context.tls_ca,
                "tls_fingerprint": context.tls_fingerprint,
                "tls_cert": context.tls_cert,
                "tls_server_name": context.tls_server_name,
                "has_credential": has_credential,
            }))?;
            continue;
        }
        let trust = context.tls_fingerprint.clone().or(context.tls_ca.clone());
        let tls = trust.unwrap_or_else(|| if context.tls { "yes".into() } else { String::new() });
        rows.push(vec![
            if is_current { "*".to_owned() } else { String::new() },
            name.clone(),
            context.server.clone().unwrap_or_default(),
            context.http.clone().unwrap_or_default(),
            tls,
            if has_credential { "yes".to_owned() } else { String::new() },
        ]);
    }
    if as_json {
        return Ok(());
    }
    print_table(&["", "NAME", "SERVER", "HTTP", "TLS", "CREDENTIAL"], &rows)
}

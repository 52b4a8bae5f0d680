//! `sennit cert`: makes an authority, issues certificates from it, and shows what a certificate says. Opens no
//! connection.

use std::{
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use sennit_client::CertificateFiles;
use sennit_tls::{
    Authority, CertificateDescription, IssuedCertificate, TlsFault, certificates_of_file,
    write_secret_file,
};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::{print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit cert create --out certs
  sennit cert issue broker.example 10.0.0.5 --ca certs/ca.pem,certs/ca.key --out certs
  sennit cert issue worker --client --ca certs/ca.pem,certs/ca.key --out certs
  sennit cert show certs/broker.example.pem
  sennit serve --tls certs/broker.example.pem,certs/broker.example.key

Keys are ECDSA P-256, readable by their owner alone. No file is overwritten.";

/// The arguments of `sennit cert`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make an authority: ca.pem, which those who trust it get, and ca.key, which signs
    Create {
        /// The name of the authority
        #[arg(long, default_value = "sennit authority")]
        name: String,
        /// The folder of both files; created if it does not exist
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
        /// How many days it is valid
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = days())]
        days: u32,
    },
    /// Issue a certificate from an authority: NAME.pem with the chain, and NAME.key
    Issue {
        /// The host names and addresses of a server, or the name of a client
        #[arg(required = true)]
        names: Vec<String>,
        /// The authority: its certificate and its key
        #[arg(long, value_name = "CERT,KEY")]
        ca: CertificateFiles,
        /// For a client, which has one name, instead of a server
        #[arg(long)]
        client: bool,
        /// The folder of both files; created if it does not exist
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
        /// How many days it is valid
        #[arg(long, value_name = "N", default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// Show the certificates of PEM files: names, fingerprint, expiry
    Show {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print JSON, a line for each certificate
        #[arg(long)]
        json: bool,
    },
}

/// A hundred years are enough, and a date that formats can say.
fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

/// Runs the verb.
///
/// # Errors
/// A file is there already, or is not what it should be.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.verb {
        Verb::Create { name, out, days } => {
            let (authority, key) = Authority::create(name, *days).map_err(failure)?;
            write(out, "ca", &authority.certificate_pem(), &key)?;
            print_to_stderr(&format!("clients pin it by {}", authority.fingerprint()));
            Ok(())
        }
        Verb::Issue { names, ca, client, out, days } => {
            let authority = Authority::read(ca).map_err(failure)?;
            let name = names.first().map_or("", String::as_str);
            let issued = match client {
                false => authority.issue_server(names, *days),
                true if names.len() == 1 => authority.issue_client(name, *days),
                true => {
                    let text =
                        "the certificate of a client has one name; issue one for each client";
                    return Err(Failure::new(Exit::Usage, text));
                }
            };
            let IssuedCertificate { chain_pem, key_pem, .. } = issued.map_err(failure)?;
            write(out, &file_name(name), &chain_pem, &key_pem)
        }
        Verb::Show { files, json } => show(files, *json),
    }
}

/// A file name for what is issued to `name`: wildcards and what else a folder gives a meaning become `_`.
fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.starts_with('.') { format!("_{plain}") } else { plain }
}

/// Writes a certificate and its key, neither over another, the key first.
fn write(folder: &Path, name: &str, certificate: &str, key: &str) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| about(folder, error))?;
    let (certificate_path, key_path) =
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    if certificate_path.exists() {
        return Err(about(&certificate_path, io::ErrorKind::AlreadyExists.into()));
    }
    write_secret_file(&key_path, key.as_bytes()).map_err(|error| about(&key_path, error))?;
    std::fs::write(&certificate_path, certificate)
        .map_err(|error| about(&certificate_path, error))?;
    print_to_stderr(&format!("wrote {} and {}", certificate_path.display(), key_path.display()));
    Ok(())
}

fn about(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let text = format!("{} exists; choose another folder, or remove it", path.display());
            Failure::new(Exit::Conflict, text)
        }
        _ => Failure::from(error).about(path.display()),
    }
}

fn show(files: &[PathBuf], as_json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for file in files {
        for certificate in certificates_of_file(file).map_err(failure)? {
            let said = CertificateDescription::of(&certificate).map_err(failure)?;
            let kind = if said.is_authority { "authority" } else { "certificate" };
            let (from, until) = (time(said.valid_from), time(said.valid_until));
            if as_json {
                print_json(&json!({
                    "file": file.display().to_string(),
                    "kind": kind,
                    "subject": said.subject,
                    "issuer": said.issuer,
                    "names": said.names,
                    "valid_from": from,
                    "valid_until": until,
                    "fingerprint": said.fingerprint.to_string(),
                }))?;
                continue;
            }
            let ended = Timestamp::now().as_second() > said.valid_until;
            let until = if ended { format!("{until} (expired)") } else { until };
            rows.push(vec![
                file.display().to_string(),
                kind.to_owned(),
                said.subject,
                said.names.join(" "),
                said.issuer,
                until,
                said.fingerprint.to_string(),
            ]);
        }
    }
    if as_json {
        return Ok(());
    }
    let heads = ["FILE", "KIND", "SUBJECT", "NAMES", "ISSUER", "VALID UNTIL", "FINGERPRINT"];
    print_table(&heads, &rows)
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

fn failure(fault: TlsFault) -> Failure {
    let exit = match &fault {
        TlsFault::File { error, .. } if error.kind() == io::ErrorKind::NotFound => Exit::NotFound,
        TlsFault::File { .. } | TlsFault::Issue { .. } => Exit::Failed,
        _ => Exit::Usage,
    };
    Failure::new(exit, fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_file_of_the_folder_and_of_no_other() {
        for (name, file) in [
            ("broker.example", "broker.example"),
            ("*.example", "_.example"),
            ("../etc", "_.._etc"),
            ("a/b", "a_b"),
            ("::1", "::1"),
        ] {
            assert_eq!(file_name(name), file);
        }
    }
}

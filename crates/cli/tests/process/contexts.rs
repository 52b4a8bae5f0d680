//! `sennit cert` and `sennit context`: certificates from the command line serve a broker, and a context says how to
//! reach it without showing its credential.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    broker::{Broker, run, sennit},
    tls::{refused, secure},
};

/// A command whose contexts lie in `home`.
fn at_home(home: &Path, arguments: &[&str]) -> Command {
    let mut command = sennit(arguments);
    command.env("XDG_CONFIG_HOME", home);
    command
}

fn succeeded(output: &Output) -> String {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn certificates_that_are_made_here_serve_a_broker_and_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let at = |name: &str| certs.join(name).display().to_string();
    let out = certs.to_str().unwrap().to_owned();
    let sennit = |arguments: &[&str]| run(sennit(arguments), b"");
    succeeded(&sennit(&["cert", "create", "--out", &out, "--name", "test authority"]));
    let again = refused(&sennit(&["cert", "create", "--out", &out]), 4);
    assert!(again.contains("exists"), "{again}");
    let ca = format!("{},{}", at("ca.pem"), at("ca.key"));
    let issue = |names: &[&str]| {
        let fixed = ["cert", "issue", "--ca", &ca, "--out", &out];
        sennit(&fixed.iter().chain(names).copied().collect::<Vec<_>>())
    };
    succeeded(&issue(&["localhost", "127.0.0.1"]));
    succeeded(&issue(&["--client", "worker"]));
    refused(&issue(&["no spaces"]), 2);
    refused(&issue(&["--client", "two", "names"]), 2);
    for key in ["ca.key", "localhost.key", "worker.key"] {
        let mode = fs::metadata(certs.join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let shown = succeeded(&sennit(&["cert", "show", "--json", &at("localhost.pem")]));
    let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown.len(), 2, "the certificate and its authority");
    assert_eq!(shown[0]["names"], serde_json::json!(["localhost", "127.0.0.1"]));
    assert_eq!(shown[1]["subject"], "CN=test authority");
    assert_eq!(
        (&shown[0]["kind"], &shown[1]["kind"]),
        (&"certificate".into(), &"authority".into())
    );
    refused(&sennit(&["cert", "show", &at("localhost.key")]), 2);
    refused(&sennit(&["cert", "show", &at("missing.pem")]), 3);
    let pair =
        |name: &str| format!("{},{}", at(&format!("{name}.pem")), at(&format!("{name}.key")));
    let (server, client, authority) = (pair("localhost"), pair("worker"), at("ca.pem"));
    let flags = ["--tls", &server, "--tls-client", "required", "--tls-client-ca", &authority];
    let broker = Broker::start_with(&folder.path().join("data"), &flags);
    broker.ok(&["topic", "list", "--tls-ca", &authority, "--tls-cert", &client], b"");
    let pinned = shown[0]["fingerprint"].as_str().unwrap();
    broker.ok(&["topic", "list", "--tls-fingerprint", pinned, "--tls-cert", &client], b"");
}

#[test]
fn a_context_says_how_to_reach_a_broker_until_an_option_says_another() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(&folder.path().join("data"));
    let home = folder.path().join("home");
    let authority = authority.to_str().unwrap();
    let run = |arguments: &[&str]| run(at_home(&home, arguments), b"sennit_id_verysecret\n");
    let (server, http) = (&*broker.listen, &*broker.http);
    let add = ["context", "add", "prod", "--server", server, "--http", http, "--tls-ca", authority];
    succeeded(&run(&add));
    succeeded(&run(&["context", "add", "dev", "--server", "127.0.0.1:1"]));
    succeeded(&run(&["context", "add", "prod", "--credential-file", "-"]));
    // The first one is used, by both ports.
    succeeded(&run(&["topic", "create", "jobs"]));
    succeeded(&run(&["stream", "create", "log"]));
    refused(&run(&["topic", "list", "--context", "dev"]), 6);
    refused(&run(&["topic", "list", "--context", "nowhere"]), 3);
    succeeded(&run(&["context", "use", "dev"]));
    refused(&run(&["topic", "list"]), 6);
    succeeded(&run(&["topic", "list", "--context=prod"]));
    // Who names a broker does not mean the one of the context, nor its TLS.
    let plain = Broker::start(&folder.path().join("plain"));
    succeeded(&run(&["context", "use", "prod"]));
    succeeded(&run(&["topic", "list", "--server", &plain.listen]));
    let talk = refused(&run(&["topic", "list", "--server", &plain.listen, "--context", "prod"]), 6);
    assert!(talk.contains("leave out --tls"), "{talk}");
    let file = home.join("sennit/contexts.toml");
    assert!(fs::read_to_string(&file).unwrap().contains("verysecret"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for arguments in
        [&["context", "list"][..], &["context", "list", "--json"], &["topic", "--help"]]
    {
        let said = succeeded(&run(arguments));
        assert!(!said.contains("verysecret"), "{said}");
    }
    let listed = succeeded(&run(&["context", "list", "--json"]));
    assert!(listed.contains(r#""has_credential":true"#) && listed.contains(authority), "{listed}");
    succeeded(&run(&["context", "remove", "prod"]));
    refused(&run(&["context", "use", "prod"]), 3);
    assert!(!fs::read_to_string(&file).unwrap().contains("verysecret"));
}

#[test]
fn contexts_that_others_may_read_or_that_are_broken_are_refused_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let run = |arguments: &[&str]| run(at_home(home, arguments), b"verysecret");
    succeeded(&run(&["context", "add", "prod", "--credential-file", "-"]));
    let file = home.join("sennit/contexts.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let talk = refused(&run(&["topic", "list"]), 2);
    assert!(talk.contains("chmod 600") && !talk.contains("verysecret"), "{talk}");
    fs::write(&file, "[contexts.prod]\ncredential = verysecret\n").unwrap();
    let talk = refused(&run(&["topic", "list"]), 2);
    assert!(talk.contains("line 2") && !talk.contains("verysecret"), "{talk}");
    // What needs no context goes on.
    succeeded(&run(&["topic", "--help"]));
}

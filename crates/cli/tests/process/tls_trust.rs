//! Whom the ends of a TLS connection trust: authorities, fingerprints, names, times, client certificates, and what a
//! reload changes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use sennit_tls::{Authority, Fingerprint, IssuedCertificate, certificates_of_file};

use crate::{
    bounds::BOUND,
    broker::Broker,
    tls::{ok, refused, secure, trusting},
};

const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority, and the file of its certificate.
fn authority(folder: &Path, name: &str) -> (Authority, PathBuf) {
    let (authority, _) = Authority::create(name, 30).unwrap();
    let path = folder.join(format!("{name}.pem"));
    fs::write(&path, authority.certificate_pem()).unwrap();
    (authority, path)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Writes a certificate and its key; returns the flag that names both.
fn files(folder: &Path, name: &str, issued: &IssuedCertificate) -> String {
    let (certificate, key) =
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    fs::write(&certificate, &issued.chain_pem).unwrap();
    fs::write(&key, &issued.key_pem).unwrap();
    format!("{},{}", certificate.display(), key.display())
}

#[test]
fn a_broker_is_known_by_its_authority_or_by_a_fingerprint_and_by_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, own) = secure(&folder.path().join("data"));
    let (_, other) = authority(folder.path(), "other");
    ok(&broker, &own, &["topic", "list"], b"");
    let talk = refused(&trusting(&broker, &other, &["topic", "list"], b""), 6);
    assert!(talk.contains("authority that is not trusted") && talk.contains("--tls-ca"), "{talk}");
    let pinned = Fingerprint::of(&certificates_of_file(&own).unwrap()[0]).to_string();
    broker.ok(&["topic", "list", "--tls-fingerprint", &pinned], b"");
    broker.ok(&["stream", "create", "log", "--tls-fingerprint", &pinned], b"");
    let wrong = format!("SHA256:{}", "0".repeat(64));
    for verb in [&["topic", "list"][..], &["stream", "create", "log"]] {
        let verb: Vec<_> = verb.iter().chain(&["--tls-fingerprint", &wrong]).copied().collect();
        let talk = refused(&broker.run(&verb, b""), 6);
        assert!(talk.contains("not the pinned") && talk.contains(&wrong), "{talk}");
    }
}

#[test]
fn a_certificate_that_has_expired_or_is_for_another_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, trusted) = authority(folder.path(), "authority");
    // It was valid from yesterday until now.
    let expired =
        files(folder.path(), "expired", &authority.issue_server(&names(&LOCAL), 0).unwrap());
    let other = authority.issue_server(&names(&["broker.example"]), 5).unwrap();
    let other = files(folder.path(), "other", &other);
    let broker = Broker::start_with(&folder.path().join("a"), &["--tls", &expired]);
    let since = Instant::now();
    let ended = loop {
        let output = trusting(&broker, &trusted, &["topic", "list"], b"");
        // In the second of its end it is still good.
        if !output.status.success() || since.elapsed() >= BOUND {
            break output;
        }
    };
    let talk = refused(&ended, 6);
    assert!(talk.contains("expired"), "{talk}");
    let broker = Broker::start_with(&folder.path().join("b"), &["--tls", &other]);
    let talk = refused(&trusting(&broker, &trusted, &["topic", "list"], b""), 6);
    assert!(talk.contains("for another name"), "{talk}");
    ok(&broker, &trusted, &["topic", "list", "--tls-server-name", "broker.example"], b"");
}

#[test]
fn files_that_change_are_read_again_and_broken_ones_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (first, first_trusted) = authority(folder.path(), "first");
    let (second, second_trusted) = authority(folder.path(), "second");
    let flag = files(folder.path(), "broker", &first.issue_server(&names(&LOCAL), 5).unwrap());
    let broker = Broker::start_with(&folder.path().join("data"), &["--tls", &flag]);
    ok(&broker, &first_trusted, &["topic", "create", "jobs"], b"");
    // A consumer that is there stays.
    let mut command = broker.command(&["consume", "jobs", "--follow", "--count", "1"]);
    command.env("SENNIT_TLS_CA", &first_trusted);
    let consumer = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    fs::write(folder.path().join("broker.pem"), "no certificate").unwrap();
    ok(&broker, &first_trusted, &["topic", "list"], b"");
    files(folder.path(), "broker", &second.issue_server(&names(&LOCAL), 5).unwrap());
    let since = Instant::now();
    while !trusting(&broker, &second_trusted, &["topic", "list"], b"").status.success() {
        assert!(since.elapsed() < BOUND, "the new certificate is not used");
    }
    refused(&trusting(&broker, &first_trusted, &["topic", "list"], b""), 6);
    ok(&broker, &second_trusted, &["publish", "jobs", "hello"], b"");
    assert_eq!(consumer.wait_with_output().unwrap().stdout, b"hello\n");
}

#[test]
fn clients_show_certificates_where_they_must_and_may_where_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, trusted) = authority(folder.path(), "servers");
    let (clients, client_ca) = authority(folder.path(), "clients");
    let (strangers, _) = authority(folder.path(), "strangers");
    let flag = files(folder.path(), "broker", &servers.issue_server(&names(&LOCAL), 5).unwrap());
    let good = files(folder.path(), "good", &clients.issue_client("worker", 5).unwrap());
    let bad = files(folder.path(), "bad", &strangers.issue_client("worker", 5).unwrap());
    for (asked, without) in [("required", false), ("optional", true)] {
        let flags =
            ["--tls", &flag, "--tls-client", asked, "--tls-client-ca", client_ca.to_str().unwrap()];
        let broker = Broker::start_with(&folder.path().join(asked), &flags);
        for verb in [&["topic", "list"][..], &["stream", "create", "log"]] {
            let with = |certificate: &str| {
                let verb: Vec<_> =
                    verb.iter().chain(&["--tls-cert", certificate]).copied().collect();
                trusting(&broker, &trusted, &verb, b"")
            };
            assert!(with(&good).status.success());
            refused(&with(&bad), 6);
            assert_eq!(
                trusting(&broker, &trusted, verb, b"").status.success(),
                without,
                "{verb:?}"
            );
        }
    }
}

#[test]
fn a_broker_with_files_that_are_no_certificate_does_not_start_and_shows_none_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, _) = authority(folder.path(), "authority");
    let flag = files(folder.path(), "broker", &authority.issue_server(&names(&LOCAL), 5).unwrap());
    let other = files(folder.path(), "other", &authority.issue_server(&names(&LOCAL), 5).unwrap());
    let (certificate, _) = flag.split_once(',').unwrap();
    let (_, other_key) = other.split_once(',').unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "-----BEGIN PRIVATE KEY-----\n?secret?\n-----END PRIVATE KEY-----\n")
        .unwrap();
    for (key, why) in [
        (other_key, "does not fit"),
        (secret.to_str().unwrap(), "not base64"),
        (certificate, "no private key"),
        ("/nonexistent", "cannot read"),
    ] {
        let data = folder.path().join("data");
        let pair = format!("{certificate},{key}");
        let arguments = ["serve", "--data", data.to_str().unwrap(), "--tls", &pair, "--listen"];
        let mut command = crate::broker::sennit(&arguments);
        command.args(["127.0.0.1:0", "--http", "127.0.0.1:0"]);
        let talk = refused(&crate::broker::run(command, b""), 2);
        assert!(talk.contains(why) && !talk.contains("?secret?"), "{talk}");
    }
}

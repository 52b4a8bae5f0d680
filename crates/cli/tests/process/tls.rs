//! TLS on both ports: every verb does over it what it does without, HTTP/2 is agreed on, and who speaks TLS where there
//! is none, or none where there is, is told so.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    bounds::BOUND,
    broker::{Broker, run, sennit},
    skipped::skipped,
};

/// A broker with a certificate of its own, and the certificate of its authority.
pub fn secure(folder: &Path) -> (Broker, PathBuf) {
    secure_with(folder, &[])
}

/// The same, told more.
pub fn secure_with(folder: &Path, flags: &[&str]) -> (Broker, PathBuf) {
    let flags: Vec<_> = ["--tls", "self"].iter().chain(flags).copied().collect();
    (Broker::start_with(folder, &flags), folder.join("tls/ca.pem"))
}

/// Runs a verb that trusts this authority; it has to succeed.
pub fn ok(broker: &Broker, authority: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = trusting(broker, authority, arguments, input);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {talk}");
    output.stdout
}

/// Runs a verb that trusts this authority.
pub fn trusting(broker: &Broker, authority: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = broker.command(arguments);
    command.env("SENNIT_TLS_CA", authority);
    run(command, input)
}

/// The error text of a command that has to fail with this exit code.
pub fn refused(output: &Output, exit: i32) -> String {
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit), "{talk}");
    talk
}

/// The bytes that a server sends to a client that says this, until it ends the connection.
fn answer_to(address: &str, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(said).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    heard
}

#[test]
fn messages_go_in_and_come_out_over_tls_as_they_do_without() {
    let folder = tempfile::tempdir().unwrap();
    let (mut broker, authority) = secure(folder.path());
    let lines: Vec<u8> =
        (0..50_000).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
    ok(&broker, &authority, &["publish", "lines", "--create"], &lines);
    assert!(ok(&broker, &authority, &["read", "lines", "--from", "earliest"], b"") == lines);
    assert!(ok(&broker, &authority, &["consume", "lines"], b"") == lines);
    let long = vec![b'x'; 3 << 20];
    ok(&broker, &authority, &["publish", "long", "--create", "--whole"], &long);
    assert!(ok(&broker, &authority, &["consume", "long", "--raw"], b"") == long);
    // Four partitions of several shards: the connection moves to another core.
    let flags = ["topic", "create", "wide", "--partitions", "4"];
    ok(&broker, &authority, &flags, b"");
    for key in ["a", "b", "c", "d"] {
        ok(&broker, &authority, &["publish", "wide", "--key", key, key], b"");
    }
    assert_eq!(ok(&broker, &authority, &["consume", "wide"], b"").len(), 8);
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn streams_and_backups_go_over_tls_as_they_do_without() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(&folder.path().join("data"));
    ok(&broker, &authority, &["stream", "create", "log", "--content-type", "text/plain"], b"");
    let long = vec![b'y'; 300_000];
    ok(&broker, &authority, &["stream", "append", "log"], &long);
    assert!(ok(&broker, &authority, &["stream", "read", "log"], b"") == long);
    let archive = folder.path().join("backup");
    ok(&broker, &authority, &["backup", "--to", archive.to_str().unwrap()], b"");
    assert!(std::fs::metadata(&archive).unwrap().len() > 300_000);
}

/// Runs curl; `None` if this machine has none.
fn curl(authority: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--cacert"]).arg(authority);
    match command.args(arguments).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped("this machine has no curl");
            None
        }
        output => {
            let output = output.unwrap();
            let talk = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {talk}");
            Some(output.stdout)
        }
    }
}

#[test]
fn another_client_agrees_on_http_2_and_reads_events() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(folder.path());
    ok(&broker, &authority, &["stream", "create", "log", "--content-type", "text/plain"], b"");
    ok(&broker, &authority, &["stream", "append", "log", "hello"], b"");
    let at = format!("https://{}/v1/stream/log", broker.http);
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let arguments = [flag, "--write-out", "|%{http_version}", &at];
        let Some(said) = curl(&authority, &arguments) else { return };
        assert_eq!(String::from_utf8_lossy(&said), format!("hello|{version}"));
    }
    ok(&broker, &authority, &["stream", "append", "log", "--close", "bye"], b"");
    // It ends because the stream is closed.
    let events = format!("{at}?offset=-1&live=sse");
    let Some(said) = curl(&authority, &["--http1.1", &events]) else { return };
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("hello") && said.contains("bye"), "{said}");
    let Some(made) =
        curl(&authority, &["--http1.1", "--include", "--request", "PUT", &format!("{at}2")])
    else {
        return;
    };
    let made = String::from_utf8_lossy(&made).to_lowercase();
    assert!(made.contains(&format!("location: https://{}/v1/stream/log2", broker.http)), "{made}");
}

#[test]
fn readers_that_wait_are_parked_and_told_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(folder.path());
    ok(&broker, &authority, &["stream", "create", "log", "--content-type", "text/plain"], b"");
    let mut command = broker.command(&["stream", "tail", "log"]);
    command.env("SENNIT_TLS_CA", &authority);
    let mut reader = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = reader.stdout.take().unwrap();
    for number in 0..20 {
        let word = format!("word {number};");
        ok(&broker, &authority, &["stream", "append", "log", &word], b"");
        let mut heard = vec![0; word.len()];
        said.read_exact(&mut heard).unwrap();
        assert_eq!(heard, word.as_bytes());
    }
    ok(&broker, &authority, &["stream", "append", "log", "--close", "end"], b"");
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"end");
    assert!(reader.wait().unwrap().success());
}

#[test]
fn a_client_without_tls_is_told_to_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(folder.path());
    let talk = refused(&broker.run(&["topic", "list"], b""), 6);
    assert!(talk.contains("tls-required") && talk.contains("--tls"), "{talk}");
    let talk = refused(&broker.run(&["stream", "read", "log"], b""), 2);
    assert!(talk.contains("https://") && talk.contains("--tls"), "{talk}");
    let said = answer_to(&broker.http, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(said.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&said));
    let counted = ok(&broker, &authority, &["topic", "list"], b"");
    assert!(counted.is_empty());
}

#[test]
fn a_client_with_tls_is_told_to_leave_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    for verb in [&["topic", "list", "--tls"][..], &["stream", "read", "log", "--tls"]] {
        let talk = refused(&broker.run(verb, b""), 6);
        assert!(talk.contains("does not speak TLS there: leave out --tls"), "{talk}");
    }
    for address in [&broker.listen, &broker.http] {
        let alert = answer_to(address, &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]);
        assert_eq!(alert, [0x15, 3, 1, 0, 2, 2, 0x28], "{address}");
    }
}

#[test]
fn an_address_with_https_is_asked_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (broker, authority) = secure(folder.path());
    let mut command = sennit(&["stream", "create", "log", "--http"]);
    command.arg(format!("https://{}", broker.http)).env("SENNIT_TLS_CA", &authority);
    assert!(run(command, b"").status.success());
    let mut command = sennit(&["topic", "list", "--server"]);
    command.arg(format!("https://{}/", broker.listen));
    let talk = refused(&run(command, b""), 6);
    assert!(talk.contains("trust"), "{talk}");
}

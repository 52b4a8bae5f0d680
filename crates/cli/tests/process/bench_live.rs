//! `sennit bench live-fan-out` and `idle-connections`, each for a moment: what they start, check and say.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{
    auth::text,
    bounds::until,
    broker::{run, sennit},
};

/// A load that is over at once.
const SHORT: [&str; 8] =
    ["--serve", "--warmup", "0.1", "--duration", "0.4", "--json", "-", "--subscribers=6"];

/// The only row of a benchmark, in which no message is missing and none came twice.
fn row(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sennit(&[&["bench"], arguments].concat());
    command.current_dir(folder.path());
    let output = run(command, b"");
    assert!(output.status.success(), "{arguments:?} {}", text(&output.stderr));
    let row: Value = serde_json::from_slice(&output.stdout).expect("it is one row");
    assert_eq!((&row["missing"], &row["duplicates"]), (&0.into(), &0.into()), "{row}");
    row
}

/// Whether Debian's Redis is there.
fn is_redis_there() -> bool {
    Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok()
}

#[test]
fn subscribers_get_every_message_and_the_row_says_how_fast() {
    let row = row(&[&["live-fan-out"], &SHORT[..]].concat());
    assert!(row["delivered_bytes_per_s"].is_f64(), "{row}");
}

#[test]
fn subscribers_get_every_message_over_tls() {
    let row =
        row(&[&["live-fan-out", "--serve-tls", "--encoding", "protobuf"], &SHORT[..]].concat());
    assert_eq!(row["config"]["tls"], true, "{row}");
}

#[test]
fn subscribers_for_whom_nobody_waits_are_told_what_they_miss() {
    let flood = ["live-fan-out", "--lag", "0", "--retain", "65536", "--threads", "2"];
    let row = row(&[&flood[..], &SHORT[..]].concat());
    // How much is told depends on the machine; that nothing else is missing does not.
    assert!(row["told_missing"].is_u64() && row["gaps_told"].is_u64(), "{row}");
}

#[test]
fn a_row_by_redis_crosses_it_with_every_message() {
    if !is_redis_there() {
        return;
    }
    // A machine that does other work may let a moment pass in which nothing is published.
    until("messages cross it", || {
        let row = row(&[&["live-fan-out", "--redis", "--probe"], &SHORT[..]].concat());
        assert!(row["publisher_rss_peak_bytes"].is_u64() && row["bare_per_s"].is_f64(), "{row}");
        row["messages_per_publication"].as_f64().is_some_and(|messages| messages >= 1.0)
    });
}

#[test]
fn a_redis_that_is_not_there_is_named_with_what_would_help() {
    for (flags, code, hints) in [
        (&["--redis"][..], 1, &["redis-server", "apt-get install"][..]),
        (&["--redis", "redis://127.0.0.1:1"], 6, &["no Redis answers at 127.0.0.1:1"]),
        (&["--redis", "127.0.0.1:1"], 2, &["redis://HOST[:PORT]"]),
    ] {
        // A process that finds no other program.
        let mut command = sennit(&[&["bench", "live-fan-out"], flags, &SHORT[..]].concat());
        let folder = tempfile::tempdir().unwrap();
        command.env("PATH", "").current_dir(folder.path());
        let output = run(command, b"");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(hints.iter().all(|hint| said.contains(hint)), "{said}");
    }
}

#[test]
fn idle_connections_are_counted_and_their_memory_is_measured() {
    let row = row(&[
        "idle-connections",
        "--serve",
        "--connections",
        "20",
        "--idle",
        "0.1",
        "--json",
        "-",
    ]);
    assert_eq!((&row["parked"], &row["counted"]), (&20.into(), &20.into()), "{row}");
    assert!(row["rss_each_bytes"].is_u64(), "{row}");
}

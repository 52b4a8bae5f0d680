//! A data directory of an earlier Sennit with an altered group and parked and retried messages, opened by this one.
//! `SENNIT_WRITE_GOLDEN=groups cargo test -p sennit --test process golden_groups` creates it; a committed one is
//! never created again.

use serde_json::Value;

use crate::{
    broker::Broker,
    golden::{golden, is_to_be_made, restored},
};

const LETTERS: &str = "jobs.dead-letter";

fn make() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 64 << 10);
    let broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    broker.ok(&["topic", "create", LETTERS], b"");
    broker.ok(&["group", "alter", LETTERS, "default", "--attempts", "7", "--lease", "45s"], b"");
    broker.ok(&["publish", LETTERS, "one", "two"], b"");
    let bury = ["consume", LETTERS, "--verdict", "dead-letter", "--reason", "no such customer"];
    broker.ok(&bury, b"");
    broker.ok(&["group", "retry", LETTERS, "default", "--offsets", "1"], b"");
    let file = golden("groups.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
}

#[test]
fn a_golden_directory_knows_an_altered_group_and_what_was_parked_and_asked_for() {
    if is_to_be_made("groups") {
        make();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("groups.backup", &data);
    let broker = Broker::start(&data);
    let said = broker.ok(&["group", "describe", LETTERS, "default", "--json"], b"");
    let group: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!((&group["attempts_max"], &group["lease_ms"]), (&7.into(), &45_000.into()));
    assert_eq!((&group["parked"], &group["ready"]), (&1.into(), &1.into()));
    assert_eq!(group["parked_runs"][0]["reason"], "no such customer");
    assert_eq!(broker.ok(&["consume", LETTERS], b""), b"two\n");
}

//! A data directory of an earlier Sennit with topics that have a limit or look for duplicates, opened by this one.
//! `SENNIT_WRITE_GOLDEN=dedup cargo test -p sennit --test process golden_dedup` creates it; a committed one is
//! never created again.

use serde_json::Value;

use crate::{
    broker::Broker,
    golden::{golden, is_to_be_made, restored},
};

fn make() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 64 << 10);
    let broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    let create = ["topic", "create", "payments", "--dedup-header", "id", "--dedup-window", "7d"];
    broker.ok(&create, b"");
    broker.ok(&["publish", "payments", "one", "--header", "id=1"], b"");
    broker.ok(&["publish", "payments", "again", "--header", "id=1"], b"");
    broker.ok(&["publish", "payments", "two", "--header", "id=2"], b"");
    let create = ["topic", "create", "jobs", "--limit-messages", "1", "--when-full", "drop-oldest"];
    broker.ok(&create, b"");
    broker.ok(&["publish", "jobs", "old"], b"");
    broker.ok(&["publish", "jobs", "new"], b"");
    let mode = ["--dedup-header", "page", "--dedup-mode", "replace", "--dedup-window", "7d"];
    broker.ok(&[&["topic", "create", "pages"], &mode[..]].concat(), b"");
    broker.ok(&["publish", "pages", "draft", "--header", "page=1"], b"");
    broker.ok(&["publish", "pages", "final", "--header", "page=1"], b"");
    let file = golden("dedup.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
}

#[test]
fn a_golden_directory_knows_limits_and_deduplication_and_what_they_left() {
    if is_to_be_made("dedup") {
        make();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("dedup.backup", &data);
    let broker = Broker::start(&data);
    let described = |topic: &str| -> Value {
        let said = broker.ok(&["topic", "describe", topic, "--json"], b"");
        serde_json::from_slice(&said).unwrap()
    };
    assert_eq!(described("payments")["dedup"]["header"], "id");
    assert_eq!(described("pages")["dedup"]["mode"], "replace");
    assert_eq!(described("jobs")["limit"]["messages"], 1);
    assert_eq!(broker.ok(&["consume", "payments"], b""), b"one\ntwo\n");
    assert_eq!(broker.ok(&["consume", "jobs"], b""), b"new\n");
    assert_eq!(broker.ok(&["consume", "pages"], b""), b"final\n");
}

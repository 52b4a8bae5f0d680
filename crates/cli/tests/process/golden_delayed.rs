//! A data directory of an earlier Sennit with delayed messages of which some were cancelled and rescheduled, opened by
//! this one. `SENNIT_WRITE_GOLDEN=delayed cargo test -p sennit --test process golden_delayed` creates it; a committed one
//! is never created again.

use crate::{
    broker::Broker,
    golden::{golden, is_to_be_made, restored},
};

fn make() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 64 << 10);
    let broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    broker.ok(&["topic", "create", "jobs"], b"");
    for payload in ["cancelled", "rescheduled", "now", "untouched"] {
        broker.ok(&["publish", "jobs", payload, "--delay", "36000d"], b"");
    }
    broker.ok(&["delayed", "cancel", "jobs", "0"], b"");
    broker.ok(&["delayed", "reschedule", "jobs", "1", "--at", "2090-01-01"], b"");
    broker.ok(&["delayed", "reschedule", "jobs", "2", "--now"], b"");
    let file = golden("delayed.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
}

#[test]
fn a_golden_directory_knows_which_delays_were_cancelled_and_changed() {
    if is_to_be_made("delayed") {
        make();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("delayed.backup", &data);
    let broker = Broker::start(&data);
    assert_eq!(broker.ok(&["consume", "jobs"], b""), b"now\n");
    let said = String::from_utf8(broker.ok(&["delayed", "list", "jobs"], b"")).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(lines[0], "2090-01-01T00:00:00Z\t0\t1\t1");
    assert!(lines[1].ends_with("\t0\t3\t1"), "{said}");
}

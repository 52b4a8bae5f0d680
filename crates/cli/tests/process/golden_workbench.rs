//! A data directory of an earlier Sennit with dead letters that were redriven and messages that were cancelled, opened
//! by this one. `SENNIT_WRITE_GOLDEN=workbench cargo test -p sennit --test process golden_workbench` creates it; a
//! committed one is never created again.

use crate::{
    bounds::until,
    broker::Broker,
    golden::{golden, is_to_be_made, restored},
};

fn make() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 64 << 10);
    let broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    let ok = |command: &str| broker.ok(&command.split(' ').collect::<Vec<_>>(), b"");
    ok("publish jobs one two three four --create");
    ok("consume jobs --verdict dead-letter --reason broken");
    until("all are dead letters", || {
        let listed = broker.run(&["dead-letters", "jobs", "peek"], b"");
        listed.stdout.iter().filter(|&&byte| byte == b'\n').count() == 4
    });
    ok("dead-letters jobs redrive --limit 2");
    ok("dead-letters jobs purge --text three");
    ok("publish jobs five");
    ok("messages jobs cancel --text two");
    let file = golden("workbench.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
}

#[test]
fn a_golden_directory_knows_what_was_redriven_and_cancelled() {
    if is_to_be_made("workbench") {
        make();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("workbench.backup", &data);
    let broker = Broker::start(&data);
    assert_eq!(broker.ok(&["consume", "jobs"], b""), b"one\nfive\n");
    assert_eq!(broker.ok(&["consume", "jobs.dead-letter"], b""), b"four\n");
}

//! A flipped bit on the disk: consumers receive gaps for the lost messages, and all others.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use serde_json::Value;

use crate::broker::{Broker, is_one_node};

/// More than the broker keeps in memory, so that the first of them are read from the disk.
const LINES: u64 = 6000;
const LINE_BYTES: usize = 10_000;

/// Flips a bit of a payload that lies early in the journal.
fn flip_a_bit(data: &Path) {
    let mut block = [0; 4096];
    for lane in std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()) {
        let slot = lane.join("slot-00000.journal");
        let Ok(file) = File::options().read(true).write(true).open(slot) else { continue };
        for at in (1000..2000).map(|block| block * 4096) {
            file.read_exact_at(&mut block, at).unwrap();
            if block.iter().all(|&byte| byte == b'x') {
                return file.write_all_at(b"y", at + 7).unwrap();
            }
        }
    }
    panic!("no payload was found");
}

#[test]
fn a_flipped_bit_is_told_as_a_gap_and_the_rest_is_consumed() {
    if !is_one_node("a damaged lane is put in quarantine, as `cluster_rot` has it") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let filler = "x".repeat(LINE_BYTES);
    let lines: Vec<u8> = (0..LINES).flat_map(|n| format!("{n} {filler}\n").into_bytes()).collect();
    broker.ok(&["publish", "lines", "--create"], &lines);
    flip_a_bit(folder.path());

    let output = broker.run(&["consume", "lines", "--json"], b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    let objects = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let objects: Vec<Value> = objects.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let (gaps, messages): (Vec<_>, Vec<_>) = objects.iter().partition(|o| o.get("gap").is_some());
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let gap = gaps[0];
    assert_eq!((&gap["gap"], &gap["topic"]), (&"damaged".into(), &"lines".into()));
    let first = gap["first_offset"].as_u64().unwrap();
    let end = first + gap["count"].as_u64().unwrap();
    assert!(first < end && end < LINES, "{gap}");
    let mut offsets: Vec<_> = messages.iter().map(|o| o["offset"].as_u64().unwrap()).collect();
    offsets.sort_unstable();
    assert!(offsets.iter().copied().eq((0..first).chain(end..LINES)), "{offsets:?}");

    // All else is settled; that there is a gap is said again.
    let output = broker.run(&["consume", "lines"], b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let gap = format!("gap: offsets {first}..{end} of partition 0 cannot be read (damaged)\n");
    assert_eq!((output.status.code(), &output.stdout[..], said), (Some(0), &b""[..], gap));
}

//! Verifying data directories: whole, served and damaged ones.

use std::{collections::BTreeSet, os::unix::fs::FileExt, path::Path};

use serde_json::Value;

use crate::broker::{Broker, is_one_node, run, sennit};

/// Why damage is not told and repaired on several nodes as here.
const SEVERAL_NODES: &str =
    "a damaged lane is put in quarantine, as `cluster_rot` has it, and is not repaired";

fn verify(data: &Path) -> (Option<i32>, Vec<Value>, String) {
    let mut command = sennit(&["storage", "verify", "--json", "--data"]);
    command.arg(data);
    let output = run(command, b"");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let values = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    (output.status.code(), values, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn verify_counts_what_is_whole_and_names_what_is_damaged() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = verify(folder.path());
    assert_eq!(code, Some(3), "nothing is damaged");
    assert!(said.contains("no FORMAT file"), "{said}");

    let data = folder.path().join("data");
    let mut broker = Broker::start(&data);
    let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    broker.ok(&["publish", "lines", "--create"], &lines);
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(4), "nobody has looked");
    assert!(said.contains("in use"), "{said}");
    broker.kill();

    let (code, shards, said) = verify(&data);
    assert_eq!(code, Some(0), "{said}");
    let records: u64 = shards.iter().map(|shard| shard["records"].as_u64().unwrap()).sum();
    assert!(records > 0);

    // A flipped bit in the first frame with records of a shard that has some.
    let lane = shards.iter().position(|shard| shard["records"] != 0).unwrap();
    let slot = data.join(format!("lane-{lane}/slot-00000.journal"));
    let file = std::fs::File::options().read(true).write(true).open(&slot).unwrap();
    let mut block = [0; 4096];
    let at = (1..64)
        .map(|block| block * 4096)
        .find(|&at| {
            file.read_exact_at(&mut block, at).unwrap();
            block.starts_with(b"SNFR") && block[52] != 0
        })
        .unwrap();
    file.write_all_at(&[block[100] ^ 1], at + 100).unwrap();
    let (code, shards, said) = verify(&data);
    assert_eq!(code, Some(1), "{said}");
    let damage = &shards[lane]["damage"][0];
    assert_eq!(damage["path"], slot.to_str().unwrap());
    assert_eq!(damage["position"], at.to_string());

    // The topic's name and settings lay there, as it happens. Its messages did not.
    repair(&data, lane);
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(0), "{said}");
    broker.start_again();
    let topics = String::from_utf8(broker.ok(&["topic", "list", "--json"], b"")).unwrap();
    let found: Vec<&str> = topics.split('"').filter(|word| word.starts_with("lost-")).collect();
    assert_eq!(found.len(), 1, "{topics}");
    let consumed = String::from_utf8(broker.ok(&["consume", found[0]], b"")).unwrap();
    assert_eq!(numbers(&consumed).len(), 20_000);
}

/// Repairs a directory in which something was damaged.
fn repair(data: &Path, lane: usize) {
    let mut command = sennit(&["storage", "repair", "--json", "--data"]);
    command.arg(data);
    let output = run(command, b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let repairs: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let aside = repairs[lane]["set_aside"][0].as_str().unwrap();
    assert!(aside.contains("quarantine") && Path::new(aside).exists(), "{aside}");
}

/// The numbers of whole lines.
fn numbers(consumed: &str) -> BTreeSet<u64> {
    consumed.lines().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect()
}

#[test]
fn a_damaged_journal_costs_what_lay_there_and_a_repair_makes_it_whole() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "1"]);
    let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    broker.ok(&["publish", "lines", "--create"], &lines);
    broker.ok(&["publish", "others", "--create"], &lines);
    broker.kill();
    let slot = folder.path().join("lane-0/slot-00000.journal");
    let bytes = std::fs::read(&slot).unwrap();
    let at = bytes.windows(9).position(|bytes| bytes == b"line 7000").unwrap();
    let file = std::fs::File::options().write(true).open(&slot).unwrap();
    file.write_all_at(b"L", at as u64).unwrap();

    // It starts and says so; who consumes is told.
    broker.start_again();
    let ready = crate::backup::get(&broker.http, "/readyz");
    assert!(ready.contains("\"ready\":true") && ready.contains("\"journal_places\":1"), "{ready}");
    let output = broker.run(&["consume", "lines", "--count", "10", "--no-ack"], b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("gap: offsets") && said.contains("(lost)"), "{said}");
    broker.kill();

    repair(folder.path(), 0);
    let (code, _, said) = verify(folder.path());
    assert_eq!(code, Some(0), "{said}");
    broker.start_again();
    let ready = crate::backup::get(&broker.http, "/readyz");
    assert!(!ready.contains("quarantined"), "{ready}");
    let told =
        String::from_utf8(broker.ok(&["topic", "describe", "lines", "--json"], b"")).unwrap();
    let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert!(told["partition"][0]["lost"].as_u64().unwrap() > 0, "{told}");
    let consumed = String::from_utf8(broker.ok(&["consume", "lines"], b"")).unwrap();
    let given = numbers(&consumed);
    assert!(!given.contains(&7000) && given.contains(&19_999), "{} lines", given.len());
    let others = String::from_utf8(broker.ok(&["consume", "others"], b"")).unwrap();
    assert_eq!(numbers(&others).len(), 20_000);
    // New messages go behind everything that was there.
    broker.ok(&["publish", "lines", "new"], b"");
    let consumed = String::from_utf8(broker.ok(&["consume", "lines", "--json"], b"")).unwrap();
    let new: Value = serde_json::from_str(consumed.lines().last().unwrap()).unwrap();
    assert!(new["offset"].as_u64().unwrap() >= 20_000, "{new}");
}

#[test]
fn a_pack_that_is_gone_is_named_whatever_else_is_damaged() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 1 << 20);
    let mut broker = Broker::start_with(&data, &["--journal-segments", "1"]);
    broker.ok(&["publish", "lines", "--create"], &crate::backup::lines(0..20_000));
    // Of two the first is referred to.
    let packs = crate::backup::moved(&data.join("lane-0"), 2);
    broker.kill();
    std::fs::remove_file(&packs[0]).unwrap();
    let file = std::fs::File::options().write(true).open(&packs[1]).unwrap();
    file.write_all_at(b"rot", 4096).unwrap();
    let (code, shards, said) = verify(&data);
    assert_eq!(code, Some(1), "{said}");
    let damage = shards[0]["damage"].as_array().unwrap();
    let whats: Vec<_> = damage.iter().map(|damage| damage["what"].as_str().unwrap()).collect();
    assert!(whats.len() > 1, "{whats:?}");
    let missing = "a pack with messages that are wanted is missing";
    assert_eq!(whats.iter().filter(|what| **what == missing).count(), 1, "{whats:?}");
}

#[test]
fn a_segment_whose_header_is_gone_is_named_if_messages_in_it_are_wanted() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    crate::backup::short_segments(&data, 1, 1 << 20);
    let mut broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    let lines: Vec<u8> =
        (0..12_000).flat_map(|n| format!("{n} {}\n", "x".repeat(1000)).into_bytes()).collect();
    broker.ok(&["publish", "lines", "--create"], &lines);
    broker.kill();
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(0), "{said}");

    // Of the first segment, which no replay reads any more.
    let slot = data.join("lane-0/slot-00000.journal");
    let file = std::fs::File::options().read(true).write(true).open(&slot).unwrap();
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 0).unwrap();
    assert_eq!(header[16..24], [0; 8], "another segment lies there");
    file.write_all_at(&[header[20] ^ 1], 20).unwrap();
    let (code, shards, said) = verify(&data);
    assert_eq!(code, Some(1), "{said}");
    let damage = &shards[0]["damage"];
    assert_eq!(damage.as_array().unwrap().len(), 1, "{damage}");
    assert_eq!(damage[0]["path"], slot.to_str().unwrap());
    assert_eq!(damage[0]["position"], "0");
    assert!(damage[0]["what"].as_str().unwrap().contains("wanted"), "{damage}");
    let after = std::fs::read(&slot).unwrap();
    assert_eq!(after[..20], header[..20], "looking at it changed it");

    // One that nobody wants is no damage: all that is spare looks like that.
    file.write_all_at(&header, 0).unwrap();
    let pack = data.join("lane-0/pack-0000000009.pack");
    assert!(!pack.exists());
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_was_found_and_repaired_is_told_although_a_later_shard_cannot_be_looked_at() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    Broker::start_with(folder.path(), &["--shards", "2"]).kill();
    let lane = folder.path().join("lane-1");
    std::fs::remove_dir_all(&lane).unwrap();
    std::fs::write(&lane, "no folder").unwrap();
    for (verb, code) in [("verify", 1), ("repair", 7)] {
        let mut command = sennit(&["storage", verb, "--json", "--data"]);
        command.arg(folder.path());
        let output = run(command, b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("lane-1"), "{said}");
        let shard: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shard["shard"], 0, "{verb}");
    }
}

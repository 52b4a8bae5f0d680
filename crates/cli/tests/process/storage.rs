//! Looking at a data directory: what is whole, what is served, what is damaged.

use std::{collections::BTreeSet, os::unix::fs::FileExt, path::Path};

use serde_json::Value;

use crate::broker::{Broker, run, sennit};

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
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = verify(folder.path());
    assert_eq!(code, Some(1));
    assert!(said.contains("no FORMAT file"), "{said}");

    let data = folder.path().join("data");
    let mut broker = Broker::start(&data);
    let lines: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    broker.ok(&["publish", "lines", "--create"], &lines);
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(1));
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

    // What lay there is given up; everything else is there.
    let mut command = sennit(&["storage", "repair", "--json", "--data"]);
    command.arg(&data);
    let output = run(command, b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let repairs: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let aside = repairs[lane]["set_aside"][0].as_str().unwrap();
    assert!(aside.contains("quarantine") && Path::new(aside).exists(), "{aside}");
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(0), "{said}");

    broker.start_again();
    let consumed = String::from_utf8(broker.ok(&["consume", "lines"], b"")).unwrap();
    let given: BTreeSet<&str> = consumed.lines().collect();
    let all: BTreeSet<String> = (0..20_000).map(|n| format!("line {n}")).collect();
    assert!(given.iter().all(|line| all.contains(*line)));
    assert!(given.len() < all.len(), "the damage cost nothing");
    // New messages go behind everything that may have been there.
    broker.ok(&["publish", "lines", "new"], b"");
    let consumed = String::from_utf8(broker.ok(&["consume", "lines", "--json"], b"")).unwrap();
    let new: Value = serde_json::from_str(consumed.lines().last().unwrap()).unwrap();
    assert!(new["offset"].as_u64().unwrap() >= 20_000, "{new}");
}

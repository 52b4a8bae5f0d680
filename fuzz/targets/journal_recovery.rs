//! Any bytes as the slots of a lane: refused with a fault, or read the same way twice, in rising positions, and the
//! lane can continue: new records follow the old ones. A lane that is refused for damage can be read past it, the
//! same way twice, and continue as well; other lanes have no damage. The first byte says whether checksums are
//! corrected first, so that the fuzzer gets behind them. Knows the places of checksums, and otherwise the journal's
//! interface only.
#![no_main]

use std::path::PathBuf;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use libfuzzer_sys::fuzz_target;
use sennit_journal::{
    Disk, Fault, LaneConfig, Position, RecoveredLane, ReplayFrom, WalkItem, disk::MemoryDisk,
    recover, verify,
};

const SEGMENT_BYTES: usize = 16 << 10;
const BLOCK_BYTES: usize = 4096;
const FRAME_HEADER_BYTES: usize = 64;

type Found = Vec<(u8, Position, Bytes)>;

fn config() -> LaneConfig {
    let directory = PathBuf::from("lane-0");
    LaneConfig { directory, lane: 0, segment_bytes: SEGMENT_BYTES as u64, incarnation: 42 }
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
}

/// Makes the checksums of everything that looks like a header right.
fn mend(slot: &mut [u8]) {
    for at in (0..slot.len()).step_by(BLOCK_BYTES) {
        let rest = &mut slot[at..];
        if rest.starts_with(b"SENNITSG") {
            let right = crc(&rest[..64]);
            rest[64..68].copy_from_slice(&right);
        } else if rest.starts_with(b"SNFR") {
            let length = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]) as usize;
            if let Some(body) = rest[FRAME_HEADER_BYTES..].get(..length) {
                let right = crc(body);
                rest[8..12].copy_from_slice(&right);
            }
            let right = crc(&rest[8..FRAME_HEADER_BYTES]);
            rest[4..8].copy_from_slice(&right);
        }
    }
}

fn read(disk: &MemoryDisk) -> Result<(Found, RecoveredLane<MemoryDisk>), Fault> {
    let mut found = Found::new();
    let end = recover(disk, config(), ReplayFrom::Newest, |walked| match walked {
        WalkItem::Record { kind, position, body, .. } => {
            found.push((kind, position, body));
            Ok(())
        }
        WalkItem::Damage(damage) => Err(damage.into_fault()),
    })?;
    Ok((found, end))
}

/// Reads past damage.
fn read_past_rot(disk: &MemoryDisk) -> Result<(Vec<WalkItem>, RecoveredLane<MemoryDisk>), Fault> {
    let mut all = Vec::new();
    let end = recover(disk, config(), ReplayFrom::Newest, |walked| {
        all.push(walked);
        Ok::<(), Fault>(())
    })?;
    Ok((all, end))
}

/// A lane that is refused for damage goes on past it.
fn go_on_past_rot(disk: &MemoryDisk) {
    let Ok((mut all, mut first)) = read_past_rot(disk) else { return };
    let mut from = Position(0);
    for walked in &all {
        from = match walked {
            WalkItem::Record { position, body, .. } => {
                assert!(*position > from, "records rise, and lie outside of damage");
                position.plus(body.len() as u64)
            }
            WalkItem::Damage(hole) => {
                assert!(hole.position >= from && hole.bytes > 0, "damage lies between records");
                hole.end()
            }
        };
    }
    assert!(from <= first.end, "all lies before the end");
    let Some(later) = append(&mut first) else { return };
    all.push(later);
    let (again, _) = read_past_rot(disk).expect("a lane that went on is read");
    assert_eq!(joined(again), joined(all));
}

/// Damage that lies side by side may be said at once or one after the other.
fn joined(all: Vec<WalkItem>) -> Vec<WalkItem> {
    let mut joined: Vec<WalkItem> = Vec::new();
    for mut walked in all {
        if let WalkItem::Damage(next) = &mut walked {
            if let Some(WalkItem::Damage(before)) = joined.last_mut()
                && before.end() == next.position
            {
                before.bytes += next.bytes;
                continue;
            }
            (next.path, next.problem) = (PathBuf::new(), "");
        }
        joined.push(walked);
    }
    joined
}

/// Appends a record in a new segment; `None` if the lane is in its last life.
fn append(lane: &mut RecoveredLane<MemoryDisk>) -> Option<WalkItem> {
    if lane.builder.generation() == u32::MAX {
        return None;
    }
    let body = Bytes::from_static(b"later");
    let position = lane.builder.push(7, &[&body]).expect("a short record fits");
    let frame = lane.builder.seal().expect("a record was pushed");
    let slot = lane.slots.make().expect("memory has room");
    lane.lane.add_spare(slot);
    let whole = frame.body;
    lane.lane.append(&[frame]).expect("memory takes it");
    Some(WalkItem::Record { kind: 7, position, body, frame: whole })
}

fuzz_target!(|data: &[u8]| {
    let Some((&mends, slots)) = data.split_first() else { return };
    let disk = MemoryDisk::default();
    disk.create_directory(&config().directory).expect("memory has directories");
    for (number, bytes) in slots.chunks(SEGMENT_BYTES).enumerate() {
        let mut slot = bytes.to_vec();
        slot.resize(SEGMENT_BYTES, 0);
        if mends % 2 == 1 {
            mend(&mut slot);
        }
        disk.insert_file(&config().directory.join(format!("slot-{number:05}.journal")), slot);
    }
    verify(&disk, &config()).expect("the directory is there");
    let Ok((mut found, first)) = read(&disk) else { return go_on_past_rot(&disk) };
    let (past_rot, _) = read_past_rot(&disk).expect("what is read is read past rot too");
    assert!(past_rot.iter().all(|walked| matches!(walked, WalkItem::Record { .. })));
    assert_eq!(past_rot.len(), found.len());
    assert!(found.is_sorted_by(|one, next| one.1 < next.1), "positions rise");
    assert!(found.iter().all(|record| record.1 < first.end), "records lie before the end");

    let (again, mut second) = read(&disk).expect("what was read once is read again");
    assert_eq!(again, found);
    assert_eq!((second.end, second.torn_bytes), (first.end, first.torn_bytes));

    let Some(WalkItem::Record { kind, position, body, .. }) = append(&mut second) else { return };
    found.push((kind, position, body));
    let (with_later, _) = read(&disk).expect("a lane that went on is read");
    assert_eq!(with_later, found);
});

//! Any bytes as a pack: listed, walked and verified without a fault, the same way twice, with records and damage in
//! rising positions that do not overlap; each record can be read at its position. The first byte says whether
//! checksums are corrected first, so that the fuzzer gets behind them. Knows the places of checksums, and otherwise
//! the journal's interface only.
#![no_main]

use std::path::PathBuf;

use crc_fast::{CrcAlgorithm, checksum};
use libfuzzer_sys::fuzz_target;
use sennit_journal::{
    Container, Fault, LaneConfig, Position, Reader, ReplayFrom, WalkItem, disk::MemoryDisk, packs,
    recover, verify,
};

const BLOCK_BYTES: usize = 4096;
const FRAME_HEADER_BYTES: usize = 64;

fn config() -> LaneConfig {
    let directory = PathBuf::from("lane-0");
    LaneConfig { directory, lane: 0, segment_bytes: 16 << 10, incarnation: 42 }
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
}

/// Makes the checksums of everything that looks like a header right.
fn mend(pack: &mut [u8]) {
    for at in (0..pack.len().saturating_sub(FRAME_HEADER_BYTES + 4)).step_by(BLOCK_BYTES) {
        let rest = &mut pack[at..];
        if rest.starts_with(b"SENNITPK") {
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

fn walk(reader: &mut Reader<MemoryDisk>) -> Result<Vec<WalkItem>, Fault> {
    let mut all = Vec::new();
    reader.walk(Container::Pack(1), &mut |_| true, |walked| {
        all.push(walked);
        Ok::<(), Fault>(())
    })?;
    Ok(all)
}

fuzz_target!(|data: &[u8]| {
    let Some((&mends, bytes)) = data.split_first() else { return };
    let mut pack = bytes.to_vec();
    if mends % 2 == 1 {
        mend(&mut pack);
    }
    let disk = MemoryDisk::default();
    disk.insert_file(&config().directory.join("pack-0000000001.pack"), pack);
    let mut reader = recover(&disk, config(), ReplayFrom::Newest, |_| Ok::<(), Fault>(()))
        .expect("a lane minds no pack")
        .reader;
    let listed = packs(&disk, &config());
    let walked = walk(&mut reader);
    let verdict = verify(&disk, &config()).expect("the directory is there");
    let all = match (listed, walked) {
        (Ok(listed), Ok(all)) => {
            assert_eq!((listed.len(), listed[0].bytes), (1, bytes.len() as u64));
            all
        }
        (Err(listed), Err(walked)) => {
            assert_eq!(listed.to_string(), walked.to_string());
            assert_eq!(verdict.damage.len(), 1);
            return;
        }
        (listed, walked) => panic!("{listed:?}, but {walked:?}"),
    };
    let (mut from, mut records, mut damage) = (Position::of_pack(1, 0), 0, Vec::new());
    for walked in &all {
        let end = match walked {
            WalkItem::Record { position, body, .. } => {
                assert!(*position > from, "records rise");
                let read = reader.read(*position, body.len()).expect("a record is there");
                assert_eq!(read, *body);
                records += 1;
                position.plus(body.len() as u64)
            }
            WalkItem::Damage(hole) => {
                assert!(hole.position >= from, "damage lies between records");
                damage.push(hole.clone());
                hole.end()
            }
        };
        assert!(end >= from && end <= Position::of_pack(1, bytes.len() as u32));
        from = end;
    }
    assert_eq!((verdict.packs, verdict.records), (1, records));
    assert_eq!(verdict.damage, damage);
    assert_eq!(walk(&mut reader).expect("what was walked once is walked again"), all);
});

//! The golden directories that the process tests open (`crates/cli/tests/golden`): every kind of record that
//! there is lies in one of them, so that what is read today is read for ever.

use std::{collections::BTreeSet, fs::File, path::Path};

use bytes::Bytes;
use sennit_engine::{RECORD_KIND_END, Record, RecordError};
use sennit_journal::{
    Container, Fault, LaneConfig, ReplayFrom, WalkItem,
    disk::{Access, RealDisk},
    recover,
};
use sennit_server::restore;

/// All kinds that are known to this version.
fn known() -> BTreeSet<u8> {
    let is_known = |kind: &u8| {
        let decoded = Record::decode(*kind, Bytes::new());
        !matches!(decoded, Err(RecordError::Kind { .. }))
    };
    (0..RECORD_KIND_END).filter(is_known).collect()
}

/// The kinds of the records in an archive's segments and packs.
fn kinds_in(archive: &Path) -> BTreeSet<u8> {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let restored = restore(File::open(archive).unwrap(), &data, false).unwrap();
    let format = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    let number = |name: &str| -> u64 {
        let line = format.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.unwrap().parse().unwrap()
    };
    let mut kinds = BTreeSet::new();
    for shard in restored.verdicts {
        let config = LaneConfig {
            directory: data.join(format!("lane-{}", shard.shard)),
            lane: shard.shard,
            segment_bytes: number("segment_bytes"),
            incarnation: number("incarnation"),
        };
        let disk = RealDisk::new(Access::Buffered);
        let none = |_| Ok::<_, Fault>(());
        let mut lane = recover(&disk, config, ReplayFrom::Newest, none).unwrap();
        let segments = shard.verdict.held_segments.into_iter().map(Container::Segment);
        let packs = shard.verdict.held_packs.into_iter().map(Container::Pack);
        for home in segments.chain(packs) {
            let each = |walked| {
                match walked {
                    WalkItem::Record { kind, .. } => kinds.insert(kind),
                    WalkItem::Damage(damage) => panic!("{damage:?}"),
                };
                Ok::<_, Fault>(())
            };
            lane.reader.walk(home, &mut |_| true, each).unwrap();
        }
    }
    kinds
}

#[test]
fn each_kind_of_record_is_in_a_golden_directory() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/golden");
    let files = std::fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path());
    let archives = files.filter(|path| path.extension().is_some_and(|end| end == "backup"));
    let found: BTreeSet<u8> = archives.flat_map(|archive| kinds_in(&archive)).collect();
    let missing: Vec<u8> = known().difference(&found).copied().collect();
    assert!(missing.is_empty(), "no golden directory has records of the kinds {missing:?}");
    assert!(known().len() > 20);
}

//! A lane of a replica, kept as files. It must stay readable as long as there are kinds of records of a group, and be
//! written the same way. `SENNIT_WRITE_GOLDEN=replica cargo test -p sennit-shard --test shard golden` writes it; a
//! committed one is never written again.
#![expect(clippy::disallowed_methods, reason = "it is kept as files")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use sennit_journal::{Disk, disk::MemoryDisk};
use sennit_shard::{EntryContent, EntryId, Here, Membership, PackLengths, Replica, Settings};

use crate::broker::{Broker, NOW, ORDERS, texts};

const SEGMENT_BYTES: u64 = 32 << 10;
const REPLICA: Replica = Replica { group: 4, id: 6, is_alone: true };

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/replica")
}

fn open(disk: &MemoryDisk) -> Broker {
    let (packs, replica) = (PackLengths::default(), Some(REPLICA));
    let settings =
        Settings { cache_bytes: 0, journal_segments: 9, packs, writes_superseded: true, replica };
    Broker::open_with(disk, SEGMENT_BYTES, settings).unwrap()
}

fn members() -> Membership {
    let learners = BTreeSet::from([9]);
    Membership { learners, ..Membership::of_one(6) }
}

/// Two lives: a checkpoint, a change of members, marks.
fn write() -> Broker {
    let mut first = open(&MemoryDisk::default());
    first.create(ORDERS);
    first.publish(ORDERS, &texts(0..3));
    let last = last(&mut first);
    let change = EntryId { term: last.term, index: last.index + 1 };
    first.parts.shard.append_made(change, Some(&members()));
    first.settle_down();
    first.parts.shard.checkpoint_soon();
    first.settle_down();
    first.publish(ORDERS, &texts(3..5));
    let mut second = open(&first.disk);
    second.publish(ORDERS, &texts(5..6));
    second.parts.shard.advance(NOW.plus(Duration::from_secs(1)));
    second.settle_down();
    second
}

fn last(broker: &mut Broker) -> EntryId {
    broker.parts.shard.labels().unwrap().last()
}

fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let directory = Broker::config(SEGMENT_BYTES).directory;
    let mut names = disk.list(&directory).unwrap();
    names.sort_unstable();
    names.iter().map(|name| directory.join(name)).collect()
}

#[test]
fn a_golden_lane_of_a_replica_is_written_the_same_way() {
    let written = write();
    let paths = files(&written.disk);
    if std::env::var_os("SENNIT_WRITE_GOLDEN").is_some_and(|wanted| wanted == "replica") {
        std::fs::create_dir_all(folder()).unwrap();
        for path in &paths {
            let bytes = written.disk.bytes_of(path).unwrap();
            std::fs::write(folder().join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
    assert_eq!(paths.len(), std::fs::read_dir(folder()).unwrap().count());
    for path in paths {
        let golden = std::fs::read(folder().join(path.file_name().unwrap())).unwrap();
        let bytes = written.disk.bytes_of(&path).unwrap();
        let differs = bytes.iter().zip(&golden).position(|(now, then)| now != then);
        assert_eq!((bytes.len(), differs), (golden.len(), None), "{path:?}: first difference");
    }
}

#[test]
fn a_golden_lane_of_a_replica_is_still_read() {
    let disk = MemoryDisk::default();
    let directory = Broker::config(SEGMENT_BYTES).directory;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        disk.insert_file(&directory.join(entry.file_name()), std::fs::read(entry.path()).unwrap());
    }
    let mut broker = open(&disk);
    let began = last(&mut broker);
    assert_eq!(began, EntryId { term: 3, index: 9 });
    let here = Here { term: 3, vote: 6, commit: 9 };
    assert_eq!(broker.parts.shard.here(), Some(here));
    assert_eq!(broker.parts.shard.membership(), Some(&members()));
    let labels = broker.parts.shard.labels().unwrap();
    let contents: Vec<_> = (labels.first_index()..=began.index)
        .map(|index| labels.get(index).unwrap())
        .map(|label| (label.term, label.content))
        .collect();
    let (began, records) = (EntryContent::TermBegan, EntryContent::Records);
    assert_eq!(contents, [(1, records), (2, began), (2, records), (3, began)]);
    broker.gets(0..6);
}

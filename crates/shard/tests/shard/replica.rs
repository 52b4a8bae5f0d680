//! A shard whose lane is the log of a replica that is alone in its group.

use sennit_engine::RecordError;
use sennit_journal::{FRAME_HEADER_BYTES, Frame, Position, disk::MemoryDisk};
use sennit_shard::{
    Entry, EntryContent, EntryId, GroupRecord, Here, Label, Membership, PackLengths, RecoverError,
    Replica, ReplicaError, Settings,
};

use crate::broker::{Broker, NOW, ORDERS, SEGMENT_BYTES, texts};

const ALONE: Replica = Replica { group: 4, id: 6, is_alone: true };

fn open(disk: &MemoryDisk, replica: Option<Replica>) -> Result<Broker, RecoverError> {
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 1,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica,
    };
    Broker::open_with(disk, SEGMENT_BYTES, settings)
}

fn last(broker: &mut Broker) -> EntryId {
    broker.parts.shard.labels().unwrap().last()
}

/// The first record of a frame.
fn head(frame: &Frame) -> GroupRecord {
    let (kind, _, body) = frame.records().next().unwrap();
    GroupRecord::decode(kind, &body).unwrap()
}

#[test]
fn each_start_is_a_term_and_indexes_go_on() {
    let mut broker = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    let began = EntryId { term: 1, index: 2 };
    assert_eq!(last(&mut broker), began);
    assert_eq!(broker.parts.shard.here(), Some(Here { term: 1, vote: 6, commit: 2 }));
    broker.create(ORDERS);
    broker.publish(ORDERS, &texts(0..3));
    let written = last(&mut broker);
    assert_eq!(written.term, 1);
    assert!(written.index > 3);
    let mut broker = open(&broker.disk, Some(ALONE)).unwrap();
    assert_eq!(last(&mut broker), EntryId { term: 2, index: written.index + 1 });
    let labels = broker.parts.shard.labels().unwrap();
    assert_eq!(
        (labels.term(1), labels.term(2), labels.term(written.index)),
        (Some(1), Some(1), Some(1))
    );
    assert_eq!(broker.parts.shard.membership(), Some(&Membership::of_one(6)));
    assert_eq!(broker.parts.shard.here().unwrap().commit, written.index + 1);
}

#[test]
fn each_frame_is_an_entry_or_the_replicas_own() {
    let mut broker = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    broker.create(ORDERS);
    let before = last(&mut broker).index;
    broker.parts.shard.checkpoint_soon();
    let frames = broker.take_frames();
    assert!(matches!(head(&frames[0]), GroupRecord::Here(_)));
    let behind: Vec<u8> = frames[0].records().map(|(kind, ..)| kind).collect();
    assert_eq!(behind[1..3], [32, 130], "a checkpoint says where it stands");
    let (kind, _, body) = frames[0].records().nth(2).unwrap();
    let GroupRecord::Stands(stands) = GroupRecord::decode(kind, &body).unwrap() else { panic!() };
    assert_eq!((stands.group, stands.replica, stands.last.index), (4, 6, before));
    assert_eq!(stands.membership, Membership::of_one(6));
    broker.write(&frames, NOW);
    broker.publish(ORDERS, &texts(0..3));
    assert_eq!(last(&mut broker).index, before + 1, "a checkpoint is no entry");
}

/// The entry with this label, read from the lane.
fn entry_of(broker: &mut Broker, label: &Label) -> Entry {
    let body = label.body.frame.plus(FRAME_HEADER_BYTES as u64);
    let bytes = broker.parts.reader.read(body, label.body.bytes as usize).unwrap();
    let GroupRecord::Entry(entry) = GroupRecord::decode(bytes[4], &bytes[8..33]).unwrap() else {
        panic!("it is no entry")
    };
    entry
}

#[test]
fn labels_say_where_the_entries_lie_that_the_lane_has_and_a_start_finds_them_again() {
    let mut broker = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    broker.create(ORDERS);
    for batch in 0..60 {
        broker.publish(ORDERS, &texts(batch * 20..batch * 20 + 20));
        if batch % 20 == 19 {
            broker.parts.shard.checkpoint_soon();
            broker.settle_down();
        }
    }
    for is_again in [false, true] {
        if is_again {
            broker = open(&broker.disk, Some(ALONE)).unwrap();
        }
        let labels = broker.parts.shard.labels().unwrap().clone();
        assert!(labels.first_index() > 2, "the oldest segments are no part of the log any more");
        let last = labels.last();
        assert!(labels.first_index() < last.index);
        let mut newest = Position(0);
        for index in labels.first_index()..=last.index {
            let label = labels.get(index).unwrap();
            assert!(newest < label.body.frame);
            newest = label.body.frame;
            let entry = entry_of(&mut broker, label);
            assert_eq!(entry.id, EntryId { term: label.term, index });
            assert_eq!(entry.content, label.content);
            let is_began = entry.content == EntryContent::TermBegan;
            assert_eq!(is_began, labels.term(index) > labels.term(index - 1));
        }
    }
}

#[test]
fn a_lane_is_read_as_what_it_was_written() {
    let replica = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    let refused = open(&replica.disk, None).err();
    let kind = Some(RecordError::Kind { kind: 128 });
    assert_eq!(
        refused.and_then(|error| match error {
            RecoverError::Record { error, .. } => Some(error),
            _ => None,
        }),
        kind
    );
    let mut plain = open(&MemoryDisk::default(), None).unwrap();
    plain.create(ORDERS);
    assert!(plain.parts.shard.labels().is_none());
    let refused = open(&plain.disk, Some(ALONE)).err();
    assert!(matches!(refused, Some(RecoverError::Replica { error: ReplicaError::NoHead, .. })));
}

#[test]
fn a_lane_of_another_replica_is_refused() {
    let mut broker = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    broker.create(ORDERS);
    broker.parts.shard.checkpoint_soon();
    broker.settle_down();
    let refused = open(&broker.disk, Some(Replica { id: 7, ..ALONE })).err();
    let other = ReplicaError::Other { group: 4, replica: 6 };
    assert!(matches!(refused, Some(RecoverError::Replica { error, .. }) if error == other));
}

#[test]
fn a_mark_says_what_is_committed() {
    let mut broker = open(&MemoryDisk::default(), Some(ALONE)).unwrap();
    broker.create(ORDERS);
    let written = last(&mut broker).index;
    broker.parts.shard.advance(NOW.plus(std::time::Duration::from_secs(1)));
    let frames = broker.take_frames();
    let here = Here { term: 1, vote: 6, commit: written };
    assert_eq!(frames.iter().map(head).collect::<Vec<_>>(), [GroupRecord::Here(here)]);
    broker.write(&frames, NOW);
    assert_eq!(last(&mut broker).index, written);
}

//! Bodies of entries that come from another node: what is not the entry of its label is refused, whatever it is.

use bytes::Bytes;
use proptest::prelude::*;
use sennit_journal::{Frame, disk::MemoryDisk};
use sennit_shard::{
    EntryError, EntryId, EntrySize, GroupRecord, PackLengths, ReceivedEntry, Replica, Settings,
};

use crate::broker::{Broker, NOW, ORDERS, SEGMENT_BYTES, texts};

/// Frames of a replica: some are entries, others its own.
fn frames() -> Vec<Frame> {
    let replica = Some(Replica { group: 4, id: 6, is_alone: true });
    let (packs, writes_superseded) = (PackLengths::default(), true);
    let settings =
        Settings { cache_bytes: 0, journal_segments: 9, packs, writes_superseded, replica };
    let mut broker = Broker::open_with(&MemoryDisk::default(), SEGMENT_BYTES, settings).unwrap();
    broker.create(ORDERS);
    let mut frames = Vec::new();
    for batch in 0..3 {
        broker
            .parts
            .shard
            .handle(&mut vec![Broker::publication(ORDERS, &texts(batch..batch + 2))], NOW);
        frames.extend(broker.take_frames());
    }
    broker.parts.shard.checkpoint_soon();
    frames.extend(broker.take_frames());
    frames
}

fn head(frame: &Frame) -> GroupRecord {
    let (kind, _, body) = frame.records().next().unwrap();
    GroupRecord::decode(kind, &body).unwrap()
}

fn entries() -> Vec<(EntryId, EntrySize, Bytes)> {
    let named = |frame: &Frame| match head(frame) {
        GroupRecord::Entry(entry) => {
            let (bytes, checksum, records) =
                (frame.body.bytes, frame.body.checksum, frame.body.records);
            Some((entry.id, EntrySize { bytes, checksum, records }, frame.body_bytes()))
        }
        _ => None,
    };
    frames().iter().filter_map(named).collect()
}

/// A size that fits these bytes, as one would name it who wants them to be taken.
fn size_of(bytes: &Bytes, records: u32) -> EntrySize {
    let size = EntrySize { bytes: bytes.len() as u32, checksum: 0, records };
    let id = EntryId { term: 1, index: 1 };
    match ReceivedEntry::check(id, size, bytes.clone()) {
        Err(EntryError::Body(sennit_journal::BodyError::Checksum { found, .. })) => {
            EntrySize { checksum: found, ..size }
        }
        _ => size,
    }
}

#[test]
fn what_a_leader_has_sealed_is_the_entry_of_its_label() {
    let entries = entries();
    assert_eq!(entries.len(), 3);
    for (id, size, bytes) in entries {
        assert_eq!(ReceivedEntry::check(id, size, bytes).unwrap().id(), id);
    }
}

#[test]
fn a_body_of_another_entry_or_another_size_is_refused() {
    let (id, size, bytes) = entries().remove(0);
    let check = |id, size, bytes: &Bytes| ReceivedEntry::check(id, size, bytes.clone()).err();
    let other = EntryId { index: id.index + 1, ..id };
    assert_eq!(check(other, size, &bytes), Some(EntryError::Other { expected: other, found: id }));
    let longer = EntrySize { bytes: size.bytes + 8, ..size };
    assert!(matches!(check(id, longer, &bytes), Some(EntryError::Size { unit: "bytes", .. })));
    let more = EntrySize { records: size.records + 1, ..size };
    assert!(matches!(check(id, more, &bytes), Some(EntryError::Size { unit: "records", .. })));
    let changed = EntrySize { checksum: size.checksum ^ 1, ..size };
    assert!(matches!(check(id, changed, &bytes), Some(EntryError::Body(_))));
    let nothing = Bytes::new();
    assert_eq!(check(id, size_of(&nothing, 0), &nothing), Some(EntryError::NoHead));
}

#[test]
fn a_frame_of_the_senders_own_is_no_entry() {
    let (id, ..) = entries().remove(0);
    let own: Vec<Frame> =
        frames().into_iter().filter(|frame| matches!(head(frame), GroupRecord::Here(_))).collect();
    assert!(!own.is_empty());
    for frame in own {
        let bytes = frame.body_bytes();
        let size = size_of(&bytes, frame.body.records);
        assert_eq!(ReceivedEntry::check(id, size, bytes).err(), Some(EntryError::NoHead));
    }
}

#[test]
fn an_entry_that_says_where_something_lies_is_refused() {
    let (id, size, bytes) = entries().remove(0);
    let own = frames()
        .into_iter()
        .find(|frame| matches!(head(frame), GroupRecord::Here(_)) && frame.body.records > 1)
        .unwrap();
    // The name of the entry, and behind it the sender's checkpoint.
    let name = bytes.slice(..40);
    let behind = own.body_bytes().slice(32..);
    let joined = Bytes::from([&name[..], &behind[..]].concat());
    let size = EntrySize { records: own.body.records, ..size };
    let size = size_of(&joined, size.records);
    let refused = ReceivedEntry::check(id, size, joined).err();
    assert!(matches!(refused, Some(EntryError::Local { kind: 32 })), "{refused:?}");
}

proptest! {
    #[test]
    fn bytes_that_never_were_an_entry_are_refused_and_stop_nobody(
        (number, at, byte, records) in (0..3_usize, any::<prop::sample::Index>(), any::<u8>(), 0..20_u32),
        cut in any::<prop::sample::Index>(),
    ) {
        let (id, _, bytes) = entries().remove(number);
        let mut changed = bytes.to_vec();
        let at = at.index(changed.len());
        changed[at] = byte;
        let length = 8 * (cut.index(changed.len()) / 8);
        for bytes in [Bytes::from(changed.clone()), Bytes::from(changed[..length].to_vec())] {
            let size = size_of(&bytes, records);
            if let Ok(entry) = ReceivedEntry::check(id, size, bytes) {
                prop_assert_eq!(entry.id(), id);
            }
        }
    }
}

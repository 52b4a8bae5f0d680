//! A body that another lane has made gets a frame here, whose records a recovery finds.

use bytes::Bytes;
use proptest::prelude::*;
use sennit_journal::{BodyError, Frame, ReceivedBody, disk::MemoryDisk};

use crate::world::{SEGMENT_BYTES, World};

fn sealed(records: &[(u8, Vec<u8>)]) -> Frame {
    let mut world = World::open(&MemoryDisk::default()).unwrap();
    for (kind, body) in records {
        world.push(*kind, body);
    }
    world.builder.seal().unwrap()
}

proptest! {
    #[test]
    fn a_body_is_found_in_another_lane_as_it_was_made(
        records in proptest::collection::vec((1..200_u8, proptest::collection::vec(any::<u8>(), 0..300)), 1..20),
        before in 0..5_usize,
    ) {
        let made = sealed(&records);
        let disk = MemoryDisk::default();
        let mut world = World::open(&disk).unwrap();
        for _ in 0..before {
            world.write(7, b"own").unwrap();
        }
        let body = ReceivedBody::check(made.body_bytes(), made.body.checksum).unwrap();
        prop_assert_eq!(body.record_count() as usize, records.len());
        let frame = world.builder.seal_received(&body).unwrap();
        prop_assert_eq!((frame.body.bytes, frame.body.checksum), (made.body.bytes, made.body.checksum));
        prop_assert_eq!(frame.body_bytes(), made.body_bytes());
        world.lane.add_spare(world.slots.make().unwrap());
        world.lane.append(&[frame]).unwrap();
        world.write(8, b"behind it").unwrap();
        let found = World::open(&disk).unwrap().found;
        let received = &found[before..found.len() - 1];
        let received: Vec<_> = received.iter().map(|entry| (entry.kind, entry.body.to_vec())).collect();
        prop_assert_eq!(received, records);
    }

    #[test]
    fn a_body_that_was_changed_on_the_way_is_refused(at in 0..1000_usize, bit in 0..8_u8) {
        let made = sealed(&[(1, b"one".to_vec()), (2, b"two".to_vec())]);
        let mut bytes = made.body_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let refused = ReceivedBody::check(Bytes::from(bytes), made.body.checksum);
        let is_noticed = matches!(refused, Err(BodyError::Checksum { .. }));
        prop_assert!(is_noticed);
    }
}

#[test]
fn a_body_whose_last_record_is_cut_off_is_refused_though_its_checksum_is_right() {
    let made = sealed(&[(1, b"one".to_vec()), (2, b"two".to_vec())]);
    let bytes = made.body_bytes();
    let cut = bytes.slice(..bytes.len() - 8);
    let body = sealed(&[(1, cut.to_vec())]);
    // The checksum of the cut bytes, as a sender could name it.
    let named = match ReceivedBody::check(cut.clone(), body.body.checksum) {
        Err(BodyError::Checksum { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(ReceivedBody::check(cut, named).err(), Some(BodyError::Record { number: 1 }));
}

#[test]
fn a_body_longer_than_a_segment_is_refused() {
    let mut world = World::open(&MemoryDisk::default()).unwrap();
    let long = vec![0; SEGMENT_BYTES as usize];
    let Err(BodyError::Checksum { found, .. }) = ReceivedBody::check(long.clone().into(), 1) else {
        panic!("1 is not its checksum");
    };
    let body = ReceivedBody::check(long.into(), found).unwrap();
    let refused = world.builder.seal_received(&body).map(|frame| frame.end);
    assert!(matches!(refused, Err(BodyError::TooLong { .. })), "{refused:?}");
    world.write(1, b"the builder is as it was").unwrap();
}

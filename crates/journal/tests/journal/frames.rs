//! The position of a record is known when it is pushed, and is correct.

use proptest::prelude::*;
use sennit_journal::{
    BLOCK_BYTES, FRAME_TARGET_BYTES, Frame, LaneConfig, Position, PushError, disk::MemoryDisk,
};

use crate::world::{Entry, SEGMENT_BYTES, World, config};

/// A header's block, a frame's header and a record's header.
const LARGEST: usize = SEGMENT_BYTES as usize - BLOCK_BYTES - 64 - 8;

fn world() -> World<MemoryDisk> {
    World::open(&MemoryDisk::default()).unwrap()
}

fn lies_in(entry: &Entry, frame: &Frame) -> bool {
    let start = (entry.position.0 - frame.position.0) as usize;
    frame.bytes[start..start + entry.body.len()] == entry.body
}

#[test]
fn the_first_frame_of_a_segment_carries_the_header_in_front() {
    let mut world = world();
    let entry = world.push(1, b"first");
    let frame = world.builder.seal().unwrap();
    assert!(frame.first_of_segment);
    assert_eq!(frame.position, Position(0));
    assert_eq!(frame.end, Position(2 * BLOCK_BYTES as u64));
    assert_eq!(frame.bytes.len(), 2 * BLOCK_BYTES);
    assert_eq!(entry.position, Position(BLOCK_BYTES as u64 + 64 + 8));
    assert!(lies_in(&entry, &frame));
    let second = world.push(1, b"second");
    let frame = world.builder.seal().unwrap();
    assert!(!frame.first_of_segment);
    assert_eq!(frame.position, Position(2 * BLOCK_BYTES as u64));
    assert!(lies_in(&second, &frame));
}

#[test]
fn a_body_in_parts_lies_in_one_piece() {
    let mut world = world();
    let position = world.builder.push(3, &[b"one ", b"", b"and two"]).unwrap();
    let frame = world.builder.seal().unwrap();
    assert_eq!(&frame.bytes[position.0 as usize..][..11], b"one and two");
}

#[test]
fn an_empty_body_is_a_record_too() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entry = world.write(9, b"").unwrap();
    assert_eq!(World::open(&disk).unwrap().found, [entry]);
}

#[test]
fn nothing_pushed_is_nothing_to_seal() {
    let mut world = world();
    assert!(world.builder.is_empty());
    assert!(world.builder.seal().is_none());
    world.push(1, b"x");
    assert!(!world.builder.is_empty());
}

#[test]
fn a_record_that_no_segment_can_take_is_refused_and_the_largest_is_not() {
    let mut world = world();
    let refused = world.builder.push(1, &[&vec![0; LARGEST + 1]]);
    assert_eq!(refused, Err(PushError::TooLarge { length: LARGEST + 1, limit: LARGEST }));
    assert!(world.builder.is_empty());
    world.push(1, &vec![7; LARGEST]);
    let frame = world.builder.seal().unwrap();
    assert_eq!(frame.bytes.len() as u64, SEGMENT_BYTES);
    assert_eq!(world.push(1, b"next").position.segment(SEGMENT_BYTES), 1);
}

#[test]
fn a_record_that_does_not_fit_the_rest_of_the_segment_waits_for_the_next() {
    let mut world = world();
    world.push(1, &[1; 3000]);
    assert_eq!(world.builder.push(1, &[&[2; 10_000]]), Err(PushError::Full));
    let first = world.builder.seal().unwrap();
    let entry = world.push(1, &[2; 10_000]);
    let second = world.builder.seal().unwrap();
    assert_eq!(first.end, Position(2 * BLOCK_BYTES as u64));
    assert!(second.first_of_segment);
    assert_eq!(second.position, Position(SEGMENT_BYTES));
    assert!(lies_in(&entry, &second));
}

#[test]
fn a_frame_is_full_at_its_target_but_takes_one_longer_record_alone() {
    let config = LaneConfig { segment_bytes: 32 << 20, ..config() };
    let mut world = World::open_as(&MemoryDisk::default(), config).unwrap();
    world.push(1, &vec![1; FRAME_TARGET_BYTES - 200]);
    assert_eq!(world.builder.push(1, &[&[2; 200]]), Err(PushError::Full));
    assert!(world.builder.seal().unwrap().bytes.len() <= FRAME_TARGET_BYTES + BLOCK_BYTES);
    let entry = world.push(1, &vec![3; 16 << 20]);
    assert_eq!(world.builder.push(1, &[b"more"]), Err(PushError::Full));
    assert!(lies_in(&entry, &world.builder.seal().unwrap()));
}

#[test]
fn nothing_of_an_earlier_frame_shows_in_a_later_one() {
    let mut world = world();
    world.push(1, &[0xff; 3 * BLOCK_BYTES - 200]);
    world.builder.seal().unwrap();
    for length in [9, 2, 1] {
        let entry = world.push(0, &vec![0xee; length]);
        let frame = world.builder.seal().unwrap();
        let body_end = (entry.position.0 - frame.position.0) as usize + length;
        assert!(frame.bytes[body_end..].iter().all(|byte| *byte == 0), "after {length} bytes");
    }
}

#[test]
fn a_mark_is_a_frame_without_records() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entry = world.write(1, b"x").unwrap();
    world.mark().unwrap();
    let again = World::open(&disk).unwrap();
    assert_eq!(again.found, [entry]);
    assert_eq!(again.end, Position(3 * BLOCK_BYTES as u64));
}

proptest! {
    /// What memory a frame is built in, and what was in it before, never shows.
    #[test]
    fn frames_follow_each_other_and_hold_their_records(
        records in prop::collection::vec((any::<u8>(), 0..LARGEST, any::<bool>()), 1..40),
    ) {
        let mut world = world();
        let mut entries = Vec::new();
        let mut frames = Vec::new();
        for (kind, length, seals) in records {
            // Short ones mostly, so that frames hold several.
            let length = if length % 3 == 0 { length } else { length % 300 };
            entries.push(world.push(kind, &vec![kind; length]));
            if seals {
                frames.extend(world.take_sealed());
            }
        }
        frames.extend(world.take_sealed());
        let mut end = Position(0);
        for frame in &frames {
            let turns = frame.position.in_segment(SEGMENT_BYTES) == 0;
            prop_assert_eq!(frame.first_of_segment, turns);
            if turns {
                let next = end.0.next_multiple_of(SEGMENT_BYTES);
                prop_assert_eq!(frame.position, Position(next));
            } else {
                prop_assert_eq!(frame.position, end);
            }
            prop_assert_eq!(frame.position.plus(frame.bytes.len() as u64), frame.end);
            prop_assert_eq!(frame.bytes.len() % BLOCK_BYTES, 0);
            prop_assert_eq!(frame.bytes.as_ptr().align_offset(BLOCK_BYTES), 0);
            let last = Position(frame.end.0 - 1).segment(SEGMENT_BYTES);
            prop_assert_eq!(frame.position.segment(SEGMENT_BYTES), last);
            end = frame.end;
        }
        for entry in &entries {
            let frame = frames.iter().find(|f| f.position <= entry.position && entry.position < f.end);
            prop_assert!(lies_in(entry, frame.unwrap()));
            prop_assert_eq!(entry.position.0 % 8, 0);
        }
    }
}

#[test]
fn what_is_held_together_lies_in_one_frame_however_full_that_was() {
    // A segment long enough that a frame's target ends frames before it does.
    let config = LaneConfig { segment_bytes: 8 << 20, ..config() };
    for before in (0..FRAME_TARGET_BYTES).step_by(FRAME_TARGET_BYTES / 7) {
        for each in [100, FRAME_TARGET_BYTES / 4, FRAME_TARGET_BYTES] {
            let mut world = World::open_as(&MemoryDisk::default(), config.clone()).unwrap();
            world.push(1, &vec![1; before]);
            let body = vec![2; each];
            while world.builder.hold_together([each; 3]) == Err(PushError::Full) {
                world.seal();
            }
            for _ in 0..3 {
                world.builder.push(2, &[&body]).unwrap();
            }
            let frame = world.builder.seal().unwrap();
            let needed = 3 * (each + 8);
            assert!(frame.bytes.len() > needed, "{before} {each}");
            // The next frame ends where frames end.
            world.push(3, &vec![3; FRAME_TARGET_BYTES / 2]);
            let more = world.builder.push(3, &[&vec![3; FRAME_TARGET_BYTES / 2]]);
            assert_eq!(more, Err(PushError::Full), "{before} {each}");
        }
    }
}

#[test]
fn what_is_held_together_does_not_begin_in_a_segment_that_has_too_little_left() {
    let mut world = world();
    world.push(1, &vec![1; 6000]);
    let half = LARGEST / 2 - 100;
    assert_eq!(world.builder.hold_together([half; 2]), Err(PushError::Full));
    world.seal();
    assert_eq!(world.builder.hold_together([half; 2]), Ok(()));
    let at = [half; 2].map(|length| world.builder.push(2, &[&vec![2; length]]).unwrap());
    assert_eq!(at.map(|position| position.segment(SEGMENT_BYTES)), [1, 1]);
    let limit = LARGEST + 8;
    let refused = world.builder.hold_together([LARGEST, 1]);
    assert!(matches!(refused, Err(PushError::TooLarge { limit: most, .. }) if most == limit));
}

//! The results of a recovery, and its refusals.

use sennit_journal::{
    BLOCK_BYTES, Disk, Fault, LaneConfig, Position, ReplayFrom, WalkItem,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
    recover,
};

use crate::world::{Entry, SEGMENT_BYTES, World, body, config, directory, slot_paths};

fn refusal(disk: &MemoryDisk, config: LaneConfig) -> Fault {
    match World::open_as(disk, config) {
        Ok(world) => panic!("opened with {} records", world.found.len()),
        Err(fault) => fault,
    }
}

#[test]
fn a_new_lane_is_empty_and_begins_with_the_first_generation() {
    let world = World::open(&MemoryDisk::default()).unwrap();
    assert!(world.found.is_empty());
    assert_eq!((world.end, world.torn_bytes), (Position(0), 0));
    assert_eq!(world.builder.generation(), 1);
}

#[test]
fn records_come_back_in_order_over_many_lives() {
    let disk = MemoryDisk::default();
    let mut entries: Vec<Entry> = Vec::new();
    for crash_count in 1..=6u32 {
        let mut world = World::open(&disk).unwrap();
        assert_eq!(world.found, entries);
        assert_eq!(world.builder.generation(), crash_count);
        for number in 0..u64::from(crash_count) * 3 {
            entries.push(world.push(crash_count as u8, &body(number, 100 * number as usize)));
            if number % 2 == 0 {
                world.commit().unwrap();
            }
        }
        world.commit().unwrap();
    }
}

#[test]
fn records_that_are_kept_stay_what_they_were_while_what_lies_behind_is_read() {
    let disk = MemoryDisk::default();
    let config = LaneConfig { segment_bytes: 32 << 20, ..config() };
    let mut world = World::open_as(&disk, config.clone()).unwrap();
    let entries: Vec<Entry> =
        (0..200).map(|number| world.write(1, &body(number, 100_000)).unwrap()).collect();
    assert_eq!(World::open_as(&disk, config.clone()).unwrap().found, entries);
    let mut count = 0;
    recover(&disk, config, ReplayFrom::Newest, |walked| {
        let WalkItem::Record { kind, position, body, .. } = walked else { panic!("{walked:?}") };
        assert_eq!(Entry { kind, position, body }, entries[count]);
        count += 1;
        Ok::<(), Fault>(())
    })
    .unwrap();
    assert_eq!(count, entries.len());
}

#[test]
fn nothing_is_written_into_a_segment_of_an_earlier_life() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"first life").unwrap();
    let before = disk.bytes_of(&slot_paths(&disk)[0]).unwrap();
    let entry = World::open(&disk).unwrap().write(1, b"second life").unwrap();
    assert_eq!(entry.position.segment(SEGMENT_BYTES), 1);
    assert_eq!(disk.bytes_of(&slot_paths(&disk)[0]).unwrap(), before);
}

#[test]
fn a_life_that_writes_nothing_leaves_no_trace() {
    let disk = MemoryDisk::default();
    let entry = World::open(&disk).unwrap().write(1, b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(World::open(&disk).unwrap().found, std::slice::from_ref(&entry));
    }
    assert_eq!(World::open(&disk).unwrap().builder.generation(), 2);
}

#[test]
fn a_replay_begins_where_the_newest_segment_says() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"passed").unwrap();
    let kept = world.push(2, b"snapshot");
    let begin = world.builder.frame_start();
    world.commit().unwrap();
    world.builder.set_replay_from(begin);
    world.builder.start_segment();
    let later = world.write(3, b"later").unwrap();
    let again = World::open(&disk).unwrap();
    assert_eq!(again.replay_from, begin);
    assert_eq!(again.found, [kept, later]);
}

#[test]
fn segments_before_the_replay_are_still_held_until_they_are_released() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let old = world.write(1, &body(1, 9000)).unwrap();
    world.builder.start_segment();
    world.builder.set_replay_from(Position(SEGMENT_BYTES));
    world.mark().unwrap();
    let mut again = World::open(&disk).unwrap();
    assert!(again.found.is_empty());
    assert_eq!(again.lane.segments().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(again.reader.read(old.position, 9000).unwrap(), old.body);
}

/// Where the replay falls back to that begins with the newest segment, or here.
fn fallback_from(disk: &MemoryDisk, from: ReplayFrom) -> Option<Position> {
    recover(disk, config(), from, |_| Ok::<(), Fault>(())).unwrap().fallback_from
}

#[test]
fn a_replay_falls_back_to_the_one_before_it_and_to_no_segment_that_is_not_there() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"first").unwrap();
    for _ in 0..3 {
        world.builder.start_segment();
        world.write(1, b"is kept").unwrap();
        let begin = world.builder.frame_start();
        world.builder.set_replay_from(begin);
    }
    world.builder.start_segment();
    world.mark().unwrap();
    // Segments 0 and 1 say that a replay begins with the lane, 2 to 4 that it begins in the one
    // before.
    let begins = [0, 1, 2, 3].map(|segment| match segment {
        0 => Position(0),
        _ => Position(segment * SEGMENT_BYTES + BLOCK_BYTES as u64),
    });
    assert_eq!(World::open(&disk).unwrap().replay_from, begins[3]);
    let mut falls = vec![fallback_from(&disk, ReplayFrom::Newest)];
    while let Some(Some(from)) = falls.last() {
        assert!(falls.len() <= begins.len(), "{falls:?} has no end");
        falls.push(fallback_from(&disk, ReplayFrom::At(*from)));
    }
    assert_eq!(falls, [Some(begins[2]), Some(begins[1]), Some(begins[0]), None]);
    disk.remove(&slot_paths(&disk)[0]).unwrap();
    assert_eq!(fallback_from(&disk, ReplayFrom::At(begins[1])), None, "nothing to begin with");
    disk.remove(&slot_paths(&disk)[0]).unwrap();
    assert_eq!(fallback_from(&disk, ReplayFrom::Newest), Some(begins[2]));
    assert_eq!(fallback_from(&disk, ReplayFrom::At(begins[2])), None);
}

#[test]
fn what_the_caller_refuses_stops_the_recovery() {
    #[derive(Debug)]
    enum Stop {
        Fault,
        Enough,
    }
    impl From<Fault> for Stop {
        fn from(_: Fault) -> Self {
            Self::Fault
        }
    }
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    world.push(1, b"one");
    world.write(1, b"two").unwrap();
    let mut seen = 0;
    let stopped = recover(&disk, config(), ReplayFrom::Newest, |_| {
        seen += 1;
        Err(Stop::Enough)
    });
    assert!(matches!(stopped, Err(Stop::Enough)));
    assert_eq!(seen, 1);
}

#[test]
fn a_lane_of_another_place_is_refused_with_what_differs() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"x").unwrap();
    let text = |config| refusal(&disk, config).to_string();
    let lane = text(LaneConfig { lane: 3, ..config() });
    assert!(lane.ends_with("lane is 0, expected 3"), "{lane}");
    let incarnation = text(LaneConfig { incarnation: 43, ..config() });
    assert!(incarnation.ends_with("incarnation is 42, expected 43"), "{incarnation}");
    let length = text(LaneConfig { segment_bytes: SEGMENT_BYTES / 2, ..config() });
    assert!(length.ends_with("segment length is 16384, expected 8192"), "{length}");
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"x").unwrap();
    let path = &slot_paths(&disk)[0];
    let mut bytes = disk.bytes_of(path).unwrap();
    bytes[8] = 2;
    let checksum = crc32c_of_header(&bytes);
    bytes[64..68].copy_from_slice(&checksum.to_le_bytes());
    disk.insert_file(path, bytes);
    let fault = refusal(&disk, config());
    assert!(matches!(fault, Fault::NewerFormat { found: 2, known: 1, .. }), "{fault}");
}

pub fn crc32c_of_header(bytes: &[u8]) -> u32 {
    crc32c(&bytes[..64])
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    // Bit by bit, so that the test does not lean on what it tests.
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

#[test]
fn a_segment_that_is_gone_is_missed() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    for number in 0..4 {
        world.write(1, &body(number, 9000)).unwrap();
    }
    let paths = slot_paths(&disk);
    let zeros = vec![0; SEGMENT_BYTES as usize];
    disk.insert_file(&paths[1], zeros);
    let fault = refusal(&disk, config());
    assert!(matches!(&fault, Fault::Rot { problem, .. } if problem.contains("missing")), "{fault}");
}

#[test]
fn a_segment_that_lies_in_two_slots_is_refused() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"x").unwrap();
    let bytes = disk.bytes_of(&slot_paths(&disk)[0]).unwrap();
    disk.insert_file(&directory().join("slot-00007.journal"), bytes);
    let fault = refusal(&disk, config());
    assert!(fault.to_string().contains("another slot holds the same segment"), "{fault}");
}

#[test]
fn other_files_beside_the_slots_are_left_alone() {
    let disk = MemoryDisk::default();
    let entry = World::open(&disk).unwrap().write(1, b"x").unwrap();
    disk.insert_file(&directory().join("notes.txt"), b"do not touch".to_vec());
    assert_eq!(World::open(&disk).unwrap().found, [entry]);
    assert_eq!(disk.bytes_of(&directory().join("notes.txt")).unwrap(), b"do not touch");
}

#[test]
fn slots_get_names_that_are_free() {
    let disk = MemoryDisk::default();
    for number in 0..4 {
        World::open(&disk).unwrap().write(1, &body(number, 100)).unwrap();
    }
    let names = disk.list(&directory()).unwrap();
    let expected = (0..4).map(|number| format!("slot-{number:05}.journal")).collect::<Vec<_>>();
    assert_eq!(names, expected);
}

/// A header that cannot be read now is not a header that is not there.
#[test]
fn a_read_that_fails_is_a_fault_whichever_it_is() {
    let plan = FaultPlan::default();
    let disk = FaultyDisk::new(1, plan);
    let mut world = World::open(&disk).unwrap();
    let entries: Vec<_> =
        (0..6).map(|number| world.write(1, &body(number, 5000)).unwrap()).collect();
    let mut refused = 0;
    loop {
        disk.set_plan(FaultPlan { failing_call: disk.calls() + 1 + refused, ..plan });
        match World::open(&disk) {
            Ok(world) => {
                assert_eq!(world.found, entries);
                break;
            }
            Err(fault) => assert!(matches!(fault, Fault::Io { .. }), "{fault}"),
        }
        refused += 1;
    }
    assert!(refused > 10, "{refused} calls");
    disk.set_plan(plan);
    assert_eq!(World::open(&disk).unwrap().found, entries);
}

/// The frames of a life whose first frame never became whole must not continue the next life's.
#[test]
fn what_was_torn_when_a_segment_was_opened_stays_torn() {
    let disk = MemoryDisk::default();
    let safe = World::open(&disk).unwrap().write(1, b"safe").unwrap();
    let mut lost = World::open(&disk).unwrap();
    lost.mark().unwrap();
    lost.write(1, b"lost").unwrap();
    let path = &slot_paths(&disk)[1];
    let mut bytes = disk.bytes_of(path).unwrap();
    bytes[..BLOCK_BYTES].fill(0);
    // The mark said that nothing of the segment was durable, and so does the frame behind it.
    let (_, frame) = bytes.split_at_mut(2 * BLOCK_BYTES);
    let stale = frame[..BLOCK_BYTES].to_vec();
    frame[..BLOCK_BYTES].fill(0);
    disk.insert_file(path, bytes.clone());
    let first = World::open(&disk).unwrap();
    assert_eq!(first.builder.generation(), 3, "the torn life had the second");
    drop(first);
    // Now with the stale frame behind, as one write of both leaves it.
    let mut again = World::open(&disk).unwrap();
    again.mark().unwrap();
    let mut bytes = disk.bytes_of(path).unwrap();
    bytes[2 * BLOCK_BYTES..3 * BLOCK_BYTES].copy_from_slice(&stale);
    disk.insert_file(path, bytes);
    assert_eq!(World::open(&disk).unwrap().found, [safe]);
}

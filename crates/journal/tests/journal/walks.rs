//! All records of a sealed segment in order, and its damage.

use sennit_journal::{
    BLOCK_BYTES, Container, Disk, DiskFile, Fault, LaneConfig, Position, WalkItem,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
};

use crate::world::{Entry, SEGMENT_BYTES, World, body, config, slot_paths, walk};

/// A lane of several segments, with what each of them holds.
fn lane(disk: &FaultyDisk) -> (World<FaultyDisk>, Vec<Vec<Entry>>) {
    let mut world = World::open(disk).unwrap();
    let mut segments: Vec<Vec<Entry>> = Vec::new();
    for number in 0..20 {
        let entry = world.write(number as u8, &body(number, 300 * number as usize)).unwrap();
        let segment = (entry.position.0 / SEGMENT_BYTES) as usize;
        segments.resize(segments.len().max(segment + 1), Vec::new());
        segments[segment].push(entry);
    }
    (world, segments)
}

#[test]
fn a_walk_gives_each_record_of_a_segment_in_order() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let (mut world, segments) = lane(&disk);
    assert!(segments.len() > 3);
    for (segment, entries) in segments.into_iter().enumerate().rev() {
        let found = walk(&mut world.reader, Container::Segment(segment as u64)).unwrap();
        assert_eq!(found, (entries, vec![]), "segment {segment}");
    }
}

#[test]
fn a_walk_goes_on_behind_a_damaged_frame() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let (mut world, segments) = lane(&disk);
    for (index, path) in slot_paths(&disk).iter().enumerate().take(segments.len() - 1) {
        for entry in &segments[index] {
            let byte = entry.position.in_segment(SEGMENT_BYTES) as usize;
            disk.rot(path, byte, 3);
            let (found, damage) =
                walk(&mut world.reader, Container::Segment(index as u64)).unwrap();
            let others: Vec<_> = segments[index].iter().filter(|other| *other != entry).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), others);
            let [damage] = &damage[..] else { panic!("{damage:?}") };
            assert_eq!(damage.position, Position(entry.position.0 - 72));
            let length = (72 + entry.body.len()).next_multiple_of(BLOCK_BYTES);
            assert_eq!((&damage.path, damage.bytes), (path, length as u64));
            disk.rot(path, byte, 3);
        }
    }
}

#[test]
fn a_walk_says_where_the_damage_is_and_goes_on_behind_it() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let (mut world, segments) = lane(&disk);
    let path = &slot_paths(&disk)[0];
    disk.rot(path, segments[0][1].position.0 as usize, 3);
    let (found, damage) = walk(&mut world.reader, Container::Segment(0)).unwrap();
    assert_eq!(found[..1], segments[0][..1]);
    assert_eq!(found[1..], segments[0][2..]);
    assert_eq!(damage.iter().map(|hole| &hole.path).collect::<Vec<_>>(), [path]);
}

#[test]
fn what_the_caller_refuses_stops_the_walk() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let (mut world, _) = lane(&disk);
    let mut seen = 0;
    let stopped = world.reader.walk(Container::Segment(0), &mut |_| true, |_| {
        seen += 1;
        Err(Fault::Fenced)
    });
    assert!(matches!(stopped, Err(Fault::Fenced)));
    assert_eq!(seen, 1);
}

#[test]
fn a_walk_of_what_is_not_there_is_a_typed_fault() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"x").unwrap();
    let fault = walk(&mut world.reader, Container::Segment(5)).unwrap_err();
    assert!(matches!(fault, Fault::MissingSegment { segment: 5, .. }), "{fault}");
    let fault = walk(&mut world.reader, Container::Pack(5)).unwrap_err();
    assert!(matches!(fault, Fault::MissingPack { pack: 5, .. }), "{fault}");
}

#[test]
fn a_segment_whose_slot_was_used_again_is_missing_and_the_new_one_is_walked() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    for number in 0..3 {
        world.write(1, &body(number, 100)).unwrap();
    }
    assert_eq!(walk(&mut world.reader, Container::Segment(0)).unwrap().0.len(), 3);
    world.begin_replay_here().unwrap();
    world.builder.start_segment();
    let entry = world.write(2, &body(11, 2000)).unwrap();
    assert_eq!(entry.position.segment(SEGMENT_BYTES), 2);
    let fault = walk(&mut world.reader, Container::Segment(0)).unwrap_err();
    assert!(matches!(fault, Fault::MissingSegment { segment: 0, .. }), "{fault}");
    assert_eq!(walk(&mut world.reader, Container::Segment(2)).unwrap().0, [entry]);
}

#[test]
fn a_segment_is_walked_to_where_the_next_says_that_it_ends() {
    let disk = FaultyDisk::new(3, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let kept = world.write(1, b"kept").unwrap();
    let lost = world.write(1, b"lost").unwrap();
    // Torn: nobody was told.
    disk.rot(&slot_paths(&disk)[0], lost.position.0 as usize, 0);
    let mut next = World::open(&disk).unwrap();
    next.write(1, b"next").unwrap();
    assert_eq!(walk(&mut next.reader, Container::Segment(0)).unwrap(), (vec![kept], vec![]));
}

#[test]
fn a_slot_that_was_removed_holds_no_segment_and_hides_no_other() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let (mut world, segments) = lane(&disk);
    // Now the reader knows where each segment lies.
    walk(&mut world.reader, Container::Segment(0)).unwrap();
    disk.remove(&slot_paths(&disk)[2]).unwrap();
    let gone = walk(&mut world.reader, Container::Segment(2)).unwrap_err();
    assert!(matches!(gone, Fault::MissingSegment { segment: 2, .. }), "{gone}");
    assert_eq!(walk(&mut world.reader, Container::Segment(3)).unwrap().0, segments[3]);
}

#[test]
fn a_walk_that_is_told_to_stop_reads_no_more() {
    let disk = MemoryDisk::default();
    let long = LaneConfig { segment_bytes: 1 << 20, ..config() };
    let mut world = World::open_as(&disk, long).unwrap();
    for number in 0..20 {
        world.write(1, &body(number, 90_000)).unwrap();
    }
    let mut pieces = 0;
    let mut pace = |_| {
        pieces += 1;
        false
    };
    let stopped = world.reader.walk(Container::Segment(0), &mut pace, |_| Ok::<(), Fault>(()));
    assert!(matches!(stopped, Err(Fault::Io { .. })), "{stopped:?}");
    assert_eq!(pieces, 1);
}

#[test]
fn a_segment_in_front_of_one_without_its_header_is_walked_to_its_end() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entries = [&b"first"[..], b"second"].map(|body| world.write(1, body).unwrap());
    world.builder.start_segment();
    world.write(1, b"next").unwrap();
    world.begin_replay_here().unwrap();
    let next = &slot_paths(&disk)[1];
    let mut bytes = disk.bytes_of(next).unwrap();
    bytes[..BLOCK_BYTES].fill(0);
    disk.insert_file(next, bytes);
    let mut world = World::open(&disk).unwrap();
    assert!(world.headless.contains_key(&1));
    let found = walk(&mut world.reader, Container::Segment(0)).unwrap();
    assert_eq!(found, (entries.to_vec(), vec![]));
}

#[test]
fn a_segment_whose_slot_is_used_again_during_a_walk_is_missing_and_not_damaged() {
    let disk = MemoryDisk::default();
    let long = LaneConfig { segment_bytes: 1 << 20, ..config() };
    let mut world = World::open_as(&disk, long).unwrap();
    for number in 0..20 {
        world.write(1, &body(number, 90_000)).unwrap();
    }
    let [oldest, newer] = &slot_paths(&disk)[..] else { panic!("two segments") };
    let used_again = disk.bytes_of(newer).unwrap();
    // Between two pieces of what is read at once.
    let mut pace = |_| {
        disk.open_to_write(oldest).unwrap().write_at(&used_again, 0).unwrap();
        true
    };
    let mut damage = Vec::new();
    let walked = world.reader.walk(Container::Segment(0), &mut pace, |walked| {
        damage.extend(matches!(walked, WalkItem::Damage(_)).then_some(walked));
        Ok::<(), Fault>(())
    });
    assert_eq!(damage, []);
    assert!(matches!(walked, Err(Fault::MissingSegment { segment: 0, .. })), "{walked:?}");
}

//! What lies in the log between two frames is read again while the lane goes on, and a frame that is not whole is told.

use sennit_journal::{Fault, Position, WalkItem, disk::MemoryDisk};

use crate::world::{Entry, SEGMENT_BYTES, World, directory};

/// Some segments, of two lives, and where frames end.
fn written(disk: &MemoryDisk) -> (World<MemoryDisk>, Vec<Position>) {
    let (mut world, mut ends) = (World::open(disk).unwrap(), Vec::new());
    for life in 0..2 {
        for number in 0..9_u8 {
            world.write(number, &vec![number; 5000 + 100 * life]).unwrap();
            ends.push(world.builder.end());
        }
        if life == 0 {
            world = World::open(disk).unwrap();
        }
    }
    (world, ends)
}

fn read(
    world: &mut World<MemoryDisk>,
    begin: Position,
    end: Position,
) -> Result<Vec<Entry>, Fault> {
    let (parts, mut entries) = (world.reader.log_parts(begin..end)?, Vec::new());
    for part in parts {
        world.reader.walk_part(&part, |item| {
            let WalkItem::Record { kind, position, body, .. } = item else { panic!("{item:?}") };
            entries.push(Entry { kind, position, body });
            Ok::<_, Fault>(())
        })?;
    }
    Ok(entries)
}

#[test]
fn what_lies_between_two_frames_is_read_as_a_start_reads_it() {
    let disk = MemoryDisk::default();
    let (mut world, ends) = written(&disk);
    assert!(ends.last().unwrap().segment(SEGMENT_BYTES) > 3);
    let all = World::open(&disk).unwrap().found;
    assert_eq!(all.len(), ends.len());
    let begins = [Position(0)].into_iter().chain(ends.iter().copied());
    for (before, begin) in begins.enumerate() {
        for (count, &end) in (1..).zip(&ends).skip(before) {
            assert_eq!(read(&mut world, begin, end).unwrap(), all[before..count]);
        }
    }
    assert_eq!(world.reader.log_parts(ends[3]..ends[3]).unwrap(), []);
    // What comes later changes nothing of it.
    world.write(7, b"later").unwrap();
    assert_eq!(read(&mut world, Position(0), ends[8]).unwrap(), all[..9]);
}

#[test]
fn a_frame_that_is_not_whole_and_a_segment_that_is_gone_are_told() {
    let disk = MemoryDisk::default();
    let (mut world, ends) = written(&disk);
    let slot = directory().join("slot-00000.journal");
    let mut bytes = disk.bytes_of(&slot).unwrap();
    bytes[4096 + 100] ^= 1;
    disk.insert_file(&slot, bytes.clone());
    let fault = read(&mut world, Position(0), ends[8]).unwrap_err();
    assert!(matches!(&fault, Fault::Rot { path, .. } if *path == slot), "{fault}");
    bytes[..4096].fill(0);
    disk.insert_file(&slot, bytes);
    // A file that is open stays what it was.
    world.reader = world.reader.duplicate();
    let fault = read(&mut world, Position(0), ends[8]).unwrap_err();
    assert!(matches!(fault, Fault::MissingSegment { segment: 0, .. }), "{fault}");
}

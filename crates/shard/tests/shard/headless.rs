//! Rot of a segment's header: its frames identify the segment, and all its messages exist.

use std::{collections::BTreeSet, path::Path};

use sennit_journal::{BLOCK_BYTES, disk::MemoryDisk, verify};
use sennit_shard::{Repaired, repair};

use crate::{
    broker::{Broker, COUNT, NOW, ORDERS, SEGMENT_BYTES, texts},
    rot::{headless_segment, segments},
};

/// Bytes of a header, without the zeros behind it.
const HEADER_BYTES: usize = 68;

fn change(disk: &MemoryDisk, path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = disk.bytes_of(path).unwrap();
    change(&mut bytes);
    disk.insert_file(path, bytes);
}

/// The blocks with which frames begin.
fn frames(disk: &MemoryDisk, path: &Path) -> Vec<usize> {
    let bytes = disk.bytes_of(path).unwrap();
    let blocks = (0..bytes.len()).step_by(BLOCK_BYTES);
    blocks.filter(|&at| bytes[at..].starts_with(b"SNFR")).collect()
}

#[test]
fn rot_in_any_byte_of_the_header_of_an_old_segment_costs_no_message() {
    let (mut broker, _, slot, front) = headless_segment(0);
    for byte in 0..HEADER_BYTES {
        change(&broker.disk, &slot, |bytes| {
            bytes[..BLOCK_BYTES].copy_from_slice(&front[..BLOCK_BYTES]);
            bytes[byte] ^= 1 << (byte % 8);
        });
        broker = broker.crashed();
        let report = &broker.parts.report;
        assert_eq!((&report.lost_segments[..], &report.damage[..]), (&[][..], &[][..]), "{byte}");
        broker.gets(0..60 * COUNT);
        assert_eq!(broker.gaps, []);
    }
}

#[test]
fn rot_in_the_header_of_an_old_segment_and_in_a_frame_costs_what_lay_in_the_frame() {
    let (mut broker, _, slot, front) = headless_segment(0);
    change(&broker.disk, &slot, |bytes| {
        bytes[..BLOCK_BYTES].copy_from_slice(&front[..BLOCK_BYTES])
    });
    let frames = frames(&broker.disk, &slot);
    let mut frames_with_messages = 0;
    for frame in frames {
        let mut lost = Vec::new();
        for is_headless in [false, true] {
            // The frame's header, and a message in it.
            let rot = |bytes: &mut [u8]| {
                [frame + 17, frame + 300].iter().for_each(|at| bytes[*at] ^= 4);
                bytes[3] ^= u8::from(is_headless);
            };
            change(&broker.disk, &slot, rot);
            broker = broker.crashed();
            assert_eq!(broker.parts.report.headless_segments.len(), usize::from(is_headless));
            broker.subscribe();
            let all = (0..60 * COUNT).collect::<BTreeSet<_>>();
            let got = broker.delivered.iter().map(|(offset, _)| *offset).collect();
            let gaps = broker.gaps.iter().flat_map(|gap| gap.start.0..gap.end.0);
            let missing: Vec<_> = all.difference(&got).copied().collect();
            assert_eq!(gaps.collect::<Vec<_>>(), missing, "what is missing is told");
            lost.push(missing.len());
            change(&broker.disk, &slot, rot);
        }
        assert_eq!(lost[0], lost[1], "the frame at {frame}");
        frames_with_messages += usize::from(lost[1] == COUNT as usize);
    }
    assert!(frames_with_messages > 3, "{frames_with_messages}");
}

#[test]
fn messages_of_a_segment_that_is_replayed_are_there_though_its_header_has_rotted() {
    let broker = Broker::with_backlog(60);
    let disk = broker.disk.clone();
    let (_, newest) = segments(&disk).into_iter().max().unwrap();
    for (segment, slot) in segments(&disk) {
        if slot == newest {
            continue;
        }
        let whole = disk.bytes_of(&slot).unwrap();
        change(&disk, &slot, |bytes| bytes[..BLOCK_BYTES].fill(0));
        let mut broker = Broker::open(&disk, SEGMENT_BYTES);
        assert!(broker.parts.report.headless_segments.contains_key(&segment));
        broker.gets(0..60 * COUNT);
        disk.insert_file(&slot, whole);
    }
}

#[test]
fn a_repair_moves_the_messages_of_a_segment_without_its_header_and_sets_the_slot_aside() {
    let (broker, _, slot, _) = headless_segment(1_500);
    let config = Broker::config(SEGMENT_BYTES);
    let repaired = repair(&broker.disk, &config, NOW).unwrap();
    assert_eq!((repaired.lost_messages, &repaired.to_quarantine), (0, &vec![slot.clone()]));
    change(&broker.disk, &slot, |bytes| bytes.fill(0));
    assert_eq!(verify(&broker.disk, &config).unwrap().damage, []);
    assert_eq!(repair(&broker.disk, &config, NOW).unwrap(), Repaired::default());
    broker.crashed().gets(0..60 * COUNT);
}

#[test]
fn a_segment_without_its_header_is_emptied_into_packs_and_its_slot_is_used_again() {
    let (broker, lost, slot, _) = headless_segment(0);
    let mut broker = broker.crashed();
    assert!(broker.parts.lane.holds(lost));
    broker.move_all();
    assert!(!broker.parts.lane.holds(lost), "nothing refers to it");
    broker.gets(0..60 * COUNT);
    let headless = broker.disk.bytes_of(&slot).unwrap();
    let mut next = 60;
    while broker.disk.bytes_of(&slot).unwrap() == headless {
        broker.publish(ORDERS, &texts(next * COUNT..(next + 1) * COUNT));
        next += 1;
        assert!(next < 500, "it is not used again");
    }
    broker.crashed().gets(0..next * COUNT);
}

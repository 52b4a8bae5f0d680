//! A full disk: the journal space of acks comes free again, in few slots.

use sennit_model::{PartitionId, TopicId};
use sennit_shard::{PackLengths, Settings, recover};

use crate::broker::{Broker, COUNT, NOW, ORDERS, SEGMENT_BYTES};

/// Slots beyond those of what is kept: the last checkpoint's, the one being written, and the next.
const MORE: usize = 3;

/// One whose checkpoints are as long as so many partitions make them, on a disk that is full now.
fn full(partitions: u32) -> Broker {
    let mut broker = Broker::with_backlog(200);
    for topic in 2..2 + partitions {
        broker.create(PartitionId { topic: TopicId(topic), ..ORDERS });
    }
    broker.subscribe();
    broker.parts.shard.set_storage_full(true);
    broker
}

/// Acks one message at a time, each in a commit of its own, and none so that its batch comes free.
fn ack_singly(broker: &mut Broker, offsets: impl Iterator<Item = u64>) {
    for offset in offsets.filter(|offset| offset % COUNT != 0) {
        broker.ack(|held| held == offset);
    }
}

#[test]
fn acks_that_free_nothing_go_on_for_ever_in_three_slots() {
    let mut broker = full(100);
    ack_singly(&mut broker, 0..10);
    for spare in broker.parts.lane.take_surplus(0) {
        broker.parts.slots.remove(&spare).unwrap();
    }
    let slots = broker.slot_files();
    ack_singly(&mut broker, 10..100 * COUNT);
    assert!(broker.slot_files() <= slots + MORE, "{} slots", broker.slot_files());
    // A start takes a segment too, however often there is one.
    for _ in 0..10 {
        broker = broker.crashed();
        broker.parts.shard.set_storage_full(true);
        broker.subscribe();
    }
    ack_singly(&mut broker, 100 * COUNT..150 * COUNT);
    assert!(broker.slot_files() <= slots + MORE, "{} slots", broker.slot_files());
    broker.ack(|_| true);
    broker.crashed().gets(0..0);
}

/// A start on a full disk of which the lane writes so many frames before the process is killed.
fn begins(broker: Broker, frames_written: usize) -> Broker {
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 1,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica: None,
    };
    let config = Broker::config(SEGMENT_BYTES);
    let mut parts = recover(&broker.disk, config, settings, NOW).unwrap();
    parts.shard.set_storage_full(true);
    let mut frames = Vec::new();
    parts.shard.take_frames(&mut frames);
    frames.truncate(frames_written.max(1));
    while parts.lane.fits(&frames) < frames.len() {
        parts.lane.add_spare(parts.slots.make().unwrap());
    }
    let end = parts.lane.append(&frames).unwrap();
    parts.shard.handle_commit(end, NOW);
    let mut released = Vec::new();
    parts.shard.take_released(&mut released);
    released.into_iter().for_each(|segment| parts.lane.release(segment));
    broker
}

#[test]
fn starts_that_are_killed_before_their_checkpoint_is_whole_take_no_slots() {
    let mut broker = full(1000);
    ack_singly(&mut broker, 0..100);
    broker = broker.crashed();
    let slots = broker.slot_files();
    for crash_count in 0..40 {
        broker = begins(broker, crash_count % 7);
        assert!(broker.slot_files() <= slots + MORE, "{} slots", broker.slot_files());
    }
    broker = broker.crashed();
    broker.subscribe();
    broker.ack(|_| true);
    broker.crashed().gets(0..0);
}

#[test]
fn a_checkpoint_of_many_segments_is_not_written_again_for_its_own_sake() {
    let mut broker = full(4000);
    broker.parts.shard.set_storage_full(false);
    broker.ack(|_| true);
    let before = broker.parts.shard.counters().checkpoints;
    broker.parts.shard.set_storage_full(true);
    broker.parts.shard.start_segment();
    // A commit has it written, it takes one, and so does the segment that says so.
    for _ in 0..20 {
        broker.commit_quietly(NOW);
        broker.take_effects();
    }
    assert!(!broker.parts.shard.has_frames(), "the journal grows by itself");
    assert_eq!(broker.parts.shard.counters().checkpoints, before + 1);
}

#[test]
fn how_long_the_checkpoints_of_earlier_lives_were_is_known_before_the_first_of_this_one() {
    let mut broker = full(4000);
    broker.parts.shard.checkpoint_soon();
    broker.settle_down();
    let segments = broker.parts.shard.checkpoint_segments();
    assert!(segments > 3, "{segments}");
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 1,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica: None,
    };
    let next = recover(&broker.disk, Broker::config(SEGMENT_BYTES), settings, NOW).unwrap();
    assert_eq!(next.shard.counters().checkpoints, 0);
    // A start counts the records between its pieces too.
    let found = next.shard.checkpoint_segments();
    assert!((segments..=2 * segments).contains(&found), "{found} for {segments}");
}

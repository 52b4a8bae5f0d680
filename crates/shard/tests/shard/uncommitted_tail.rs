//! A start of a replica in a group with entries at its lane's end that are not known to be committed: the state has
//! applied them, and nothing is shown or given up for them.

use sennit_engine::KeptBatch;
use sennit_journal::{Container, Position, disk::MemoryDisk};
use sennit_shard::{Standing, TakeOver};

use crate::group_member::{GroupMember, NOW, PARTITIONS};

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(disk: &MemoryDisk) -> GroupMember {
    GroupMember::open(disk, 1, 0, SEGMENT_BYTES)
}

/// A leader with two batches of 40 messages of 1,000 bytes, committed and synced.
fn leader() -> GroupMember {
    let mut leader = open(&MemoryDisk::default());
    leader.lead(2);
    leader.open_partitions();
    leader.subscribe();
    for partition in PARTITIONS {
        leader.publish(partition, 40, 1_000);
    }
    commit_all(&mut leader);
    leader
}

fn commit_all(member: &mut GroupMember) {
    member.write_all();
    let last = member.last().index;
    member.commit(last);
    member.write_all();
}

/// The batches whose segment the lane does not hold any more.
fn lost_batches(member: &GroupMember) -> Vec<KeptBatch> {
    let is_lost = |kept: &KeptBatch| {
        let container = Container::of(Position(kept.place.position), SEGMENT_BYTES);
        matches!(container, Container::Segment(segment) if !member.parts.lane.holds(segment))
    };
    member.parts.shard.engine().batches().filter(is_lost).collect()
}

#[test]
fn a_start_keeps_the_batches_that_only_an_uncommitted_entry_has_freed() {
    let mut leader = leader();
    // The batches lie before the checkpoint on which a start falls back.
    for _ in 0..4 {
        leader.parts.shard.checkpoint_soon();
        leader.write_all();
        leader.parts.shard.start_segment();
        commit_all(&mut leader);
    }
    let (kept, committed) = (leader.places(), leader.last().index);
    assert_eq!(kept.len(), 2);
    leader.ack(0);
    leader.write_all();
    assert!(leader.places().is_empty(), "all is acked, and the acks are not committed");
    let mut started = open(&leader.disk);
    started.write_all();
    assert!(started.places().is_empty(), "the state has applied the acks");
    // The group decides otherwise.
    started.parts.shard.cut_from(committed + 1, NOW);
    let reader = started.parts.reader.duplicate();
    let mut rebuild = started.parts.shard.begin_rebuild(reader, NOW);
    while rebuild.step().unwrap() {}
    let taken = started.parts.shard.take_over(rebuild, NOW).unwrap();
    assert!(matches!(taken, TakeOver::Done));
    started.write_all();
    assert_eq!(started.places(), kept);
    assert_eq!(lost_batches(&started), []);
}

#[test]
fn an_uncommitted_message_is_not_shown_after_a_start_until_it_is_committed() {
    let mut leader = leader();
    leader.publish(PARTITIONS[0], 5, 1_000);
    leader.write_all();
    assert_eq!(leader.delivered(), 80);
    let mut started = open(&leader.disk);
    started.parts.shard.stand(Standing::Leader { term: 3, may_give: true }, NOW);
    started.subscribe();
    assert_eq!(started.delivered(), 80);
    let last = started.last().index;
    started.commit(last);
    assert_eq!(started.delivered(), 85);
}

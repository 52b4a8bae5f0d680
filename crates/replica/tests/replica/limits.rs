//! Limits in a group: the bytes that are not committed, and how far a slow disk holds others up.

use std::collections::BTreeSet;

use sennit_engine::Refusal;

use crate::group::Group;

/// A group whose segments take messages of 1 MiB, and its leader.
fn with_leader() -> (Group, u64) {
    let mut group = Group::with_segments(3, 4 << 20);
    let leader = group.begin();
    (group, leader)
}

#[test]
fn a_leader_without_a_quorum_stops_publishing_before_its_log_is_too_long_for_a_start() {
    let (mut group, leader) = with_leader();
    for other in group.others(leader) {
        group.node(other).writes = false;
    }
    let text = "x".repeat(1 << 20);
    for _ in 0..140 {
        group.publish(leader, &text);
        group.run();
    }
    let refused = group.node(leader).refusals();
    assert!(refused.iter().all(|refusal| **refusal == Refusal::NoLeader));
    let refused = refused.len();
    assert!((70..=80).contains(&refused), "64 MiB are taken, and {refused} MiB refused");
    group.restart(leader);
    for other in group.others(leader) {
        group.node(other).writes = true;
    }
    for _ in 0..40 {
        group.tick();
    }
    let leader = group.leader().unwrap();
    group.publish(leader, &text);
    group.run();
    assert_eq!(group.node(leader).confirms(), 1);
    group.tick();
    group.tick();
    group.check_same_state();
}

#[test]
fn a_follower_with_a_slow_disk_does_not_set_the_pace() {
    let (mut group, leader) = with_leader();
    let slow = group.others(leader)[0];
    group.node(slow).writes = false;
    let text = "x".repeat(1 << 20);
    for number in 1..=100 {
        group.publish(leader, &text);
        group.run();
        assert_eq!(group.node(leader).confirms(), number);
    }
    let held = group.node(slow).taken.iter().map(|frame| frame.end.0 - frame.position.0);
    let held = held.sum::<u64>();
    assert!(held <= 20 << 20, "it is sent no more than a window: {held} bytes");
    // The log begins later by now, for whom it waits or not.
    assert_eq!(group.node(leader).replica.take_behind(), BTreeSet::new());
    group.node(slow).writes = true;
    for _ in 0..4 {
        group.tick();
    }
    assert_eq!(group.node(leader).replica.take_behind(), BTreeSet::from([slow]));
}

/// Nodes have no room any more, and so many spare slots.
fn fill(group: &mut Group, ids: &[u64], slots: usize) {
    for id in ids {
        let shard = group.node(*id).replica.shard_mut();
        let end = shard.end();
        shard.set_storage_full(true);
        shard.set_spare_slots(slots, end);
    }
    for _ in 0..4 {
        group.tick();
    }
}

#[test]
fn a_full_disk_of_a_leader_has_another_lead_that_has_room() {
    let (mut group, old) = with_leader();
    fill(&mut group, &[old], 7);
    let new = group.leader().unwrap();
    assert_ne!(new, old);
    group.publish(new, "two have room");
    group.run();
    assert_eq!(group.node(new).confirms(), 1);
    for _ in 0..40 {
        group.tick();
    }
    assert_eq!(group.leader(), Some(new), "it stays");
    group.check_same_state();
}

#[test]
fn a_follower_with_a_full_disk_takes_what_it_has_slots_for_and_holds_nobody_up() {
    let (mut group, leader) = with_leader();
    let full = group.others(leader)[0];
    let end_of = |group: &Group| group.nodes[&full].replica.shard().end();
    fill(&mut group, &[full], 7);
    group.publish(leader, "it has slots");
    group.run();
    group.tick();
    group.tick();
    group.check_same_state();
    fill(&mut group, &[full], 1);
    group.run();
    let end = end_of(&group);
    for number in 0..20 {
        group.publish(leader, &format!("{number}"));
        group.run();
        group.tick();
    }
    assert_eq!(group.node(leader).confirms(), 21);
    assert_eq!(group.leader(), Some(leader));
    assert!(end_of(&group).0 - end.0 < 64 << 10, "it writes marks and votes");
    // Room comes back, and it catches up.
    group.node(full).replica.shard_mut().set_storage_full(false);
    for _ in 0..10 {
        group.tick();
    }
    group.check_same_state();
}

#[test]
fn a_group_whose_quorum_has_no_room_refuses_publishes_until_it_has_again() {
    let (mut group, leader) = with_leader();
    let others = group.others(leader);
    fill(&mut group, &others, 7);
    group.publish(leader, "only one has room");
    group.run();
    assert_eq!(group.node(leader).refusals(), [&Refusal::StorageFull]);
    group.node(others[0]).replica.shard_mut().set_storage_full(false);
    for _ in 0..4 {
        group.tick();
    }
    group.publish(leader, "two have room");
    group.run();
    assert_eq!(group.node(leader).confirms(), 1);
}

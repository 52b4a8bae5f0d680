//! A replica that is not the one that acknowledged what it did: it never votes, acknowledges nothing and never leads, over
//! starts too.

use sennit_engine::Effect;
use sennit_replication::{Quarantine, Role};
use sennit_shard::Standing;

use crate::group::Group;

/// A text that is found on a disk.
const TEXT: &str = "a text that lies in one frame";

/// Checks that a replica is in quarantine and does nothing for its group, before and after a start. Another one is cut
/// off meanwhile: with a vote or an acknowledgement there would be a quorum.
#[track_caller]
fn check_quarantined(group: &mut Group, id: u64) -> Quarantine {
    let found = group.node(id).replica.quarantine().expect("it is in quarantine");
    let [one, other] = group.others(id)[..] else { panic!("a group of three") };
    for cut_off in [one, other] {
        group.isolate(cut_off, true);
        for _ in 0..2 {
            for _ in 0..60 {
                group.tick();
                let node = &group.nodes[&id];
                assert_eq!(node.replica.role(), Role::Quarantined);
                assert_eq!(node.replica.shard().standing(), Standing::Quarantined);
            }
            assert_eq!(group.leader(), None, "there is no quorum without it");
            group.restart(id);
            assert_eq!(group.node(id).replica.quarantine(), Some(found));
        }
        group.isolate(cut_off, false);
        for _ in 0..60 {
            group.tick();
        }
        assert!(group.leader().is_some_and(|leader| leader != id), "the two others go on");
    }
    found
}

#[test]
fn a_replica_with_a_flipped_bit_never_votes_nor_acknowledges() {
    let (mut group, leader) = Group::with_leader(3);
    group.publish(leader, TEXT);
    group.run();
    for _ in 0..3 {
        group.publish(leader, "what comes later shows that it was durable");
        group.run();
    }
    let damaged = group.others(leader)[0];
    assert_eq!(group.node(damaged).flip_bit_of(TEXT), 1);
    assert_eq!(group.node(damaged).replica.quarantine(), None, "it has not been read");
    group.restart(damaged);
    let found = check_quarantined(&mut group, damaged);
    assert!(matches!(found, Quarantine::Damaged { .. }), "{found:?}");
}

#[test]
fn a_leader_that_reads_a_flipped_bit_for_a_follower_leads_no_more() {
    let (mut group, leader) = Group::with_leader(3);
    let [late, third] = group.others(leader)[..] else { panic!("a group of three") };
    group.isolate(late, true);
    group.publish(leader, TEXT);
    group.run();
    for _ in 0..3 {
        group.publish(leader, "what comes later");
        group.run();
    }
    assert_eq!(group.node(leader).confirms(), 4);
    assert_eq!(group.node(leader).flip_bit_of(TEXT), 1);
    group.isolate(late, false);
    for _ in 0..60 {
        group.tick();
    }
    assert_eq!(group.leader(), Some(third));
    let commit = |id: u64| group.nodes[&id].replica.shard().here().map(|here| here.commit);
    assert_eq!(commit(late), commit(third));
    let found = check_quarantined(&mut group, leader);
    assert!(matches!(found, Quarantine::Damaged { .. }), "{found:?}");
}

/// Publishes messages of which the first is damaged at the leader.
fn with_damaged_batch(group: &mut Group, leader: u64) {
    group.publish(leader, TEXT);
    group.run();
    for _ in 0..3 {
        group.publish(leader, "what comes later");
        group.run();
    }
    assert_eq!(group.node(leader).confirms(), 4);
    assert_eq!(group.node(leader).flip_bit_of(TEXT), 1);
}

/// Checks that a subscription at a node gets all, and is told of nothing that is missing.
#[track_caller]
fn check_reads_all(group: &mut Group, id: u64) {
    group.subscribe(id);
    for _ in 0..3 {
        group.tick();
    }
    let later = "what comes later";
    assert_eq!(group.node(id).delivered(), [TEXT, later, later, later]);
    check_told_no_gap(group, id);
}

#[track_caller]
fn check_told_no_gap(group: &mut Group, id: u64) {
    let is_gap = |effect: &Effect| matches!(effect, Effect::Gap { .. });
    assert!(!group.node(id).effects.iter().any(is_gap));
}

#[test]
fn a_leader_that_reads_a_flipped_bit_for_a_consumer_tells_nothing_and_leads_no_more() {
    let (mut group, leader) = Group::with_leader(3);
    with_damaged_batch(&mut group, leader);
    group.subscribe(leader);
    for _ in 0..20 {
        group.tick();
    }
    assert_eq!(group.node(leader).delivered(), [] as [&str; 0]);
    check_told_no_gap(&mut group, leader);
    let next = group.leader().unwrap();
    assert_ne!(next, leader);
    check_reads_all(&mut group, next);
    let found = check_quarantined(&mut group, leader);
    assert!(matches!(found, Quarantine::Damaged { .. }), "{found:?}");
}

#[test]
fn a_replica_with_a_damaged_batch_whose_vote_is_needed_follows_and_never_leads() {
    let (mut group, leader) = Group::with_leader(3);
    let [heir, absent] = group.others(leader)[..] else { panic!("a group of three") };
    with_damaged_batch(&mut group, leader);
    group.isolate(absent, true);
    for _ in 0..20 {
        group.tick();
    }
    group.subscribe(leader);
    for _ in 0..20 {
        group.tick();
    }
    check_told_no_gap(&mut group, leader);
    assert_eq!(group.leader(), Some(heir));
    assert_eq!(group.node(leader).replica.quarantine(), None);
    check_reads_all(&mut group, heir);
    group.publish(heir, "two are enough");
    group.run();
    assert_eq!(group.node(heir).confirms(), 1);
    group.isolate(absent, false);
    for _ in 0..20 {
        group.tick();
    }
    group.isolate(heir, true);
    for _ in 0..60 {
        group.tick();
        assert_ne!(group.node(leader).replica.role(), Role::Leader);
    }
    assert_eq!(group.leader(), Some(absent));
}

#[test]
fn a_poisoned_replica_whose_lane_is_damaged_is_in_quarantine() {
    let (mut group, old) = Group::with_leader(3);
    group.publish(old, TEXT);
    group.run();
    for _ in 0..3 {
        group.publish(old, "what comes later");
        group.run();
    }
    group.isolate(old, true);
    group.publish(old, "nobody hears it");
    group.run();
    for _ in 0..40 {
        group.tick();
    }
    assert_eq!(group.node(old).flip_bit_of(TEXT), 1);
    let new = group.leader().unwrap();
    group.publish(new, "another in its place");
    group.run();
    group.isolate(old, false);
    for _ in 0..5 {
        group.tick();
    }
    let found = check_quarantined(&mut group, old);
    assert!(matches!(found, Quarantine::Damaged { .. }), "{found:?}");
}

#[test]
fn a_replica_that_has_forgotten_what_it_acknowledged_is_in_quarantine_after_a_start_too() {
    let (mut group, leader) = Group::with_leader(3);
    let forgetful = group.others(leader)[0];
    let earlier = group.node(forgetful).copy_of_disk();
    for number in 0..5 {
        group.publish(leader, &number.to_string());
        group.run();
    }
    group.restart_on(forgetful, &earlier);
    group.tick();
    group.tick();
    group.tick();
    let found = check_quarantined(&mut group, forgetful);
    assert!(matches!(found, Quarantine::Forgotten { .. }), "{found:?}");
}

#[test]
fn a_replica_whose_checkpoint_is_damaged_starts_in_quarantine_and_without_a_state() {
    let (mut group, leader) = Group::with_leader(3);
    let damaged = group.others(leader)[0];
    // The older segments are gone.
    for _ in 0..5 {
        for _ in 0..10 {
            group.publish(leader, &"x".repeat(10_000));
            group.run();
        }
        group.node(damaged).replica.shard_mut().checkpoint_soon();
        group.tick();
    }
    group.node(damaged).flip_bits();
    group.restart(damaged);
    let found = check_quarantined(&mut group, damaged);
    assert!(matches!(found, Quarantine::Damaged { .. }), "{found:?}");
}

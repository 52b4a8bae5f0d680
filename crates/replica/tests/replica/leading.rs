//! What a leader confirms: what a quorum has synced, whoever that is.

use sennit_engine::{Effect, Refusal};
use sennit_replication::Role;
use sennit_shard::Standing;

use crate::group::Group;

#[test]
fn one_is_elected_and_the_others_follow_it() {
    let mut group = Group::new(3);
    let leader = group.elect();
    group.tick();
    group.tick();
    for (id, node) in &group.nodes {
        let standing = node.replica.shard().standing();
        match *id == leader {
            true => assert!(matches!(standing, Standing::Leader { may_give: true, .. })),
            false => assert_eq!(standing, Standing::Follower { leader: Some(leader) }),
        }
    }
}

#[test]
fn a_publish_is_confirmed_by_two_followers_though_the_leaders_lane_has_not_synced() {
    let (mut group, leader) = Group::with_leader(3);
    group.node(leader).writes = false;
    group.subscribe(leader);
    group.publish(leader, "one");
    assert_eq!(group.node(leader).confirms(), 0);
    group.run();
    assert_eq!(group.node(leader).confirms(), 1);
    assert!(!group.node(leader).taken.is_empty(), "the own lane has not written");
    assert_eq!(group.node(leader).delivered(), ["one"], "it is read from memory");
    group.node(leader).writes = true;
    group.tick();
    group.tick();
    group.check_same_state();
}

#[test]
fn what_is_committed_before_the_own_lane_has_taken_it_is_delivered_from_memory() {
    let (mut group, leader) = Group::with_leader(3);
    group.subscribe(leader);
    group.node(leader).takes = false;
    // So much that a segment ends, and with it a frame, which is proposed.
    let texts: Vec<String> = (0..3).map(|n| format!("{n} {}", "x".repeat(30_000))).collect();
    texts.iter().for_each(|text| _ = group.publish(leader, text));
    group.run();
    let confirmed = group.node(leader).confirms();
    assert!(confirmed > 0 && group.node(leader).taken.is_empty());
    assert_eq!(group.node(leader).delivered(), texts[..confirmed]);
    let is_gap = |effect: &Effect| matches!(effect, Effect::Gap { .. });
    assert!(!group.node(leader).effects.iter().any(is_gap));
}

#[test]
fn a_publish_is_not_confirmed_as_long_as_only_one_has_synced_it() {
    let (mut group, leader) = Group::with_leader(3);
    let followers: Vec<u64> = group.nodes.keys().copied().filter(|id| *id != leader).collect();
    for follower in &followers {
        group.node(*follower).writes = false;
    }
    group.publish(leader, "one");
    group.run();
    assert_eq!(group.node(leader).confirms(), 0);
    group.node(followers[1]).writes = true;
    group.run();
    assert_eq!(group.node(leader).confirms(), 1);
}

#[test]
fn a_follower_refuses_commands_and_names_the_leader() {
    let (mut group, leader) = Group::with_leader(3);
    let follower = group.nodes.keys().copied().find(|id| *id != leader).unwrap();
    group.publish(follower, "one");
    group.run();
    assert_eq!(group.node(follower).refusals(), [&Refusal::NotLeader { leader }]);
    assert_eq!(group.node(follower).confirms(), 0);
}

#[test]
fn followers_have_the_state_of_their_leader() {
    let (mut group, leader) = Group::with_leader(3);
    for number in 0..50 {
        group.publish(leader, &format!("{number} {}", "x".repeat(3000)));
        if number % 7 == 0 {
            group.run();
        }
    }
    group.run();
    assert_eq!(group.node(leader).confirms(), 50);
    group.check_same_state();
}

#[test]
fn a_leader_that_hears_nobody_gives_nothing_and_then_leads_no_more() {
    let (mut group, leader) = Group::with_leader(3);
    group.subscribe(leader);
    group.isolate(leader, true);
    for _ in 0..9 {
        group.tick();
    }
    let standing = group.node(leader).replica.shard().standing();
    assert!(!matches!(standing, Standing::Leader { may_give: true, .. }), "{standing:?}");
    for _ in 0..20 {
        group.tick();
    }
    assert_ne!(group.node(leader).replica.role(), Role::Leader);
    assert!(group.leader().is_some_and(|other| other != leader));
}

#[test]
fn a_leader_knows_who_is_behind_and_whether_anything_is_uncommitted() {
    let (mut group, leader) = Group::with_leader(3);
    let (silent, other) = match leader {
        1 => (2, 3),
        2 => (1, 3),
        _ => (1, 2),
    };
    group.isolate(silent, true);
    for _ in 0..4 {
        group.publish(leader, "one");
        group.run();
    }
    let replica = &group.node(leader).replica;
    let lags: Vec<_> = replica.lags().iter().map(|lag| (lag.replica, lag.entries)).collect();
    let mut expected = [(silent, 4), (other, 0)];
    expected.sort_unstable();
    assert_eq!((lags, replica.uncommitted(), replica.leader()), (expected.into(), 0, Some(leader)));
    assert!(!replica.is_awaited());
    assert_eq!(group.node(other).replica.lags(), []);
    group.isolate(other, true);
    group.publish(leader, "two");
    group.run();
    assert_eq!(group.node(leader).replica.uncommitted(), 1);
}

//! Leaders come and go, and nodes with them: what was confirmed stays, and what was not is told.

use sennit_engine::{Effect, Refusal};
use sennit_replication::Role;
use sennit_shard::Standing;

use crate::group::Group;

fn other_than(group: &Group, id: u64) -> u64 {
    group.others(id)[0]
}

/// A group whose old leader has applied an entry that nobody else has, and a new one leads. All are linked again.
/// States are not made anew.
fn with_poisoned_node() -> (Group, u64, u64) {
    let (mut group, old) = Group::with_leader(3);
    group.set_rebuilds(false);
    group.isolate(old, true);
    group.publish(old, "nobody hears it");
    group.run();
    for _ in 0..40 {
        group.tick();
    }
    let new = group.leader().unwrap();
    assert_ne!(new, old);
    group.publish(new, "another in its place");
    group.run();
    group.isolate(old, false);
    for _ in 0..5 {
        group.tick();
    }
    assert!(group.node(old).replica.is_poisoned());
    (group, old, new)
}

#[test]
fn a_new_leader_has_what_was_confirmed_and_goes_on() {
    let (mut group, old) = Group::with_leader(3);
    for number in 0..5 {
        group.publish(old, &format!("old {number}"));
    }
    group.run();
    assert_eq!(group.node(old).confirms(), 5);
    group.isolate(old, true);
    let new = loop {
        group.tick();
        if let Some(new) = group.leader().filter(|new| *new != old) {
            break new;
        }
    };
    group.subscribe(new);
    group.publish(new, "new");
    group.run();
    assert_eq!(group.node(new).confirms(), 1);
    let mut expected: Vec<_> = (0..5).map(|number| format!("old {number}")).collect();
    expected.push("new".to_owned());
    assert_eq!(group.node(new).delivered(), expected);
    group.isolate(old, false);
    group.tick();
    group.tick();
    group.tick();
    assert_eq!(group.node(old).replica.role(), Role::Follower);
    group.check_same_state();
}

#[test]
fn a_node_that_was_away_while_the_others_started_again_and_again_catches_up() {
    let (mut group, leader) = Group::with_leader(3);
    let away = other_than(&group, leader);
    group.isolate(away, true);
    for round in 0..8 {
        let leader = group.elect();
        group.publish(leader, &format!("round {round}"));
        group.run();
        group.others(away).into_iter().for_each(|id| group.restart(id));
    }
    group.isolate(away, false);
    group.elect();
    for _ in 0..10 {
        group.tick();
    }
    assert_eq!(group.node(away).replica.shard().engine().batches().count(), 8);
    group.check_same_state();
}

#[test]
fn what_a_leader_has_sealed_and_not_proposed_is_no_entry_once_it_steps_down() {
    let (mut group, old) = Group::with_leader(3);
    group.isolate(old, true);
    for _ in 0..40 {
        group.publish(old, "nobody hears it");
        // As a checkpoint does that begins another segment.
        group.node(old).replica.shard_mut().seal();
        group.tick();
    }
    assert_ne!(group.node(old).replica.role(), Role::Leader);
    let new = group.leader().unwrap();
    for number in 0..3 {
        group.publish(new, &format!("another {number}"));
        group.run();
    }
    group.isolate(old, false);
    for _ in 0..5 {
        group.tick();
    }
    assert_eq!(group.node(old).replica.shard().engine().batches().count(), 3);
    group.check_same_state();
}

#[test]
fn who_waits_at_a_leader_that_is_cut_off_is_told_that_the_outcome_is_unknown() {
    let (mut group, old) = Group::with_leader(3);
    group.subscribe(old);
    group.isolate(old, true);
    group.publish(old, "nobody hears it");
    group.run();
    for _ in 0..25 {
        group.tick();
    }
    assert_eq!(group.node(old).confirms(), 0);
    assert_eq!(group.node(old).refusals(), [&Refusal::OutcomeUnknown]);
    let interrupted = |effect: &&Effect| matches!(effect, Effect::SubscriptionInterrupted { .. });
    assert_eq!(group.node(old).effects.iter().filter(interrupted).count(), 1);
}

#[test]
fn an_entry_that_the_group_did_not_take_poisons_the_state_of_who_has_applied_it() {
    let (mut group, old, new) = with_poisoned_node();
    // It goes on appending and acknowledging: with it the new leader has a quorum.
    let third = group.nodes.keys().copied().find(|id| ![old, new].contains(id)).unwrap();
    group.isolate(third, true);
    let before = group.node(new).confirms();
    group.publish(new, "two are enough");
    group.run();
    assert_eq!(group.node(new).confirms(), before + 1);
    // Its state is made anew from what counts of the lane.
    group.isolate(third, false);
    group.set_rebuilds(true);
    for _ in 0..5 {
        group.tick();
    }
    assert_eq!(group.node(old).rebuilds, 1);
    assert_eq!(
        group.node(old).replica.shard().standing(),
        Standing::Follower { leader: Some(new) }
    );
    group.check_same_state();
}

#[test]
fn records_that_were_never_proposed_are_dropped_with_the_state() {
    let (mut group, old) = Group::with_leader(3);
    group.set_rebuilds(false);
    group.isolate(old, true);
    // It gathers, and no frame is taken: nothing is proposed.
    for _ in 0..9 {
        group.tick();
    }
    group.publish(old, "it gathers");
    for _ in 0..30 {
        for node in group.nodes.values_mut() {
            node.replica.tick(group.now);
        }
    }
    assert_eq!(group.node(old).replica.shard().standing(), Standing::Poisoned);
    group.isolate(old, false);
    for _ in 0..40 {
        group.tick();
    }
    group.restart(old);
    for _ in 0..5 {
        group.tick();
    }
    group.check_same_state();
}

#[test]
fn leadership_that_is_handed_over_loses_nothing() {
    let (mut group, old) = Group::with_leader(3);
    for number in 0..5 {
        group.publish(old, &number.to_string());
    }
    let (to, now) = (other_than(&group, old), group.now);
    group.node(old).replica.transfer(to, now).unwrap();
    assert!(matches!(group.node(old).replica.shard().standing(), Standing::HandingOver { .. }));
    group.publish(old, "too late");
    group.run();
    assert_eq!(group.node(old).confirms(), 5, "what was proposed before is told");
    assert_eq!(group.node(old).refusals(), [&Refusal::NoLeader]);
    assert_eq!(group.leader(), Some(to));
    group.tick();
    group.check_same_state();
}

#[test]
fn a_leader_whose_lane_stands_still_hands_over() {
    let (mut group, old) = Group::with_leader(3);
    group.node(old).writes = false;
    group.publish(old, "one");
    for _ in 0..60 {
        group.tick();
    }
    let new = group.leader().unwrap();
    assert_ne!(new, old);
    group.publish(new, "two");
    group.run();
    assert_eq!(group.node(new).confirms(), 1);
}

#[test]
fn a_node_that_starts_again_catches_up() {
    let (mut group, leader) = Group::with_leader(3);
    let follower = other_than(&group, leader);
    group.isolate(follower, true);
    for number in 0..30 {
        group.publish(leader, &format!("{number} {}", "x".repeat(3000)));
        group.run();
    }
    group.restart(follower);
    group.isolate(follower, false);
    for _ in 0..40 {
        group.tick();
    }
    assert_eq!(group.node(leader).confirms(), 30);
    group.check_same_state();
}

#[test]
fn all_nodes_start_again_and_nothing_that_was_confirmed_is_lost() {
    let (mut group, leader) = Group::with_leader(3);
    for number in 0..20 {
        group.publish(leader, &number.to_string());
        group.run();
    }
    for id in 1..=3 {
        group.restart(id);
    }
    let leader = group.elect();
    group.subscribe(leader);
    group.run();
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(group.node(leader).delivered(), expected);
    group.tick();
    group.tick();
    group.check_same_state();
}

#[test]
fn a_vote_outlives_a_start() {
    let mut group = Group::new(3);
    let leader = group.elect();
    let voters: Vec<u64> = group.nodes.keys().copied().filter(|id| *id != leader).collect();
    let term = group.node(leader).replica.term();
    let votes: Vec<_> = voters
        .iter()
        .map(|id| {
            group.restart(*id);
            let here = group.node(*id).replica.shard().here().unwrap();
            (here.term, here.vote)
        })
        .collect();
    assert!(votes.contains(&(term, leader)), "{votes:?} in term {term}");
}

#[test]
fn a_poisoned_replica_votes_for_another_and_never_leads() {
    let (mut group, poisoned, leader) = with_poisoned_node();
    let third = group.nodes.keys().copied().find(|id| ![poisoned, leader].contains(id)).unwrap();
    let now = group.now;
    group.node(leader).replica.transfer(poisoned, now).unwrap();
    for _ in 0..3 {
        group.tick();
    }
    assert_eq!(
        group.node(poisoned).replica.role(),
        Role::Follower,
        "it is deaf to a handed-over rule"
    );
    group.isolate(leader, true);
    for _ in 0..60 {
        group.tick();
        assert_eq!(group.node(poisoned).replica.role(), Role::Follower);
    }
    assert_eq!(group.leader(), Some(third), "it has noticed that the leader is silent");
    group.publish(third, "two are enough");
    group.run();
    assert_eq!(group.node(third).confirms(), 1);
    group.isolate(third, true);
    for _ in 0..60 {
        group.tick();
        assert_eq!(group.node(poisoned).replica.role(), Role::Follower);
    }
    group.set_rebuilds(true);
    group.isolate(leader, false);
    for _ in 0..60 {
        group.tick();
    }
    assert!(group.leader().is_some(), "made anew, it may lead as any other");
}

#[test]
fn a_leader_whose_lane_stands_still_hands_over_to_one_that_it_hears() {
    for nth in 0..4 {
        let (mut group, old) = Group::with_leader(5);
        group.node(old).writes = false;
        group.publish(old, "one");
        group.run();
        assert_eq!(group.node(old).confirms(), 1);
        let dead = group.others(old)[nth];
        group.isolate(dead, true);
        for _ in 0..24 {
            group.tick();
        }
        let new = group.leader().unwrap();
        assert!(![old, dead].contains(&new), "replica {dead} of replica {old}'s group is dead");
    }
}

//! Changes of members: learners, joint majorities, and those who leave.

use std::collections::BTreeSet;

use sennit_replication::{
    Content, EntryId, Membership, Message, MessageKind, Refusal, Role, Start, Vote, WINDOW_MIN,
};

use crate::world::{GROUP, World};

/// A group of three, and a fourth replica that has what the group began with, as from a shipment.
fn three_and_a_fourth(seed: u64) -> (World, u64) {
    let start = Start::of_new_group(Membership::of(1..=3));
    let starts = (1..=4).map(|number| (number, start.clone()));
    let mut world = World::with_starts(seed, starts);
    let leader = world.elect();
    (world, leader)
}

/// Proposes members and runs until all of them have applied it.
fn change(world: &mut World, leader: u64, to: &Membership) -> u64 {
    world.member(leader).change_members(to).expect("one step");
    world.obey(leader);
    world.run_until("all have applied it", |world| {
        world.replicas.values().all(|replica| {
            let member = replica.member.as_ref().expect("a running member");
            !to.is_member(member.settings().replica) || member.membership() == to
        })
    });
    world.member(leader).last().index
}

#[test]
fn a_learner_comes_to_have_the_log_and_counts_for_nothing() {
    let (mut world, leader) = three_and_a_fourth(70);
    let last = (0..20).map(|_| world.propose(leader).unwrap().index).last().unwrap();
    let mut to = Membership::of(1..=3);
    to.learners.insert(4);
    change(&mut world, leader, &to);
    world.settle(last);
    let label = world.member(4).label(last).cloned();
    assert_eq!(label.as_ref(), world.checkers.committed.get(&last));
    // The leader and the learner are no majority of three voters.
    for voter in (1..=3).filter(|voter| *voter != leader) {
        world.isolate(voter);
    }
    let entry = world.propose(leader).unwrap();
    world.run_ms(300);
    assert_eq!(world.replicas[&4].lane.last(), entry, "the learner has it");
    assert!(!world.checkers.committed.contains_key(&entry.index));
    world.run_ms(3_000);
    assert_eq!(world.member(4).leadership().role, Role::Follower, "and never asks for votes");
}

#[test]
fn a_voter_is_replaced_through_a_joint_membership() {
    let (mut world, leader) = three_and_a_fourth(71);
    let leaves = if leader == 3 { 2 } else { 3 };
    let mut learning = Membership::of(1..=3);
    learning.learners.insert(4);
    change(&mut world, leader, &learning);
    let after = Membership::of((1..=4).filter(|number| *number != leaves));
    let joint = Membership { outgoing: (1..=3).collect(), ..after.clone() };
    let skipped = world.member(leader).change_members(&after);
    assert_eq!(skipped, Err(Refusal::NotOneStep), "two replicas at once");
    change(&mut world, leader, &joint);
    change(&mut world, leader, &after);
    let entry = world.propose(leader).unwrap();
    world.isolate(leaves);
    world.settle(entry.index);
    assert_eq!(world.member(4).membership(), &after);
    let memberships: Vec<_> = world.replicas[&4]
        .orders
        .iter()
        .flat_map(|orders| &orders.memberships)
        .map(|change| change.membership.clone())
        .collect();
    assert_eq!(memberships, [learning, joint, after]);
}

#[test]
fn in_a_joint_membership_both_majorities_count() {
    let (mut world, leader) = three_and_a_fourth(72);
    let after = Membership::of([leader, 4]);
    let joint = Membership { outgoing: (1..=3).collect(), ..after };
    let mut learning = Membership::of(1..=3);
    learning.learners.insert(4);
    change(&mut world, leader, &learning);
    change(&mut world, leader, &joint);
    for voter in (1..=3).filter(|voter| *voter != leader) {
        world.isolate(voter);
    }
    let entry = world.propose(leader).unwrap();
    world.run_ms(300);
    assert_eq!(world.replicas[&4].lane.last(), entry);
    assert!(!world.checkers.committed.contains_key(&entry.index), "the old majority is missing");
    world.isolated.clear();
    world.settle(entry.index);
}

#[test]
fn one_change_at_a_time() {
    let (mut world, leader) = three_and_a_fourth(73);
    let mut to = Membership::of(1..=3);
    to.learners.insert(4);
    world.member(leader).change_members(&to).unwrap();
    let second = world.member(leader).change_members(&Membership::of(1..=4));
    assert_eq!(second, Err(Refusal::ChangeUnderWay));
}

#[test]
fn a_leader_does_not_propose_that_it_leaves() {
    let mut world = World::new(74, 3);
    let leader = world.elect();
    world.run_ms(50);
    let others = Membership::of((1..=3).filter(|number| *number != leader));
    assert_eq!(world.member(leader).change_members(&others), Err(Refusal::NotOneStep));
}

#[test]
fn a_restart_begins_with_the_members_of_its_commit() {
    let (mut world, leader) = three_and_a_fourth(75);
    let mut to = Membership::of(1..=3);
    to.learners.insert(4);
    change(&mut world, leader, &to);
    let entry = world.propose(leader).unwrap();
    world.settle(entry.index);
    for number in world.numbers() {
        world.crash(number);
        world.start(number);
    }
    let leader = world.elect();
    let entry = world.propose(leader).unwrap();
    world.settle(entry.index);
    for number in world.numbers() {
        assert_eq!(world.member(number).membership(), &to, "replica {number}");
    }
}

#[test]
fn a_replica_with_nothing_is_named_as_behind_and_harms_nobody() {
    let members = Membership::of(1..=3);
    let start = Start::of_new_group(members);
    let nothing = Start {
        vote: Vote::default(),
        commit: 0,
        membership: Membership::default(),
        before: EntryId::default(),
        labels: Vec::new(),
    };
    let starts = [(4, nothing), (1, start.clone()), (2, start.clone()), (3, start)];
    let mut world = World::with_starts(76, starts);
    let leader = world.elect();
    let mut to = Membership::of(1..=3);
    to.learners.insert(4);
    world.member(leader).change_members(&to).unwrap();
    world.obey(leader);
    world.run_until("it is named", |world| {
        world.replica(leader).orders.iter().any(|orders| orders.behind == [4])
    });
    assert_eq!(world.member(4).last(), EntryId::default());
    world.run_ms(3_000);
    assert_eq!(world.leader(), Some(leader));
}

#[test]
fn a_leader_that_finishes_its_own_removal_steps_down() {
    let mut world = World::new(77, 3);
    let leader = world.elect();
    if leader != 1 {
        world.member(leader).transfer(1).unwrap();
        world.obey(leader);
        world.run_until("replica 1 leads", |world| world.leader() == Some(1));
    }
    // The change comes to replica 2 alone, which it removes.
    world.loses = |message| {
        let MessageKind::Append { label: Some(label), .. } = &message.kind else {
            return false;
        };
        message.to == 3 && matches!(label.content, Content::Membership(_))
    };
    world.replica(1).lane.stalled = true;
    let to = Membership::of([1, 3]);
    world.member(1).change_members(&to).unwrap();
    world.obey(1);
    let change = world.member(1).last();
    world.run_until("replica 2 has it", |world| world.replicas[&2].lane.last() == change);
    world.crash(1);
    world.run_until("replica 2 leads", |world| world.member(2).leadership().role == Role::Leader);
    world.loses = |_| false;
    world.run_until("it has applied its removal", |world| world.member(2).membership() == &to);
    assert_eq!(world.member(2).leadership().role, Role::Follower);
    world.replica(1).lane.stalled = false;
    world.start(1);
    world.run_until("another leads", |world| matches!(world.leader(), Some(1 | 3)));
}

#[test]
fn after_a_change_no_two_voters_wait_for_the_same_number_of_ticks() {
    let start = Start::of_new_group(Membership::of(1..=3));
    let mut world = World::with_starts(78, (1..=5).map(|number| (number, start.clone())));
    let leader = world.elect();
    let after = Membership::of(1..=5);
    change(&mut world, leader, &Membership { outgoing: (1..=3).collect(), ..after.clone() });
    change(&mut world, leader, &after);
    let term = world.member(leader).leadership().term;
    let followers = (1..=5).filter(|number| *number != leader);
    let ticks: BTreeSet<_> = followers
        .map(|number| {
            let kind = MessageKind::Heartbeat { commit: 1, round: None };
            let heartbeat = Message { group: GROUP, from: leader, to: number, term, kind };
            let member = world.member(number);
            member.hear(&heartbeat).unwrap();
            let ticked = (1..).find(|_: &u32| {
                member.tick();
                member.leadership().role == Role::Candidate
            });
            ticked.unwrap()
        })
        .collect();
    assert_eq!(ticks.len(), 4, "{ticks:?}");
}

#[test]
fn a_window_bounds_the_entries_under_way_to_each_follower() {
    let (mut world, leader) = three_and_a_fourth(79);
    world.member(leader).set_window(0);
    let mut to = Membership::of(1..=3);
    to.learners.insert(4);
    change(&mut world, leader, &to);
    world.run_ms(100);
    // Nobody acknowledges anything, and so no room is made; answers to heartbeats would make some.
    world.loses = |message| {
        matches!(message.kind, MessageKind::Appended { .. } | MessageKind::HeartbeatHeard { .. })
    };
    world.replica(leader).orders.clear();
    for _ in 0..20 {
        world.propose(leader).unwrap();
    }
    world.run_ms(300);
    for follower in (1..=4).filter(|number| *number != leader) {
        let messages = world.replicas[&leader].orders.iter().flat_map(|orders| &orders.messages);
        let appends = messages.filter(|message| {
            let entry = matches!(message.kind, MessageKind::Append { label: Some(_), .. });
            entry && message.to == follower
        });
        assert_eq!(appends.count(), WINDOW_MIN, "to replica {follower}");
    }
}

//! What is in the logs: replication, conflicts, restarts, laggards.

use sennit_replication::{
    Body, Content, EntryId, GROUP_BEGINS, Label, Membership, MessageKind, Refusal, Role, Start,
    Vote,
};

use crate::world::{Replica, World};

#[test]
fn all_replicas_come_to_have_what_the_leader_proposes() {
    for (seed, count) in [(40, 3), (41, 5)] {
        let mut world = World::new(seed, count);
        let leader = world.elect();
        let mut last = 0;
        for _ in 0..100 {
            last = world.propose(leader).unwrap().index;
            world.run_ms(1);
        }
        world.settle(last);
        for number in world.numbers() {
            let labels = (2..=last).map(|index| world.member(number).label(index).cloned());
            let labels: Vec<_> = labels.collect();
            assert!(labels.iter().flatten().eq(world.checkers.committed.values()));
        }
        let contents = world.checkers.committed.values().map(|label| &label.content);
        let records = contents.filter(|content| matches!(content, Content::Records(_)));
        assert_eq!(records.count(), 100);
    }
}

#[test]
fn two_followers_commit_while_the_leaders_lane_stands_still() {
    let mut world = World::new(42, 3);
    let leader = world.elect();
    world.replica(leader).lane.stalled = true;
    let synced = world.replica(leader).lane.last();
    let entry = world.propose(leader).unwrap();
    world.run_until("the leader knows it to be committed", |world| {
        world.checkers.committed.contains_key(&entry.index)
    });
    assert_eq!(world.replica(leader).lane.last(), synced);
    assert_eq!(world.member(leader).leadership().role, Role::Leader);
}

#[test]
fn a_follower_whose_lane_stands_still_acknowledges_nothing_and_keeps_its_leader() {
    let mut world = World::new(43, 3);
    let leader = world.elect();
    let followers: Vec<_> = world.numbers().into_iter().filter(|one| *one != leader).collect();
    for follower in &followers {
        world.replica(*follower).lane.stalled = true;
    }
    let entry = world.propose(leader).unwrap();
    world.run_ms(3_000);
    assert!(!world.checkers.committed.contains_key(&entry.index));
    assert_eq!(world.leader(), Some(leader), "answers to heartbeats wait for no sync");
    world.replica(followers[0]).lane.stalled = false;
    world.run_until("it is committed", |world| world.checkers.committed.contains_key(&entry.index));
}

#[test]
fn a_frame_is_taken_only_by_an_established_leader_and_only_as_the_next_entry() {
    let mut world = World::new(44, 3);
    let leader = world.elect();
    let follower = if leader == 1 { 2 } else { 1 };
    world.run_ms(200);
    assert_eq!(
        world.member(follower).next_entry(),
        Err(Refusal::NotLeader { leader: Some(leader) })
    );
    let next = world.member(leader).next_entry().unwrap();
    let label = |id| Label { id, content: Content::Records(Body::default()) };
    let found = EntryId { index: next.index + 1, ..next };
    let refused = world.member(leader).propose(&label(found));
    assert_eq!(refused, Err(Refusal::NotNext { next, found }));
    let began = Label { id: next, content: Content::TermBegan };
    assert_eq!(world.member(leader).propose(&began), Err(Refusal::NotRecords));
    assert_eq!(world.member(leader).propose(&label(next)), Ok(()));
}

#[test]
fn a_group_that_was_off_as_a_whole_has_all_that_was_committed() {
    let mut world = World::new(45, 3);
    let leader = world.elect();
    let last = (0..50).map(|_| world.propose(leader).unwrap().index).last().unwrap();
    world.settle(last);
    for number in world.numbers() {
        world.crash(number);
    }
    for number in world.numbers() {
        world.start(number);
    }
    let leader = world.elect();
    let label = world.member(leader).label(last).cloned();
    assert_eq!(label.as_ref(), world.checkers.committed.get(&last));
    world.settle(last + 1);
}

/// Five replicas in the state (c) of figure 8 of the Raft paper, but for the fourth term's entry: the entry of term 2 is
/// on three replicas, the last one has one of term 3 at the same index.
fn figure_8() -> Vec<(u64, Start)> {
    let members = Membership::of(1..=5);
    let label = |term| Label {
        id: EntryId { term, index: 2 },
        content: Content::Records(Body { length: 10, checksum: term as u32, records: 1 }),
    };
    let log = |term: Option<u64>| Start {
        labels: term.map(label).into_iter().collect(),
        vote: Vote { term: 3, vote: None },
        ..Start::of_new_group(members.clone())
    };
    let logs = [Some(2), Some(2), Some(2), None, Some(3)];
    logs.into_iter().zip(1..).map(|(term, number)| (number, log(term))).collect()
}

#[test]
fn an_entry_of_an_older_term_is_not_committed_by_counting_replicas() {
    let mut world = World::with_starts(46, figure_8());
    world.isolate(5);
    // Of the first replica's own term nothing arrives: its first entry.
    world.loses = |message| matches!(&message.kind, MessageKind::Append { label: Some(label), .. } if label.id.index > 2);
    world.run_until("a replica with the entry leads", |world| {
        (1..=3).any(|number| world.member(number).leadership().role == Role::Leader)
    });
    world.run_ms(400);
    let leader = (1..=3).find(|number| world.member(*number).leadership().role == Role::Leader);
    let leader = leader.expect("it still leads");
    let of_term_2 =
        |one: &&Replica| one.lane.synced_label(2).is_some_and(|label| label.id.term == 2);
    assert_eq!(world.replicas.values().filter(of_term_2).count(), 3);
    assert_eq!(world.member(leader).orders(0).committed, GROUP_BEGINS.index);
    // Of those that are left only the one with the newer entry can win. It cuts the others' logs.
    world.isolate(leader);
    world.isolate(1 + leader % 3);
    world.isolated.remove(&5);
    world.loses = |_| false;
    world.run_until("the fifth leads", |world| world.leader() == Some(5));
    world.settle(3);
    world.isolated.clear();
    world.settle(3);
    assert_eq!(world.checkers.committed[&2].id.term, 3);
    let cuts = world.replicas.values().flat_map(|replica| &replica.orders);
    let cuts: Vec<_> = cuts.filter_map(|orders| orders.cut_from).collect();
    assert_eq!(cuts, [2, 2, 2], "three replicas had another entry");
}

#[test]
fn an_entry_of_a_lower_term_may_replace_one_of_a_higher() {
    let mut world = World::with_starts(47, figure_8());
    world.isolate(5);
    let leader = world.elect();
    assert!(world.checkers.committed[&2].id.term == 2, "with an entry of its own behind it");
    world.isolated.clear();
    let last = world.propose(leader).unwrap().index;
    world.settle(last);
    let orders = &world.replicas[&5].orders;
    assert!(orders.iter().any(|orders| orders.cut_from == Some(2)));
    assert_eq!(world.replicas[&5].lane.synced_label(2).map(|label| label.id.term), Some(2));
}

#[test]
fn a_replica_that_needs_what_the_log_no_longer_has_is_named() {
    let mut world = World::new(48, 3);
    let leader = world.elect();
    let laggard = if leader == 3 { 1 } else { 3 };
    world.isolate(laggard);
    let last = (0..20).map(|_| world.propose(leader).unwrap().index).last().unwrap();
    world.settle(last);
    let decided = last - 1;
    world.member(leader).log_begins(decided);
    assert_eq!(world.member(leader).first_index(), decided);
    assert_eq!(world.member(leader).label(decided - 1), None);
    world.replica(leader).orders.clear();
    world.isolated.clear();
    world.run_until("it is named", |world| {
        world.replica(leader).orders.iter().any(|orders| orders.behind == [laggard])
    });
    assert_eq!(world.leader(), Some(leader));
}

#[test]
fn a_log_that_was_shortened_still_serves_those_who_are_near() {
    let mut world = World::new(49, 3);
    let leader = world.elect();
    let last = (0..20).map(|_| world.propose(leader).unwrap().index).last().unwrap();
    world.settle(last);
    world.run_ms(200);
    for number in world.numbers() {
        world.member(number).log_begins(last + 1);
    }
    let next = world.propose(leader).unwrap();
    world.settle(next.index);
}

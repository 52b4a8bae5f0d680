//! Who leads, and when.

use std::collections::BTreeSet;

use sennit_replication::{
    ELECTION_TICKS, LEASE_NS, Membership, Message, MessageKind, Role, Settings, Start, TICK_MS,
};

use crate::world::{GROUP, World};

#[test]
fn a_new_group_has_a_leader_within_a_second() {
    for (seed, count) in [(1, 3), (2, 3), (3, 5), (4, 5)] {
        let mut world = World::new(seed, count);
        let leader = world.elect();
        assert!(world.now_ns <= 1_000_000_000, "{} ns, seed {seed}", world.now_ns);
        world.run_ms(300);
        let term = world.member(leader).leadership().term;
        for number in world.numbers() {
            let leadership = world.member(number).leadership();
            assert_eq!((leadership.leader, leadership.term), (Some(leader), term));
            assert_eq!(leadership.role == Role::Leader, number == leader);
        }
    }
}

#[test]
fn a_sole_voter_leads_at_once_and_holds_the_lease() {
    let mut world = World::new(5, 1);
    assert_eq!(world.member(1).leadership().role, Role::Leader);
    assert_eq!(world.member(1).lease_until_ns(), None, "nothing is committed yet");
    world.obey(1);
    world.settle(2);
    assert_eq!(world.member(1).lease_until_ns(), Some(u64::MAX));
    let entry = world.propose(1).unwrap();
    world.settle(entry.index);
    world.crash(1);
    world.start(1);
    world.obey(1);
    assert_eq!(world.member(1).leadership().role, Role::Leader, "after a restart too");
}

#[test]
fn when_a_leader_ends_another_follows_within_two_seconds() {
    for seed in 10..30 {
        let mut world = World::new(seed, 3);
        let first = world.elect();
        let entry = world.propose(first).unwrap();
        world.settle(entry.index);
        world.crash(first);
        let ended_ns = world.now_ns;
        let second = world.elect();
        let gap_ns = world.now_ns - ended_ns;
        assert_ne!(first, second);
        assert!((LEASE_NS..2_000_000_000).contains(&gap_ns), "{gap_ns} ns, seed {seed}");
        world.propose(second).unwrap();
    }
}

#[test]
fn a_leader_that_is_cut_off_steps_down_and_the_others_go_on() {
    let mut world = World::new(31, 3);
    let first = world.elect();
    world.isolate(first);
    world.run_until("it steps down", |world| world.member(first).leadership().role != Role::Leader);
    let second = world.elect();
    assert_ne!(first, second);
    let term = world.member(second).leadership().term;
    world.run_ms(3_000);
    assert_eq!(world.member(first).leadership().term, term - 1, "it asks, and its term stays");
    world.isolated.clear();
    let entry = world.propose(second).unwrap();
    world.settle(entry.index);
    assert_eq!(world.member(first).leadership().leader, Some(second));
    assert_eq!(world.member(second).leadership().term, term, "its return disturbs nobody");
}

#[test]
fn a_replica_gives_no_vote_in_the_first_ten_ticks_after_a_start() {
    let mut world = World::new(32, 3);
    let settings = Settings { group: GROUP, replica: 1 };
    let asks = |handed_over| Message {
        group: GROUP,
        from: 2,
        to: 1,
        term: 9,
        kind: MessageKind::RequestVote {
            pre_vote: false,
            handed_over,
            last: sennit_replication::EntryId { term: 8, index: 20 },
            commit: sennit_replication::EntryId::default(),
        },
    };
    let start = Start::of_new_group(Membership::of(1..=3));
    for ticks in [0, ELECTION_TICKS - 1, ELECTION_TICKS] {
        let mut member = sennit_replication::Member::new(settings, start.clone()).unwrap();
        (0..ticks).for_each(|_| member.tick());
        member.hear(&asks(false)).unwrap();
        let term = member.orders(0).leadership.term;
        assert_eq!(term == 9, ticks == ELECTION_TICKS, "after {ticks} ticks");
    }
    // The leader has given its lease up for whom it hands over to.
    world.member(1).hear(&asks(true)).unwrap();
    world.obey(1);
    assert_eq!(world.member(1).leadership().term, 9);
}

#[test]
fn no_two_voters_wait_for_the_same_number_of_ticks() {
    for count in [3, 5, 7] {
        let members = Membership::of(1..=count);
        for term in 1..50 {
            let ticks: BTreeSet<_> = (1..=count)
                .map(|replica| {
                    let settings = Settings { group: GROUP, replica };
                    let mut start = Start::of_new_group(members.clone());
                    start.vote.term = term;
                    let mut member = sennit_replication::Member::new(settings, start).unwrap();
                    let ticked = (1..).find(|_| {
                        member.tick();
                        member.leadership().role == Role::Candidate
                    });
                    ticked.unwrap()
                })
                .collect();
            assert_eq!(ticks.len() as u64, count, "term {term}: {ticks:?}");
            assert!(ticks.iter().all(|ticks| (10..20).contains(ticks)), "term {term}: {ticks:?}");
        }
    }
}

#[test]
fn leadership_is_handed_over_within_some_round_trips() {
    let mut world = World::new(33, 3);
    let first = world.elect();
    let heir = if first == 2 { 3 } else { 2 };
    let entry = world.propose(first).unwrap();
    world.member(first).transfer(heir).unwrap();
    world.obey(first);
    assert!(world.propose(first).is_err(), "nothing is taken while it is handed over");
    let began_ns = world.now_ns;
    world.run_until("the heir leads", |world| world.leader() == Some(heir));
    assert!(world.now_ns - began_ns < 2 * TICK_MS * 1_000_000, "no timeout has passed");
    assert!(world.checkers.committed.contains_key(&entry.index), "and nothing is lost");
    assert!(world.member(first).next_entry().is_err());
}

#[test]
fn the_heir_is_told_only_once_the_leader_knows_that_all_is_committed() {
    let mut world = World::new(36, 3);
    let first = world.elect();
    let heir = if first == 2 { 3 } else { 2 };
    let third = world.numbers().into_iter().find(|one| ![first, heir].contains(one)).unwrap();
    world.run_ms(100);
    // The heir alone has it: that is no quorum before the leader's lane has it too.
    world.isolate(third);
    world.replica(first).lane.stalled = true;
    let entry = world.propose(first).unwrap();
    world.member(first).transfer(heir).unwrap();
    world.obey(first);
    world.run_until("the heir has it", |world| world.replicas[&heir].lane.last() == entry);
    world.run_ms(200);
    assert_eq!(world.leader(), Some(first));
    world.replica(first).lane.stalled = false;
    world.run_until("it is told", |world| world.member(heir).leadership().role == Role::Leader);
    assert_eq!(world.member(first).uncommitted(), 0, "whoever waits there is told");
}

#[test]
fn a_leader_leads_on_if_the_heir_is_not_up_to_date_in_time() {
    let mut world = World::new(34, 3);
    let first = world.elect();
    let heir = if first == 2 { 3 } else { 2 };
    world.isolate(heir);
    let entry = world.propose(first).unwrap();
    world.run_ms(100);
    world.member(first).transfer(heir).unwrap();
    world.obey(first);
    world.run_ms(400);
    assert_eq!(world.member(first).lease_until_ns(), None);
    world.run_ms(200);
    let leadership = world.member(first).leadership();
    assert_eq!((leadership.role, leadership.established), (Role::Leader, true));
    assert!(world.member(first).lease_until_ns().is_some());
    let next = world.propose(first).unwrap();
    assert_eq!(next.index, entry.index + 1);
}

#[test]
fn a_leader_steps_down_if_the_heir_was_told_to_take_over_and_does_not() {
    let mut world = World::new(35, 3);
    let first = world.elect();
    let heir = if first == 2 { 3 } else { 2 };
    world.run_ms(200);
    world.loses = |message| message.kind == MessageKind::TakeOver;
    world.member(first).transfer(heir).unwrap();
    world.obey(first);
    world.run_ms(400);
    assert_eq!(world.member(first).leadership().role, Role::Leader);
    assert_eq!(world.member(first).lease_until_ns(), None);
    world.run_ms(200);
    assert_ne!(world.member(first).leadership().role, Role::Leader);
    let leader = world.elect();
    world.propose(leader).unwrap();
}

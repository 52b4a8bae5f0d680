//! The leader's lease and its rounds.

use sennit_replication::{LEASE_NS, ROUNDS_MAX, Refusal, Role, TICK_MS};

use crate::world::World;

#[test]
fn the_lease_counts_from_when_something_left_that_a_quorum_acknowledged() {
    let mut world = World::new(60, 3);
    let leader = world.elect();
    world.run_ms(100);
    let left_ns = world.now_ns;
    let entry = world.propose(leader).unwrap();
    world.run_until("it is committed", |world| world.checkers.committed.contains_key(&entry.index));
    assert!(world.now_ns > left_ns);
    assert_eq!(world.member(leader).lease_until_ns(), Some(left_ns + LEASE_NS));
    assert_eq!(LEASE_NS, 364_500_000);
    // Nine ticks of a clock at 1.1 are over later than the lease by a clock at 0.9.
    let (slow, fast) = (LEASE_NS * 10 / 9, 9 * TICK_MS * 1_000_000 * 10 / 11);
    assert!(slow < fast, "{slow} {fast}");
}

#[test]
fn a_round_that_a_quorum_answers_prolongs_the_lease() {
    let mut world = World::new(61, 3);
    let leader = world.elect();
    world.run_ms(1_000);
    let left_ns = world.now_ns;
    let round = world.member(leader).confirm_leadership().unwrap();
    world.obey(leader);
    world.run_until("it is confirmed", |world| {
        let orders = world.replica(leader).orders.iter();
        orders.flat_map(|orders| &orders.confirmed).any(|confirmed| confirmed.round == round)
    });
    assert_eq!(world.member(leader).lease_until_ns(), Some(left_ns + LEASE_NS));
}

#[test]
fn a_leader_that_hears_nobody_has_no_lease_longer_than_it_may() {
    let mut world = World::new(62, 3);
    let leader = world.elect();
    world.run_ms(100);
    world.isolate(leader);
    let since_ns = world.now_ns;
    let mut refused = None;
    for _ in 0..100 {
        if let Err(refusal) = world.member(leader).confirm_leadership() {
            refused = Some(refusal);
            break;
        }
    }
    world.obey(leader);
    assert_eq!(refused, Some(Refusal::TooManyRounds), "after {ROUNDS_MAX}");
    world.run_until("it steps down", |world| {
        let until_ns = world.member(leader).lease_until_ns();
        assert!(until_ns.is_none_or(|until_ns| until_ns <= since_ns + LEASE_NS));
        world.member(leader).leadership().role != Role::Leader
    });
    assert_eq!(world.member(leader).lease_until_ns(), None);
}

#[test]
fn a_transfer_ends_the_lease_before_anything_else() {
    let mut world = World::new(63, 3);
    let leader = world.elect();
    let heir = if leader == 1 { 2 } else { 1 };
    assert!(world.member(leader).lease_until_ns().is_some());
    world.member(leader).transfer(heir).unwrap();
    assert_eq!(world.member(leader).lease_until_ns(), None);
}

#[test]
fn a_new_leader_has_no_lease_before_its_first_entry_is_committed() {
    let mut world = World::new(64, 3);
    for number in world.numbers() {
        world.run_until("somebody leads", |world| {
            let members = world.replicas.values().map(|one| one.member.as_ref().unwrap());
            members.into_iter().any(|member| member.leadership().role == Role::Leader)
        });
        let leadership = world.member(number).leadership();
        if leadership.role == Role::Leader {
            assert!(!leadership.established);
            assert_eq!(world.member(number).lease_until_ns(), None);
        }
    }
}

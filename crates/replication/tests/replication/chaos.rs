//! Groups to which everything happens that may: the checkers look on, and in the end all must have come together.

use std::collections::BTreeSet;

use sennit_replication::Content;

use crate::seed::Seed;
use crate::world::World;

/// Whether the members of a group change too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Members {
    Stay,
    Change,
}

/// Runs a group through a time of faults, then heals it.
fn run(mut world: World, members: Members) -> World {
    let count = world.numbers().len() as u64;
    let seed = world.seed.0;
    let mut fate = Seed(seed ^ 0xfa7e);
    world.delay_ms_max = 1 + fate.below(40);
    for _ in 0..60 {
        let number = 1 + fate.below(count);
        match fate.below(12) {
            0..=2 if members == Members::Change && fate.once_in(2) => {
                change_members(&mut world, &mut fate);
            }
            0 if world.replica(number).member.is_some() => world.crash(number),
            1 | 2 if world.replica(number).member.is_none() => world.start(number),
            3 => world.isolate(number),
            4 | 5 => world.isolated.clear(),
            6 => world.replica(number).lane.stalled = fate.once_in(2),
            7 => {
                if let Some(leader) = world.leader() {
                    // Refused if it is the leader itself.
                    let _ = world.member(leader).transfer(number);
                    world.obey(leader);
                }
            }
            8 => {
                if let Some(leader) = world.leader() {
                    // Refused if too many wait.
                    let _ = world.member(leader).confirm_leadership();
                }
            }
            _ => {
                for number in world.numbers() {
                    let running = world.replica(number).member.is_some();
                    for _ in 0..fate.below(5) * u64::from(running) {
                        // Refused if it does not lead.
                        let _ = world.propose(number);
                    }
                }
            }
        }
        let ms_max = if fate.once_in(4) { 1_500 } else { 60 };
        let ms = fate.below(ms_max);
        for _ in 0..ms {
            world.step();
            one_lease(&mut world);
        }
    }
    world.isolated.clear();
    for number in world.numbers() {
        world.replica(number).lane.stalled = false;
        if world.replica(number).member.is_none() {
            world.start(number);
        }
    }
    world.run_ms(3_000);
    let leader = world.elect();
    let last = world.propose(leader).expect("an established leader").index;
    if members == Members::Change {
        let members = world.member(leader).membership().clone();
        let outside = world.numbers().into_iter().filter(|number| !members.is_member(*number));
        let outside: BTreeSet<_> = outside.collect();
        world.isolated = outside;
    }
    world.settle(last);
    world
}

/// The next step to other members: out of a joint membership; or into one, of at least two voters with the leader; or a
/// learner more or less.
fn change_members(world: &mut World, fate: &mut Seed) {
    let Some(leader) = world.leader() else {
        return;
    };
    let mut to = world.member(leader).membership().clone();
    let other = 1 + (leader + fate.below(4)) % 5;
    if to.is_joint() {
        to.learners.append(&mut to.next_learners);
        to.outgoing.clear();
    } else if to.learners.remove(&other) || !to.voters.contains(&other) {
        to.learners.insert(other);
    } else {
        let mut voters: BTreeSet<_> = (1..=5).filter(|_| fate.once_in(2)).collect();
        voters.extend([leader, other]);
        to.learners.retain(|learner| !voters.contains(learner));
        let leaves = to.voters.iter().find(|voter| !voters.contains(voter));
        to.next_learners = leaves.into_iter().copied().collect();
        to.outgoing = std::mem::replace(&mut to.voters, voters);
    }
    // Refused while another change is under way.
    let _ = world.member(leader).change_members(&to);
    world.obey(leader);
}

/// At most one replica may give at a time.
fn one_lease(world: &mut World) {
    let now_ns = world.now_ns;
    let members = world.replicas.values().filter_map(|replica| replica.member.as_ref());
    let giving =
        members.filter(|member| member.lease_until_ns().is_some_and(|until_ns| now_ns < until_ns));
    let giving: Vec<_> = giving.map(sennit_replication::Member::leadership).collect();
    assert!(giving.len() <= 1, "{giving:?} at {now_ns} ns");
}

#[test]
fn what_is_committed_stays_and_all_come_together() {
    let seeds: u64 = std::env::var("SEEDS").map_or(60, |seeds| seeds.parse().expect("a number"));
    let mut decided = 0;
    for seed in 1_000..1_000 + seeds {
        let count = if seed % 3 == 0 { 5 } else { 3 };
        println!("seed {seed}, {count} replicas");
        decided += run(World::new(seed, count), Members::Stay).checkers.committed.len() as u64;
    }
    assert!(decided > 20 * seeds, "the runs decide something: {decided} entries");
}

#[test]
fn it_stays_and_they_do_while_the_members_change() {
    let seeds: u64 = std::env::var("SEEDS").map_or(20, |seeds| seeds.parse().expect("a number"));
    let mut changes = 0;
    for seed in 3_000..3_000 + seeds {
        println!("seed {seed}");
        let mut world = World::new(seed, 5);
        world.quorum = 2;
        let world = run(world, Members::Change);
        let contents = world.checkers.committed.values().map(|label| &label.content);
        changes +=
            contents.filter(|content| matches!(content, Content::Membership(_))).count() as u64;
    }
    assert!(changes > 2 * seeds, "the members change: {changes} times");
}

#[test]
fn the_same_seed_has_the_same_run() {
    let trace = |seed| {
        let mut world = World::new(seed, 3);
        world.trace = Some(Vec::new());
        run(world, Members::Stay).trace
    };
    for seed in [2_000, 2_001] {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
    assert_ne!(trace(2_000), trace(2_001));
}

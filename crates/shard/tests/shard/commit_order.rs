//! Commits come before the own lane has written, or after it: what a leader says, and in which order, depends on commits
//! alone, and what it reads and frees on both.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use sennit_engine::Effect;
use sennit_journal::Position;
use sennit_model::{Offset, PartitionId};
use sennit_shard::Standing;

use crate::member::{DURABLE, EARLY, LEADER, Member, SEGMENT_BYTES};

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish(PartitionId, u32),
    Ack,
    Checkpoint,
    Take,
    Commit(usize),
    Write(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (prop_oneof![Just(DURABLE), Just(EARLY)], 1..8_u32)
            .prop_map(|(partition, count)| Step::Publish(partition, count)),
        2 => Just(Step::Ack),
        1 => Just(Step::Checkpoint),
        3 => Just(Step::Take),
        2 => (1..4_usize).prop_map(Step::Commit),
        2 => (1..4_usize).prop_map(Step::Write),
    ]
}

/// Each batch that was ever published: where it lies, and the end of what was appended when it was acked.
#[derive(Default)]
struct Batches {
    known: BTreeMap<(PartitionId, Offset), (Position, Option<Position>)>,
}

impl Batches {
    fn note(&mut self, member: &Member) {
        let (shard, mut gone) = (&member.parts.shard, self.known.clone());
        for kept in shard.engine().batches() {
            let batch = (kept.partition, kept.first);
            gone.remove(&batch);
            self.known.entry(batch).or_insert((Position(kept.place.position), None));
        }
        for batch in gone.keys() {
            self.known.get_mut(batch).unwrap().1.get_or_insert(shard.end());
        }
    }

    /// No released segment holds a batch that is not acked, or whose ack a crash or another leader may take back.
    fn check(&self, released: &[u64], secured: Position) {
        let in_released = |position: &Position| released.contains(&position.segment(SEGMENT_BYTES));
        for (batch, (_, acked)) in self.known.iter().filter(|(_, (at, _))| in_released(at)) {
            assert!(acked.is_some_and(|acked| acked <= secured), "{batch:?} is freed too early");
        }
    }
}

/// What a member says to such steps, and the number of segments that came free.
fn run(standing: Standing, cache_bytes: usize, steps: &[Step]) -> (Vec<Effect>, usize) {
    run_on(Member::with_queues(standing, cache_bytes), steps)
}

fn run_on(mut member: Member, steps: &[Step]) -> (Vec<Effect>, usize) {
    let (mut batches, mut freed) = (Batches::default(), 0);
    for &step in steps {
        match step {
            Step::Publish(partition, count) => _ = member.publish(partition, count),
            Step::Ack => member.ack(),
            Step::Checkpoint => member.parts.shard.checkpoint_soon(),
            Step::Take => member.take(),
            Step::Commit(count) => member.commit(count),
            Step::Write(count) => member.write(count),
        }
        batches.note(&member);
        let released = member.released();
        freed += released.len();
        batches.check(&released, member.end_of(member.written.min(member.committed)));
    }
    member.finish();
    freed += member.released().len();
    (member.effects, freed)
}

/// The deliveries of each partition in order, and the other effects in order.
fn by_partition(effects: Vec<Effect>) -> (BTreeMap<PartitionId, Vec<Effect>>, Vec<Effect>) {
    let (mut delivered, mut others) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for effect in effects {
        match &effect {
            Effect::Deliver(delivery) => delivered.entry(delivery.partition).or_default(),
            _ => &mut others,
        }
        .push(effect);
    }
    (delivered, others)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn whenever_the_lane_writes_a_leader_says_what_a_shard_alone_says(steps in vec(step(), 1..80)) {
        // A segment is too long for a checkpoint, whose pieces would be something else to wait for.
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Checkpoint)).collect();
        let (alone, _) = run_on(Member::with_segments(Standing::Alone, 64 << 20, 1 << 20), &steps);
        let (leader, _) = run_on(Member::with_segments(LEADER, 64 << 20, 1 << 20), &steps);
        prop_assert_eq!(alone, leader);
    }

    #[test]
    fn without_room_for_frames_each_partition_still_gets_the_same(steps in vec(step(), 1..80)) {
        let (alone, _) = run(Standing::Alone, 0, &steps);
        let (leader, _) = run(LEADER, 0, &steps);
        prop_assert_eq!(by_partition(alone), by_partition(leader));
    }
}

#[test]
fn segments_come_free_in_a_group_too() {
    let turn = [Step::Publish(DURABLE, 7), Step::Take, Step::Commit(9), Step::Write(9), Step::Ack];
    let steps: Vec<_> = (0..60).flat_map(|_| turn).collect();
    let (_, of_leader) = run(LEADER, 0, &steps);
    let (_, of_alone) = run(Standing::Alone, 0, &steps);
    assert!(of_leader >= 5, "{of_leader}");
    assert_eq!(of_leader, of_alone);
}

//! A poisoned state is made anew beside the log: then it is the state that the group has decided, and the one that a
//! start would make.

use std::{collections::BTreeSet, ops::Range};

use proptest::{collection::vec, prelude::*};
use sennit_journal::{Disk, disk::MemoryDisk};
use sennit_shard::{Moved, Rebuild, Standing, TakeOver};

use crate::group_member::{GroupMember, NOW, PARTITIONS};

const SEGMENT_BYTES: u64 = 128 << 10;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Publishes so many messages of so many bytes.
    Publish(usize, u32, usize),
    /// Acks all deliveries but so many.
    Ack(usize),
    /// Sends so many entries to the follower.
    Send(u64),
    /// Commits the follower's entries but so many.
    Commit(u64),
    /// The leader's lane writes so many frames.
    WriteLeader(usize),
    /// The follower's lane does.
    WriteFollower(usize),
    /// The leader is asked for a checkpoint.
    Checkpoint(bool),
    /// A replica moves a container.
    Move(bool),
    /// The rebuild reads on, if there is one.
    Rebuild,
}

fn steps(count: Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2_usize, 1..20_u32, 1..2_000_usize).prop_map(|(at, count, bytes)| Step::Publish(at, count, bytes)),
        2 => (0..20_usize).prop_map(Step::Ack),
        4 => (1..5_u64).prop_map(Step::Send),
        3 => (0..3_u64).prop_map(Step::Commit),
        3 => (1..5_usize).prop_map(Step::WriteLeader),
        3 => (1..5_usize).prop_map(Step::WriteFollower),
        1 => any::<bool>().prop_map(Step::Checkpoint),
        1 => any::<bool>().prop_map(Step::Move),
        3 => Just(Step::Rebuild),
    ];
    vec(step, count)
}

/// Two of three replicas; the third agrees with the follower.
struct Pair {
    leader: GroupMember,
    follower: GroupMember,
    rebuild: Option<Rebuild<MemoryDisk>>,
    rounds: usize,
    segment_bytes: u64,
}

impl Pair {
    fn new(cache_bytes: usize, segment_bytes: u64) -> Self {
        let open = |id| GroupMember::open(&MemoryDisk::default(), id, cache_bytes, segment_bytes);
        let (mut leader, mut follower) = (open(1), open(2));
        leader.lead(2);
        leader.open_partitions();
        leader.send(&mut follower, u64::MAX);
        leader.subscribe();
        Self { leader, follower, rebuild: None, rounds: 0, segment_bytes }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Publish(at, count, bytes) => {
                    self.leader.publish(PARTITIONS[at], count, bytes);
                    self.leader.take();
                }
                Step::Ack(kept) => self.leader.ack(kept),
                Step::Send(count) => {
                    self.leader.send(&mut self.follower, count);
                    self.follower.take();
                    self.begin_rebuild();
                }
                Step::Commit(but) => self.commit(but),
                Step::WriteLeader(count) => self.leader.write(count),
                Step::WriteFollower(count) => self.follower.write(count),
                Step::Checkpoint(of_leader) => {
                    let member = if of_leader { &mut self.leader } else { &mut self.follower };
                    member.parts.shard.checkpoint_soon();
                    member.take();
                }
                Step::Move(of_leader) => {
                    if of_leader { &mut self.leader } else { &mut self.follower }.make_a_move();
                }
                Step::Rebuild => self.rebuild(),
            }
        }
    }

    /// Commits what both have but so many entries: the third has it too.
    fn commit(&mut self, but: u64) {
        let labels = self.leader.parts.shard.labels().unwrap().clone();
        let last = self.follower.last();
        if labels.term(last.index) == Some(last.term) {
            let index = last.index.saturating_sub(but);
            self.leader.commit(index);
            self.follower.commit(index);
        }
    }

    fn begin_rebuild(&mut self) {
        if self.is_poisoned() && self.rebuild.is_none() {
            let reader = self.follower.parts.reader.duplicate();
            self.rebuild = Some(self.follower.parts.shard.begin_rebuild(reader, NOW));
        }
    }

    fn is_poisoned(&self) -> bool {
        self.follower.parts.shard.standing() == Standing::Poisoned
    }

    fn rebuild(&mut self) {
        let Some(mut rebuild) = self.rebuild.take() else { return };
        if rebuild.step().unwrap() {
            self.rebuild = Some(rebuild);
            return;
        }
        self.rounds += 1;
        match self.follower.parts.shard.take_over(rebuild, NOW).unwrap() {
            TakeOver::Done => assert!(!self.is_poisoned()),
            TakeOver::TooEarly(rebuild) => self.rebuild = Some(*rebuild),
        }
    }

    /// The leader is cut off with what it has not sent, and the follower leads in the next term.
    fn change_leader(&mut self, term: u64) {
        self.leader.rest();
        std::mem::swap(&mut self.leader, &mut self.follower);
        self.leader.lead(term);
        self.leader.subscribe();
        self.begin_rebuild();
    }

    /// Everything is sent, committed and written, and the state was made anew.
    fn finish(&mut self) {
        self.run(&[Step::Send(u64::MAX)]);
        while self.rebuild.is_some() {
            self.rebuild();
        }
        self.run(&[Step::Commit(0)]);
        self.leader.write_all();
        self.follower.write_all();
        self.run(&[Step::Send(u64::MAX), Step::Commit(0)]);
        self.follower.write_all();
    }

    fn check(&mut self, cache_bytes: usize) {
        self.finish();
        let follower = &self.follower.parts.shard;
        let state = follower.engine().replicated_state(NOW);
        // As the third replica would say it: what a leader does in memory is no part of it.
        let leader = self.leader.parts.shard.engine();
        let (last, of_leader) = (self.leader.parts.shard.here(), leader.replicated_state(NOW));
        assert_eq!(last.map(|here| here.commit), follower.here().map(|here| here.commit));
        assert_eq!(state.difference(&of_leader), None);
        let id = self.follower.id;
        let mut started =
            GroupMember::open(&self.follower.disk, id, cache_bytes, self.segment_bytes);
        let by_start = started.parts.shard.engine().replicated_state(NOW);
        assert_eq!(state.difference(&by_start), None);
        assert_eq!(self.follower.places(), started.places());
        assert_eq!(self.follower.last(), started.last());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Leaders are cut off with entries under way, twice.
    #[test]
    fn a_state_that_was_made_anew_is_what_the_group_has_decided_and_what_a_start_makes(
        before in steps(0..40),
        lost in steps(0..20),
        since in steps(0..60),
        lost_again in steps(0..20),
        after in steps(0..40),
        cache_bytes in prop_oneof![Just(0_usize), Just(32 << 10), Just(1 << 20)],
    ) {
        let mut pair = Pair::new(cache_bytes, SEGMENT_BYTES);
        pair.run(&before);
        let is_sent = |step: &&Step| !matches!(step, Step::Send(_) | Step::Commit(_));
        pair.run(&lost.iter().filter(is_sent).copied().collect::<Vec<_>>());
        pair.change_leader(3);
        pair.run(&since);
        // Only a whole state leads.
        pair.finish();
        pair.leader.rest();
        pair.check(cache_bytes);
        pair.leader.lead(4);
        pair.run(&[Step::Send(u64::MAX), Step::Commit(0)]);
        pair.leader.subscribe();
        pair.run(&lost_again.iter().filter(is_sent).copied().collect::<Vec<_>>());
        pair.change_leader(5);
        pair.run(&after);
        pair.finish();
        pair.leader.rest();
        pair.check(cache_bytes);
    }
}

/// A pair whose follower has led, and was cut off with an entry that nobody else has.
fn cut_off(batches: u32, segment_bytes: u64) -> Pair {
    let mut pair = Pair::new(0, segment_bytes);
    for _ in 0..batches {
        pair.run(&[Step::Publish(0, 20, 2_000), Step::Send(9), Step::Commit(0)]);
        pair.run(&[Step::WriteLeader(9), Step::WriteFollower(9)]);
    }
    pair.run(&[Step::Publish(1, 20, 2_000), Step::WriteLeader(9)]);
    pair.change_leader(3);
    pair
}

#[test]
fn what_is_appended_meanwhile_is_read_in_rounds_until_little_is_left() {
    // No checkpoint is due in so long a segment.
    let mut pair = cut_off(300, 16 << 20);
    let append = [Step::Publish(0, 20, 2_000), Step::Send(9), Step::Commit(0)];
    for _ in 0..130 {
        pair.run(&append);
        pair.run(&[Step::WriteLeader(9), Step::WriteFollower(9)]);
    }
    while pair.rounds == 0 {
        pair.rebuild();
    }
    assert!(pair.is_poisoned(), "5 MiB were appended meanwhile");
    pair.run(&append);
    while pair.rounds == 1 {
        pair.rebuild();
    }
    assert!(!pair.is_poisoned());
    pair.finish();
    pair.leader.rest();
    pair.check(0);
}

#[test]
fn a_lane_that_is_damaged_gives_no_state() {
    let mut pair = cut_off(10, SEGMENT_BYTES);
    pair.run(&[Step::Send(9)]);
    let (disk, lane) = (&pair.follower.disk, std::path::Path::new("data/lane-0"));
    for name in disk.list(lane).unwrap() {
        let slot = lane.join(name);
        let mut bytes = disk.bytes_of(&slot).unwrap();
        bytes[4096 + 100] ^= 1;
        disk.insert_file(&slot, bytes);
    }
    let rebuild = pair.rebuild.as_mut().unwrap();
    let fault = (0..100).find_map(|_| rebuild.step().err()).expect("it reads a damaged frame");
    assert!(fault.to_string().contains("damaged"), "{fault}");
    assert!(pair.is_poisoned());
}

/// Copies the batches of a segment, to be moved.
fn copy_a_segment(member: &mut GroupMember) -> Moved {
    // With a checkpoint behind it a segment may be emptied.
    let container = loop {
        member.parts.shard.checkpoint_soon();
        member.write_all();
        if let Some(container) = member.parts.shard.next_move(NOW) {
            break container;
        }
    };
    let mut held = member.parts.mover.list(container).unwrap();
    member.parts.shard.retain_wanted(&mut held);
    assert!(!held.is_empty());
    member.parts.mover.copy(container, &held).unwrap()
}

#[test]
fn a_pack_stays_to_which_only_a_move_refers_that_is_recorded_and_not_written() {
    let mut pair = cut_off(30, SEGMENT_BYTES);
    let moved = copy_a_segment(&mut pair.follower);
    let packs: BTreeSet<_> = moved.packs.iter().map(|pack| pack.number).collect();
    pair.follower.parts.shard.handle_move(moved, NOW);
    pair.follower.take();
    pair.run(&[Step::Send(9)]);
    assert!(pair.is_poisoned());
    pair.finish();
    assert_eq!(pair.follower.parts.shard.packs_in_use(), packs);
    let summary = pair.follower.parts.shard.pack_summary();
    assert!(summary.live_bytes > 0, "{summary:?}");
    pair.leader.rest();
    pair.check(0);
}

#[test]
fn a_move_for_a_state_that_is_gone_is_of_no_use() {
    for is_late in [false, true] {
        let mut pair = cut_off(30, SEGMENT_BYTES);
        let moved = copy_a_segment(&mut pair.follower);
        let packs: Vec<_> = moved.packs.iter().map(|pack| pack.number).collect();
        pair.run(&[Step::Send(9)]);
        assert!(pair.is_poisoned());
        if is_late {
            pair.finish();
        }
        pair.follower.parts.shard.handle_move(moved, NOW);
        let mut released = Vec::new();
        pair.follower.parts.shard.take_released_packs(&mut released);
        assert_eq!(released, packs);
        pair.finish();
        assert!(pair.follower.parts.shard.next_move(NOW).is_some(), "it is moved again");
        pair.leader.rest();
        pair.check(0);
    }
}

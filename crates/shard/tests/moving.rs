//! Batches move out of old segments and thin packs: what is live is read back from where it lies
//! now, whatever is settled, or stops, between the steps of a move.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, SessionId, Settle, Subscribe, Verdict,
};
use sennit_journal::{Disk, Frame, Home, LaneConfig, Position, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, GroupConfig, GroupId, Message, Messages, PartitionId, PartitionIndex,
    ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{Fetch, Held, Moved, PackLengths, Recovered, Settings, recover};

const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const MAILS: PartitionId = PartitionId { topic: TopicId(2), index: PartitionIndex(0) };
const GROUP: GroupId = GroupId(1);
const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };
const NOW: Timestamp = Timestamp(1_000);
const SEGMENT_BYTES: u64 = 64 << 10;
/// Messages in a batch.
const COUNT: u64 = 20;

/// A shard that keeps one segment, and nothing in its cache. To open another on the same disk is a
/// crash: what the lane has not written is gone.
struct Broker {
    disk: MemoryDisk,
    parts: Recovered<MemoryDisk>,
    delivered: Vec<(u64, String)>,
    runs: Vec<DeliveryRun>,
    /// Slots that came free.
    freed: BTreeSet<u64>,
}

impl Broker {
    fn open(disk: &MemoryDisk, segment_bytes: u64) -> Self {
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes,
            incarnation: 42,
        };
        let settings =
            Settings { cache_bytes: 0, journal_segments: 1, packs: PackLengths::default() };
        let parts = recover(disk, config, settings, NOW).unwrap();
        let disk = disk.clone();
        let (delivered, runs, freed) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut broker = Self { disk, parts, delivered, runs, freed };
        broker.settle_down();
        broker
    }

    /// One with so many batches of orders that the journal is long.
    fn with_backlog(batches: u64) -> Self {
        let mut broker = Self::open(&MemoryDisk::default(), SEGMENT_BYTES);
        broker.create(ORDERS);
        for batch in 0..batches {
            broker.publish(ORDERS, &texts(batch * COUNT..(batch + 1) * COUNT));
        }
        broker
    }

    fn crashed(self) -> Self {
        Self::open(&self.disk, SEGMENT_BYTES)
    }

    fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.settle_down();
    }

    fn take_effects(&mut self) {
        for effect in self.parts.shard.effects().drain(..) {
            match effect {
                Effect::Deliver(delivery) => {
                    let texts = Messages::of_checked(&delivery.messages);
                    let texts = texts.map(|m| String::from_utf8_lossy(m.payload()).into());
                    self.delivered.extend((delivery.first.0..).zip(texts));
                    let offsets = delivery.first.0..delivery.first.0 + u64::from(delivery.count);
                    self.runs.extend(offsets.map(|offset| DeliveryRun {
                        first: sennit_model::Offset(offset),
                        count: 1,
                        attempt: delivery.attempt,
                        generation: delivery.generation,
                    }));
                }
                Effect::Refused { refusal, .. } => panic!("{refusal}"),
                _ => {}
            }
        }
        let mut released = Vec::new();
        self.parts.shard.take_released(&mut released);
        for &segment in &released {
            self.parts.lane.release(segment);
        }
        self.freed.extend(released);
    }

    fn take_frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        while self.parts.lane.spare_count() < frames.len() {
            let slot = self.parts.slots.make().unwrap();
            self.parts.lane.add_spare(slot);
        }
        frames
    }

    fn take_fetches(&mut self) -> Vec<Fetch> {
        let mut fetches = Vec::new();
        self.parts.shard.take_fetches(&mut fetches);
        fetches
    }

    /// Commits what there is to commit; reads wait.
    fn commit(&mut self) {
        loop {
            self.take_effects();
            let frames = self.take_frames();
            if frames.is_empty() {
                return;
            }
            let end = self.parts.lane.append(&frames).unwrap();
            self.parts.shard.committed(end, NOW);
        }
    }

    fn settle_down(&mut self) {
        loop {
            self.commit();
            let fetches = self.take_fetches();
            if fetches.is_empty() {
                return;
            }
            for fetch in fetches {
                let bytes = self.parts.reader.read(fetch.position, fetch.length);
                self.parts.shard.fetched(fetch, bytes.ok(), NOW);
            }
        }
    }

    fn create(&mut self, partition: PartitionId) {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        };
        self.tell(Command::Partition(ORIGIN, partition, open));
    }

    fn publish(&mut self, partition: PartitionId, texts: &[String]) {
        let mut builder = BatchBuilder::new();
        for text in texts {
            builder.push(&Message::new(text.clone())).unwrap();
        }
        let producer = ProducerStamp::default();
        let batch = builder.take().unwrap();
        self.tell(Command::Publish(Publish { origin: ORIGIN, partition, producer, batch }));
    }

    fn subscription() -> Command {
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        let (origin, partition, group) = (ORIGIN, ORDERS, GROUP);
        Command::Subscribe(Subscribe { origin, subscription: 1, partition, group, credit })
    }

    fn subscribe(&mut self) {
        self.tell(Self::subscription());
    }

    /// Acks what was delivered at these offsets.
    fn ack(&mut self, is_done: impl Fn(u64) -> bool) {
        let (runs, rest) = self.runs.drain(..).partition(|run| is_done(run.first.0));
        self.runs = rest;
        let (origin, partition, group) = (ORIGIN, ORDERS, GROUP);
        let (verdict, confirm) = (Verdict::Ack, false);
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        self.tell(Command::Settle(settle));
    }

    /// What is to be moved next of what is to be moved, and the batches it holds.
    fn begin_move(&mut self) -> (Home, Vec<Held>) {
        let home = self.parts.shard.next_move().unwrap();
        (home, self.parts.mover.list(home).unwrap())
    }

    /// Copies all that is wanted of what is to be moved next.
    fn copy(&mut self) -> (Home, Moved) {
        let (home, mut held) = self.begin_move();
        self.parts.shard.retain_wanted(&mut held);
        (home, self.parts.mover.copy(home, &held).unwrap())
    }

    /// Moves what there is to move, until a move is to begin with `last`.
    fn move_until(&mut self, last: impl Fn(Home) -> bool) -> Option<Home> {
        for _ in 0..100 {
            let home = self.parts.shard.next_move()?;
            if last(home) {
                return Some(home);
            }
            self.empty(home);
        }
        panic!("moving does not come to its end");
    }

    fn move_all(&mut self) {
        assert_eq!(self.move_until(|_| false), None);
    }

    fn empty(&mut self, home: Home) {
        let mut held = self.parts.mover.list(home).unwrap();
        self.parts.shard.retain_wanted(&mut held);
        let moved = self.parts.mover.copy(home, &held).unwrap();
        self.parts.shard.moved(moved, NOW);
        self.settle_down();
    }

    /// Removes the packs that are given up, and says which.
    fn remove_packs(&mut self) -> Vec<u32> {
        let mut packs = Vec::new();
        self.parts.shard.take_released_packs(&mut packs);
        for &pack in &packs {
            let mut removal = self.parts.mover.removal(pack).unwrap();
            while !removal.step().unwrap() {}
        }
        packs
    }

    fn pack_files(&self) -> usize {
        let names = self.disk.list(Path::new("data/lane-0")).unwrap();
        names.iter().filter(|name| name.ends_with(".pack")).count()
    }

    /// The packs in which something live lies.
    fn live_packs(&self) -> BTreeSet<u32> {
        let places = self.parts.shard.engine().places();
        places.filter_map(|place| Some(Position(place.position).pack()?.0)).collect()
    }

    /// A new consumer of orders gets these messages and no others.
    #[track_caller]
    fn gets(&mut self, offsets: impl Iterator<Item = u64>) {
        self.delivered.clear();
        self.subscribe();
        let expected: Vec<_> = offsets.map(|n| (n, text(n))).collect();
        assert_eq!(self.delivered, expected);
    }
}

fn text(number: u64) -> String {
    format!("message {number} {}", "x".repeat(100))
}

fn texts(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(text).collect()
}

#[test]
fn what_is_live_moves_and_is_read_back_the_same_from_the_pack() {
    let mut broker = Broker::with_backlog(200);
    let segments = broker.parts.shard.segment_count();
    broker.move_all();
    assert!(broker.parts.shard.segment_count() < segments);
    let (packs, bytes, live) = broker.parts.shard.pack_usage();
    assert!(packs > 0 && live > 0 && live < bytes, "{packs} packs, {live} of {bytes} bytes live");
    assert_eq!(broker.live_packs().len(), packs);
    broker.gets(0..200 * COUNT);
}

#[test]
fn what_was_settled_after_the_listing_is_not_wanted() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (home, mut held) = broker.begin_move();
    let listed = held.clone();
    broker.ack(|offset| offset < COUNT);
    broker.parts.shard.retain_wanted(&mut held);
    assert_eq!((held.len(), held[0]), (listed.len() - 1, listed[1]));
    let moved = broker.parts.mover.copy(home, &held).unwrap();
    broker.parts.shard.moved(moved, NOW);
    broker.settle_down();
    broker.crashed().gets(COUNT..200 * COUNT);
}

#[test]
fn what_was_settled_while_it_was_copied_is_freed_in_the_pack() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (_, moved) = broker.copy();
    let copied: u64 = moved.batches.iter().map(|batch| u64::from(batch.place.bytes)).sum();
    let settled = u64::from(moved.batches[0].place.bytes);
    broker.ack(|offset| offset < COUNT);
    broker.parts.shard.moved(moved, NOW);
    broker.settle_down();
    assert_eq!(broker.parts.shard.pack_usage().2, copied - settled);
    broker.crashed().gets(COUNT..200 * COUNT);
}

#[test]
fn a_pack_of_which_all_was_settled_while_it_was_copied_is_given_up() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (_, moved) = broker.copy();
    let number = moved.packs[0].number;
    broker.ack(|_| true);
    broker.parts.shard.moved(moved, NOW);
    broker.settle_down();
    assert_eq!(broker.remove_packs(), [number]);
    assert_eq!(broker.pack_files(), 0);
    broker.crashed().gets(0..0);
}

#[test]
fn a_pack_that_was_written_and_not_told_of_is_removed_by_the_next_start() {
    for told in [false, true] {
        let mut broker = Broker::with_backlog(200);
        let (_, moved) = broker.copy();
        let number = moved.packs[0].number;
        if told {
            // The record gathers, and the lane does not get it.
            broker.parts.shard.moved(moved, NOW);
        }
        let mut broker = broker.crashed();
        assert_eq!((broker.pack_files(), broker.live_packs().len()), (1, 0));
        assert_eq!(broker.remove_packs(), [number]);
        assert_eq!(broker.pack_files(), 0);
        broker.gets(0..200 * COUNT);
    }
}

#[test]
fn after_a_crash_what_was_moved_is_read_from_the_pack() {
    let mut broker = Broker::with_backlog(200);
    broker.move_all();
    let packs = broker.live_packs();
    let mut broker = broker.crashed();
    assert_eq!(broker.live_packs(), packs);
    assert_eq!(broker.remove_packs(), [0u32; 0]);
    assert_eq!(broker.pack_files(), packs.len());
    broker.gets(0..200 * COUNT);
}

#[test]
fn a_thin_pack_is_emptied_into_another() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    broker.move_all();
    let packs = broker.live_packs();
    // A batch of each pack's, and little more, stays.
    broker.ack(|offset| !(offset / COUNT).is_multiple_of(20));
    let thin = broker.move_until(|home| matches!(home, Home::Pack(_)));
    let Some(Home::Pack(thin)) = thin else { panic!("no pack is thin") };
    assert!(packs.contains(&thin));
    broker.remove_packs();
    let moved = broker.parts.mover.list(Home::Pack(thin)).unwrap();
    assert!(moved.len() > 10);
    broker.empty(Home::Pack(thin));
    assert_eq!(broker.remove_packs(), [thin]);
    broker.move_all();
    broker.remove_packs();
    assert_eq!(broker.pack_files(), broker.live_packs().len());
    assert!(broker.live_packs().is_disjoint(&packs));
    broker.crashed().gets((0..200 * COUNT).filter(|offset| (offset / COUNT).is_multiple_of(20)));
}

#[test]
fn a_partition_with_much_to_move_gets_packs_of_its_own() {
    const LONG: usize = 256 << 10;
    let mut broker = Broker::open(&MemoryDisk::default(), 16 << 20);
    broker.create(ORDERS);
    broker.create(MAILS);
    for number in 0..400 {
        let partition = if number % 8 == 0 { MAILS } else { ORDERS };
        broker.publish(partition, &[format!("{number} {}", "x".repeat(LONG))]);
    }
    let (_, moved) = broker.copy();
    assert_eq!(moved.packs.len(), 2);
    assert_ne!(moved.packs[0].class, moved.packs[1].class);
    let of = |partition| -> BTreeSet<u32> {
        let batches = moved.batches.iter().filter(|batch| batch.partition == partition);
        batches.map(|batch| Position(batch.place.position).pack().unwrap().0).collect()
    };
    assert_eq!((of(ORDERS).len(), of(MAILS).len()), (1, 1));
    assert!(of(ORDERS).is_disjoint(&of(MAILS)));
}

#[test]
fn a_slot_comes_free_only_once_the_moves_are_committed() {
    let mut broker = Broker::with_backlog(200);
    let (home, moved) = broker.copy();
    let Home::Segment(segment) = home else { panic!("the journal is long") };
    broker.parts.shard.moved(moved, NOW);
    broker.take_effects();
    assert!(!broker.freed.contains(&segment), "the moves only gather");
    assert_eq!(broker.parts.shard.next_move(), None, "it looks full still");
    let frames = broker.take_frames();
    let end = broker.parts.lane.append(&frames).unwrap();
    broker.take_effects();
    assert!(!broker.freed.contains(&segment), "the shard was not told of the commit");
    broker.parts.shard.committed(end, NOW);
    broker.take_effects();
    assert!(broker.freed.contains(&segment));
}

#[test]
fn what_could_not_be_moved_is_left_and_the_next_is_moved() {
    let mut broker = Broker::with_backlog(200);
    let (home, _) = broker.begin_move();
    assert_eq!(broker.parts.shard.next_move(), None, "one at a time");
    broker.parts.shard.move_failed(home);
    let next = broker.parts.shard.next_move().unwrap();
    assert_ne!(next, home);
    broker.empty(next);
    broker.move_all();
    let Home::Segment(segment) = home else { panic!("the journal is long") };
    assert!(!broker.freed.contains(&segment));
    broker.gets(0..200 * COUNT);
}

#[test]
fn what_holds_nothing_wanted_is_not_asked_about_again() {
    let mut broker = Broker::with_backlog(200);
    let (home, _) = broker.begin_move();
    broker.parts.shard.moved(Moved::default(), NOW);
    broker.settle_down();
    assert_ne!(broker.parts.shard.next_move(), Some(home));
}

#[test]
fn a_read_that_fails_because_its_batch_was_moved_holds_nobody_up() {
    let mut broker = Broker::with_backlog(200);
    broker.parts.shard.handle(&mut vec![Broker::subscription()], NOW);
    broker.commit();
    let fetches = broker.take_fetches();
    assert!(!fetches.is_empty());
    for _ in 0..100 {
        let Some(home) = broker.parts.shard.next_move() else { break };
        let mut held = broker.parts.mover.list(home).unwrap();
        broker.parts.shard.retain_wanted(&mut held);
        let moved = broker.parts.mover.copy(home, &held).unwrap();
        broker.parts.shard.moved(moved, NOW);
        broker.commit();
    }
    for fetch in fetches {
        // The slots were given to other segments.
        broker.parts.shard.fetched(fetch, None, NOW);
    }
    broker.settle_down();
    let expected: Vec<_> = (0..200 * COUNT).map(|n| (n, text(n))).collect();
    assert_eq!(broker.delivered.len(), expected.len());
    assert_eq!(broker.delivered, expected);
    assert_eq!(broker.parts.shard.counters().damaged_batches, 0);
}

#[test]
fn a_copy_that_fails_leaves_no_file_behind_and_the_next_one_works() {
    let mut broker = Broker::with_backlog(200);
    // What is in the way of the first pack.
    broker.disk.create(Path::new("data/lane-0/pack-0000000000.pack")).unwrap();
    let (home, mut held) = broker.begin_move();
    broker.parts.shard.retain_wanted(&mut held);
    assert!(broker.parts.mover.copy(home, &held).is_err());
    let names = broker.disk.list(Path::new("data/lane-0")).unwrap();
    assert!(!names.iter().any(|name| name.ends_with(".pack")), "{names:?}");
    let moved = broker.parts.mover.copy(home, &held).unwrap();
    assert_eq!(moved.batches.len(), held.len());
}

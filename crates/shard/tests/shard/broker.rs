//! A shard that carries its own frames and reads, on a disk in memory, for the tests of moves and rot.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, SessionId, Settle, SourceNames, StreamAnswer, Subscribe, Verdict,
};
use sennit_journal::{Container, Disk, Frame, LaneConfig, Position, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, GroupConfig, GroupId, GroupName, Message, Messages, OffsetRange, PartitionId,
    PartitionIndex, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{
    Fetch, Moved, PackLengths, RecoverError, Recovered, Settings, StoredBatch, recover,
};

pub(crate) const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
pub(crate) const MAILS: PartitionId = PartitionId { topic: TopicId(2), index: PartitionIndex(0) };
pub(crate) const GROUP: GroupId = GroupId(1);
pub(crate) const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };
pub(crate) const NOW: Timestamp = Timestamp(1_000);
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// Messages in a batch.
pub(crate) const COUNT: u64 = 20;

/// A shard that keeps one segment, and nothing in its cache. To open another on the same disk is a
/// crash: what the lane has not written is gone.
pub(crate) struct Broker {
    pub(crate) disk: MemoryDisk,
    pub(crate) parts: Recovered<MemoryDisk>,
    pub(crate) delivered: Vec<(u64, String)>,
    pub(crate) runs: Vec<DeliveryRun>,
    /// Offsets that a consumer was told it will not get.
    pub(crate) gaps: Vec<OffsetRange>,
    /// What streams have answered.
    pub(crate) answers: Vec<StreamAnswer>,
    /// Slots that came free.
    pub(crate) freed: BTreeSet<u64>,
}

impl Broker {
    pub(crate) fn config(segment_bytes: u64) -> LaneConfig {
        LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes,
            incarnation: 42,
        }
    }

    pub(crate) fn open(disk: &MemoryDisk, segment_bytes: u64) -> Self {
        Self::try_open(disk, segment_bytes).unwrap()
    }

    pub(crate) fn try_open(disk: &MemoryDisk, segment_bytes: u64) -> Result<Self, RecoverError> {
        let (packs, writes_superseded) = (PackLengths::default(), false);
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 1,
            packs,
            writes_superseded,
            replica: None,
        };
        Self::open_with(disk, segment_bytes, settings)
    }

    pub(crate) fn open_with(
        disk: &MemoryDisk,
        segment_bytes: u64,
        settings: Settings,
    ) -> Result<Self, RecoverError> {
        let config = Self::config(segment_bytes);
        let parts = recover(disk, config, settings, NOW)?;
        let disk = disk.clone();
        let (delivered, runs, gaps, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let freed = BTreeSet::new();
        let mut broker = Self { disk, parts, delivered, runs, gaps, answers, freed };
        broker.settle_down();
        Ok(broker)
    }

    /// One with so many batches of orders that the journal is long.
    pub(crate) fn with_backlog(batches: u64) -> Self {
        let mut broker = Self::open(&MemoryDisk::default(), SEGMENT_BYTES);
        broker.create(ORDERS);
        for batch in 0..batches {
            broker.publish(ORDERS, &texts(batch * COUNT..(batch + 1) * COUNT));
        }
        broker
    }

    pub(crate) fn crashed(self) -> Self {
        Self::open(&self.disk, SEGMENT_BYTES)
    }

    pub(crate) fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.settle_down();
    }

    pub(crate) fn take_effects(&mut self) {
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
                Effect::Gap { range, .. } => self.gaps.push(range),
                Effect::Stream(_, answer) => self.answers.push(*answer),
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

    pub(crate) fn take_frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        let begun = frames.iter().filter(|frame| frame.first_of_segment).count();
        while self.parts.lane.spare_count() < begun {
            let slot = self.parts.slots.make().unwrap();
            self.parts.lane.add_spare(slot);
        }
        frames
    }

    pub(crate) fn take_fetches(&mut self) -> Vec<Fetch> {
        let mut fetches = Vec::new();
        self.parts.shard.take_fetches(&mut fetches);
        fetches
    }

    /// Commits what there is to commit; reads wait.
    pub(crate) fn commit(&mut self) {
        loop {
            self.take_effects();
            let frames = self.take_frames();
            if frames.is_empty() {
                return;
            }
            self.write(&frames, NOW);
        }
    }

    /// Commits what there is to commit, and leaves the effects to be looked at.
    pub(crate) fn commit_quietly(&mut self, now: Timestamp) {
        let frames = self.take_frames();
        if !frames.is_empty() {
            self.write(&frames, now);
        }
    }

    pub(crate) fn write(&mut self, frames: &[Frame], now: Timestamp) {
        let end = self.parts.lane.append(frames).unwrap();
        self.parts.shard.set_spare_slots(self.parts.lane.spare_count(), end);
        self.parts.shard.handle_commit(end, now);
    }

    pub(crate) fn settle_down(&mut self) {
        loop {
            self.commit();
            let fetches = self.take_fetches();
            if fetches.is_empty() {
                return;
            }
            for fetch in fetches {
                let bytes = self.parts.reader.read(fetch.position, fetch.length);
                self.parts.shard.handle_fetch(fetch, bytes.ok(), NOW);
            }
        }
    }

    pub(crate) fn create(&mut self, partition: PartitionId) {
        self.create_with(partition, DeadLetters::NotYet);
    }

    pub(crate) fn create_with(&mut self, partition: PartitionId, dead_letters: DeadLetters) {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![setting],
            dead_letters,
        };
        self.tell(Command::Partition(ORIGIN, partition, open));
        if matches!(dead_letters, DeadLetters::To(_)) {
            let groups = vec![(GROUP, GroupName::default_group())].into_iter().collect();
            let topic = "orders".parse().unwrap();
            let names = PartitionCommand::Name(Arc::new(SourceNames { topic, groups }));
            self.tell(Command::Partition(ORIGIN, partition, names));
        }
    }

    pub(crate) fn publish(&mut self, partition: PartitionId, texts: &[String]) {
        self.tell(Self::publication(partition, texts));
    }

    pub(crate) fn publication(partition: PartitionId, texts: &[String]) -> Command {
        let mut builder = BatchBuilder::new();
        for text in texts {
            builder.push(&Message::new(text.clone())).unwrap();
        }
        let producer = ProducerStamp::default();
        let batch = builder.take().unwrap();
        Command::Publish(Publish { origin: ORIGIN, partition, producer, batch })
    }

    pub(crate) fn subscription(partition: PartitionId) -> Command {
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        let (origin, group) = (ORIGIN, GROUP);
        Command::Subscribe(Subscribe { origin, subscription: 1, partition, group, credit })
    }

    pub(crate) fn subscribe(&mut self) {
        self.tell(Self::subscription(ORDERS));
    }

    /// Acks what was delivered at these offsets.
    pub(crate) fn ack(&mut self, is_done: impl Fn(u64) -> bool) {
        self.apply_crash(Verdict::Ack, is_done);
    }

    /// Says this of what was delivered at these offsets.
    pub(crate) fn apply_crash(&mut self, verdict: Verdict, is_done: impl Fn(u64) -> bool) {
        let (runs, rest) = self.runs.drain(..).partition(|run| is_done(run.first.0));
        self.runs = rest;
        let (origin, partition, group) = (ORIGIN, ORDERS, GROUP);
        let confirm = false;
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        self.tell(Command::Settle(settle));
    }

    /// What is to be moved next of what is to be moved, and the batches it holds.
    pub(crate) fn begin_move(&mut self) -> (Container, Vec<StoredBatch>) {
        let container = self.parts.shard.next_move(NOW).unwrap();
        (container, self.parts.mover.list(container).unwrap())
    }

    /// Copies all that is wanted of what is to be moved next.
    pub(crate) fn copy(&mut self) -> (Container, Moved) {
        let (container, mut held) = self.begin_move();
        self.parts.shard.retain_wanted(&mut held);
        (container, self.parts.mover.copy(container, &held).unwrap())
    }

    /// Moves what there is to move, until a move is to begin with `last`.
    pub(crate) fn move_until(&mut self, last: impl Fn(Container) -> bool) -> Option<Container> {
        for _ in 0..100 {
            let container = self.parts.shard.next_move(NOW)?;
            if last(container) {
                return Some(container);
            }
            self.empty(container);
        }
        panic!("moving does not come to its end");
    }

    pub(crate) fn move_all(&mut self) {
        assert_eq!(self.move_until(|_| false), None);
    }

    pub(crate) fn empty(&mut self, container: Container) {
        let mut held = self.parts.mover.list(container).unwrap();
        self.parts.shard.retain_wanted(&mut held);
        let moved = self.parts.mover.copy(container, &held).unwrap();
        self.parts.shard.handle_move(moved, NOW);
        self.settle_down();
    }

    /// Removes the packs that are given up, and says which.
    pub(crate) fn remove_packs(&mut self) -> Vec<u32> {
        let mut packs = Vec::new();
        self.parts.shard.take_released_packs(&mut packs);
        for &pack in &packs {
            let mut removal = self.parts.mover.start_removal(pack).unwrap();
            while !removal.step().unwrap() {}
        }
        packs
    }

    pub(crate) fn pack_files(&self) -> usize {
        let names = self.disk.list(Path::new("data/lane-0")).unwrap();
        names.iter().filter(|name| name.ends_with(".pack")).count()
    }

    /// The slots that were ever made.
    pub(crate) fn slot_files(&self) -> usize {
        let names = self.disk.list(Path::new("data/lane-0")).unwrap();
        names.iter().filter(|name| name.starts_with("slot-")).count()
    }

    /// The packs in which something live lies.
    pub(crate) fn live_packs(&self) -> BTreeSet<u32> {
        let places = self.parts.shard.engine().places();
        places.filter_map(|place| Some(Position(place.position).pack()?.0)).collect()
    }

    /// A new consumer of orders gets these messages and no others.
    #[track_caller]
    pub(crate) fn gets(&mut self, offsets: impl Iterator<Item = u64>) {
        self.delivered.clear();
        self.subscribe();
        let expected: Vec<_> = offsets.map(|n| (n, text(n))).collect();
        assert_eq!(self.delivered, expected);
    }
}

pub(crate) fn text(number: u64) -> String {
    format!("message {number} {}", "x".repeat(100))
}

pub(crate) fn texts(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(text).collect()
}

//! A shard whose lane lags behind: what it has taken is committed and written when a test says so, in any order.

use std::path::PathBuf;

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, SessionId, Settle, Subscribe, Verdict,
};
use sennit_journal::{Frame, LaneConfig, Position, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, Durability, Generation, GroupConfig, GroupId, Message, PartitionId,
    PartitionIndex, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{PackLengths, Recovered, Settings, Standing, recover};

pub(crate) const NOW: Timestamp = Timestamp(1_000);
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
pub(crate) const GROUP: GroupId = GroupId(1);
/// Its term is above the generation of a lane that is opened for the first time.
pub(crate) const LEADER: Standing = Standing::Leader { term: TERM, may_give: true };
pub(crate) const TERM: u64 = 2;
/// A queue that is durable, and one that delivers before the commit.
pub(crate) const DURABLE: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
pub(crate) const EARLY: PartitionId = PartitionId { topic: TopicId(2), index: PartitionIndex(0) };

pub(crate) struct Member {
    pub(crate) disk: MemoryDisk,
    pub(crate) parts: Recovered<MemoryDisk>,
    /// The frames of each turn that the lane has taken.
    takes: Vec<(Vec<Frame>, Position)>,
    pub(crate) written: usize,
    pub(crate) committed: usize,
    pub(crate) effects: Vec<Effect>,
    /// Deliveries that were not acked.
    runs: Vec<(PartitionId, DeliveryRun)>,
    request: u64,
}

impl Member {
    pub(crate) fn open(disk: &MemoryDisk, standing: Standing, cache_bytes: usize) -> Self {
        Self::open_with(disk, standing, cache_bytes, SEGMENT_BYTES)
    }

    fn open_with(
        disk: &MemoryDisk,
        standing: Standing,
        cache_bytes: usize,
        segment_bytes: u64,
    ) -> Self {
        let directory = PathBuf::from("data/lane-0");
        let config = LaneConfig { directory, lane: 0, segment_bytes, incarnation: 42 };
        let settings = Settings {
            cache_bytes,
            journal_segments: 1000,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: None,
        };
        let mut parts = recover(disk, config, settings, NOW).unwrap();
        if standing != Standing::Alone {
            parts.shard.stand(standing, NOW);
        }
        let (takes, effects, runs) = (Vec::new(), Vec::new(), Vec::new());
        let disk = disk.clone();
        Self { disk, parts, takes, written: 0, committed: 0, effects, runs, request: 0 }
    }

    /// One with two queues, a consumer of each, and everything committed and written.
    pub(crate) fn with_queues(standing: Standing, cache_bytes: usize) -> Self {
        Self::with_segments(standing, cache_bytes, SEGMENT_BYTES)
    }

    pub(crate) fn with_segments(
        standing: Standing,
        cache_bytes: usize,
        segment_bytes: u64,
    ) -> Self {
        let disk = MemoryDisk::default();
        let mut member = Self::open_with(&disk, standing, cache_bytes, segment_bytes);
        for (partition, durability) in
            [(DURABLE, Durability::Durable), (EARLY, Durability::Speculative)]
        {
            let (id, config, start) = (GROUP, GroupConfig::default(), StartAt::Earliest);
            let open = PartitionCommand::Open {
                config: TopicConfig { durability, ..TopicConfig::of_kind(TopicKind::Queue) },
                groups: vec![GroupSetting { id, config, start }],
                dead_letters: DeadLetters::NotYet,
            };
            let origin = member.origin();
            member.tell(Command::Partition(origin, partition, open));
            member.subscribe(partition);
        }
        member.finish();
        member
    }

    pub(crate) fn origin(&mut self) -> Origin {
        self.request += 1;
        Origin { session: SessionId(1), request: self.request }
    }

    pub(crate) fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.hear();
    }

    pub(crate) fn subscribe(&mut self, partition: PartitionId) {
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        let (origin, group, subscription) = (self.origin(), GROUP, 1);
        let subscribe = Subscribe { origin, subscription, partition, group, credit };
        self.tell(Command::Subscribe(subscribe));
    }

    pub(crate) fn publish(&mut self, partition: PartitionId, count: u32) -> Origin {
        let mut builder = BatchBuilder::new();
        for number in 0..count {
            let text = format!("{} {number} {}", self.request, "x".repeat(2000));
            builder.push(&Message::new(text)).unwrap();
        }
        let (origin, producer) = (self.origin(), ProducerStamp::default());
        let batch = builder.take().unwrap();
        self.tell(Command::Publish(Publish { origin, partition, producer, batch }));
        origin
    }

    /// Acks all that was delivered, partition by partition.
    pub(crate) fn ack(&mut self) {
        self.runs.sort_by_key(|(partition, run)| (*partition, run.first));
        for partition in [DURABLE, EARLY] {
            let of = self.runs.iter().filter(|(of, _)| *of == partition);
            let runs: Vec<_> = of.map(|(_, run)| *run).collect();
            let (origin, group, verdict, confirm) = (self.origin(), GROUP, Verdict::Ack, true);
            let settle = Settle { origin, partition, group, verdict, runs, confirm };
            self.tell(Command::Settle(settle));
        }
        self.runs.clear();
    }

    /// Takes what the shard says, and answers its reads, none of which may go beyond what is written.
    pub(crate) fn hear(&mut self) {
        loop {
            for mut effect in self.parts.shard.effects().drain(..) {
                if let Effect::Deliver(delivery) = &mut effect {
                    let run = DeliveryRun {
                        first: delivery.first,
                        count: delivery.count,
                        attempt: delivery.attempt,
                        generation: delivery.generation,
                    };
                    self.runs.push((delivery.partition, run));
                    // A leader's is its term.
                    delivery.generation = Generation(0);
                }
                self.effects.push(effect);
            }
            let mut fetches = Vec::new();
            self.parts.shard.take_fetches(&mut fetches);
            if fetches.is_empty() {
                return;
            }
            for fetch in fetches {
                let end = fetch.position.plus(fetch.length as u64);
                assert!(end <= self.end_of(self.written), "{fetch:?} is read before it is written");
                let bytes = self.parts.reader.read(fetch.position, fetch.length).unwrap();
                self.parts.shard.handle_fetch(fetch, Some(bytes), NOW);
            }
        }
    }

    /// Has the lane take what has gathered.
    pub(crate) fn take(&mut self) {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        let end = self.parts.shard.end();
        self.takes.push((frames, end));
    }

    /// The end of so many turns that were taken.
    pub(crate) fn end_of(&self, takes: usize) -> Position {
        takes.checked_sub(1).map_or(Position(0), |last| self.takes[last].1)
    }

    fn write_to_disk(&mut self, count: usize) {
        let until = (self.written + count).min(self.takes.len());
        let Recovered { lane, slots, .. } = &mut self.parts;
        for (frames, _) in &self.takes[self.written..until] {
            while lane.spare_count() < frames.len() {
                lane.add_spare(slots.make().unwrap());
            }
            if !frames.is_empty() {
                lane.append(frames).unwrap();
            }
        }
        self.written = until;
    }

    /// The lane writes so many turns more; alone it does that when they are committed.
    pub(crate) fn write(&mut self, count: usize) {
        if self.parts.shard.standing() == Standing::Alone {
            return;
        }
        self.write_to_disk(count);
        let end = self.end_of(self.written);
        if self.written > 0 {
            self.parts.shard.written(end, NOW);
        }
        self.hear();
    }

    /// So many turns more are committed.
    pub(crate) fn commit(&mut self, count: usize) {
        self.committed = (self.committed + count).min(self.takes.len());
        let end = self.end_of(self.committed);
        if self.committed == 0 {
            return;
        }
        if self.parts.shard.standing() == Standing::Alone {
            self.write_to_disk(count);
            self.parts.shard.handle_commit(end, NOW);
        } else {
            self.parts.shard.committed(end, NOW);
        }
        self.hear();
    }

    /// Has everything taken, committed and written.
    pub(crate) fn finish(&mut self) {
        while self.parts.shard.has_frames() || self.committed < self.takes.len() {
            self.take();
            self.commit(usize::MAX / 2);
            self.write(usize::MAX / 2);
        }
        self.write(usize::MAX / 2);
    }

    pub(crate) fn released(&mut self) -> Vec<u64> {
        let mut released = Vec::new();
        self.parts.shard.take_released(&mut released);
        for &segment in &released {
            self.parts.lane.release(segment);
        }
        released
    }

    pub(crate) fn has_confirmed(&self, origin: Origin) -> bool {
        self.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Confirmed(held) if held.origin == origin))
    }

    pub(crate) fn deliveries(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Deliver(_))).count()
    }
}

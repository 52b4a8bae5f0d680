//! A replica of a group whose lane lags behind: what was appended is taken, written and committed when a test says so.
//! The test is the group: it says who leads, and what is committed.

use std::{collections::VecDeque, path::PathBuf};

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, SessionId, Settle, Subscribe, Verdict,
};
use sennit_journal::{Frame, LaneConfig, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, GroupConfig, GroupId, Message, PartitionId, PartitionIndex, ProducerStamp,
    StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{
    EntryBody, EntryContent, EntryId, EntrySize, Membership, PackLengths, ReceivedEntry, Recovered,
    Replica, Settings, Standing, recover,
};

pub(crate) const NOW: Timestamp = Timestamp(1_000);
pub(crate) const GROUP: GroupId = GroupId(1);
pub(crate) const PARTITIONS: [PartitionId; 2] = [
    PartitionId { topic: TopicId(1), index: PartitionIndex(0) },
    PartitionId { topic: TopicId(2), index: PartitionIndex(0) },
];

pub(crate) struct GroupMember {
    pub(crate) disk: MemoryDisk,
    pub(crate) parts: Recovered<MemoryDisk>,
    pub(crate) id: u64,
    /// Frames that the lane has taken and not written.
    unwritten: VecDeque<Frame>,
    /// Deliveries that were not acked.
    runs: Vec<(PartitionId, DeliveryRun)>,
    request: u64,
}

impl GroupMember {
    pub(crate) fn open(disk: &MemoryDisk, id: u64, cache_bytes: usize, segment_bytes: u64) -> Self {
        let directory = PathBuf::from("data/lane-0");
        let config = LaneConfig { directory, lane: 0, segment_bytes, incarnation: 42 };
        let settings = Settings {
            cache_bytes,
            journal_segments: 2,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(Replica { group: 4, id, is_alone: false }),
        };
        let mut parts = recover(disk, config, settings, NOW).unwrap();
        let members = Membership { voters: [1, 2, 3].into(), ..Membership::default() };
        parts.shard.join_group(&members, NOW);
        let (unwritten, runs, disk) = (VecDeque::new(), Vec::new(), disk.clone());
        Self { disk, parts, id, unwritten, runs, request: 0 }
    }

    pub(crate) fn last(&mut self) -> EntryId {
        self.parts.shard.labels().unwrap().last()
    }

    /// Begins to lead: the first entry of its term is committed.
    pub(crate) fn lead(&mut self, term: u64) {
        let id = EntryId { term, index: self.last().index + 1 };
        self.parts.shard.keep_vote(term, self.id);
        self.parts.shard.append_made(id, None);
        self.parts.shard.commit_entries(id.index, NOW);
        self.parts.shard.stand(Standing::Leader { term, may_give: true }, NOW);
        self.request = term << 32;
        self.hear();
    }

    /// Stops leading. What gathers is never proposed.
    pub(crate) fn rest(&mut self) {
        self.parts.shard.stand(Standing::Follower { leader: None }, NOW);
        self.parts.shard.drop_gathering_entry(NOW);
        self.parts.shard.effects().clear();
        self.runs.clear();
    }

    fn origin(&mut self) -> Origin {
        self.request += 1;
        Origin { session: SessionId(1), request: self.request }
    }

    fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.hear();
    }

    pub(crate) fn open_partitions(&mut self) {
        for partition in PARTITIONS {
            let (id, config, start) = (GROUP, GroupConfig::default(), StartAt::Earliest);
            let open = PartitionCommand::Open {
                config: TopicConfig::of_kind(TopicKind::Queue),
                groups: vec![GroupSetting { id, config, start }],
                dead_letters: DeadLetters::NotYet,
            };
            let origin = self.origin();
            self.tell(Command::Partition(origin, partition, open));
        }
    }

    pub(crate) fn subscribe(&mut self) {
        for partition in PARTITIONS {
            let credit = Credit { messages: 100_000, bytes: 1 << 30 };
            let (origin, group, subscription) = (self.origin(), GROUP, 1);
            let subscribe = Subscribe { origin, subscription, partition, group, credit };
            self.tell(Command::Subscribe(subscribe));
        }
    }

    pub(crate) fn publish(&mut self, partition: PartitionId, count: u32, bytes: usize) {
        let mut builder = BatchBuilder::new();
        for number in 0..count {
            let text = format!("{} {number} {}", self.request, "x".repeat(bytes));
            builder.push(&Message::new(text)).unwrap();
        }
        let (origin, producer) = (self.origin(), ProducerStamp::default());
        let batch = builder.take().unwrap();
        self.tell(Command::Publish(Publish { origin, partition, producer, batch }));
    }

    /// Acks all but the last `kept` deliveries.
    pub(crate) fn ack(&mut self, kept: usize) {
        let acked = self.runs.len().saturating_sub(kept);
        let mut acked: Vec<_> = self.runs.drain(..acked).collect();
        acked.sort_by_key(|(partition, run)| (*partition, run.first));
        for partition in PARTITIONS {
            let of = acked.iter().filter(|(of, _)| *of == partition);
            let runs: Vec<_> = of.map(|(_, run)| *run).collect();
            let (origin, group, verdict, confirm) = (self.origin(), GROUP, Verdict::Ack, true);
            let settle = Settle { origin, partition, group, verdict, runs, confirm };
            self.tell(Command::Settle(settle));
        }
    }

    /// The number of messages that were delivered and not acked.
    pub(crate) fn delivered(&self) -> u32 {
        self.runs.iter().map(|(_, run)| run.count).sum()
    }

    /// Takes what the shard says, and answers its reads.
    fn hear(&mut self) {
        loop {
            for effect in self.parts.shard.effects().drain(..) {
                if let Effect::Deliver(delivery) = &effect {
                    let run = DeliveryRun {
                        first: delivery.first,
                        count: delivery.count,
                        attempt: delivery.attempt,
                        generation: delivery.generation,
                    };
                    self.runs.push((delivery.partition, run));
                }
            }
            let mut fetches = Vec::new();
            self.parts.shard.take_fetches(&mut fetches);
            if fetches.is_empty() {
                return;
            }
            for fetch in fetches {
                let bytes = self.parts.reader.read(fetch.position, fetch.length).unwrap();
                self.parts.shard.handle_fetch(fetch, Some(bytes), NOW);
            }
        }
    }

    /// Has the lane take what has gathered.
    pub(crate) fn take(&mut self) {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        self.unwritten.extend(frames);
        let mut released = Vec::new();
        self.parts.shard.take_released(&mut released);
        released.into_iter().for_each(|segment| self.parts.lane.release(segment));
        let mut packs = Vec::new();
        self.parts.shard.take_released_packs(&mut packs);
        for pack in packs {
            let mut removal = self.parts.mover.start_removal(pack).unwrap();
            while !removal.step().unwrap() {}
        }
    }

    /// The lane writes so many frames more.
    pub(crate) fn write(&mut self, count: usize) {
        let Recovered { lane, slots, shard, .. } = &mut self.parts;
        let count = count.min(self.unwritten.len());
        let frames: Vec<_> = self.unwritten.drain(..count).collect();
        while lane.spare_count() < frames.len() {
            lane.add_spare(slots.make().unwrap());
        }
        if !frames.is_empty() {
            let end = lane.append(&frames).unwrap();
            shard.written(end, NOW);
        }
        self.hear();
    }

    /// Has everything taken and written.
    pub(crate) fn write_all(&mut self) {
        while self.parts.shard.has_frames() || !self.unwritten.is_empty() {
            self.take();
            self.write(usize::MAX);
        }
    }

    pub(crate) fn commit(&mut self, index: u64) {
        self.parts.shard.commit_entries(index, NOW);
        self.hear();
    }

    /// Sends `to` so many entries more of those that it has not. Where it has others, its log is cut.
    pub(crate) fn send(&mut self, to: &mut Self, count: u64) {
        self.take();
        let theirs = to.last();
        let labels = self.parts.shard.labels().unwrap().clone();
        let is_shared = |index: &u64| {
            let held = to.parts.shard.labels().unwrap().term(*index);
            held.is_some() && held == labels.term(*index)
        };
        let first = labels.before().index;
        let shared = (first..=theirs.index).rev().find(is_shared).expect("they share an entry");
        if shared < theirs.index && labels.last().index > shared {
            to.parts.shard.cut_from(shared + 1, NOW);
        }
        for index in (shared + 1..=labels.last().index).take(count as usize) {
            let label = labels.get(index).unwrap();
            let id = EntryId { term: label.term, index };
            if label.content != EntryContent::Records {
                to.parts.shard.append_made(id, None);
                continue;
            }
            let bytes = match self.parts.shard.entry_body(index).unwrap() {
                EntryBody::Here(bytes) => bytes,
                EntryBody::InLane(fetch) => {
                    self.parts.reader.read(fetch.position, fetch.length).unwrap()
                }
            };
            let (checksum, records) = (label.body.checksum, label.body.records);
            let size = EntrySize { bytes: label.body.bytes, checksum, records };
            let entry = ReceivedEntry::check(id, size, bytes).unwrap();
            to.parts.shard.receive(&entry, NOW).unwrap();
        }
        to.hear();
    }

    /// Moves a container, if one is to be moved.
    pub(crate) fn make_a_move(&mut self) {
        let Some(container) = self.parts.shard.next_move(NOW) else { return };
        let mut held = self.parts.mover.list(container).unwrap();
        self.parts.shard.retain_wanted(&mut held);
        let moved = self.parts.mover.copy(container, &held).unwrap();
        self.parts.shard.handle_move(moved, NOW);
        self.hear();
    }

    /// The batches that are kept, and where.
    pub(crate) fn places(&self) -> Vec<String> {
        let batches = self.parts.shard.engine().batches();
        let mut places: Vec<_> = batches.map(|kept| format!("{kept:?}")).collect();
        places.sort();
        places
    }
}

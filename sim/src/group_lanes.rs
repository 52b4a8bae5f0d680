//! Lanes of replicas in a group: leaders come and go, cut what is not committed and put other entries in its place,
//! votes are cast, and a start has to make the group's log of what lies in the lane. There is no raft and no network:
//! the frames are drawn, within raft's rules, and a model says which of them count.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use sennit_engine::{DeadLetters, Engine, Record};
use sennit_journal::{Fault, FrameBuilder, Lane, LaneConfig, Position, ReplayFrom, SlotMaker};
use sennit_model::{
    BatchBuilder, Generation, Message, Offset, PartitionId, PartitionIndex, ProducerStamp,
    Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{
    Entry, EntryContent, EntryId, GroupRecord, Here, LOG_BEGIN, PackLengths, Replica, Settings,
};

use crate::{
    disk::SimulatedDisk, oracle::Violation, random::Random, trace::Trace, world::RECOVERS,
};

/// The promise that a start has the group's log: of each index the last entry, and no other.
const SAME_LOG: &str = "I9 the last frame of an index is its entry";
/// The promise that votes are kept.
const VOTE_KEPT: &str = "I9 a start knows the last vote";

const REPLICA: Replica = Replica { group: 1, id: 2, is_alone: false };
const NOW: Timestamp = Timestamp(1_800_000_000_000);
const PARTITION: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
/// The frames of a lane, with starts between them.
const FRAMES: u64 = 60;
/// How often, in a thousand frames, the replica starts again.
const STARTS: u32 = 80;

/// A failed course of frames.
pub type FailedLane = (u64, Violation);

/// Runs the lanes of `seeds`.
///
/// # Errors
/// The first seed that breaks a promise, and the promise.
pub fn run_group_lanes(seeds: Range<u64>) -> Result<u64, FailedLane> {
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        let ended = catch_unwind(AssertUnwindSafe(|| GroupLane::begin(seed)?.run()));
        let panicked = |_| Err(Violation::new("no assertion fails", "a start has panicked"));
        ended.unwrap_or_else(panicked).map_err(|violation| (seed, violation))?;
    }
    Ok(count)
}

/// An entry of the model.
struct ModelEntry {
    term: u64,
    record: Option<(Record, Position)>,
    /// The end of the partition behind it.
    end: Offset,
}

/// A lane that is written, and the model of its group's log.
struct GroupLane {
    random: Random,
    disk: SimulatedDisk,
    config: LaneConfig,
    builder: FrameBuilder,
    lane: Lane<SimulatedDisk>,
    slots: SlotMaker<SimulatedDisk>,
    log: Vec<ModelEntry>,
    /// What a start has to know.
    here: Here,
    /// The newest term of the group.
    newest_term: u64,
    /// The index up to which the group has committed, which the lane may not say yet.
    commit: u64,
    messages: u64,
}

impl GroupLane {
    fn begin(seed: u64) -> Result<Self, Violation> {
        let disk = SimulatedDisk::new(seed, Trace::new(false));
        let mut random = Random::new(seed);
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes: 4096 * [4, 8, 64][random.below(3) as usize],
            incarnation: seed | 1,
        };
        let (builder, lane, slots) = Self::open(&disk, &config)?;
        let begin = ModelEntry { term: LOG_BEGIN.term, record: None, end: Offset(0) };
        let here = Here { term: LOG_BEGIN.term, vote: 0, commit: LOG_BEGIN.index };
        Ok(Self {
            random,
            disk,
            config,
            builder,
            lane,
            slots,
            log: vec![begin],
            here,
            newest_term: LOG_BEGIN.term,
            commit: LOG_BEGIN.index,
            messages: 0,
        })
    }

    fn open(
        disk: &SimulatedDisk,
        config: &LaneConfig,
    ) -> Result<(FrameBuilder, Lane<SimulatedDisk>, SlotMaker<SimulatedDisk>), Violation> {
        let none = |_| Ok::<_, Fault>(());
        let opened = sennit_journal::recover(disk, config.clone(), ReplayFrom::Newest, none);
        let opened = opened.map_err(|fault| Violation::new(RECOVERS, fault.to_string()))?;
        Ok((opened.builder, opened.lane, opened.slots))
    }

    fn run(mut self) -> Result<(), Violation> {
        self.entry();
        for _ in 0..FRAMES {
            match self.random.weighted(&[6, 2, 2]) {
                0 => self.entry(),
                1 => self.vote(),
                _ => {
                    let uncommitted = self.last_index() - self.commit;
                    self.commit += self.random.below(uncommitted + 1);
                    self.local();
                }
            }
            if self.random.chance(STARTS) {
                self.start()?;
            }
        }
        self.start()
    }

    fn last_index(&self) -> u64 {
        self.log.len() as u64
    }

    /// Appends an entry, which may take the place of some that are not committed.
    fn entry(&mut self) {
        if self.random.chance(400) {
            let cut = self.random.below(self.last_index() - self.commit + 1);
            self.log.truncate((self.last_index() - cut) as usize);
        }
        self.newest_term += u64::from(self.random.chance(300));
        let ModelEntry { term: last_term, end: last_end, .. } = self.log[self.log.len() - 1];
        // What a leader hands on may be of any earlier term.
        let term = self.random.between(last_term, self.newest_term);
        let record = self.record(last_end);
        let end = match &record {
            Some(Record::Appended { first, batch, .. }) => first.plus(u64::from(batch.count())),
            _ => last_end,
        };
        let id = EntryId { term, index: self.last_index() + 1 };
        let (content, commit) = match record {
            Some(_) => (EntryContent::Records, self.commit),
            None => (EntryContent::TermBegan, 0),
        };
        self.here.commit = self.here.commit.max(commit);
        self.push(&GroupRecord::Entry(Entry { id, commit, content }));
        let record = record.map(|record| {
            let mut head = Vec::new();
            record.encode_head(&mut head);
            let batch = record.batch().map(|batch| &batch.bytes()[..]).unwrap_or_default();
            let body = self.builder.push(record.kind(), &[&head, batch]).expect("frames are short");
            (record, body.plus(head.len() as u64))
        });
        self.write();
        self.log.push(ModelEntry { term, record, end });
    }

    /// The record of the next entry, if it has one.
    fn record(&mut self, end: Offset) -> Option<Record> {
        if self.log.iter().all(|entry| entry.record.is_none()) {
            return Some(Record::PartitionOpened {
                partition: PARTITION,
                config: TopicConfig::of_kind(TopicKind::Queue),
                dead_letters: DeadLetters::NotYet,
                groups: Vec::new(),
            });
        }
        if self.random.chance(200) {
            return None;
        }
        let mut batch = BatchBuilder::new();
        for _ in 0..self.random.between(1, 3) {
            self.messages += 1;
            batch.push(&Message::new(format!("message {}", self.messages))).expect("it is short");
        }
        Some(Record::Appended {
            partition: PARTITION,
            first: end,
            appended_at: NOW,
            producer: ProducerStamp::default(),
            batch: batch.take().expect("it has a message"),
            note: None,
        })
    }

    /// Votes in a new term, or for the first time in this one.
    fn vote(&mut self) {
        let has_voted = self.here.term == self.newest_term;
        self.newest_term += u64::from(has_voted || self.random.chance(500));
        (self.here.term, self.here.vote) = (self.newest_term, self.random.between(1, 3));
        self.push(&self.here.into());
        self.write();
    }

    /// A frame of the replica's own, which says how much is committed.
    fn local(&mut self) {
        self.here.commit = self.here.commit.max(self.commit);
        if self.here.term < self.newest_term {
            (self.here.term, self.here.vote) = (self.newest_term, 0);
        }
        self.push(&self.here.into());
        self.write();
    }

    fn push(&mut self, record: &GroupRecord) {
        self.builder.push(record.kind(), &[&record.encode()]).expect("frames are short");
    }

    fn write(&mut self) {
        let frame = self.builder.seal().expect("a record was pushed");
        if frame.first_of_segment {
            self.lane.add_spare(self.slots.make().expect("the disk has no faults"));
        }
        self.lane.append(&[frame]).expect("the disk has no faults");
    }

    /// Starts the replica, and compares what it makes of its lane with the model.
    fn start(&mut self) -> Result<(), Violation> {
        self.disk.crash();
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 1,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(REPLICA),
        };
        let started = sennit_shard::recover(&self.disk, self.config.clone(), settings, NOW);
        let mut started = started.map_err(|error| Violation::new(RECOVERS, error.to_string()))?;
        let last = self.log.last().map_or(0, |last| last.term);
        let expected = match self.here.term < last {
            true => Here { term: last, vote: 0, ..self.here },
            false => self.here,
        };
        let shard = &mut started.shard;
        let here = shard.here().unwrap_or_default();
        if here != expected {
            return Err(Violation::new(VOTE_KEPT, format!("{here:?}, it was {expected:?}")));
        }
        let labels = shard.labels().expect("it is a replica");
        for (index, entry) in (1..).zip(&self.log) {
            let term = labels.term(index);
            if term != Some(entry.term) {
                let detail = format!("entry {index} of term {} has term {term:?}", entry.term);
                return Err(Violation::new(SAME_LOG, detail));
            }
        }
        if labels.last().index != self.last_index() {
            let detail = format!("{} entries instead of {}", labels.last().index, self.log.len());
            return Err(Violation::new(SAME_LOG, detail));
        }
        self.compare(shard.engine())?;
        (self.builder, self.lane, self.slots) = Self::open(&self.disk, &self.config)?;
        Ok(())
    }

    /// Compares a state with that of the model's entries.
    fn compare(&self, found: &Engine) -> Result<(), Violation> {
        let mut engine = Engine::new(Generation(0), NOW);
        for (record, position) in self.log.iter().filter_map(|entry| entry.record.as_ref()) {
            engine.apply(record, position.0);
            engine.take_freed();
        }
        let expected = engine.replicated_state(NOW);
        if let Some((one, other)) = found.replicated_state(NOW).difference(&expected) {
            return Err(Violation::new(SAME_LOG, format!("\n    {one}\n    {other}")));
        }
        let places = |of: &Engine| {
            let mut places: Vec<_> = of.places().map(|place| place.position).collect();
            places.sort_unstable();
            places
        };
        match places(found) == places(&engine) {
            true => Ok(()),
            false => Err(Violation::new(SAME_LOG, "a batch is that of an overridden entry")),
        }
    }
}

//! The oracle's model of a partition: its messages in order, and its producers. It is a plain list on purpose,
//! without the engine's code.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_engine::{DeadLetters, GroupSetting, Refusal};
use sennit_model::{
    Batch, GroupId, Offset, PartitionId, ProducerId, ProducerStamp, Timestamp, TopicConfig,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{Violation, group::GroupModel};
use crate::numbered_messages;

/// One message in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The hash of all its bytes, of key and payload, and its length.
    pub(super) hash: u64,
    pub(super) content: u64,
    pub(super) length: u64,
    /// The hash of its key, if it has one, and whether it is the key's end.
    pub(super) key: Option<u64>,
    pub(super) is_tombstone: bool,
    pub(super) appended_at: Timestamp,
    pub(super) due: Option<Timestamp>,
    pub(super) expiry: Option<Timestamp>,
    /// Batches of all partitions are numbered in the order in which they were handed over.
    pub(super) batch: u64,
    pub(super) stamp: ProducerStamp,
    /// Durable once this turn is; see [`super::Oracle`].
    pub(super) turn: u64,
}

/// The state of a partition's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionLife {
    /// Opened in this turn; 0 when that is durable for sure.
    Open(u64),
    /// Dropped in this turn.
    Dropped(u64),
}

/// One partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionModel {
    pub(super) existence: PartitionLife,
    pub(super) config: TopicConfig,
    pub(super) dead_letters: DeadLetters,
    /// The shortest age and the fewest bytes that retention was ever set to.
    pub(super) least_age: Option<Duration>,
    pub(super) least_bytes: Option<u64>,
    pub(super) ever_until_settled: bool,
    /// The shortest time that tombstones were ever kept, if the latest of each key ever was.
    pub(super) least_tombstone_age: Option<Duration>,
    pub(super) entries: Vec<Entry>,
    /// The oldest offset kept, and the end, as the shard said last.
    pub(super) start: u64,
    pub(super) groups: BTreeMap<GroupId, GroupModel>,
    /// Offsets that all groups of some time may have been through with: what is not there any more
    /// is owed to no group that begins later.
    pub(super) holes: BTreeSet<u64>,
    /// Offsets that could not be read in this life or an earlier one: they come out of turn, once
    /// they can be.
    pub(super) gaps: BTreeSet<u64>,
    /// What this life has said to be unreadable.
    pub(super) unreadable: BTreeSet<u64>,
    /// Groups that were taken away, in which turn; those that are there again all the same have
    /// the last of all turns.
    pub(super) gone: BTreeMap<GroupId, u64>,
    /// Where this partition holds dead letters: of whom each is, by its offset here.
    pub(super) dead_letters_by_offset: BTreeMap<u64, DeadLetter>,
    /// One more than the highest offset anybody was told of.
    pub(super) seen_end: u64,
    /// The end of a partition of dead letters, as the shard said last.
    pub(super) reported_end: u64,
}

/// A dead letter: of which partition, group and offset, and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeadLetter {
    pub(super) source: PartitionId,
    pub(super) group: GroupId,
    pub(super) offset: u64,
    pub(super) hash: u64,
}

/// The expected outcome of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedOutcome {
    /// It is appended at this offset.
    New(u64),
    /// It was appended at this offset.
    Duplicate(u64),
}

impl PartitionModel {
    pub(super) fn new(config: TopicConfig, turn: u64) -> Self {
        Self {
            existence: PartitionLife::Open(turn),
            config,
            dead_letters: DeadLetters::NotYet,
            least_age: None,
            least_bytes: None,
            ever_until_settled: false,
            least_tombstone_age: None,
            entries: Vec::new(),
            start: 0,
            groups: BTreeMap::new(),
            holes: BTreeSet::new(),
            gaps: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            gone: BTreeMap::new(),
            dead_letters_by_offset: BTreeMap::new(),
            seen_end: 0,
            reported_end: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.existence, PartitionLife::Open(_))
    }

    /// Whether messages are kept until they are settled or expire.
    pub(super) fn is_clear(&self) -> bool {
        let least = (self.least_age, self.least_bytes, self.least_tombstone_age);
        matches!(least, (None, None, None))
    }

    /// Takes settings and groups, as of `turn`; says whether anything is other than before.
    pub(super) fn open(
        &mut self,
        config: TopicConfig,
        groups: &[GroupSetting],
        dead_letters: DeadLetters,
        (turn, now): (u64, Timestamp),
    ) -> bool {
        let was = self.groups.values().map(|group| group.setting);
        let changes = self.config != config
            || self.dead_letters != dead_letters
            || !was.eq(groups.iter().copied());
        self.config = config;
        self.dead_letters = dead_letters;
        self.least_age = [self.least_age, config.retention.age].into_iter().flatten().min();
        self.least_bytes = [self.least_bytes, config.retention.bytes].into_iter().flatten().min();
        self.ever_until_settled |= config.retention.until_settled;
        let tombstone_ages = [self.least_tombstone_age, config.retention.latest_per_key];
        self.least_tombstone_age = tombstone_ages.into_iter().flatten().min();
        self.note_holes(now);
        let gone: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in gone.into_iter().filter(|id| groups.iter().all(|kept| kept.id != *id)) {
            self.groups.remove(&group);
            self.gone.insert(group, turn);
        }
        // A group that came back in a crash goes again.
        self.gone.values_mut().filter(|gone| **gone == u64::MAX).for_each(|gone| *gone = turn);
        self.note_holes(now);
        for setting in groups {
            let end = self.end();
            let start = self.start;
            let holes = &self.holes;
            let made = || GroupModel::new(*setting, (start, end), holes.clone(), turn);
            let group = self.groups.entry(setting.id).or_insert_with(made);
            group.set(*setting);
        }
        let is_clear = self.is_clear();
        self.groups.values_mut().for_each(|group| group.is_clear &= is_clear);
        changes
    }

    /// The offset of the next message, as far as it is known.
    pub(super) fn end(&self) -> u64 {
        (self.entries.len() as u64).max(self.seen_end).max(self.reported_end)
    }

    /// No offset from here on can have been delivered.
    pub(super) fn limit(&self) -> u64 {
        if self.dead_letters == DeadLetters::Stay { u64::MAX } else { self.entries.len() as u64 }
    }

    /// What a batch must come to.
    pub(super) fn admit(
        &self,
        stamp: ProducerStamp,
        count: u32,
    ) -> Result<ExpectedOutcome, Refusal> {
        admit(self.entries.iter().map(|entry| entry.stamp), stamp, count)
    }

    /// Adds the messages of a batch that was accepted.
    pub(super) fn append(
        &mut self,
        batch: &Batch,
        stamp: ProducerStamp,
        now: Timestamp,
        (number, turn): (u64, u64),
    ) {
        for (index, message) in (0..).zip(batch.messages()) {
            let live = message.time_to_live().or(self.config.time_to_live);
            self.entries.push(Entry {
                hash: xxh3_64(message.encoded()),
                content: numbered_messages::content_hash(&message),
                length: message.encoded().len() as u64,
                key: Some(message.key()).filter(|key| !key.is_empty()).map(xxh3_64),
                is_tombstone: message.is_tombstone(),
                appended_at: now,
                due: message.delay().map(|delay| now.plus(delay)),
                expiry: live.map(|span| now.plus(span)),
                batch: number,
                stamp: ProducerStamp { first_sequence: stamp.first_sequence + index, ..stamp },
                turn,
            });
        }
    }

    /// How many messages are there for sure once everything up to `durable_turn` is durable.
    pub(super) fn durable_end(&self, durable_turn: u64) -> u64 {
        self.entries.iter().take_while(|entry| entry.turn <= durable_turn).count() as u64
    }

    /// The shard says what it keeps: everything that is gone must have been free to go.
    pub(super) fn kept(
        &mut self,
        id: PartitionId,
        start: Offset,
        now: Timestamp,
    ) -> Result<(), Violation> {
        for offset in self.start..start.0 {
            if !self.may_be_gone(offset, now) {
                return Err(Violation::new(
                    "I1 a message is freed only when retention allows it",
                    format!("offset {offset} of {id} is gone, the oldest kept is {start}"),
                ));
            }
        }
        if start.0 < self.start {
            return Err(Violation::new(
                "I4 offsets never go back",
                format!("the oldest offset kept went from {} back to {start}", self.start),
            ));
        }
        self.start = start.0;
        Ok(())
    }

    /// After a crash the oldest kept may be older than it was: what was freed by a record that is lost is
    /// back. Between what is back lie batches that were freed by records that are not lost, and which
    /// those are cannot be told: groups that saw to it may be forgotten. All of it was free to go once.
    pub(super) fn goes_back(&mut self, start: Offset) {
        self.holes.extend(start.0..self.start);
        self.start = self.start.min(start.0);
    }

    fn note_holes(&mut self, now: Timestamp) {
        if !self.groups.is_empty() {
            let gone = (self.start..self.entries.len() as u64)
                .filter(|&offset| self.may_be_gone(offset, now));
            let gone: Vec<u64> = gone.collect();
            self.holes.extend(gone);
        }
    }

    /// Whether a message may be gone because its key has a later one, or because it is the end of its
    /// key and old.
    pub(super) fn may_be_compacted(&self, offset: u64, now: Timestamp) -> bool {
        let Some(age) = self.least_tombstone_age else { return false };
        let Some(entry) = self.entries.get(offset as usize) else { return false };
        let Some(key) = entry.key else { return false };
        entry.is_tombstone && entry.appended_at.plus(age) <= now
            || self.entries[offset as usize + 1..].iter().any(|later| later.key == Some(key))
    }

    /// An offset that a group has seen though its key ended later, which the group has not seen and
    /// never will: the key has come back from the dead. Where nothing else explains it.
    pub(super) fn resurrected(&self, group: &GroupModel) -> Option<u64> {
        let least = (self.least_age, self.least_bytes, self.ever_until_settled);
        let is_simple = matches!(least, (None, None, false));
        if self.least_tombstone_age.is_none() || !is_simple || !self.gaps.is_empty() {
            return None;
        }
        let ends = |(offset, entry): &(usize, &Entry)| {
            let is_last = !self.entries[offset + 1..].iter().any(|later| later.key == entry.key);
            entry.is_tombstone && is_last && entry.due.is_none() && entry.expiry.is_none()
        };
        let unseen = |offset: &usize| !group.states.contains_key(&(*offset as u64));
        self.entries.iter().enumerate().filter(ends).filter(|(at, _)| unseen(at)).find_map(
            |(end, entry)| {
                let earlier = self.entries[..end].iter().enumerate();
                let mut seen = earlier.filter(|(at, held)| held.key == entry.key && !unseen(at));
                seen.next().map(|(at, _)| at as u64)
            },
        )
    }

    pub(super) fn may_be_gone(&self, offset: u64, now: Timestamp) -> bool {
        let Some(entry) = self.entries.get(offset as usize) else { return true };
        if self.least_age.is_some_and(|age| entry.appended_at.plus(age) <= now) {
            return true;
        }
        if self.may_be_compacted(offset, now) {
            return true;
        }
        let batch = entry.batch;
        let from = self.entries.partition_point(|held| held.batch < batch);
        if let Some(limit) = self.least_bytes
            && self.entries[from..].iter().map(|held| held.length).sum::<u64>() > limit
        {
            return true;
        }
        let expired = entry.expiry.is_some_and(|expiry| expiry <= now);
        self.ever_until_settled
            && self.groups.values().all(|group| expired || group.may_be_through(offset))
    }
}

/// What a batch must come to behind messages with these stamps.
pub(super) fn admit(
    stamps: impl ExactSizeIterator<Item = ProducerStamp> + Clone,
    stamp: ProducerStamp,
    count: u32,
) -> Result<ExpectedOutcome, Refusal> {
    let end = stamps.len() as u64;
    if stamp.id == ProducerId(0) {
        return Ok(ExpectedOutcome::New(end));
    }
    let own = || (0..).zip(stamps.clone()).filter(|(_, held)| held.id == stamp.id);
    let current = own().map(|(_, held)| held.epoch).max();
    if let Some(current) = current.filter(|current| stamp.epoch < *current) {
        return Err(Refusal::ProducerFenced { current, received: stamp.epoch });
    }
    let received = stamp.first_sequence;
    let of_epoch = || own().filter(|(_, held)| held.epoch == stamp.epoch);
    let expected = of_epoch().count() as u64;
    if received == expected {
        return Ok(ExpectedOutcome::New(end));
    }
    if received > expected {
        return Err(Refusal::SequenceGap { expected, received });
    }
    if received + u64::from(count) > expected {
        return Err(Refusal::SequenceOverlap { expected, received, count });
    }
    let first = of_epoch().find(|(_, held)| held.first_sequence == received);
    Ok(ExpectedOutcome::Duplicate(first.map_or(0, |(offset, _)| offset)))
}

//! The oracle's model of a partition: its messages in order, and its producers. It is a plain list on purpose,
//! without the engine's code.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_engine::{DeadLetters, GroupSetting, Refusal};
use sennit_model::{
    Batch, GroupId, Offset, PartitionId, ProducerId, ProducerStamp, Timestamp, TopicConfig,
    WhenFull,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Violation,
    fair::{self, Says, header_delay},
    group::GroupModel,
    replacements::value_of,
};
use crate::numbered_messages;

/// One message in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The hash of all its bytes.
    pub(super) hash: u64,
    /// The hash of its key and payload.
    pub(super) content: u64,
    /// Its encoded length in bytes.
    pub(super) length: u64,
    /// The hash of its key, if it has one.
    pub(super) key: Option<u64>,
    pub(super) is_tombstone: bool,
    /// Its deduplication value, if it has one.
    pub(super) dedup_value: Option<u8>,
    pub(super) appended_at: Timestamp,
    pub(super) due: Option<Timestamp>,
    /// Whether its delay was certainly cancelled.
    pub(super) is_cancelled: bool,
    pub(super) expiry: Option<Timestamp>,
    /// The number of its batch among the batches of all partitions, in the order of their publishes.
    pub(super) batch: u64,
    pub(super) stamp: ProducerStamp,
    /// The turn in which it was appended; 0 when it is certainly durable.
    pub(super) turn: u64,
    /// What its headers say to a scheduler, as an index of the partition's [`Says`].
    pub(super) says: usize,
}

/// The state of a partition's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionLife {
    /// Opened in this turn; 0 when that is certainly durable.
    Open(u64),
    /// Dropped in this turn; 0 when that is certainly durable.
    Dropped(u64),
}

/// One partition.
#[derive(Clone, Debug)]
pub(super) struct PartitionModel {
    pub(super) existence: PartitionLife,
    pub(super) config: TopicConfig,
    pub(super) dead_letters: DeadLetters,
    /// The shortest age and the fewest bytes that its retention ever had.
    pub(super) least_age: Option<Duration>,
    pub(super) least_bytes: Option<u64>,
    pub(super) ever_until_settled: bool,
    /// Whether its limit ever dropped the oldest messages.
    pub(super) ever_drops: bool,
    /// The shortest time that its retention ever kept tombstones, if it ever kept the latest message of each key.
    pub(super) least_tombstone_age: Option<Duration>,
    pub(super) entries: Vec<Entry>,
    /// What headers said, each once.
    pub(super) said: Vec<Says>,
    /// The oldest offset kept, as the shard last reported it.
    pub(super) start: u64,
    /// Messages before this one may have been dropped because the topic was full.
    pub(super) dropped_before: u64,
    /// It has looked for duplicates, in a window no longer than now, since before this message, as far as the oracle
    /// knows.
    pub(super) dedup_since: u64,
    pub(super) groups: BTreeMap<GroupId, GroupModel>,
    /// Offsets that at some time no group needed any more: they may be freed, so later groups may not receive them.
    pub(super) holes: BTreeSet<u64>,
    /// Offsets that were unreadable in this generation or an earlier one: they are delivered out of order once they
    /// are readable.
    pub(super) gaps: BTreeSet<u64>,
    /// Offsets that this generation has reported as unreadable.
    pub(super) unreadable: BTreeSet<u64>,
    /// Deleted groups and the turn of the deletion; `u64::MAX` for a group that a crash has brought back.
    pub(super) deleted_groups: BTreeMap<GroupId, u64>,
    /// The dead letters that this partition holds, by their offset here.
    pub(super) dead_letters_by_offset: BTreeMap<u64, DeadLetter>,
    /// One more than the highest offset that a client has seen.
    pub(super) visible_end: u64,
    /// The end, as the shard last described it.
    pub(super) described_end: u64,
}

/// A dead letter: its source partition, group and offset, and the hash of its bytes.
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
    /// The batch is appended at this offset.
    New(u64),
    /// The batch was appended at this offset before.
    Duplicate(u64),
}

impl ExpectedOutcome {
    /// The offset of the batch.
    pub(super) fn offset(&self) -> u64 {
        match self {
            Self::New(offset) | Self::Duplicate(offset) => *offset,
        }
    }
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
            ever_drops: false,
            least_tombstone_age: None,
            entries: Vec::new(),
            said: vec![Says::default()],
            start: 0,
            dropped_before: 0,
            dedup_since: 0,
            groups: BTreeMap::new(),
            holes: BTreeSet::new(),
            gaps: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            deleted_groups: BTreeMap::new(),
            dead_letters_by_offset: BTreeMap::new(),
            visible_end: 0,
            described_end: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.existence, PartitionLife::Open(_))
    }

    /// Whether messages are kept until they are settled or expire.
    pub(super) fn keeps_unsettled(&self) -> bool {
        let least = (self.least_age, self.least_bytes, self.least_tombstone_age);
        matches!(least, (None, None, None)) && !self.ever_drops
    }

    /// The settings of its groups.
    pub(super) fn settings(&self) -> impl Iterator<Item = &GroupSetting> {
        self.groups.values().map(|group| &group.setting)
    }

    /// Applies settings and groups in `turn`. Returns whether anything changes.
    pub(super) fn open(
        &mut self,
        config: TopicConfig,
        groups: &[GroupSetting],
        dead_letters: DeadLetters,
        turn: u64,
        now: Timestamp,
    ) -> bool {
        let settings = self.groups.values().map(|group| &group.setting);
        let changes =
            self.config != config || self.dead_letters != dead_letters || !settings.eq(groups);
        let retention = config.retention;
        self.note_dedup(config.dedup);
        self.ever_drops |= config.limit.when_full == WhenFull::DropOldest;
        self.config = config;
        self.dead_letters = dead_letters;
        self.least_age = [self.least_age, retention.age].into_iter().flatten().min();
        self.least_bytes = [self.least_bytes, retention.bytes].into_iter().flatten().min();
        self.ever_until_settled |= retention.until_settled;
        let tombstone_ages = [self.least_tombstone_age, retention.latest_per_key];
        self.least_tombstone_age = tombstone_ages.into_iter().flatten().min();
        self.note_holes(now);
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in ids.into_iter().filter(|id| groups.iter().all(|kept| kept.id != *id)) {
            self.groups.remove(&group);
            self.deleted_groups.insert(group, turn);
        }
        // A group that a crash has brought back is deleted again.
        let deletions = self.deleted_groups.values_mut();
        deletions.filter(|deleted| **deleted == u64::MAX).for_each(|deleted| *deleted = turn);
        self.note_holes(now);
        for setting in groups {
            let kept = self.start..self.end();
            let holes = &self.holes;
            let create = || GroupModel::new(setting.clone(), kept, holes.clone(), turn);
            let group = self.groups.entry(setting.id).or_insert_with(create);
            group.set(setting.clone(), turn);
            group.ever_fair |= fair::is_fair(&self.config, &setting.config);
        }
        let keeps_unsettled = self.keeps_unsettled();
        self.groups.values_mut().for_each(|group| group.keeps_unsettled &= keeps_unsettled);
        changes
    }

    /// What the headers of a message say, and its number among all that was said.
    pub(super) fn says(&self, offset: u64) -> (&Says, usize) {
        let index = self.entries.get(offset as usize).map_or(0, |entry| entry.says);
        (&self.said[index], index)
    }

    /// The offset of the next message, as far as the oracle knows it.
    pub(super) fn end(&self) -> u64 {
        (self.entries.len() as u64).max(self.visible_end).max(self.described_end)
    }

    /// The offset from which on nothing can have been delivered.
    pub(super) fn limit(&self) -> u64 {
        if self.dead_letters == DeadLetters::Stay { u64::MAX } else { self.entries.len() as u64 }
    }

    /// The expected outcome of a publish.
    pub(super) fn admit(
        &self,
        stamp: ProducerStamp,
        count: u32,
    ) -> Result<ExpectedOutcome, Refusal> {
        admit(self.entries.iter().map(|entry| entry.stamp), stamp, count)
    }

    /// Appends the messages of an accepted batch, which has this number among all batches.
    pub(super) fn append(
        &mut self,
        batch: &Batch,
        stamp: ProducerStamp,
        now: Timestamp,
        batch_number: u64,
        turn: u64,
    ) {
        for (index, message) in (0..).zip(batch.messages()) {
            let says = Says::of(&message, self.config.fields.as_deref());
            let said = self.said.iter().position(|held| *held == says).unwrap_or_else(|| {
                self.said.push(says);
                self.said.len() - 1
            });
            let by_header = header_delay(&message, self.config.fields.as_deref());
            let time_to_live = message.time_to_live().or(self.config.time_to_live);
            self.entries.push(Entry {
                hash: xxh3_64(message.encoded()),
                content: numbered_messages::content_hash(&message),
                length: message.encoded().len() as u64,
                key: Some(message.key()).filter(|key| !key.is_empty()).map(xxh3_64),
                is_tombstone: message.is_tombstone(),
                dedup_value: value_of(&message),
                appended_at: now,
                due: message.delay().or(by_header).map(|delay| now.plus(delay)),
                is_cancelled: false,
                expiry: time_to_live.map(|span| now.plus(span)),
                batch: batch_number,
                stamp: ProducerStamp { first_sequence: stamp.first_sequence + index, ..stamp },
                turn,
                says: said,
            });
        }
    }

    /// The number of messages that certainly exist once every turn up to `durable_turn` is durable.
    pub(super) fn durable_end(&self, durable_turn: u64) -> u64 {
        self.entries.iter().take_while(|entry| entry.turn <= durable_turn).count() as u64
    }

    /// Checks the oldest offset that the shard keeps: every freed message must have been free to go.
    pub(super) fn check_start(
        &mut self,
        id: PartitionId,
        start: Offset,
        now: Timestamp,
    ) -> Result<(), Violation> {
        for offset in self.start..start.0 {
            if !self.may_be_freed(offset, now) {
                return Err(Violation::new(
                    "I1 a message is freed only when retention allows it",
                    format!("offset {offset} of {id} is freed, the oldest kept is {start}"),
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

    /// Notes the oldest offset after a crash. It may be older than before, because messages exist again whose freeing
    /// record is lost. Batches between them may still be freed, and the oracle cannot tell which. All of them were free
    /// to go once.
    pub(super) fn note_restored_start(&mut self, start: Offset) {
        self.holes.extend(start.0..self.start);
        self.start = self.start.min(start.0);
    }

    fn note_holes(&mut self, now: Timestamp) {
        if !self.groups.is_empty() {
            let freed = (self.start..self.entries.len() as u64)
                .filter(|&offset| self.may_be_freed(offset, now));
            let freed: Vec<u64> = freed.collect();
            self.holes.extend(freed);
        }
    }

    /// Whether compaction may have freed a message: its key has a later message, or it is an old tombstone.
    pub(super) fn may_be_compacted(&self, offset: u64, now: Timestamp) -> bool {
        let Some(age) = self.least_tombstone_age else { return false };
        let Some(entry) = self.entries.get(offset as usize) else { return false };
        let Some(key) = entry.key else { return false };
        entry.is_tombstone && entry.appended_at.plus(age) <= now
            || self.entries[offset as usize + 1..].iter().any(|later| later.key == Some(key))
    }

    /// An offset that a group has received although the last message of its key is a tombstone that the group has not
    /// received: the key exists again after its deletion. `None` where another rule may have freed messages.
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
        let is_unseen = |offset: &usize| !group.states.contains_key(&(*offset as u64));
        self.entries.iter().enumerate().filter(ends).filter(|(at, _)| is_unseen(at)).find_map(
            |(end, entry)| {
                let earlier = self.entries[..end].iter().enumerate();
                let mut received =
                    earlier.filter(|(at, held)| held.key == entry.key && !is_unseen(at));
                received.next().map(|(at, _)| at as u64)
            },
        )
    }

    /// Whether retention may have freed a message.
    pub(super) fn may_be_freed(&self, offset: u64, now: Timestamp) -> bool {
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
        let dropped = offset < self.dropped_before;
        self.ever_until_settled
            && self.groups.values().all(|group| expired || dropped || group.may_be_settled(offset))
    }
}

/// The expected outcome of a publish to a partition that holds messages with these stamps.
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

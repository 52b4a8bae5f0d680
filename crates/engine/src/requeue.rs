//! Messages that are published again: where each goes, and the one record by which it is appended there and settled
//! where it was. Which ones, `workbench` says.

use std::collections::BTreeMap;

use bytes::Bytes;
use sennit_model::{
    BatchBuilder, Durability, GroupId, Header, HeaderKind, Message, MessageView, Offset,
    OffsetRange, PartitionId, PartitionIndex, ProducerStamp, Timestamp, TopicId,
    limits::WORKBENCH_PAGE_BYTES,
};

use crate::{
    admission::check_keys,
    command::DeadLetters,
    dead_letter::{
        HEADER_SOURCE_GROUP, HEADER_SOURCE_GROUP_ID, HEADER_SOURCE_PARTITION, HEADER_SOURCE_TOPIC,
        HEADER_SOURCE_TOPIC_ID,
    },
    engine::{Engine, Journal, RUNS_PER_RECORD_MAX},
    group::{Group, range},
    partition::Partition,
    record::{Outcome, Record},
    refusal::Refusal,
    runs::Runs,
    topic_limit::{MadeRoom, make_room, settled},
    walk::{Destination, Edit, HEADER_REDRIVE, MessageState, Requeue, number, redrive_of},
};

/// Most messages of one record.
const MESSAGES_MAX: usize = 4096;

/// Most records that make room in the frame of a batch.
const SETTLED_TOGETHER_MAX: usize = 512;

/// What a walk sees of the shard while it looks at a partition.
pub(crate) struct Fit<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) partition: &'a Partition,
    pub(crate) now: Timestamp,
}

/// A message that is published again.
pub(crate) struct Fitting {
    offset: u64,
    target: PartitionId,
    message: Message,
    /// The group of the target that gets it, if the others do not.
    meant: Option<GroupId>,
    /// Groups of its own partition that are through with it too.
    others: Vec<GroupId>,
}

impl Fitting {
    /// A message that goes to another topic after a failed attempt.
    pub(crate) fn routed(offset: u64, target: PartitionId, message: Message) -> Self {
        Self { offset, target, message, meant: None, others: Vec::new() }
    }
}

/// Messages of one target that are published again together.
struct Together {
    builder: BatchBuilder,
    taken: Runs<()>,
    /// Of each message, in order.
    meant: Vec<Option<GroupId>>,
    others: BTreeMap<GroupId, Runs<()>>,
}

/// Messages that are published again, by target.
#[derive(Default)]
pub(crate) struct Requeues {
    by_target: BTreeMap<PartitionId, Together>,
    count: usize,
    bytes: usize,
}

impl Requeues {
    /// Whether a message of so many bytes is to wait until those before it are published.
    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        self.count > 0
            && (self.bytes + bytes > WORKBENCH_PAGE_BYTES
                || self.count >= MESSAGES_MAX.min(RUNS_PER_RECORD_MAX))
    }

    /// Adds a message; says whether it may be published.
    pub(crate) fn push(&mut self, fitting: Fitting) -> bool {
        let together = self.by_target.entry(fitting.target).or_insert_with(|| Together {
            builder: BatchBuilder::for_broker(),
            taken: Runs::default(),
            meant: Vec::new(),
            others: BTreeMap::new(),
        });
        let before = together.builder.byte_count();
        if together.builder.push(&fitting.message).is_err() {
            return false;
        }
        self.count += 1;
        self.bytes += together.builder.byte_count() - before;
        together.taken.insert(fitting.offset, fitting.offset + 1, ());
        together.meant.push(fitting.meant);
        for group in fitting.others {
            let runs = together.others.entry(group).or_default();
            runs.insert(fitting.offset, fitting.offset + 1, ());
        }
        true
    }
}

impl Fit<'_> {
    /// Where a message goes; `Ok(None)` if it is not one of those that are meant, an error if it has nowhere to go.
    pub(crate) fn fitting(
        &self,
        requeue: &Requeue,
        group: GroupId,
        view: &MessageView<'_>,
        state: &MessageState,
        offset: u64,
    ) -> Result<Option<Fitting>, ()> {
        let here = self.partition.id;
        let (mut meant, mut others) = (None, Vec::new());
        let target = match requeue.to {
            Destination::Topic { topic, partitions } => {
                let index = PartitionIndex(here.index.0 % partitions.max(1));
                PartitionId { topic, index }
            }
            Destination::Source => {
                let target = self.source_of(view).ok_or(())?;
                meant = source_group(view);
                target
            }
            Destination::DeadLetters => {
                let Some(left) = self.taken_back(group, view, offset) else { return Ok(None) };
                others = left;
                let DeadLetters::To(topic) = self.partition.dead_letters else { return Err(()) };
                PartitionId { topic, ..here }
            }
        };
        if target == here || !self.engine.partitions.has(&target) {
            return Err(());
        }
        let message = message(view, requeue, state, self.now);
        Ok(Some(Fitting { offset, target, message, meant, others }))
    }

    /// The partition that a dead letter comes from, if its own dead letters come here still.
    fn source_of(&self, view: &MessageView<'_>) -> Option<PartitionId> {
        let here = self.partition.id;
        // Dead letters of old have the number under the name.
        let topic =
            number(view, HEADER_SOURCE_TOPIC_ID).or_else(|| number(view, HEADER_SOURCE_TOPIC));
        let index = number(view, HEADER_SOURCE_PARTITION).map_or(here.index, PartitionIndex);
        let source = PartitionId { topic: TopicId(topic?), index };
        let held = self.engine.partitions.peek(&source)?;
        (held.partition().dead_letters == DeadLetters::To(here.topic)).then_some(source)
    }

    /// The other groups that still have a message of a redrive; `None` if somebody has had it, or has it.
    fn taken_back(&self, id: GroupId, view: &MessageView<'_>, offset: u64) -> Option<Vec<GroupId>> {
        redrive_of(view)?;
        let groups = &self.partition.groups;
        let meant =
            source_group(view).filter(|meant| groups.iter().any(|held| held.id() == *meant));
        if meant.is_some_and(|meant| meant != id) {
            return None;
        }
        let mut others = Vec::new();
        for held in groups.iter().filter(|held| held.id() != id) {
            let is_settled = held.settled.holds(offset, offset + 1);
            if !held.leased_within(offset, offset + 1).is_empty() || meant.is_none() && is_settled {
                return None;
            }
            if !is_settled {
                others.push(held.id());
            }
        }
        Some(others)
    }
}

/// The group in which a dead letter failed.
fn source_group(view: &MessageView<'_>) -> Option<GroupId> {
    let id = number(view, HEADER_SOURCE_GROUP_ID).or_else(|| number(view, HEADER_SOURCE_GROUP));
    id.map(GroupId)
}

/// A message as it is published again: ready at once, or when its publisher's delay is over.
pub(crate) fn message(
    view: &MessageView<'_>,
    requeue: &Requeue,
    state: &MessageState,
    now: Timestamp,
) -> Message {
    let unchanged = Edit::default();
    let edit = requeue.edit.as_ref().unwrap_or(&unchanged);
    let goes = |name: &str| {
        name == HEADER_REDRIVE
            || edit.remove.iter().any(|removed| removed == name)
            || edit.set.iter().any(|header| header.name == name)
    };
    let kept = view.headers().filter_map(Result::ok).filter(|(name, ..)| !goes(name));
    let mut headers: Vec<Header> = kept
        .map(|(name, kind, value)| Header {
            name: name.to_owned(),
            kind,
            value: Bytes::copy_from_slice(value),
        })
        .collect();
    headers.extend(edit.set.iter().cloned());
    if requeue.redrive != 0 {
        headers.push(Header {
            name: HEADER_REDRIVE.into(),
            kind: HeaderKind::Number,
            value: Bytes::from(requeue.redrive.to_string()),
        });
    }
    let delay = match state {
        MessageState::Delayed { until } if *until > now => {
            Some(std::time::Duration::from_millis(until.0 - now.0))
        }
        _ => None,
    };
    let payload = edit.payload.clone();
    Message {
        key: Bytes::copy_from_slice(view.key()),
        headers,
        payload: payload.unwrap_or_else(|| Bytes::copy_from_slice(view.payload())),
        delay,
        time_to_live: view.time_to_live(),
    }
}

impl Engine {
    /// Publishes messages again and settles them where they were. Returns how many, and their bytes; and if not all of
    /// them were, why, and the first that was not.
    pub(crate) fn requeue(
        &mut self,
        source: (PartitionId, GroupId),
        requeues: Requeues,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> ((u64, u64), Option<(Refusal, u64)>) {
        let mut done = (0, 0);
        let mut refused: Option<(Refusal, u64)> = None;
        for (target, together) in requeues.by_target {
            let Some((first, ..)) = together.taken.first() else { continue };
            let (count, bytes) = (together.taken.count(), together.builder.byte_count() as u64);
            match self.requeue_to(source, target, together, now, journal) {
                Ok(()) => done = (done.0 + count, done.1 + bytes),
                Err(refusal) if refused.as_ref().is_none_or(|(_, before)| first < *before) => {
                    refused = Some((refusal, first));
                }
                Err(_) => {}
            }
        }
        (done, refused)
    }

    fn requeue_to(
        &mut self,
        (source, group): (PartitionId, GroupId),
        target: PartitionId,
        together: Together,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<(), Refusal> {
        let Together { mut builder, taken, meant, others } = together;
        let Some(batch) = builder.take() else { return Ok(()) };
        if self.storage_full {
            return Err(Refusal::StorageFull);
        }
        self.living(target, now, false).map_err(|_| Refusal::UnknownTopic)?;
        if self.is_closed(target) {
            return Err(Refusal::StreamClosed);
        }
        let partition = self.partitions.get(&target).ok_or(Refusal::UnknownTopic)?;
        check_keys(&partition.config, batch.is_keyed())?;
        let durability = partition.config.durability;
        let bytes = batch.bytes().len() as u64;
        let MadeRoom { records: mut before, dropped: _ } =
            make_room(partition, (batch.count(), bytes))?;
        let first = partition.log.end();
        let unmeant = settled_elsewhere(partition, first, &meant);
        if durability != Durability::Durable {
            self.prepare(target, (batch.count(), bytes), durability, journal)?;
        }
        let ranges = ranges_of(&taken);
        let mut records = Vec::new();
        if self.memory.has(source) || self.memory.has(target) {
            // What is not journaled cannot be in one record with what is.
            let (partition, first, producer) = (target, Offset(first), ProducerStamp::default());
            let (appended_at, note) = (now, None);
            records.push(Record::Appended { partition, first, appended_at, producer, batch, note });
            let (partition, outcome) = (source, Outcome::Cancelled);
            records.push(Record::Settled { partition, group, outcome, ranges });
        } else {
            let (first, appended_at) = (Offset(first), now);
            let requeued =
                Record::Requeued { source, group, ranges, target, first, appended_at, batch };
            records.push(requeued);
        }
        records.extend(unmeant);
        if let Some(partition) = self.partitions.get(&source) {
            for (group, runs) in &others {
                let ranges = ranges_of(runs);
                records.extend(settled(partition, *group, Outcome::Cancelled, &ranges));
            }
        }
        let early = before.len().saturating_sub(SETTLED_TOGETHER_MAX);
        before.drain(..early).for_each(|record| self.commit(&record, journal));
        self.commit_together(before.into_iter().chain(records), journal);
        Ok(())
    }
}

/// The records that settle messages which are about to be appended in the groups that they are not meant for.
fn settled_elsewhere(target: &Partition, first: u64, meant: &[Option<GroupId>]) -> Vec<Record> {
    let is_there = |id: GroupId| target.groups.iter().any(|group| group.id() == id);
    let mut records = Vec::new();
    for id in target.groups.iter().map(Group::id) {
        let mut runs = Runs::default();
        for (offset, meant) in (first..).zip(meant) {
            if meant.is_some_and(|meant| meant != id && is_there(meant)) {
                runs.insert(offset, offset + 1, ());
            }
        }
        records.extend(settled(target, id, Outcome::Cancelled, &ranges_of(&runs)));
    }
    records
}

fn ranges_of(runs: &Runs<()>) -> Vec<OffsetRange> {
    runs.iter().map(|(start, end, ())| range(start, end)).collect()
}

//! Walks over the messages that a group still has: peek, count, cancel. They go by offset, a bounded page at a time,
//! and take no lease. What is published again is `requeue`'s.

use bytes::Bytes;
use sennit_model::{
    GroupId, MessageView, Messages, Offset, OffsetRange, PartitionId, Timestamp,
    limits::{WORKBENCH_PAGE_BYTES, WORKBENCH_ROWS_MAX, WORKBENCH_WALKS_WAITING_MAX},
};

use crate::{
    command::Origin,
    dead_letter::HEADER_REASON,
    delays::Due,
    engine::{Engine, Journal, Outbox, Payloads, RUNS_PER_RECORD_MAX},
    gather::byte_of,
    group::{Group, range},
    log::Entry,
    partition::Partition,
    record::{Outcome, Record},
    refusal::Refusal,
    requeue::{Fit, Requeues, message},
    runs::Runs,
    walk::{
        CountBy, Destination, FoundMessage, MessageState, Walk, WalkVerb, header, key_of,
        redrive_of,
    },
    walks::Walking,
};

/// Most batches that a page looks at: of sparse messages it finds less than it may.
const BATCHES_MAX: u64 = 4096;

/// Bytes that each message costs a page, beside those that are looked at.
const MESSAGE_COST: u64 = 64;

/// Work after which a page ends.
const WORK_MAX: u64 = 8 << 20;

/// A run of messages and what they are to a group, with the number of failed attempts.
pub(crate) type Stretch = (u64, u64, MessageState, u32);

/// What a step of a walk has come to.
enum Step {
    /// There is more to look at in this turn.
    On,
    /// There is, once what was found is published again.
    Publishes,
    /// The page is full, or the walk is at its end.
    Done,
    /// A batch has to be fetched first.
    Fetches,
}

impl Engine {
    /// Begins a page of a walk, which is answered as soon as its batches are there.
    pub(crate) fn walk(&mut self, origin: Origin, id: PartitionId, walk: Walk, out: &mut Outbox) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let until = partition.visible;
        if partition.group(walk.group).is_none() {
            return out.refuse(origin, Refusal::UnknownGroup);
        }
        if self.walks.count >= WORKBENCH_WALKS_WAITING_MAX {
            let (limit, value) =
                ("WORKBENCH_WALKS_WAITING_MAX", WORKBENCH_WALKS_WAITING_MAX as u64);
            return out.refuse(origin, Refusal::Limit { limit, value });
        }
        let walking = Walking::new(origin, walk, until);
        self.walks.count += 1;
        self.walks.by_partition.entry(id).or_default().push(walking);
        self.mark_ready(id);
    }

    /// Goes on with the walks of a partition.
    pub(crate) fn serve_walks(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        if self.walks.count == 0 {
            return;
        }
        let Some(walks) = self.walks.by_partition.remove(&id) else { return };
        let mut waiting = Vec::new();
        for mut walking in walks {
            if self.go_on(id, &mut walking, now, journal, payloads) {
                self.walks.count -= 1;
                out.after_commit.push(walking.answer());
            } else {
                waiting.push(walking);
            }
        }
        if !waiting.is_empty() {
            self.walks.by_partition.insert(id, waiting);
        }
    }

    /// The partition goes, and its walks with it.
    pub(crate) fn refuse_walks(&mut self, id: PartitionId, out: &mut Outbox) {
        for walking in self.walks.by_partition.remove(&id).unwrap_or_default() {
            self.walks.count -= 1;
            out.refuse(walking.origin, Refusal::UnknownTopic);
        }
    }

    /// A batch cannot be read: the walks that are at it go on behind it.
    pub(crate) fn walk_past_damaged(&mut self, id: PartitionId, entry: &Entry) {
        for walking in self.walks.by_partition.get_mut(&id).into_iter().flatten() {
            if (entry.first..entry.end()).contains(&walking.at) {
                walking.page.damaged += entry.end() - walking.at;
                walking.at = entry.end();
            }
        }
    }

    /// Goes on with a walk; says whether its page is done.
    fn go_on(
        &mut self,
        id: PartitionId,
        walking: &mut Walking,
        now: Timestamp,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
    ) -> bool {
        let (mut cancelled, mut requeues) = (Runs::default(), Requeues::default());
        loop {
            let step = match self.partitions.get(&id) {
                Some(partition) => {
                    let fit = Fit { engine: self, partition, now };
                    let step = walking.step(&fit, payloads, &mut cancelled, &mut requeues);
                    step.unwrap_or(Step::Done)
                }
                None => Step::Done,
            };
            if matches!(step, Step::On) {
                continue;
            }
            let group = walking.walk.group;
            let cancelled = std::mem::take(&mut cancelled);
            walking.page.done += cancelled.count();
            self.cancel((id, group), &cancelled, journal);
            let requeues = std::mem::take(&mut requeues);
            let ((done, bytes), refused) = self.requeue((id, group), requeues, now, journal);
            walking.page.done += done;
            walking.page.bytes += bytes;
            if let Some((refusal, at)) = refused {
                walking.page.refusal = Some(refusal);
                walking.page.next = Some(Offset(at));
                return true;
            }
            match step {
                Step::On | Step::Publishes => {}
                Step::Done => return true,
                Step::Fetches => return false,
            }
        }
    }

    fn cancel(
        &mut self,
        (partition, group): (PartitionId, GroupId),
        cancelled: &Runs<()>,
        journal: &mut impl Journal,
    ) {
        let ranges: Vec<OffsetRange> =
            cancelled.iter().map(|(start, end, ())| range(start, end)).collect();
        for ranges in ranges.chunks(RUNS_PER_RECORD_MAX) {
            let (outcome, ranges) = (Outcome::Cancelled, ranges.to_vec());
            self.commit(&Record::Settled { partition, group, outcome, ranges }, journal);
        }
    }
}

impl Partition {
    /// What the messages of `start..end` are to a group that it is not through with, and that can be read. In order.
    pub(crate) fn stretches(&self, group: &Group, start: u64, end: u64) -> Vec<Stretch> {
        let activity = group.activity();
        let mut found: Vec<Stretch> = Vec::new();
        let ready = group.ready.within(start, end).into_iter();
        found.extend(ready.map(|(from, to, tries)| (from, to, MessageState::Ready, tries.failed)));
        found.extend(activity.waiting.within(start, end).into_iter().map(|(from, to, waiting)| {
            (from, to, MessageState::Retrying { until: waiting.due }, waiting.tries.failed)
        }));
        found.extend(activity.dying.within(start, end).into_iter().map(|(from, to, dying)| {
            let state = MessageState::Dead { failed_at: dying.failed_at, reason: dying.reason };
            (from, to, state, dying.tries.failed)
        }));
        found.extend(group.leased_within(start, end).into_iter().map(|(from, to, lease)| {
            (from, to, MessageState::Leased { until: lease.deadline }, lease.tries.failed)
        }));
        if !self.delays.is_empty() {
            for part in group.settled.gaps(start, end) {
                let delayed = self.delays.pieces(part.start, part.end);
                found.extend(delayed.map(|Due { due, start, end }| {
                    (start, end, MessageState::Delayed { until: due }, 0)
                }));
            }
        }
        found.sort_unstable_by_key(|(from, ..)| *from);
        found
    }
}

impl Walking {
    /// Looks at one batch, or at a part of it. `None` if there is nothing more.
    fn step(
        &mut self,
        fit: &Fit<'_>,
        payloads: &mut impl Payloads,
        cancelled: &mut Runs<()>,
        requeues: &mut Requeues,
    ) -> Option<Step> {
        let partition = fit.partition;
        let group = partition.groups.iter().find(|group| group.id() == self.walk.group)?;
        let until = self.until.min(partition.visible);
        self.at = self.walk.selection.next_wanted(self.at)?;
        let entry = *partition.log.find_from(self.at).filter(|entry| entry.first < until)?;
        if self.is_full() {
            self.page.next = Some(Offset(self.at));
            return None;
        }
        self.at = self.at.max(entry.first);
        self.batches += 1;
        let end = entry.end().min(until);
        let wanted = self.walk.selection.first_wanted(self.at, end);
        let Some((start, end)) =
            wanted.filter(|_| self.walk.selection.wants_time(entry.appended_at))
        else {
            self.at = end;
            return Some(Step::On);
        };
        let stretches = partition.stretches(group, start, end);
        let damaged = group.activity().damaged.within(start, end);
        let damaged = |until: u64| {
            let before = damaged.iter().filter(|(from, ..)| *from < until);
            before.map(|(from, to, _)| to - from).sum::<u64>()
        };
        let Some(&(first, ..)) = stretches.first() else {
            self.page.damaged += damaged(end);
            self.at = end;
            return Some(Step::On);
        };
        self.at = first;
        let Some(batch) = payloads.batch(partition.id, entry.place) else {
            return Some(Step::Fetches);
        };
        let goes_on = self.examine(fit, (&entry, &batch), &stretches, cancelled, requeues);
        if self.at >= stretches.last().map_or(end, |(_, to, ..)| *to) {
            self.at = end;
        }
        self.page.damaged += damaged(self.at);
        Some(if goes_on { Step::On } else { Step::Publishes })
    }

    fn is_full(&self) -> bool {
        self.page.examined >= self.walk.examined_max
            || self.page.matched >= self.walk.matched_max
            || self.batches >= BATCHES_MAX
            || self.work >= WORK_MAX
            || self.bytes >= WORKBENCH_PAGE_BYTES
    }

    /// Looks at the messages of a batch from where the walk is, as far as the page has room. False if those that
    /// were found are to be published before others are looked at.
    fn examine(
        &mut self,
        fit: &Fit<'_>,
        (entry, batch): (&Entry, &Bytes),
        stretches: &[Stretch],
        cancelled: &mut Runs<()>,
        requeues: &mut Requeues,
    ) -> bool {
        let mut byte = byte_of(None, entry, batch, self.at);
        let mut offset = self.at;
        for (from, to, state, failed) in stretches {
            byte += Messages::of_checked(&batch[byte..])
                .skip_bytes(u32::try_from(from - offset).unwrap_or(u32::MAX));
            offset = *from;
            for message in Messages::of_checked(&batch[byte..]) {
                if offset >= *to {
                    break;
                }
                let is_heavy = requeues.is_full_for(message.encoded().len());
                if self.bytes > 0 && self.bytes + message.encoded().len() > WORKBENCH_PAGE_BYTES {
                    // It is the first of the next page.
                    self.bytes = WORKBENCH_PAGE_BYTES;
                }
                if self.is_full() || is_heavy {
                    self.at = offset;
                    return !is_heavy;
                }
                byte += message.encoded().len();
                self.page.examined += 1;
                self.work += MESSAGE_COST + self.walk.selection.cost(&message);
                let found = Found { offset, entry, message, state, failed: *failed };
                self.take(fit, &found, cancelled, requeues);
                offset += 1;
            }
            self.at = offset;
        }
        true
    }

    /// Does the verb to a message, if it is selected.
    fn take(
        &mut self,
        fit: &Fit<'_>,
        found: &Found<'_>,
        cancelled: &mut Runs<()>,
        requeues: &mut Requeues,
    ) {
        let fair_key = self.walk.fair_key.as_ref();
        if !self.walk.selection.matches(&found.message, fair_key, &found.reason()) {
            return;
        }
        let is_leased = matches!(found.state, MessageState::Leased { .. });
        if let WalkVerb::Requeue(requeue) = &self.walk.verb
            && requeue.to == Destination::DeadLetters
            && redrive_of(&found.message).is_none()
        {
            // An undo means what a redrive has published.
            return;
        }
        match &self.walk.verb {
            WalkVerb::Peek { payload_bytes_max } => {
                let shown = found.shown(*payload_bytes_max);
                self.bytes += shown.key.len()
                    + shown.headers.len()
                    + shown.payload.len()
                    + MESSAGE_COST as usize;
                self.page.messages.push(shown);
            }
            WalkVerb::Count(by) => {
                let name = found.counted_by(*by, fair_key, fit.now);
                self.count(name, found.entry.appended_at);
            }
            WalkVerb::Cancel if !is_leased && self.walk.dry_run => self.page.done += 1,
            WalkVerb::Cancel if !is_leased => {
                cancelled.insert(found.offset, found.offset + 1, ());
            }
            WalkVerb::Copy(requeue) if !is_leased => {
                let copy = message(&found.message, requeue, found.state, fit.now);
                if self.walk.dry_run {
                    self.page.done += 1;
                } else if self.copies.push(&copy).is_ok() {
                    self.bytes += found.message.encoded().len();
                    self.copied.push(Offset(found.offset));
                } else {
                    self.page.homeless += 1;
                }
            }
            WalkVerb::Requeue(requeue) if !is_leased => {
                let (state, offset) = (found.state, found.offset);
                match fit.fitting(requeue, self.walk.group, &found.message, state, offset) {
                    Ok(Some(_)) if self.walk.dry_run => self.page.done += 1,
                    Ok(Some(fitting)) => {
                        self.work += found.message.payload().len() as u64;
                        if !requeues.push(fitting) {
                            self.page.homeless += 1;
                        }
                    }
                    Ok(None) => return,
                    Err(()) => self.page.homeless += 1,
                }
            }
            WalkVerb::Cancel | WalkVerb::Requeue(_) | WalkVerb::Copy(_) => {}
        }
        self.page.matched += 1;
        self.page.leased += u64::from(is_leased);
    }

    fn count(&mut self, name: Option<String>, appended_at: Timestamp) {
        let Some(name) = name else { return };
        if self.counts.len() >= WORKBENCH_ROWS_MAX && !self.counts.contains_key(&name) {
            self.page.other += 1;
            return;
        }
        let (count, oldest) = self.counts.entry(name).or_insert((0, appended_at));
        *count += 1;
        *oldest = appended_at.min(*oldest);
    }
}

/// A message that a walk is at.
struct Found<'a> {
    offset: u64,
    entry: &'a Entry,
    message: MessageView<'a>,
    state: &'a MessageState,
    failed: u32,
}

impl Found<'_> {
    /// Why it failed last; empty if it did not.
    fn reason(&self) -> String {
        match self.state {
            MessageState::Dead { reason, .. } => reason.to_string(),
            _ => {
                let reason = header(&self.message, HEADER_REASON).unwrap_or_default();
                String::from_utf8_lossy(reason).into_owned()
            }
        }
    }

    fn shown(&self, payload_bytes_max: usize) -> FoundMessage {
        let payload = self.message.payload();
        let payload_bytes = payload.len() as u64;
        FoundMessage {
            offset: Offset(self.offset),
            appended_at: self.entry.appended_at,
            state: self.state.clone(),
            failed: self.failed,
            key: Bytes::copy_from_slice(self.message.key()),
            headers: Bytes::copy_from_slice(self.message.encoded_headers()),
            payload: Bytes::copy_from_slice(&payload[..payload.len().min(payload_bytes_max)]),
            payload_bytes,
        }
    }

    fn counted_by(
        &self,
        by: CountBy,
        fair_key: Option<&sennit_model::HeaderName>,
        now: Timestamp,
    ) -> Option<String> {
        Some(match by {
            CountBy::Nothing => return None,
            CountBy::Key => {
                let key = key_of(&self.message, fair_key);
                String::from_utf8_lossy(
                    &key[..key.len().min(sennit_model::limits::FAIR_KEY_BYTES_MAX)],
                )
                .into_owned()
            }
            CountBy::Reason => self.reason(),
            CountBy::Age => age_name(now.0.saturating_sub(self.entry.appended_at.0)).into(),
            CountBy::State => self.state.name().into(),
        })
    }
}

impl MessageState {
    /// Its name in counts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed { .. } => "delayed",
            Self::Retrying { .. } => "retrying",
            Self::Dead { .. } => "dead",
            Self::Leased { .. } => "leased",
        }
    }
}

/// The ages by which messages are counted: each up to so many milliseconds.
const AGES: [(u64, &str); 6] = [
    (60_000, "under 1m"),
    (600_000, "1m to 10m"),
    (3_600_000, "10m to 1h"),
    (6 * 3_600_000, "1h to 6h"),
    (24 * 3_600_000, "6h to 1d"),
    (7 * 24 * 3_600_000, "1d to 7d"),
];

fn age_name(age_ms: u64) -> &'static str {
    AGES.iter().find(|(below, _)| age_ms < *below).map_or("7d and more", |(_, name)| name)
}

//! One partition: its log, its producers, its groups, and the messages that wait for a time.

use std::{ops::Range, sync::Arc};

use sennit_model::{
    Batch, GroupId, Offset, PartitionId, ProducerStamp, StartAt, Timestamp, TopicConfig,
};

use crate::{
    classes::Classes,
    command::{DeadLetters, GroupSetting},
    delays::{CANCELLED, Delays},
    effect::PartitionDescription,
    group::{Group, range},
    lease::Holder,
    log::{Entry, Log, Place},
    producer::Producers,
    runs::Runs,
    seen_values::SeenValues,
    terms::Terms,
    timer::{NEVER, Timer},
    tries::Tries,
    wheel::Wheel,
};

/// A time for each of some messages; most partitions have none.
#[derive(Debug, Default)]
pub(crate) struct MessageTimes(Option<Box<Runs<Timestamp>>>);

static NO_TIMES: Runs<Timestamp> = Runs::new();

impl MessageTimes {
    pub(crate) fn runs(&self) -> &Runs<Timestamp> {
        self.0.as_deref().unwrap_or(&NO_TIMES)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs().is_empty()
    }

    /// The messages of `start..end` have this time.
    pub(crate) fn insert(&mut self, start: u64, end: u64, time: Timestamp) {
        self.0.get_or_insert_default().insert(start, end, time);
    }

    /// The messages of `start..end` have none any more.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if let Some(times) = &mut self.0 {
            times.remove(start, end);
            if times.is_empty() {
                self.0 = None;
            }
        }
    }
}

/// The state of a partition for the walk that folds partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It may have changed since the last visit.
    Touched,
    /// It was not changed since the last visit.
    LeftAlone,
    /// It could not be folded at the last visit, and was not changed since.
    None,
}

/// One partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) log: Log,
    /// Offsets below this may be delivered: they are committed, or reserved where the topic's
    /// durability does without.
    pub(crate) visible: u64,
    pub(crate) producers: Producers,
    /// The deduplication values, where the topic looks for duplicates.
    pub(crate) seen: SeenValues,
    /// Sorted by id.
    pub(crate) groups: Vec<Group>,
    /// The classes of its messages, where the topic's configuration names headers for them.
    pub(crate) classes: Classes,
    /// Messages whose publisher set a delay that is not over, and those whose delay was cancelled.
    pub(crate) delays: Delays,
    /// Messages with a time to live: when it is over. Kept until the log drops them.
    pub(crate) expiries: MessageTimes,
    /// When the timer is due that frees what has grown too old, [`NEVER`] without one. What it was set
    /// for may be gone by then.
    pub(crate) age_due: Timestamp,
    /// Whether the dead-letter topic was requested since the start, or since there was one.
    pub(crate) dead_letter_topic_requested: bool,
    /// Whether not all of it is put back yet; see `replay`.
    pub(crate) is_loading: bool,
    /// Whether it is in the engine's list of partitions that may have something to deliver.
    pub(crate) is_in_ready_list: bool,
    /// Whether its last delivery pass ended at a batch that has to be fetched first.
    pub(crate) awaits_batch: bool,
    pub(crate) rest: Rest,
}

impl Partition {
    pub(crate) fn new(id: PartitionId, config: Arc<TopicConfig>) -> Self {
        Self {
            id,
            config,
            dead_letters: DeadLetters::NotYet,
            log: Log::default(),
            visible: 0,
            producers: Producers::default(),
            seen: SeenValues::default(),
            groups: Vec::new(),
            classes: Classes::default(),
            delays: Delays::default(),
            expiries: MessageTimes::default(),
            age_due: NEVER,
            dead_letter_topic_requested: false,
            is_loading: false,
            is_in_ready_list: false,
            awaits_batch: false,
            rest: Rest::LeftAlone,
        }
    }

    /// One whose first message gets this offset.
    pub(crate) fn beginning_at(id: PartitionId, config: Arc<TopicConfig>, first: u64) -> Self {
        Self { log: Log::empty(first, first), visible: first, ..Self::new(id, config) }
    }

    /// Has its first message get this offset. Nothing was ever appended to it; its groups are through
    /// with what lies before that.
    pub(crate) fn begin_at(&mut self, first: u64, wheel: &mut Wheel<Timer>) {
        self.log = Log::empty(first, first);
        self.visible = first;
        self.settle_up_to_start(wheel);
    }

    /// Whether messages that fail for good are parked here: it is a dead-letter topic's.
    pub(crate) fn parks(&self) -> bool {
        self.dead_letters == DeadLetters::Stay
    }

    pub(crate) fn group(&mut self, id: GroupId) -> Option<&mut Group> {
        let index = self.groups.binary_search_by_key(&id, Group::id).ok()?;
        Some(&mut self.groups[index])
    }

    /// Has exactly these groups from now on; returns the subscriptions of those that are gone.
    pub(crate) fn set_groups(
        &mut self,
        settings: &[GroupSetting],
        mut terms_of: impl FnMut(&GroupSetting) -> Arc<Terms>,
        wheel: &mut Wheel<Timer>,
    ) -> Vec<Group> {
        let is_kept = |group: &mut Group| settings.iter().any(|s| s.id == group.id());
        let mut gone: Vec<Group> = self.groups.extract_if(.., |group| !is_kept(group)).collect();
        for group in &mut gone {
            group.end_leases(0, u64::MAX, wheel);
        }
        for setting in settings {
            let terms = terms_of(setting);
            if let Some(group) = self.group(setting.id) {
                group.set_terms(terms);
                continue;
            }
            let start = match setting.start {
                StartAt::Earliest => self.log.start(),
                StartAt::Latest => self.log.end(),
                StartAt::Offset(offset) => offset.0.clamp(self.log.start(), self.log.end()),
            };
            let mut group = Group::new(self.id, (setting.id, terms), start);
            for hole in self.log.holes(start, self.log.end()) {
                // Nobody will get what every group was through with.
                group.settled.insert(hole.start, hole.end);
            }
            for cancelled in self.delays.pieces(start, self.log.end()) {
                if cancelled.due == CANCELLED {
                    group.settled.insert(cancelled.start, cancelled.end);
                }
            }
            group.appear(start, self.visible, &self.delays);
            let index = self.groups.partition_point(|held| held.id() < setting.id);
            self.groups.reserve_exact(1);
            self.groups.insert(index, group);
            self.watch_expired(start, self.log.end(), wheel);
        }
        gone
    }

    /// Adds a batch at the end.
    pub(crate) fn append(
        &mut self,
        batch: &Batch,
        appended_at: Timestamp,
        producer: ProducerStamp,
        place: Place,
        wheel: &mut Wheel<Timer>,
    ) {
        let first = self.log.end();
        self.log.push(Entry { first, count: batch.count(), place, appended_at });
        self.producers.appended(producer, batch.count(), Offset(first));
        let config = self.config.clone();
        let fields = config.fields.as_deref();
        if let Some(fields) = fields.filter(|fields| fields.has_classes()) {
            self.classes.append(first, batch, fields);
        }
        if let Some(dedup) = &config.dedup {
            self.seen.appended(dedup, batch, first, appended_at);
        }
        let has_delays = fields.is_some_and(|fields| fields.delay.is_some());
        if batch.is_timed() || has_delays || config.time_to_live.is_some() {
            self.note_times(batch, first, appended_at, wheel);
        }
        self.watch_age(wheel);
    }

    fn note_times(
        &mut self,
        batch: &Batch,
        first: u64,
        appended_at: Timestamp,
        wheel: &mut Wheel<Timer>,
    ) {
        let (mut delayed, mut living) = (Runs::default(), Runs::default());
        for (offset, message) in (first..).zip(batch.messages()) {
            let by_header = || self.config.fields.as_ref()?.delay(&message);
            if let Some(delay) = message.delay().or_else(by_header) {
                delayed.insert(offset, offset + 1, appended_at.plus(delay));
            }
            if let Some(span) = message.time_to_live().or(self.config.time_to_live) {
                living.insert(offset, offset + 1, appended_at.plus(span));
            }
        }
        for (start, end, &due) in delayed.iter() {
            self.delays.insert(start, end, due);
        }
        self.watch_delays(wheel);
        for (start, end, &due) in living.iter() {
            self.expiries.insert(start, end, due);
            wheel.set(due, Timer::Expiry { partition: self.id, range: range(start, end) });
        }
    }

    /// Offsets below `end` may be delivered: what is not delayed becomes ready.
    pub(crate) fn show(&mut self, end: u64) {
        if end <= self.visible {
            // It became visible before its commit, by a reservation.
            return;
        }
        let from = std::mem::replace(&mut self.visible, end);
        for group in &mut self.groups {
            group.appear(from, end, &self.delays);
        }
    }

    /// The delays of `start..end` are over, unless they were cancelled: the messages are ready.
    pub(crate) fn end_delays(&mut self, start: u64, end: u64) {
        let over = self.delays.pieces(start, end).filter(|piece| piece.due < CANCELLED);
        for piece in over.collect::<Vec<_>>() {
            self.delays.remove(piece.start, piece.end);
            self.end_delay(piece.start..piece.end);
        }
    }

    /// Delays are over that are due by `now`: the messages are ready. Ends those of `blocks_max` blocks at most, and
    /// has the wheel say when the next are due, which may be at once.
    pub(crate) fn end_due_delays(
        &mut self,
        now: Timestamp,
        blocks_max: usize,
        wheel: &mut Wheel<Timer>,
    ) {
        for _ in 0..blocks_max {
            let Some(over) = self.delays.take_due(now) else { break };
            over.into_iter().for_each(|range| self.end_delay(range));
        }
        self.watch_delays(wheel);
    }

    /// Messages that were taken out of the delayed are ready.
    fn end_delay(&mut self, Range { start, end }: Range<u64>) {
        // What is not committed yet appears when it is.
        let end = end.min(self.visible);
        for group in &mut self.groups {
            for unsettled in group.settled.gaps(start, end) {
                group.make_ready(unsettled.start, unsettled.end, Tries::default());
            }
        }
    }

    /// Has the wheel say when the first delayed message is due.
    pub(crate) fn watch_delays(&mut self, wheel: &mut Wheel<Timer>) {
        let due = self.delays.earliest();
        if due < self.delays.timer_due() {
            self.delays.set_timer_due(due);
            wheel.set(due, Timer::Due { partition: self.id });
        }
    }

    /// What of `start..end` has expired already is looked at again: some group has it now whose it was
    /// not when its timer fired.
    pub(crate) fn watch_expired(&self, start: u64, end: u64, wheel: &mut Wheel<Timer>) {
        for (start, end, expiry) in self.expiries.runs().within(start, end) {
            if wheel.has_passed(expiry) {
                wheel.set(expiry, Timer::Expiry { partition: self.id, range: range(start, end) });
            }
        }
    }

    /// Subscriptions of a group leave on purpose: what they hold is ready again, the attempt does not
    /// count, and they have no more to say of it.
    pub(crate) fn leave(
        &mut self,
        group_id: GroupId,
        of: impl Fn(Holder) -> bool,
        wheel: &mut Wheel<Timer>,
    ) {
        let Some(group) = self.group(group_id) else { return };
        let held = group.leases_of(&of);
        for &(start, end, tries) in &held {
            group.end_leases(start, end, wheel);
            group.make_ready(start, end, tries.with_given_up());
        }
        group.leave(of);
        for (start, end, _) in held {
            self.watch_expired(start, end, wheel);
        }
    }

    /// The leases of `range` are over, and nobody has worked on these messages: they are ready
    /// again.
    pub(crate) fn take_back(
        &mut self,
        group_id: GroupId,
        range: Range<u64>,
        wheel: &mut Wheel<Timer>,
    ) {
        let Some(group) = self.group(group_id) else { return };
        for (from, to, tries) in group.end_leases(range.start, range.end, wheel) {
            group.make_ready(from, to, tries.with_return());
        }
        self.watch_expired(range.start, range.end, wheel);
    }

    /// Frees the batch that begins at `first`, with the times of its messages.
    fn free(&mut self, first: u64, freed: &mut Vec<Place>) {
        let Some(entry) = self.log.remove(first) else { return };
        freed.push(entry.place);
        if !self.classes.is_empty() {
            for group in &mut self.groups {
                group.account(&self.classes, entry.first..entry.end());
            }
            self.classes.free(first);
        }
        if !self.delays.is_empty() {
            self.delays.remove(entry.first, entry.end());
        }
        if !self.expiries.is_empty() {
            self.expiries.remove(entry.first, entry.end());
        }
    }

    /// Everything below `freed_to` was freed by what frees the oldest. The log starts with the oldest
    /// batch kept; where the latest of each key is, what is missing before that was superseded, and the
    /// start says where that begins.
    pub(crate) fn raise_start(&mut self, freed_to: u64) {
        match self.config.retention.latest_per_key {
            Some(_) => self.log.start_from(freed_to),
            None => self.log.start_with_oldest(),
        }
    }

    /// Groups are through with everything before the log's start.
    fn settle_up_to_start(&mut self, wheel: &mut Wheel<Timer>) {
        let start = self.log.start();
        for group in &mut self.groups {
            if group.settled.floor() < start {
                group.settle(group.settled.floor(), start, wheel);
            }
        }
    }

    /// Frees the oldest batches beyond the bytes and the count that are kept; says whether there were
    /// any. Their leases end with them, which frees credit. Runs after every record that may matter to
    /// it, so replay frees the same.
    pub(crate) fn retain_newest(
        &mut self,
        freed: &mut Vec<Place>,
        wheel: &mut Wheel<Timer>,
    ) -> bool {
        let bytes_max = self.config.bytes_max().unwrap_or(u64::MAX);
        let count = self.config.retention.count.unwrap_or(u64::MAX);
        let start = self.log.end().saturating_sub(count);
        // What is not put back yet cannot be weighed; its slice says what it came to.
        if self.is_loading {
            return false;
        }
        let (mut has_freed, mut freed_to) = (false, 0);
        while let Some(oldest) = self.log.oldest()
            && (self.log.bytes() > bytes_max || oldest.end() <= start)
        {
            (has_freed, freed_to) = (true, oldest.end());
            self.free(oldest.first, freed);
        }
        if has_freed {
            self.raise_start(freed_to);
            self.settle_up_to_start(wheel);
        }
        has_freed
    }

    /// Frees the batches that touch `start..end` and are settled in every group, wherever they
    /// lie, if the partition keeps messages until then. O(log n) and a step for each of them.
    pub(crate) fn free_settled(&mut self, start: u64, end: u64, freed: &mut Vec<Place>) {
        if !self.config.retention.until_settled || self.groups.is_empty() {
            return;
        }
        let touched = self.log.entries_from(start).take_while(|entry| entry.first < end);
        let is_settled = |entry: &&Entry| {
            self.groups.iter().all(|group| group.settled.holds(entry.first, entry.end()))
        };
        let settled: Vec<u64> = touched.filter(is_settled).map(|entry| entry.first).collect();
        for &first in &settled {
            self.free(first, freed);
        }
        if !settled.is_empty() && !self.is_loading {
            self.raise_start(self.log.start());
        }
    }

    /// Frees everything below `start`, which lies between two batches.
    pub(crate) fn trim(&mut self, start: u64, freed: &mut Vec<Place>, wheel: &mut Wheel<Timer>) {
        while let Some(oldest) = self.log.oldest().filter(|entry| entry.end() <= start) {
            self.free(oldest.first, freed);
        }
        if self.is_loading {
            self.log.start_from(start);
        } else {
            self.raise_start(start);
        }
        self.settle_up_to_start(wheel);
    }

    /// Nothing of `start..end` is kept any more, and what is published next goes behind it.
    pub(crate) fn lose(
        &mut self,
        Range { start, end }: Range<u64>,
        freed: &mut Vec<Place>,
        wheel: &mut Wheel<Timer>,
    ) {
        let inside = self.log.entries_from(start).skip_while(|entry| entry.first < start);
        let inside: Vec<u64> =
            inside.take_while(|entry| entry.end() <= end).map(|entry| entry.first).collect();
        for first in inside {
            self.free(first, freed);
        }
        if self.visible == self.log.end() {
            self.visible = self.visible.max(end);
        }
        self.log.skip_to(end);
        if !self.is_loading {
            self.raise_start(self.log.start());
        }
        for group in &mut self.groups {
            group.settle(start, end, wheel);
        }
    }

    /// Has the wheel say when the oldest batch is too old.
    pub(crate) fn watch_age(&mut self, wheel: &mut Wheel<Timer>) {
        let due = self.too_old_at();
        if due < self.age_due {
            self.age_due = due;
            wheel.set(due, Timer::Age { partition: self.id });
        }
    }

    /// When the oldest batch is older than it may get; [`NEVER`] if none ever is.
    pub(crate) fn too_old_at(&self) -> Timestamp {
        let age = self.config.retention.age;
        age.and_then(|age| Some(self.log.oldest()?.appended_at.plus(age))).unwrap_or(NEVER)
    }

    /// Bytes of kept messages that some group is not through with, or all without a group. Costs a
    /// step for each run of such messages, and for each few hundred batches.
    fn live_bytes(&self) -> u64 {
        if self.groups.is_empty() {
            return self.log.bytes();
        }
        let mut wanted = Runs::default();
        for group in &self.groups {
            for unsettled in group.settled.gaps(self.log.start(), self.log.end()) {
                wanted.insert(unsettled.start, unsettled.end, ());
            }
        }
        wanted.iter().map(|(start, end, ())| self.log.bytes_within(start, end)).sum()
    }

    /// The number of messages that some group has found to be unreadable.
    fn damaged(&self) -> u64 {
        let mut damaged = Runs::default();
        for (start, end, _) in self.groups.iter().flat_map(|group| group.activity().damaged.iter())
        {
            damaged.insert(start, end, ());
        }
        damaged.count()
    }

    /// The batch that lies at `place`. As a rule some group waits for it, or a reader that is at one
    /// of these offsets.
    pub(crate) fn batch_at(
        &self,
        place: Place,
        readers_at: impl Iterator<Item = u64>,
    ) -> Option<Entry> {
        let first = |group: &Group| {
            let (ready, dying) = (group.ready.first(), group.activity().dying.first());
            ready.map(|run| run.0).into_iter().chain(dying.map(|run| run.0))
        };
        let wanted = self.groups.iter().flat_map(first).chain(readers_at);
        let wanted = wanted.filter_map(|offset| self.log.find(offset));
        wanted.chain(self.log.entries()).find(|entry| entry.place == place).copied()
    }

    /// How it is; `lost` offsets of it are.
    pub(crate) fn describe(&self, lost: u64) -> PartitionDescription {
        let live_bytes = self.live_bytes();
        let describe = |group: &Group| group.describe(self.visible, &self.delays, self.parks());
        PartitionDescription {
            live_bytes,
            damaged: self.damaged(),
            lost,
            dead_bytes: self.log.bytes() - live_bytes,
            start: Offset(self.log.start()),
            end: Offset(self.log.end()),
            bytes: self.log.bytes(),
            oldest_appended_at: self.log.oldest().map(|entry| entry.appended_at),
            groups: self.groups.iter().map(describe).collect(),
            holding: self.holding(),
            parked: self.parked_runs(),
        }
    }
}

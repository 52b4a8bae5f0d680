//! The state of one shard, and the order in which it changes: a command is decided, what it
//! decides is appended to the journal as records, and records are applied. Replay after a crash
//! applies the same records and comes to the same state.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_model::{
    Batch, Durability, Generation, GroupId, Offset, OffsetRange, PartitionId, ThrottleRule,
    Timestamp, TopicId,
};

use crate::{
    catalogue::{Catalogue, CatalogueNews},
    command::{Command, Origin},
    cursors::Cursors,
    effect::Effect,
    group::{Group, range},
    group_counts::{AllGroupCounts, GroupCounts},
    group_time::GroupTime,
    latest::Latest,
    lease::Holder,
    log::{KeptBatch, Place},
    lost::Lost,
    memory_topics::MemoryTopics,
    names::Names,
    partition::Partition,
    partitions::Partitions,
    readers::Readers,
    record::{Outcome, Record},
    refusal::Refusal,
    reserved::Reserved,
    sessions::Sessions,
    settings_hash::SettingsHash,
    shared::Shared,
    stored::Stored,
    stream::StreamAnswer,
    streams::Streams,
    survey::{Findings, Survey},
    throttles::Throttles,
    timer::Timer,
    walks::Walks,
    wheel::Wheel,
};

/// The receiver of records: the journal's writer, or a test's list.
pub trait Journal {
    /// Appends a record, and says the position of its batch (of its end, without one).
    fn append(&mut self, record: &Record) -> u64;

    /// The batch of the record at `position` is delivered before it is committed: until then it is to
    /// be at hand.
    fn keep_until_committed(&mut self, _position: u64, _batch: &Batch) {}

    /// What is appended next, these records, is to survive a crash whole or not at all. A journal
    /// without frames has nothing to do for that.
    fn hold_together(&mut self, _records: &[Record]) {}

    /// Keeps a batch in memory and nowhere else, and says its position, which no record's is. It is
    /// given up as others are: its place is freed.
    fn keep(&mut self, batch: &Batch) -> u64;
}

/// The source of batches: memory, or a disk that takes its time.
pub trait Payloads {
    /// The batch at `place`, in the layout of [`sennit_model::Batch`]; `None` if it has to be
    /// fetched first. Whoever answers `None` calls [`Engine::fetched`] for that partition once the
    /// batch is there, or [`Engine::damaged`] if it never will be.
    fn batch(&mut self, partition: PartitionId, place: Place) -> Option<Bytes>;
}

/// The effects of a turn of the engine.
#[derive(Debug, Default)]
pub struct Outbox {
    /// To be done at once.
    pub now: Vec<Effect>,
    /// To be done once every record appended so far is committed.
    pub after_commit: Vec<Effect>,
}

impl Outbox {
    pub(crate) fn refuse(&mut self, origin: Origin, refusal: Refusal) {
        self.now.push(Effect::Refused { origin, refusal });
    }

    /// What a stream answers: at once, or once all is committed that was decided before.
    pub(crate) fn answer(&mut self, origin: Origin, answer: StreamAnswer, is_early: bool) {
        self.tell(Effect::Stream(origin, Box::new(answer)), is_early);
    }

    pub(crate) fn tell(&mut self, effect: Effect, is_early: bool) {
        let effects = if is_early { &mut self.now } else { &mut self.after_commit };
        effects.push(effect);
    }
}

/// Most runs of messages in one record, so that it fits the shortest segment. More go into several.
pub(crate) const RUNS_PER_RECORD_MAX: usize = 256;

/// The state of one shard.
#[derive(Debug)]
pub struct Engine {
    pub(crate) generation: Generation,
    pub(crate) catalogue: Catalogue,
    pub(crate) partitions: Partitions,
    pub(crate) sessions: Sessions,
    pub(crate) wheel: Wheel<Timer>,
    /// How many timers had been set when some were looked at last, so that those that nobody needs go.
    pub(crate) timers_set: u64,
    pub(crate) fired: Vec<Timer>,
    /// Appended but not yet committed: `(position, partition, end)`, in the journal's order.
    pub(crate) uncommitted: VecDeque<(u64, PartitionId, u64)>,
    /// The partitions that may have something to deliver or to bury.
    pub(crate) ready_list: Vec<PartitionId>,
    /// Whether the disk is full: dead letters are not appended then, as nothing is that grows.
    pub(crate) storage_full: bool,
    /// Where dead letters wait for that to end.
    pub(crate) waits_for_room: BTreeSet<PartitionId>,
    pub(crate) freed: Vec<Place>,
    pub(crate) lost: Lost,
    pub(crate) readers: Readers,
    pub(crate) cursors: Cursors,
    pub(crate) reserved: Reserved,
    pub(crate) memory: MemoryTopics,
    pub(crate) names: Names,
    pub(crate) streams: Streams,
    pub(crate) latest: Latest,
    /// Partitions that are opened for the first time begin here: what the journal has lost may have
    /// opened them before, and given the offsets below.
    pub(crate) first_offset: u64,
    /// The highest place that anything was ever said to have that was moved, or is in a checkpoint.
    pub(crate) highest_place: u64,
    pub(crate) shared: Shared,
    pub(crate) survey: Survey,
    pub(crate) group_counts: AllGroupCounts,
    pub(crate) throttles: Arc<Throttles>,
    pub(crate) walks: Walks,
    /// The topics about whose failed attempts somebody else decides.
    pub(crate) watched: Arc<[TopicId]>,
    pub(crate) group_time: GroupTime,
}

impl Engine {
    /// The state of a shard that has seen nothing, in its `generation`th life. Timers count from
    /// `now`.
    #[must_use]
    pub fn new(generation: Generation, now: Timestamp) -> Self {
        Self {
            generation,
            catalogue: Catalogue::default(),
            partitions: Partitions::default(),
            sessions: Sessions::default(),
            wheel: Wheel::new(now),
            timers_set: 0,
            fired: Vec::new(),
            uncommitted: VecDeque::new(),
            ready_list: Vec::new(),
            storage_full: false,
            waits_for_room: BTreeSet::new(),
            freed: Vec::new(),
            lost: Lost::default(),
            readers: Readers::default(),
            cursors: Cursors::default(),
            reserved: Reserved::default(),
            memory: MemoryTopics::default(),
            names: Names::default(),
            streams: Streams::default(),
            latest: Latest::default(),
            first_offset: 0,
            highest_place: 0,
            shared: Shared::default(),
            survey: Survey::default(),
            group_counts: AllGroupCounts::default(),
            throttles: Arc::default(),
            walks: Walks::default(),
            watched: Arc::default(),
            group_time: GroupTime::default(),
        }
    }

    /// Says which life of the shard begins, once a replay is over.
    pub fn set_generation(&mut self, generation: Generation) {
        self.generation = generation;
    }

    /// Takes what has changed in the catalogue since this was asked last; `None` if nothing was kept for anybody so far.
    pub fn take_catalogue_news(&mut self) -> Option<Vec<CatalogueNews>> {
        self.catalogue.news.take()
    }

    /// Which topics and groups there are; empty at a shard that does not lead the catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The partitions that live here, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> {
        self.partitions.ids()
    }

    /// The same with a hash of the settings that each has.
    pub fn settings_hashes(&self) -> impl Iterator<Item = (PartitionId, SettingsHash)> {
        self.partition_ids().filter_map(|id| {
            let view = self.partitions.peek(&id)?;
            let held = view.partition();
            let groups = held.groups.iter().map(Group::setting);
            Some((id, SettingsHash::of(&held.config, groups, held.dead_letters)))
        })
    }

    /// The offset that the next message of a partition gets; `None` if it does not live here.
    #[must_use]
    pub fn end_of(&self, partition: PartitionId) -> Option<Offset> {
        Some(Offset(self.partitions.peek(&partition)?.partition().log.end()))
    }

    /// The offset of the first message of a partition that is opened from now on: 0, unless the
    /// journal has lost what may have opened it before.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        Offset(self.first_offset)
    }

    /// The places of all batches that are kept.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.batches().map(|batch| batch.place)
    }

    /// The highest position at which anything was ever said to lie that was moved or is in a checkpoint,
    /// whether it is wanted still or not.
    #[must_use]
    pub fn highest_place(&self) -> u64 {
        self.highest_place
    }

    /// Something was said to lie at this position: nothing else is ever to lie there, as the record that
    /// frees it may be lost.
    pub fn raise_highest_place(&mut self, position: u64) {
        self.highest_place = self.highest_place.max(position);
    }

    /// All batches that are kept.
    pub fn batches(&self) -> impl Iterator<Item = KeptBatch> {
        self.partitions.values().flat_map(|view| {
            let partition = view.partition();
            let kept = partition.log.entries().map(|entry| entry.kept(partition.id));
            kept.collect::<Vec<_>>()
        })
    }

    /// Takes the places of the batches that were freed since the last call.
    pub fn take_freed(&mut self) -> std::vec::Drain<'_, Place> {
        self.freed.drain(..)
    }

    /// What is kept of a batch of `count` messages that was stored at `place`, and is kept there: as a rule all
    /// of it or nothing, and what compaction has left of it otherwise. O(log n), and a step for each part.
    #[must_use]
    pub fn kept_at(
        &self,
        partition: PartitionId,
        (first, count): (Offset, u32),
        place: Place,
    ) -> Vec<KeptBatch> {
        let Some(view) = self.partitions.peek(&partition) else { return Vec::new() };
        let end = first.0.saturating_add(count.into());
        let entries = view.partition().log.entries_from(first.0);
        let entries = entries.take_while(|entry| entry.first < end);
        let inside = entries.filter(|entry| entry.place.is_inside(place));
        inside.map(|entry| entry.kept(partition)).collect()
    }

    /// How long a message of a partition is kept at most; `None` if that is open.
    #[must_use]
    pub fn kept_for(&self, partition: PartitionId) -> Option<Duration> {
        let config = self.partitions.peek(&partition)?.partition().config.clone();
        config.time_to_live.into_iter().chain(config.retention.age).min()
    }

    /// Has batches lie at other places from now on: they were copied there, and what was written
    /// there is durable. The old places are freed; of a batch that is wanted no more, the new one.
    pub fn move_batches(
        &mut self,
        partition: PartitionId,
        moves: &[(Offset, Place)],
        journal: &mut impl Journal,
    ) {
        for moves in moves.chunks(RUNS_PER_RECORD_MAX) {
            self.commit(&Record::Moved { partition, moves: moves.to_vec() }, journal);
        }
    }

    /// Gives up the batch that begins at `first`: nobody can read it, and nobody will get it. Returns
    /// how many messages it held.
    pub fn give_up(
        &mut self,
        partition: PartitionId,
        first: Offset,
        journal: &mut impl Journal,
    ) -> u64 {
        let held = self.partitions.get(&partition).and_then(|held| held.log.find(first.0));
        let Some(range) = held.map(|entry| range(entry.first, entry.end())) else { return 0 };
        self.commit(&Record::Lost { partition, range }, journal);
        range.end.0 - range.start.0
    }

    /// Goes on through the partitions, by one of so many `parts` of them, and folds each that nobody has
    /// changed since the last time round: it takes a few bytes until somebody asks for it. Whoever
    /// calls it or not, the engine does the same. Costs a step for each that is looked at.
    pub fn fold_untouched(&mut self, parts: u32) {
        self.partitions.fold_untouched(parts);
    }

    /// Goes on with a survey, by one of so many `parts` of all partitions. Returns what it found once
    /// it has come round. Costs a step for each partition that is looked at; one that is folded is
    /// unfolded only if it may have something to tell.
    pub fn survey(&mut self, parts: u32) -> Option<Findings> {
        let Self { survey, partitions, group_counts, .. } = self;
        let Survey { hand, so_far } = survey;
        let may_tell = so_far.may_tell();
        *hand = partitions.peek_part(*hand, parts, may_tell, |held| so_far.add(held, group_counts));
        (*hand == 0).then(|| std::mem::take(so_far).findings())
    }

    /// What a partition stores; nothing if it is not there. Costs a search, and for a folded one a step for each batch.
    #[must_use]
    pub fn stored(&self, partition: PartitionId) -> Stored {
        self.partitions.stored(&partition)
    }

    /// What went wrong or was held back, of all groups together.
    #[must_use]
    pub fn group_counts(&self) -> GroupCounts {
        self.group_counts.total
    }

    /// When [`Engine::advance`] has something to do next, if nothing else happens.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.wheel.next_due()
    }

    /// Does a command: decides it, appends and applies what was decided.
    pub fn handle(
        &mut self,
        command: Command,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let now = self.time(now);
        match command {
            Command::Publish(publish) => self.publish(publish, None, now, journal, out),
            Command::PublishAt(publish, expected) => {
                self.publish(publish, Some(expected), now, journal, out);
            }
            Command::Settle(settle) => self.settle(settle, now, journal, out),
            Command::Subscribe(subscribe) => self.subscribe(subscribe, out),
            Command::Read(read) => self.read(read, out),
            Command::Reader { session, subscription, partition, change } => {
                self.change_reader(Holder { session, subscription }, partition, change);
            }
            Command::SetCredit { session, subscription, partition, group, credit } => {
                self.set_credit(session, subscription, (partition, group), credit);
            }
            Command::Unsubscribe { session, subscription, partition, group } => {
                self.unsubscribe(session, subscription, (partition, group));
            }
            Command::EndSession { session, grace } => self.end_session(session, grace, now),
            Command::Catalogue(origin, command) => match self.catalogue.decide(command) {
                Ok(decision) => {
                    let created = !decision.records.is_empty();
                    for record in decision.records {
                        self.commit(&record, journal);
                    }
                    let (topic, group) = (decision.topic, decision.group);
                    out.after_commit.push(Effect::Done { origin, topic, group, created });
                }
                Err(refusal) => out.refuse(origin, refusal),
            },
            Command::Stream(origin, id, command) => {
                self.stream(origin, id, command, now, journal, out);
            }
            Command::AppendTogether(origin, appends) => {
                self.append_together(origin, appends, now, journal, out);
            }
            Command::PublishAtomic(step) => self.publish_atomic(step, now, journal, out),
            Command::SetThrottles(rules) => self.set_throttles(&rules),
            Command::WatchFailures(topics) => self.watch_failures(topics),
            Command::DecideFailures(answers) => self.decide_failures(answers, now, journal),
            Command::Partition(origin, id, command) => {
                self.change_partition(origin, id, command, now, journal, out);
            }
        }
    }

    /// Has these throttles in place of its own: those that other shards have too.
    pub fn share_throttles(&mut self, throttles: Arc<Throttles>) {
        self.throttles = throttles;
    }

    /// Takes from the state before it what is in no record and outlives that state: the life of the shard, what its
    /// broker has set, the group's time, and the highest place.
    pub fn succeed(&mut self, before: &Self) {
        self.generation = before.generation;
        self.throttles = before.throttles.clone();
        self.watched = before.watched.clone();
        self.storage_full = before.storage_full;
        self.join_group(before.group_time());
        self.raise_highest_place(before.highest_place);
    }

    fn set_throttles(&mut self, rules: &[ThrottleRule]) {
        self.throttles.set_rules(rules);
        let is_fair = |id: &PartitionId| {
            let view = self.partitions.peek_if(id, |_| false);
            view.is_some_and(|view| {
                view.partition().groups.iter().any(|group| group.activity().fair.is_some())
            })
        };
        for id in self.partitions.ids().filter(is_fair).collect::<Vec<_>>() {
            self.mark_ready(id);
        }
    }

    /// The last command of a turn is done: of each cursor that it has set, however often, where that is
    /// now is appended. Timers that nobody needs go.
    pub fn end_turn(&mut self, journal: &mut impl Journal) {
        self.sweep_timers();
        while let Some((partition, name, offset)) = self.cursors.next_moved() {
            journal.append(&Record::CursorSet { partition, name, offset: Offset(offset) });
        }
    }

    /// Appends a record and applies it.
    pub(crate) fn commit(&mut self, record: &Record, journal: &mut impl Journal) {
        let position = self.keep(record, journal);
        self.apply(record, position);
    }

    /// All records appended before `position` are committed: their messages may be delivered.
    pub fn committed(&mut self, position: u64) {
        while let Some(&(appended, partition, end)) = self.uncommitted.front()
            && appended < position
        {
            self.uncommitted.pop_front();
            if let Some(partition) = self.partitions.get_mut(&partition) {
                partition.show(end);
                if partition.config.durability != Durability::Durable {
                    self.reserved.batch_committed(partition.id, end);
                }
                mark_ready(&mut self.ready_list, partition);
            }
        }
        self.reservations_committed(position);
    }

    /// A batch of this partition that had to be fetched is there.
    pub fn fetched(&mut self, partition: PartitionId) {
        self.mark_ready(partition);
    }

    /// Puts a partition into the ready list, if it is there.
    pub(crate) fn mark_ready(&mut self, partition: PartitionId) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            mark_ready(&mut self.ready_list, partition);
        }
    }

    /// Settles messages whose time is over.
    pub(crate) fn expire(
        &mut self,
        partition: PartitionId,
        group: GroupId,
        ranges: Vec<OffsetRange>,
        journal: &mut impl Journal,
    ) {
        for ranges in ranges.chunks(RUNS_PER_RECORD_MAX) {
            let (outcome, ranges) = (Outcome::Expired, ranges.to_vec());
            self.commit(&Record::Settled { partition, group, outcome, ranges }, journal);
        }
    }

    /// Asserts what holds between turns. Costs a walk over everything; for tests and the
    /// simulator.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) {
        for view in self.partitions.values() {
            let partition = view.partition();
            for group in &partition.groups {
                group.check(partition.visible, &partition.delays, &partition.classes);
                // Between a change and the next delivery pass the partition is on the list.
                let is_held_back = partition.config.is_paused
                    || group.is_paused()
                    || group.activity().fair.as_ref().is_some_and(|fair| !fair.has_turn());
                let is_due =
                    !is_held_back && !partition.is_in_ready_list && !partition.awaits_batch;
                assert!(
                    !is_due || group.ready.is_empty() || !group.has_room(),
                    "messages are ready, a member has room, and no delivery pass is due: {group:?}"
                );
            }
        }
    }
}

/// Puts a partition into the list of those that may have something to deliver.
pub(crate) fn mark_ready(ready_list: &mut Vec<PartitionId>, partition: &mut Partition) {
    if !partition.is_in_ready_list {
        partition.is_in_ready_list = true;
        ready_list.push(partition.id);
    }
}

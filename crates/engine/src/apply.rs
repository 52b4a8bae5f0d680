//! Records change the state of a shard, by the same code live, in a replay, and on a replica. Nothing is refused
//! here.

use bytes::Bytes;
use sennit_model::{
    Batch, Durability, GroupId, Offset, OffsetRange, PartitionId, ProducerStamp, Timestamp,
    TopicConfig,
};

use crate::{
    command::{DeadLetters, GroupSetting},
    engine::{Engine, mark_ready},
    log::Place,
    partition::Partition,
    record::Record,
    stream::StreamNote,
};

impl Engine {
    /// Applies a record that lies in the journal, its batch at `position`. Never fails: what could
    /// be refused was refused before the record was written.
    pub fn apply(&mut self, record: &Record, position: u64) {
        self.change(record, position);
        let in_memory = match record {
            Record::Buried { source: id, .. } | Record::PartitionOpened { partition: id, .. } => {
                Some(*id).filter(|id| self.memory.has(*id))
            }
            _ => self.memory.of_record(record),
        };
        if let Some(partition) = in_memory.and_then(|id| self.partitions.get(&id)) {
            self.memory.holds(partition.id, partition.log.bytes());
        }
    }

    fn change(&mut self, record: &Record, position: u64) {
        self.catalogue.apply(record, &mut self.shared);
        self.note_places(record);
        self.note_time(record);
        match record {
            Record::PartitionOpened { partition: id, config, dead_letters, groups } => {
                self.apply_partition_opened(*id, config, *dead_letters, groups);
            }
            Record::PartitionDropped { partition: id } => self.apply_partition_dropped(*id),
            Record::Appended { partition: id, first: _, appended_at, producer, batch, note } => {
                self.apply_appended(*id, batch, *producer, *appended_at, note.as_deref(), position);
            }
            Record::StreamOpened(opened) => self.apply_stream_opened(opened, position),
            Record::StreamNoted { partition: id, noted_at, note } => {
                self.apply_stream_note(*id, *noted_at, Some(note));
            }
            Record::StreamForked { partition: id, fork, is_there } => {
                self.apply_stream_forked(*id, *fork, *is_there);
            }
            Record::StreamDeleted { partition: id } => self.apply_stream_deleted(*id),
            Record::Settled { partition: id, group, outcome: _, ranges } => {
                self.apply_settled(*id, *group, ranges);
            }
            Record::Failed { .. } => self.apply_failed(record),
            Record::Unparked { partition: id, group, ranges } => {
                self.apply_unparked(*id, *group, ranges);
            }
            Record::Buried { source, group, offset, target, first: _, appended_at, batch } => {
                self.apply_letter_taken(*source, *group, offset.0);
                self.apply_letter_appended(*target, batch, *appended_at, position);
            }
            Record::DelaysCancelled { partition: id, ranges } => {
                self.apply_delays_cancelled(*id, ranges);
            }
            Record::DelaysChanged { partition: id, due, ranges } => {
                self.apply_delays_changed(*id, *due, ranges);
            }
            Record::Requeued { source, group, ranges, target, first: _, appended_at, batch } => {
                let nobody = ProducerStamp::default();
                self.apply_settled(*source, *group, ranges);
                self.apply_appended(*target, batch, nobody, *appended_at, None, position);
            }
            Record::Trimmed { partition: id, start } => self.apply_trimmed(*id, start.0),
            Record::Deduplicated { partition: id, producer, count, first } => {
                self.apply_deduplicated(*id, *producer, *count, *first);
            }
            Record::Moved { partition: id, moves } => self.apply_moved(*id, moves),
            Record::Compacted { partition, batches } => self.apply_compacted(*partition, batches),
            Record::Superseded { partition, batches } => {
                self.apply_superseded(*partition, batches);
            }
            Record::Cleaned { partition, end, tombstones, all_read } => {
                self.apply_cleaned(*partition, (end.0, *tombstones, *all_read));
            }
            Record::Lost { partition: id, range } => self.apply_lost(*id, *range),
            Record::Reserved { partition: id, end } => self.apply_reserved(*id, end.0, position),
            Record::CursorSet { partition: id, name, offset } => {
                if self.partitions.get(id).is_some() {
                    self.cursors.set(*id, name.clone(), offset.0);
                }
            }
            Record::CursorDeleted { partition: id, name } => self.cursors.remove(*id, name),
            Record::Kept { .. }
            | Record::TopicCreated(_)
            | Record::TopicAltered { .. }
            | Record::TopicDeleted { .. }
            | Record::GroupCreated { .. }
            | Record::GroupAltered { .. }
            | Record::GroupDeleted { .. }
            | Record::CheckpointBegan { .. }
            | Record::CheckpointPart { .. }
            | Record::CheckpointEnded { .. } => {}
        }
    }

    fn apply_partition_opened(
        &mut self,
        id: PartitionId,
        config: &TopicConfig,
        dead_letters: DeadLetters,
        groups: &[GroupSetting],
    ) {
        let wheel = &mut self.wheel;
        let config = self.shared.config(config);
        let made = || Partition::new(id, config.clone());
        let partition = self.partitions.get_or_insert(id, made);
        if partition.config.dedup.map(|dedup| dedup.header)
            != config.dedup.map(|dedup| dedup.header)
        {
            // The values of another header say nothing.
            partition.seen.clear();
        }
        partition.config = config.clone();
        if partition.dead_letters != dead_letters {
            partition.dead_letters = dead_letters;
            // The requested topic may be gone again.
            partition.dead_letter_topic_requested = false;
        }
        let shared = &mut self.shared;
        let gone = partition.set_groups(groups, |setting| shared.terms(setting), wheel);
        match config.durability {
            Durability::Memory => self.memory.holds(id, partition.log.bytes()),
            _ => self.memory.forget(id),
        }
        partition.retain_newest(&mut self.freed, wheel);
        partition.free_settled(0, partition.log.end(), &mut self.freed);
        if !partition.is_loading {
            // One that kept the latest of each key may begin before its oldest message.
            partition.raise_start(partition.log.start());
        }
        partition.watch_age(wheel);
        mark_ready(&mut self.ready_list, partition);
        gone.iter().for_each(|group| self.sessions.forget((id, group.id())));
        self.note_keeping(id);
    }

    fn apply_partition_dropped(&mut self, id: PartitionId) {
        let Some(mut partition) = self.partitions.remove(&id) else { return };
        self.streams.forget(id);
        self.freed.extend(partition.log.entries().map(|entry| entry.place));
        for group in &mut partition.groups {
            group.end_leases(0, u64::MAX, &mut self.wheel);
            self.sessions.forget((id, group.id()));
        }
        self.lost.forget(id);
        self.readers.end_partition(id);
        self.cursors.forget(id);
        // Its batches count for none that is opened with this id later.
        let is_all_committed = partition.config.durability == Durability::Durable
            && partition.visible == partition.log.end();
        if !is_all_committed {
            self.uncommitted.retain(|(_, of, _)| *of != id);
        }
        self.reserved.forget(id);
        self.memory.forget(id);
        self.names.forget(id.topic);
        self.group_counts.forget(id.topic);
        self.latest.forget(id);
    }

    /// The batch is delivered when it is committed, or at once if its offsets are reserved.
    fn apply_appended(
        &mut self,
        id: PartitionId,
        batch: &Batch,
        producer: ProducerStamp,
        appended_at: Timestamp,
        note: Option<&StreamNote>,
        position: u64,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let place = place_of(batch.bytes(), position);
        partition.append(batch, appended_at, producer, place, &mut self.wheel);
        if partition.retain_newest(&mut self.freed, &mut self.wheel) {
            mark_ready(&mut self.ready_list, partition);
        }
        let end = partition.log.end();
        let durability = partition.config.durability;
        if durability != Durability::Memory {
            self.uncommitted.push_back((position, id, end));
        }
        if durability != Durability::Durable && self.reserved.covers(id, end) {
            partition.show(end);
            mark_ready(&mut self.ready_list, partition);
        }
        self.apply_stream_note(id, appended_at, note);
        self.note_dirty(id, batch.bytes().len(), appended_at);
    }

    /// Messages were answered as duplicates: their producer goes on behind them.
    fn apply_deduplicated(
        &mut self,
        id: PartitionId,
        producer: ProducerStamp,
        count: u32,
        first: Offset,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let end = partition.log.end();
        partition.producers.answered(producer, count, first, end);
    }

    fn apply_settled(&mut self, id: PartitionId, group: GroupId, ranges: &[OffsetRange]) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group) else { return };
        for range in ranges {
            group.settle(range.start.0, range.end.0, &mut self.wheel);
        }
        for range in ranges {
            partition.free_settled(range.start.0, range.end.0, &mut self.freed);
        }
        mark_ready(&mut self.ready_list, partition);
    }

    fn apply_unparked(&mut self, id: PartitionId, group: GroupId, ranges: &[OffsetRange]) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group) else { return };
        for range in ranges {
            group.unpark(range.start.0, range.end.0);
        }
        mark_ready(&mut self.ready_list, partition);
    }

    /// A dead letter leaves the partition where it failed.
    fn apply_letter_taken(&mut self, source: PartitionId, group: GroupId, offset: u64) {
        let Some(partition) = self.partitions.get_mut(&source) else { return };
        let Some(group) = partition.group(group) else { return };
        group.settle(offset, offset + 1, &mut self.wheel);
        partition.free_settled(offset, offset + 1, &mut self.freed);
    }

    /// A dead letter comes to its topic. It is delivered when it is committed.
    fn apply_letter_appended(
        &mut self,
        target: PartitionId,
        batch: &Batch,
        appended_at: Timestamp,
        position: u64,
    ) {
        let Some(partition) = self.partitions.get_mut(&target) else { return };
        let place = place_of(batch.bytes(), position);
        let nobody = ProducerStamp::default();
        partition.append(batch, appended_at, nobody, place, &mut self.wheel);
        if partition.retain_newest(&mut self.freed, &mut self.wheel) {
            mark_ready(&mut self.ready_list, partition);
        }
        self.uncommitted.push_back((position, target, partition.log.end()));
        self.note_dirty(target, batch.bytes().len(), appended_at);
    }

    fn apply_trimmed(&mut self, id: PartitionId, start: u64) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.trim(start, &mut self.freed, &mut self.wheel);
        // Leases that ended with what was freed leave room for what is ready.
        mark_ready(&mut self.ready_list, partition);
    }

    fn apply_moved(&mut self, id: PartitionId, moves: &[(Offset, Place)]) {
        let mut partition = self.partitions.get_mut(&id);
        for &(first, place) in moves {
            let log = partition.as_mut().map(|partition| &mut partition.log);
            // A batch that is not kept any more is not kept at its new place either.
            let old = log.and_then(|log| log.move_to(first.0, place)).unwrap_or(place);
            self.freed.push(old);
        }
    }

    fn apply_lost(&mut self, id: PartitionId, range: OffsetRange) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.lose(range.start.0..range.end.0, &mut self.freed, &mut self.wheel);
        self.lost.insert(id, range.start.0, range.end.0);
        mark_ready(&mut self.ready_list, partition);
    }

    /// Where anything is said to lie, nothing else is ever to lie: a record that frees it may be lost.
    pub(crate) fn note_places(&mut self, record: &Record) {
        let highest = match record {
            Record::Moved { moves, .. } => moves.iter().map(|(_, place)| place.position).max(),
            Record::Compacted { batches, .. } => {
                batches.iter().flat_map(|batch| &batch.parts).map(|part| part.place.position).max()
            }
            _ => None,
        };
        self.raise_highest_place(highest.unwrap_or(0));
    }

    fn apply_failed(&mut self, record: &Record) {
        let Record::Failed { partition: id, group, failed_at, due, dead, reason, runs } = record
        else {
            return;
        };
        let wheel = &mut self.wheel;
        let Some(partition) = self.partitions.get_mut(id) else { return };
        let Some(index) = partition.groups.iter().position(|held| held.id() == *group) else {
            return;
        };
        // What has failed was delivered, so it was visible: a follower may not know yet that it is committed.
        let end = runs.iter().map(|(range, _)| range.end.0).max().unwrap_or(0);
        partition.show(end.min(partition.log.end()));
        for (range, _) in runs {
            // In a replay the timer has not fired that made the message ready. It was leased, so it was
            // due, whatever the clock said when it failed.
            partition.end_delays(range.start.0, range.end.0);
        }
        let held = &mut partition.groups[index];
        for (range, attempts) in runs {
            for (start, end, tries) in held.take_unsettled(range.start.0, range.end.0, wheel) {
                // What has outlived its time while it was leased is not tried again.
                let over = partition.expiries.runs().within(start, end);
                let over = over.into_iter().filter(|(_, _, expiry)| expiry <= failed_at);
                for (from, to, _) in over {
                    held.settle(from, to, wheel);
                }
                for rest in held.settled.gaps(start, end) {
                    held.fail(
                        rest,
                        tries.with_failed(*attempts),
                        (*failed_at, *due),
                        *dead,
                        reason,
                        wheel,
                    );
                }
            }
        }
        for (range, _) in runs {
            partition.free_settled(range.start.0, range.end.0, &mut self.freed);
        }
        mark_ready(&mut self.ready_list, partition);
    }
}

pub(crate) fn place_of(batch: &Bytes, position: u64) -> Place {
    let bytes = u32::try_from(batch.len()).expect("a batch is limited far below 4 GiB");
    Place { position, bytes }
}

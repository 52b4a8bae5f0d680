//! Readers receive each committed batch in order, cut to their windows, and a gap for each range that is not kept.
//! This file knows no group.

use bytes::Bytes;
use sennit_model::{CursorName, Offset, PartitionId, limits::CURSORS_PER_TOPIC_MAX};

use crate::{
    command::{CursorClaim, CursorSetter, Origin, Read, ReaderChange},
    effect::{Delivery, Effect, GapReason},
    engine::{Engine, Journal, Outbox, Payloads, mark_ready},
    gather::{AtHand, Part},
    group::range,
    lease::Holder,
    log::Entry,
    lost::Lost,
    partition::Partition,
    readers::{Reader, bounded},
    record::Record,
    refusal::Refusal,
    reserved::Reach,
    wakeups::{Wakeups, Woken},
};

impl Engine {
    pub(crate) fn read(&mut self, read: Read, out: &mut Outbox) {
        let Read { origin, subscription, partition: id, at, credit, cursor, when_slow, filter } =
            read;
        let holder = Holder { session: origin.session, subscription };
        let Some(partition) = self.partitions.get_mut(&id) else {
            // It was there when the reader asked where to begin.
            return out.now.push(Effect::ended(holder, id));
        };
        let at = at.0.min(partition.visible);
        mark_ready(&mut self.ready_list, partition);
        // Other gaps are delivered when the reader comes to them.
        let missing = partition.begin(&self.lost, at, partition.visible).err();
        let rolled_back = missing.filter(|(_, reason)| *reason == GapReason::RolledBack);
        if let Some(claim) = &cursor
            && let Some((other, held)) = self.readers.cursor_held(id, &claim.name)
            && other != holder
        {
            // It was free when it was located, and others may have found it so too.
            let wins = claim.beats(held);
            let Holder { session, subscription } = if wins { other } else { holder };
            out.now.push(Effect::CursorTaken { session, subscription, partition: id });
            if !wins {
                return;
            }
            self.readers.leave(id, other);
        }
        if let Some((range, reason)) = rolled_back {
            out.now.push(Effect::gap(holder, id, range, reason));
        }
        let at = rolled_back.map_or(at, |(range, _)| range.end.0);
        self.readers.join(id, holder, (at, credit), (cursor, filter), when_slow);
    }

    pub(crate) fn change_reader(&mut self, holder: Holder, id: PartitionId, change: ReaderChange) {
        if let ReaderChange::End = change {
            self.readers.leave(id, holder);
            return;
        }
        let Some(held) = self.readers.of(id) else { return };
        let Some(reader) = held.readers.get_mut(&holder) else { return };
        let had_room = reader.room_messages() > 0;
        match change {
            ReaderChange::Credit(credit) => reader.credit = bounded(credit),
            ReaderChange::Taken { messages, bytes } => {
                reader.held_messages = reader.held_messages.saturating_sub(messages.into());
                reader.held_bytes = reader.held_bytes.saturating_sub(bytes);
            }
            ReaderChange::End => {}
        }
        // One that has room has all there is, or waits for a batch.
        if !had_room && reader.room_messages() > 0 {
            held.wakeups.wake(holder);
            self.mark_ready(id);
        }
    }

    /// The cursor that is claimed, if another has it and may keep it.
    pub(crate) fn held_cursor(
        &self,
        id: PartitionId,
        claim: Option<&CursorClaim>,
    ) -> Option<CursorName> {
        let CursorClaim { name, take_over, .. } = claim?;
        let held = self.readers.cursor_holder(id, name);
        (held.is_some() && !take_over).then(|| name.clone())
    }

    /// Gives the readers of a partition what they have room for. Filters may do `work_left` more in this
    /// turn.
    pub(crate) fn serve_readers(
        &mut self,
        id: PartitionId,
        work_left: &mut u64,
        at_hand: &mut AtHand,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let Some(held) = self.readers.of(id) else { return };
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(woken) = held.wakeups.take(partition.visible) else { return };
        let generation = self.generation;
        let mut pass = Pass {
            id,
            partition,
            lost: &self.lost,
            generation,
            reach: self.reserved.reach(id, partition.config.durability),
            at_hand,
            wakeups: &mut held.wakeups,
            too_slow: Vec::new(),
            work_left,
            has_more: false,
        };
        match woken {
            Woken::All => {
                held.readers.values_mut().for_each(|reader| pass.serve(reader, payloads, out));
            }
            Woken::These(holders) => {
                for holder in holders {
                    if let Some(reader) = held.readers.get_mut(&holder) {
                        pass.serve(reader, payloads, out);
                    }
                }
            }
        }
        let Pass { too_slow, has_more, .. } = pass;
        if has_more {
            mark_ready(&mut self.ready_list, partition);
        }
        self.end_slow_readers(id, too_slow, out);
    }

    /// A batch cannot be read: the readers before its end receive a gap, and go on behind it.
    pub(crate) fn pass_over_damaged(&mut self, id: PartitionId, entry: &Entry, out: &mut Outbox) {
        let Some(held) = self.readers.of(id) else { return };
        let inside = |reader: &&mut Reader| (entry.first..entry.end()).contains(&reader.at);
        for reader in held.readers.values_mut().filter(inside) {
            held.wakeups.wake(reader.holder);
            out.now.push(gap(reader, id, entry.end(), GapReason::Damaged));
        }
    }
}

/// Passes `reader` over what lies before `end`.
pub(crate) fn gap(reader: &mut Reader, id: PartitionId, end: u64, reason: GapReason) -> Effect {
    let start = std::mem::replace(&mut reader.at, end);
    reader.place_hint = None;
    if let Some(filter) = &mut reader.filter {
        filter.reported_to = end;
    }
    Effect::gap(reader.holder, id, range(start, end), reason)
}

/// One round over the readers of a partition.
pub(crate) struct Pass<'a> {
    pub(crate) id: PartitionId,
    pub(crate) partition: &'a Partition,
    lost: &'a Lost,
    pub(crate) generation: sennit_model::Generation,
    pub(crate) reach: Reach,
    at_hand: &'a mut AtHand,
    /// Woken are those that wait for a batch that has to be fetched, or whose filter has more to look at.
    pub(crate) wakeups: &'a mut Wakeups<Holder>,
    /// Those that have fallen behind and would rather end.
    pub(crate) too_slow: Vec<Holder>,
    /// What filters may do in this turn.
    pub(crate) work_left: &'a mut u64,
    /// Whether a filter has more to look at.
    pub(crate) has_more: bool,
}

impl Pass<'_> {
    fn serve(&mut self, reader: &mut Reader, payloads: &mut impl Payloads, out: &mut Outbox) {
        match reader.filter.take() {
            None => self.serve_unfiltered(reader, payloads, out),
            Some(mut filter) => {
                self.serve_filtered(reader, &mut filter, payloads, out);
                reader.filter = Some(filter);
            }
        }
        self.skip_or_end_slow(reader, out);
    }

    fn serve_unfiltered(
        &mut self,
        reader: &mut Reader,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let visible = self.partition.visible;
        while reader.at < visible {
            let room = reader.room_messages();
            if room == 0 {
                return;
            }
            let Some((entry, batch)) = self.batch(reader, payloads, out) else { return };
            let wanted = reader.at..entry.end().min(reader.at.saturating_add(room));
            let part = Part::of((&entry, &batch), reader.place_hint, wanted, reader.room_bytes());
            let first = reader.at;
            reader.at += u64::from(part.count);
            reader.held_messages += u64::from(part.count);
            reader.held_bytes += part.bytes();
            reader.place_hint = part.next;
            self.deliver(reader, &entry, first, part.messages, out);
        }
    }

    /// Delivers messages of one batch to a reader: those from `first` up to its position.
    pub(crate) fn deliver(
        &self,
        reader: &Reader,
        entry: &Entry,
        first: u64,
        messages: Bytes,
        out: &mut Outbox,
    ) {
        let Holder { session, subscription } = reader.holder;
        out.now.push(Effect::Deliver(Delivery {
            session,
            subscription,
            partition: self.id,
            first: Offset(first),
            count: u32::try_from(reader.at - first).expect("not more than the batch holds"),
            attempt: 0,
            generation: self.generation,
            appended_at: entry.appended_at,
            durability: self.reach.of(entry.end()),
            messages,
        }));
    }

    /// The next batch for `reader`, which receives a gap for what is missing before it. `None` where there
    /// is none yet.
    pub(crate) fn batch(
        &mut self,
        reader: &mut Reader,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) -> Option<(Entry, Bytes)> {
        let visible = self.partition.visible;
        let next = self.at_hand.batch_from(self.partition, reader.at, visible, payloads);
        let kept_from = next.as_ref().map_or(visible, |(entry, _)| entry.first);
        while reader.at < kept_from {
            let (end, reason) = self.partition.missing(self.lost, reader.at, kept_from);
            out.now.push(gap(reader, self.id, end, reason));
        }
        let (entry, Some(batch)) = next? else {
            self.wakeups.wake(reader.holder);
            return None;
        };
        Some((entry, batch))
    }
}

impl Engine {
    /// Tells the readers of a partition that it is gone.
    pub(crate) fn tell_readers_ended(&self, id: PartitionId, out: &mut Outbox) {
        out.now.extend(self.readers.holders(id).map(|holder| Effect::ended(holder, id)));
    }
}

impl Engine {
    /// Has a named cursor be at an offset, if `by` may say so. Where it is there already, nothing is
    /// written.
    pub(crate) fn set_cursor(
        &mut self,
        origin: Origin,
        id: PartitionId,
        (name, offset, by): (CursorName, Offset, CursorSetter),
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let offset = Offset(offset.0.min(partition.visible));
        let held = self.cursors.get(id, &name);
        if held.is_none() && self.cursors.count(id) >= CURSORS_PER_TOPIC_MAX {
            return out.refuse(origin, Refusal::cursors_max());
        }
        if let Some(subscription) = by.subscription {
            // A reader whose cursor was taken over may have sent this before it knew.
            let holder = Holder { session: by.session, subscription };
            if !self.readers.has_cursor(id, holder, &name) {
                return out.refuse(origin, Refusal::CursorLost { name });
            }
        } else if let Some(holder) = self.readers.cursor_holder(id, &name)
            && holder.session != by.session
        {
            if !by.take_over {
                return out.refuse(origin, Refusal::CursorHeld { name });
            }
            let Holder { session, subscription } = holder;
            out.now.push(Effect::CursorTaken { session, subscription, partition: id });
            self.readers.leave(id, holder);
        }
        if held != Some(offset.0) {
            self.cursors.advance(id, name, offset.0);
        }
        let (topic, group, created) = (id.topic, None, held.is_none());
        out.after_commit.push(Effect::Done { origin, topic, group, created });
    }

    /// Deletes a cursor, if it is there; the answer says whether it was.
    pub(crate) fn delete_cursor(
        &mut self,
        origin: Origin,
        id: PartitionId,
        name: CursorName,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        if self.partitions.get(&id).is_none() {
            return out.refuse(origin, Refusal::UnknownTopic);
        }
        let was_there = self.cursors.get(id, &name).is_some();
        if was_there {
            self.commit(&Record::CursorDeleted { partition: id, name }, journal);
        }
        let (topic, group, created) = (id.topic, None, was_there);
        out.after_commit.push(Effect::Done { origin, topic, group, created });
    }

    pub(crate) fn list_cursors(&self, origin: Origin, id: PartitionId, out: &mut Outbox) {
        if self.partitions.get(&id).is_none() {
            return out.refuse(origin, Refusal::UnknownTopic);
        }
        let cursors = self.cursors.of(id).map(|(name, at)| (name.clone(), Offset(at))).collect();
        out.now.push(Effect::Cursors { origin, cursors });
    }
}

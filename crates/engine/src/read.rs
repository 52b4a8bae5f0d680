//! What readers ask for and what they get: each batch that is committed, in order, cut to their
//! windows, and a gap wherever something is not kept. A batch is looked up once for all readers that
//! want it now. It knows no group.

use bytes::Bytes;
use sennit_model::{CursorName, Offset, PartitionId, ReadFrom, limits::CURSORS_PER_TOPIC_MAX};

use crate::{
    command::{CursorClaim, CursorSetter, Origin, Read, ReaderChange, SessionId},
    deliver::{byte_of, cut},
    effect::{Delivery, Effect, GapReason},
    engine::{Engine, Journal, Outbox, Payloads, stir},
    group::range,
    lease::Holder,
    log::Entry,
    lost::Lost,
    partition::Partition,
    readers::{Reader, bounded},
    record::Record,
    refusal::Refusal,
    reserved::Reach,
};

/// Most batches that are held at once while readers are served.
const AT_HAND_MAX: usize = 64;

impl Engine {
    pub(crate) fn read(&mut self, read: Read, out: &mut Outbox) {
        let Read { origin, subscription, partition: id, at, credit, cursor, when_slow, filter } =
            read;
        let Some(partition) = self.partitions.get_mut(&id) else {
            // It was there when the reader was told where it begins.
            let session = origin.session;
            let ended = Effect::SubscriptionEnded { session, subscription, partition: id };
            return out.now.push(ended);
        };
        let holder = Holder { session: origin.session, subscription };
        let at = at.0.min(partition.visible);
        stir(&mut self.stirred, partition);
        let rolled_back = self.rolled_back(id, at);
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
        if let Some(range) = rolled_back {
            let (Holder { session, subscription }, reason) = (holder, GapReason::RolledBack);
            out.now.push(Effect::Gap { session, subscription, partition: id, range, reason });
        }
        let at = rolled_back.map_or(at, |range| range.end.0);
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
            held.awake.push(holder);
            if let Some(partition) = self.partitions.get_mut(&id) {
                stir(&mut self.stirred, partition);
            }
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

    /// Gives the readers of a partition what they have room for: all of them when something new is
    /// there, else those that wait. Filters may do `work_left` more in this turn.
    pub(crate) fn serve_readers(
        &mut self,
        id: PartitionId,
        work_left: &mut u64,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let Some(held) = self.readers.of(id) else { return };
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let mut awake = std::mem::take(&mut held.awake);
        let is_same = held.served_to == partition.visible;
        if is_same && awake.is_empty() {
            return;
        }
        held.served_to = partition.visible;
        let generation = self.generation;
        let mut pass = Pass {
            id,
            partition,
            lost: &self.lost,
            generation,
            reach: self.reserved.reach(id, partition.config.durability),
            at_hand: Vec::new(),
            waiting: Vec::new(),
            too_slow: Vec::new(),
            work_left,
            has_more: false,
        };
        if is_same {
            awake.sort_unstable();
            awake.dedup();
            for holder in awake {
                if let Some(reader) = held.readers.get_mut(&holder) {
                    pass.attend(reader, payloads, out);
                }
            }
        } else {
            held.readers.values_mut().for_each(|reader| pass.attend(reader, payloads, out));
        }
        let Pass { waiting, too_slow, has_more, .. } = pass;
        held.awake = waiting;
        if has_more {
            stir(&mut self.stirred, partition);
        }
        self.end_slow_readers(id, too_slow, out);
    }

    /// A batch cannot be read: the readers that stand before its end are told, and go on behind it.
    pub(crate) fn pass_over_damaged(&mut self, id: PartitionId, entry: &Entry, out: &mut Outbox) {
        let Some(held) = self.readers.of(id) else { return };
        let inside = |reader: &&mut Reader| (entry.first..entry.end()).contains(&reader.at);
        for reader in held.readers.values_mut().filter(inside) {
            held.awake.push(reader.holder);
            out.now.push(gap(reader, id, entry.end(), GapReason::Damaged));
        }
    }

    /// Where one that reads from there begins now, and where the partition ends.
    pub(crate) fn locate(&self, id: PartitionId, from: ReadFrom) -> Option<(Offset, Offset)> {
        let Partition { log, visible, .. } = self.partitions.get(&id)?;
        let first = match from {
            ReadFrom::Earliest => log.start(),
            ReadFrom::Latest => *visible,
            ReadFrom::Offset(offset) => offset.0,
            ReadFrom::Last(count) => visible.saturating_sub(count).max(log.start()),
            ReadFrom::Time(time) => log.find_time(time).unwrap_or(*visible),
        };
        Some((Offset(first.min(*visible)), Offset(*visible)))
    }
}

/// Passes `reader` over what lies before `end`.
pub(crate) fn gap(reader: &mut Reader, id: PartitionId, end: u64, reason: GapReason) -> Effect {
    let start = std::mem::replace(&mut reader.at, end);
    reader.place_hint = None;
    if let Some(sieve) = &mut reader.sieve {
        sieve.told = end;
    }
    let Holder { session, subscription } = reader.holder;
    Effect::Gap { session, subscription, partition: id, range: range(start, end), reason }
}

/// One round over the readers of a partition.
pub(crate) struct Pass<'a> {
    pub(crate) id: PartitionId,
    pub(crate) partition: &'a Partition,
    lost: &'a Lost,
    pub(crate) generation: sennit_model::Generation,
    pub(crate) reach: Reach,
    /// Batches that were looked up in this pass, in order.
    at_hand: Vec<(Entry, Bytes)>,
    /// Those that wait for a batch that has to be fetched, or whose filter has more to look at.
    pub(crate) waiting: Vec<Holder>,
    /// Those that have fallen behind and would rather end.
    pub(crate) too_slow: Vec<Holder>,
    /// What filters may do in this turn.
    pub(crate) work_left: &'a mut u64,
    /// Whether a filter has more to look at.
    pub(crate) has_more: bool,
}

impl Pass<'_> {
    fn attend(&mut self, reader: &mut Reader, payloads: &mut impl Payloads, out: &mut Outbox) {
        match reader.sieve.take() {
            None => self.serve(reader, payloads, out),
            Some(mut sieve) => {
                self.sieve(reader, &mut sieve, payloads, out);
                reader.sieve = Some(sieve);
            }
        }
        self.judge(reader, out);
    }

    fn serve(&mut self, reader: &mut Reader, payloads: &mut impl Payloads, out: &mut Outbox) {
        let visible = self.partition.visible;
        while reader.at < visible {
            let room = reader.room_messages();
            if room == 0 {
                return;
            }
            let Some((entry, batch)) = self.batch(reader, payloads, out) else { return };
            let from = byte_of(reader.place_hint, &entry, &batch, reader.at);
            let wanted = (entry.end() - reader.at).min(room);
            let (count, length) =
                cut(&batch[from..], (reader.at, wanted), &entry, reader.room_bytes());
            let first = Offset(reader.at);
            reader.at += count;
            reader.held_messages += count;
            reader.held_bytes += length as u64;
            reader.place_hint = (reader.at < entry.end()).then_some((reader.at, from + length));
            let Holder { session, subscription } = reader.holder;
            out.now.push(Effect::Deliver(Delivery {
                session,
                subscription,
                partition: self.id,
                first,
                count: u32::try_from(count).expect("not more than the batch holds"),
                attempt: 0,
                generation: self.generation,
                appended_at: entry.appended_at,
                durability: self.reach.of(entry.end()),
                messages: batch.slice(from..from + length),
            }));
        }
    }

    /// The batch that `reader` wants next; it is told of what is missing before. `None` where there
    /// is none yet.
    pub(crate) fn batch(
        &mut self,
        reader: &mut Reader,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) -> Option<(Entry, Bytes)> {
        let after = self.at_hand.partition_point(|(entry, _)| entry.end() <= reader.at);
        if let Some((entry, batch)) = self.at_hand.get(after)
            && entry.first <= reader.at
        {
            return Some((*entry, batch.clone()));
        }
        let visible = self.partition.visible;
        let next = self.partition.log.find_from(reader.at).filter(|entry| entry.first < visible);
        let kept_from = next.map_or(visible, |entry| entry.first);
        if reader.at < kept_from {
            self.tell_gaps(reader, kept_from, out);
        }
        let entry = *next?;
        let Some(batch) = payloads.batch(self.id, entry.place) else {
            self.waiting.push(reader.holder);
            return None;
        };
        if self.at_hand.len() < AT_HAND_MAX {
            let after = self.at_hand.partition_point(|(held, _)| held.first < entry.first);
            self.at_hand.insert(after, (entry, batch.clone()));
        }
        Some((entry, batch))
    }

    /// Nothing is kept before `end`.
    fn tell_gaps(&self, reader: &mut Reader, end: u64, out: &mut Outbox) {
        let start = reader.at;
        for (from, to) in self.lost.of(self.id) {
            let (from, to) = (from.max(start), to.min(end));
            if from >= to {
                continue;
            }
            self.tell_freed(reader, from, out);
            out.now.push(gap(reader, self.id, to, GapReason::Lost));
        }
        self.tell_freed(reader, end, out);
    }

    /// What lay before `end` was freed: by what frees the oldest, or because it was superseded.
    fn tell_freed(&self, reader: &mut Reader, end: u64, out: &mut Outbox) {
        let is_latest = self.partition.config.retention.latest_per_key.is_some();
        let oldest_go_to = if is_latest { self.partition.log.start().min(end) } else { end };
        if reader.at < oldest_go_to {
            out.now.push(gap(reader, self.id, oldest_go_to, GapReason::Retention));
        }
        if reader.at < end {
            out.now.push(gap(reader, self.id, end, GapReason::Compacted));
        }
    }
}

impl Engine {
    /// Tells the readers of a partition that it is gone.
    pub(crate) fn tell_readers_ended(&self, id: PartitionId, out: &mut Outbox) {
        out.now.extend(self.readers.holders(id).map(|holder| {
            let Holder { session, subscription } = holder;
            Effect::SubscriptionEnded { session, subscription, partition: id }
        }));
    }

    /// Ends the readers of a session.
    pub(crate) fn end_readers(&mut self, session: SessionId) {
        self.readers.end_session(session);
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
            // One that was taken over may have said so before it heard of that.
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

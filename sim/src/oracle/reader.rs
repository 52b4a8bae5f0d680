//! The oracle's model of readers and named cursors. A reader receives every offset from its start, once and in order,
//! or a valid gap. A cursor is at the offset where a request or the one reader that holds it has set it last; after a
//! crash it is where it was durably set, or later.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

use sennit_engine::{
    CursorClaim, CursorSetter, Delivery, GapReason, Read, ReaderChange, Refusal, SessionId,
};
use sennit_model::{
    CursorName, Messages, Offset, OffsetRange, PartitionId, ReadFrom, Timestamp,
    limits::CREDIT_MESSAGES_MAX,
};

use super::{Oracle, Violation};

/// A session and its subscription.
type Key = (SessionId, u32);

/// The offsets of a cursor since its last durable one, and the turns in which it was set: 0 when that is certainly
/// durable. The offset is `None` where the cursor was deleted.
type History = Vec<(u64, Option<u64>)>;

/// One reader.
#[derive(Debug)]
struct Reader {
    partition: PartitionId,
    /// The range of its next offset. A reader that starts beyond the end starts at the end, which the oracle does not
    /// know exactly.
    next: RangeInclusive<u64>,
    credit: u64,
    held: u64,
    cursor: Option<CursorName>,
}

/// All readers, and the cursors.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_key: BTreeMap<Key, Reader>,
    cursors: BTreeMap<(PartitionId, CursorName), History>,
    /// Readers that must be told in this turn that another reader has their cursor.
    takeovers: Vec<Key>,
}

impl Readers {
    fn holder(&self, partition: PartitionId, name: &CursorName) -> Option<Key> {
        let has = |held: &Reader| held.partition == partition && held.cursor.as_ref() == Some(name);
        self.by_key.iter().find(|(_, held)| has(held)).map(|(&key, _)| key)
    }

    fn cursor(&self, partition: PartitionId, name: &CursorName) -> Option<u64> {
        self.cursors.get(&(partition, name.clone()))?.last()?.1
    }

    /// Sets or deletes a cursor. Returns the turn that must be durable before the answer.
    fn set(&mut self, place: (PartitionId, CursorName), offset: Option<u64>, turn: u64) -> u64 {
        let history = self.cursors.entry(place).or_insert_with(|| vec![(0, None)]);
        match history.last() {
            Some(&(since, last)) if last == offset => since,
            _ => {
                history.push((turn, offset));
                turn
            }
        }
    }

    pub(super) fn end_where(&mut self, which: impl Fn(Key, PartitionId) -> bool) {
        self.by_key.retain(|&key, held| !which(key, held.partition));
    }

    /// Notes a crash: changes that are not durable may or may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        self.by_key.clear();
        self.takeovers.clear();
        for history in self.cursors.values_mut() {
            let durable = history.iter().rposition(|(turn, _)| *turn <= durable_turn).unwrap_or(0);
            history.drain(..durable);
        }
    }
}

impl Oracle {
    /// The refusal of a command that sets a cursor, if it must be refused.
    pub(super) fn expected_cursor_refusal(
        &self,
        id: PartitionId,
        name: &CursorName,
        by: &CursorSetter,
    ) -> Option<Refusal> {
        let holder = self.readers.holder(id, name);
        let name = name.clone();
        match by.subscription {
            Some(own) if holder != Some((by.session, own)) => Some(Refusal::CursorLost { name }),
            Some(_) => None,
            None => {
                let other = holder.filter(|key| key.0 != by.session);
                other.filter(|_| !by.take_over).map(|_| Refusal::CursorHeld { name })
            }
        }
    }

    pub(super) fn set_cursor(
        &mut self,
        request: u64,
        id: PartitionId,
        name: &CursorName,
        offset: Option<Offset>,
        by: Option<&CursorSetter>,
    ) {
        if let Some(by) = by.filter(|by| by.subscription.is_none())
            && let Some(key) = self.readers.holder(id, name).filter(|key| key.0 != by.session)
        {
            self.readers.by_key.remove(&key);
            self.readers.takeovers.push(key);
        }
        let turn = self.turn;
        let since = self.readers.set((id, name.clone()), offset.map(|offset| offset.0), turn);
        self.changes.insert(request, (id, since));
    }

    pub(super) fn start_reader(&mut self, read: &Read) {
        let key = (read.origin.session, read.subscription);
        let id = read.partition;
        let Some(partition) = self.partitions.get(&id).filter(|held| held.is_open()) else {
            return;
        };
        if let Some(claim) = &read.cursor
            && let Some(other) = self.readers.holder(id, &claim.name)
        {
            self.readers.takeovers.push(if claim.take_over { other } else { key });
            if !claim.take_over {
                return;
            }
            self.readers.by_key.remove(&other);
        }
        let most = read.at.0;
        let least = most.min(partition.visible_end);
        let credit = read.credit.messages.min(CREDIT_MESSAGES_MAX).into();
        let cursor = read.cursor.as_ref().map(|claim| claim.name.clone());
        let reader = Reader { partition: id, next: least..=most, credit, held: 0, cursor };
        self.readers.by_key.insert(key, reader);
    }

    pub(super) fn change_reader(&mut self, key: Key, change: ReaderChange) {
        let Some(reader) = self.readers.by_key.get_mut(&key) else { return };
        match change {
            ReaderChange::Credit(credit) => {
                reader.credit = credit.messages.min(CREDIT_MESSAGES_MAX).into();
            }
            ReaderChange::Taken { messages, .. } => {
                reader.held = reader.held.saturating_sub(messages.into());
            }
            ReaderChange::End => drop(self.readers.by_key.remove(&key)),
        }
    }

    /// Advances a reader past messages or a gap, which must begin at its next offset.
    fn advance_reader(
        &mut self,
        key: Key,
        id: PartitionId,
        range: Range<u64>,
    ) -> Result<(), Violation> {
        let reader = self.readers.by_key.get_mut(&key).filter(|held| held.partition == id);
        let Some(reader) = reader else {
            let detail = format!("{range:?} of {id} for {key:?}");
            return Err(Violation::new("every delivery goes to a live subscription", detail));
        };
        if !reader.next.contains(&range.start) || range.is_empty() {
            return Err(Violation::new(
                "I4 a reader gets each offset once and in order",
                format!("{range:?} of {id} for {key:?}, whose next offset is {:?}", reader.next),
            ));
        }
        reader.next = range.end..=range.end;
        Ok(())
    }

    /// Checks a delivery to a reader.
    pub(super) fn check_read(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        let (id, key) = (delivery.partition, (delivery.session, delivery.subscription));
        let range = delivery.first.0..delivery.first.0 + u64::from(delivery.count);
        self.advance_reader(key, id, range.clone())?;
        if let Some(reader) = self.readers.by_key.get_mut(&key) {
            reader.held += u64::from(delivery.count);
            if reader.held > reader.credit {
                let detail = format!("{} held of {}", reader.held, reader.credit);
                return Err(Violation::new("I8 credit is never exceeded", detail));
            }
        }
        if delivery.generation != self.generation {
            return Err(Violation::new("I5 generations rise", format!("{delivery:?}")));
        }
        self.delivering_generation = self.generation;
        let mut offset = delivery.first.0;
        for message in Messages::of_checked(&delivery.messages) {
            self.check_bytes(delivery, offset, message)?;
            offset += 1;
        }
        if offset != range.end {
            return Err(Violation::new(
                "I1 a delivered batch decodes to its stated message count",
                format!("{delivery:?}"),
            ));
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.visible_end = partition.visible_end.max(offset);
        }
        Ok(())
    }

    /// Checks a gap that a consumer or a reader is told of.
    pub(super) fn check_gap(
        &mut self,
        key: Key,
        id: PartitionId,
        range: OffsetRange,
        reason: GapReason,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let (start, end) = (range.start.0, range.end.0);
        let is_reader = self.readers.by_key.contains_key(&key);
        if is_reader {
            self.advance_reader(key, id, start..end)?;
        }
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        match reason {
            GapReason::Damaged => {
                partition.gaps.extend(start..end);
                partition.unreadable.extend(start..end);
                Ok(())
            }
            GapReason::Retention | GapReason::Compacted if is_reader => {
                // A gap of a compaction may include holes from a time when the topic kept messages until they
                // were settled.
                let is_hole = |offset: u64| {
                    reason == GapReason::Compacted && partition.holes.contains(&offset)
                };
                let is_kept =
                    |offset: &u64| !partition.may_be_freed(*offset, now) && !is_hole(*offset);
                let Some(kept) = (start..end).find(is_kept) else { return Ok(()) };
                let detail = format!("offset {kept} of {id}, of a gap {start}..{end}");
                Err(Violation::new("I1 a message is freed only when retention allows it", detail))
            }
            reason => {
                let detail = format!("{reason:?} {start}..{end} of {id} for {key:?}");
                Err(Violation::new("I4 a gap has a valid reason", detail))
            }
        }
    }

    /// Checks a notice that another reader has this reader's cursor.
    pub(super) fn check_cursor_taken(&mut self, key: Key) -> Result<(), Violation> {
        match self.readers.takeovers.iter().position(|taken| *taken == key) {
            Some(index) => drop(self.readers.takeovers.swap_remove(index)),
            None => {
                let detail = format!("{key:?} is told that another reader has its cursor");
                return Err(Violation::new("I5 a cursor has one reader", detail));
            }
        }
        Ok(())
    }

    /// Checks at the end of a turn that each reader was told of the takeover of its cursor.
    pub(super) fn check_cursor_takeovers(&self) -> Result<(), Violation> {
        match self.readers.takeovers.first() {
            None => Ok(()),
            Some(key) => {
                let detail = format!("{key:?} is not told that another reader has its cursor");
                Err(Violation::new("I5 a cursor has one reader", detail))
            }
        }
    }

    /// Checks the answer of the shard about the start of a read: its first offset and the partition's end, or the
    /// refusal because another reader has the cursor.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_located(
        &mut self,
        id: PartitionId,
        from: ReadFrom,
        claim: Option<&CursorClaim>,
        answer: Result<(Offset, Offset), &Refusal>,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get(&id) else { return Ok(()) };
        let wrong = |rule, expected: String| {
            let detail =
                format!("{from:?} {claim:?} of {id}: expected {expected}, received {answer:?}");
            Err(Violation::new(rule, detail))
        };
        let is_held = claim.is_some_and(|claim| {
            !claim.take_over && self.readers.holder(id, &claim.name).is_some()
        });
        let (first, end) = match answer {
            Ok(_) if is_held => return wrong("I5 a cursor has one reader", "a refusal".into()),
            Err(Refusal::CursorHeld { .. }) if is_held => return Ok(()),
            Err(_) => return wrong("I5 a cursor has one reader", "an offset".into()),
            Ok((first, end)) => (first.0, end.0),
        };
        // The shard shows durable messages once it knows of their commit.
        let least = partition.visible_end;
        if end < least || (partition.limit() != u64::MAX && end > partition.limit()) {
            return wrong("I4 offsets never go back", format!("an end of at least {least}"));
        }
        let cursor = claim.and_then(|claim| self.readers.cursor(id, &claim.name));
        let expected = match from {
            _ if let Some(cursor) = cursor => cursor,
            ReadFrom::Earliest => partition.start,
            ReadFrom::Latest => end,
            ReadFrom::Offset(offset) => offset.0.min(end),
            ReadFrom::Last(count) => end.saturating_sub(count).max(partition.start),
            ReadFrom::Time(_) => return Ok(()),
        };
        // The oldest message that is kept may not be committed yet.
        if first != expected.min(end) {
            return wrong(
                "I4 a reader begins at the offset that it requests",
                expected.to_string(),
            );
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.visible_end = end;
        }
        Ok(())
    }

    /// Checks the cursors that a partition has after a restart. They are durable.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_cursors(
        &mut self,
        id: PartitionId,
        found: &[(CursorName, Offset)],
    ) -> Result<(), Violation> {
        let offset_of = |name: &CursorName| {
            found.iter().find(|(held, _)| held == name).map(|(_, offset)| offset.0)
        };
        for (name, _) in found {
            if !self.readers.cursors.contains_key(&(id, name.clone())) {
                let detail = format!("cursor {name} of {id}");
                return Err(Violation::new("I2 nothing exists that was never created", detail));
            }
        }
        for ((_, name), history) in self.readers.cursors.iter_mut().filter(|held| held.0.0 == id) {
            let offset = offset_of(name);
            if !history.iter().any(|(_, held)| *held == offset) {
                return Err(Violation::new(
                    "I1 a cursor is at an offset where it was set",
                    format!("{name} of {id} is at {offset:?}, and was at {history:?}"),
                ));
            }
            *history = vec![(0, offset)];
        }
        Ok(())
    }

    /// Removes the cursors of dropped partitions.
    pub(super) fn remove_cursors_of_dropped(&mut self) {
        let partitions = &self.partitions;
        let is_open = |id: &PartitionId| partitions.get(id).is_some_and(|held| held.is_open());
        self.readers.cursors.retain(|(id, _), _| is_open(id));
    }

    /// Checks that every reader with credit has received all messages.
    ///
    /// # Errors
    /// A reader that has not.
    pub fn check_readers_caught_up(&self) -> Result<(), Violation> {
        for (key, reader) in &self.readers.by_key {
            let Some(partition) = self.partitions.get(&reader.partition) else { continue };
            let end = partition.end();
            if reader.held < reader.credit && *reader.next.end() < end {
                return Err(Violation::new(
                    "I3 a reader with credit receives every message",
                    format!(
                        "the next offset of {key:?} is {:?} of {}, which ends at {end}",
                        reader.next, reader.partition
                    ),
                ));
            }
        }
        Ok(())
    }
}

//! The oracle's model of readers and named cursors. A reader gets every offset from its start, once and in order,
//! or a valid gap. A cursor is where it was set last, by a request or by the one reader that holds it; after a
//! crash it is where it was durably set, or later.

use std::collections::BTreeMap;

use sennit_engine::{
    CursorClaim, CursorSetter, Delivery, GapReason, Read, ReaderChange, Refusal, SessionId,
};
use sennit_model::{
    CursorName, Messages, Offset, OffsetRange, PartitionId, ReadFrom, Timestamp,
    limits::CREDIT_MESSAGES_MAX,
};

use super::{Oracle, Violation};

/// A session's subscription.
type Key = (SessionId, u32);

/// Where a cursor was since it was durable somewhere, and in which turns it was set there: 0 when that is
/// durable for sure. Nowhere where it was deleted.
type History = Vec<(u64, Option<u64>)>;

/// One reader.
#[derive(Debug)]
struct Reader {
    partition: PartitionId,
    /// The offset that comes next is between these: one that begins beyond the end begins at the end,
    /// and which that is nobody says.
    at: (u64, u64),
    credit: u64,
    held: u64,
    cursor: Option<CursorName>,
}

/// All readers, and the cursors.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_key: BTreeMap<Key, Reader>,
    cursors: BTreeMap<(PartitionId, CursorName), History>,
    /// Readers that have to hear in this turn that another has their cursor.
    taken: Vec<Key>,
}

impl Readers {
    fn holder(&self, partition: PartitionId, name: &CursorName) -> Option<Key> {
        let has = |held: &Reader| held.partition == partition && held.cursor.as_ref() == Some(name);
        self.by_key.iter().find(|(_, held)| has(held)).map(|(&key, _)| key)
    }

    fn cursor(&self, partition: PartitionId, name: &CursorName) -> Option<u64> {
        self.cursors.get(&(partition, name.clone()))?.last()?.1
    }

    /// A cursor is set or deleted; the turn whose records have to be durable before that is said.
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

    /// The shard is gone: what is not durable may or may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        self.by_key.clear();
        self.taken.clear();
        for history in self.cursors.values_mut() {
            let sure = history.iter().rposition(|(turn, _)| *turn <= durable_turn).unwrap_or(0);
            history.drain(..sure);
        }
    }
}

impl Oracle {
    /// What a command about a cursor is refused for.
    pub(super) fn refused_cursor(
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
        (name, offset, by): (&CursorName, Option<Offset>, Option<&CursorSetter>),
    ) {
        if let Some(by) = by.filter(|by| by.subscription.is_none())
            && let Some(key) = self.readers.holder(id, name).filter(|key| key.0 != by.session)
        {
            self.readers.by_key.remove(&key);
            self.readers.taken.push(key);
        }
        let turn = self.turn;
        let since = self.readers.set((id, name.clone()), offset.map(|offset| offset.0), turn);
        self.changes.insert(request, (id, since));
    }

    pub(super) fn begin_to_read(&mut self, read: &Read) {
        let key = (read.origin.session, read.subscription);
        let id = read.partition;
        let Some(partition) = self.partitions.get(&id).filter(|held| held.is_open()) else {
            return;
        };
        if let Some(claim) = &read.cursor
            && let Some(other) = self.readers.holder(id, &claim.name)
        {
            self.readers.taken.push(if claim.take_over { other } else { key });
            if !claim.take_over {
                return;
            }
            self.readers.by_key.remove(&other);
        }
        let most = read.at.0;
        let least = most.min(partition.seen_end);
        let credit = read.credit.messages.min(CREDIT_MESSAGES_MAX).into();
        let cursor = read.cursor.as_ref().map(|claim| claim.name.clone());
        let reader = Reader { partition: id, at: (least, most), credit, held: 0, cursor };
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

    /// A reader is given messages or a gap: what it stands before begins there, and it goes on behind.
    fn goes_on(
        &mut self,
        key: Key,
        id: PartitionId,
        (from, to): (u64, u64),
    ) -> Result<(), Violation> {
        let reader = self.readers.by_key.get_mut(&key).filter(|held| held.partition == id);
        let Some(reader) = reader else {
            let detail = format!("{from}..{to} of {id} for {key:?}");
            return Err(Violation::new("every delivery goes to a live subscription", detail));
        };
        let (least, most) = reader.at;
        if from < least || from > most || to <= from {
            return Err(Violation::new(
                "I4 a reader gets each offset once and in order",
                format!("{from}..{to} of {id} for {key:?}, which stands at {least} to {most}"),
            ));
        }
        reader.at = (to, to);
        Ok(())
    }

    /// A reader is given messages.
    pub(super) fn was_read(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        let (id, key) = (delivery.partition, (delivery.session, delivery.subscription));
        let range = (delivery.first.0, delivery.first.0 + u64::from(delivery.count));
        self.goes_on(key, id, range)?;
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
            self.bytes(delivery, offset, message)?;
            offset += 1;
        }
        if offset != range.1 {
            return Err(Violation::new(
                "I1 a delivered batch decodes to its stated message count",
                format!("{delivery:?}"),
            ));
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.seen_end = partition.seen_end.max(offset);
        }
        Ok(())
    }

    /// Somebody is told that messages are passed over: a consumer or a reader.
    pub(super) fn gap(
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
            self.goes_on(key, id, (start, end))?;
        }
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        match reason {
            GapReason::Damaged => {
                partition.gaps.extend(start..end);
                partition.unreadable.extend(start..end);
                Ok(())
            }
            GapReason::Retention | GapReason::Compacted if is_reader => {
                // Holes from when the topic kept messages until they were settled are among those that
                // a pass has left.
                let is_hole = |offset: u64| {
                    reason == GapReason::Compacted && partition.holes.contains(&offset)
                };
                let is_kept =
                    |offset: &u64| !partition.may_be_gone(*offset, now) && !is_hole(*offset);
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

    /// A reader is told that another has its cursor.
    pub(super) fn cursor_taken(&mut self, key: Key) -> Result<(), Violation> {
        match self.readers.taken.iter().position(|taken| *taken == key) {
            Some(index) => drop(self.readers.taken.swap_remove(index)),
            None => {
                let detail = format!("{key:?} is told that another has its cursor");
                return Err(Violation::new("I5 a cursor has one reader", detail));
            }
        }
        Ok(())
    }

    /// At the end of a turn everyone was told whose cursor another has.
    pub(super) fn check_cursor_takeovers(&self) -> Result<(), Violation> {
        match self.readers.taken.first() {
            None => Ok(()),
            Some(key) => {
                let detail = format!("{key:?} is not told that another has its cursor");
                Err(Violation::new("I5 a cursor has one reader", detail))
            }
        }
    }

    /// The shard has said where one begins that reads from there, or that another has the cursor.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn located(
        &mut self,
        id: PartitionId,
        (from, claim): (ReadFrom, Option<&CursorClaim>),
        said: Result<(Offset, Offset), &Refusal>,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get(&id) else { return Ok(()) };
        let wrong = |rule, expected: String| {
            let detail = format!("{from:?} {claim:?} of {id}: expected {expected}, came {said:?}");
            Err(Violation::new(rule, detail))
        };
        let is_held = claim.is_some_and(|claim| {
            !claim.take_over && self.readers.holder(id, &claim.name).is_some()
        });
        let (first, end) = match said {
            Ok(_) if is_held => return wrong("I5 a cursor has one reader", "a refusal".into()),
            Err(Refusal::CursorHeld { .. }) if is_held => return Ok(()),
            Err(_) => return wrong("I5 a cursor has one reader", "a place".into()),
            Ok((first, end)) => (first.0, end.0),
        };
        // What is on the platter is shown once the shard has heard of it.
        let least = partition.seen_end;
        if end < least || (partition.limit() != u64::MAX && end > partition.limit()) {
            return wrong("I4 offsets never go back", format!("an end from {least} on"));
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
        // Of what is not committed yet nothing may be kept any more.
        if first != expected.min(end) {
            return wrong(
                "I4 a reader begins at the offset that it requests",
                expected.to_string(),
            );
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.seen_end = end;
        }
        Ok(())
    }

    /// The shard has said which cursors a partition has; after a restart that is what counts.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn cursors_found(
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

    /// These partitions are gone, and their cursors with them.
    pub(super) fn cursors_gone(&mut self) {
        let partitions = &self.partitions;
        let is_there = |id: &PartitionId| partitions.get(id).is_some_and(|held| held.is_open());
        self.readers.cursors.retain(|(id, _), _| is_there(id));
    }

    /// Every reader that has room has all there is.
    ///
    /// # Errors
    /// Who has not.
    pub fn readers_have_all(&self) -> Result<(), Violation> {
        for (key, reader) in &self.readers.by_key {
            let Some(partition) = self.partitions.get(&reader.partition) else { continue };
            let end = partition.end();
            if reader.held < reader.credit && reader.at.1 < end {
                return Err(Violation::new(
                    "I3 a reader with credit receives every message",
                    format!(
                        "{key:?} stands at {:?} of {}, which ends at {end}",
                        reader.at, reader.partition
                    ),
                ));
            }
        }
        Ok(())
    }
}

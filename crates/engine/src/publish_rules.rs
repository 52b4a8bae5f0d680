//! Publishes to topics that have a limit or look for duplicates. Other topics never come here.

use sennit_model::{DedupMode, Durability, Offset, Timestamp};

use crate::{
    command::Publish,
    dedup::{Deduplication, deduplicate},
    effect::{Confirmed, ConfirmedPart, Effect, PublishNote},
    engine::{Engine, Journal, Outbox},
    partition::Partition,
    record::Record,
    refusal::Refusal,
    topic_limit::{MadeRoom, make_room},
};

/// Most records of each kind of settlement in one frame with a batch: of [`RUNS_PER_RECORD_MAX`] runs each, they take
/// 2 MiB.
///
/// [`RUNS_PER_RECORD_MAX`]: crate::engine::RUNS_PER_RECORD_MAX
pub(crate) const SETTLED_TOGETHER_MAX: usize = 512;

impl Engine {
    /// A publish that was admitted, and was not published before.
    pub(crate) fn publish_by_rules(
        &mut self,
        publish: Publish,
        expected: Option<Offset>,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let Publish { origin, partition: id, producer, batch: _ } = publish;
        let Some(partition) = self.partitions.get(&id) else { return };
        let (end, durability) = (Offset(partition.log.end()), partition.config.durability);
        let (decided, made) = match decide(partition, &publish, expected, now) {
            Ok(decided) => decided,
            Err(refusal) => return out.refuse(origin, refusal),
        };
        let Deduplication { records, parts, count, bytes, replaced } = decided;
        let mut has_reserved = false;
        if count > 0 && durability != Durability::Durable {
            match self.prepare(id, (count, bytes), durability, journal) {
                Ok(reserved) => has_reserved = reserved,
                Err(refusal) => return out.refuse(origin, refusal),
            }
        }
        let MadeRoom { records: mut before, dropped } = made;
        // What does not fit into one frame with the batch lies before and behind it. A crash between them drops
        // messages early, or leaves both messages of a value.
        let early = before.len().saturating_sub(SETTLED_TOGETHER_MAX);
        before.drain(..early).for_each(|record| self.commit(&record, journal));
        let is_settlement = |record: &Record| matches!(record, Record::Settled { .. });
        let (mut replacing, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(is_settlement);
        let late = replacing.split_off(replacing.len().min(SETTLED_TOGETHER_MAX));
        self.commit_together(before.into_iter().chain(records).chain(replacing), journal);
        late.iter().for_each(|record| self.commit(record, journal));
        let (producer, first_sequence) = (producer.id, producer.first_sequence);
        let note =
            PublishNote { origin, partition: id, producer, first_sequence, dropped, replaced };
        let note = (dropped + replaced > 0).then_some(Effect::PublishNoted(note));
        let total = publish.batch.count();
        if expected.is_some() {
            out.after_commit.extend(note);
            return out.tell(Effect::PublishedAt { origin, first: end, count: total }, false);
        }
        let (is_early, durability) = match count {
            // What it repeats may not be committed yet.
            0 => (false, Durability::Durable),
            _ => self.confirms_now(id, has_reserved, journal),
        };
        if let Some(note) = note {
            out.tell(note, is_early);
        }
        let first = parts.first().copied();
        let confirmed = Confirmed {
            origin,
            partition: id,
            producer,
            first_sequence,
            count: total,
            first_offset: first.map(|part| part.first_offset),
            duplicate: first.is_some_and(|part| part.duplicate),
            durability,
            parts: if parts.len() > 1 { parts.into() } else { Box::default() },
        };
        out.tell(Effect::Confirmed(confirmed), is_early);
    }
}

/// The records of a publish: what makes room, what is appended, and what that replaces. A conditional publish has
/// its own condition: its messages are appended whatever was seen.
pub(crate) fn decide(
    partition: &Partition,
    publish: &Publish,
    expected: Option<Offset>,
    now: Timestamp,
) -> Result<(Deduplication, MadeRoom), Refusal> {
    let Publish { partition: id, producer, batch, .. } = publish;
    let dedup = partition.config.dedup.filter(|_| expected.is_none());
    let decided = match &dedup {
        Some(dedup) => deduplicate(partition, dedup, (batch, *producer), now)?,
        None => {
            let (count, first) = (batch.count(), Offset(partition.log.end()));
            let record = Record::Appended {
                partition: *id,
                first,
                appended_at: now,
                producer: *producer,
                batch: batch.clone(),
                note: None,
            };
            Deduplication {
                records: vec![record],
                parts: vec![ConfirmedPart { count, first_offset: first, duplicate: false }],
                count,
                bytes: batch.bytes().len() as u64,
                replaced: 0,
            }
        }
    };
    let is_replacing = dedup.is_some_and(|dedup| dedup.mode == DedupMode::Replace);
    let made = match decided.count {
        0 => MadeRoom::default(),
        // What is replaced makes room as well, where that is sure.
        count if is_replacing && partition.groups.len() == 1 => {
            let replaced = u32::try_from(decided.replaced).unwrap_or(u32::MAX);
            make_room(partition, (count.saturating_sub(replaced), decided.bytes))?
        }
        count => make_room(partition, (count, decided.bytes))?,
    };
    Ok((decided, made))
}

//! Counts the work of a shard, for the metrics.

use sennit_engine::{AtomicPart, Confirmed, Delivery, Effect};
use sennit_model::Durability;

/// The work of a shard since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of publishers that were appended or found to be duplicates.
    pub confirmed_messages: u64,
    /// Of those, messages confirmed before they were committed.
    pub confirmed_early_messages: u64,
    /// Batches that had been appended before.
    pub duplicate_batches: u64,
    /// Messages dropped because their partition was full and later ones came.
    pub dropped_messages: u64,
    /// Messages that later ones of the same deduplication value have replaced.
    pub replaced_messages: u64,
    /// Messages that were not appended, because they were published before.
    pub deduplicated_messages: u64,
    /// Messages handed to consumers.
    pub delivered_messages: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Messages handed to consumers and readers before they were committed.
    pub delivered_early_messages: u64,
    /// Commands refused.
    pub refusals: u64,
    /// Commits of the lane.
    pub commits: u64,
    /// Batches that could not be read back. They are skipped.
    pub damaged_batches: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
}

impl Counters {
    /// Counts an effect that goes out.
    pub(crate) fn count_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Deliver(delivery) => self.count_delivery(delivery),
            Effect::Refused { .. } => self.refusals += 1,
            Effect::Confirmed(confirmed) => self.count_confirm(confirmed),
            Effect::PublishNoted(note) => {
                self.dropped_messages += note.dropped;
                self.replaced_messages += note.replaced;
            }
            Effect::PublishedAtomic { parts, .. } => {
                parts.iter().for_each(|part| self.count_part(part))
            }
            Effect::PublishedAt { count, .. } => self.confirmed_messages += u64::from(*count),
            _ => {}
        }
    }

    fn count_delivery(&mut self, delivery: &Delivery) {
        let count = u64::from(delivery.count);
        self.delivered_messages += count;
        self.delivered_bytes += delivery.messages.len() as u64;
        if delivery.durability != Durability::Durable {
            self.delivered_early_messages += count;
        }
    }

    fn count_part(&mut self, part: &AtomicPart) {
        self.confirmed_messages += u64::from(part.count);
        self.dropped_messages += part.dropped;
        self.replaced_messages += part.replaced;
    }

    fn count_confirm(&mut self, confirmed: &Confirmed) {
        let count = u64::from(confirmed.count);
        self.confirmed_messages += count;
        if confirmed.durability != Durability::Durable {
            self.confirmed_early_messages += count;
        }
        let left_out = confirmed.parts.iter().filter(|part| part.duplicate);
        self.deduplicated_messages += left_out.map(|part| u64::from(part.count)).sum::<u64>();
        let is_whole = confirmed.parts.is_empty();
        self.duplicate_batches += u64::from(confirmed.duplicate && is_whole);
    }
}

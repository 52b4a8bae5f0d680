//! Counts what a shard does, for the metrics. It decides nothing.

use sennit_engine::{Confirmed, Delivery, Effect};
use sennit_model::Durability;

/// What a shard has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages appended by publishers or found to be duplicates.
    pub confirmed_messages: u64,
    /// Of those, messages confirmed before they were committed.
    pub confirmed_early_messages: u64,
    /// Batches that had been appended before.
    pub duplicate_batches: u64,
    /// Messages handed to consumers.
    pub delivered_messages: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// Messages handed to consumers and readers before they were committed.
    pub delivered_early_messages: u64,
    /// Commands refused.
    pub refusals: u64,
    /// Commits of the lane.
    pub commits: u64,
    /// Batches that were read back damaged, or not at all. They are passed over.
    pub damaged_batches: u64,
    /// Checkpoints written to their end.
    pub checkpoints: u64,
}

impl Counters {
    /// An effect goes out.
    pub(crate) fn told(&mut self, effect: &Effect) {
        match effect {
            Effect::Deliver(delivery) => self.delivered(delivery),
            Effect::Refused { .. } => self.refusals += 1,
            Effect::Confirmed(confirmed) => self.confirmed(confirmed),
            Effect::PublishedAt { count, .. } => self.confirmed_messages += u64::from(*count),
            _ => {}
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let count = u64::from(delivery.count);
        self.delivered_messages += count;
        self.delivered_bytes += delivery.messages.len() as u64;
        if delivery.durability != Durability::Durable {
            self.delivered_early_messages += count;
        }
    }

    fn confirmed(&mut self, confirmed: &Confirmed) {
        let count = u64::from(confirmed.count);
        self.confirmed_messages += count;
        if confirmed.durability != Durability::Durable {
            self.confirmed_early_messages += count;
        }
        self.duplicate_batches += u64::from(confirmed.duplicate);
    }
}

//! The oracle's model of deduplication in the mode *replace*: a message that nobody has received is not delivered
//! once a later one with its value is published within the window. What was received before may be pending or not.

use std::collections::BTreeMap;

use sennit_model::{Dedup, DedupMode, MessageView, Timestamp};

use super::{group::GroupModel, partition::PartitionModel};

/// The turn of a replacement that may have happened or not.
const UNSURE: u64 = u64::MAX;

/// The messages of a group that were replaced, with the turn of the later message.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacements(BTreeMap<u64, u64>);

impl Replacements {
    /// Whether a message may have been replaced.
    pub(super) fn may_hold(&self, offset: u64) -> bool {
        self.0.contains_key(&offset)
    }

    /// The turn in which a message was certainly replaced.
    pub(super) fn certain(&self, offset: u64) -> Option<u64> {
        self.0.get(&offset).copied().filter(|turn| *turn != UNSURE)
    }

    /// Notes a crash: later messages that are not durable may be lost.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        for turn in self.0.values_mut() {
            *turn = if *turn <= durable_turn { 0 } else { UNSURE };
        }
    }
}

impl GroupModel {
    fn replace(&mut self, offset: u64, is_certain: bool, turn: u64) {
        let is_certain = is_certain && !self.states.contains_key(&offset);
        self.replacements.0.entry(offset).or_insert(if is_certain { turn } else { UNSURE });
    }
}

impl PartitionModel {
    /// Notes whether the partition looks for duplicates from now on.
    pub(super) fn note_dedup(&mut self, before: Option<Dedup>) {
        if before.is_none() {
            self.dedup_since = self.entries.len() as u64;
        }
    }

    /// Notes the messages that those from `first` on replace.
    pub(super) fn note_replaced(&mut self, first: u64, now: Timestamp, turn: u64) {
        let Some(dedup) = self.config.dedup.filter(|dedup| dedup.mode == DedupMode::Replace) else {
            return;
        };
        for offset in first..self.entries.len() as u64 {
            let Some(value) = self.entries[offset as usize].dedup_value else { continue };
            let mut earlier = self.entries[..offset as usize].iter();
            let Some(before) = earlier.rposition(|held| held.dedup_value == Some(value)) else {
                continue;
            };
            let held = &self.entries[before];
            if held.appended_at.plus(dedup.window) <= now {
                continue;
            }
            let before = before as u64;
            let is_read = !self.gaps.contains(&before) && !self.unreadable.contains(&before);
            let is_certain = is_read && before >= self.dedup_since;
            for group in self.groups.values_mut() {
                group.replace(before, is_certain, turn);
            }
        }
    }
}

/// The value of a message.
pub(super) fn value_of(message: &MessageView<'_>) -> Option<u8> {
    let mut headers = message.headers().filter_map(Result::ok);
    headers.find(|header| header.0 == crate::numbered_messages::DEDUP_HEADER)?.2.first().copied()
}

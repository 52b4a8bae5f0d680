//! The oracle's model of deduplication in the mode *replace*: a message that nobody has received is not delivered
//! once a later one with its value is published within the window. What was received before may be pending or not.

use sennit_model::{Dedup, DedupMode, Timestamp};

use super::{group::GroupModel, partition::PartitionModel};

impl GroupModel {
    fn replace(&mut self, offset: u64, is_certain: bool, turn: u64) {
        let is_certain = is_certain && !self.states.contains_key(&offset);
        self.replacements.note(offset, is_certain.then_some(turn));
    }
}

impl PartitionModel {
    /// Notes that the partition follows `config` from now on. A longer window does not bring back the values that the
    /// shorter one let go.
    pub(super) fn note_dedup(&mut self, config: Option<Dedup>) {
        let window = |dedup: Option<Dedup>| dedup.map(|dedup| dedup.window);
        if window(config) > window(self.config.dedup) {
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

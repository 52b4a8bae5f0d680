//! The position at which a read of a partition begins, and the gaps that its reader receives first: offsets that
//! were rolled back, lost or are not kept. Native readers and reads of HTTP streams both use it. It looks up no
//! batch.

use sennit_model::{Durability, OffsetRange, ReadFrom};

use crate::{effect::GapReason, group::range, lost::Lost, partition::Partition};

impl Partition {
    /// The offset at which a read from there begins. An offset of `from` may lie behind the visible end.
    pub(crate) fn locate(&self, from: ReadFrom) -> u64 {
        let Self { log, visible, .. } = self;
        match from {
            ReadFrom::Earliest => log.start(),
            ReadFrom::Latest => *visible,
            ReadFrom::Offset(offset) => offset.0,
            ReadFrom::Last(count) => visible.saturating_sub(count).max(log.start()),
            ReadFrom::Time(time) => log.find_time(time).unwrap_or(*visible),
        }
    }

    /// The offset at which a read of `at` goes on, or the gap that its reader receives first, and the reason. Offsets that were reserved, and that no reader has seen, are passed over, up to `before`.
    pub(crate) fn begin(
        &self,
        lost: &Lost,
        at: u64,
        before: u64,
    ) -> Result<u64, (OffsetRange, GapReason)> {
        let is_durable = self.config.durability == Durability::Durable;
        let at = match lost.at(self.id, at) {
            Some(lost) if is_durable => return Err((range(lost.start, lost.end), GapReason::Lost)),
            // The reader has seen messages that are not there any more.
            Some(lost) if lost.start < at => {
                return Err((range(lost.start, lost.end), GapReason::RolledBack));
            }
            Some(lost) => lost.end.min(before),
            None => at,
        };
        match self.log.start() {
            start if at < start => Err((range(at, start), GapReason::Retention)),
            _ => Ok(at),
        }
    }

    /// Nothing is kept of `at..end`: returns up to which offset one reason holds for that, and the reason.
    pub(crate) fn missing(&self, lost: &Lost, at: u64, end: u64) -> (u64, GapReason) {
        if let Some(lost) = lost.at(self.id, at) {
            return (lost.end.min(end), GapReason::Lost);
        }
        // The rest was freed: by what frees the oldest, or because it was superseded.
        let end = lost.behind(self.id, at).map_or(end, |lost_from| lost_from.min(end));
        match self.config.retention.latest_per_key {
            Some(_) if at >= self.log.start() => (end, GapReason::Compacted),
            Some(_) => (end.min(self.log.start()), GapReason::Retention),
            None => (end, GapReason::Retention),
        }
    }

    /// The offset at which a read of the whole partition begins. In a durable one, the read includes a gap for
    /// messages that were lost at the beginning.
    pub(crate) fn read_start(&self, lost: &Lost) -> u64 {
        let start = self.log.start();
        let is_durable = self.config.durability == Durability::Durable;
        let lost = lost.of(self.id).find(|lost| is_durable && lost.end == start);
        lost.map_or(start, |lost| lost.start)
    }

    /// The offset at which a read of `at..before` ends. In a durable partition, no read passes over lost
    /// messages without a word.
    pub(crate) fn until_lost(&self, lost: &Lost, at: u64, before: u64) -> u64 {
        let is_durable = self.config.durability == Durability::Durable;
        let lost_from = lost.behind(self.id, at).filter(|_| is_durable);
        lost_from.map_or(before, |from| from.min(before))
    }
}

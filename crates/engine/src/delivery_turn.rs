//! One round over a group of one partition, whatever the order in which its messages are given.

use sennit_model::{Generation, OffsetRange, PartitionId, Timestamp};

use crate::{
    group_counts::GroupCounts, log::Log, reserved::Reach, runs::Runs, timer::Timer, tries::Tries,
    wheel::Wheel,
};

/// Most messages a member gets in one turn while others wait for theirs.
pub(crate) const TURN_MESSAGES: u64 = 256;

/// One round over a group of one partition.
pub(crate) struct Turn<'a> {
    pub(crate) id: PartitionId,
    pub(crate) log: &'a Log,
    pub(crate) expiries: &'a Runs<Timestamp>,
    pub(crate) generation: Generation,
    pub(crate) reach: Reach,
    pub(crate) now: Timestamp,
    pub(crate) wheel: &'a mut Wheel<Timer>,
    pub(crate) expired: Vec<OffsetRange>,
    pub(crate) counts: GroupCounts,
}

impl Turn<'_> {
    /// Counts deliveries of messages of which this came before.
    pub(crate) fn count(&mut self, tries: Tries, count: u64) {
        if !tries.is_none() {
            self.counts.redelivered += count;
        }
    }

    /// How far from `start` the messages are alive, or else how far they are expired.
    pub(crate) fn alive(&self, start: u64, end: u64) -> Result<u64, u64> {
        if self.expiries.is_empty() {
            return Ok(end);
        }
        for (from, to, expiry) in self.expiries.within(start, end) {
            if expiry <= self.now {
                return if from == start { Err(to) } else { Ok(from) };
            }
        }
        Ok(end)
    }
}

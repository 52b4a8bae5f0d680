//! The ranges of offsets that are lost for good, so that readers receive a gap there. In a replay, also the
//! greatest range that a hole in the journal may have covered, so that no offset is used twice.

use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use sennit_model::{
    PartitionId,
    limits::{LOST_RANGES_MAX, MESSAGE_BYTES_MIN},
};

use crate::runs::Runs;

/// Lost ranges by partition. As a rule there is none, so a partition pays nothing for it.
#[derive(Debug, Default)]
pub(crate) struct Lost(HashMap<PartitionId, Runs<()>, foldhash::fast::FixedState>);

impl Lost {
    /// The messages of `start..end` are lost. Beyond [`LOST_RANGES_MAX`] the oldest range is
    /// forgotten; its offsets stay a hole.
    pub(crate) fn insert(&mut self, partition: PartitionId, start: u64, end: u64) {
        let ranges = self.0.entry(partition).or_default();
        ranges.insert(start, end, ());
        if ranges.iter().nth(LOST_RANGES_MAX).is_some()
            && let Some((start, end, ())) = ranges.first()
        {
            ranges.remove(start, end);
        }
    }

    /// The lost ranges of a partition, in order.
    pub(crate) fn of(&self, partition: PartitionId) -> impl Iterator<Item = Range<u64>> {
        let ranges = self.0.get(&partition);
        ranges.into_iter().flat_map(Runs::iter).map(|(start, end, ())| start..end)
    }

    /// The lost range that an offset lies in.
    pub(crate) fn at(&self, partition: PartitionId, offset: u64) -> Option<Range<u64>> {
        self.of(partition).find(|range| range.contains(&offset))
    }

    /// The start of the next lost range behind an offset.
    pub(crate) fn behind(&self, partition: PartitionId, offset: u64) -> Option<u64> {
        self.of(partition).map(|range| range.start).find(|start| *start > offset)
    }

    /// Forgets a partition that is dropped or opened anew.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        self.0.remove(&partition);
    }
}

/// The holes that a replay has come by.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    bytes: u64,
    /// Partitions of which a record behind the last hole said where they end.
    sure: HashSet<PartitionId, foldhash::fast::FixedState>,
}

impl Holes {
    pub(crate) fn is_none(&self) -> bool {
        self.bytes == 0
    }

    /// Records are missing that took so many bytes at most.
    pub(crate) fn add(&mut self, bytes: u64) {
        // Where a file is cut off, it is not said how much is missing.
        self.bytes = self.bytes.saturating_add(bytes.max(1));
        self.sure.clear();
    }

    /// It is known where this partition ends.
    pub(crate) fn is_sure_of(&mut self, partition: PartitionId) {
        if !self.is_none() {
            self.sure.insert(partition);
        }
    }

    /// Whether it is known where this partition ends.
    pub(crate) fn knows(&self, partition: PartitionId) -> bool {
        self.is_none() || self.sure.contains(&partition)
    }

    /// Most messages that the holes can have held.
    pub(crate) fn messages_max(&self) -> u64 {
        self.bytes.div_ceil(MESSAGE_BYTES_MIN as u64)
    }
}

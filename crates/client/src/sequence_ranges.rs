//! Ranges of sequence numbers. Publishers without a producer id all carry producer id 0; each of them numbers its
//! messages in a range of its own, so that a confirm says which publisher it is for. It knows no frame.

use std::collections::HashMap;

use sennit_model::limits::BATCH_MESSAGES_MAX;

/// The low bits of a sequence count messages. The high bits are the number of the range.
const COUNTING_BITS: u32 = 40;

/// The number of ranges: more than there can be publishers in memory.
const RANGES: u64 = 1 << (u64::BITS - COUNTING_BITS);

/// A publisher's range of sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SequenceRange(u64);

impl SequenceRange {
    /// The publisher starts again at the beginning of its range after this many sequences. A batch
    /// that begins with the last of them still ends within the range.
    pub(crate) const SEQUENCES: u64 = (1 << COUNTING_BITS) - BATCH_MESSAGES_MAX as u64;

    /// The range that contains this sequence.
    pub(crate) fn of_sequence(sequence: u64) -> Self {
        Self(sequence >> COUNTING_BITS)
    }

    pub(crate) fn first_sequence(self) -> u64 {
        self.0 << COUNTING_BITS
    }
}

/// The owner of each range in use.
#[derive(Debug, Default)]
pub(crate) struct SequenceRanges {
    publishers: HashMap<SequenceRange, u64>,
}

impl SequenceRanges {
    /// Allocates a free range for this publisher. Ranges are allocated in turn, so that a late
    /// confirm for a released range does not reach its next owner.
    pub(crate) fn allocate(&mut self, publisher: u64) -> SequenceRange {
        let mut sequence_range = SequenceRange(publisher % RANGES);
        while self.publishers.contains_key(&sequence_range) {
            sequence_range = SequenceRange((sequence_range.0 + 1) % RANGES);
        }
        self.publishers.insert(sequence_range, publisher);
        sequence_range
    }

    /// The publisher that owns this range.
    pub(crate) fn publisher(&self, sequence_range: SequenceRange) -> Option<u64> {
        self.publishers.get(&sequence_range).copied()
    }

    /// Frees a range after its publisher was dropped.
    pub(crate) fn release(&mut self, sequence_range: SequenceRange) {
        self.publishers.remove(&sequence_range);
    }
}

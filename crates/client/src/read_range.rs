//! Where a reader began.

use sennit_model::Offset;

/// Where a reader began in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The first offset that it gets, or is told of as a gap.
    pub first: Offset,
    /// The partition's end at that moment: the first offset that was not committed.
    pub end: Offset,
}

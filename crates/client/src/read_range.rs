//! The range of offsets at which a reader began.

use sennit_model::Offset;

/// The range at which a reader began in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The first offset that the reader receives, as a message or in a gap.
    pub first: Offset,
    /// The end of the partition when the reader began: the first offset that was not committed.
    pub end: Offset,
}

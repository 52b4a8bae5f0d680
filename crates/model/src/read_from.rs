//! The position at which a reader begins in each partition.

use crate::{offset::Offset, time::Timestamp};

/// The position at which a reader begins in each partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the oldest message that is kept.
    #[default]
    Earliest,
    /// Behind the newest message: the reader gets what is published from now on.
    Latest,
    /// At this offset. If older messages are no longer kept, the reader gets a gap. An offset
    /// beyond the end counts as the end.
    Offset(Offset),
    /// This many offsets before the end, or at the oldest message that is kept if that is later.
    Last(u64),
    /// At the first batch that was appended at or after this time, by the broker's clock.
    Time(Timestamp),
}

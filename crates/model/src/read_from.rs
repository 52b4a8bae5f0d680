//! Where a reader begins in each partition. It does not know what a partition keeps.

use crate::{offset::Offset, time::Timestamp};

/// Where a reader begins in each partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the oldest message kept.
    #[default]
    Earliest,
    /// After the newest: it gets what is published from now on.
    Latest,
    /// At this offset. Of what is not kept any more it is told; beyond the end it begins at the end.
    Offset(Offset),
    /// So many offsets before the end, or at the oldest kept if that is later.
    Back(u64),
    /// At the first batch that was appended at this time or later, by the broker's clock.
    Time(Timestamp),
}

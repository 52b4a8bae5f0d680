//! What a consumer or reader is told of messages that it does not get. It knows no socket.

use std::fmt;

use sennit_model::{OffsetRange, PartitionIndex};
use sennit_protocol::GapReason;

/// Messages of one partition that a consumer or reader does not get, because the broker cannot read
/// them, has lost them or keeps them no more. There is nothing to settle: the broker goes on behind them by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// Which of the topic's partitions.
    pub partition: PartitionIndex,
    /// Which offsets; at least one.
    pub offsets: OffsetRange,
    /// Why.
    pub reason: GapReason,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, offsets, reason } = self;
        write!(f, "offsets {offsets} of partition {} ", partition.0)?;
        match reason {
            GapReason::Damaged => f.write_str("cannot be read (damaged)"),
            GapReason::Lost => f.write_str("may have held messages and are gone (lost)"),
            GapReason::Retention => f.write_str("are kept no more (retention)"),
            GapReason::RolledBack => {
                f.write_str("were delivered before they were durable and are gone (rolled-back)")
            }
            GapReason::Skipped => {
                f.write_str("are spared a reader that has fallen behind (skipped)")
            }
            GapReason::Compacted => {
                f.write_str("were superseded by later ones of their keys (compacted)")
            }
            GapReason::Filtered => f.write_str("are passed over by the filter (filtered)"),
            other => write!(f, "are passed over (reason {})", other.number()),
        }
    }
}

/// What comes to a consumer or reader: a message or a run of them, or that there are some which do not come.
#[derive(Clone, Debug)]
pub enum Received<D> {
    /// A [`crate::Delivery`] or a [`crate::DeliveryRun`], to be settled; a [`crate::ReadMessage`] or a
    /// [`crate::ReadRun`].
    Delivered(D),
    /// Messages that do not come; what follows them does.
    Gap(Gap),
}

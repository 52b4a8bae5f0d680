//! Gaps: the messages that a consumer or reader does not receive. It knows no socket.

use std::fmt;

use sennit_model::{OffsetRange, PartitionIndex};
use sennit_protocol::GapReason;

/// Messages of one partition that a consumer or reader does not receive: the broker cannot read
/// them, has lost them or no longer keeps them. A gap is not settled. The broker continues behind
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The partition of the topic.
    pub partition: PartitionIndex,
    /// The offsets; at least one.
    pub offsets: OffsetRange,
    /// The reason.
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

/// An item that a consumer or reader receives: a message, a run of messages, or a gap.
#[derive(Clone, Debug)]
pub enum Received<D> {
    /// A [`crate::Delivery`] or a [`crate::DeliveryRun`], which the program settles; a
    /// [`crate::ReadMessage`] or a [`crate::ReadRun`].
    Delivered(D),
    /// Messages that do not come. The messages behind them do.
    Gap(Gap),
}

//! The kinds of timers on the wheel.

use sennit_model::{GroupId, Offset, OffsetRange, PartitionId, Timestamp};

use crate::command::SessionId;

/// A time that does not come.
pub(crate) const NEVER: Timestamp = Timestamp(u64::MAX);

/// A reason to wait for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A lease may have ended; it is found by its last offset.
    Lease { partition: PartitionId, group: GroupId, last: Offset },
    /// Messages that failed may be ready again.
    Retry { partition: PartitionId, group: GroupId, range: OffsetRange },
    /// The first messages of a partition whose publisher set a delay may be ready.
    Due { partition: PartitionId },
    /// The time to live of messages may be over.
    Expiry { partition: PartitionId, range: OffsetRange },
    /// A throttle may let messages of a group pass.
    Throttled { partition: PartitionId, group: GroupId },
    /// The oldest messages of a partition may be older than they may get.
    Age { partition: PartitionId },
    /// The time of a stream may be over.
    StreamEnd { partition: PartitionId },
    /// A partition that keeps the latest message of each key may be worth compacting.
    Compaction { partition: PartitionId },
    /// A session that was cut off has not come back.
    Grace { session: SessionId },
}

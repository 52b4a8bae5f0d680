//! The partitions that are kept in memory only, and their total size. It does not know where the batches are.

use hashbrown::HashMap;
use sennit_model::PartitionId;

use crate::record::Record;

/// The partitions of a shard that are kept in memory alone, with the bytes of each.
#[derive(Debug, Default)]
pub(crate) struct MemoryTopics {
    by_partition: HashMap<PartitionId, u64, foldhash::fast::FixedState>,
    bytes: u64,
}

impl MemoryTopics {
    /// Bytes of all of them together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A partition is kept in memory from now on, and holds so many bytes.
    pub(crate) fn holds(&mut self, id: PartitionId, bytes: u64) {
        let before = self.by_partition.insert(id, bytes).unwrap_or(0);
        self.bytes = self.bytes - before + bytes;
    }

    /// The partition is gone, or kept otherwise.
    pub(crate) fn forget(&mut self, id: PartitionId) {
        self.bytes -= self.by_partition.remove(&id).unwrap_or(0);
    }

    pub(crate) fn has(&self, id: PartitionId) -> bool {
        !self.by_partition.is_empty() && self.by_partition.contains_key(&id)
    }

    /// The partition whose messages and settlements a record is about, if that is kept in memory: such
    /// a record is not journaled. What outlives the messages is: settings, cursors, offsets given.
    pub(crate) fn of_record(&self, record: &Record) -> Option<PartitionId> {
        if self.by_partition.is_empty() {
            return None;
        }
        match record {
            Record::Appended { partition, .. }
            | Record::Deduplicated { partition, .. }
            | Record::Settled { partition, .. }
            | Record::Failed { partition, .. }
            | Record::Unparked { partition, .. }
            | Record::DelaysCancelled { partition, .. }
            | Record::DelaysChanged { partition, .. }
            | Record::Trimmed { partition, .. }
            | Record::StreamNoted { partition, .. } => Some(*partition).filter(|id| self.has(*id)),
            _ => None,
        }
    }
}

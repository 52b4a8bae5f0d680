//! Readers that do not want to lag, and do: they are moved to the newest message, or end. Those that
//! wait are no concern of anybody: they catch up from wherever their messages lie.

use sennit_model::{PartitionId, WhenSlow, limits::READER_BEHIND_BYTES_MAX};

use crate::{
    effect::{Effect, GapReason},
    engine::{Engine, Outbox},
    group::Holder,
    partition::Partition,
    read::gap,
    readers::Reader,
};

impl Reader {
    /// Whether it came to the newest message once, and is too far behind now for what it wants.
    /// Costs a step per some hundred batches that it is behind; nothing for one that waits.
    fn is_too_slow(&mut self, partition: &Partition) -> bool {
        if self.when_slow == WhenSlow::Wait {
            return false;
        }
        self.was_live |= self.at >= partition.visible;
        let behind = || partition.log.bytes_within(self.at, partition.visible);
        self.was_live && behind() > READER_BEHIND_BYTES_MAX
    }
}

impl Engine {
    /// How one that has just begun to read wants to be treated.
    pub(crate) fn set_when_slow(&mut self, id: PartitionId, holder: Holder, when_slow: WhenSlow) {
        if let Some(reader) = self.readers.of(id).and_then(|held| held.get_mut(holder)) {
            reader.when_slow = when_slow;
        }
    }

    /// Does as they wish with the readers of a partition that have fallen behind. They have been
    /// served just now.
    pub(crate) fn judge_slow_readers(&mut self, id: PartitionId, out: &mut Outbox) {
        let Some(held) = self.readers.of(id) else { return };
        let Some(partition) = self.partitions.get(&id) else { return };
        let mut ended: Vec<Holder> = Vec::new();
        for reader in &mut held.readers {
            if !reader.is_too_slow(partition) {
                continue;
            }
            match reader.when_slow {
                WhenSlow::Wait => {}
                WhenSlow::Skip => {
                    out.now.push(gap(reader, id, partition.visible, GapReason::Skipped));
                }
                WhenSlow::Disconnect => ended.push(reader.holder),
            }
        }
        for holder in ended {
            self.readers.leave(id, holder);
            let Holder { session, subscription } = holder;
            out.now.push(Effect::ReaderTooSlow { session, subscription, partition: id });
        }
    }
}

//! Readers that are too far behind: they skip to the newest message, or end, by their own choice. Readers that
//! chose to wait catch up from the disk.

use sennit_model::{PartitionId, WhenSlow, limits::READER_BEHIND_BYTES_MAX};

use crate::{
    effect::{Effect, GapReason},
    engine::{Engine, Outbox},
    lease::Holder,
    partition::Partition,
    read::{Pass, gap},
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

impl Pass<'_> {
    /// A reader that was served and is still too far behind skips to the newest message or ends, as it has
    /// chosen.
    pub(crate) fn skip_or_end_slow(&mut self, reader: &mut Reader, out: &mut Outbox) {
        if !reader.is_too_slow(self.partition) {
            return;
        }
        match reader.when_slow {
            WhenSlow::Wait => {}
            WhenSlow::Skip => {
                out.now.push(gap(reader, self.id, self.partition.visible, GapReason::Skipped));
            }
            WhenSlow::Disconnect => self.too_slow.push(reader.holder),
        }
    }
}

impl Engine {
    /// Ends readers that have fallen behind.
    pub(crate) fn end_slow_readers(
        &mut self,
        id: PartitionId,
        too_slow: Vec<Holder>,
        out: &mut Outbox,
    ) {
        for holder in too_slow {
            self.readers.leave(id, holder);
            let Holder { session, subscription } = holder;
            out.now.push(Effect::ReaderTooSlow { session, subscription, partition: id });
        }
    }
}

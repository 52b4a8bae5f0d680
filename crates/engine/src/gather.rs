//! Finds the batch at an offset, and the part of it that fits a window. Each batch is looked up once for all
//! waiters of a pass. It knows no waiter.

use std::ops::Range;

use bytes::Bytes;
use sennit_model::Messages;

use crate::{engine::Payloads, log::Entry, partition::Partition};

/// Most batches that are held at once in a pass.
const AT_HAND_MAX: usize = 64;

/// The batches of a partition that were looked up in a pass, in order.
#[derive(Default)]
pub(crate) struct AtHand(Vec<(Entry, Bytes)>);

impl AtHand {
    /// The batch that holds the message at `at`, or else the next one that begins before `before`. It comes
    /// without its bytes if these have to be fetched first. O(log n).
    pub(crate) fn batch_from(
        &mut self,
        partition: &Partition,
        at: u64,
        before: u64,
        payloads: &mut impl Payloads,
    ) -> Option<(Entry, Option<Bytes>)> {
        let after = self.0.partition_point(|(entry, _)| entry.end() <= at);
        if let Some((entry, batch)) = self.0.get(after)
            && entry.first <= at
        {
            return Some((*entry, Some(batch.clone())));
        }
        let entry = *partition.log.find_from(at).filter(|entry| entry.first < before)?;
        let batch = payloads.batch(partition.id, entry.place);
        if let Some(batch) = &batch
            && self.0.len() < AT_HAND_MAX
        {
            let after = self.0.partition_point(|(held, _)| held.first < entry.first);
            self.0.insert(after, (entry, batch.clone()));
        }
        Some((entry, batch))
    }
}

/// Messages of one batch that are delivered together.
pub(crate) struct Part {
    pub(crate) messages: Bytes,
    pub(crate) count: u32,
    /// `(offset, byte)` of the message behind them, if it is in the same batch.
    pub(crate) next: Option<(u64, usize)>,
}

impl Part {
    /// The messages at the front of `wanted` of a batch that fit `room_bytes`, at least one. `hint` is the
    /// offset of some message and the byte of the batch at which it begins.
    pub(crate) fn of(
        (entry, batch): (&Entry, &Bytes),
        hint: Option<(u64, usize)>,
        wanted: Range<u64>,
        room_bytes: u64,
    ) -> Self {
        let Range { start, end } = wanted;
        let from = byte_of(hint, entry, batch, start);
        let ends_batch = end == entry.end();
        let (count, length) = cut(&batch[from..], end - start, ends_batch, room_bytes);
        let (until, messages) = (start + count, batch.slice(from..from + length));
        let next = (until < entry.end()).then_some((until, from + length));
        let count = u32::try_from(count).expect("not more than the batch holds");
        Self { messages, count, next }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.messages.len() as u64
    }
}

/// The byte of its batch at which the message at `offset` begins.
pub(crate) fn byte_of(
    hint: Option<(u64, usize)>,
    entry: &Entry,
    batch: &[u8],
    offset: u64,
) -> usize {
    match hint {
        _ if offset == entry.first => 0,
        Some((at, byte)) if at == offset => byte,
        _ => {
            let before = u32::try_from(offset - entry.first).expect("within the batch");
            Messages::of_checked(batch).skip_bytes(before)
        }
    }
}

/// How many of the `wanted` messages at the front of `rest` go within `room_bytes`, at least one,
/// and how many bytes they take. `are_all`: nothing lies behind them. The message that reaches the window
/// is inside.
fn cut(rest: &[u8], wanted: u64, are_all: bool, room_bytes: u64) -> (u64, usize) {
    if are_all && rest.len() as u64 <= room_bytes {
        return (wanted, rest.len());
    }
    let mut messages = Messages::of_checked(rest);
    let (mut count, mut length) = (0, 0);
    while count < wanted && (count == 0 || (length as u64) < room_bytes) {
        length += messages.skip_bytes(1);
        count += 1;
    }
    (count, length)
}

//! Deliveries as frames: adjacent deliveries become one frame, one that is longer than the client accepts becomes
//! several. It does not know the receivers.

use std::iter;

use sennit_engine::Delivery;
use sennit_model::{
    Messages,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX},
};
use sennit_protocol::DeliverHead;

use crate::runtime::write_buffer::WriteBuffer;

/// Bytes of messages that are worth a frame of their own: what waits in small batches is joined up to
/// this.
const ROW_BYTES: usize = 128 << 10;

/// How many of `waiting` go out in one frame with `first`: those that go on where the one before
/// ends, and of which the same is to be said. They are checked as one batch: its limits hold.
pub(crate) fn row<'a>(
    first: &Delivery,
    waiting: impl Iterator<Item = &'a Delivery>,
    frame_bytes_max: usize,
) -> usize {
    let bytes_max = frame_bytes_max.saturating_sub(DeliverHead::BYTES).min(BATCH_BYTES_MAX);
    let bytes_max = bytes_max.min(ROW_BYTES);
    let (mut bytes, mut count) = (first.messages.len(), first.count as usize);
    let joins = |next: &&Delivery| {
        bytes += next.messages.len();
        let goes_on = next.first == first.first.plus(count as u64);
        count += next.count as usize;
        goes_on && is_alike(first, next) && bytes <= bytes_max && count <= BATCH_MESSAGES_MAX
    };
    waiting.take_while(joins).count()
}

/// Whether the head of a frame says the same of both, but for where they begin.
fn is_alike(one: &Delivery, other: &Delivery) -> bool {
    let Delivery {
        session: _,
        subscription,
        partition,
        first: _,
        count: _,
        attempt,
        generation,
        appended_at,
        durability,
        messages: _,
    } = other;
    one.subscription == *subscription
        && one.partition == *partition
        && one.attempt == *attempt
        && one.generation == *generation
        && one.appended_at == *appended_at
        && one.durability == *durability
}

/// Encodes `first` and the [`row`] that follows it as one frame; or without a row, if it is larger
/// than the client takes, as several. A single message beyond that limit goes out all the same: the
/// client has to say so.
pub(crate) fn encode<'a>(
    first: &'a Delivery,
    row: impl Iterator<Item = &'a Delivery> + Clone,
    frame_bytes_max: usize,
    out: &mut WriteBuffer,
) {
    let room = frame_bytes_max.saturating_sub(DeliverHead::BYTES);
    if first.messages.len() <= room {
        return encode_frame(first, row, out);
    }
    let mut delivery = first.clone();
    while delivery.messages.len() > room && delivery.count > 1 {
        let mut messages = Messages::of_checked(&delivery.messages);
        let (mut count, mut length) = (0, 0);
        loop {
            let next = messages.skip_bytes(1);
            if count > 0 && length + next > room || count + 1 == delivery.count {
                break;
            }
            (count, length) = (count + 1, length + next);
        }
        let rest = delivery.messages.split_off(length);
        let part = Delivery { count, ..delivery.clone() };
        delivery = Delivery {
            first: part.first.plus(u64::from(count)),
            count: delivery.count - count,
            messages: rest,
            ..part
        };
        encode_frame(&part, iter::empty(), out);
    }
    encode_frame(&delivery, iter::empty(), out);
}

fn encode_frame<'a>(
    first: &'a Delivery,
    row: impl Iterator<Item = &'a Delivery> + Clone,
    out: &mut WriteBuffer,
) {
    let all = || iter::once(first).chain(row.clone());
    let head = DeliverHead {
        subscription: first.subscription,
        partition: first.partition.index,
        first: first.first,
        appended_at: first.appended_at,
        attempt: first.attempt,
        generation: first.generation,
        count: all().map(|delivery| delivery.count).sum(),
        durability: first.durability,
    };
    head.encode(all().map(|delivery| delivery.messages.len()).sum(), 0, out.own());
    for delivery in all() {
        out.push(&delivery.messages);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sennit_engine::SessionId;
    use sennit_model::{
        Durability, Generation, Offset, PartitionId, PartitionIndex, Timestamp, TopicId,
        limits::FRAME_BYTES_MAX,
    };

    use super::*;

    /// `count` messages from `first`, of ten bytes each.
    fn delivery(first: u64, count: u32) -> Delivery {
        Delivery {
            session: SessionId(1),
            subscription: 1,
            partition: PartitionId { topic: TopicId(1), index: PartitionIndex(0) },
            first: Offset(first),
            count,
            attempt: 0,
            generation: Generation(1),
            appended_at: Timestamp(5),
            durability: Durability::Durable,
            messages: Bytes::from(vec![0; 10 * count as usize]),
        }
    }

    fn rows(first: &Delivery, waiting: &[Delivery], limit: usize) -> usize {
        row(first, waiting.iter(), limit)
    }

    #[test]
    fn what_goes_on_where_the_one_before_ends_goes_out_with_it() {
        let waiting = [delivery(2, 3), delivery(5, 1), delivery(7, 1)];
        assert_eq!(rows(&delivery(0, 2), &waiting, FRAME_BYTES_MAX), 2);
    }

    #[test]
    fn what_was_appended_at_another_time_or_is_for_another_has_a_frame_of_its_own() {
        let later = Delivery { appended_at: Timestamp(6), ..delivery(2, 3) };
        let others = Delivery { subscription: 2, ..delivery(2, 3) };
        let again = Delivery { attempt: 2, ..delivery(2, 3) };
        let durability = Durability::Speculative;
        let sooner = Delivery { durability, ..delivery(2, 3) };
        for next in [later, others, again, sooner] {
            assert_eq!(rows(&delivery(0, 2), &[next], FRAME_BYTES_MAX), 0);
        }
    }

    #[test]
    fn a_row_is_no_longer_than_a_frame_and_no_batch_has_too_many() {
        let waiting = [delivery(2, 3), delivery(5, 1)];
        assert_eq!(rows(&delivery(0, 2), &waiting, DeliverHead::BYTES + 50), 1);
        let most = u32::try_from(BATCH_MESSAGES_MAX).unwrap();
        let full = Delivery { messages: Bytes::new(), ..delivery(0, most) };
        assert_eq!(rows(&full, &[delivery(u64::from(most), 1)], FRAME_BYTES_MAX), 0);
    }

    #[test]
    fn a_row_is_encoded_as_one_frame_with_all_its_messages() {
        let mut out = WriteBuffer::default();
        encode(&delivery(0, 2), [delivery(2, 3)].iter(), FRAME_BYTES_MAX, &mut out);
        assert_eq!(out.len(), 16 + DeliverHead::BYTES + 50);
    }
}

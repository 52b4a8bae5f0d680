//! The frames that wait to be sent on one connection, in order: replies, deliveries and gaps. Adjacent gaps are
//! joined. It does not know the receivers.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry, vec_deque::Iter},
    ops::RangeInclusive,
};

use sennit_engine::Delivery;
use sennit_model::PartitionIndex;
use sennit_protocol::{Gap, Reply};

/// Replies that follow one another wait together up to here.
const REPLIES_TOGETHER_BYTES: usize = 16 << 10;

/// What is sent as it comes.
#[derive(Debug)]
pub(crate) enum Item {
    Delivery(Delivery),
    Gap(Gap),
    /// Replies that follow one another. A short one by itself would hold many times what it is.
    Replies(Vec<u8>),
}

impl Item {
    pub(crate) fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(delivery) => Some(delivery),
            Self::Gap(_) | Self::Replies(_) => None,
        }
    }
}

/// What waits, in order.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    items: VecDeque<Item>,
    /// How many items have gone.
    gone: u64,
    /// The gap that waits as the last of each subscription's partition: which item it is of all there were.
    gaps: HashMap<(u32, PartitionIndex), u64>,
    /// The first item behind the last subscription that has begun: gaps before it are not added to, for
    /// they may be of another of the same number.
    gaps_begin: u64,
    delivery_bytes: usize,
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub(crate) fn iter(&self) -> Iter<'_, Item> {
        self.items.iter()
    }

    pub(crate) fn range(&self, items: RangeInclusive<usize>) -> Iter<'_, Item> {
        self.items.range(items)
    }

    /// Of the messages of all deliveries.
    pub(crate) fn delivery_bytes(&self) -> usize {
        self.delivery_bytes
    }

    /// Adds a reply; returns of how many bytes.
    pub(crate) fn push_reply(&mut self, reply: &Reply, request: u64) -> usize {
        if let Some(Item::Replies(bytes)) = self.items.back_mut()
            && bytes.len() < REPLIES_TOGETHER_BYTES
        {
            let before = bytes.len();
            reply.encode(request, bytes);
            return bytes.len() - before;
        }
        let mut bytes = Vec::new();
        reply.encode(request, &mut bytes);
        let count = bytes.len();
        self.items.push_back(Item::Replies(bytes));
        count
    }

    /// Adds bytes that are no frame.
    pub(crate) fn push_alert(&mut self, bytes: &[u8]) {
        self.items.push_back(Item::Replies(bytes.to_vec()));
    }

    pub(crate) fn push_delivery(&mut self, delivery: Delivery) {
        self.delivery_bytes += delivery.messages.len();
        // A gap behind it is told behind it.
        self.gaps.remove(&(delivery.subscription, delivery.partition.index));
        self.items.push_back(Item::Delivery(delivery));
    }

    /// Adds a gap, to the one that waits if it goes on where that ends: who does not read gets one for
    /// all, however often it was passed over.
    pub(crate) fn push_gap(&mut self, gap: Gap) {
        let next = self.next();
        let number = self.gaps.entry((gap.subscription, gap.partition)).or_insert(next);
        let index = usize::try_from(*number - self.gone).unwrap_or(usize::MAX);
        if *number >= self.gaps_begin
            && let Some(Item::Gap(held)) = self.items.get_mut(index)
            && held.reason == gap.reason
            && held.offsets.end == gap.offsets.start
        {
            held.offsets.end = gap.offsets.end;
            return;
        }
        *number = next;
        self.items.push_back(Item::Gap(gap));
    }

    /// A subscription begins here.
    pub(crate) fn subscription_begins(&mut self) {
        self.gaps_begin = self.next();
    }

    /// Which item comes next, of all there were.
    fn next(&self) -> u64 {
        self.gone + self.items.len() as u64
    }

    /// The first `count` items have gone.
    pub(crate) fn remove(&mut self, count: usize) {
        for item in self.items.drain(..count) {
            self.delivery_bytes -= item.delivery().map_or(0, |delivery| delivery.messages.len());
            if let Item::Gap(gap) = item
                && let Entry::Occupied(last) = self.gaps.entry((gap.subscription, gap.partition))
                && *last.get() == self.gone
            {
                last.remove();
            }
            self.gone += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_engine::SessionId;
    use sennit_model::{Generation, Offset, OffsetRange, PartitionId, Timestamp, TopicId};
    use sennit_protocol::{Durability, GapReason};

    use super::*;

    fn gap(partition: u32, offsets: std::ops::Range<u64>, reason: GapReason) -> Gap {
        let offsets = OffsetRange { start: Offset(offsets.start), end: Offset(offsets.end) };
        Gap { subscription: 7, partition: PartitionIndex(partition), offsets, reason }
    }

    /// A message of partition 0.
    fn delivery(first: u64) -> Delivery {
        Delivery {
            session: SessionId(1),
            subscription: 7,
            partition: PartitionId { topic: TopicId(1), index: PartitionIndex(0) },
            first: Offset(first),
            count: 1,
            attempt: 1,
            generation: Generation(1),
            appended_at: Timestamp(0),
            durability: Durability::Durable,
            messages: vec![0; 100].into(),
        }
    }

    /// What waits, in order; nothing stands for what is no gap.
    fn gaps(queue: &SendQueue) -> Vec<Option<Gap>> {
        let gap = |item: &Item| match item {
            Item::Gap(gap) => Some(*gap),
            Item::Delivery(_) | Item::Replies(_) => None,
        };
        queue.iter().map(gap).collect()
    }

    #[test]
    fn who_does_not_read_has_one_gap_waiting_for_each_partition_that_is_passed_over() {
        let (mut queue, passed) = (SendQueue::default(), GapReason::Filtered);
        for n in 0..10_000 {
            queue.push_gap(gap(0, 2 * n..2 * n + 2, passed));
            queue.push_gap(gap(1, n..n + 1, passed));
        }
        let expected = [gap(0, 0..20_000, passed), gap(1, 0..10_000, passed)];
        assert_eq!(gaps(&queue), expected.map(Some));
        // Another reason is told by itself, and what was sent is not added to.
        queue.push_gap(gap(1, 10_000..10_001, GapReason::Retention));
        queue.remove(2);
        assert_eq!(queue.len(), 1);
        queue.remove(1);
        assert!(queue.is_empty() && queue.gaps.is_empty());
        queue.push_gap(gap(0, 20_000..20_001, passed));
        assert_eq!(gaps(&queue), [Some(gap(0, 20_000..20_001, passed))]);
    }

    #[test]
    fn replies_that_wait_hold_little_more_than_they_are() {
        let (mut queue, mut expected, mut counted) = (SendQueue::default(), Vec::new(), 0);
        for request in 0..10_000 {
            counted += queue.push_reply(&Reply::Pong, request);
            Reply::Pong.encode(request, &mut expected);
        }
        let (mut waiting, mut held) = (Vec::new(), queue.items.capacity() * size_of::<Item>());
        for item in queue.iter() {
            let Item::Replies(bytes) = item else { panic!("{item:?}") };
            held += bytes.capacity();
            waiting.extend_from_slice(bytes);
        }
        assert!(held < 3 * counted, "{held} for {counted}");
        assert!(waiting == expected && counted == expected.len(), "each waits, in order");
    }

    #[test]
    fn a_gap_is_told_behind_what_was_delivered_before_it_although_it_follows_an_earlier_gap() {
        let (mut queue, damaged) = (SendQueue::default(), GapReason::Damaged);
        queue.push_gap(gap(0, 0..2, damaged));
        queue.push_gap(gap(1, 0..2, damaged));
        queue.push_delivery(delivery(2));
        // It comes back, and cannot be read any more.
        queue.push_gap(gap(0, 2..3, damaged));
        queue.push_gap(gap(0, 3..4, damaged));
        queue.push_gap(gap(1, 2..3, damaged));
        queue.push_delivery(delivery(4));
        let (first, other) = (gap(0, 0..2, damaged), gap(1, 0..3, damaged));
        let expected = [Some(first), Some(other), None, Some(gap(0, 2..4, damaged)), None];
        assert_eq!(gaps(&queue), expected);
    }

    #[test]
    fn a_gap_of_a_subscription_is_not_told_to_an_earlier_one_of_its_number() {
        let (mut queue, passed) = (SendQueue::default(), GapReason::Filtered);
        queue.push_gap(gap(0, 0..10, passed));
        queue.subscription_begins();
        queue.push_reply(&Reply::Pong, 1);
        queue.push_gap(gap(0, 10..20, passed));
        queue.push_gap(gap(0, 20..30, passed));
        let expected = [Some(gap(0, 0..10, passed)), None, Some(gap(0, 10..30, passed))];
        assert_eq!(gaps(&queue), expected);
    }
}

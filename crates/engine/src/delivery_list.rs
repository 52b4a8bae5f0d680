//! The deliveries to a subscription in one partition, in order, so that the oldest one it still holds is found. It
//! does not know what follows from that.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use crate::lease::{Holder, Lease};

/// Deliveries that may be remembered beyond twice what is held.
const REMEMBERED_MIN: u64 = 32;

/// A delivery: `count` offsets from `first`, under one attempt.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    first: u64,
    count: u32,
    attempt: u32,
}

/// The deliveries of one subscription, oldest first. Some of them may be over: they go when they come to
/// the front, or when there are too many.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryList(VecDeque<Delivered>);

impl DeliveryList {
    /// A delivery was made to `holder`, which now holds `held` messages. O(1) on average.
    pub(crate) fn push(
        &mut self,
        range: Range<u64>,
        attempt: u32,
        (holder, held): (Holder, u64),
        leases: &BTreeMap<u64, Lease>,
    ) {
        let count = u32::try_from(range.end - range.start).expect("not more than a batch holds");
        if self.0.len() as u64 > 2 * held + REMEMBERED_MIN {
            self.0.retain(|delivered| delivered.first_held(holder, leases).is_some());
        }
        self.0.push_back(Delivered { first: range.start, count, attempt });
    }

    /// The leases of `range` of this attempt are over. As a rule they are the oldest.
    pub(crate) fn ended(&mut self, range: Range<u64>, attempt: u32) {
        let Some(front) = self.0.front_mut() else { return };
        if front.attempt != attempt || !range.contains(&front.first) {
            return;
        }
        let front_end = front.first + u64::from(front.count);
        if range.end >= front_end {
            self.0.pop_front();
        } else {
            front.go_on_from(range.end);
        }
    }

    /// The first offset of the oldest delivery of which `holder` still holds something. O(log n) on
    /// average.
    pub(crate) fn oldest(&mut self, holder: Holder, leases: &BTreeMap<u64, Lease>) -> Option<u64> {
        while let Some(front) = self.0.front_mut() {
            if let Some(first) = front.first_held(holder, leases) {
                front.go_on_from(first);
                return Some(first);
            }
            self.0.pop_front();
        }
        None
    }
}

impl Delivered {
    fn go_on_from(&mut self, first: u64) {
        self.count -= u32::try_from(first - self.first).expect("it lies within the delivery");
        self.first = first;
    }

    fn first_held(&self, holder: Holder, leases: &BTreeMap<u64, Lease>) -> Option<u64> {
        let (start, end) = (self.first, self.first + u64::from(self.count));
        let across = leases.range(..start).next_back().filter(|(_, lease)| lease.end > start);
        across
            .into_iter()
            .chain(leases.range(start..end))
            .find(|(_, lease)| lease.holder == holder && lease.attempt() == self.attempt)
            .map(|(&from, _)| from.max(start))
    }
}

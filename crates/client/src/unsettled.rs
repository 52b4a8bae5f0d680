//! The deliveries of a partition that a program has taken and not settled. The broker assumes that the program
//! works on the oldest one only; if there are more, the client reports it. It knows no broker.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Messages of one bitmap word.
const WORD_MESSAGES: u32 = u64::BITS;

/// The number of taken and unsettled messages of one partition of a subscription, on one
/// connection.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    count: AtomicU64,
}

impl Unsettled {
    /// Counts taken messages. Returns whether the program now works on more than the oldest
    /// message.
    pub(crate) fn take(&self, count: u32) -> bool {
        self.count.fetch_add(count.into(), Ordering::Relaxed) > 0 || count > 1
    }

    fn settle(&self, count: u32) {
        self.count.fetch_sub(count.into(), Ordering::Relaxed);
    }
}

/// The settled messages of one deliver frame. A message that is settled twice counts once.
#[derive(Debug)]
pub(crate) struct BatchProgress {
    unsettled: Arc<Unsettled>,
    /// One bit for each message. The first word is separate, as most frames need no other.
    first: AtomicU64,
    rest: Box<[AtomicU64]>,
}

impl BatchProgress {
    pub(crate) fn new(unsettled: Arc<Unsettled>, count: u32) -> Self {
        let words = count.div_ceil(WORD_MESSAGES).saturating_sub(1);
        let rest = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { unsettled, first: AtomicU64::new(0), rest }
    }

    /// As [`Unsettled::take`].
    pub(crate) fn take(&self, count: u32) -> bool {
        self.unsettled.take(count)
    }

    /// Marks `count` taken messages from the index `from` as settled.
    pub(crate) fn settle(&self, from: u32, count: u32) {
        let (mut at, end) = (from, from + count);
        let mut newly = 0;
        while at < end {
            let (word, bit) = (at / WORD_MESSAGES, at % WORD_MESSAGES);
            let bits = (end - at).min(WORD_MESSAGES - bit);
            let mask = (u64::MAX >> (WORD_MESSAGES - bits)) << bit;
            let word = match word.checked_sub(1) {
                None => &self.first,
                Some(index) => &self.rest[index as usize],
            };
            let before = word.fetch_or(mask, Ordering::Relaxed);
            newly += (mask & !before).count_ones();
            at += bits;
        }
        self.unsettled.settle(newly);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_settles_each_message_before_it_takes_the_next_works_on_one_at_a_time() {
        let unsettled = Arc::new(Unsettled::default());
        let batch = BatchProgress::new(Arc::clone(&unsettled), 200);
        for at in 0..200 {
            assert!(!batch.take(1), "{at}");
            batch.settle(at, 1);
            batch.settle(at, 1);
        }
        assert!(batch.take(2), "two at once");
    }

    #[test]
    fn a_message_is_settled_once_however_often_and_in_whatever_parts_that_is_said() {
        let unsettled = Arc::new(Unsettled::default());
        let batch = BatchProgress::new(Arc::clone(&unsettled), 300);
        assert!(batch.take(300));
        for (from, count) in [(60, 80), (0, 64), (128, 2), (100, 150), (250, 49), (10, 200)] {
            batch.settle(from, count);
        }
        assert_eq!(unsettled.count.load(Ordering::Relaxed), 1);
        assert!(batch.take(1));
        batch.settle(0, 300);
        assert_eq!(unsettled.count.load(Ordering::Relaxed), 1);
    }
}

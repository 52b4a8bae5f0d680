//! The deduplication values that a partition remembers: of each, the offset of its message and the time of its append.
//! They follow from the records alone: a value leaves with the first append whose time is beyond its window.

use std::{collections::VecDeque, time::Duration};

use hashbrown::HashMap;
use sennit_model::{Batch, Dedup, Offset, Timestamp};

/// A value, by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenValue {
    pub(crate) hash: u128,
    /// The message that had it last.
    pub(crate) offset: u64,
    pub(crate) at: Timestamp,
}

/// All values of a partition; most partitions have none.
#[derive(Debug, Default)]
pub(crate) struct SeenValues(Option<Box<Seen>>);

/// Entries by offset, beside two for each value, from which on those that say nothing are taken out.
const SLACK: usize = 64;

#[derive(Debug, Default)]
struct Seen {
    by_hash: HashMap<u128, (u64, Timestamp), foldhash::fast::FixedState>,
    /// Hashes and offsets by offset, and so by time. A value that a later message has too is in it once more.
    by_offset: VecDeque<(u64, u128)>,
}

impl SeenValues {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of values that are remembered, those beyond their window included.
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |seen| seen.by_hash.len())
    }

    /// The message that had this value last, within the window.
    pub(crate) fn find(&self, hash: u128, window: Duration, now: Timestamp) -> Option<Offset> {
        let &(offset, at) = self.0.as_ref()?.by_hash.get(&hash)?;
        (at.plus(window) > now).then_some(Offset(offset))
    }

    /// The number of values that would be remembered at this time. Costs a step for each that would not.
    pub(crate) fn count_at(&self, now: Timestamp, window: Duration) -> usize {
        let Some(seen) = &self.0 else { return 0 };
        let is_over = |(offset, hash): &&(u64, u128)| {
            seen.by_hash
                .get(hash)
                .is_none_or(|held| held.0 != *offset || held.1.plus(window) <= now)
        };
        let over = seen.by_offset.iter().take_while(is_over);
        let over =
            over.filter(|(offset, hash)| seen.by_hash.get(hash).is_some_and(|h| h.0 == *offset));
        seen.by_hash.len() - over.count()
    }

    /// Remembers the values of a batch that was appended at `first`, and forgets those beyond the window.
    pub(crate) fn appended(&mut self, dedup: &Dedup, batch: &Batch, first: u64, now: Timestamp) {
        self.forget_before(dedup.window, now);
        for (offset, message) in (first..).zip(batch.messages()) {
            if let Some(hash) = dedup.hash_of(&message) {
                self.put_back(SeenValue { hash, offset, at: now });
            }
        }
    }

    fn forget_before(&mut self, window: Duration, now: Timestamp) {
        let Some(seen) = &mut self.0 else { return };
        while let Some(&(offset, hash)) = seen.by_offset.front() {
            match seen.by_hash.get(&hash) {
                Some(&(held, at)) if held == offset => {
                    if at.plus(window) > now {
                        break;
                    }
                    seen.by_hash.remove(&hash);
                }
                // A later message has the value.
                _ => {}
            }
            seen.by_offset.pop_front();
        }
        if seen.by_offset.is_empty() {
            self.0 = None;
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Remembers a value, in whatever order they come: of two messages with it the later one counts.
    pub(crate) fn put_back(&mut self, SeenValue { hash, offset, at }: SeenValue) {
        let seen = self.0.get_or_insert_default();
        if seen.by_hash.get(&hash).is_some_and(|held| held.0 >= offset) {
            return;
        }
        seen.by_hash.insert(hash, (offset, at));
        let place = seen.by_offset.partition_point(|held| held.0 < offset);
        seen.by_offset.insert(place, (offset, hash));
        if seen.by_offset.len() > 2 * seen.by_hash.len() + SLACK {
            let Seen { by_hash, by_offset } = &mut **seen;
            by_offset
                .retain(|(offset, hash)| by_hash.get(hash).is_some_and(|held| held.0 == *offset));
        }
    }

    /// The values of messages from this offset on, in order.
    pub(crate) fn from(&self, offset: u64) -> impl Iterator<Item = SeenValue> {
        let seen = self.0.iter();
        seen.flat_map(move |seen| {
            let from = seen.by_offset.partition_point(|held| held.0 < offset);
            seen.by_offset.range(from..).filter_map(move |&(offset, hash)| {
                let &(held, at) = seen.by_hash.get(&hash)?;
                (held == offset).then_some(SeenValue { hash, offset, at })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn value(hash: u128, offset: u64, at: u64) -> SeenValue {
        SeenValue { hash, offset, at: Timestamp(at) }
    }

    #[test]
    fn a_value_is_found_within_its_window_and_the_latest_message_counts() {
        let mut seen = SeenValues::default();
        seen.put_back(value(7, 3, 1000));
        assert_eq!(seen.find(7, SECOND, Timestamp(1999)), Some(Offset(3)));
        assert_eq!(seen.find(7, SECOND, Timestamp(2000)), None);
        seen.put_back(value(7, 9, 1500));
        seen.put_back(value(7, 5, 1200));
        assert_eq!(seen.find(7, SECOND, Timestamp(2400)), Some(Offset(9)));
        assert_eq!(seen.from(0).collect::<Vec<_>>(), [value(7, 9, 1500)]);
    }

    #[test]
    fn what_is_beyond_the_window_is_forgotten_and_counted_out_before() {
        let mut seen = SeenValues::default();
        for (hash, at) in [(1, 1000), (2, 1100), (3, 1900)] {
            seen.put_back(value(hash, at, at));
        }
        seen.put_back(value(1, 2000, 2000));
        assert_eq!((seen.count(), seen.count_at(Timestamp(2150), SECOND)), (3, 2));
        seen.forget_before(SECOND, Timestamp(2150));
        assert_eq!(seen.from(0).map(|held| held.hash).collect::<Vec<_>>(), [3, 1]);
        seen.forget_before(SECOND, Timestamp(9000));
        assert!(seen.is_empty());
    }
}

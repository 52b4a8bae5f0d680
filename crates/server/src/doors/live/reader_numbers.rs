//! The numbers by which shards know the readers of a session. There are 2^32 of them, and a broker may run for longer than
//! these last: a number is given again, but none that is in use, and none of which a shard may speak yet. It knows no readers.

/// Numbers that are given before one is given again that was in use just now: more than are on the way from shards.
const REST: u32 = 1 << 20;

/// Numbers for readers.
#[derive(Debug)]
pub(crate) struct ReaderNumbers {
    last: u32,
}

impl Default for ReaderNumbers {
    fn default() -> Self {
        // Every run passes the end of the numbers, so that nothing depends on their order.
        Self { last: u32::MAX - 4 }
    }
}

impl ReaderNumbers {
    /// A number that is not in use, and is not 0.
    pub(crate) fn begin(&mut self, is_used: impl Fn(u32) -> bool) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !is_used(self.last) {
                return self.last;
            }
        }
    }

    /// The reader of this number ends: what its shard has sent before is on the way.
    pub(crate) fn end(&mut self, number: u32) {
        if number.wrapping_sub(self.last) <= REST {
            self.last = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_is_in_use_when_all_were_given_is_not_given_again() {
        let mut numbers = ReaderNumbers { last: u32::MAX - 1 };
        let used = [1, 2, 4];
        let given: Vec<u32> = (0..4).map(|_| numbers.begin(|it| used.contains(&it))).collect();
        assert_eq!(given, [u32::MAX, 3, 5, 6]);
    }

    #[test]
    fn a_number_of_which_a_shard_may_speak_is_not_given_again_at_once() {
        let mut numbers = ReaderNumbers { last: 6 };
        // It was given when the numbers began anew, or before.
        numbers.end(7);
        assert_eq!(numbers.begin(|_| false), 8);
        numbers.end(8);
        assert_eq!(numbers.begin(|_| false), 9);
        numbers.end(5);
        assert_eq!(numbers.begin(|_| false), 10);
    }

    proptest! {
        /// Readers begin and end while the numbers begin anew.
        #[test]
        fn no_two_readers_have_one_number(
            held in prop::collection::btree_set(1_u32..300, 0..200),
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..600),
        ) {
            let mut numbers = ReaderNumbers { last: u32::MAX - 100 };
            let mut live: Vec<u32> = held.into_iter().collect();
            let mut ended = HashMap::new();
            for (step, (begins, which)) in steps.into_iter().enumerate() {
                if begins || live.is_empty() {
                    let number = numbers.begin(|number| live.contains(&number));
                    prop_assert!(number != 0 && !live.contains(&number));
                    prop_assert!(!ended.contains_key(&number), "{number} ended at {ended:?}");
                    live.push(number);
                } else {
                    let number = live.swap_remove(which.index(live.len()));
                    numbers.end(number);
                    ended.insert(number, step);
                }
            }
        }
    }
}

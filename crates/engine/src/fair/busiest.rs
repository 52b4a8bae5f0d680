//! The keys that are given the most messages, with a fixed number of counters however many keys there are.
//!
//! Source: Metwally, Agrawal & El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
//! ICDT 2005 (Space-Saving).

use std::{hash::BuildHasher, time::Duration};

use foldhash::fast::FixedState;

use super::{Fair, NONE};
use crate::explanation::KeyDeliveries;

/// Keys that are counted. One that is given more than this part of all messages is among them.
const COUNTERS: usize = 32;

/// Counters for the keys that are given the most.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    /// How much each of them has counted, apart from the rest as it is looked through.
    counted: Vec<u64>,
    /// The hashes of their keys' names.
    hashes: Vec<u32>,
    counters: Vec<Counter>,
}

/// A counter.
#[derive(Debug)]
struct Counter {
    name: String,
    /// The number of the key.
    key: u32,
    over: u64,
    first_deliveries: u64,
    waited: Duration,
}

impl Busiest {
    /// Counts a delivery of the key of this number and name, which waited so long if it is the first of its message.
    /// `place` is where its counter was, and is set to where it is.
    pub(super) fn count(
        &mut self,
        (key, name): (u32, &str),
        place: &mut u32,
        waited: Option<Duration>,
    ) {
        let is_there = self.counters.get(*place as usize).is_some_and(|counter| counter.key == key);
        if !is_there {
            *place = self.place_of(key, name) as u32;
        }
        let at = *place as usize;
        self.counted[at] += 1;
        if let Some(waited) = waited {
            self.counters[at].first_deliveries += 1;
            self.counters[at].waited += waited;
        }
    }

    /// The counter of a key: the one it has, a new one, or the one that has counted the least.
    fn place_of(&mut self, key: u32, name: &str) -> usize {
        let hash = FixedState::default().hash_one(name) as u32;
        let is_of_name = |&at: &usize| self.hashes[at] == hash && self.counters[at].name == name;
        if let Some(at) = (0..self.hashes.len()).find(is_of_name) {
            self.counters[at].key = key;
            return at;
        }
        let none = Duration::ZERO;
        if self.counters.len() < COUNTERS {
            let name = name.to_owned();
            self.counters.push(Counter { name, key, over: 0, first_deliveries: 0, waited: none });
            self.counted.push(0);
            self.hashes.push(hash);
            return self.counters.len() - 1;
        }
        let least = *self.counted.iter().min().expect("there are some");
        let at = self.counted.iter().position(|&counted| counted == least).expect("it is there");
        let counter = &mut self.counters[at];
        counter.name.clear();
        counter.name.push_str(name);
        (counter.key, counter.over) = (key, least);
        (counter.first_deliveries, counter.waited) = (0, none);
        self.hashes[at] = hash;
        at
    }

    /// The number of this key is given to another.
    pub(super) fn forget_number(&mut self, key: u32, place: u32) {
        if let Some(counter) = self.counters.get_mut(place as usize).filter(|held| held.key == key)
        {
            counter.key = NONE;
        }
    }

    /// The keys that were given the most, the busiest first, `most` at most.
    pub(super) fn top(&self, most: usize) -> Vec<KeyDeliveries> {
        let mut keys: Vec<_> = self.counters.iter().zip(&self.counted).collect();
        keys.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.name.cmp(&b.name)));
        let told = |(counter, &delivered): (&Counter, &u64)| KeyDeliveries {
            fair_key: counter.name.clone(),
            delivered,
            at_most_over: counter.over,
            first_deliveries: counter.first_deliveries,
            waited: counter.waited,
        };
        keys.into_iter().take(most).map(told).collect()
    }
}

impl Fair {
    /// The keys that were given the most since somebody takes part, `most` at most.
    pub(crate) fn busiest(&self, most: usize) -> Vec<KeyDeliveries> {
        self.busiest.top(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_has_more_than_its_part_is_named_however_many_others_there_are() {
        let (mut busiest, mut places) = (Busiest::default(), vec![0; 1001]);
        for round in 0..2000 {
            for key in [0, 1 + round % 1000, 0, 1 + (round + 500) % 1000] {
                let name = if key == 0 { "noisy".to_owned() } else { format!("quiet{key}") };
                let waited = Some(Duration::from_millis(5));
                busiest.count((key, &name), &mut places[key as usize], waited);
            }
        }
        let top = busiest.top(3);
        assert_eq!(top.len(), 3);
        let noisy = &top[0];
        let waited = Duration::from_millis(5 * 4000);
        assert_eq!(
            (noisy.fair_key.as_str(), noisy.delivered, noisy.waited),
            ("noisy", 4000, waited)
        );
        assert_eq!((noisy.at_most_over, noisy.first_deliveries), (0, 4000));
        for other in &top[1..] {
            let sure = other.delivered - other.at_most_over;
            assert!(sure <= 4 && other.delivered <= 8000 / COUNTERS as u64 + 4, "{other:?}");
        }
    }

    #[test]
    fn a_key_that_comes_again_under_another_number_goes_on() {
        let mut busiest = Busiest::default();
        let (mut first, mut second) = (0, 0);
        busiest.count((0, "a"), &mut first, None);
        busiest.count((1, "b"), &mut second, None);
        busiest.forget_number(0, first);
        let mut other = 0;
        busiest.count((0, "c"), &mut other, None);
        let mut again = 0;
        busiest.count((7, "a"), &mut again, None);
        let counted: Vec<_> =
            busiest.top(9).into_iter().map(|key| (key.fair_key, key.delivered)).collect();
        let expected = [("a", 2), ("b", 1), ("c", 1)];
        assert_eq!(counted, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}

//! Verifies that each message comes once, unchanged, and in its producer's order.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

/// The sequences of one producer that have come, one bit each.
#[derive(Clone, Debug, Default)]
struct Seen {
    words: Vec<u64>,
    count: u64,
    /// The latest sequence of the consumer and partition that came last: neighbours mostly share them.
    current: Option<((u32, u32), u64)>,
}

impl Seen {
    /// Whether `sequence` is new.
    fn insert(&mut self, sequence: u64) -> bool {
        self.insert_bits((sequence / 64) as usize, 1 << (sequence % 64), 1).1 == 1
    }

    /// Those of `bits` that are new in this word, and how many they are. There are `count` in all.
    fn insert_bits(&mut self, word: usize, bits: u64, count: u64) -> (u64, u64) {
        if self.words.len() <= word {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let fresh = bits & !self.words[word];
        self.words[word] |= bits;
        let fresh_count = if fresh == bits { count } else { fresh.count_ones().into() };
        self.count += fresh_count;
        (fresh, fresh_count)
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut next = 0;
        let end = self.words.len() as u64 * 64;
        while next < end {
            let word = self.words[(next / 64) as usize] >> (next % 64);
            match runs.last_mut() {
                _ if word == 0 => next = (next / 64 + 1) * 64,
                Some(last) if last.1 == next => {
                    let ones = u64::from((!word).trailing_zeros()).min(64 - next % 64);
                    last.1 += ones;
                    next += ones.max(1);
                }
                _ => {
                    next += u64::from(word.trailing_zeros());
                    runs.push((next, next));
                }
            }
        }
        runs
    }
}

/// What a consumer process has seen, as it tells its parent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sighting {
    /// For each producer the half-open runs of sequences that came.
    pub seen: Vec<(u32, Vec<(u64, u64)>)>,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages that came for the first time after a later one of the same producer and partition.
    pub out_of_order: u64,
    /// Messages whose bytes were not as they were sent.
    pub corrupt: u64,
}

/// Beyond this a sequence is taken for damage: no run sends so many.
const SEQUENCES_MAX: u64 = 1 << 36;

/// As many producers as a run may have; beyond it a number is taken for damage.
const PRODUCERS_MAX: u32 = 1 << 16;

/// Watches messages come.
#[derive(Debug, Default)]
pub struct Identity {
    /// By producer.
    seen: Vec<Seen>,
    /// The latest sequence by consumer, producer and partition, where it is not the producer's current.
    latest: HashMap<(u32, u32, u32), u64, RandomState>,
    duplicates: u64,
    out_of_order: u64,
    corrupt: u64,
}

impl Identity {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A message has come to `consumer`. Returns whether it is the first time. Order is looked at
    /// for each consumer by itself: between two consumers of a group there is none.
    pub fn saw(&mut self, consumer: u32, partition: u32, producer: u32, sequence: u64) -> bool {
        self.saw_word(consumer, partition, producer, (sequence, 1)) == 1
    }

    /// As [`Self::saw`] of several messages, each of which has the sequence after the one before it:
    /// the first of them, and how many. Returns how many of them have come for the first time.
    pub fn saw_run(
        &mut self,
        consumer: u32,
        partition: u32,
        producer: u32,
        (first, count): (u64, u64),
    ) -> u64 {
        let (mut next, mut left, mut fresh) = (first, count, 0);
        while left > 0 {
            let within = left.min(64 - next % 64);
            fresh += self.saw_word(consumer, partition, producer, (next, within));
            (next, left) = (next.wrapping_add(within), left - within);
        }
        fresh
    }

    /// As [`Self::saw_run`], of sequences whose bits share a word.
    fn saw_word(
        &mut self,
        consumer: u32,
        partition: u32,
        producer: u32,
        (first, count): (u64, u64),
    ) -> u64 {
        if first >= SEQUENCES_MAX || producer >= PRODUCERS_MAX {
            self.corrupt += count;
            return 0;
        }
        let index = producer as usize;
        if self.seen.len() <= index {
            self.seen.resize_with(index + 1, Seen::default);
        }
        let seen = &mut self.seen[index];
        let (word, bit) = (first / 64, first % 64);
        let bits = u64::MAX >> (64 - count) << bit;
        let (fresh, fresh_count) = seen.insert_bits(word as usize, bits, count);
        self.duplicates += count - fresh_count;
        if fresh == 0 {
            return 0;
        }
        let lowest = word * 64 + u64::from(fresh.trailing_zeros());
        let highest = word * 64 + u64::from(fresh.ilog2());
        let key = (consumer, partition);
        let latest = match seen.current {
            Some((current, latest)) if current == key => latest,
            before => {
                if let Some(((consumer, partition), latest)) = before {
                    self.latest.insert((consumer, producer, partition), latest);
                }
                self.latest.get(&(consumer, producer, partition)).copied().unwrap_or(lowest)
            }
        };
        if lowest < latest {
            let earlier = u64::MAX >> (64 - (latest - word * 64).min(64));
            self.out_of_order += u64::from((fresh & earlier).count_ones());
        }
        seen.current = Some((key, latest.max(highest)));
        fresh_count
    }

    /// So many messages have come whose bytes are wrong.
    pub fn saw_corrupt(&mut self, count: u64) {
        self.corrupt += count;
    }

    /// How many different messages have come.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seen.iter().map(|seen| seen.count).sum()
    }

    /// Everything is to come once more: what was seen is forgotten, and what was wrong with it is not.
    pub fn begin_again(&mut self) {
        self.seen.clear();
        self.latest.clear();
    }

    /// Everything that was seen, for the parent.
    #[must_use]
    pub fn sighting(&self) -> Sighting {
        let seen = (0..).zip(&self.seen).filter(|(_, seen)| seen.count > 0);
        let seen = seen.map(|(producer, seen)| (producer, seen.runs())).collect();
        Sighting {
            seen,
            duplicates: self.duplicates,
            out_of_order: self.out_of_order,
            corrupt: self.corrupt,
        }
    }
}

/// What the parent says of a run's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Confirmed and never delivered.
    pub missing: u64,
    /// Delivered again.
    pub duplicates: u64,
    /// Delivered after a later one.
    pub out_of_order: u64,
    /// Delivered with other bytes, or never sent.
    pub corrupt: u64,
}

/// Compares what producers had confirmed, as `(producer, published, confirmed)`, with what the
/// consumer processes saw. Where a producer had errors, which of its messages were confirmed is
/// not known one by one, and their number is compared.
#[must_use]
pub fn judge(sent: &[(u32, u64, u64)], sightings: &[Sighting]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut all: HashMap<u32, Seen> = HashMap::new();
    for sighting in sightings {
        verdict.duplicates += sighting.duplicates;
        verdict.out_of_order += sighting.out_of_order;
        verdict.corrupt += sighting.corrupt;
        for (producer, runs) in &sighting.seen {
            let seen = all.entry(*producer).or_default();
            for sequence in runs.iter().flat_map(|&(start, end)| start..end) {
                // Two consumer processes got the same message.
                verdict.duplicates += u64::from(!seen.insert(sequence));
            }
        }
    }
    for (producer, published, confirmed) in sent {
        let runs = all.remove(producer).map(|seen| seen.runs()).unwrap_or_default();
        let inside = |&(start, end): &(u64, u64)| end.min(*published).saturating_sub(start);
        let sent_and_seen: u64 = runs.iter().map(inside).sum();
        verdict.missing += confirmed.saturating_sub(sent_and_seen);
        verdict.corrupt += runs.iter().map(|(start, end)| end - start).sum::<u64>() - sent_and_seen;
    }
    // Producers that do not exist.
    verdict.corrupt += all.values().map(|seen| seen.count).sum::<u64>();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two producers of 200 messages each in two partitions, as `(partition, producer, sequence)`.
    fn all() -> Vec<(u32, u32, u64)> {
        (0..200).flat_map(|sequence| [(0, 0, sequence), (1, 1, sequence)]).collect()
    }

    fn verdict(messages: &[(u32, u32, u64)]) -> Verdict {
        let mut identity = Identity::new();
        for &(partition, producer, sequence) in messages {
            identity.saw(0, partition, producer, sequence);
        }
        judge(&[(0, 200, 200), (1, 200, 200)], &[identity.sighting()])
    }

    #[test]
    fn a_clean_run_has_nothing_to_say() {
        assert_eq!(verdict(&all()), Verdict::default());
    }

    #[test]
    fn a_missing_message_is_found() {
        for index in [0, 127, 128, 399] {
            let mut messages = all();
            messages.remove(index);
            assert_eq!(verdict(&messages), Verdict { missing: 1, ..Verdict::default() });
        }
    }

    #[test]
    fn a_duplicate_is_found_and_is_not_out_of_order() {
        let mut messages = all();
        messages.push(messages[10]);
        assert_eq!(verdict(&messages), Verdict { duplicates: 1, ..Verdict::default() });
    }

    #[test]
    fn a_swapped_pair_is_out_of_order_once() {
        let mut messages = all();
        messages.swap(20, 22);
        assert_eq!(verdict(&messages), Verdict { out_of_order: 1, ..Verdict::default() });
    }

    #[test]
    fn a_run_is_what_its_messages_are_one_by_one() {
        // As `(consumer, partition, first, count)`: new, known in part, in order and not, across words.
        let runs = [
            (0, 0, 100, 20),
            (0, 0, 40, 100),
            (0, 1, 200, 3),
            (0, 0, 140, 64),
            (1, 0, 0, 300),
            (0, 0, 299, 2),
            (0, 0, 305, 1),
            (0, 0, 301, 200),
            (0, 0, u64::MAX, 1),
        ];
        let (mut together, mut single) = (Identity::new(), Identity::new());
        for (consumer, partition, first, count) in runs {
            let fresh = together.saw_run(consumer, partition, 3, (first, count));
            let each = (0..count).map(|n| single.saw(consumer, partition, 3, first + n));
            assert_eq!(fresh, each.filter(|&fresh| fresh).count() as u64);
            let (one, other) = (together.sighting(), single.sighting());
            assert_eq!(one.seen, other.seen);
            assert_eq!(
                (one.duplicates, one.out_of_order, one.corrupt),
                (other.duplicates, other.out_of_order, other.corrupt),
                "after {first}"
            );
        }
        assert!(together.duplicates > 0 && together.out_of_order > 0 && together.corrupt > 0);
    }

    #[test]
    fn a_message_that_nobody_sent_is_corrupt() {
        for stranger in [(0, 0, 200), (0, 7, 0), (0, 0, u64::MAX)] {
            let mut messages = all();
            messages.push(stranger);
            assert_eq!(verdict(&messages), Verdict { corrupt: 1, ..Verdict::default() });
        }
    }

    #[test]
    fn the_same_message_in_two_processes_is_a_duplicate() {
        let mut halves = [Identity::new(), Identity::new()];
        for (index, (partition, producer, sequence)) in all().into_iter().enumerate() {
            halves[index % 2].saw(0, partition, producer, sequence);
        }
        halves[0].saw(0, 1, 1, 5);
        let sightings = halves.map(|half| half.sighting());
        let found = judge(&[(0, 200, 200), (1, 200, 200)], &sightings);
        assert_eq!(found, Verdict { duplicates: 1, ..Verdict::default() });
    }

    #[test]
    fn what_comes_again_in_another_round_is_no_duplicate_and_what_was_wrong_before_is_kept() {
        let mut identity = Identity::new();
        for round in 0..3 {
            for (partition, producer, sequence) in all() {
                assert!(identity.saw(0, partition, producer, sequence));
            }
            assert_eq!(identity.count(), 400);
            if round < 2 {
                identity.saw(0, 0, 0, 7);
                identity.begin_again();
            }
        }
        let found = judge(&[(0, 200, 200), (1, 200, 200)], &[identity.sighting()]);
        assert_eq!(found, Verdict { duplicates: 2, ..Verdict::default() });
    }

    #[test]
    fn unconfirmed_messages_are_not_missing() {
        assert_eq!(judge(&[(0, 10, 0)], &[]), Verdict::default());
        assert_eq!(judge(&[(0, 10, 4)], &[]).missing, 4);
    }

    #[test]
    fn runs_say_exactly_which_sequences_came() {
        let mut seen = Seen::default();
        for sequence in (0..64).chain(65..130).chain([191, 192, 500]) {
            assert!(seen.insert(sequence));
        }
        assert_eq!(seen.runs(), [(0, 64), (65, 130), (191, 193), (500, 501)]);
    }
}

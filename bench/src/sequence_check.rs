//! Verifies that each message comes once, unchanged, and in its producer's order.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

/// The received sequences of one producer, one bit each.
#[derive(Clone, Debug, Default)]
struct SequenceBits {
    words: Vec<u64>,
    count: u64,
    /// The consumer and partition of the last message, and their latest sequence: neighbours mostly share them.
    current: Option<((u32, u32), u64)>,
}

impl SequenceBits {
    /// Adds `sequence`. Returns whether it is new.
    fn insert(&mut self, sequence: u64) -> bool {
        self.insert_bits((sequence / 64) as usize, 1 << (sequence % 64), 1).1 == 1
    }

    /// Adds `bits`, `count` in number, to a word. Returns the new ones and their number.
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

/// The messages that a consumer process has received, as it reports them to its parent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceivedSequences {
    /// The received sequences of each producer, as half-open runs.
    pub seen: Vec<(u32, Vec<(u64, u64)>)>,
    /// Messages that were received again.
    pub duplicates: u64,
    /// Messages that were first received after a later one of the same producer and partition.
    pub out_of_order: u64,
    /// Messages with wrong bytes.
    pub corrupt: u64,
}

/// A greater sequence counts as damage: no run sends so many messages.
const SEQUENCES_MAX: u64 = 1 << 36;

/// The greatest number of producers: a greater number counts as damage.
const PRODUCERS_MAX: u32 = 1 << 20;

/// Checks the sequences of received messages.
#[derive(Debug, Default)]
pub struct SequenceCheck {
    /// By producer.
    seen: Vec<SequenceBits>,
    /// The latest sequence by consumer, producer and partition, where it is not the producer's current.
    latest: HashMap<(u32, u32, u32), u64, RandomState>,
    /// The latest sequence by consumer, producer and fair key.
    latest_of_key: HashMap<(u32, u32, u64), u64, RandomState>,
    duplicates: u64,
    out_of_order: u64,
    corrupt: u64,
}

impl SequenceCheck {
    /// A check without messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a message that `consumer` has received. Returns whether it is new. The order is checked for each
    /// consumer separately, because two consumers of a group have no common order.
    pub fn record(&mut self, consumer: u32, partition: u32, producer: u32, sequence: u64) -> bool {
        self.record_word(consumer, partition, producer, sequence, 1) == 1
    }

    /// As [`Self::record`], for `count` messages with successive sequences from `first` on. Returns the number of
    /// new ones.
    pub fn record_run(
        &mut self,
        consumer: u32,
        partition: u32,
        producer: u32,
        first: u64,
        count: u64,
    ) -> u64 {
        let (mut next, mut left, mut fresh) = (first, count, 0);
        while left > 0 {
            let within = left.min(64 - next % 64);
            fresh += self.record_word(consumer, partition, producer, next, within);
            (next, left) = (next.wrapping_add(within), left - within);
        }
        fresh
    }

    /// As [`Self::record`], where only messages of the same fair key keep their order.
    pub fn record_of_key(&mut self, consumer: u32, producer: u32, key: u64, sequence: u64) -> bool {
        if sequence >= SEQUENCES_MAX || producer >= PRODUCERS_MAX {
            self.corrupt += 1;
            return false;
        }
        let is_fresh = self.bits(producer).insert(sequence);
        if !is_fresh {
            self.duplicates += 1;
            return false;
        }
        let latest = self.latest_of_key.entry((consumer, producer, key)).or_insert(sequence);
        self.out_of_order += u64::from(sequence < *latest);
        *latest = sequence.max(*latest);
        true
    }

    /// The bits of a producer, which is below [`PRODUCERS_MAX`].
    fn bits(&mut self, producer: u32) -> &mut SequenceBits {
        let index = producer as usize;
        if self.seen.len() <= index {
            self.seen.resize_with(index + 1, SequenceBits::default);
        }
        &mut self.seen[index]
    }

    /// As [`Self::record_run`], for sequences whose bits share a word.
    fn record_word(
        &mut self,
        consumer: u32,
        partition: u32,
        producer: u32,
        first: u64,
        count: u64,
    ) -> u64 {
        if first >= SEQUENCES_MAX || producer >= PRODUCERS_MAX {
            self.corrupt += count;
            return 0;
        }
        // Makes room for the producer; its bits are borrowed beside the other fields below.
        self.bits(producer);
        let seen = &mut self.seen[producer as usize];
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

    /// Records `count` messages with wrong bytes.
    pub fn record_corrupt(&mut self, count: u64) {
        self.corrupt += count;
    }

    /// The number of different messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seen.iter().map(|seen| seen.count).sum()
    }

    /// Starts a round in which all messages are delivered again. Errors of earlier rounds are kept.
    pub fn start_round(&mut self) {
        self.seen.clear();
        self.latest.clear();
        self.latest_of_key.clear();
    }

    /// The received messages, for the parent.
    #[must_use]
    pub fn received(&self) -> ReceivedSequences {
        let seen = (0..).zip(&self.seen).filter(|(_, seen)| seen.count > 0);
        let seen = seen.map(|(producer, seen)| (producer, seen.runs())).collect();
        ReceivedSequences {
            seen,
            duplicates: self.duplicates,
            out_of_order: self.out_of_order,
            corrupt: self.corrupt,
        }
    }
}

/// The errors among the messages of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageErrors {
    /// Messages that were confirmed and never delivered.
    pub missing: u64,
    /// Messages that were delivered again.
    pub duplicates: u64,
    /// Messages that were delivered after a later one.
    pub out_of_order: u64,
    /// Messages that were delivered with wrong bytes, or never sent.
    pub corrupt: u64,
}

impl MessageErrors {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.missing += other.missing;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.corrupt += other.corrupt;
    }
}

/// Compares the producers' messages, as `(producer, published, confirmed)`, with those that consumer processes have
/// received. For a producer with errors it compares only the number of confirmed messages.
#[must_use]
pub fn compare(sent: &[(u32, u64, u64)], received: &[ReceivedSequences]) -> MessageErrors {
    let mut message_errors = MessageErrors::default();
    let mut all: HashMap<u32, SequenceBits> = HashMap::new();
    for received in received {
        message_errors.duplicates += received.duplicates;
        message_errors.out_of_order += received.out_of_order;
        message_errors.corrupt += received.corrupt;
        for (producer, runs) in &received.seen {
            let seen = all.entry(*producer).or_default();
            for sequence in runs.iter().flat_map(|&(start, end)| start..end) {
                // Two consumer processes got the same message.
                message_errors.duplicates += u64::from(!seen.insert(sequence));
            }
        }
    }
    for (producer, published, confirmed) in sent {
        let runs = all.remove(producer).map(|seen| seen.runs()).unwrap_or_default();
        let inside = |&(start, end): &(u64, u64)| end.min(*published).saturating_sub(start);
        let sent_and_seen: u64 = runs.iter().map(inside).sum();
        message_errors.missing += confirmed.saturating_sub(sent_and_seen);
        message_errors.corrupt +=
            runs.iter().map(|(start, end)| end - start).sum::<u64>() - sent_and_seen;
    }
    // Producers that do not exist.
    message_errors.corrupt += all.values().map(|seen| seen.count).sum::<u64>();
    message_errors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two producers of 200 messages each in two partitions, as `(partition, producer, sequence)`.
    fn all() -> Vec<(u32, u32, u64)> {
        (0..200).flat_map(|sequence| [(0, 0, sequence), (1, 1, sequence)]).collect()
    }

    fn message_errors(messages: &[(u32, u32, u64)]) -> MessageErrors {
        let mut sequences = SequenceCheck::new();
        for &(partition, producer, sequence) in messages {
            sequences.record(0, partition, producer, sequence);
        }
        compare(&[(0, 200, 200), (1, 200, 200)], &[sequences.received()])
    }

    fn clean() -> MessageErrors {
        MessageErrors::default()
    }

    #[test]
    fn a_clean_run_has_nothing_to_say() {
        assert_eq!(message_errors(&all()), clean());
    }

    #[test]
    fn a_missing_message_is_found() {
        for index in [0, 127, 128, 399] {
            let mut messages = all();
            messages.remove(index);
            assert_eq!(message_errors(&messages), MessageErrors { missing: 1, ..clean() });
        }
    }

    #[test]
    fn a_duplicate_is_found_and_is_not_out_of_order() {
        let mut messages = all();
        messages.push(messages[10]);
        assert_eq!(message_errors(&messages), MessageErrors { duplicates: 1, ..clean() });
    }

    #[test]
    fn a_swapped_pair_is_out_of_order_once() {
        let mut messages = all();
        messages.swap(20, 22);
        assert_eq!(message_errors(&messages), MessageErrors { out_of_order: 1, ..clean() });
    }

    #[test]
    fn order_counts_within_a_key_only_where_messages_have_keys() {
        // Sequences 0, 2, 4 are of key 0, the others of key 1.
        let mut sequences = SequenceCheck::new();
        for sequence in [0, 2, 4, 1, 3, 5] {
            assert!(sequences.record_of_key(0, 0, sequence % 2, sequence));
        }
        assert_eq!((sequences.out_of_order, sequences.count()), (0, 6));
        for sequence in [8, 6] {
            assert!(sequences.record_of_key(0, 0, 0, sequence));
        }
        assert!(!sequences.record_of_key(0, 0, 0, 8));
        assert_eq!((sequences.out_of_order, sequences.duplicates), (1, 1));
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
        let (mut together, mut single) = (SequenceCheck::new(), SequenceCheck::new());
        for (consumer, partition, first, count) in runs {
            let fresh = together.record_run(consumer, partition, 3, first, count);
            let each = (0..count).map(|n| single.record(consumer, partition, 3, first + n));
            assert_eq!(fresh, each.filter(|&fresh| fresh).count() as u64);
            let (one, other) = (together.received(), single.received());
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
            assert_eq!(message_errors(&messages), MessageErrors { corrupt: 1, ..clean() });
        }
    }

    #[test]
    fn the_same_message_in_two_processes_is_a_duplicate() {
        let mut halves = [SequenceCheck::new(), SequenceCheck::new()];
        for (index, (partition, producer, sequence)) in all().into_iter().enumerate() {
            halves[index % 2].record(0, partition, producer, sequence);
        }
        halves[0].record(0, 1, 1, 5);
        let received = halves.map(|half| half.received());
        let found = compare(&[(0, 200, 200), (1, 200, 200)], &received);
        assert_eq!(found, MessageErrors { duplicates: 1, ..clean() });
    }

    #[test]
    fn what_comes_again_in_another_round_is_no_duplicate_and_what_was_wrong_before_is_kept() {
        let mut sequences = SequenceCheck::new();
        for round in 0..3 {
            for (partition, producer, sequence) in all() {
                assert!(sequences.record(0, partition, producer, sequence));
            }
            assert_eq!(sequences.count(), 400);
            if round < 2 {
                sequences.record(0, 0, 0, 7);
                sequences.start_round();
            }
        }
        let found = compare(&[(0, 200, 200), (1, 200, 200)], &[sequences.received()]);
        assert_eq!(found, MessageErrors { duplicates: 2, ..clean() });
    }

    #[test]
    fn unconfirmed_messages_are_not_missing() {
        assert_eq!(compare(&[(0, 10, 0)], &[]), MessageErrors::default());
        assert_eq!(compare(&[(0, 10, 4)], &[]).missing, 4);
    }

    #[test]
    fn runs_say_exactly_which_sequences_came() {
        let mut seen = SequenceBits::default();
        for sequence in (0..64).chain(65..130).chain([191, 192, 500]) {
            assert!(seen.insert(sequence));
        }
        assert_eq!(seen.runs(), [(0, 64), (65, 130), (191, 193), (500, 501)]);
    }
}

//! The segments that are still needed: those that a replay would read, and those that hold wanted messages. The
//! segments of the replay before are kept too, as long as there is room, in case rot damages the newest checkpoint.

use std::{collections::BTreeMap, ops::RangeInclusive};

use sennit_journal::Position;

/// The segments in use, with the bytes of live batches in each.
#[derive(Debug)]
pub(crate) struct Segments {
    segment_bytes: u64,
    live_bytes: BTreeMap<u64, u64>,
    /// The start of a replay if the broker stopped now.
    replay_from: Position,
    /// The start of a replay if the newest checkpoint were damaged.
    fallback_from: Position,
    released: Vec<u64>,
}

impl Segments {
    pub(crate) fn new(segment_bytes: u64, replay_from: Position) -> Self {
        Self {
            segment_bytes,
            live_bytes: BTreeMap::new(),
            replay_from,
            fallback_from: replay_from,
            released: Vec::new(),
        }
    }

    /// The segment that holds `position`.
    pub(crate) fn of(&self, position: Position) -> u64 {
        position.segment(self.segment_bytes)
    }

    /// The length of a segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Notes a new segment.
    pub(crate) fn add(&mut self, segment: u64) {
        self.live_bytes.entry(segment).or_default();
    }

    /// Notes a written batch.
    pub(crate) fn add_live(&mut self, position: Position, bytes: u32) {
        *self.live_bytes.entry(self.of(position)).or_default() += u64::from(bytes);
    }

    /// Forgets which batches are live, to count them anew.
    pub(crate) fn forget_live(&mut self) {
        self.live_bytes.values_mut().for_each(|live| *live = 0);
    }

    /// Notes a batch that was written before. Returns false if its segment is not in use.
    pub(crate) fn add_live_if_held(&mut self, position: Position, bytes: u32) -> bool {
        let segment = self.of(position);
        let live = self.live_bytes.get_mut(&segment);
        live.map(|live| *live += u64::from(bytes)).is_some()
    }

    /// Releases the segments that neither a replay nor a live batch needs.
    pub(crate) fn release_unneeded(&mut self) {
        self.release_passed();
    }

    /// Notes that a batch is no longer wanted.
    pub(crate) fn remove_live(&mut self, position: Position, bytes: u32) {
        let segment = self.of(position);
        if let Some(live) = self.live_bytes.get_mut(&segment) {
            *live = live.checked_sub(bytes.into()).expect("freed bytes were live");
            if *live == 0 {
                self.release(segment);
            }
        }
    }

    /// Sets the start of a replay. If the start of this shard had no replay to fall back on, the
    /// fallback is the start of that one, and empty segments before it are released too.
    pub(crate) fn set_replay_from(&mut self, position: Position) {
        if position > self.replay_from {
            self.fallback_from = std::mem::replace(&mut self.replay_from, position);
        }
        self.release_passed();
    }

    /// The start of a replay if the broker stopped now.
    pub(crate) fn replay_from(&self) -> Position {
        self.replay_from
    }

    /// The start of the oldest segment of which everything is kept, whether its messages are wanted or not.
    pub(crate) fn kept_whole_from(&self) -> Position {
        Position(self.of(self.fallback_from) * self.segment_bytes)
    }

    /// Gives up the fallback, because the room is needed.
    pub(crate) fn forget_fallback(&mut self) {
        self.fallback_from = self.replay_from;
        self.release_passed();
    }

    fn release_passed(&mut self) {
        let first = self.of(self.fallback_from);
        let passed: Vec<u64> =
            self.live_bytes.range(..first).map(|(&segment, _)| segment).collect();
        for segment in passed {
            self.release(segment);
        }
    }

    fn release(&mut self, segment: u64) {
        let replayed = segment >= self.of(self.fallback_from);
        if !replayed && self.live_bytes.get(&segment) == Some(&0) {
            self.live_bytes.remove(&segment);
            self.released.push(segment);
        }
    }

    /// Releases a segment that holds nothing of the log.
    pub(crate) fn give_up(&mut self, segment: u64) {
        if self.live_bytes.remove(&segment).is_some() {
            self.released.push(segment);
        }
    }

    /// Takes the segments that are no longer needed.
    pub(crate) fn take_released(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.released);
    }

    /// The oldest segment that a replay does not need and that has live bytes, if more than `most`
    /// are in use, among those that `may` be emptied. Empty segments of the fallback do not count;
    /// their room comes free with the next checkpoint.
    pub(crate) fn to_empty(&self, most: usize, may: impl Fn(u64) -> bool) -> Option<u64> {
        let passed = || self.live_bytes.range(..self.of(self.replay_from));
        let empty = passed().filter(|&(_, &live)| live == 0).count();
        if self.live_bytes.len() - empty <= most {
            return None;
        }
        let held = passed().filter(|&(&segment, &live)| live > 0 && may(segment));
        held.map(|(&segment, _)| segment).next()
    }

    /// The segment with the least live bytes that a replay does not need, if it has at most `most`
    /// of them, among those that `may` be emptied.
    pub(crate) fn thinnest(&self, most: u64, may: impl Fn(u64) -> bool) -> Option<u64> {
        let passed = self.live_bytes.range(..self.of(self.replay_from));
        let held = passed.filter(|&(&segment, &live)| (1..=most).contains(&live) && may(segment));
        held.min_by_key(|&(_, &live)| live).map(|(&segment, _)| segment)
    }

    /// The number of segments in use without live bytes, except the current one and those of
    /// `besides`.
    pub(crate) fn dead_count(&self, besides: Option<RangeInclusive<u64>>) -> usize {
        let sealed = self.live_bytes.len().saturating_sub(1);
        let is_besides = |segment| besides.as_ref().is_some_and(|held| held.contains(segment));
        let sealed = self.live_bytes.iter().take(sealed);
        sealed.filter(|&(segment, &live)| live == 0 && !is_besides(segment)).count()
    }

    /// The number of segments in use.
    pub(crate) fn count(&self) -> usize {
        self.live_bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(segments: &mut Segments) -> Vec<u64> {
        let mut out = Vec::new();
        segments.take_released(&mut out);
        out
    }

    #[test]
    fn a_segment_is_released_once_it_is_neither_replayed_nor_holds_a_live_batch() {
        let mut segments = Segments::new(1000, Position(0));
        for segment in 0..3 {
            segments.add(segment);
        }
        segments.add_live(Position(10), 50);
        segments.add_live(Position(1010), 60);
        segments.remove_live(Position(10), 50);
        assert_eq!(taken(&mut segments), [0u64; 0]);
        segments.set_replay_from(Position(2500));
        // The replay before began with it.
        assert_eq!(taken(&mut segments), [0u64; 0]);
        segments.forget_fallback();
        assert_eq!(taken(&mut segments), [0]);
        assert_eq!(segments.dead_count(None), 0);
        segments.remove_live(Position(1010), 60);
        assert_eq!(taken(&mut segments), [1]);
        assert_eq!(segments.count(), 1);
    }

    #[test]
    fn a_second_header_that_names_the_same_replay_lets_nothing_go() {
        let mut segments = Segments::new(1000, Position(0));
        for segment in 0..4 {
            segments.add(segment);
        }
        segments.set_replay_from(Position(1500));
        segments.set_replay_from(Position(2500));
        assert_eq!(taken(&mut segments), [0]);
        segments.set_replay_from(Position(2500));
        assert_eq!(taken(&mut segments), [0u64; 0], "the replay before began there");
    }

    #[test]
    fn what_is_empty_at_a_start_is_released_though_there_is_no_replay_to_fall_back_on() {
        let mut segments = Segments::new(1000, Position(2500));
        for segment in 0..3 {
            segments.add(segment);
        }
        segments.add_live(Position(1010), 60);
        segments.set_replay_from(Position(2500));
        assert_eq!(taken(&mut segments), [0]);
    }
}

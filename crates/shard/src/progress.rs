//! How far the journal is: what the lane has taken, what it has written and synced, and what is committed. In a group
//! the quorum commits, before the own lane has written or after it; alone, what is written is committed.

use std::time::Duration;

use sennit_journal::Position;
use sennit_model::Timestamp;

/// Bytes by which a leader's own lane may be behind what is committed. Its frames wait in memory.
pub const LANE_LAG_BYTES_MAX: u64 = 64 << 20;

/// Time by which a leader's own lane may be behind what is committed.
pub const LANE_LAG_MAX: Duration = Duration::from_secs(1);

/// Ends of the journal; each only grows.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The lane has taken everything before this position.
    pub(crate) taken: Position,
    written: Position,
    committed: Position,
    written_at: Timestamp,
    /// A position that was committed at this time, and is not written.
    unwritten: Option<(Position, Timestamp)>,
}

impl Progress {
    /// A journal of which everything is written and committed.
    pub(crate) fn new(end: Position, now: Timestamp) -> Self {
        Self { taken: end, written: end, committed: end, written_at: now, unwritten: None }
    }

    /// A journal of which only what lies before `end` is known to be committed.
    pub(crate) fn begin_in_group(&mut self, end: Position) {
        self.committed = end.min(self.committed);
    }

    /// Everything before this position is written and synced by the own lane.
    pub(crate) fn written(&self) -> Position {
        self.written
    }

    /// When the lane has written last.
    pub(crate) fn written_at(&self) -> Timestamp {
        self.written_at
    }

    /// Everything before this position is committed.
    pub(crate) fn committed(&self) -> Position {
        self.committed
    }

    /// Everything before this position is written here and committed: no crash of this broker takes it, and no
    /// leader decides otherwise.
    pub(crate) fn secured(&self) -> Position {
        self.written.min(self.committed)
    }

    /// The lane has written everything before `end`.
    ///
    /// # Panics
    /// If the lane has not got that, or had written more.
    pub(crate) fn write(&mut self, end: Position, now: Timestamp) {
        assert!(self.written <= end && end <= self.taken, "the lane writes what it has not got");
        (self.written, self.written_at) = (end, now);
        if self.unwritten.is_some_and(|(position, _)| position <= end) {
            self.unwritten = None;
            self.note_unwritten(now);
        }
    }

    /// Everything before `end` is committed.
    ///
    /// # Panics
    /// If more was committed before.
    pub(crate) fn commit(&mut self, end: Position, now: Timestamp) {
        assert!(self.committed <= end, "what is committed stays so");
        self.committed = end;
        self.note_unwritten(now);
    }

    fn note_unwritten(&mut self, now: Timestamp) {
        if self.committed > self.written && self.unwritten.is_none() {
            self.unwritten = Some((self.committed, now));
        }
    }

    /// Returns whether the lane is further behind what is committed than a leader's may be.
    pub(crate) fn is_lane_behind(&self, now: Timestamp) -> bool {
        self.committed.0.saturating_sub(self.written.0) > LANE_LAG_BYTES_MAX
            || self.unwritten.is_some_and(|(_, since)| now >= since.plus(LANE_LAG_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_000);

    fn of(taken: u64) -> Progress {
        Progress { taken: Position(taken), ..Progress::new(Position(0), START) }
    }

    #[test]
    fn a_lane_is_behind_by_bytes_or_by_time() {
        let mut progress = of(1 << 30);
        progress.commit(Position(LANE_LAG_BYTES_MAX), START);
        assert!(!progress.is_lane_behind(START));
        progress.commit(Position(LANE_LAG_BYTES_MAX + 1), START);
        assert!(progress.is_lane_behind(START));
        progress.write(Position(4096), START);
        assert!(!progress.is_lane_behind(START));
        assert!(progress.is_lane_behind(START.plus(LANE_LAG_MAX)));
    }

    #[test]
    fn a_lane_that_goes_on_writing_is_not_behind_however_long_there_is_more() {
        let (mut progress, mut now) = (of(1 << 20), START);
        progress.commit(Position(1), now);
        for end in 1..50 {
            now = now.plus(LANE_LAG_MAX / 2);
            progress.commit(Position(end + 1), now);
            progress.write(Position(end), now);
            assert!(!progress.is_lane_behind(now), "{end}");
        }
        assert!(progress.is_lane_behind(now.plus(LANE_LAG_MAX)));
    }

    #[test]
    fn only_what_is_written_and_committed_is_secured() {
        let mut progress = of(100);
        progress.commit(Position(80), START);
        assert_eq!(progress.secured(), Position(0));
        progress.write(Position(100), START);
        assert_eq!(progress.secured(), Position(80));
    }
}

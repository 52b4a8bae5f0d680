//! Checkpoints in the journal: when one is due, and its pieces between the other records, so that
//! a replay may begin there and older segments are needed only for the messages in them. What the
//! pieces say is the engine's.

use sennit_engine::{Checkpoint, Engine};
use sennit_journal::{BLOCK_BYTES, Position};

use crate::writer::Writer;

/// About how long a piece is, in bytes: no turn waits for more than one. In short segments it is
/// shorter, so that a segment holds some.
const PIECE_BYTES: usize = 64 << 10;

/// A checkpoint is one of so many parts of what is journaled until the next, as long as that is within
/// [`SPARED_SEGMENTS`]: what was journaled since the last one is replayed at a start.
const SPARED_PART: u64 = 32;
/// As many segments may be journaled without one to keep its part small.
const SPARED_SEGMENTS: u64 = 4;
/// And one of so many at most, however long the replay becomes.
const MOST_PART: u64 = 4;
/// The state grows by one of so many parts of what is journaled at most, as far as room is held for it.
const GROWTH_PART: u64 = 8;

/// When the last checkpoint was written, how far the next one is, and when it is due.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    segment_bytes: u64,
    last_bytes: u64,
    /// How much of the journal the last one took, in bytes; the last of an earlier life, with what was written
    /// between its pieces, if this one has written none.
    last_span: u64,
    /// Whether one is due whatever was journaled.
    is_asked_for: bool,
    under_way: Option<UnderWay>,
    /// Written and not yet committed: `(begin, end)`.
    pending: Option<(Position, Position)>,
}

/// A checkpoint that is being written, and where the frame lies in which it begins.
#[derive(Debug)]
struct UnderWay {
    checkpoint: Checkpoint,
    begin: Position,
    /// How much of the journal its pieces took so far, in bytes.
    span: u64,
}

impl Checkpoints {
    pub(crate) fn new(segment_bytes: u64, found_span: u64) -> Self {
        Self {
            segment_bytes,
            last_bytes: 0,
            last_span: found_span,
            is_asked_for: false,
            under_way: None,
            pending: None,
        }
    }

    /// Whether enough was journaled since the last one: a segment, and many times the size of the
    /// state, so that checkpoints stay a small part of what is written.
    pub(crate) fn is_due(&self, since_last: u64) -> bool {
        let is_idle = self.pending.is_none() && self.under_way.is_none();
        is_idle && (since_last >= self.interval() || self.is_asked_for)
    }

    /// Bytes that are journaled between two.
    fn interval(&self) -> u64 {
        let spared = (SPARED_PART * self.last_bytes).min(SPARED_SEGMENTS * self.segment_bytes);
        self.segment_bytes.max(spared).max(MOST_PART * self.last_bytes)
    }

    /// Has one be due, whatever was journaled since the last.
    pub(crate) fn ask(&mut self) {
        self.is_asked_for = true;
    }

    /// Whether one was asked for that has not begun.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.is_asked_for && self.pending.is_none()
    }

    /// How long the last one was, in bytes; 0 if this life has written none.
    pub(crate) fn last_bytes(&self) -> u64 {
        self.last_bytes
    }

    /// How many segments one takes beside the one that it begins in, if that is half empty, and so much was
    /// journaled since the last.
    pub(crate) fn segments(&self, since_last: u64) -> u64 {
        let span = self.last_span + since_last / GROWTH_PART;
        // A segment has a header, and the last record of each may leave room for a piece.
        let room = self.segment_bytes - BLOCK_BYTES as u64 - self.piece_bytes() as u64;
        span.saturating_sub(room / 2).div_ceil(room)
    }

    /// About how long a piece is, in bytes.
    pub(crate) fn piece_bytes(&self) -> usize {
        PIECE_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// Whether more of one is to be written.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether one is written and not committed.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Writes the next piece, the first of a new checkpoint if none is under way; says whether it
    /// is whole now.
    pub(crate) fn step(&mut self, engine: &Engine, writer: &mut Writer) -> bool {
        let piece_bytes = self.piece_bytes();
        let under_way = self.under_way.get_or_insert_with(|| {
            // The frame in which a replay begins holds nothing before it.
            writer.seal();
            self.is_asked_for = false;
            let mut checkpoint = engine.begin_checkpoint(piece_bytes);
            let before = writer.end();
            engine.checkpoint_step(&mut checkpoint, writer);
            UnderWay { checkpoint, begin: writer.frame_start(), span: writer.end().0 - before.0 }
        });
        let before = writer.end();
        let is_whole = engine.checkpoint_step(&mut under_way.checkpoint, writer);
        under_way.span += writer.end().0 - before.0;
        if is_whole {
            self.last_bytes = under_way.checkpoint.bytes();
            self.last_span = under_way.span;
            self.pending = Some((under_way.begin, writer.end()));
            self.under_way = None;
            writer.checkpoint_ended();
        }
        is_whole
    }

    /// Everything before `end` is committed: says where a replay may begin now, once.
    pub(crate) fn committed(&mut self, end: Position) -> Option<Position> {
        let (begin, _) = self.pending.take_if(|(_, written)| *written <= end)?;
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_checkpoint_the_more_is_journaled_until_the_next() {
        let between = |last_bytes| {
            let checkpoints = Checkpoints { last_bytes, ..Checkpoints::new(64 << 20, 0) };
            assert!(!checkpoints.is_due(checkpoints.interval() - 1));
            assert!(checkpoints.is_due(checkpoints.interval()));
            checkpoints.interval() >> 20
        };
        assert_eq!(between(0), 64, "a segment at least");
        assert_eq!(between(1 << 20), 64);
        assert_eq!(between(5 << 20), 160, "a checkpoint is a 32nd of it");
        assert_eq!(between(20 << 20), 256, "which is to be replayed, four segments of it");
        assert_eq!(between(100 << 20), 400, "unless it would be more than a quarter");
    }
}

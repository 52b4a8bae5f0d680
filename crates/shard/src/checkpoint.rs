//! Checkpoints in the journal: decides when one is due, and writes its pieces between other records, so that a
//! replay may begin there and older segments are needed only for their messages. The engine fills the pieces.

use std::ops::Range;

use sennit_engine::{Checkpoint, Engine};
use sennit_journal::{BLOCK_BYTES, Position};

use crate::writer::Writer;

/// Target size of a piece in bytes, which bounds the delay of other work. Short segments have
/// smaller pieces, so that a segment holds several.
const PIECE_BYTES: usize = 64 << 10;

/// A checkpoint is at most this fraction (1/32) of the bytes journaled until the next one, while
/// the replay stays within [`SPARED_SEGMENTS`]: a start replays everything that was journaled since
/// the last checkpoint.
const SPARED_PART: u64 = 32;
/// Segments that may be journaled without a checkpoint to keep that fraction.
const SPARED_SEGMENTS: u64 = 4;
/// And at most this fraction (1/4), however long the replay becomes.
const MOST_PART: u64 = 4;
/// Segments that a replica in a group leaves without a checkpoint if there is little in them, because it has started again
/// and again: its log begins with the last checkpoint at a start, and another replica may need what came before.
pub(crate) const SHORT_SEGMENTS_MAX: u64 = 16;
/// The state is assumed to grow by at most this fraction (1/8) of the journaled bytes, for the
/// number of held slots.
const GROWTH_PART: u64 = 8;

/// The time and size of the last checkpoint, the one under way, and when the next is due.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    segment_bytes: u64,
    last_bytes: u64,
    /// Bytes of the journal from the begin to the end of the last checkpoint; at first, of the last
    /// one before the start, with the records between its pieces.
    last_span: u64,
    /// Whether a checkpoint was requested, whatever was journaled.
    is_requested: bool,
    under_way: Option<PendingCheckpoint>,
    /// A checkpoint that is complete and not secured, which takes that it is written and committed: from its begin to its end.
    pending: Option<Range<Position>>,
}

/// A checkpoint that is being written, and the position of the frame in which it begins.
#[derive(Debug)]
struct PendingCheckpoint {
    checkpoint: Checkpoint,
    begin: Position,
    /// Bytes of the journal that its pieces have taken so far.
    span: u64,
}

impl Checkpoints {
    /// Those of a shard whose last life has left the checkpoint `pending`, which is whole and not committed.
    pub(crate) fn new(
        segment_bytes: u64,
        found_span: u64,
        pending: Option<Range<Position>>,
    ) -> Self {
        Self {
            segment_bytes,
            last_bytes: 0,
            last_span: found_span,
            is_requested: false,
            under_way: None,
            pending,
        }
    }

    /// Returns whether enough was journaled since the last one: a segment, and many times the size
    /// of the state, so that checkpoints stay a small part of all writes.
    pub(crate) fn is_due(&self, since_last: u64) -> bool {
        let is_idle = self.pending.is_none() && self.under_way.is_none();
        is_idle && (since_last >= self.interval() || self.is_requested)
    }

    /// Bytes that are journaled between two checkpoints.
    fn interval(&self) -> u64 {
        let spared = (SPARED_PART * self.last_bytes).min(SPARED_SEGMENTS * self.segment_bytes);
        self.segment_bytes.max(spared).max(MOST_PART * self.last_bytes)
    }

    /// Requests a checkpoint, whatever was journaled since the last.
    pub(crate) fn request(&mut self) {
        self.is_requested = true;
    }

    /// Returns whether a requested checkpoint has not begun.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested && self.pending.is_none()
    }

    /// The size of the last checkpoint in bytes; 0 if there was none since the start.
    pub(crate) fn last_bytes(&self) -> u64 {
        self.last_bytes
    }

    /// The number of segments that a checkpoint takes beside the one in which it begins, if that is
    /// half empty and this much was journaled since the last.
    pub(crate) fn segments(&self, since_last: u64) -> u64 {
        let span = self.last_span + since_last / GROWTH_PART;
        // A segment has a header, and the last record of each may leave room for a piece.
        let room = self.segment_bytes - BLOCK_BYTES as u64 - self.piece_bytes() as u64;
        span.saturating_sub(room / 2).div_ceil(room)
    }

    /// The target size of a piece in bytes.
    pub(crate) fn piece_bytes(&self) -> usize {
        PIECE_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// Returns whether a checkpoint is being written.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns whether a checkpoint is complete and not secured.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Writes the next piece, or begins a new checkpoint. Returns whether the checkpoint is
    /// complete.
    pub(crate) fn step(&mut self, engine: &Engine, writer: &mut Writer) -> bool {
        let piece_bytes = self.piece_bytes();
        let under_way = self.under_way.get_or_insert_with(|| {
            // The frame in which a replay begins holds nothing before it.
            writer.seal();
            self.is_requested = false;
            let mut checkpoint = engine.begin_checkpoint(piece_bytes);
            let before = writer.end();
            engine.checkpoint_step(&mut checkpoint, writer);
            PendingCheckpoint {
                checkpoint,
                begin: writer.frame_start(),
                span: writer.end().0 - before.0,
            }
        });
        let before = writer.end();
        let is_whole = engine.checkpoint_step(&mut under_way.checkpoint, writer);
        under_way.span += writer.end().0 - before.0;
        if is_whole {
            self.last_bytes = under_way.checkpoint.bytes();
            self.last_span = under_way.span;
            // A replay that begins there reads the checkpoint to its end.
            assert!(under_way.begin < writer.end(), "the checkpoint ends before it begins");
            self.pending = Some(under_way.begin..writer.end());
            self.under_way = None;
            writer.set_checkpoint_end();
        }
        is_whole
    }

    /// Drops the checkpoint that is being written or is not secured: a state that was poisoned wrote it.
    pub(crate) fn abandon(&mut self) {
        (self.under_way, self.pending) = (None, None);
    }

    /// Everything before `end` is written and committed. Returns the new start of a replay, once per checkpoint.
    pub(crate) fn take_secured(&mut self, end: Position) -> Option<Position> {
        self.pending.take_if(|written| written.end <= end).map(|written| written.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_checkpoint_the_more_is_journaled_until_the_next() {
        let between = |last_bytes| {
            let checkpoints = Checkpoints { last_bytes, ..Checkpoints::new(64 << 20, 0, None) };
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

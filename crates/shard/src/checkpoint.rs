//! Checkpoints in the journal: when one is due, and its pieces between the other records, so that
//! a replay may begin there and older segments are needed only for the messages in them. What the
//! pieces say is the engine's.

use sennit_engine::{Checkpoint, Engine};
use sennit_journal::Position;

use crate::writer::Writer;

/// About how long a piece is, in bytes: no turn waits for more than one. In short segments it is
/// shorter, so that a segment holds some.
const PIECE_BYTES: usize = 64 << 10;

/// When the last checkpoint was written, how far the next one is, and when it is due.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    segment_bytes: u64,
    last_bytes: u64,
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
}

impl Checkpoints {
    pub(crate) fn new(segment_bytes: u64) -> Self {
        Self { segment_bytes, last_bytes: 0, is_asked_for: false, under_way: None, pending: None }
    }

    /// Whether enough was journaled since the last one: a segment, and several times the size of
    /// the state, so that checkpoints stay a small part of what is written.
    pub(crate) fn is_due(&self, since_last: u64) -> bool {
        let is_idle = self.pending.is_none() && self.under_way.is_none();
        let is_long = since_last >= self.segment_bytes.max(4 * self.last_bytes);
        is_idle && (is_long || self.is_asked_for)
    }

    /// Has one be due, whatever was journaled since the last.
    pub(crate) fn ask(&mut self) {
        self.is_asked_for = true;
    }

    /// Whether one was asked for that has not begun.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.is_asked_for && self.pending.is_none()
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
            engine.checkpoint_step(&mut checkpoint, writer);
            UnderWay { checkpoint, begin: writer.frame_start() }
        });
        let is_whole = engine.checkpoint_step(&mut under_way.checkpoint, writer);
        if is_whole {
            self.last_bytes = under_way.checkpoint.bytes();
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

//! Snapshots in the journal: the engine's state written as records between the others, so that a
//! replay may begin there and older segments are needed only for the messages in them.

use sennit_engine::{Engine, RECORD_KIND_END};
use sennit_journal::Position;

use crate::writer::Writer;

/// A snapshot begins; its frame holds nothing before it.
pub(crate) const SNAPSHOT_BEGAN: u8 = RECORD_KIND_END;
/// A part of a snapshot.
pub(crate) const SNAPSHOT_PART: u8 = RECORD_KIND_END + 1;
/// A snapshot is whole: the body is its length in bytes, as a little-endian u64.
pub(crate) const SNAPSHOT_ENDED: u8 = RECORD_KIND_END + 2;

/// Longest part, in bytes; in short segments it is shorter, so that a segment holds some.
const PART_BYTES: usize = 256 << 10;

/// When the last snapshot was written, and when the next one is due.
#[derive(Debug)]
pub(crate) struct Snapshots {
    segment_bytes: u64,
    last_bytes: u64,
    /// Written and not yet committed: `(begin, end)`.
    pending: Option<(Position, Position)>,
    scratch: Vec<u8>,
}

impl Snapshots {
    pub(crate) fn new(segment_bytes: u64) -> Self {
        Self { segment_bytes, last_bytes: 0, pending: None, scratch: Vec::new() }
    }

    /// Whether enough was journaled since the last one: a segment, and several times the size of
    /// the state, so that snapshots stay a small part of what is written.
    pub(crate) fn is_due(&self, since_snapshot: u64) -> bool {
        self.pending.is_none() && since_snapshot >= self.segment_bytes.max(4 * self.last_bytes)
    }

    /// Whether one is on its way.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Writes the state behind everything appended so far.
    pub(crate) fn write(&mut self, engine: &Engine, writer: &mut Writer) {
        self.scratch.clear();
        engine.encode_snapshot(&mut self.scratch);
        let length = self.scratch.len() as u64;
        writer.seal();
        writer.push(SNAPSHOT_BEGAN, &[&length.to_le_bytes()]);
        let begin = writer.frame_start();
        let part_bytes = PART_BYTES.min(self.segment_bytes as usize / 4);
        for part in self.scratch.chunks(part_bytes) {
            writer.push(SNAPSHOT_PART, &[part]);
        }
        writer.push(SNAPSHOT_ENDED, &[&length.to_le_bytes()]);
        self.pending = Some((begin, writer.end()));
        self.last_bytes = length;
        writer.snapshot_ended();
        // A state that was large once must not hold its memory for ever.
        if self.scratch.capacity() > 4 * PART_BYTES {
            self.scratch = Vec::new();
        }
    }

    /// Everything before `end` is committed: says where a replay may begin now, once.
    pub(crate) fn committed(&mut self, end: Position) -> Option<Position> {
        let (begin, _) = self.pending.take_if(|(_, written)| *written <= end)?;
        Some(begin)
    }
}

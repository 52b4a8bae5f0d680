//! Keeps the newest frames in memory, up to a budget of bytes, so that consumers which keep up never use the disk.
//! Frames that are not written can be read nowhere else, and stay beyond the budget.

use std::collections::VecDeque;

use bytes::Bytes;
use sennit_journal::{Frame, Position};

/// Frames in the journal's order; the oldest are dropped first.
#[derive(Debug)]
pub(crate) struct TailCache {
    frames: VecDeque<Frame>,
    bytes: usize,
    budget_bytes: usize,
    /// Everything before this position is written.
    written: Position,
}

impl TailCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, budget_bytes, written: Position(0) }
    }

    /// The number of bytes in the cache.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the newest frame.
    pub(crate) fn push(&mut self, frame: Frame) {
        let is_next = self.frames.back().is_none_or(|last| last.end <= frame.position);
        assert!(is_next, "a lookup needs ascending frames");
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
        self.evict();
    }

    /// Everything before `end` is written.
    pub(crate) fn set_written(&mut self, end: Position) {
        self.written = end;
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.budget_bytes
            && let Some(oldest) = self.frames.pop_front_if(|oldest| oldest.end <= self.written)
        {
            self.bytes -= oldest.bytes.len();
        }
    }

    /// The `length` bytes at `position`, if their frame is in the cache. O(log frames).
    pub(crate) fn read(&self, position: Position, length: usize) -> Option<Bytes> {
        let after = self.frames.partition_point(|frame| frame.position <= position);
        let frame = self.frames.get(after.checked_sub(1)?)?;
        let start = usize::try_from(position.0 - frame.position.0).ok()?;
        let inside = start + length <= frame.bytes.len();
        inside.then(|| frame.bytes.slice(start..start + length))
    }
}

//! Keeps the newest frames in memory, up to a budget of bytes, so that consumers which keep up never use the disk.
//! Frames that are not written can be read nowhere else, and stay beyond the budget. So do those that a rebuild of the
//! state has not read, up to a limit.

use std::collections::VecDeque;

use bytes::Bytes;
use sennit_journal::{Frame, Position};

/// Bytes of written frames that are held for a rebuild. It reads from the disk what is dropped.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Frames in the journal's order; the oldest are dropped first.
#[derive(Debug)]
pub(crate) struct TailCache {
    frames: VecDeque<Frame>,
    bytes: usize,
    budget_bytes: usize,
    /// Everything before this position is written.
    written: Position,
    /// All frames from here on are in the cache.
    begin: Position,
    /// Frames from here on are held for a rebuild.
    held_from: Option<Position>,
}

impl TailCache {
    /// The cache of a journal that ends at `end`.
    pub(crate) fn new(budget_bytes: usize, end: Position) -> Self {
        let (frames, bytes, held_from) = (VecDeque::new(), 0, None);
        Self { frames, bytes, budget_bytes, written: end, begin: end, held_from }
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

    /// Holds the frames from this position on, or none.
    pub(crate) fn hold_from(&mut self, position: Option<Position>) {
        self.held_from = position;
        self.evict();
    }

    /// The frames from `position` on, if all of them are in the cache; a frame or segment begins there.
    pub(crate) fn frames_from(&self, position: Position) -> Option<Vec<Frame>> {
        let before = self.frames.partition_point(|frame| frame.position < position);
        (self.begin <= position).then(|| self.frames.range(before..).cloned().collect())
    }

    fn evict(&mut self) {
        while self.bytes > self.budget_bytes {
            let (written, bytes) = (self.written, self.bytes);
            let is_held =
                |end| bytes <= HELD_BYTES_MAX && self.held_from.is_some_and(|held| held < end);
            let may_go = |oldest: &mut Frame| oldest.end <= written && !is_held(oldest.end);
            let Some(oldest) = self.frames.pop_front_if(may_go) else { return };
            self.bytes -= oldest.bytes.len();
            self.begin = oldest.end;
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

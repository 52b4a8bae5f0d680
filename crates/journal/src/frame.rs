//! Records gathered into frames. The builder knows where each record will lie before anything is
//! written, because it alone decides where frames and segments end.

use std::fmt;

use bytes::Bytes;

use crate::{
    format::{
        BLOCK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameHeader, RECORD_HEADER_BYTES,
        SegmentHeader, record_bytes,
    },
    gather::{FRAME_TARGET_BYTES, Gather},
    lane_config::LaneConfig,
    position::Position,
};

/// A sealed frame: whole blocks, to be written at `position`. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where its first byte lies. The first frame of a segment has the segment's header in front.
    pub position: Position,
    /// What to write.
    pub bytes: Bytes,
    /// Where it ends.
    pub end: Position,
    /// Whether a segment begins with it.
    pub first_of_segment: bool,
}

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The frame has to be sealed first.
    #[error("the frame is full")]
    Full,
    /// No frame can hold it.
    #[error("a record of {length} bytes does not fit a segment, which takes {limit}")]
    TooLarge {
        /// The record's length in bytes.
        length: usize,
        /// The longest a segment can take.
        limit: usize,
    },
}

/// Gathers records and seals them into frames.
pub struct FrameBuilder {
    config: LaneConfig,
    generation: u32,
    durable: Position,
    replay_from: Position,
    chain: u64,
    /// Where the next frame begins, if nothing makes it begin in the next segment.
    next: Position,
    /// Where the last sealed frame ended.
    last_end: Position,
    gather: Gather,
    /// Where the frame that gathers begins.
    start: Position,
    /// So long the frame that gathers may be, whatever its target: what lies there is held together.
    held_to: usize,
}

impl fmt::Debug for FrameBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBuilder")
            .field("next", &self.next)
            .field("used", &self.gather.used())
            .field("record_count", &self.gather.record_count())
            .finish_non_exhaustive()
    }
}

impl FrameBuilder {
    /// A builder whose first frame begins segment `segment`, after a log that ended at `end`.
    pub(crate) fn new(
        config: LaneConfig,
        generation: u32,
        segment: u64,
        end: Position,
        replay_from: Position,
    ) -> Self {
        Self {
            generation,
            durable: end,
            replay_from,
            chain: 0,
            next: Position(segment * config.segment_bytes),
            last_end: end,
            gather: Gather::new(),
            start: end,
            held_to: 0,
            config,
        }
    }

    /// Has the log end at `end`, before the segments that hold nothing of it behind that: the first
    /// segment's header will say so.
    ///
    /// # Panics
    /// If something was sealed or gathers.
    pub(crate) fn end_at(&mut self, end: Position) {
        assert!(self.is_empty() && self.chain == 0, "the first segment is begun");
        (self.durable, self.last_end, self.start) = (end, end, end);
    }

    /// Which life of the lane this is.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether nothing gathers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gather.is_empty()
    }

    /// Everything pushed so far ends here or before: once the lane has committed this far, it is
    /// all durable.
    #[must_use]
    pub fn end(&self) -> Position {
        if self.is_empty() {
            return self.last_end;
        }
        self.start.plus(self.gather.frame_len() as u64)
    }

    /// Where the frame begins that gathers, or the last one if nothing does.
    #[must_use]
    pub fn frame_start(&self) -> Position {
        self.start
    }

    /// Frames sealed from now on say that everything before `position` is durable.
    pub fn durable(&mut self, position: Position) {
        self.durable = position;
    }

    /// Segments opened from now on say that a replay begins at `position`, where a frame begins.
    pub fn replay_from(&mut self, position: Position) {
        self.replay_from = position;
    }

    /// Leaves the rest of the segment empty: the next frame begins a new one.
    ///
    /// # Panics
    /// If a frame gathers: it has its place already.
    pub fn turn_segment(&mut self) {
        assert!(self.is_empty(), "the frame that gathers has its place");
        let segment_bytes = self.config.segment_bytes;
        if self.next.in_segment(segment_bytes) != 0 {
            self.next = Position((self.next.segment(segment_bytes) + 1) * segment_bytes);
        }
    }

    /// Has the records that are pushed next, whose bodies are so long, lie in one frame: it is not full
    /// before it has them all.
    ///
    /// # Errors
    /// [`PushError::Full`] if [`FrameBuilder::seal`] has to be called first;
    /// [`PushError::TooLarge`] if no segment can hold them.
    pub fn hold_together(
        &mut self,
        lengths: impl IntoIterator<Item = usize>,
    ) -> Result<(), PushError> {
        let needed = lengths.into_iter().map(record_bytes).sum();
        let segment_bytes = self.config.segment_bytes;
        let limit = segment_bytes as usize - BLOCK_BYTES - FRAME_HEADER_BYTES;
        if needed > limit {
            return Err(PushError::TooLarge { length: needed, limit });
        }
        if self.is_empty() {
            self.begin(needed);
        } else if !self.has_room(needed) {
            return Err(PushError::Full);
        }
        self.held_to = self.gather.frame_len() + needed;
        Ok(())
    }

    /// Whether the frame that gathers may take so many bytes more.
    fn has_room(&self, needed: usize) -> bool {
        let frame = self.gather.frame_len() + needed;
        let fits = self.start.in_segment(self.config.segment_bytes) + frame as u64
            <= self.config.segment_bytes;
        frame <= FRAME_TARGET_BYTES.max(self.held_to) && fits
    }

    /// Takes a record whose body is `parts` one after the other, and says where the body lies.
    ///
    /// # Errors
    /// [`PushError::Full`] if [`FrameBuilder::seal`] has to be called first;
    /// [`PushError::TooLarge`] if no segment can hold it.
    pub fn push(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Position, PushError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let needed = record_bytes(length);
        let segment_bytes = self.config.segment_bytes;
        let limit = segment_bytes as usize - BLOCK_BYTES - FRAME_HEADER_BYTES;
        let body_len = u32::try_from(length).ok().filter(|_| needed <= limit);
        let Some(body_len) = body_len else {
            return Err(PushError::TooLarge { length, limit: limit - RECORD_HEADER_BYTES });
        };
        if self.is_empty() {
            self.begin(needed);
        } else if !self.has_room(needed) {
            return Err(PushError::Full);
        }
        Ok(self.start.plus(self.gather.push(kind, body_len, parts)))
    }

    /// Begins a frame with room for `needed` bytes of body, in the next segment if this one has
    /// too little left.
    fn begin(&mut self, needed: usize) {
        let segment_bytes = self.config.segment_bytes;
        let at = self.next.in_segment(segment_bytes);
        if at != 0 && at + (FRAME_HEADER_BYTES + needed) as u64 > segment_bytes {
            self.turn_segment();
        }
        self.start = self.next;
        if self.next.in_segment(segment_bytes) == 0 {
            let header = SegmentHeader {
                version: FORMAT_VERSION,
                lane: self.config.lane,
                segment: self.next.segment(segment_bytes),
                segment_bytes,
                incarnation: self.config.incarnation,
                generation: self.generation,
                previous_end: self.last_end,
                replay_from: self.replay_from,
            };
            header.encode(self.gather.begin(BLOCK_BYTES));
            self.chain = header.chain();
            self.start = self.next.plus(BLOCK_BYTES as u64);
        } else {
            self.gather.begin(0);
        }
    }

    /// Seals what has gathered; `None` if nothing has.
    pub fn seal(&mut self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        self.held_to = 0;
        let front = self.gather.front();
        self.chain = self.gather.seal(FrameHeader {
            position: self.start,
            incarnation: self.config.incarnation,
            durable: self.durable,
            chain: self.chain,
            generation: self.generation,
            ..FrameHeader::default()
        });
        let bytes = self.gather.take();
        let position = Position(self.start.0 - front as u64);
        self.next = position.plus(bytes.len() as u64);
        self.last_end = self.next;
        Some(Frame { position, bytes, end: self.next, first_of_segment: front != 0 })
    }

    /// Seals a frame without records, which only says what is durable.
    ///
    /// # Panics
    /// If a frame gathers.
    pub fn seal_mark(&mut self) -> Frame {
        assert!(self.is_empty(), "the frame that gathers is sealed first");
        self.begin(0);
        self.seal().expect("a frame was begun")
    }
}

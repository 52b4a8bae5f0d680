//! Gathers records into frames. The builder decides where frames and segments end, so it knows the position of each
//! record before it is written.

use std::fmt;

use bytes::Bytes;

use crate::{
    format::{
        BLOCK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameBody, FrameHeader,
        RECORD_HEADER_BYTES, SegmentHeader, record_bytes, records,
    },
    frame_buffer::{FRAME_TARGET_BYTES, FrameBuffer},
    lane_config::LaneConfig,
    position::Position,
    received_body::{BodyError, ReceivedBody},
};

/// A sealed frame: whole blocks, to be written at `position`. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The position of its first byte. The header of a segment comes before the segment's first
    /// frame.
    pub position: Position,
    /// The bytes to write.
    pub bytes: Bytes,
    /// Its end.
    pub end: Position,
    /// Whether it is the first frame of a segment.
    pub first_of_segment: bool,
    /// Its body.
    pub body: FrameBody,
}

impl Frame {
    /// The bytes of its body.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        let begin = (self.body.position().0 - self.position.0) as usize;
        self.bytes.slice(begin..begin + self.body.bytes as usize)
    }

    /// Its records, in order: kind, position of the body, body.
    ///
    /// # Panics
    /// If the body is not whole records.
    pub fn records(&self) -> impl Iterator<Item = (u8, Position, Bytes)> {
        let (body, body_at) = (self.body_bytes(), self.body.position());
        let found: Vec<_> = records(&body).collect();
        found.into_iter().map(move |found| {
            let (kind, start, end) = found.expect("a sealed frame has whole records");
            (kind, body_at.plus(start as u64), body.slice(start..end))
        })
    }
}

/// The reason why a record was not accepted.
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
        /// The maximum for a segment.
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
    /// The position of the next frame, unless it goes into the next segment.
    next: Position,
    /// The end of the last sealed frame.
    last_end: Position,
    buffer: FrameBuffer,
    /// The position of the gathering frame.
    start: Position,
    /// The size up to which the gathering frame may grow beyond its target, because its records
    /// belong together.
    joined_end: usize,
}

impl fmt::Debug for FrameBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBuilder")
            .field("next", &self.next)
            .field("used", &self.buffer.used())
            .field("record_count", &self.buffer.record_count())
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
        let next = Position(segment * config.segment_bytes);
        assert!(end <= next, "the log ends behind the segment that is begun");
        Self {
            generation,
            durable: end,
            replay_from,
            chain: 0,
            next,
            last_end: end,
            buffer: FrameBuffer::new(),
            start: end,
            joined_end: 0,
            config,
        }
    }

    /// Sets the end of the log to `end`, before segments that hold nothing of it. The header of the
    /// first segment will say so.
    ///
    /// # Panics
    /// If a frame was sealed or gathers, or if the log grows.
    pub(crate) fn set_end(&mut self, end: Position) {
        assert!(self.is_empty() && self.chain == 0, "the first segment is begun");
        assert!(end <= self.last_end, "the log grows");
        (self.durable, self.last_end, self.start) = (end, end, end);
    }

    /// The generation of the lane.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns whether no record gathers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// An upper bound for the end of everything pushed so far: once the lane has committed to here,
    /// all of it is durable.
    #[must_use]
    pub fn end(&self) -> Position {
        if self.is_empty() {
            return self.last_end;
        }
        self.start.plus(self.buffer.frame_len() as u64)
    }

    /// The end of the last sealed frame.
    #[must_use]
    pub fn sealed_end(&self) -> Position {
        self.last_end
    }

    /// Drops the records that gather. Their positions are given again.
    pub fn drop_gathering(&mut self) {
        self.buffer.clear();
        self.joined_end = 0;
    }

    /// The position of the gathering frame, or of the last one.
    #[must_use]
    pub fn frame_start(&self) -> Position {
        self.start
    }

    /// Sets the durable mark for the next frames: all positions before `position` are durable.
    ///
    /// # Panics
    /// If the position lies beyond the last sealed frame.
    pub fn set_durable(&mut self, position: Position) {
        assert!(position <= self.last_end, "nothing was sealed there");
        self.durable = position;
    }

    /// Sets the start of a replay for the headers of the next segments. A frame begins at
    /// `position`.
    pub fn set_replay_from(&mut self, position: Position) {
        self.replay_from = position;
    }

    /// Leaves the rest of the segment empty: the next frame begins a new segment.
    ///
    /// # Panics
    /// If a frame gathers, because its position is fixed.
    pub fn start_segment(&mut self) {
        assert!(self.is_empty(), "the frame that gathers has its place");
        let segment_bytes = self.config.segment_bytes;
        if self.next.in_segment(segment_bytes) != 0 {
            self.next = Position((self.next.segment(segment_bytes) + 1) * segment_bytes);
        }
    }

    /// Makes sure that the next records, whose bodies have these lengths, lie in one frame.
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
        self.joined_end = self.buffer.frame_len() + needed;
        Ok(())
    }

    /// Returns whether the gathering frame can take this many bytes more.
    fn has_room(&self, needed: usize) -> bool {
        let frame = self.buffer.frame_len() + needed;
        let fits = self.start.in_segment(self.config.segment_bytes) + frame as u64
            <= self.config.segment_bytes;
        frame <= FRAME_TARGET_BYTES.max(self.joined_end) && fits
    }

    /// Adds a record whose body is the concatenation of `parts`, and returns the position of the
    /// body.
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
        Ok(self.start.plus(self.buffer.push(kind, body_len, parts)))
    }

    /// Begins a frame with room for `needed` bytes of body, in the next segment if this one has too
    /// little room.
    fn begin(&mut self, needed: usize) {
        let segment_bytes = self.config.segment_bytes;
        let at = self.next.in_segment(segment_bytes);
        if at != 0 && at + (FRAME_HEADER_BYTES + needed) as u64 > segment_bytes {
            self.start_segment();
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
            // A recovery takes a header that says otherwise for damage.
            assert!(header.previous_end <= self.next && header.replay_from <= self.next);
            header.encode(self.buffer.begin(BLOCK_BYTES));
            self.chain = header.chain();
            self.start = self.next.plus(BLOCK_BYTES as u64);
        } else {
            self.buffer.begin(0);
        }
    }

    /// Seals the gathering frame; `None` if there is none.
    pub fn seal(&mut self) -> Option<Frame> {
        self.seal_with(None)
    }

    fn seal_with(&mut self, checksum: Option<u32>) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        self.joined_end = 0;
        let front = self.buffer.front();
        let header = FrameHeader {
            position: self.start,
            incarnation: self.config.incarnation,
            durable: self.durable,
            chain: self.chain,
            generation: self.generation,
            ..FrameHeader::default()
        };
        let (chain, body) = self.buffer.seal(header, checksum);
        self.chain = chain;
        let bytes = self.buffer.take();
        let position = Position(self.start.0 - front as u64);
        self.next = position.plus(bytes.len() as u64);
        let segment = |position: Position| position.segment(self.config.segment_bytes);
        assert_eq!(segment(Position(self.next.0 - 1)), segment(position), "a frame is cut in two");
        self.last_end = self.next;
        Some(Frame { position, bytes, end: self.next, first_of_segment: front != 0, body })
    }

    /// Returns whether a segment can hold a body that another lane has made.
    ///
    /// # Errors
    /// [`BodyError::TooLong`] if none can.
    pub fn check_fits(&self, body: &ReceivedBody) -> Result<(), BodyError> {
        let limit = self.config.segment_bytes as usize - BLOCK_BYTES - FRAME_HEADER_BYTES;
        let length = body.bytes.len();
        match length <= limit {
            true => Ok(()),
            false => Err(BodyError::TooLong { length, limit }),
        }
    }

    /// Seals a frame with a body that another lane has made.
    ///
    /// # Errors
    /// [`BodyError::TooLong`] if no segment can hold it.
    ///
    /// # Panics
    /// If a frame gathers.
    pub fn seal_received(&mut self, body: &ReceivedBody) -> Result<Frame, BodyError> {
        assert!(self.is_empty(), "the frame that gathers is sealed first");
        self.check_fits(body)?;
        self.begin(body.bytes.len());
        self.buffer.push_body(&body.bytes, body.record_count);
        Ok(self.seal_with(Some(body.checksum)).expect("a frame was begun"))
    }

    /// Seals a frame without records, which carries only the durable mark.
    ///
    /// # Panics
    /// If a frame gathers.
    pub fn seal_mark(&mut self) -> Frame {
        assert!(self.is_empty(), "the frame that gathers is sealed first");
        self.begin(0);
        self.seal().expect("a frame was begun")
    }
}

//! A buffer for one frame: records gather in blocks, behind room for the frame's header. It does not know the
//! position of the frame.

use bytes::Bytes;

use crate::{
    block::Blocks,
    format::{
        BLOCK_BYTES, FRAME_HEADER_BYTES, FrameBody, FrameHeader, RECORD_HEADER_BYTES, crc32c,
        record_bytes,
    },
};

/// A frame is sealed before a record would make it longer than this. A longer record gets a frame
/// of its own.
pub const FRAME_TARGET_BYTES: usize = 1 << 20;

/// Blocks of the initial capacity.
const FIRST_BLOCKS: usize = 4;

/// A frame of at most this many blocks is copied out of a much longer buffer. Readers hold frames
/// for a long time, and must not hold memory that is not accounted for.
const COPIED_BLOCKS_MAX: usize = 16;

/// One gathering frame, with the header of its container if it is the first.
pub(crate) struct FrameBuffer {
    blocks: Blocks,
    /// Bytes used in `blocks`; 0 if no frame gathers.
    used: usize,
    /// The position of the frame's header in `blocks`.
    header_at: usize,
    record_count: u32,
}

impl FrameBuffer {
    pub(crate) fn new() -> Self {
        let blocks = Blocks::with_capacity(FIRST_BLOCKS);
        Self { blocks, used: 0, header_at: 0, record_count: 0 }
    }

    /// Returns whether no frame gathers.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Size of the frame and the container's header, without padding.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Size of the frame, without padding.
    pub(crate) fn frame_len(&self) -> usize {
        self.used - self.header_at
    }

    /// Size of the part before the frame.
    pub(crate) fn front(&self) -> usize {
        self.header_at
    }

    pub(crate) fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Begins a frame. Returns the `front` bytes before it, whole blocks, for the caller to fill.
    pub(crate) fn begin(&mut self, front: usize) -> &mut [u8] {
        self.header_at = front;
        self.used = front + FRAME_HEADER_BYTES;
        self.record_count = 0;
        self.blocks.grow(self.used);
        &mut self.blocks.as_mut()[..front]
    }

    /// Adds a record whose body is the concatenation of `parts`, `body_len` bytes in all. Returns
    /// the offset of the body from the frame's start.
    pub(crate) fn push(&mut self, kind: u8, body_len: u32, parts: &[&[u8]]) -> u64 {
        let next = self.used + record_bytes(body_len as usize);
        self.blocks.grow(next);
        let body_at = self.used + RECORD_HEADER_BYTES;
        let bytes = self.blocks.as_mut();
        bytes[self.used..self.used + 4].copy_from_slice(&body_len.to_le_bytes());
        bytes[self.used + 4..body_at].copy_from_slice(&[kind, 0, 0, 0]);
        let mut at = body_at;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes[at..next].fill(0);
        self.used = next;
        self.record_count += 1;
        (body_at - self.header_at) as u64
    }

    /// Adds a whole body with its records, as the only one of the frame.
    pub(crate) fn push_body(&mut self, body: &[u8], record_count: u32) {
        let at = self.header_at + FRAME_HEADER_BYTES;
        assert_eq!(self.used, at, "a frame has one body");
        self.used = at + body.len();
        self.blocks.grow(self.used);
        self.blocks.as_mut()[at..self.used].copy_from_slice(body);
        self.record_count = record_count;
    }

    /// Pads the frame to whole blocks and writes its header: `header`, completed from the body, whose
    /// `checksum` may be known. Returns the chain value for the next frame, and what the header says of
    /// the body.
    pub(crate) fn seal(&mut self, header: FrameHeader, checksum: Option<u32>) -> (u64, FrameBody) {
        let length = self.used.next_multiple_of(BLOCK_BYTES);
        self.blocks.grow(length);
        let bytes = &mut self.blocks.as_mut()[..length];
        bytes[self.used..].fill(0);
        let body = self.header_at + FRAME_HEADER_BYTES..self.used;
        let header = FrameHeader {
            body_crc: checksum.unwrap_or_else(|| crc32c(&bytes[body.clone()])),
            body_len: u32::try_from(body.len()).expect("a frame is limited far below 4 GiB"),
            record_count: self.record_count,
            ..header
        };
        self.used = length;
        (header.encode(&mut bytes[self.header_at..]), header.body())
    }

    /// The blocks of the sealed frame.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.blocks.as_ref()[..self.used]
    }

    /// Returns the blocks of the sealed frame. The buffer is empty afterwards.
    pub(crate) fn take(&mut self) -> Bytes {
        let length = std::mem::take(&mut self.used);
        let count = length / BLOCK_BYTES;
        let blocks = if count <= COPIED_BLOCKS_MAX && 2 * count <= self.blocks.capacity() {
            self.blocks.copy_prefix(count)
        } else {
            // The next frame is likely as long as this one; room for it is had at once.
            let room = count.clamp(FIRST_BLOCKS, FRAME_TARGET_BYTES / BLOCK_BYTES + 1);
            std::mem::replace(&mut self.blocks, Blocks::with_capacity(room))
        };
        Bytes::from_owner(blocks).slice(..length)
    }

    /// Empties the buffer and keeps its memory for the next frame.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

//! Records that gather in blocks, behind room for a frame's header. It must not know where the
//! frame will lie, nor who writes it.

use bytes::Bytes;

use crate::{
    block::Blocks,
    format::{
        BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader, RECORD_HEADER_BYTES, crc32c, record_bytes,
    },
};

/// A frame is sealed when the next record would make it longer than this. A longer record gets a
/// frame of its own.
pub const FRAME_TARGET_BYTES: usize = 1 << 20;

/// Blocks the first frame has room for.
const FIRST_BLOCKS: usize = 4;

/// A frame of at most so many blocks is copied out of a buffer that is much longer. Frames are
/// kept for as long as somebody reads them, and must not hold memory that nobody counts.
const COPIED_BLOCKS_MAX: usize = 16;

/// One frame in the making, with what is written in front of it.
pub(crate) struct Gather {
    blocks: Blocks,
    /// Bytes used in `blocks`; 0 while nothing gathers.
    used: usize,
    /// Where in `blocks` the frame's header lies.
    header_at: usize,
    record_count: u32,
}

impl Gather {
    pub(crate) fn new() -> Self {
        let blocks = Blocks::with_room(FIRST_BLOCKS);
        Self { blocks, used: 0, header_at: 0, record_count: 0 }
    }

    /// Whether nothing gathers.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Bytes of what gathers, with what is in front of the frame and without padding.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of the frame that gathers, without padding.
    pub(crate) fn frame_len(&self) -> usize {
        self.used - self.header_at
    }

    /// Bytes in front of the frame.
    pub(crate) fn front(&self) -> usize {
        self.header_at
    }

    pub(crate) fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Begins a frame. Gives the `front` bytes, whole blocks, that are to be filled in front of it.
    pub(crate) fn begin(&mut self, front: usize) -> &mut [u8] {
        self.header_at = front;
        self.used = front + FRAME_HEADER_BYTES;
        self.record_count = 0;
        self.blocks.grow(self.used);
        &mut self.blocks.as_mut()[..front]
    }

    /// Takes a record whose body is `parts` one after the other, `body_len` bytes in all, and says
    /// how far behind the frame's start the body lies.
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

    /// Pads what gathers to whole blocks and writes the frame's header: `header`, with what follows
    /// from the body. Returns what the next frame chains to.
    pub(crate) fn seal(&mut self, header: FrameHeader) -> u64 {
        let length = self.used.next_multiple_of(BLOCK_BYTES);
        self.blocks.grow(length);
        let bytes = &mut self.blocks.as_mut()[..length];
        bytes[self.used..].fill(0);
        let body = self.header_at + FRAME_HEADER_BYTES..self.used;
        let header = FrameHeader {
            body_crc: crc32c(&bytes[body.clone()]),
            body_len: u32::try_from(body.len()).expect("a frame is limited far below 4 GiB"),
            record_count: self.record_count,
            ..header
        };
        self.used = length;
        header.encode(&mut bytes[self.header_at..])
    }

    /// The blocks of what was sealed.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.blocks.as_ref()[..self.used]
    }

    /// Takes the blocks of what was sealed; then nothing gathers.
    pub(crate) fn take(&mut self) -> Bytes {
        let length = std::mem::take(&mut self.used);
        let count = length / BLOCK_BYTES;
        let blocks = if count <= COPIED_BLOCKS_MAX && 2 * count <= self.blocks.room() {
            self.blocks.copy_of_first(count)
        } else {
            // The next frame is likely as long as this one; room for it is had at once.
            let room = count.clamp(FIRST_BLOCKS, FRAME_TARGET_BYTES / BLOCK_BYTES + 1);
            std::mem::replace(&mut self.blocks, Blocks::with_room(room))
        };
        Bytes::from_owner(blocks).slice(..length)
    }

    /// Nothing gathers any more; the memory stays for the next frame.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

//! The frames of a topic in one format, for all who are subscribed to it on a core: encoded once, and sent from where
//! they lie. A reader is a position in it; what is behind it costs the ring nothing. It knows no sockets.

use std::collections::VecDeque;

/// Bytes of a block. A frame lies in one; a longer one has a block of its own.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of the first block of a ring that was empty.
const FIRST_BLOCK_BYTES: usize = 1 << 10;

/// Frames of messages that follow one another, the oldest of which may have gone.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    blocks: VecDeque<Block>,
    frames: VecDeque<Frame>,
    /// The position behind the newest frame.
    tail: u64,
}

#[derive(Debug)]
struct Block {
    /// The position of its first byte.
    start: u64,
    bytes: Vec<u8>,
}

/// A frame that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The offset of its message.
    pub(crate) offset: u64,
    /// The position behind it.
    pub(crate) end: u64,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Ring {
    /// The position behind the newest frame.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// The position of the oldest frame that is kept.
    pub(crate) fn start(&self) -> u64 {
        self.blocks.front().map_or(self.tail, |block| block.start)
    }

    /// Bytes that it holds.
    pub(crate) fn len(&self) -> usize {
        (self.tail - self.start()) as usize
    }

    /// Appends the frame of a message: what stands before it, the message, and what stands behind it.
    pub(crate) fn push(&mut self, offset: u64, parts: [&[u8]; 3]) {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let has_room = |block: &Block| block.bytes.capacity() - block.bytes.len() >= length;
        if !self.blocks.back().is_some_and(has_room) {
            let least = if self.blocks.is_empty() { FIRST_BLOCK_BYTES } else { BLOCK_BYTES };
            let bytes = Vec::with_capacity(length.max(least));
            self.blocks.push_back(Block { start: self.tail, bytes });
        }
        if let Some(block) = self.blocks.back_mut() {
            parts.iter().for_each(|part| block.bytes.extend_from_slice(part));
            self.tail = block.end();
        }
        self.frames.push_back(Frame { offset, end: self.tail });
    }

    /// Lets the oldest frames go until it holds no more than `most` bytes, or one block.
    pub(crate) fn shrink(&mut self, most: usize) {
        while self.len() > most && self.blocks.len() > 1 {
            self.blocks.pop_front();
        }
        let start = self.start();
        while self.frames.front().is_some_and(|frame| frame.end <= start) {
            self.frames.pop_front();
        }
    }

    /// Lets all frames go: nobody needs them any more. Positions go on.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.frames.clear();
    }

    /// Where the frame of the first message begins that is not before `offset`; `None` if frames before it may have
    /// gone that are not before `offset` either.
    pub(crate) fn position_of(&self, offset: u64) -> Option<u64> {
        let first = self.frames.front()?;
        if offset < first.offset {
            return None;
        }
        let index = self.frames.partition_point(|frame| frame.offset < offset);
        match index {
            0 => Some(self.start()),
            index => Some(self.frames[index - 1].end),
        }
    }

    /// The frame that ends first behind `position`.
    pub(crate) fn frame_behind(&self, position: u64) -> Option<Frame> {
        let index = self.frames.partition_point(|frame| frame.end <= position);
        self.frames.get(index).copied()
    }

    /// What is kept from `position` on, piece by piece; nothing if that has gone.
    pub(crate) fn pieces(&self, position: u64) -> impl Iterator<Item = &[u8]> {
        let first = self.blocks.partition_point(|block| block.end() <= position);
        let blocks = self.blocks.range(first..);
        blocks.filter_map(move |block| {
            let from = position.saturating_sub(block.start) as usize;
            block.bytes.get(from..).filter(|piece| !piece.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring with the messages of these offsets, each `length` bytes.
    fn ring(offsets: impl IntoIterator<Item = u64>, length: usize) -> Ring {
        let mut ring = Ring::default();
        for offset in offsets {
            ring.push(offset, [&[offset as u8], &vec![offset as u8; length - 2], &[offset as u8]]);
        }
        ring
    }

    fn read(ring: &Ring, from: u64) -> Vec<u8> {
        ring.pieces(from).flatten().copied().collect()
    }

    #[test]
    fn a_reader_at_any_position_is_given_all_behind_it() {
        let ring = ring(0..200, 1000);
        assert_eq!(ring.len(), 200_000);
        for position in [0, 1, 999, 1000, 65_000, 66_000, 199_999, 200_000] {
            let read = read(&ring, position);
            assert_eq!(read.len() as u64, 200_000 - position, "{position}");
            let expected = (position..200_000).map(|at| (at / 1000) as u8);
            assert!(read.into_iter().eq(expected), "{position}");
        }
    }

    #[test]
    fn the_oldest_frames_go_and_positions_stay() {
        let mut ring = ring(0..200, 1000);
        ring.shrink(100_000);
        assert!(ring.len() <= 100_000 && ring.len() > 30_000, "{}", ring.len());
        assert_eq!(ring.tail(), 200_000);
        let start = ring.start();
        assert_eq!(start % 1000, 0, "frames are not cut");
        assert_eq!(read(&ring, start).len() as u64, 200_000 - start);
        assert_eq!(ring.position_of(start / 1000), Some(start));
        assert_eq!(ring.position_of(start / 1000 - 1), None, "it has gone");
    }

    #[test]
    fn a_frame_longer_than_a_block_is_whole() {
        let mut ring = ring([1, 2], 3 * BLOCK_BYTES);
        assert_eq!(ring.pieces(0).map(<[u8]>::len).collect::<Vec<_>>(), [3 * BLOCK_BYTES; 2]);
        ring.shrink(0);
        assert_eq!(ring.len(), 3 * BLOCK_BYTES, "the newest stays");
    }

    #[test]
    fn an_offset_has_a_position_though_there_is_no_message() {
        let ring = ring([5, 7, 9], 10);
        for (offset, position) in
            [(4, None), (5, Some(0)), (6, Some(10)), (7, Some(10)), (9, Some(20)), (10, Some(30))]
        {
            assert_eq!(ring.position_of(offset), position, "{offset}");
        }
        assert_eq!(ring.frame_behind(10), Some(Frame { offset: 7, end: 20 }));
        assert_eq!(ring.frame_behind(15), Some(Frame { offset: 7, end: 20 }));
        assert_eq!(ring.frame_behind(30), None);
    }

    #[test]
    fn a_ring_that_nobody_needs_holds_nothing_and_goes_on() {
        let mut ring = ring([1, 2], 10);
        ring.clear();
        assert_eq!((ring.len(), ring.tail(), ring.start()), (0, 20, 20));
        ring.push(3, [b"3", b"3", b"3"]);
        assert_eq!(read(&ring, 20), b"333");
        assert_eq!(ring.position_of(3), Some(20));
    }
}

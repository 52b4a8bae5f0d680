//! Reads a file in small pieces, with pauses for other users of the disk. A long read would delay the lane's
//! writes, and so would the system's read-ahead, which fetches some MiB at once.

use std::{
    cell::{Cell, RefCell},
    io,
};

use crate::{block::Blocks, disk::DiskFile, format::BLOCK_BYTES};

/// Size of one read.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// A file that is read in small pieces.
pub(crate) struct PacedFile<'a, F> {
    file: &'a F,
    uncached: Option<&'a F>,
    /// The last piece of an uncached read.
    blocks: RefCell<Blocks>,
    stopped: &'a Cell<bool>,
    pace: RefCell<&'a mut dyn FnMut(usize) -> bool>,
}

impl<'a, F: DiskFile> PacedFile<'a, F> {
    /// `uncached` is the same file for uncached reads, if there are any. `pace` is called for each
    /// piece; if it returns false, `stopped` is set and reading fails.
    pub(crate) fn new(
        file: &'a F,
        uncached: Option<&'a F>,
        stopped: &'a Cell<bool>,
        pace: &'a mut dyn FnMut(usize) -> bool,
    ) -> Self {
        Self { file, uncached, blocks: RefCell::default(), stopped, pace: RefCell::new(pace) }
    }

    fn read_piece(&self, piece: &mut [u8], at: u64) -> io::Result<()> {
        // The cached read may succeed where the uncached one fails; if not, it returns the error.
        let is_read =
            self.uncached.is_some_and(|uncached| self.read_uncached(uncached, piece, at).is_ok());
        if is_read { Ok(()) } else { self.file.read_at(piece, at) }
    }

    fn read_uncached(&self, uncached: &F, piece: &mut [u8], at: u64) -> io::Result<()> {
        let before = (at % BLOCK_BYTES as u64) as usize;
        let length = (before + piece.len()).next_multiple_of(BLOCK_BYTES);
        let mut blocks = self.blocks.borrow_mut();
        blocks.grow(length);
        uncached.read_at(&mut blocks.as_mut()[..length], at - before as u64)?;
        piece.copy_from_slice(&blocks.as_mut()[before..before + piece.len()]);
        Ok(())
    }
}

impl<F: DiskFile> DiskFile for PacedFile<'_, F> {
    fn allocate(&self, length: u64) -> io::Result<bool> {
        self.file.allocate(length)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in bytes.chunks_mut(PIECE_BYTES) {
            if self.stopped.get() {
                return Err(io::Error::other("the reading was stopped"));
            }
            self.read_piece(part, at)?;
            at += part.len() as u64;
            let goes_on = (self.pace.borrow_mut())(part.len());
            self.stopped.set(!goes_on);
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a byte for each offset. Past the cache it takes whole blocks only, and not of every piece.
    struct Bytes {
        is_past: bool,
        refuses_from: u64,
        reads: Cell<u32>,
    }

    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    impl DiskFile for Bytes {
        fn allocate(&self, _: u64) -> io::Result<bool> {
            Ok(false)
        }

        fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
            let is_whole =
                |length: usize, at: u64| (length as u64 | at).is_multiple_of(BLOCK_BYTES as u64);
            let is_refused = self.is_past
                && (offset >= self.refuses_from
                    || !is_whole(bytes.len(), offset)
                    || !bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
            if is_refused {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.reads.set(self.reads.get() + 1);
            (offset..).zip(bytes).for_each(|(at, held)| *held = byte(at));
            Ok(())
        }

        fn length(&self) -> io::Result<u64> {
            Ok(8 << 20)
        }

        fn forget_cached(&self) -> io::Result<()> {
            Ok(())
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!("it is read")
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!("it is read")
        }

        fn set_length(&self, _: u64) -> io::Result<()> {
            unreachable!("it is read")
        }
    }

    /// Reads and says how often either way was gone, and what was paced.
    fn read(refuses_from: u64, at: u64, length: usize) -> (u32, u32, Vec<usize>) {
        let cached = Bytes { is_past: false, refuses_from, reads: Cell::new(0) };
        let uncached = Bytes { is_past: true, refuses_from, reads: Cell::new(0) };
        let (stopped, mut pieces) = (Cell::new(false), Vec::new());
        let mut pace = |bytes| {
            pieces.push(bytes);
            true
        };
        let mut bytes = vec![0; length];
        PacedFile::new(&cached, Some(&uncached), &stopped, &mut pace)
            .read_at(&mut bytes, at)
            .unwrap();
        assert!((at..).zip(&bytes).all(|(at, held)| *held == byte(at)));
        (cached.reads.get(), uncached.reads.get(), pieces)
    }

    #[test]
    fn any_bytes_come_past_the_cache_in_pieces_and_the_cache_is_left_alone() {
        let paced = |length| read(u64::MAX, 0, length);
        assert_eq!(paced(PIECE_BYTES * 2), (0, 2, vec![PIECE_BYTES; 2]));
        assert_eq!(paced(PIECE_BYTES + 100), (0, 2, vec![PIECE_BYTES, 100]));
        assert_eq!(read(u64::MAX, 4097, 5000), (0, 1, vec![5000]));
        assert_eq!(read(u64::MAX, 1, 64), (0, 1, vec![64]));
    }

    #[test]
    fn what_cannot_be_read_past_the_cache_is_read_through_it() {
        let second = PIECE_BYTES as u64;
        assert_eq!(read(second, 0, PIECE_BYTES * 2), (1, 1, vec![PIECE_BYTES; 2]));
        assert_eq!(read(0, 0, PIECE_BYTES), (1, 0, vec![PIECE_BYTES]));
    }
}

//! Reading in pieces, between which others have the disk: a long read would hold up the lane's writes.

use std::{
    cell::{Cell, RefCell},
    io,
};

use crate::disk::DiskFile;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// A file that is read a little at a time.
pub(crate) struct Paced<'a, F> {
    file: &'a F,
    stopped: &'a Cell<bool>,
    pace: RefCell<&'a mut dyn FnMut(usize) -> bool>,
}

impl<'a, F> Paced<'a, F> {
    /// Each piece is told to `pace`; once that says no, `stopped` is set, and reading fails.
    pub(crate) fn new(
        file: &'a F,
        stopped: &'a Cell<bool>,
        pace: &'a mut dyn FnMut(usize) -> bool,
    ) -> Self {
        Self { file, stopped, pace: RefCell::new(pace) }
    }
}

impl<F: DiskFile> DiskFile for Paced<'_, F> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in bytes.chunks_mut(PIECE_BYTES) {
            if self.stopped.get() {
                return Err(io::Error::other("the reading was stopped"));
            }
            self.file.read_at(part, at)?;
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

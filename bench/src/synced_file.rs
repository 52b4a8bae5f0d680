//! Writes and syncs a file: the minimum cost of any log.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// The length of a write is a multiple of this number of bytes.
pub const BLOCK_BYTES: usize = 4096;

/// The greatest number of bytes in one write.
const WRITE_BYTES: usize = 64 << 10;

/// The file's length. Writes fill it once, then overwrite it from the start.
const FILE_BYTES: usize = 4 << 20;

/// Memory with the alignment that O_DIRECT needs.
#[repr(align(4096))]
struct Aligned([u8; WRITE_BYTES]);

/// A file that is full already, so that a write changes only its bytes.
pub struct SyncedFile {
    file: File,
    bytes: Box<Aligned>,
    at: usize,
}

impl SyncedFile {
    /// Creates the file at `path` and fills it.
    ///
    /// # Errors
    /// The disk reports an error.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = Box::new(Aligned([0x5a; WRITE_BYTES]));
        for at in (0..FILE_BYTES).step_by(WRITE_BYTES) {
            file.write_all_at(&bytes.0, at as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, bytes, at: 0 })
    }

    /// Writes `bytes` bytes in whole blocks, and syncs them.
    ///
    /// # Errors
    /// The disk reports an error.
    pub fn append(&mut self, bytes: usize) -> io::Result<()> {
        let mut left = bytes.next_multiple_of(BLOCK_BYTES);
        while left > 0 {
            if self.at == FILE_BYTES {
                self.at = 0;
            }
            let length = left.min(WRITE_BYTES).min(FILE_BYTES - self.at);
            self.file.write_all_at(&self.bytes.0[..length], self.at as u64)?;
            self.at += length;
            left -= length;
        }
        self.file.sync_data()
    }
}

/// Opens the file around the page cache if the file system allows it, otherwise through the page cache.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
        Ok(file) => Ok(file.into()),
        Err(_) => OpenOptions::new().write(true).create(true).truncate(true).open(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_round_and_round_and_grows_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = SyncedFile::create(&path).unwrap();
        for bytes in [1, BLOCK_BYTES, 3 * WRITE_BYTES + 1, FILE_BYTES, 10] {
            file.append(bytes).unwrap();
        }
        assert_eq!(path.metadata().unwrap().len(), FILE_BYTES as u64);
    }
}

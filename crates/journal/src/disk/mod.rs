//! The disk as the journal uses it. There are three: the real one, one in memory, and one with faults. One contract
//! test covers all.

mod faulty;
mod memory;
mod real;

use std::{io, path::Path};

pub use faulty::{FaultPlan, FaultyDisk};
pub use memory::MemoryDisk;
pub use real::{Access, RealDisk};

/// A disk with directories and files. Clones refer to the same disk.
pub trait Disk: Clone + std::fmt::Debug {
    /// An open file.
    type File: DiskFile + std::fmt::Debug;

    /// Creates a directory and its parents. An existing directory is left as it is.
    ///
    /// # Errors
    /// The system's error.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, sorted.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file and opens it for writing.
    ///
    /// # Errors
    /// The system's error; `AlreadyExists` if it exists.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for reading through the system's cache.
    ///
    /// # Errors
    /// The system's error; `NotFound` if it does not exist.
    fn open_to_read(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for reading whole aligned blocks into aligned memory, bypassing the system's
    /// cache; `None` if that is not supported.
    ///
    /// # Errors
    /// The system's error; `NotFound` if it does not exist.
    fn open_uncached(&self, _path: &Path) -> io::Result<Option<Self::File>> {
        Ok(None)
    }

    /// Opens a file for writing whole aligned blocks, bypassing the system's cache if the file
    /// system supports it.
    ///
    /// # Errors
    /// The system's error; `NotFound` if it does not exist.
    fn open_to_write(&self, path: &Path) -> io::Result<Self::File>;

    /// Removes a file. Not durable before [`Disk::sync_directory`]. Reads of open handles may
    /// continue or fail.
    ///
    /// # Errors
    /// The system's error; `NotFound` if it does not exist.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the creation and the removal of files in a directory durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// The number of bytes that can still be written to the disk of `directory`.
    ///
    /// # Errors
    /// The system's error.
    fn available_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file.
pub trait DiskFile {
    /// Writes all of `bytes` at `offset`. Not durable before a sync.
    ///
    /// # Errors
    /// The system's error; `StorageFull` if there is no room. A part of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// The system's error; `UnexpectedEof` if the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes later reads return the bytes on the disk instead of those in the system's cache, which
    /// differ after a failed sync. Unsynced writes stay readable.
    ///
    /// # Errors
    /// The system's error.
    fn forget_cached(&self) -> io::Result<()>;

    /// Makes all writes to the file durable, through any handle. After an error the state of the
    /// writes since the last sync is unknown, and another sync proves nothing.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self) -> io::Result<()>;

    /// Sets the length of the file: cuts it, or extends it with zeros. Not durable before a sync.
    ///
    /// # Errors
    /// The system's error.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Allocates `length` bytes of the disk for the file, which then has that length and reads as
    /// zeros. Returns false without any effect if the file system does not support it.
    ///
    /// # Errors
    /// The system's error; `StorageFull` if there is no room.
    fn allocate(&self, length: u64) -> io::Result<bool>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn length(&self) -> io::Result<u64>;
}

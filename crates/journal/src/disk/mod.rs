//! The disk, as far as the journal needs one. There are three: the real one, one in memory, and
//! one that loses, tears and refuses as a seed tells it to. One contract test holds for all.

mod faulty;
mod memory;
mod real;

use std::{io, path::Path};

pub use faulty::{FaultPlan, FaultyDisk};
pub use memory::MemoryDisk;
pub use real::{Access, RealDisk};

/// A disk with directories and files. Clones speak to the same disk.
pub trait Disk: Clone + std::fmt::Debug {
    /// An open file.
    type File: DiskFile + std::fmt::Debug;

    /// Creates a directory, and those above it; one that is there is left as it is.
    ///
    /// # Errors
    /// What the system says.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, sorted.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file and opens it for writing.
    ///
    /// # Errors
    /// What the system says; `AlreadyExists` if it is there.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for reading through the system's cache.
    ///
    /// # Errors
    /// What the system says; `NotFound` if it is not there.
    fn open_to_read(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for reading whole blocks at block boundaries into memory that is aligned like
    /// them, past the system's cache; `None` where there is no such way.
    ///
    /// # Errors
    /// What the system says; `NotFound` if it is not there.
    fn open_to_read_past(&self, _path: &Path) -> io::Result<Option<Self::File>> {
        Ok(None)
    }

    /// Opens a file for writing whole blocks at block boundaries, past the system's cache where
    /// the file system can.
    ///
    /// # Errors
    /// What the system says; `NotFound` if it is not there.
    fn open_to_write(&self, path: &Path) -> io::Result<Self::File>;

    /// Removes a file. Not durable before [`Disk::sync_directory`]. Whoever has it open may go on
    /// reading it, or fail.
    ///
    /// # Errors
    /// What the system says; `NotFound` if it is not there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the creation and the removal of files in a directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// How many bytes may still be written to the disk that holds `directory`.
    ///
    /// # Errors
    /// What the system says.
    fn available_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// An open file.
pub trait DiskFile {
    /// Writes all of `bytes` at `offset`. Not durable before a sync.
    ///
    /// # Errors
    /// What the system says; `StorageFull` if there is no room. Part of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` if the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes later reads see what the disk holds, not what the system's cache remembers: after a
    /// failed sync the two differ. What was written and not synced stays readable.
    ///
    /// # Errors
    /// What the system says.
    fn forget_cached(&self) -> io::Result<()>;

    /// Makes everything written durable, through whichever handle. After an error nothing is known of what was written since
    /// the last sync, and another sync proves nothing.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;

    /// Makes the file `length` bytes long: cuts it, or lets it grow by zeros. Not durable before
    /// a sync.
    ///
    /// # Errors
    /// What the system says.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Takes `length` bytes of the disk for the file, which is as long then and reads as zeros, without
    /// writing them. False, with nothing done, where the file system has no such way.
    ///
    /// # Errors
    /// What the system says; `StorageFull` if there is no room.
    fn allocate(&self, length: u64) -> io::Result<bool>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;
}

//! The real disk.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place where the journal meets the file system"
)]

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fdatasync, statvfs},
    io::{Errno, retry_on_intr},
};

use super::{Disk, DiskFile};
use crate::{block::Blocks, format::BLOCK_BYTES};

/// How segments are written, and how long reads are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Uncached if the file system supports it, otherwise through the system's cache.
    #[default]
    Auto,
    /// Only uncached.
    Direct,
    /// Through the system's cache.
    Buffered,
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk {
    access: Access,
}

/// The flag for uncached reads and writes.
fn direct_flag() -> io::Result<i32> {
    i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)
}

impl RealDisk {
    /// A disk with this access.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access }
    }
}

impl Disk for RealDisk {
    type File = File;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<File>> {
        if self.access == Access::Buffered {
            return Ok(None);
        }
        match OpenOptions::new().read(true).custom_flags(direct_flag()?).open(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_to_write(&self, path: &Path) -> io::Result<File> {
        let buffered = || OpenOptions::new().read(true).write(true).open(path);
        let direct = || {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(direct_flag()?).open(path)?;
            // Some file systems take the flag and refuse the first transfer.
            FileExt::read_at(&file, Blocks::zeroed(1).as_mut(), 0)?;
            Ok(file)
        };
        match self.access {
            Access::Buffered => buffered(),
            Access::Direct => direct(),
            Access::Auto => match direct() {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => buffered(),
                opened => opened,
            },
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn available_bytes(&self, directory: &Path) -> io::Result<u64> {
        let stat = statvfs(directory)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(BLOCK_BYTES as u64));
        self.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn forget_cached(&self) -> io::Result<()> {
        Ok(fadvise(self, 0, None, Advice::DontNeed)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(self)?)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        match retry_on_intr(|| fallocate(self, FallocateFlags::empty(), 0, length)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

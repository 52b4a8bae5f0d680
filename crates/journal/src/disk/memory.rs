//! A disk in memory. Every write is durable at once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::{Disk, DiskFile};

type Bytes = Rc<RefCell<Vec<u8>>>;

/// A disk in memory, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    directories: Rc<RefCell<BTreeSet<PathBuf>>>,
    files: Rc<RefCell<BTreeMap<PathBuf, Bytes>>>,
}

/// A file of a [`MemoryDisk`].
#[derive(Clone, Debug)]
pub struct MemoryFile {
    bytes: Bytes,
}

impl MemoryDisk {
    /// Creates or replaces a file: for tests of damaged disks.
    pub fn insert_file(&self, path: &Path, bytes: Vec<u8>) {
        if let Some(directory) = path.parent() {
            self.directories.borrow_mut().insert(directory.to_owned());
        }
        self.files.borrow_mut().insert(path.to_owned(), Rc::new(RefCell::new(bytes)));
    }

    /// The bytes of a file.
    #[must_use]
    pub fn bytes_of(&self, path: &Path) -> Option<Vec<u8>> {
        Some(self.files.borrow().get(path)?.borrow().clone())
    }
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.directories.borrow_mut().extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        if !self.directories.borrow().contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = self.files.borrow();
        let inside = files.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        if !path.parent().is_some_and(|parent| self.directories.borrow().contains(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut files = self.files.borrow_mut();
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Bytes::default();
        files.insert(path.to_owned(), bytes.clone());
        Ok(MemoryFile { bytes })
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<MemoryFile>> {
        self.open_to_read(path).map(Some)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<MemoryFile> {
        let files = self.files.borrow();
        let bytes = files.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        Ok(MemoryFile { bytes })
    }

    fn open_to_write(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open_to_read(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.files.borrow_mut().remove(path);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn available_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl DiskFile for MemoryFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut held = self.bytes.borrow_mut();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let end = offset + bytes.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let held = self.bytes.borrow();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let from = held.get(offset..offset + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(from);
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.bytes.borrow_mut().resize(length, 0);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        self.set_length(length).map(|()| true)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.borrow().len() as u64)
    }
}

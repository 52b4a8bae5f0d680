//! The files a reader has open: those it used last, and no more of them than a limit.

use std::{cell::OnceCell, path::PathBuf};

use crate::{disk::Disk, home::Home};

/// How many files a reader has open at most, each of them perhaps once more past the system's cache: a shard
/// has three readers, and a process as a rule 1,024 descriptors.
const OPEN_FILES_MAX: usize = 32;

/// Open files by what they hold.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    /// The one used last is the last.
    files: Vec<OpenFile<F>>,
}

#[derive(Debug)]
pub(crate) struct OpenFile<F> {
    home: Home,
    pub(crate) path: PathBuf,
    pub(crate) file: F,
    /// The same file past the system's cache, once it was wanted; `None` within if there is no such
    /// way.
    past: OnceCell<Option<F>>,
}

impl<F> OpenFile<F> {
    /// The same file past the system's cache, if there is such a way.
    pub(crate) fn past(&self, disk: &impl Disk<File = F>) -> Option<&F> {
        let opened = || disk.open_to_read_past(&self.path).unwrap_or_default();
        self.past.get_or_init(opened).as_ref()
    }
}

impl<F> OpenFiles<F> {
    pub(crate) fn new() -> Self {
        Self { files: Vec::new() }
    }

    pub(crate) fn get(&mut self, home: Home) -> Option<&OpenFile<F>> {
        let at = self.files.iter().rposition(|open| open.home == home)?;
        let open = self.files.remove(at);
        self.files.push(open);
        self.files.last()
    }

    /// Keeps a file open; the one that was not used for longest is closed for it.
    pub(crate) fn keep(&mut self, home: Home, path: PathBuf, file: F) -> &OpenFile<F> {
        self.close(home);
        if self.files.len() == OPEN_FILES_MAX {
            self.files.remove(0);
        }
        let at = self.files.len();
        self.files.push(OpenFile { home, path, file, past: OnceCell::new() });
        &self.files[at]
    }

    pub(crate) fn close(&mut self, home: Home) {
        self.files.retain(|open| open.home != home);
    }
}

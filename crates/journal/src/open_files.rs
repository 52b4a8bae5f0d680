//! The open files of a reader: the most recently used ones, up to a limit.

use std::{cell::OnceCell, path::PathBuf};

use crate::{container::Container, disk::Disk};

/// Most open files of a reader; each may also be open a second time for uncached reads. A shard has
/// three readers, and a process usually 1,024 descriptors.
const OPEN_FILES_MAX: usize = 32;

/// Open files by container.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    /// The most recently used is the last.
    files: Vec<OpenFile<F>>,
}

#[derive(Debug)]
pub(crate) struct OpenFile<F> {
    container: Container,
    pub(crate) path: PathBuf,
    pub(crate) file: F,
    /// The same file for uncached reads, once it was needed; `None` inside if the disk does not
    /// support them.
    uncached: OnceCell<Option<F>>,
}

impl<F> OpenFile<F> {
    /// The same file for uncached reads, if the disk supports them.
    pub(crate) fn uncached(&self, disk: &impl Disk<File = F>) -> Option<&F> {
        let opened = || disk.open_uncached(&self.path).unwrap_or_default();
        self.uncached.get_or_init(opened).as_ref()
    }
}

impl<F> OpenFiles<F> {
    pub(crate) fn new() -> Self {
        Self { files: Vec::new() }
    }

    pub(crate) fn get(&mut self, container: Container) -> Option<&OpenFile<F>> {
        let at = self.files.iter().rposition(|open| open.container == container)?;
        let open = self.files.remove(at);
        self.files.push(open);
        self.files.last()
    }

    /// Adds an open file; closes the least recently used one if there are too many.
    pub(crate) fn keep(&mut self, container: Container, path: PathBuf, file: F) -> &OpenFile<F> {
        self.close(container);
        if self.files.len() == OPEN_FILES_MAX {
            self.files.remove(0);
        }
        let at = self.files.len();
        self.files.push(OpenFile { container, path, file, uncached: OnceCell::new() });
        &self.files[at]
    }

    pub(crate) fn close(&mut self, container: Container) {
        self.files.retain(|open| open.container != container);
    }
}

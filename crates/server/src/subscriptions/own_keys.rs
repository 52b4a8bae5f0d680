//! The broker's own keys as subscriptions have them: made when they are first needed. A node of a cluster makes none: it has those that all
//! nodes have, once it has heard of them.

use std::{cell::OnceCell, io, path::PathBuf, rc::Rc};

use super::keys::Keys;

/// See the file's page.
#[derive(Debug)]
pub(super) struct OwnKeys {
    /// Where they lie.
    directory: PathBuf,
    is_alone: bool,
    keys: OnceCell<Rc<Keys>>,
}

impl OwnKeys {
    /// Those in a data directory.
    pub(super) fn new(directory: PathBuf, is_alone: bool) -> Self {
        Self { directory, is_alone, keys: OnceCell::new() }
    }

    /// The keys.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not what it should be; or the node has not heard of them yet.
    pub(super) fn get(&self) -> io::Result<Rc<Keys>> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys.clone());
        }
        let keys = match self.is_alone {
            true => Keys::open(&self.directory)?,
            false => Keys::read(&self.directory)?.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, "the cluster's keys are not known here yet")
            })?,
        };
        Ok(self.keys.get_or_init(|| Rc::new(keys)).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_cluster_makes_no_keys_and_has_those_that_come() {
        let directory = tempfile::tempdir().unwrap();
        let of_node = OwnKeys::new(directory.path().into(), false);
        assert_eq!(of_node.get().unwrap_err().kind(), io::ErrorKind::NotFound);
        let made = OwnKeys::new(directory.path().into(), true).get().unwrap();
        assert_eq!(of_node.get().unwrap().id(), made.id());
    }
}

//! Faults of the disk, with path and position, and data directories that this program cannot serve.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{format::FORMAT_VERSION, position::Position};

/// A fault of the disk or of the data on it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A call to the disk failed.
    #[error("cannot {action} {path}: {error}", path = .path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The disk or a quota has no room for another slot or for a write.
    #[error("no room left for {path}", path = .path.display())]
    StorageFull {
        /// The lane's directory, or the file.
        path: PathBuf,
    },
    /// The lane has no spare slot for the next segment. It has written nothing; with a spare slot
    /// the same frames can be appended again.
    #[error("no spare slot for segment {segment}")]
    NoSpareSlot {
        /// The next segment.
        segment: u64,
    },
    /// An earlier write or sync failed, and nothing is written after that.
    #[error("the lane was fenced by an earlier fault; the broker has to be started again")]
    Fenced,
    /// Durable bytes have changed.
    #[error("{path} is damaged at position {position}: {problem}", path = .path.display())]
    Rot {
        /// The slot or the pack.
        path: PathBuf,
        /// The position in the log or the pack.
        position: Position,
        /// The problem there.
        problem: &'static str,
    },
    /// No slot holds a segment that is needed.
    #[error("segment {segment} is missing from {path}", path = .path.display())]
    MissingSegment {
        /// The lane's directory.
        path: PathBuf,
        /// The segment.
        segment: u64,
    },
    /// A pack that is needed does not exist.
    #[error("pack {pack} is missing: there is no {path}", path = .path.display())]
    MissingPack {
        /// Its file.
        path: PathBuf,
        /// Its number.
        pack: u32,
    },
    /// An earlier fault left the pack unfinished.
    #[error("{path} is rubbish after an earlier fault and has to be removed", path = .path.display())]
    BrokenPack {
        /// Its file.
        path: PathBuf,
    },
    /// The format is newer than this program.
    #[error("{path} has format {found}, this program reads format {known}; start it with a newer version", path = .path.display())]
    NewerFormat {
        /// The file or directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// The file does not belong at its place.
    #[error("{path} does not belong here: {field} is {found}, expected {expected}", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The field that differs.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The expected value.
        expected: u64,
    },
    /// The directory belongs to something else.
    #[error("{path} is not a data directory of this program: {reason}", path = .path.display())]
    NotADataDirectory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A directory that a restore fills must be empty.
    #[error("{path} is not empty, it holds {found}; choose a new directory", path = .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        found: String,
    },
    /// A restore has not finished the directory: it is still running, or it was killed.
    #[error("{path} holds part of a restore that has not ended; if none runs, remove it and restore again", path = .path.display())]
    UnfinishedRestore {
        /// The directory.
        path: PathBuf,
    },
    /// No directory can be created with these settings.
    #[error("cannot make a data directory in {path} with {reason}", path = .path.display())]
    Impossible {
        /// The directory.
        path: PathBuf,
        /// The setting, and the possible values.
        reason: String,
    },
    /// The directory belongs to no cluster, and a node was to serve it.
    #[error("{path} belongs to no cluster and cannot become the directory of node {wanted}; start it without --node-id, or choose a new directory", path = .path.display())]
    NotOfACluster {
        /// The directory.
        path: PathBuf,
        /// The node.
        wanted: u16,
    },
    /// The directory belongs to another node.
    #[error("{path} belongs to node {found}, not to node {wanted}; start it without --node-id or with the node's own, or choose another directory", path = .path.display())]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Its node.
        found: u16,
        /// The node that was to serve it.
        wanted: u16,
    },
    /// The directory belongs to one of several nodes, and was to be served without the others.
    #[error("{path} belongs to node {node} of a cluster with {peers} other nodes; start it with --peers, --cluster-listen and --cluster-id as before", path = .path.display())]
    NeedsPeers {
        /// The directory.
        path: PathBuf,
        /// Its node.
        node: u16,
        /// How many other nodes there are.
        peers: u16,
    },
    /// Another process has the directory.
    #[error("{path} is in use by another process; stop it, or choose another directory", path = .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl Fault {
    /// Refuses a file of a newer format, and one of another lane, directory or number. Each of `fields` is a name,
    /// the value in the file's header, and the expected one.
    pub(crate) fn check_origin(
        path: &Path,
        version: u16,
        fields: [(&'static str, u64, u64); 3],
    ) -> Result<(), Self> {
        if version > FORMAT_VERSION {
            let (found, known) = (version.into(), FORMAT_VERSION.into());
            return Err(Self::NewerFormat { path: path.to_owned(), found, known });
        }
        match fields.into_iter().find(|(_, found, expected)| found != expected) {
            Some((field, found, expected)) => {
                Err(Self::Foreign { path: path.to_owned(), field, found, expected })
            }
            None => Ok(()),
        }
    }

    /// The cause, for `map_err`: `error` of `action` on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| {
            match error.kind() {
                // A quota says it when the disk itself has room.
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Self::StorageFull { path }
                }
                _ => Self::Io { action, path, error },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_a_disk_without_room_and_other_errors_are_not() {
        let full = |kind: io::ErrorKind| {
            let fault = Fault::io("write", "data/lane-0/slot-00000.journal")(kind.into());
            matches!(fault, Fault::StorageFull { .. })
        };
        assert!(full(io::ErrorKind::StorageFull));
        assert!(full(io::ErrorKind::QuotaExceeded));
        assert!(!full(io::ErrorKind::PermissionDenied));
    }
}

//! What the world did wrong, with the place where it did. Also what a directory says that this
//! program cannot serve.

use std::{io, path::PathBuf};

use crate::position::Position;

/// A fault of the disk, or of what lies on it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A call to the disk failed.
    #[error("cannot {action} {path}: {error}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// There is no room for another slot, or for what is written: on the disk, or within a quota.
    #[error("no room left for {path}", path = .path.display())]
    StorageFull {
        /// The lane's directory, or the file.
        path: PathBuf,
    },
    /// The lane has no spare slot for the segment that begins. Nothing was written; with a spare
    /// slot the same frames can be appended again.
    #[error("no spare slot for segment {segment}")]
    NoSpareSlot {
        /// The segment that would begin.
        segment: u64,
    },
    /// An earlier write or sync failed, and nothing is written after that.
    #[error("the lane was fenced by an earlier fault; the broker has to be started again")]
    Fenced,
    /// Bytes that were durable are not what they were.
    #[error("{path} is damaged at position {position}: {what}", path = .path.display())]
    Rot {
        /// The slot or the pack.
        path: PathBuf,
        /// Where in the log or the pack.
        position: Position,
        /// What is wrong there.
        what: &'static str,
    },
    /// A segment that is needed is in no slot.
    #[error("segment {segment} is missing from {path}", path = .path.display())]
    MissingSegment {
        /// The lane's directory.
        path: PathBuf,
        /// Which.
        segment: u64,
    },
    /// A pack that is needed is not there.
    #[error("pack {pack} is missing: there is no {path}", path = .path.display())]
    MissingPack {
        /// Its file.
        path: PathBuf,
        /// Its number.
        pack: u32,
    },
    /// A pack that an earlier fault left half made.
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
    /// The file is not what its place says.
    #[error("{path} does not belong here: {field} is {found}, expected {expected}", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What differs.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What it should say.
        expected: u64,
    },
    /// The directory holds something else.
    #[error("{path} is not a data directory of this program: {reason}", path = .path.display())]
    NotADataDirectory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The directory was to be filled, and holds something.
    #[error("{path} is not empty, it holds {found}; choose a new directory", path = .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Something in it.
        found: String,
    },
    /// A restore has filled the directory in part, and was killed or is still at it.
    #[error("{path} holds part of a restore that has not ended; if none runs, remove it and restore again", path = .path.display())]
    UnfinishedRestore {
        /// The directory.
        path: PathBuf,
    },
    /// No directory can be made with these settings.
    #[error("cannot make a data directory in {path} with {reason}", path = .path.display())]
    Impossible {
        /// The directory.
        path: PathBuf,
        /// What is asked for, and what is possible.
        reason: String,
    },
    /// Another process has the directory.
    #[error("{path} is in use by another process; stop it, or choose another directory", path = .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl Fault {
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

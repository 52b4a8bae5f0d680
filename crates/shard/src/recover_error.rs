//! The errors of a recovery.

use sennit_engine::RecordError;
use sennit_journal::{Fault, Position};

use crate::replica_reading::ReplicaError;

/// The reason why a shard cannot be recovered. It refuses rather than lose committed data.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The journal is damaged or cannot be read.
    #[error(transparent)]
    Journal(#[from] Fault),
    /// A record is impossible.
    #[error("record at position {position}: {error}", position = .position.0)]
    Record {
        /// The position of its body.
        position: Position,
        /// The error.
        error: RecordError,
    },
    /// A frame is not one of this replica's lane.
    #[error("frame at position {position}: {error}", position = .position.0)]
    Replica {
        /// The position of a record in it.
        position: Position,
        /// The error.
        error: ReplicaError,
    },
    /// The checkpoint at the start of the replay is damaged, and the one before no longer exists.
    #[error("the checkpoint at position {position} is damaged, and there is no older one: restore a backup", position = .position.0)]
    Checkpoint {
        /// The start of the replay.
        position: Position,
    },
}

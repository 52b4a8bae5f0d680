//! Why a lane comes to no shard.

use sennit_engine::RecordError;
use sennit_journal::{Fault, Position};

/// Why a shard cannot go on. It refuses rather than lose what was committed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The journal is damaged or cannot be read.
    #[error(transparent)]
    Journal(#[from] Fault),
    /// A record says what cannot be.
    #[error("record at position {position}: {error}", position = .position.0)]
    Record {
        /// Where its body lies.
        position: Position,
        /// What is wrong.
        error: RecordError,
    },
    /// The checkpoint is damaged with which a replay begins, and the one before is not there any
    /// more.
    #[error("the checkpoint at position {position} is damaged, and there is no older one: restore a backup", position = .position.0)]
    Checkpoint {
        /// Where the replay began.
        position: Position,
    },
}

//! The acts of a scripted broker.

use std::fmt;

/// An act. The script runs each act until its commit, unless the act says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Publish a batch of small messages.
    Small,
    /// Publish a long message.
    Long,
    /// Publish both in one turn.
    Both,
    /// Publish a small batch, and do not wait for anything.
    Gather,
    /// Ack two of three messages that are held, the next time all of them.
    Settle,
    /// Hand back all held messages.
    Retry,
    /// Settle all held messages as dead letters.
    Bury,
    /// Delete the topic of the small messages; if it is deleted, make another.
    Delete,
    /// Give both topics another group; the next time delete it.
    Group,
    /// Append to three streams of a group atomically. Opens the streams first if they do not exist.
    Together,
    /// Append to them twice, and do not wait for anything.
    GatherTogether,
    /// Append several batches to the first of them in one append.
    Several,
    /// Do so twice, and do not wait for anything.
    GatherSeveral,
    /// Write a checkpoint.
    Checkpoint,
    /// Begin a checkpoint, and write one piece of it.
    Piece,
    /// Finish all moves, and remove packs.
    Move,
    /// Run three steps of the mover.
    MoveSteps,
    /// Let time pass until the lane writes a mark.
    Mark,
    /// Let time pass until leases end.
    Later,
    /// The disk has no more room.
    Full,
    /// The disk has room again.
    Room,
    /// The process is killed, and starts again.
    Restart,
}

/// Acts as text.
pub struct Acts<'a>(pub &'a [Act]);

impl fmt::Display for Acts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, act) in self.0.iter().enumerate() {
            write!(f, "{}{act:?}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

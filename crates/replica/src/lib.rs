//! A replica: a shard in a group. What the group orders ([`sennit_replication::Orders`]) is done to the shard and its
//! lane, and what the lane has synced is told to the group.
//!
//! Nothing here waits. The owner of a replica carries messages between it and the links, frames and reads between it
//! and the disk, commands and effects between it and the sessions.

mod label;
mod message_queue;
mod moment;
mod orders;
mod quarantine;
mod replica;
mod start;

pub use message_queue::OutgoingMessage;
pub use moment::Moment;
pub use replica::{HearError, Replica, ReplicaSettings};
pub use start::StartError;

//! The way from a core to the same core of the other nodes. The links lie above: here nobody knows what they are made of.

use std::fmt;

use bytes::Bytes;
use sennit_replica::OutgoingMessage;

use crate::runtime::index::ShardIndex;

/// Several commands or effects, as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// The shard whose group they concern.
    pub(crate) shard: ShardIndex,
    /// The term of the leader that gets the commands, or has told the effects.
    pub(crate) term: u64,
    /// How many there are.
    pub(crate) count: u32,
    /// One behind the other.
    pub(crate) body: Bytes,
}

/// Sends to the other nodes. What is sent to one arrives in order, or from some point on not at all: then the core is
/// told that the link has ended.
pub(crate) trait PeerLinks: fmt::Debug {
    /// Whether there is a link to a node.
    fn is_up(&self, node: u16) -> bool;

    /// Sends a message of a group; false if it is lost.
    fn send_message(&self, node: u16, message: OutgoingMessage) -> bool;

    /// Sends commands to a leader; false if they are lost.
    fn send_commands(&self, node: u16, commands: Parcel) -> bool;

    /// Sends effects to the node of their sessions; false if they are lost.
    fn send_effects(&self, node: u16, effects: Parcel) -> bool;

    /// Whether all that was sent to any node is out of this process.
    fn has_sent_all(&self) -> bool;

    /// Ends the link to a node: something is lost, and both sides have to know.
    fn end(&self, node: u16);
}

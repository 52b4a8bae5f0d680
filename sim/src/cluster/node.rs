//! A node of a cluster as the course drives it: a process with a replica, and its disk, which outlives the process.

use crate::{cluster::network::Class, oracle::Violation, random::Random};

/// A message that leaves a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiving node.
    pub to: usize,
    /// The queue.
    pub class: Class,
    /// The message.
    pub bytes: Vec<u8>,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is killed: what it has written stays.
    Kill,
    /// The power fails: what is not synced may be lost, from any place on.
    PowerCut,
}

/// A node. `read_us` is the time of its own clock.
pub trait Node {
    /// Whether the process runs.
    fn is_up(&self) -> bool;

    /// Whether it takes itself for the leader.
    fn leads(&self) -> bool;

    /// Starts the process with what its disk holds.
    fn start(&mut self, read_us: u64) -> Result<(), Violation>;

    /// Ends the process. `random` decides what a power cut leaves.
    fn stop(&mut self, how: Stop, random: &mut Random);

    /// A tick of raft's clock.
    fn tick(&mut self, read_us: u64) -> Result<(), Violation>;

    /// Takes a message of another node.
    fn hear(&mut self, from: usize, bytes: &[u8], read_us: u64) -> Result<(), Violation>;

    /// The connection to another node has broken.
    fn lose_link(&mut self, peer: usize, read_us: u64) -> Result<(), Violation>;

    /// A client asks whether the node still leads.
    fn ask(&mut self, read_us: u64) -> Result<(), Violation>;

    /// The leader is asked to hand leadership to another node.
    fn transfer(&mut self, to: usize, read_us: u64) -> Result<(), Violation>;

    /// If the lane is idle and something has gathered for it: writes that, and begins a sync. Returns whether it did.
    fn begin_sync(&mut self) -> bool;

    /// The sync that was begun has succeeded.
    fn end_sync(&mut self, read_us: u64) -> Result<(), Violation>;

    /// The sync that was begun has failed, which ends the process. `random` decides what is left of its bytes.
    fn fail_sync(&mut self, random: &mut Random);

    /// Its disk has no room for messages from now on, or has it again.
    fn set_full(&mut self, _is_full: bool) {}

    /// A bit of what its disk has synced flips when the process ends. Returns whether there is one.
    fn prepare_to_rot(&mut self, _random: &mut Random) -> bool {
        false
    }

    /// Whether a start has found that a part of the log has rotted. It needs a replacement.
    fn is_rotten(&self) -> bool {
        false
    }

    /// Takes the messages that leave now.
    fn take_outgoing(&mut self) -> Result<Vec<Outgoing>, Violation>;
}

//! The judge of a cluster as a whole, which speaks for its clients.

use crate::{oracle::Violation, random::Random};

/// The promise that a quorum makes progress.
pub const PROGRESS: &str = "I8 a quorum that hears each other has a leader and makes progress";

/// An instant of a run.
#[derive(Debug, Default)]
pub struct Instant {
    /// The true time.
    pub true_us: u64,
    /// The time of each node's own clock.
    pub read_us: Vec<u64>,
    /// The nodes whose cores do something: they are up, and do not stall.
    pub awake: Vec<bool>,
}

/// The judge of a cluster as a whole.
pub trait Judge<N> {
    /// Holds all nodes against each other, after anything has happened.
    fn look(&mut self, nodes: &mut [N], at: &Instant) -> Result<(), Violation>;

    /// Clients do something, at `node` unless they know better. `random` is that of the course.
    fn serve(
        &mut self,
        nodes: &mut [N],
        node: usize,
        at: &Instant,
        random: &mut Random,
    ) -> Result<(), Violation>;

    /// The number of things that clients know to be done; it grows.
    fn progress(&self) -> u64;

    /// Whether something has happened after which these nodes need not make progress.
    fn may_stand_still(&self, _nodes: &[usize]) -> bool {
        false
    }

    /// Holds the nodes against each other after a quiet time.
    fn end(&mut self, nodes: &mut [N], at: &Instant) -> Result<(), Violation>;
}

//! The number of a live connection on its core.

/// A connection of a core. A slot is used again, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

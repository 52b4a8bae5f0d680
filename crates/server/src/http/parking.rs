//! Why a connection leaves its task, and what it brings to the next one when it comes back from the lot.

use super::{
    core_affinity::Departure, handler::Wait, http1_answers::Manner, parking_lot_entry::Parking,
    thread_context::Guest,
};
use crate::runtime::write_buffer::Outgoing;

/// Why a connection leaves its task though it goes on.
#[derive(Debug)]
pub(crate) enum Left {
    /// For another core.
    Moves(Departure),
    /// For the lot.
    Parks(Parking),
}

/// What a connection brings that comes back from the lot.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) guest: Guest,
    /// Whether its socket has something to be read, or its end.
    pub(crate) is_heard: bool,
    /// What its socket has not taken.
    pub(crate) rest: Outgoing,
    /// What its request waits for still, if one is under way.
    pub(crate) wait: Option<Wait>,
    pub(crate) manner: Manner,
    pub(crate) moves: u32,
}

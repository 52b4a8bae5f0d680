//! Why a connection leaves its task, and what it brings to the next one when it comes back from the lot.

use super::{
    hall::Guest, http1_answers::Manner, lot_door::Parking, moving::Departure, streams::spot::Wait,
};
use crate::outgoing::Outgoing;

/// Why a connection leaves its task though it goes on.
#[derive(Debug)]
pub(super) enum Left {
    /// For another core.
    Moves(Departure),
    /// For the lot.
    Parks(Parking),
}

/// What a connection brings that comes back from the lot.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) guest: Guest,
    /// Whether its socket has something to be read, or its end.
    pub(super) is_heard: bool,
    /// What its socket has not taken.
    pub(super) rest: Outgoing,
    /// What its request waits for still, if one is under way.
    pub(super) wait: Option<Wait>,
    pub(super) manner: Manner,
    pub(super) moves: u32,
}

//! A connection leaves its task for one of these reasons, and comes back with these things after it was parked.

use bytes::BytesMut;

use super::{
    core_affinity::Departure, handler::Wait, http1_answers::Manner, parking_entry::Parking,
    thread_state::OpenConnection, upgrade::Upgrade,
};
use crate::runtime::write_buffer::WriteBuffer;

/// Why a connection leaves its task though it goes on.
#[derive(Debug)]
pub(crate) enum Left {
    /// For another core.
    Moves(Departure),
    /// To be parked.
    Parks(Parking),
    /// For another door, with what has come behind its request.
    Upgrades(Upgrade, BytesMut),
}

/// What a connection brings that was parked.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) open_connection: OpenConnection,
    /// Whether its socket has something to be read, or its end.
    pub(crate) is_heard: bool,
    /// What its socket has not taken.
    pub(crate) rest: WriteBuffer,
    /// What its request waits for still, if one is under way.
    pub(crate) wait: Option<Wait>,
    pub(crate) manner: Manner,
    pub(crate) moves: u32,
}

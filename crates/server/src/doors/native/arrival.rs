//! A connection on its way to a core: new from the listener, or from another core because its partition lives here.
//! On its partition's core a message is spared two threads.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use sennit_model::TopicId;
use sennit_protocol::{Features, FrameHeader, FrameReader};

use super::native_wire::WebSocketLayer;
use crate::{
    identity::{principal::Principal, tenant_meter::ConnectionPlace},
    runtime::{session_takeover::SessionToken, wire::WireAtRest},
};

/// A connection on its way to a core.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) wire: WireAtRest,
    /// The WebSocket on it, if there is one.
    pub(crate) websocket: Option<Box<WebSocketLayer>>,
    /// What it takes along from the core it was at.
    pub(crate) moved: Option<Box<Moved>>,
}

/// What a connection takes along: it has been greeted, has opened topics perhaps, and has nothing
/// under way. It moves once.
#[derive(Debug)]
pub(crate) struct Moved {
    /// What was read and not looked at.
    pub(crate) input: BytesMut,
    /// The frame that said where it belongs; to be done first.
    pub(crate) frame: (FrameHeader, Bytes),
    pub(crate) frames: FrameReader,
    /// Whose connection it is.
    pub(crate) principal: Principal,
    /// Its place among the connections of its tenant.
    pub(crate) place: Option<ConnectionPlace>,
    /// The largest frame body the client takes.
    pub(crate) frame_bytes_max: usize,
    /// What was granted to it.
    pub(crate) features: Features,
    /// The token it was given.
    pub(crate) token: Option<SessionToken>,
    /// Topics placed beside another: which.
    pub(crate) homes: HashMap<TopicId, TopicId>,
}

//! A read that waits for its stream: the position and the deadline.

use sennit_model::TopicName;
use tokio::time::Instant;

use super::query::Live;
use crate::{
    broker::{stream_offset::StreamOffset, stream_request::StreamPlace},
    http::handler::Wait,
    identity::principal::Principal,
};

/// Where reads wait: what comes there is told to all of them alike.
#[derive(Clone, Debug)]
pub(crate) struct ReadPosition {
    pub(crate) name: TopicName,
    pub(crate) stream: StreamPlace,
    pub(crate) at: StreamOffset,
    pub(crate) live: Live,
}

/// A read that waits at a position.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRead {
    /// Who reads.
    pub(crate) principal: Principal,
    pub(crate) position: ReadPosition,
    /// The cursor that it came with, or was given last; 0, which lies behind every other, is none.
    pub(crate) cursor: u64,
    /// When it ends.
    pub(crate) until: Instant,
    /// When it was told something last.
    pub(crate) said_at: Instant,
    /// Whether it is to stay with its task: what became of it is not for all who wait there.
    pub(crate) stays: bool,
}

impl WaitingRead {
    /// The same for transports, which know no reads.
    pub(crate) fn offered(self) -> Wait {
        let is_begun = self.position.live.is_events();
        Wait::new(self, is_begun)
    }
}

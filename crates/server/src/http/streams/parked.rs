//! Reads that wait for their stream and need no task for it: what they wait for, and what those are told
//! who wait for the same, made once for all of them. It knows no sockets.

use sennit_engine::{StreamChunk, StreamRead};
use sennit_model::{Offset, ReadFrom, TopicName};
use tokio::time::Instant;

use super::{
    StreamsDoor, cors,
    long_poll::{self, Awaited},
    query::Live,
    read,
    read::Source,
    sse,
};
use crate::{
    http::{body::Body, response::Response},
    stream_request::StreamPlace,
};

/// Where reads wait: what comes there is told to all of them alike.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) name: TopicName,
    pub(crate) stream: StreamPlace,
    pub(crate) at: Offset,
    pub(crate) live: Live,
}

impl Spot {
    /// What is asked of the stream for all who wait here.
    pub(crate) fn question(&self) -> StreamRead {
        let bytes_max = match self.live {
            Live::LongPoll => read::READ_BYTES_MAX,
            Live::Events => sse::EVENT_BYTES_MAX,
        };
        let at = ReadFrom::Offset(self.at);
        let (one_append, for_fork) = (false, false);
        StreamRead { at, before: None, bytes_max, waits: true, one_append, for_fork }
    }
}

/// A read that waits at a spot.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) spot: Spot,
    /// The cursor that it came with, or was given last; 0, which lies behind every other, is none.
    pub(crate) cursor: u64,
    /// When it ends.
    pub(crate) until: Instant,
    /// When it was told something last.
    pub(crate) said_at: Instant,
    /// Whether it is to stay with its task: what became of it is not for all who wait there.
    pub(crate) stays: bool,
}

impl StreamsDoor {
    /// Goes on with a read that has waited without a task.
    pub(crate) async fn go_on(&self, wait: Wait) -> Response {
        let source = Source { streams: self.streams.clone(), name: wait.spot.name.clone() };
        let mut response = match wait.spot.live {
            Live::LongPoll => {
                let Wait { cursor, until, stays, .. } = wait;
                let at = ReadFrom::Offset(wait.spot.at);
                let awaited = Awaited { at, cursor, until, may_leave: !stays };
                self.awaited(&source, awaited).await.unwrap_or_else(Response::from)
            }
            Live::Events => return Response::new(Body::Events(self.events_from(source, wait))),
        };
        cors::say_to_reader(response.headers_mut());
        response
    }
}

/// The answer to a long-poll for which this has come, without its body.
pub(crate) fn answer(chunk: &StreamChunk, cursor: u64) -> Option<Response> {
    let mut response = long_poll::head(chunk, cursor).ok()?;
    cors::say_to_reader(response.headers_mut());
    Some(response)
}

/// The answer to one for which nothing has come.
pub(crate) fn nothing(at: Offset, cursor: u64) -> Response {
    let mut response = long_poll::nothing(at, false, cursor);
    cors::say_to_reader(response.headers_mut());
    response
}

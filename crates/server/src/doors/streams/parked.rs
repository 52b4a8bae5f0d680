//! Reads that wait for their stream without a task: the position they wait at, and the answers, which are encoded
//! once for all that wait at the same one. It knows no sockets.

use sennit_engine::{StreamChunk, StreamRead};
use sennit_model::ReadFrom;

use super::{
    StreamsDoor,
    long_poll::{self, PendingSubscriptions},
    query::Live,
    read, sse,
    waiting_read::{ReadPosition, WaitingRead},
};
use crate::{
    broker::stream_offset::{Identified, StreamOffset},
    http::{body::Body, response::Response, thread_state::HttpThreadState},
};

impl ReadPosition {
    /// What is asked of the stream for all who wait here.
    pub(crate) fn question(&self) -> StreamRead {
        let bytes_max = match self.live {
            Live::LongPoll => read::READ_BYTES_MAX,
            Live::Events | Live::Base64Events => sse::EVENT_BYTES_MAX,
        };
        let at = ReadFrom::Offset(self.at.at);
        let (one_append, for_fork) = (false, false);
        StreamRead { at, before: None, bytes_max, waits: true, one_append, for_fork }
    }
}

impl StreamsDoor {
    /// Goes on with a read that has waited without a task.
    pub(crate) async fn go_on(&self, wait: WaitingRead) -> Response {
        let (principal, position) = (wait.principal.clone(), &wait.position);
        let source = self.source(principal, position.name.clone(), Some(position.at.of));
        let mut response = match wait.position.live {
            Live::LongPoll => {
                let WaitingRead { cursor, until, stays, .. } = wait;
                let at = ReadFrom::Offset(wait.position.at.at);
                let awaited = PendingSubscriptions { at, cursor, until, may_leave: !stays };
                self.awaited(&source, awaited).await.unwrap_or_else(Response::from)
            }
            Live::Events | Live::Base64Events => {
                return Response::new(Body::Events(self.events_from(source, wait)));
            }
        };
        self.thread_state.guard.say_to_readers(response.headers_mut());
        response
    }
}

/// The answer to a long-poll for which this has come, without its body.
pub(crate) fn answer(
    chunk: &Identified<StreamChunk>,
    cursor: u64,
    thread_state: &HttpThreadState,
) -> Option<Response> {
    let mut response = long_poll::head(chunk, cursor).ok()?;
    thread_state.guard.say_to_readers(response.headers_mut());
    Some(response)
}

/// The answer to one for which nothing has come.
pub(crate) fn nothing(at: StreamOffset, cursor: u64, thread_state: &HttpThreadState) -> Response {
    let mut response = long_poll::nothing(at, false, cursor);
    thread_state.guard.say_to_readers(response.headers_mut());
    response
}

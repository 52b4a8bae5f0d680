//! A read that waits for something to give, for a while. It knows no events.

use std::{pin::pin, time::Duration};

use http::{StatusCode, header};
use sennit_engine::StreamChunk;
use sennit_model::ReadFrom;
use tokio::time::{Instant, timeout_at};

use super::{
    StreamsDoor,
    answers::{self, NO_STORE, TRUE},
    cursor, names,
    query::{Live, ReadQuery},
    read::{self, READ_BYTES_MAX, Source},
    refusals::Problem,
    waiting_read::WaitingRead,
};
use crate::{
    broker::stream_offset::{Identified, StreamOffset},
    http::response::Response,
    runtime::clock::now,
};

/// How long it waits with its task: who is answered sooner need not leave it and come back.
const STAY: Duration = Duration::from_millis(50);

/// What a long-poll waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSubscriptions {
    /// Where something is to come.
    pub(super) at: ReadFrom,
    /// What its client has given back.
    pub(super) cursor: u64,
    /// When it ends, whatever has come.
    pub(super) until: Instant,
    /// Whether it may wait without its task.
    pub(super) may_leave: bool,
}

impl StreamsDoor {
    pub(super) async fn long_poll(
        &self,
        mut source: Source,
        query: ReadQuery,
    ) -> Result<Response, Problem> {
        let mut at = query.at.read_from();
        if at == ReadFrom::Latest {
            // What comes from here on is waited for: the end has to stay where it is, and be this stream's.
            let end = source.chunk(at, false, READ_BYTES_MAX).await?;
            at = ReadFrom::Offset(end.answer.next);
            source.of = Some(end.of);
        }
        let until = Instant::now() + self.settings.get().long_poll_timeout;
        let cursor = query.cursor.unwrap_or_default();
        self.awaited(&source, PendingSubscriptions { at, cursor, until, may_leave: true }).await
    }

    /// The answer with what comes, or with nothing at the end.
    pub(super) async fn awaited(
        &self,
        source: &Source,
        awaited: PendingSubscriptions,
    ) -> Result<Response, Problem> {
        let PendingSubscriptions { at, cursor, .. } = awaited;
        let waited = tokio::select! {
            chunk = self.something(source, awaited) => chunk,
            // The broker stops: there is nothing to wait for.
            () = self.thread_state.closing.begun() => None,
        };
        let chunk = match waited {
            Some(chunk) => chunk?,
            None => source.chunk(at, false, READ_BYTES_MAX).await?,
        };
        let random = getrandom::u64().unwrap_or_default();
        answer(&chunk, cursor::next(now(), Some(cursor), random))
    }

    /// What comes; none if nothing does in time.
    async fn something(
        &self,
        source: &Source,
        PendingSubscriptions { at, cursor, until, may_leave }: PendingSubscriptions,
    ) -> Option<Result<Identified<StreamChunk>, Problem>> {
        let page = source.room.page(READ_BYTES_MAX);
        let bytes_max = page.bytes();
        let mut waiting = pin!(source.chunk(at, true, bytes_max));
        if may_leave {
            let now = Instant::now();
            if let Ok(chunk) = timeout_at(until.min(now + STAY), waiting.as_mut()).await {
                return Some(chunk);
            }
            // Where exactly it waits.
            let here = match source.chunk(at, false, bytes_max).await {
                Ok(here)
                    if here.answer.messages.is_empty()
                        && !here.answer.is_closed
                        && Instant::now() < until =>
                {
                    here
                }
                come => return Some(come),
            };
            // It may be long before anything comes.
            drop(page);
            let position = source
                .position(here.answer.topic, here.offset(here.answer.next), Live::LongPoll)
                .await;
            let wait = position.map(|position| WaitingRead {
                principal: source.principal.clone(),
                position,
                cursor,
                until,
                said_at: now,
                stays: false,
            });
            let waiting =
                self.thread_state.parking_entry.offer(wait.map(WaitingRead::offered), waiting);
            return timeout_at(until, waiting).await.ok();
        }
        drop(page);
        timeout_at(until, waiting).await.ok()
    }
}

/// The answer with what has come, or with nothing.
pub(super) fn answer(chunk: &Identified<StreamChunk>, cursor: u64) -> Result<Response, Problem> {
    if chunk.answer.messages.is_empty() {
        return Ok(nothing(chunk.offset(chunk.answer.next), chunk.answer.is_closed, cursor));
    }
    let mut response = head(chunk, cursor)?;
    *response.body_mut() = answers::body(read::body(&chunk.answer));
    Ok(response)
}

/// The same without its body.
pub(super) fn head(chunk: &Identified<StreamChunk>, cursor: u64) -> Result<Response, Problem> {
    if chunk.answer.messages.is_empty() {
        return Ok(nothing(chunk.offset(chunk.answer.next), chunk.answer.is_closed, cursor));
    }
    let mut response = read::head_of_chunk(chunk)?;
    response.headers_mut().insert(&names::CURSOR, cursor.into());
    Ok(response)
}

/// The answer without anything.
pub(super) fn nothing(next: StreamOffset, is_closed: bool, cursor: u64) -> Response {
    let mut response = answers::at(StatusCode::NO_CONTENT, next, is_closed);
    let headers = response.headers_mut();
    headers.insert(&names::UP_TO_DATE, TRUE);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(&names::CURSOR, cursor.into());
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_engine::StreamSettings;
    use sennit_model::{BatchBuilder, Message, Offset, TopicId};

    use super::*;
    use crate::broker::stream_offset::IncarnationTag;

    #[test]
    fn nothing_in_time_is_204_and_something_200() {
        let of = IncarnationTag::of_number(3).unwrap();
        let nothing = StreamChunk {
            topic: TopicId(7),
            first: Offset(5),
            next: Offset(5),
            is_up_to_date: true,
            is_closed: false,
            rest: None,
            messages: Vec::new(),
            settings: Arc::new(StreamSettings::of_topic()),
        };
        let told = |answer| Identified { of, answer };
        let response = answer(&told(nothing.clone()), 7).unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers[&names::CURSOR], "7");
        assert_eq!(response.headers[&names::UP_TO_DATE], "true");
        assert_eq!(response.headers[&names::NEXT_OFFSET], "0000000000000005_0000000000030000");
        assert_eq!(response.headers[header::CACHE_CONTROL], "no-store");

        let closed = told(StreamChunk { is_closed: true, ..nothing.clone() });
        assert_eq!(answer(&closed, 7).unwrap().headers[&names::CLOSED], "true");

        let mut batch = BatchBuilder::new();
        batch.push(&Message::new("x")).unwrap();
        let messages = vec![batch.take().unwrap().bytes().clone()];
        let something = told(StreamChunk { next: Offset(6), messages, ..nothing });
        let response = answer(&something, 7).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers[&names::CURSOR], "7");
    }
}

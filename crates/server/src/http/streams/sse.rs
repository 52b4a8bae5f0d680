//! A read that stays: server-sent events, one behind the other, as the socket takes them. It knows
//! when, not how an event looks.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use sennit_engine::StreamChunk;
use sennit_model::{Offset, ReadFrom};
use tokio::time::{Instant, timeout_at};

use super::{
    StreamsDoor,
    content::{self, Form},
    cursor,
    event::{self, Encoding, KEEP_ALIVE, Place},
    names,
    query::Asked,
    read::Source,
    refusals::Problem,
};
use crate::{
    core::now,
    http::answer::{Body, EventSource},
};

/// How long a reader's connection lasts. It comes again, and those between it and the broker may let
/// several share one.
const CONNECTION_SPAN: Duration = Duration::from_secs(60);

/// How long nothing is said before the reader is told that the connection still stands.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Bytes that one event carries, encoded as in the journal; more only where one message is longer.
const EVENT_BYTES_MAX: u64 = 1 << 20;

impl StreamsDoor {
    pub(super) async fn events(
        &self,
        source: Source,
        asked: Asked,
    ) -> Result<Response<Body>, Problem> {
        let first = source.chunk(asked.at, false, EVENT_BYTES_MAX).await?;
        let encoding = Encoding::of(&first.settings.content_type);
        let random = getrandom::u64().unwrap_or_default();
        let events = Events {
            source,
            cursor: cursor::next(now(), asked.cursor, random),
            next: first.next,
            first: Some(first),
            is_over: false,
            ends_at: Instant::now() + CONNECTION_SPAN,
        };
        let events = EventSource::unfold(events, |mut events| async move {
            events.next().await.map(|piece| (piece, events))
        });
        let mut response = Response::new(Body::Events(events));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if encoding == Encoding::Base64 {
            headers.insert(names::DATA_ENCODING, HeaderValue::from_static("base64"));
        }
        Ok(response)
    }
}

/// The events of one reader.
#[derive(Debug)]
struct Events {
    source: Source,
    /// The cursor that the reader was given; it never goes back.
    cursor: u64,
    /// Where it goes on.
    next: Offset,
    /// What was read before there was anybody to send it to.
    first: Option<StreamChunk>,
    /// Whether nothing follows.
    is_over: bool,
    ends_at: Instant,
}

impl Events {
    /// The next piece of the body; `None` behind the last. Dropped before it is done, it has taken
    /// nothing.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(self.told(&first));
        }
        let begun = Instant::now();
        if self.is_over || begun >= self.ends_at {
            return None;
        }
        let until = self.ends_at.min(begun + SILENCE_MAX);
        let read = self.source.chunk(ReadFrom::Offset(self.next), true, EVENT_BYTES_MAX);
        match timeout_at(until, read).await {
            Ok(Ok(chunk)) => Some(self.told(&chunk)),
            Err(_) if until < self.ends_at => Some(Bytes::from_static(KEEP_ALIVE)),
            // Whoever comes again is told what is wrong.
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// The events that tell of `chunk`: what it holds, and where to go on.
    fn told(&mut self, chunk: &StreamChunk) -> Bytes {
        let mut out = BytesMut::new();
        if !chunk.messages.is_empty() {
            let content_type = &chunk.settings.content_type;
            let pieces = content::pieces_of(Form::of(content_type), &chunk.messages);
            event::put_data(&mut out, Encoding::of(content_type), &pieces);
        }
        self.cursor = self.cursor.max(cursor::next(now(), None, 0));
        self.next = chunk.next;
        self.is_over = chunk.is_closed;
        let StreamChunk { next, is_up_to_date, is_closed, .. } = *chunk;
        let place = Place { next, is_up_to_date, is_closed, cursor: self.cursor };
        event::put_control(&mut out, place);
        out.freeze()
    }
}

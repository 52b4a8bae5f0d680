//! A read that stays: server-sent events, one behind the other, as the socket takes them. It knows
//! when, not how an event looks.

use std::{rc::Rc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};
use sennit_engine::StreamChunk;
use sennit_model::{ReadFrom, TopicId};
use tokio::time::{Instant, timeout_at};

use super::{
    StreamsDoor,
    content::{self, Form},
    cursor,
    event::{self, Encoding, KEEP_ALIVE, Place},
    names,
    query::{Live, ReadQuery},
    read::Source,
    refusals::Problem,
    waiting_read::{ReadPosition, WaitingRead},
};
use crate::{
    broker::stream_offset::{Identified, StreamOffset},
    http::{
        body::{Body, EventSource},
        response::Response,
        thread_state::HttpThreadState,
    },
    runtime::clock::now,
};

/// Bytes that one event carries, encoded as in the journal; more only where one message is longer.
pub(super) const EVENT_BYTES_MAX: u64 = 1 << 20;

impl StreamsDoor {
    pub(super) async fn events(
        &self,
        mut source: Source,
        query: ReadQuery,
        live: Live,
    ) -> Result<Response, Problem> {
        let page = source.room.page(EVENT_BYTES_MAX);
        let first = source.chunk(query.at.read_from(), false, page.bytes()).await?;
        source.of = Some(first.of);
        let encoding = Encoding::of(&first.answer.settings.content_type, live);
        let random = getrandom::u64().unwrap_or_default();
        let said_at = Instant::now();
        let events = Events {
            thread_state: self.thread_state.clone(),
            topic: first.answer.topic,
            live,
            position: source
                .position(first.answer.topic, first.offset(first.answer.next), live)
                .await,
            source,
            cursor: cursor::next(now(), query.cursor, random),
            next: first.offset(first.answer.next),
            is_up_to_date: first.answer.is_up_to_date,
            first: Some(first),
            is_over: false,
            said_at,
            silence: self.settings.get().events_silence,
            ends_at: said_at + self.settings.get().events_span,
        };
        let mut response = Response::new(Body::Events(events.one_by_one()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        // nginx gathers what it passes on, unless it is told not to.
        headers.insert(&names::ACCEL_BUFFERING, HeaderValue::from_static("no"));
        if encoding == Encoding::Base64 {
            headers.insert(&names::DATA_ENCODING, HeaderValue::from_static("base64"));
        }
        Ok(response)
    }

    /// The events of a reader who has waited without a task, from where it waited on.
    pub(super) fn events_from(&self, source: Source, wait: WaitingRead) -> EventSource {
        let WaitingRead { position, cursor, until, said_at, stays, .. } = wait;
        let events = Events {
            thread_state: self.thread_state.clone(),
            live: position.live,
            next: position.at,
            topic: position.stream.0.topic,
            position: (!stays).then_some(position),
            source,
            cursor,
            is_up_to_date: true,
            first: None,
            is_over: false,
            said_at,
            silence: self.settings.get().events_silence,
            ends_at: until,
        };
        events.one_by_one()
    }
}

/// The events of one reader.
#[derive(Debug)]
struct Events {
    thread_state: Rc<HttpThreadState>,
    source: Source,
    /// The stream that it reads: the name may be another's later.
    topic: TopicId,
    /// In which form it wants them.
    live: Live,
    /// Where it may wait without a task, as far as the stream goes.
    position: Option<ReadPosition>,
    /// The cursor that the reader was given; it never goes back.
    cursor: u64,
    /// Where it goes on.
    next: StreamOffset,
    /// Whether nothing lay behind what was read last.
    is_up_to_date: bool,
    /// What was read before there was anybody to send it to.
    first: Option<Identified<StreamChunk>>,
    /// Whether nothing follows.
    is_over: bool,
    /// When something was said last.
    said_at: Instant,
    /// How long nothing is said before the reader is told that the connection still stands.
    silence: Duration,
    ends_at: Instant,
}

impl Events {
    fn one_by_one(self) -> EventSource {
        EventSource::unfold(self, |mut events| async move {
            events.next().await.map(|piece| (piece, events))
        })
    }

    /// The next piece of the body; `None` behind the last. Dropped before it is done, it has taken
    /// nothing.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(self.encode(&first));
        }
        if self.is_over || Instant::now() >= self.ends_at {
            return None;
        }
        let until = self.ends_at.min(self.said_at + self.silence);
        let page = self.source.room.page(EVENT_BYTES_MAX);
        let bytes_max = page.bytes();
        // Who is behind is given something at once; others may wait long.
        let _page = (!self.is_up_to_date).then_some(page);
        let read = self.source.chunk(ReadFrom::Offset(self.next.at), true, bytes_max);
        match timeout_at(
            until,
            self.thread_state.parking_entry.offer(self.wait().map(WaitingRead::offered), read),
        )
        .await
        {
            Ok(Ok(chunk)) if chunk.answer.topic == self.topic => Some(self.encode(&chunk)),
            Err(_) if until < self.ends_at => {
                self.said_at = Instant::now();
                Some(Bytes::from_static(KEEP_ALIVE))
            }
            // Whoever comes again is told what is wrong.
            Ok(_) | Err(_) => None,
        }
    }

    /// What it waits for, if it need not be awaited here. One who is behind is given the next at once.
    fn wait(&self) -> Option<WaitingRead> {
        let position = self.position.clone().filter(|_| self.is_up_to_date)?;
        let Self { next, cursor, ends_at, said_at, .. } = *self;
        let position = ReadPosition { at: next, ..position };
        let principal = self.source.principal.clone();
        Some(WaitingRead { principal, position, cursor, until: ends_at, said_at, stays: false })
    }

    fn encode(&mut self, chunk: &Identified<StreamChunk>) -> Bytes {
        self.cursor = self.cursor.max(cursor::next(now(), None, 0));
        self.next = chunk.offset(chunk.answer.next);
        self.is_up_to_date = chunk.answer.is_up_to_date;
        self.is_over = chunk.answer.is_closed;
        self.said_at = Instant::now();
        let mut out = BytesMut::new();
        put_event(&chunk.answer, self.live, &mut out);
        put_control(chunk, self.cursor, &mut out);
        out.freeze()
    }
}

/// The event with what `chunk` holds; nothing if it is empty.
pub(crate) fn event(chunk: &StreamChunk, live: Live) -> Bytes {
    let mut out = BytesMut::new();
    put_event(chunk, live, &mut out);
    out.freeze()
}

/// The event that says where to go on behind it.
pub(crate) fn control(chunk: &Identified<StreamChunk>, cursor: u64) -> Bytes {
    let mut out = BytesMut::new();
    put_control(chunk, cursor, &mut out);
    out.freeze()
}

fn put_event(chunk: &StreamChunk, live: Live, out: &mut BytesMut) {
    if !chunk.messages.is_empty() {
        let content_type = &chunk.settings.content_type;
        let pieces = content::pieces_of(Form::of(content_type), &chunk.messages);
        event::put_data(out, Encoding::of(content_type, live), &pieces);
    }
}

fn put_control(chunk: &Identified<StreamChunk>, cursor: u64, out: &mut BytesMut) {
    let StreamChunk { is_up_to_date, is_closed, .. } = chunk.answer;
    let next = chunk.offset(chunk.answer.next);
    event::put_control(out, Place { next, is_up_to_date, is_closed, cursor });
}

//! GET reads a stream from an offset. It makes the answer; others wait for content.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use sennit_engine::{StreamChunk, StreamRead, StreamRest};
use sennit_identity::Verb;
use sennit_model::{Messages, Offset, ReadFrom, TopicId, TopicName};

use super::{
    StreamsDoor,
    answers::{self, NO_STORE, TRUE},
    content::{self, Form},
    etag, header_values, names,
    offset_token::{self, Position},
    query::{self, Live},
    refusals::Problem,
    waiting_read::ReadPosition,
};
use crate::{
    broker::{
        stream_offset::{Identified, IncarnationTag, StreamOffset},
        streams::Streams,
    },
    http::{answer_room::AnswerRoom, request::Request, response::Response},
    identity::principal::Principal,
};

/// Bytes that are read at once, encoded; more only where one message is longer, and fewer where answers hold
/// too much. Who waits goes on at
/// `Stream-Next-Offset`.
pub(super) const READ_BYTES_MAX: u64 = 4 << 20;

/// What may be kept for a while by those on the way: nothing that was read changes.
const CACHED: HeaderValue =
    HeaderValue::from_static("public, max-age=60, stale-while-revalidate=300");

/// What has to be asked for again, since something may have come.
const ASKED_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// A stream that is read.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) streams: Rc<Streams>,
    /// Who reads it.
    pub(super) principal: Principal,
    pub(super) name: TopicName,
    /// Which of those that have had the name; none as long as whichever has it is meant.
    pub(super) of: Option<IncarnationTag>,
    /// Where what is read is counted.
    pub(super) room: Rc<AnswerRoom>,
}

impl Source {
    /// What lies at `at`, `bytes_max` of it. If it `waits`, only once there is something or never
    /// will be.
    pub(super) async fn chunk(
        &self,
        at: ReadFrom,
        waits: bool,
        bytes_max: u64,
    ) -> Result<Identified<StreamChunk>, Problem> {
        self.read(at, None, waits, bytes_max).await
    }

    /// What lies at `at` and before `before`, `bytes_max` of it.
    pub(super) async fn page(
        &self,
        at: ReadFrom,
        before: Offset,
        bytes_max: u64,
    ) -> Result<Identified<StreamChunk>, Problem> {
        self.read(at, Some(before), false, bytes_max).await
    }

    async fn read(
        &self,
        at: ReadFrom,
        before: Option<Offset>,
        waits: bool,
        bytes_max: u64,
    ) -> Result<Identified<StreamChunk>, Problem> {
        let (one_append, for_fork) = (false, false);
        let read = StreamRead { at, before, bytes_max, waits, one_append, for_fork };
        let chunk = self.streams.read(&self.principal, &self.name, self.of, read).await?;
        if !is_sound(&chunk.answer) {
            let offset = chunk.answer.first.0;
            tracing::error!(stream = %self.name, offset, "the messages read at this offset are damaged");
            let detail = "what lies at the offset does not match its checksum";
            return Err(Problem::damaged(detail));
        }
        Ok(chunk)
    }

    /// Where a read of the stream `topic` waits; none where the name is another stream's by now.
    pub(super) async fn position(
        &self,
        topic: TopicId,
        at: StreamOffset,
        live: Live,
    ) -> Option<ReadPosition> {
        let located = self.streams.located(&self.principal, Verb::Read, &self.name).await.ok()?;
        let is_that = located.topic == topic;
        is_that.then(|| ReadPosition { name: self.name.clone(), stream: located.place(), at, live })
    }
}

/// Whether what was read may be given away, as its stream has it.
pub(crate) fn is_sound(chunk: &StreamChunk) -> bool {
    let is_intact = |part: &Bytes| Messages::of_checked(part).are_intact();
    !chunk.settings.is_verified || chunk.messages.iter().all(is_intact)
}

impl StreamsDoor {
    pub(super) fn source(
        &self,
        principal: Principal,
        name: TopicName,
        of: Option<IncarnationTag>,
    ) -> Source {
        let (streams, room) = (self.streams.clone(), self.thread_state.answers.clone());
        Source { streams, principal, name, of, room }
    }

    pub(super) async fn read(
        &self,
        principal: &Principal,
        name: TopicName,
        request: &Request,
    ) -> Result<Response, Problem> {
        let mut query = query::parse(request.query().unwrap_or_default())?;
        if query.live.is_some_and(Live::is_events) {
            // A browser that comes again says where it was, and asks as it did first.
            let last = header_values::one(request.headers(), &names::LAST_EVENT_ID)?;
            if let Some(at @ Position::At(_)) = last.and_then(offset_token::parse) {
                query.at = at;
            }
        }
        let source = self.source(principal.clone(), name, query.at.of());
        match query.live {
            None => {
                let page = source.room.page(READ_BYTES_MAX);
                let chunk = source.chunk(query.at.read_from(), false, page.bytes()).await?;
                if query.at == Position::Latest {
                    return of_end(&chunk);
                }
                let Some((rest, next)) = source.rest_of(&chunk.answer).await? else {
                    return known_or(request, &chunk, of_chunk);
                };
                let StreamRest { until, is_up_to_date, is_closed } = rest;
                let answer = chunk.answer.clone();
                let answer = StreamChunk { next: until, is_up_to_date, is_closed, ..answer };
                let whole = Identified { of: chunk.of, answer };
                known_or(request, &whole, |whole| {
                    let mut response = head_of_chunk(whole)?;
                    *response.body_mut() = source.body(chunk.answer, next.answer, until);
                    Ok(response)
                })
            }
            Some(Live::LongPoll) => self.long_poll(source, query).await,
            Some(live) => self.events(source, query, live).await,
        }
    }
}

/// The answer that gives what was read.
pub(super) fn of_chunk(chunk: &Identified<StreamChunk>) -> Result<Response, Problem> {
    let mut response = head_of_chunk(chunk)?;
    *response.body_mut() = answers::body(body(&chunk.answer));
    Ok(response)
}

/// The same without its body.
pub(super) fn head_of_chunk(chunk: &Identified<StreamChunk>) -> Result<Response, Problem> {
    let mut response = head(StatusCode::OK, chunk, &etag::of(chunk))?;
    answers::say_type(response.headers_mut(), &chunk.answer.settings)?;
    Ok(response)
}

/// The body of such an answer, in pieces.
pub(crate) fn body(chunk: &StreamChunk) -> Vec<Bytes> {
    content::pieces_of(Form::of(&chunk.settings.content_type), &chunk.messages)
}

/// The answer with `chunk`, unless who asks has it already.
fn known_or(
    request: &Request,
    chunk: &Identified<StreamChunk>,
    answer: impl FnOnce(&Identified<StreamChunk>) -> Result<Response, Problem>,
) -> Result<Response, Problem> {
    let etag = etag::of(chunk);
    if etag::is_known(request.headers(), &etag) {
        return unchanged(chunk, &etag);
    }
    answer(chunk)
}

/// The answer to who has what was read already.
fn unchanged(chunk: &Identified<StreamChunk>, etag: &str) -> Result<Response, Problem> {
    head(StatusCode::NOT_MODIFIED, chunk, etag)
}

/// The answer to who asks where the end is now.
fn of_end(chunk: &Identified<StreamChunk>) -> Result<Response, Problem> {
    let mut response = of_chunk(chunk)?;
    let headers = response.headers_mut();
    headers.remove(&header::ETAG);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

fn head(
    status: StatusCode,
    chunk: &Identified<StreamChunk>,
    etag: &str,
) -> Result<Response, Problem> {
    let mut response = answers::at(status, chunk.offset(chunk.answer.next), chunk.answer.is_closed);
    let headers = response.headers_mut();
    let etag = HeaderValue::from_str(etag).map_err(|_| Problem::damaged("no tag"))?;
    headers.insert(header::ETAG, etag);
    if chunk.answer.is_up_to_date {
        headers.insert(&names::UP_TO_DATE, TRUE);
    }
    let may_be_kept = chunk.answer.first < chunk.answer.next || chunk.answer.is_closed;
    headers.insert(header::CACHE_CONTROL, if may_be_kept { CACHED } else { ASKED_AGAIN });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::body::Body;
    use sennit_engine::StreamSettings;

    fn chunk(content_type: &str, body: &'static str) -> Identified<StreamChunk> {
        let body = Bytes::from_static(body.as_bytes());
        let content = content::content_of(Form::of(content_type), &body).unwrap();
        let count = content.as_ref().map_or(0, |content| u64::from(content.count()));
        let settings =
            StreamSettings { content_type: content_type.into(), ..StreamSettings::of_topic() };
        let answer = StreamChunk {
            topic: TopicId(7),
            first: Offset(5),
            next: Offset(5 + count),
            is_up_to_date: true,
            is_closed: false,
            rest: None,
            messages: content
                .iter()
                .flat_map(|content| content.batches().map(|batch| batch.bytes().clone()))
                .collect(),
            settings: Arc::new(settings),
        };
        Identified { of: IncarnationTag::of_number(3).unwrap(), answer }
    }

    /// The same with other answers about its end.
    fn with(
        chunk: Identified<StreamChunk>,
        is_up_to_date: bool,
        is_closed: bool,
    ) -> Identified<StreamChunk> {
        let Identified { of, answer } = chunk;
        Identified { of, answer: StreamChunk { is_up_to_date, is_closed, ..answer } }
    }

    #[test]
    fn what_was_read_says_where_to_go_on() {
        let response = of_chunk(&chunk("application/json; charset=utf-8", "[1,2]")).unwrap();
        let headers = response.headers;
        assert_eq!(headers[&names::NEXT_OFFSET], "0000000000000007_0000000000030000");
        assert_eq!(headers[header::CONTENT_TYPE], "application/json; charset=utf-8");
        assert_eq!(headers[&names::UP_TO_DATE], "true");
        assert_eq!(headers[header::CACHE_CONTROL], CACHED);
        assert!(headers.get(&header::ETAG).is_some() && headers.get(&names::CLOSED).is_none());
        assert!(matches!(&response.body, Body::Full(body) if body == "[1,2]"));
    }

    #[test]
    fn a_part_does_not_say_that_it_is_all() {
        let part = with(chunk("text/plain", "x"), false, false);
        assert!(of_chunk(&part).unwrap().headers.get(&names::UP_TO_DATE).is_none());
    }

    #[test]
    fn the_last_of_a_closed_stream_says_so() {
        let last = with(chunk("text/plain", "x"), true, true);
        assert_eq!(of_chunk(&last).unwrap().headers[&names::CLOSED], "true");
    }

    #[test]
    fn where_the_end_is_may_not_be_kept() {
        let json = of_end(&chunk("application/json", "")).unwrap();
        assert_eq!(json.headers[header::CACHE_CONTROL], "no-store");
        assert!(json.headers.get(&header::ETAG).is_none());
        assert!(matches!(&json.body, Body::Full(body) if body == "[]"));
        assert!(matches!(of_end(&chunk("text/plain", "")).unwrap().body, Body::Empty));
    }

    #[test]
    fn nothing_yet_has_to_be_asked_for_again() {
        let nothing = of_chunk(&chunk("text/plain", "")).unwrap();
        assert_eq!(nothing.headers[header::CACHE_CONTROL], "no-cache");
    }

    #[test]
    fn who_has_it_already_gets_no_body() {
        let known = chunk("text/plain", "x");
        let response = unchanged(&known, &etag::of(&known)).unwrap();
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        assert!(matches!(&response.body, Body::Empty));
    }
}

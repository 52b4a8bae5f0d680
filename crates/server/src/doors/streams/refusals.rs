//! Refusals as HTTP answers: a status, a machine-readable code, a sentence, and headers that say what would be
//! right. It knows no requests.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use sennit_engine::{Refusal, StreamRefusal};
use sennit_identity::OverQuota;
use sennit_model::Offset;

use super::{names, offset_token::Token};
use crate::{
    broker::{control_request::ControlRefusal, stream_request::StreamFailure},
    http::{body::Body, response::Response},
};

/// Why a request was refused.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// What else the body says, by name.
    members: Vec<(&'static str, serde_json::Value)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (headers, members) = (Vec::new(), Vec::new());
        Self { status, code, detail: detail.into(), headers, members }
    }

    /// The request is not as it has to be.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(super) fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// The request is larger than `limit`, which has a name.
    pub(super) fn too_large(name: &'static str, limit: usize) -> Self {
        let detail = format!("{name} is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "limit_reached", detail)
    }

    /// What was read does not match its checksum.
    pub(super) fn damaged(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", detail)
    }

    pub(super) fn with(
        mut self,
        name: impl Into<HeaderName>,
        value: impl Into<HeaderValue>,
    ) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Says something else in the body.
    pub(super) fn and(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.members.push((name, value.into()));
        self
    }

    /// The same, about something that a request names.
    pub(super) fn about(mut self, what: &str) -> Self {
        self.detail = format!("{what}: {}", self.detail);
        self
    }

    /// The status it is answered with.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The machine-readable code.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        let Problem { status, code, detail, headers, members } = problem;
        let mut body = serde_json::json!({
            "status": status.as_u16(),
            "title": status.canonical_reason().unwrap_or_default(),
            "code": code,
            "detail": detail,
        });
        for (name, value) in members {
            body[name] = value;
        }
        let mut response = Self::new(Body::Full(Bytes::from(body.to_string() + "\n")));
        *response.status_mut() = status;
        let all = response.headers_mut();
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        all.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        all.extend(headers);
        response
    }
}

impl From<StreamFailure> for Problem {
    fn from(failure: StreamFailure) -> Self {
        use StatusCode as Status;
        let detail = failure.to_string();
        match failure {
            StreamFailure::Stream(refusal) => of_refusal(&refusal, detail),
            StreamFailure::StreamAt(refusal) => {
                let problem = of_refusal(&refusal.answer, detail);
                match offset_said_by(&refusal.answer) {
                    Some(next) => problem.with(&names::NEXT_OFFSET, Token(refusal.offset(next))),
                    None => problem,
                }
            }
            StreamFailure::OtherStream => Self::new(Status::GONE, "offset_of_other_stream", detail),
            StreamFailure::Broker(refusal) => of_broker(&refusal),
            StreamFailure::SourceUnknown => Self::not_found("unknown_source", detail),
            StreamFailure::SourceDeleted => Self::new(Status::CONFLICT, "source_deleted", detail),
            StreamFailure::SourceContentType(_) => {
                Self::new(Status::CONFLICT, "content_type_mismatch", detail)
            }
            StreamFailure::BeyondSource(_) | StreamFailure::BeyondAppend(_) => {
                Self::new(Status::BAD_REQUEST, "fork_beyond_source", detail)
            }
            StreamFailure::Partitioned(_) => Self::new(Status::CONFLICT, "partitioned", detail),
        }
    }
}

fn of_refusal(refusal: &StreamRefusal, detail: String) -> Problem {
    use StatusCode as Status;
    let with = |status, code| Problem::new(status, code, detail.clone());
    match refusal {
        StreamRefusal::Unknown => with(Status::NOT_FOUND, "unknown_stream"),
        StreamRefusal::Deleted => with(Status::GONE, "stream_deleted"),
        StreamRefusal::NotKept { .. } => with(Status::GONE, "offset_not_kept"),
        StreamRefusal::BeyondEnd { .. } => with(Status::GONE, "offset_beyond_end"),
        StreamRefusal::NativeTopic => with(Status::CONFLICT, "native_topic"),
        StreamRefusal::Damaged { .. } => with(Status::INTERNAL_SERVER_ERROR, "damaged"),
        StreamRefusal::RolledBack { .. } => with(Status::GONE, "rolled_back"),
        StreamRefusal::SettingsDiffer { .. } => with(Status::CONFLICT, "settings_differ"),
        StreamRefusal::Closed { .. } => with(Status::CONFLICT, "stream_closed")
            .with(&names::CLOSED, HeaderValue::from_static("true")),
        StreamRefusal::ContentType { .. } => with(Status::CONFLICT, "content_type_mismatch"),
        StreamRefusal::Sequence { .. } => with(Status::CONFLICT, "sequence_conflict"),
        StreamRefusal::ProducerFenced { current } => {
            with(Status::FORBIDDEN, "producer_fenced").with(&names::PRODUCER_EPOCH, *current)
        }
        StreamRefusal::ProducerBegins => with(Status::BAD_REQUEST, "producer_begins"),
        StreamRefusal::ProducerGap { expected, received } => with(Status::CONFLICT, "producer_gap")
            .with(&names::PRODUCER_EXPECTED, *expected)
            .with(&names::PRODUCER_RECEIVED, *received),
        StreamRefusal::OtherGroup => with(Status::UNPROCESSABLE_ENTITY, "groups_differ"),
        StreamRefusal::Repeated => with(Status::BAD_REQUEST, "bad_request"),
        StreamRefusal::PartlyAppended => with(Status::CONFLICT, "partly_appended"),
        StreamRefusal::Limit { name: "APPEND_BYTES_MAX", .. } => {
            with(Status::PAYLOAD_TOO_LARGE, "limit_reached")
        }
        StreamRefusal::Limit { name, .. } => {
            let problem = with(Status::TOO_MANY_REQUESTS, "limit_reached");
            match comes_free_after(name) {
                Some(seconds) => problem.with(header::RETRY_AFTER, seconds),
                None => problem,
            }
        }
    }
}

/// Where a stream that refuses says to go on, or that it ends.
fn offset_said_by(refusal: &StreamRefusal) -> Option<Offset> {
    match refusal {
        StreamRefusal::NotKept { start: next }
        | StreamRefusal::BeyondEnd { next }
        | StreamRefusal::Damaged { next }
        | StreamRefusal::RolledBack { next }
        | StreamRefusal::Closed { next } => Some(*next),
        _ => None,
    }
}

/// After how many seconds it is worth to come again where this limit was reached; nothing for what
/// only goes away when somebody deletes.
fn comes_free_after(limit: &str) -> Option<u32> {
    match limit {
        "STREAM_READS_WAITING_MAX" => Some(1),
        "MEMORY_SHARD_BYTES" => Some(10),
        _ => None,
    }
}

fn of_broker(refusal: &ControlRefusal) -> Problem {
    use StatusCode as Status;
    let (status, code) = match refusal {
        ControlRefusal::Engine(refusal) => of_engine(refusal),
        ControlRefusal::Missing(_) => (Status::FORBIDDEN, "forbidden"),
        ControlRefusal::OverQuota(OverQuota { stored: Some(_), .. }) => {
            (Status::INSUFFICIENT_STORAGE, "quota_exceeded")
        }
        ControlRefusal::OverQuota(_) => (Status::TOO_MANY_REQUESTS, "quota_exceeded"),
        ControlRefusal::ShuttingDown => (Status::SERVICE_UNAVAILABLE, "shutting_down"),
        ControlRefusal::Busy(_) => (Status::TOO_MANY_REQUESTS, "busy"),
        ControlRefusal::TooManyWatched(_) => (Status::TOO_MANY_REQUESTS, "limit_reached"),
        ControlRefusal::UnknownTopic(_) | ControlRefusal::UnknownPartition { .. } => {
            (Status::NOT_FOUND, "unknown_stream")
        }
        ControlRefusal::NoOffsets { .. }
        | ControlRefusal::SameTopic(_)
        | ControlRefusal::NoChannel { .. }
        | ControlRefusal::Batch(_) => (Status::BAD_REQUEST, "bad_request"),
        ControlRefusal::UnknownGroup { .. }
        | ControlRefusal::UnknownCursor { .. }
        // Appends do not go through hooks.
        | ControlRefusal::HookRefused(_)
        | ControlRefusal::HookFailed(_)
        | ControlRefusal::Reserved
        | ControlRefusal::TopicsApart { .. }
        | ControlRefusal::WrongAnswer
        | ControlRefusal::NoRandomNumbers(_) => (Status::INTERNAL_SERVER_ERROR, "internal"),
    };
    let problem = Problem::new(status, code, refusal.to_string());
    let after_ms = refusal.retry_after_ms();
    if refusal.is_retryable() || after_ms > 0 {
        problem.with(header::RETRY_AFTER, after_ms.div_ceil(1000).max(1))
    } else {
        problem
    }
}

fn of_engine(refusal: &Refusal) -> (StatusCode, &'static str) {
    use StatusCode as Status;
    match refusal {
        Refusal::StorageFull => (Status::INSUFFICIENT_STORAGE, "storage_full"),
        Refusal::NotLeader { .. } | Refusal::NoLeader => (Status::SERVICE_UNAVAILABLE, "no_leader"),
        Refusal::OutcomeUnknown => (Status::SERVICE_UNAVAILABLE, "outcome_unknown"),
        Refusal::TopicFull { .. } | Refusal::DedupFull => {
            (Status::INSUFFICIENT_STORAGE, "topic_full")
        }
        Refusal::Limit { .. } => (Status::TOO_MANY_REQUESTS, "limit_reached"),
        Refusal::UnknownTopic => (Status::NOT_FOUND, "unknown_stream"),
        Refusal::SettingsDiffer { .. } => (Status::CONFLICT, "settings_differ"),
        Refusal::KeyMissing => (Status::CONFLICT, "key_missing"),
        Refusal::Name(_) => (Status::BAD_REQUEST, "invalid_name"),
        Refusal::Config(_) => (Status::BAD_REQUEST, "bad_request"),
        Refusal::StreamClosed
        | Refusal::NotDeadLetters
        | Refusal::MessageLeased
        | Refusal::UnknownGroup
        | Refusal::UnknownMessage { .. }
        | Refusal::NotDelayed { .. }
        | Refusal::SettingFixed { .. }
        | Refusal::SequenceGap { .. }
        | Refusal::ProducerFenced { .. }
        | Refusal::SequenceOverlap { .. }
        | Refusal::OffsetMismatch { .. }
        | Refusal::StaleDelivery { .. }
        | Refusal::AtomicRepeated
        | Refusal::AtomicPartly
        | Refusal::Atomic { .. }
        | Refusal::CursorHeld { .. }
        | Refusal::CursorLost { .. } => (Status::INTERNAL_SERVER_ERROR, "internal"),
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::Incarnation;

    use super::*;
    use crate::{broker::stream_offset::IncarnationTag, runtime::publish_gauge::NoRoom};

    fn answer(failure: impl Into<StreamFailure>) -> Response {
        Problem::from(failure.into()).into()
    }

    #[test]
    fn each_refusal_has_the_status_that_the_protocol_says() {
        let (start, next) = (Offset(3), Offset(7));
        let text: Box<str> = "text/plain".into();
        for (refusal, status) in [
            (StreamRefusal::Unknown, 404),
            (StreamRefusal::Deleted, 410),
            (StreamRefusal::NotKept { start }, 410),
            (StreamRefusal::BeyondEnd { next }, 410),
            (StreamRefusal::NativeTopic, 409),
            (StreamRefusal::Damaged { next }, 500),
            (StreamRefusal::RolledBack { next }, 410),
            (StreamRefusal::SettingsDiffer { field: "content type" }, 409),
            (StreamRefusal::Closed { next }, 409),
            (StreamRefusal::ContentType { content_type: text.clone() }, 409),
            (StreamRefusal::Sequence { last: text }, 409),
            (StreamRefusal::ProducerFenced { current: 1 }, 403),
            (StreamRefusal::ProducerBegins, 400),
            (StreamRefusal::ProducerGap { expected: 1, received: 2 }, 409),
            (StreamRefusal::OtherGroup, 422),
            (StreamRefusal::Repeated, 400),
            (StreamRefusal::PartlyAppended, 409),
            (StreamRefusal::Limit { name: "STREAM_FORKS_MAX", limit: 4096 }, 429),
        ] {
            assert_eq!(answer(refusal.clone()).status(), status, "{refusal:?}");
        }
    }

    #[test]
    fn each_failure_of_the_broker_says_whether_to_come_again() {
        for (refusal, status, comes_again) in [
            (ControlRefusal::Engine(Refusal::StorageFull), 507, true),
            (ControlRefusal::ShuttingDown, 503, true),
            (ControlRefusal::Busy(NoRoom::TooLong), 429, true),
            (ControlRefusal::Engine(Refusal::OutcomeUnknown), 503, true),
            (ControlRefusal::Engine(Refusal::NoLeader), 503, true),
            (ControlRefusal::WrongAnswer, 500, false),
        ] {
            let response = answer(refusal.clone());
            assert_eq!(response.status(), status, "{refusal:?}");
            let said = response.headers.get(&header::RETRY_AFTER).is_some();
            assert_eq!(said, comes_again, "{refusal:?}");
        }
    }

    #[test]
    fn a_limit_says_when_to_come_again_if_that_helps() {
        for (name, status, after) in [
            ("STREAM_READS_WAITING_MAX", 429, Some("1")),
            ("MEMORY_SHARD_BYTES", 429, Some("10")),
            ("STREAM_FORKS_MAX", 429, None),
            ("TOPICS_MAX", 429, None),
            ("APPEND_BYTES_MAX", 413, None),
        ] {
            let response = answer(StreamRefusal::Limit { name, limit: 7 });
            let said =
                response.headers.get(&header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), said), (status, after), "{name}");
        }
        let refusal = Refusal::memory_shard_bytes();
        let full = Response::from(Problem::from(StreamFailure::of_refusal(&refusal)));
        assert_eq!(full.headers[header::RETRY_AFTER], "10");
    }

    #[test]
    fn a_closed_stream_says_where_it_ends() {
        let closed = StreamFailure::Stream(StreamRefusal::Closed { next: Offset(7) });
        let response = answer(closed.said_by(IncarnationTag::of(Incarnation(2))));
        assert_eq!(response.headers[&names::CLOSED], "true");
        assert_eq!(response.headers[&names::NEXT_OFFSET], "0000000000000007_0000000000030000");
    }

    #[test]
    fn an_offset_of_another_stream_is_gone_and_no_other_is_named() {
        let response = answer(StreamFailure::OtherStream);
        assert_eq!(response.status(), 410);
        assert_eq!(response.headers.get(&names::NEXT_OFFSET), None);
    }

    #[test]
    fn a_producer_is_told_what_would_be_right() {
        let fenced = answer(StreamRefusal::ProducerFenced { current: 4 });
        assert_eq!(fenced.headers[&names::PRODUCER_EPOCH], "4");
        let gap = answer(StreamRefusal::ProducerGap { expected: 1, received: 2 });
        assert_eq!(gap.headers[&names::PRODUCER_EXPECTED], "1");
        assert_eq!(gap.headers[&names::PRODUCER_RECEIVED], "2");
    }

    #[test]
    fn the_body_is_a_problem_that_programs_can_read() {
        let Body::Full(body) = answer(StreamRefusal::Unknown).body else {
            panic!("a problem is one text")
        };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["status"], 404);
        assert_eq!(body["code"], "unknown_stream");
        assert_eq!(body["title"], "Not Found");
    }
}

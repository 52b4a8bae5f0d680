//! What a request of the HTTP API is answered that is not done: a status, a code for programs, and why, in words. It does not
//! know what was asked.

use http::{HeaderValue, StatusCode, header};
use sennit_engine::Refusal;
use sennit_identity::OverQuota;
use sennit_model::BatchError;
use serde_json::{Value, json};

use crate::{
    broker::control_request::ControlRefusal,
    http::{answer::coded_problem, response::Response},
    identity::principal::MissingRight,
};

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(super) struct ApiRefusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: String,
    /// After how many seconds the same may be done, if waiting helps.
    pub(super) retry_after: Option<u64>,
}

impl ApiRefusal {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    /// The request is not as it has to be.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The body is not the JSON that it has to be.
    pub(super) fn invalid_json(shape: &str, error: &serde_json::Error) -> Self {
        let detail = format!("the body is {shape}: {error}");
        Self { code: "invalid_json", ..Self::bad(detail) }
    }

    /// The same may be done after so many seconds.
    pub(super) fn later(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// More is asked for than a limit allows, which has a name.
    pub(super) fn too_many(name: &str, limit: usize) -> Self {
        let detail = format!("{name} is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "limit_reached", detail)
    }

    /// The same, about a part of the request.
    pub(super) fn about(self, what: &str) -> Self {
        Self { detail: format!("{what}: {}", self.detail), ..self }
    }

    /// As a part of an answer.
    pub(super) fn json(&self) -> Value {
        let Self { status, code, detail, retry_after } = self;
        let mut json = json!({ "status": status.as_u16(), "code": code, "detail": detail });
        if let Some(seconds) = retry_after {
            json["retry_after"] = (*seconds).into();
        }
        json
    }
}

impl From<ApiRefusal> for Response {
    fn from(refusal: ApiRefusal) -> Self {
        let mut response = coded_problem(refusal.status, refusal.code, &refusal.detail);
        if let Some(seconds) = refusal.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<MissingRight> for ApiRefusal {
    fn from(missing: MissingRight) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", missing.to_string())
    }
}

impl From<&ControlRefusal> for ApiRefusal {
    fn from(refusal: &ControlRefusal) -> Self {
        use StatusCode as Status;
        let (status, code) = match refusal {
            ControlRefusal::Engine(refusal) => of_engine(refusal),
            ControlRefusal::UnknownTopic(_) => (Status::NOT_FOUND, "unknown_topic"),
            ControlRefusal::UnknownPartition { .. } => (Status::NOT_FOUND, "unknown_partition"),
            ControlRefusal::NoChannel { .. } => (Status::CONFLICT, "partitioned"),
            ControlRefusal::Reserved => (Status::FORBIDDEN, "topic_reserved"),
            ControlRefusal::Missing(_) => (Status::FORBIDDEN, "forbidden"),
            ControlRefusal::OverQuota(OverQuota { stored: Some(_), .. }) => {
                (Status::INSUFFICIENT_STORAGE, "quota_exceeded")
            }
            ControlRefusal::OverQuota(_) => (Status::TOO_MANY_REQUESTS, "quota_exceeded"),
            ControlRefusal::Batch(
                BatchError::TooLong { .. }
                | BatchError::MessageTooLong { .. }
                | BatchError::KeyTooLong { .. },
            ) => (Status::PAYLOAD_TOO_LARGE, "limit_reached"),
            ControlRefusal::Batch(_) => (Status::BAD_REQUEST, "bad_request"),
            ControlRefusal::HookRefused(_) => (Status::UNPROCESSABLE_ENTITY, "hook_refused"),
            ControlRefusal::HookFailed(_) => (Status::SERVICE_UNAVAILABLE, "hook_failed"),
            ControlRefusal::Busy(_) => (Status::TOO_MANY_REQUESTS, "busy"),
            ControlRefusal::TooManyWatched(_) => (Status::TOO_MANY_REQUESTS, "limit_reached"),
            ControlRefusal::ShuttingDown => (Status::SERVICE_UNAVAILABLE, "shutting_down"),
            // Nothing that is asked here is refused so.
            ControlRefusal::UnknownGroup { .. }
            | ControlRefusal::UnknownCursor { .. }
            | ControlRefusal::NoOffsets { .. }
            | ControlRefusal::SameTopic(_)
            | ControlRefusal::TopicsApart { .. }
            | ControlRefusal::WrongAnswer
            | ControlRefusal::NoRandomNumbers(_) => (Status::INTERNAL_SERVER_ERROR, "internal"),
        };
        let after_ms = refusal.retry_after_ms();
        let comes_again = refusal.is_retryable() || after_ms > 0;
        let retry_after = comes_again.then(|| after_ms.div_ceil(1000).max(1));
        Self { status, code, detail: refusal.to_string(), retry_after }
    }
}

fn of_engine(refusal: &Refusal) -> (StatusCode, &'static str) {
    use StatusCode as Status;
    match refusal {
        Refusal::StorageFull => (Status::INSUFFICIENT_STORAGE, "storage_full"),
        Refusal::TopicFull { .. } | Refusal::DedupFull => {
            (Status::INSUFFICIENT_STORAGE, "topic_full")
        }
        Refusal::NotLeader { .. } | Refusal::NoLeader => (Status::SERVICE_UNAVAILABLE, "no_leader"),
        Refusal::OutcomeUnknown => (Status::SERVICE_UNAVAILABLE, "outcome_unknown"),
        Refusal::UnknownTopic => (Status::NOT_FOUND, "unknown_topic"),
        Refusal::StreamClosed => (Status::CONFLICT, "stream_closed"),
        Refusal::KeyMissing => (Status::BAD_REQUEST, "key_missing"),
        Refusal::Limit { .. } => (Status::TOO_MANY_REQUESTS, "limit_reached"),
        Refusal::Name(_) => (Status::BAD_REQUEST, "invalid_name"),
        _ => (Status::INTERNAL_SERVER_ERROR, "internal"),
    }
}

//! Decides whether a request that was refused over HTTP is sent again, when, and for how long, as the native client does.
//! It knows no connection.

use std::time::Duration;

use hyper::{HeaderMap, StatusCode, header};
use serde_json::Value;
use tokio::time::Instant;

/// How long a request is sent again before its caller is told the refusal.
const RETRY_TIME_MAX: Duration = Duration::from_secs(15);

/// Codes of refusals that say that nothing was done.
const NOT_DONE: [&str; 3] = ["no_leader", "not_ready", "shutting_down"];

/// Until when one request is sent again.
pub struct RetryLimit {
    at: Instant,
}

impl RetryLimit {
    /// That of a request which is sent for the first time now.
    pub fn of_request(now: Instant) -> Self {
        Self { at: now + RETRY_TIME_MAX }
    }

    /// Returns whether the request may be sent again after this delay.
    pub fn allows(&self, delay: Duration, now: Instant) -> bool {
        now + delay < self.at
    }
}

/// An answer that is a refusal: the part of it that is for programs.
#[derive(Clone, Debug)]
pub struct Refused {
    status: StatusCode,
    /// Nothing where the answer has no body, as that to HEAD.
    code: Option<String>,
    retry_after: Option<Duration>,
}

impl Refused {
    /// That of an answer with this status, these headers and this body.
    pub fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let seconds = headers.get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
        Self {
            status,
            code: problem["code"].as_str().map(str::to_owned),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// After how long the request may be sent again, if it may. `is_safe` says of a request that it changes nothing: one
    /// with an unknown outcome is sent again as well.
    pub fn again_after(&self, is_safe: bool) -> Option<Duration> {
        let is_not_done = self.code.as_deref().is_some_and(|code| NOT_DONE.contains(&code));
        let comes_again =
            self.status == StatusCode::SERVICE_UNAVAILABLE && (is_safe || is_not_done);
        self.retry_after.filter(|_| comes_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, retry_after: Option<&'static str>) -> Refused {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static(seconds));
        }
        let body = format!("{{\"code\":\"{code}\"}}");
        Refused::of(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn what_was_not_done_is_sent_again_when_the_answer_says() {
        for code in ["no_leader", "not_ready", "shutting_down"] {
            for is_safe in [true, false] {
                let again_after = refused(503, code, Some("2")).again_after(is_safe);
                assert_eq!(again_after, Some(Duration::from_secs(2)), "{code}");
            }
        }
    }

    #[test]
    fn an_unknown_outcome_is_asked_for_again_only_by_what_changes_nothing() {
        let unknown = refused(503, "outcome_unknown", Some("1"));
        assert_eq!(unknown.again_after(true), Some(Duration::from_secs(1)));
        assert_eq!(unknown.again_after(false), None);
        // The answer to HEAD has no body.
        let nameless = Refused { code: None, ..unknown };
        assert_eq!(nameless.again_after(true), Some(Duration::from_secs(1)));
        assert_eq!(nameless.again_after(false), None);
    }

    #[test]
    fn other_refusals_are_told_at_once() {
        for (status, retry_after) in [(503, None), (429, Some("1")), (507, Some("1")), (404, None)]
        {
            let refused = refused(status, "no_leader", retry_after);
            assert_eq!(refused.again_after(true), None, "{status}");
        }
    }

    #[test]
    fn a_request_is_sent_again_for_fifteen_seconds() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let limit = RetryLimit::of_request(begun);
        assert!(limit.allows(14 * second, begun) && limit.allows(second, begun + 13 * second));
        assert!(!limit.allows(second, begun + 14 * second));
    }
}

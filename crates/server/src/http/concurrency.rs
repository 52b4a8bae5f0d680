//! Which requests of a connection are worked on beside one another: those that come after something has
//! changed are to see it, and those before it are not. It knows no sockets.

use http::Method;

use super::request::Request;
use crate::doors::streams;

/// Beside which others a request is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Beside others that change nothing.
    Reads,
    /// Beside other appends, of which those to one stream keep their order.
    Appends,
    /// Beside none.
    Alone,
}

impl Turn {
    pub(crate) fn of(request: &Request) -> Self {
        match request.method() {
            method if method.is_safe() => Self::Reads,
            &Method::POST if streams::is_append(request.path()) => Self::Appends,
            _ => Self::Alone,
        }
    }

    /// Whether it may be worked on beside those of `other`.
    pub(crate) fn goes_beside(self, other: Self) -> bool {
        self == other && self != Self::Alone
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn turn(method: &str, path: &str) -> Turn {
        let request = http::Request::builder().method(method).uri(path);
        Turn::of(&request.body(Bytes::new()).unwrap().into())
    }

    #[test]
    fn only_reads_and_appends_have_company_and_only_of_their_kind() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(turn(method, "/v1/stream/a"), Turn::Reads);
        }
        assert_eq!(turn("POST", "/v1/stream/a"), Turn::Appends);
        for (method, path) in [
            ("PUT", "/v1/stream/a"),
            ("DELETE", "/v1/stream/a"),
            ("POST", "/v1/atomic"),
            ("POST", "/v1/stream/__ds/subscriptions/a/ack"),
            ("PATCH", "/v1/stream/a"),
        ] {
            assert_eq!(turn(method, path), Turn::Alone, "{method} {path}");
        }
        let all = [Turn::Reads, Turn::Appends, Turn::Alone];
        for (one, other) in all.into_iter().flat_map(|one| all.map(|other| (one, other))) {
            assert_eq!(one.goes_beside(other), one == other && one != Turn::Alone);
        }
    }
}

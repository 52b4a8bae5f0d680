//! A request that cannot be parsed: the status, and a sentence for the author of the client. The connection ends
//! with it, because the bytes behind it could be taken for another request. It knows no sockets.

use http::StatusCode;

use super::{
    answer::{come_again, problem},
    response::Response,
};

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {detail}")]
pub struct Refused {
    /// What the client is answered.
    pub status: StatusCode,
    /// What is wrong, for people.
    pub detail: &'static str,
}

impl Refused {
    /// The request is not HTTP as RFC 9112 has it.
    pub(crate) const fn bad(detail: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail }
    }

    /// The answer that says so.
    pub(crate) fn answer(self) -> Response {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => come_again("busy", self.detail),
            status => problem(status, self.detail, []),
        }
    }

    pub(crate) const fn with(status: StatusCode, detail: &'static str) -> Self {
        Self { status, detail }
    }
}

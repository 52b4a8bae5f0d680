//! Why a request cannot be read: the status, and a sentence for who wrote the client. It knows no
//! sockets; whoever reads on behind it would read another request than was meant, so the connection
//! ends with it.

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

//! What answers hold of memory until their clients have taken them: of one that is there that is known, a
//! read is thought to bring what it may at most before. It knows no connections.

use http::Method;

use super::{body::Body, limits::ANSWER_BYTES_EXPECTED, request::Request};
use crate::doors::http_routes::ROOT;

/// What a body holds whose pieces are made as they are sent: the one that is next, or so.
const PIECE_BYTES: usize = 1 << 20;

/// What the answer to a request is thought to hold, in bytes.
pub(crate) fn expected(request: &Request) -> usize {
    let is_read = *request.method() == Method::GET && request.path().starts_with(ROOT);
    if is_read { ANSWER_BYTES_EXPECTED } else { 0 }
}

/// What an answer holds, in bytes.
pub(crate) fn of(body: &Body) -> usize {
    match body {
        Body::Empty => 0,
        Body::Full(bytes) => bytes.len(),
        Body::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
        Body::Measured { .. } | Body::Events(_) => PIECE_BYTES,
        // Two pages of a stream are read when the first piece is sent.
        Body::Pages(_) => ANSWER_BYTES_EXPECTED,
    }
}

/// What an answer holds of what its core has room for, in bytes. Pages count themselves there.
pub(crate) fn of_core(body: &Body) -> usize {
    if matches!(body, Body::Pages(_)) { 0 } else { of(body) }
}

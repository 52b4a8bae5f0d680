//! The memory that an answer holds until its client has taken it. It knows no connections.

use super::{body::Body, limits::ANSWER_BYTES_EXPECTED};

/// What a body holds whose pieces are made as they are sent: the one that is next, or so.
const PIECE_BYTES: usize = 1 << 20;

/// What an answer holds, in bytes.
pub(crate) fn of(body: &Body) -> usize {
    match body {
        Body::Empty => 0,
        Body::Full(bytes) => bytes.len(),
        Body::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
        Body::Measured { .. } | Body::Events(_) | Body::Farewell(_) => PIECE_BYTES,
        // Two pages of a stream are read when the first piece is sent.
        Body::Pages(_) => ANSWER_BYTES_EXPECTED,
    }
}

/// What an answer holds of what its core has room for, in bytes. Pages count themselves there.
pub(crate) fn of_core(body: &Body) -> usize {
    if matches!(body, Body::Pages(_)) { 0 } else { of(body) }
}

//! The parts that answers of streams have in common. It knows no requests.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use sennit_engine::StreamSettings;

use super::{names, offset_token::Token, refusals::Problem};
use crate::{
    broker::stream_offset::StreamOffset,
    http::{
        body::Body,
        response::{HeaderList, Response},
    },
};

/// What says yes in a header.
pub(super) const TRUE: HeaderValue = HeaderValue::from_static("true");

/// What may not be kept by anybody on the way.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// An answer without a body that says where a stream ends or a read goes on, and whether nothing will
/// follow.
pub(super) fn at(status: StatusCode, next: StreamOffset, is_closed: bool) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // As many as there will be: appends are answered often, and with few.
    headers.reserve(if status == StatusCode::NO_CONTENT { 6 } else { 12 });
    headers.insert(&names::NEXT_OFFSET, Token(next).into());
    if is_closed {
        headers.insert(&names::CLOSED, TRUE);
    }
    response
}

/// Says of what type a stream is.
pub(super) fn say_type(headers: &mut HeaderList, settings: &StreamSettings) -> Result<(), Problem> {
    let text = HeaderValue::from_bytes(settings.content_type.as_bytes());
    let text = text.map_err(|_| Problem::damaged("the stream's type is no header"))?;
    headers.insert(header::CONTENT_TYPE, text);
    Ok(())
}

/// A body of these pieces.
pub(crate) fn body(mut pieces: Vec<Bytes>) -> Body {
    match pieces.len() {
        0 => Body::Empty,
        1 => pieces.pop().map_or(Body::Empty, Body::Full),
        _ => Body::Parts(pieces),
    }
}

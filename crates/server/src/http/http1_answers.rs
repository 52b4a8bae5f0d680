//! Encodes answers for an HTTP/1 connection: the head, and the part of the body that is there. A body that comes in
//! pieces is sent in chunks. It knows no sockets.

use std::{
    io::{self, Write as _},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Method, StatusCode, header};

use super::{
    body::{Body, EventSource, PageSource},
    date::DATE_BYTES,
    request::Request,
    response::{HeaderList, Response},
};
use crate::runtime::write_buffer::WriteBuffer;

/// What of a request its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Whether only the head is wanted.
    is_head: bool,
    /// Whether the client speaks HTTP/1.0.
    is_old: bool,
    /// Whether its head is out already, and a part of its body.
    pub(crate) is_begun: bool,
    /// Whether this is the last answer of its connection.
    pub(crate) closes: bool,
}

impl Manner {
    pub(crate) fn of(request: &Request, closes: bool) -> Self {
        let is_old = request.is_old();
        let is_head = request.method() == Method::HEAD;
        Self { is_head, is_old, is_begun: false, closes }
    }

    /// Of an answer whose events have begun.
    pub(crate) fn of_events(is_chunked: bool, closes: bool) -> Self {
        Self { is_head: false, is_old: !is_chunked, is_begun: true, closes }
    }

    /// Whether a body of which nobody knows the length comes in chunks.
    pub(crate) fn is_chunked(self) -> bool {
        !self.is_old
    }

    /// Of the answer to what is no request.
    pub(crate) const LAST: Self =
        Self { is_head: false, is_old: false, is_begun: false, closes: true };
}

/// A body that comes bit by bit.
#[derive(Debug)]
pub(crate) enum Streaming {
    /// Of a length said before.
    Measured(PageSource),
    Events {
        source: EventSource,
        is_chunked: bool,
        /// Whether it ends by itself when the connection is to.
        says_farewell: bool,
    },
    Pages {
        source: PageSource,
        is_chunked: bool,
    },
}

/// Encodes an answer; returns what is still to come of its body.
pub(crate) fn encode(
    answer: Response,
    manner: Manner,
    date: &[u8; DATE_BYTES],
    out: &mut WriteBuffer,
) -> Option<Streaming> {
    let Response { status, headers, body, upgrade } = answer;
    let is_upgrade = upgrade.is_some();
    let has_no_body =
        is_upgrade || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let own = out.own();
    status_line(status, own);
    own.extend_from_slice(b"date: ");
    own.extend_from_slice(date);
    own.extend_from_slice(b"\r\n");
    for (name, value) in headers.iter() {
        if *name != header::CONTENT_LENGTH {
            line(name.as_str(), value.as_bytes(), own);
        }
    }
    let length = length(&headers, &body, manner.is_head || has_no_body);
    let is_chunked = length.is_none() && !has_no_body && !manner.is_old;
    if let Some(length) = length.filter(|_| status != StatusCode::NO_CONTENT && !is_upgrade) {
        own.extend_from_slice(b"content-length: ");
        decimal(length, own);
        own.extend_from_slice(b"\r\n");
    } else if is_chunked && !manner.is_head {
        own.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    match (manner.closes, manner.is_old) {
        // Such an answer names the protocol that the connection goes on with.
        _ if is_upgrade => own.extend_from_slice(b"connection: upgrade\r\n"),
        (true, _) => own.extend_from_slice(b"connection: close\r\n"),
        (false, true) => own.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, false) => {}
    }
    own.extend_from_slice(b"\r\n");
    if manner.is_head || has_no_body {
        return None;
    }
    match body {
        Body::Empty => None,
        Body::Full(bytes) => {
            out.push(&bytes);
            None
        }
        Body::Parts(parts) => {
            parts.iter().for_each(|part| out.push(part));
            None
        }
        Body::Measured { source, .. } => Some(Streaming::Measured(source)),
        Body::Events(source) => {
            Some(Streaming::Events { source, is_chunked, says_farewell: false })
        }
        Body::Farewell(source) => {
            Some(Streaming::Events { source, is_chunked, says_farewell: true })
        }
        Body::Pages(source) => Some(Streaming::Pages { source, is_chunked }),
    }
}

/// What is still to come of an answer whose events have begun.
pub(crate) fn go_on_with(answer: Response, manner: Manner) -> Option<Streaming> {
    match answer.body {
        Body::Events(source) => Some(Streaming::Events {
            source,
            is_chunked: manner.is_chunked(),
            says_farewell: false,
        }),
        _ => None,
    }
}

/// Whether an answer can only end with its connection.
pub(crate) fn ends_with_connection(answer: &Response, manner: Manner) -> bool {
    manner.is_old && !manner.is_head && answer.body.bytes().is_none()
}

/// The length to be told. Without a body it is the one that the service says a body would have.
fn length(headers: &HeaderList, body: &Body, is_without_body: bool) -> Option<u64> {
    if is_without_body {
        let said = headers.get(&header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let of_body = body.bytes().filter(|&bytes| bytes > 0);
        return said.and_then(|digits| digits.parse().ok()).or(of_body);
    }
    body.bytes()
}

fn status_line(status: StatusCode, out: &mut Vec<u8>) {
    let known: &[u8] = match status {
        StatusCode::OK => b"HTTP/1.1 200 OK\r\n",
        StatusCode::NO_CONTENT => b"HTTP/1.1 204 No Content\r\n",
        _ => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.push(b' ');
            out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
            b"\r\n"
        }
    };
    out.extend_from_slice(known);
}

fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Encodes what comes of a body of which nobody knows the length: pieces that come together.
pub(crate) fn put_pieces(pieces: &[&Bytes], is_chunked: bool, out: &mut WriteBuffer) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if is_chunked && length > 0 {
        let _ = write!(out.own(), "{length:x}\r\n");
    }
    pieces.iter().for_each(|piece| out.push(piece));
    if is_chunked && length > 0 {
        out.own().extend_from_slice(b"\r\n");
    }
}

/// Encodes the end of one.
pub(crate) fn put_end(is_chunked: bool, out: &mut WriteBuffer) {
    if is_chunked {
        out.own().extend_from_slice(b"0\r\n\r\n");
    }
}

impl Streaming {
    /// Encodes the next piece; false once the body is whole.
    pub(crate) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        out: &mut WriteBuffer,
    ) -> Poll<io::Result<bool>> {
        match self {
            Self::Measured(source) => {
                let Some(piece) = ready!(source.poll_next(context)) else {
                    return Poll::Ready(Ok(false));
                };
                out.push(&piece?);
                Poll::Ready(Ok(true))
            }
            Self::Events { source, is_chunked, .. } => {
                let Some(piece) = ready!(source.poll_next(context)) else {
                    self.end(out);
                    return Poll::Ready(Ok(false));
                };
                put_pieces(&[&piece], *is_chunked, out);
                Poll::Ready(Ok(true))
            }
            Self::Pages { source, is_chunked } => {
                let Some(piece) = ready!(source.poll_next(context)) else {
                    put_end(*is_chunked, out);
                    return Poll::Ready(Ok(false));
                };
                put_pieces(&[&piece?], *is_chunked, out);
                Poll::Ready(Ok(true))
            }
        }
    }

    /// Ends a body that could go on for ever.
    pub(crate) fn end(&self, out: &mut WriteBuffer) {
        if let Self::Events { is_chunked, .. } = self {
            put_end(*is_chunked, out);
        }
    }

    /// Whether it goes on for ever unless it is ended.
    pub(crate) fn is_to_be_ended(&self) -> bool {
        matches!(self, Self::Events { says_farewell: false, .. })
    }

    /// Whether nobody knows when it ends.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Events { .. })
    }
}

//! Parses the bytes of an HTTP/1 connection into requests, in whatever pieces they arrive. It holds the bytes of an
//! unfinished request, within limits. It knows no sockets and no time.

use bytes::{Bytes, BytesMut, buf::Limit};
use http::StatusCode;

use super::{
    bad_request::Refused,
    head_end::HeadEnd,
    http1_body::BodyDecoder,
    http1_head::Head,
    limits::HEAD_BYTES_MAX,
    request::{Request, weight_of_head},
};

/// A request that has come whole.
#[derive(Debug)]
pub struct Received {
    /// The request; its target is a path or `*`, its host is in the header.
    pub request: Request,
    /// Whether the connection stays open behind the answer; what comes behind a request of which this is
    /// false is not looked at.
    pub keep_alive: bool,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnderWay {
    /// Nothing of a request has come.
    Nothing,
    /// A part of a head.
    Head,
    /// A head, and not all of the body.
    Body,
}

/// Makes requests of what comes.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    /// What has come of a head that is not whole.
    partial: Vec<u8>,
    end: HeadEnd,
    empty_line: EmptyLine,
    body: Option<Box<Body>>,
}

/// A head, and what has come of its body.
#[derive(Debug)]
struct Body {
    head: Head,
    decoder: BodyDecoder,
}

/// The empty line that old clients send behind a body: one is passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EmptyLine {
    #[default]
    None,
    Half,
    Whole,
}

impl RequestDecoder {
    /// Takes what comes next, up to the end of a request; the request once it is whole. Behind a
    /// refusal nothing can be read any more.
    ///
    /// # Errors
    /// A [`Refused`]: what came is no request that is read here.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Received>, Refused> {
        let mut body = match self.body.take() {
            Some(body) => body,
            None => {
                let Some(head) = self.head(input)? else { return Ok(None) };
                let mut decoder = BodyDecoder::new(head.framing);
                match decoder.take(input)? {
                    Some(body) => return Ok(Some(received(head, body))),
                    None => Box::new(Body { head, decoder }),
                }
            }
        };
        match body.decoder.take(input)? {
            Some(bytes) => Ok(Some(received(body.head, bytes))),
            None => {
                self.body = Some(body);
                Ok(None)
            }
        }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        match &self.body {
            Some(_) => UnderWay::Body,
            None if self.partial.is_empty() && self.empty_line != EmptyLine::Half => {
                UnderWay::Nothing
            }
            None => UnderWay::Head,
        }
    }

    /// Whether the client waits to be told to send the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.head.expects_continue)
    }

    /// The client is told, which is done once.
    pub(crate) fn set_continue_sent(&mut self) {
        if let Some(body) = &mut self.body {
            body.head.expects_continue = false;
        }
    }

    /// What has come of a request that is not whole, as it is counted.
    pub(crate) fn weight(&self) -> usize {
        let body = self.body.as_ref();
        let of_body = body.map_or(0, |body| body.head.request.weight() + body.decoder.bytes());
        weight_of_head(self.partial.len()) + of_body
    }

    /// Room for what comes next, where the body's length is known.
    pub(crate) fn room(&mut self) -> Option<Limit<&mut BytesMut>> {
        self.body.as_mut()?.decoder.room()
    }

    /// So many bytes were put into the room.
    pub(crate) fn put(&mut self, bytes: usize) {
        if let Some(body) = &mut self.body {
            body.decoder.put(bytes);
        }
    }

    fn head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, Refused> {
        self.pass_over_empty_line(input)?;
        let window = &input[..input.len().min(HEAD_BYTES_MAX - self.partial.len())];
        let Some(end) = self.end.find(window)? else {
            if self.partial.len() + window.len() == HEAD_BYTES_MAX {
                return Err(self.too_long());
            }
            self.partial.extend_from_slice(window);
            *input = &input[window.len()..];
            return Ok(None);
        };
        let (now, rest) = input.split_at(end);
        *input = rest;
        let head = if self.partial.is_empty() {
            Head::read(now)
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(now);
            Head::read(&whole)
        };
        (self.end, self.empty_line) = (HeadEnd::default(), EmptyLine::None);
        head.map(Some)
    }

    fn pass_over_empty_line(&mut self, input: &mut &[u8]) -> Result<(), Refused> {
        if !self.partial.is_empty() {
            return Ok(());
        }
        while let [first, rest @ ..] = *input {
            self.empty_line = match (self.empty_line, first) {
                (EmptyLine::None, b'\r') => EmptyLine::Half,
                (EmptyLine::Half, b'\n') => EmptyLine::Whole,
                (EmptyLine::Half, _) | (_, b'\r' | b'\n') => {
                    return Err(Refused::bad("a request begins with an empty line"));
                }
                _ => return Ok(()),
            };
            *input = rest;
        }
        Ok(())
    }

    fn too_long(&self) -> Refused {
        if self.end.lines() == 0 {
            let detail = "the target is longer than TARGET_BYTES_MAX, 8 KiB";
            return Refused::with(StatusCode::URI_TOO_LONG, detail);
        }
        let detail = "the head is longer than HEAD_BYTES_MAX, 16 KiB";
        Refused::with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
    }
}

fn received(head: Head, body: Bytes) -> Received {
    let Head { request, keep_alive, .. } = head;
    Received { request: request.with_body(body), keep_alive }
}

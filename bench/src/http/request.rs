//! The requests of the load, as bytes.

use std::io::Write;

use crate::plan::HttpLoad;

/// A request to a stream of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Creates a stream.
    Create,
    /// Appends to a stream.
    Append,
    /// Requests the state of a stream.
    Head,
    /// Reads a whole stream.
    Read,
    /// Waits for the messages after an offset, by long-poll.
    LongPoll(&'a str),
    /// Reads all messages after an offset, as server-sent events.
    Sse(&'a str),
}

/// Writes requests for one server.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The path of a stream, without its number.
    path: String,
    /// The rest of each request after the path.
    host: String,
    /// The content type: only text streams have text events.
    content_type: &'static str,
    body: Vec<u8>,
}

impl Requests {
    /// The requests of `load` for the server at `address`.
    #[must_use]
    pub fn new(address: &str, load: &HttpLoad) -> Self {
        let HttpLoad { prefix, run, size, mode, .. } = load;
        Self {
            path: format!("{prefix}/{run}-"),
            host: format!(" HTTP/1.1\r\nHost: {address}\r\n"),
            content_type: if mode.is_live() { "text/plain" } else { "application/octet-stream" },
            body: (b'a'..=b'z').cycle().take(*size).collect(),
        }
    }

    /// Writes a request for stream number `stream` to `out`, and removes its earlier contents.
    pub fn write(&self, request: Request<'_>, stream: u64, out: &mut Vec<u8>) {
        out.clear();
        let Self { path, host, content_type, body } = self;
        let written = match request {
            Request::Create => write!(
                out,
                "PUT {path}{stream}{host}Content-Type: {content_type}\r\nContent-Length: 0\r\n\r\n"
            ),
            Request::Append => return self.write_append(stream, body, out),
            Request::Head => write!(out, "HEAD {path}{stream}{host}\r\n"),
            Request::Read => write!(out, "GET {path}{stream}?offset=-1{host}\r\n"),
            Request::LongPoll(offset) => {
                write!(out, "GET {path}{stream}?offset={offset}&live=long-poll{host}\r\n")
            }
            Request::Sse(offset) => {
                write!(
                    out,
                    "GET {path}{stream}?offset={offset}&live=sse{host}\
                     Accept: text/event-stream\r\n\r\n"
                )
            }
        };
        written.expect("a vector takes what is written to it");
    }

    /// Writes an append of `body` to stream number `stream` to `out`, and removes its earlier contents.
    pub fn write_append(&self, stream: u64, body: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let Self { path, host, content_type, .. } = self;
        let length = body.len();
        let written = write!(
            out,
            "POST {path}{stream}{host}Content-Type: {content_type}\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        written.expect("a vector takes what is written to it");
        out.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HttpMode;

    #[test]
    fn a_request_says_whom_it_is_for_and_how_long_it_is() {
        let load = HttpLoad {
            mode: HttpMode::Append,
            prefix: "/v1/stream".into(),
            run: "r".into(),
            connections: 1,
            streams: 1,
            size: 3,
            threads: 1,
        };
        let requests = Requests::new("h:1", &load);
        let mut out = Vec::new();
        requests.write(Request::Append, 7, &mut out);
        let wanted = "POST /v1/stream/r-7 HTTP/1.1\r\nHost: h:1\r\n\
                      Content-Type: application/octet-stream\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}

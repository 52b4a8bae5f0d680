//! A request as the handlers see it, whichever HTTP it came by: method, path, headers, body. Headers stay where
//! they lie in the head, since most of them are never read. It knows no sockets.

use std::{fmt, ops::Range};

use bytes::Bytes;
use http::{HeaderName, Method, Uri, header};

use super::limits::HEAD_FREE_BYTES;

/// A request that has come whole.
pub struct Request {
    method: Method,
    /// Whether the client speaks HTTP/1.0.
    is_old: bool,
    target: Box<str>,
    /// Where the path ends.
    path_bytes: usize,
    headers: Headers,
    body: Bytes,
}

/// The headers of a request, in the order in which they came.
#[derive(Clone)]
pub struct Headers {
    /// Where names and values lie, among other things.
    head: Box<[u8]>,
    lines: Vec<Line>,
    /// The marks of their names: what is asked for is mostly not there.
    marks: u64,
}

/// One of 64 bits, by a name's length and its last letter, in whichever case.
fn mark(name: &[u8]) -> u64 {
    let last = name.last().copied().unwrap_or_default() | 0x20;
    1 << (name.len().wrapping_mul(7).wrapping_add(last.into()) % 64)
}

/// Where something lies in a head, which is far below 4 GiB by either HTTP's limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    from: u32,
    to: u32,
}

/// Where a header lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) name: Place,
    pub(crate) value: Place,
}

impl Place {
    /// Where `part` lies in `whole`, of which it is a part. Nothing lies at the beginning.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Self {
        if part.is_empty() {
            return Self::from(0..0);
        }
        let from = part.as_ptr().addr() - whole.as_ptr().addr();
        Self::from(from..from + part.len())
    }

    fn length(self) -> usize {
        (self.to - self.from) as usize
    }

    /// What lies there.
    pub(crate) fn look(self, head: &[u8]) -> &[u8] {
        &head[self.from as usize..self.to as usize]
    }
}

impl From<Range<usize>> for Place {
    fn from(range: Range<usize>) -> Self {
        Self { from: range.start as u32, to: range.end as u32 }
    }
}

impl Headers {
    /// Those that lie in `head` at `lines`.
    pub(crate) fn new(head: &[u8], lines: Vec<Line>) -> Self {
        let marks = lines.iter().fold(0, |marks, line| marks | mark(line.name.look(head)));
        Self { head: head.into(), lines, marks }
    }

    fn at(&self, place: Place) -> &[u8] {
        place.look(&self.head)
    }

    /// Names, as they were written, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (self.at(line.name), self.at(line.value)))
    }

    /// The values of every header of this name.
    pub fn all<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_str().as_bytes();
        let lines = if self.marks & mark(name) == 0 { &[][..] } else { &self.lines };
        let is_it = move |line: &&Line| {
            line.name.length() == name.len() && self.at(line.name).eq_ignore_ascii_case(name)
        };
        lines.iter().filter(is_it).map(|line| self.at(line.value))
    }

    /// The value of the first header of this name.
    #[must_use]
    pub fn get<'a>(&'a self, name: &HeaderName) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.iter().map(|(name, value)| (name.escape_ascii(), value.escape_ascii()));
        let texts = texts.map(|(name, value)| (name.to_string(), value.to_string()));
        f.debug_list().entries(texts).finish()
    }
}

impl Request {
    /// One without a body. The path of its target has so many bytes, and a question mark behind it where
    /// that is not all.
    pub(crate) fn new(
        method: Method,
        is_old: bool,
        target: &str,
        path_bytes: usize,
        headers: Headers,
    ) -> Self {
        let target = target.into();
        Self { method, is_old, target, path_bytes, headers, body: Bytes::new() }
    }

    /// The same with a body.
    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    /// What is asked.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Whether the client speaks HTTP/1.0.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.is_old
    }

    /// What of: a path, or `*`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.target[..self.path_bytes]
    }

    /// What stands behind the question mark, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.target.get(self.path_bytes + 1..)
    }

    /// The headers; among them `Host`, which is the host of the target where that names one.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// What it carries.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Whether its client wants to go on with another protocol on this connection.
    pub(crate) fn asks_for_upgrade(&self) -> bool {
        let names_upgrade = |value: &[u8]| {
            value
                .split(|byte| *byte == b',')
                .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        };
        self.method == Method::GET
            && !self.is_old
            && self.headers.get(&header::UPGRADE).is_some()
            && self.headers.all(&header::CONNECTION).any(names_upgrade)
    }

    /// What it holds until it is answered, as it is counted.
    pub(crate) fn weight(&self) -> usize {
        weight_of_head(self.headers.head.len()) + self.body.len()
    }
}

/// What of a head of so many bytes is counted.
pub(crate) const fn weight_of_head(bytes: usize) -> usize {
    bytes.saturating_sub(HEAD_FREE_BYTES)
}

/// Path and query of an address, and how long the path is. One without a path means the root.
pub(crate) fn target_of(uri: &Uri) -> (String, usize) {
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    (format!("{}{query}", uri.path()), uri.path().len())
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("is_old", &self.is_old)
            .field("path", &self.path())
            .field("query", &self.query())
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish()
    }
}

impl From<http::Request<Bytes>> for Request {
    fn from(request: http::Request<Bytes>) -> Self {
        let (parts, body) = request.into_parts();
        let mut head = Vec::new();
        let mut put = |bytes: &[u8]| {
            let from = head.len();
            head.extend_from_slice(bytes);
            Place::from(from..head.len())
        };
        let headers = parts.headers.iter();
        let line = |(name, value): (&HeaderName, &http::HeaderValue)| Line {
            name: put(name.as_str().as_bytes()),
            value: put(value.as_bytes()),
        };
        let lines = headers.map(line).collect();
        let is_old = parts.version == http::Version::HTTP_10;
        let headers = Headers::new(&head, lines);
        let (target, path_bytes) = target_of(&parts.uri);
        Self::new(parts.method, is_old, &target, path_bytes, headers).with_body(body)
    }
}

#[cfg(test)]
impl Request {
    /// One that asks for a stream with these headers.
    pub(crate) fn with_headers(headers: &[(&str, &str)]) -> Self {
        let mut request = http::Request::get("/v1/stream/a");
        for (name, value) in headers {
            let value = http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request = request.header(*name, value);
        }
        request.body(Bytes::new()).unwrap().into()
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn a_header_is_found_however_it_is_written() {
        let head = b"X-A: 1\r\nx-b: 2\r\nx-A: 3";
        let place = |text: &str, at: usize| Place::from(at..at + text.len());
        let lines = [("X-A", 0, 5), ("x-b", 8, 13), ("x-A", 16, 21)];
        let line = |(name, at, value)| Line { name: place(name, at), value: place("1", value) };
        let headers = Headers::new(head, lines.map(line).to_vec());
        let name = HeaderName::from_static("x-a");
        assert_eq!(headers.all(&name).collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(headers.get(&name), Some(&b"1"[..]));
        assert_eq!(headers.get(&header::HOST), None);
    }

    #[test]
    fn what_came_by_the_other_http_is_the_same() {
        let request = http::Request::put("/a/b?c=d").header("x-a", "1").header("x-a", "2");
        let request = Request::from(request.body(Bytes::from_static(b"body")).unwrap());
        assert_eq!((request.method(), request.is_old()), (&Method::PUT, false));
        assert_eq!((request.path(), request.query()), ("/a/b", Some("c=d")));
        let name = HeaderName::from_static("x-a");
        assert_eq!(request.headers().all(&name).collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(request.body(), "body");
    }
}

//! An answer as the handlers give it: a status, headers, a body. The transport decides how it is sent.

use http::{HeaderName, HeaderValue, StatusCode};

use super::{body::Body, upgrade::Upgrade};

/// What a request is answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderList,
    pub(crate) body: Body,
    /// With 101: the connection goes on at another door. Answers over HTTP/2 have none.
    pub(crate) upgrade: Option<Upgrade>,
}

/// A header.
pub(crate) type Header = (HeaderName, HeaderValue);

/// The headers of an answer: few, and each once.
#[derive(Debug, Default)]
pub(crate) struct HeaderList {
    own: Vec<Header>,
    /// What many answers say. None of it is among its own.
    said_by_all: &'static [Header],
}

impl Response {
    /// One that says yes.
    pub(crate) fn new(body: Body) -> Self {
        Self { status: StatusCode::OK, headers: HeaderList::default(), body, upgrade: None }
    }

    /// The same with another body.
    pub(crate) fn with_body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.status
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderList {
        &mut self.headers
    }

    pub(crate) fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }
}

impl HeaderList {
    /// Room for so many.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.own.reserve(count);
    }

    /// Says what many answers say, for whatever it said so far of that kind.
    pub(crate) fn say_as_all(&mut self, headers: &'static [Header]) {
        self.own.retain(|(name, _)| headers.iter().all(|(said, _)| said != name));
        self.said_by_all = headers;
    }

    /// Says this, whatever was said under that name before.
    pub(crate) fn insert(&mut self, name: impl Into<HeaderName>, value: HeaderValue) {
        let name = name.into();
        debug_assert!(self.said_by_all.iter().all(|(said, _)| *said != name), "{name}");
        match self.own.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => *held = value,
            None => self.own.push((name, value)),
        }
    }

    /// Says nothing under this name.
    pub(crate) fn remove(&mut self, name: &HeaderName) {
        debug_assert!(self.said_by_all.iter().all(|(said, _)| said != name), "{name}");
        self.own.retain(|(held, _)| held != name);
    }

    pub(crate) fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.iter().find(|(held, _)| held == name).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Header> {
        self.own.iter().chain(self.said_by_all)
    }
}

impl Extend<(HeaderName, HeaderValue)> for HeaderList {
    fn extend<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, headers: T) {
        headers.into_iter().for_each(|(name, value)| self.insert(name, value));
    }
}

#[cfg(test)]
impl<N: std::borrow::Borrow<HeaderName>> std::ops::Index<N> for HeaderList {
    type Output = HeaderValue;

    fn index(&self, name: N) -> &HeaderValue {
        self.get(name.borrow()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CACHE_CONTROL, ETAG};

    use super::*;

    #[test]
    fn each_header_is_said_once_and_as_it_was_said_last() {
        let mut headers = HeaderList::default();
        headers.insert(ETAG, HeaderValue::from_static("a"));
        headers.extend([(CACHE_CONTROL, HeaderValue::from_static("b"))]);
        headers.insert(ETAG, HeaderValue::from_static("c"));
        assert_eq!(headers.iter().count(), 2);
        assert_eq!(headers[ETAG], "c");
        headers.remove(&ETAG);
        assert!(headers.get(&ETAG).is_none() && headers[CACHE_CONTROL] == "b");
    }
}

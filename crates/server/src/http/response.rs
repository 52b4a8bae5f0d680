//! An answer as the rooms behind the port give it: a status, headers, a body. By whichever HTTP it goes is
//! not theirs to know.

use http::{HeaderName, HeaderValue, StatusCode};

use super::answer::Body;

/// What a request is answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderList,
    pub(super) body: Body,
}

/// The headers of an answer: few, and each once.
#[derive(Debug, Default)]
pub(crate) struct HeaderList(Vec<(HeaderName, HeaderValue)>);

impl Response {
    /// One that says yes.
    pub(crate) fn new(body: Body) -> Self {
        Self { status: StatusCode::OK, headers: HeaderList::default(), body }
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
        self.0.reserve(count);
    }

    /// Says this, whatever was said under that name before.
    pub(crate) fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        match self.0.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => *held = value,
            None => self.0.push((name, value)),
        }
    }

    /// Says nothing under this name.
    pub(crate) fn remove(&mut self, name: &HeaderName) {
        self.0.retain(|(held, _)| held != name);
    }

    pub(crate) fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.0.iter().find(|(held, _)| held == name).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }
}

impl Extend<(HeaderName, HeaderValue)> for HeaderList {
    fn extend<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, headers: T) {
        headers.into_iter().for_each(|(name, value)| self.insert(name, value));
    }
}

#[cfg(test)]
impl std::ops::Index<HeaderName> for HeaderList {
    type Output = HeaderValue;

    fn index(&self, name: HeaderName) -> &HeaderValue {
        self.get(&name).unwrap()
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

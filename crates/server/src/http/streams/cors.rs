//! What browsers want to be told: who may ask, what they may see, and that nothing is to be guessed.
//! It knows no streams.

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::http::{
    body::Body,
    request::Request,
    response::{Header, HeaderList, Response},
};

/// Headers of requests that other origins may send.
const ALLOWED: &str = "content-type, authorization, if-none-match, last-event-id, stream-seq, \
    stream-ttl, stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, \
    stream-fork-sub-offset, stream-storage, stream-group, producer-id, producer-epoch, producer-seq";

/// Headers of answers that they may read.
const EXPOSED: &str = "etag, location, retry-after, stream-next-offset, stream-up-to-date, \
    stream-closed, stream-cursor, stream-ttl, stream-expires-at, stream-group, stream-storage, \
    stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq";

/// What can be asked of a stream.
pub(super) const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// What every answer says, and behind it what one to other origins says.
static ALWAYS: [Header; 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("cross-origin"),
    ),
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED)),
];

/// Says what the answer to `asked` says whatever it is. What may be kept on the way says it to other
/// origins too, whoever has asked first.
pub(super) fn say_always(headers: &mut HeaderList, asked: &Request) {
    let is_for_others =
        asked.method() == Method::GET || asked.headers().get(&header::ORIGIN).is_some();
    headers.say_as_all(if is_for_others { &ALWAYS } else { &ALWAYS[..2] });
}

/// Says what an answer to a GET says.
pub(super) fn say_to_reader(headers: &mut HeaderList) {
    headers.say_as_all(&ALWAYS);
}

/// The answer to a browser that asks before it asks.
pub(super) fn preflight() -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static(METHODS);
    headers.insert(header::ALLOW, methods.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn other_origins_are_told_what_they_may_see() {
        for (method, origin, is_told) in
            [("GET", None, true), ("POST", Some("https://a"), true), ("POST", None, false)]
        {
            let mut asked = http::Request::builder().method(method);
            if let Some(origin) = origin {
                asked = asked.header(header::ORIGIN, origin);
            }
            let mut headers = HeaderList::default();
            say_always(&mut headers, &asked.body(Bytes::new()).unwrap().into());
            assert_eq!(headers.get(&header::ACCESS_CONTROL_ALLOW_ORIGIN).is_some(), is_told);
            assert!(headers.get(&header::X_CONTENT_TYPE_OPTIONS).is_some());
        }
    }

    #[test]
    fn a_preflight_allows_what_the_protocol_sends() {
        let response = preflight();
        let allowed = response.headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        for name in ["if-none-match", "content-type", "producer-id", "stream-forked-from"] {
            assert!(allowed.split(", ").any(|allowed| allowed == name), "{name}");
        }
    }
}

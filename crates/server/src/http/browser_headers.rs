//! What answers say to browsers: who may read them, where they may be embedded, that nothing is to be
//! guessed. Credentials are never allowed. It knows no requests.

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{
    body::Body,
    response::{Header, Response},
    route::Route,
};

/// Headers of requests that pages of other origins may send.
const ALLOWED: &str = "content-type, authorization, if-none-match, last-event-id, stream-seq, \
    stream-ttl, stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, \
    stream-fork-sub-offset, stream-storage, stream-group, producer-id, producer-epoch, producer-seq";

/// Headers of answers that they may read.
const EXPOSED: &str = "etag, location, retry-after, stream-next-offset, stream-up-to-date, \
    stream-closed, stream-cursor, stream-ttl, stream-expires-at, stream-group, stream-storage, \
    stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq";

/// What a page of another origin may ask that may only read.
const SAFE_METHODS: &str = "GET, HEAD, OPTIONS";

/// How long a browser need not ask again what it may, in seconds.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("86400");

const NOSNIFF: Header = (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// What is opened as a page has an origin of its own: what somebody wrote into a stream is no page of the
/// broker's.
const SANDBOX: Header =
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; frame-ancestors 'none'"));

const BY_ORIGIN: Header = (header::VARY, HeaderValue::from_static("origin"));

const ALL_MAY_READ: Header = (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));

const EXPOSES: Header = (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));

/// Which pages may embed an answer without asking, as an image or a script.
const fn embedded_by(pages: &'static str) -> Header {
    let name = HeaderName::from_static("cross-origin-resource-policy");
    (name, HeaderValue::from_static(pages))
}

/// What is for pages of the broker's own origin alone says this, and so does what no page asked for.
pub(crate) static TO_OWN_PAGES: [Header; 2] = [NOSNIFF, embedded_by("same-origin")];

/// What an answer of a stream says to those who read it. Pages that may not read it are refused before, so
/// that it need not name those that may; caches have to tell the two apart.
pub(crate) static TO_READERS: [Header; 6] =
    [NOSNIFF, SANDBOX, embedded_by("same-origin"), BY_ORIGIN, ALL_MAY_READ, EXPOSES];

/// The same where pages of all origins may read.
pub(crate) static TO_ALL_READERS: [Header; 5] =
    [NOSNIFF, SANDBOX, embedded_by("cross-origin"), ALL_MAY_READ, EXPOSES];

/// What the page of a preflight may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Nothing,
    Read,
    Change,
}

/// The answer to a browser that asks before it asks. It says nothing of origins to a page that may
/// nothing, which to a browser is a no.
pub(crate) fn preflight(route: &Route, may: May) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = if may == May::Change { route.methods } else { SAFE_METHODS };
    headers.insert(header::ALLOW, HeaderValue::from_static(route.methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
    headers.extend([(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS), BY_ORIGIN]);
    if may != May::Nothing {
        headers.extend([ALL_MAY_READ]);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::Reach;

    #[test]
    fn a_preflight_allows_what_the_protocol_sends() {
        let methods = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
        let route = &Route { path: "/v1/stream/{path}", methods, reach: Reach::AllowedPages };
        let response = preflight(route, May::Change);
        let allowed = response.headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        for name in ["if-none-match", "content-type", "producer-id", "stream-forked-from"] {
            assert!(allowed.split(", ").any(|allowed| allowed == name), "{name}");
        }
        let methods = &response.headers[header::ACCESS_CONTROL_ALLOW_METHODS];
        assert_eq!(methods, route.methods);
        let reading = preflight(route, May::Read);
        assert_eq!(reading.headers[header::ACCESS_CONTROL_ALLOW_METHODS], SAFE_METHODS);
        let none = preflight(route, May::Nothing);
        assert_eq!(none.headers.get(&header::ACCESS_CONTROL_ALLOW_ORIGIN), None);
    }
}

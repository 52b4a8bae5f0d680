//! What answers say to browsers: who may read them, where they may be embedded, that nothing is to be
//! guessed. Credentials are never allowed. It knows no requests.

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{
    body::Body,
    response::{Header, Response},
    route::Route,
};

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

/// Which pages may embed an answer without asking, as an image or a script.
const fn embedded_by(pages: &'static str) -> Header {
    let name = HeaderName::from_static("cross-origin-resource-policy");
    (name, HeaderValue::from_static(pages))
}

/// What is for pages of the broker's own origin alone says this, and so does what no page asked for.
pub(crate) static TO_OWN_PAGES: [Header; 2] = [NOSNIFF, embedded_by("same-origin")];

/// The headers that pages of other origins may use, on the routes that are for them.
#[derive(Debug)]
pub(crate) struct PageHeaders {
    allowed: &'static str,
    /// What an answer says to pages that may read it. Other pages are refused before, so that it need not name
    /// those that may; caches have to tell the two apart.
    pub(super) to_readers: [Header; 6],
    /// The same where pages of all origins may read.
    pub(super) to_all_readers: [Header; 5],
}

impl PageHeaders {
    /// Pages may send the headers `allowed`, and read the headers `exposed` of answers: names, separated by commas.
    pub(crate) const fn new(allowed: &'static str, exposed: &'static str) -> Self {
        const fn exposes(names: &'static str) -> Header {
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names))
        }
        let same_origin = embedded_by("same-origin");
        let cross_origin = embedded_by("cross-origin");
        Self {
            allowed,
            to_readers: [NOSNIFF, SANDBOX, same_origin, BY_ORIGIN, ALL_MAY_READ, exposes(exposed)],
            to_all_readers: [NOSNIFF, SANDBOX, cross_origin, ALL_MAY_READ, exposes(exposed)],
        }
    }
}

/// What the page of a preflight may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Nothing,
    Read,
    Change,
}

/// The answer to a browser that asks before it asks. It says nothing of origins to a page that may
/// nothing, which to a browser is a no.
pub(crate) fn preflight(route: &Route, may: May, page_headers: &PageHeaders) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = if may == May::Change { route.methods } else { SAFE_METHODS };
    headers.insert(header::ALLOW, HeaderValue::from_static(route.methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let allowed = HeaderValue::from_static(page_headers.allowed);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
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
    fn a_preflight_allows_the_headers_that_pages_may_send() {
        let page_headers = &PageHeaders::new("content-type, x-mine", "etag");
        let methods = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
        let route = &Route { path: "/v1/stream/{path}", methods, reach: Reach::Allowed };
        let response = preflight(route, May::Change, page_headers);
        let allowed = &response.headers[header::ACCESS_CONTROL_ALLOW_HEADERS];
        assert_eq!(allowed, "content-type, x-mine");
        let methods = &response.headers[header::ACCESS_CONTROL_ALLOW_METHODS];
        assert_eq!(methods, route.methods);
        let reading = preflight(route, May::Read, page_headers);
        assert_eq!(reading.headers[header::ACCESS_CONTROL_ALLOW_METHODS], SAFE_METHODS);
        let none = preflight(route, May::Nothing, page_headers);
        assert_eq!(none.headers.get(&header::ACCESS_CONTROL_ALLOW_ORIGIN), None);
    }
}

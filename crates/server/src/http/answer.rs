//! The answers that all rooms behind the port give.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{body::Body, response::Response};

/// An answer with a body of this type.
pub(crate) fn full(status: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::Full(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Tells who comes at a bad time to come again, and why, with a code for programs.
pub(crate) fn come_again(code: &'static str, detail: &str) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!(
        { "status": status.as_u16(), "title": title, "code": code, "detail": detail }
    );
    let mut response = full(status, "application/problem+json", (body.to_string() + "\n").into());
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Tells what is wrong, as RFC 9457 has it, with headers besides.
pub(crate) fn problem(
    status: StatusCode,
    detail: &str,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "status": status.as_u16(), "title": title, "detail": detail });
    let mut response = full(status, "application/problem+json", (body.to_string() + "\n").into());
    let nosniff = (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response.headers_mut().extend([nosniff]);
    response.headers_mut().extend(headers);
    response
}

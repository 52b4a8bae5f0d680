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
    let mut response = coded_problem(StatusCode::SERVICE_UNAVAILABLE, code, detail);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Tells what is wrong, as RFC 9457 has it, with a code for programs.
pub(crate) fn coded_problem(status: StatusCode, code: &'static str, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    problem_of(
        status,
        &serde_json::json!(
            { "status": status.as_u16(), "title": title, "code": code, "detail": detail }
        ),
    )
}

fn problem_of(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = full(status, "application/problem+json", (body.to_string() + "\n").into());
    let headers = response.headers_mut();
    // Caches keep some errors unless they are told not to.
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
    let mut response = problem_of(status, &body);
    response.headers_mut().extend(headers);
    response
}

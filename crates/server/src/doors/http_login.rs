//! The credentials of a request over HTTP, and the answer to one that shows none or wrong ones. It knows no routes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, StatusCode, header};

use crate::{
    http::{
        answer::{coded_problem, come_again},
        request::Headers,
        response::Response,
    },
    identity::{
        login::{Credential, LoginRefusal, retry_seconds},
        principal::MissingRight,
    },
};

/// The value of `Authorization`, as it came.
pub(super) fn shown(headers: &Headers) -> &[u8] {
    headers.get(&header::AUTHORIZATION).unwrap_or_default()
}

/// The credentials that the value of `Authorization` is: `Bearer KEY`, or `Basic` with a user's name and password, or with an
/// API key as the password.
pub(super) fn credential(shown: &[u8]) -> Credential {
    let Some((scheme, value)) =
        std::str::from_utf8(shown).ok().and_then(|text| text.split_once(' '))
    else {
        return if shown.is_empty() { Credential::None } else { Credential::Key(String::new()) };
    };
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Credential::Key(value.to_owned());
    }
    let decoded = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|text| text.split_once(':')) {
        Some((user, password)) if scheme.eq_ignore_ascii_case("basic") => {
            if sennit_identity::ApiKey::is_meant_by(password) {
                return Credential::Key(password.to_owned());
            }
            Credential::Password { user: user.to_owned(), password: password.to_owned() }
        }
        // It is none, which is no other than a wrong one.
        _ => Credential::Key(String::new()),
    }
}

/// The credentials of a request whose client may show a key or token in this cookie, where it cannot send `Authorization`.
pub(super) fn credential_or_cookie(headers: &Headers, cookie: &str) -> Credential {
    let shown = shown(headers);
    if !shown.is_empty() {
        return credential(shown);
    }
    let lines = headers.all(&header::COOKIE).filter_map(|line| std::str::from_utf8(line).ok());
    let mut cookies =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let found = cookies.find(|(name, _)| name.trim() == cookie);
    match found.map(|(_, value)| value.trim().trim_matches('"')) {
        None | Some("") => Credential::None,
        Some(value) => Credential::Key(value.to_owned()),
    }
}

/// The answer to a request whose credentials do not count.
pub(super) fn unauthorized(refusal: LoginRefusal) -> Response {
    if refusal == LoginRefusal::NotReady {
        return come_again("not_ready", &refusal.to_string());
    }
    if let LoginRefusal::TooMany(retry_after) = refusal {
        let mut response =
            coded_problem(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", &refusal.to_string());
        let seconds = HeaderValue::from(retry_seconds(&retry_after));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
        return response;
    }
    let mut response =
        coded_problem(StatusCode::UNAUTHORIZED, "unauthorized", &refusal.to_string());
    let schemes = HeaderValue::from_static("Bearer realm=\"sennit\", Basic realm=\"sennit\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, schemes);
    response
}

/// The answer to a principal that lacks a right.
pub(super) fn forbidden(missing: &MissingRight) -> Response {
    coded_problem(StatusCode::FORBIDDEN, "forbidden", &missing.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, String) {
        match credential(text.as_bytes()) {
            Credential::None => ("none".to_owned(), String::new()),
            Credential::Key(key) => ("key".to_owned(), key),
            Credential::Password { user, password } => (user, password),
        }
    }

    #[test]
    fn credentials_come_in_two_schemes_and_all_else_is_wrong() {
        for (text, expected) in [
            ("", ("none", "")),
            ("Bearer abc", ("key", "abc")),
            ("bearer  abc ", ("key", "abc")),
            ("Basic YWRhOnMzOmNyZXQ=", ("ada", "s3:cret")),
            ("Basic eDpzZW5uaXRfYV9i", ("key", "sennit_a_b")),
            ("Basic YWRh", ("key", "")),
            ("Basic !", ("key", "")),
            ("Digest YWRhOnM=", ("key", "")),
            ("abc", ("key", "")),
        ] {
            let (kind, value) = read(text);
            assert_eq!((kind.as_str(), value.as_str()), expected, "{text:?}");
        }
    }
}

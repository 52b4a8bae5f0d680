//! The path of a stream and the name of its topic: the same text, in one spelling. It knows no
//! requests.

use http::StatusCode;
use sennit_model::{NameError, TopicName};

use super::refusals::Problem;
use crate::subscription_request::{RESERVED, is_reserved};

/// What the path of a stream begins with.
pub(crate) const ROOT: &str = "/v1/stream/";

/// The topic of the stream at `path`, which begins with [`ROOT`]. A byte that a name may hold stands
/// for itself, all others are written `%XX`; so is a dot that would make a part of the name empty,
/// and a slash that was written so.
///
/// # Errors
/// There cannot be a stream: the path is not the protocol's, is not well encoded, or is too long.
pub(super) fn of_path(path: &str) -> Result<TopicName, Problem> {
    let unknown = || Problem::not_found("unknown_path", format!("streams are below {ROOT}"));
    let path = path.strip_prefix(ROOT).filter(|path| !path.is_empty()).ok_or_else(unknown)?;
    // Most are names as they stand. What has a percent may be spelled otherwise.
    let spelled = match path.parse() {
        Ok(name) if !path.contains('%') => Ok(name),
        _ => {
            let wrong = || Problem::bad(format!("{path:?} is no path: %XX stands for a byte"));
            spelled(&decoded(path).ok_or_else(wrong)?).parse()
        }
    };
    let name: TopicName = spelled.map_err(|error: NameError| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_name", error.to_string())
    })?;
    // However it was written.
    if is_reserved(&name) {
        let detail = format!("what is below {ROOT}{RESERVED}/ is reserved for the protocol");
        return Err(Problem::not_found("reserved_path", detail));
    }
    Ok(name)
}

/// The bytes that `path` means, and of each whether it was written `%XX`.
fn decoded(path: &str) -> Option<Vec<(u8, bool)>> {
    let mut bytes = path.bytes();
    let mut letters = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        letters.push(match byte {
            b'%' => (hex(bytes.next()?)? << 4 | hex(bytes.next()?)?, true),
            byte => (byte, false),
        });
    }
    Some(letters)
}

/// The text that `part` of an address means.
pub(super) fn text(part: &str) -> Option<String> {
    let bytes = decoded(part)?.into_iter().map(|(byte, _)| byte);
    String::from_utf8(bytes.collect()).ok()
}

/// The one spelling of `letters`.
fn spelled(letters: &[(u8, bool)]) -> String {
    let mut name = String::with_capacity(letters.len());
    for (at, &(byte, was_encoded)) in letters.iter().enumerate() {
        let is_bound = |at: Option<usize>| {
            let letter = at.and_then(|at| letters.get(at));
            letter.is_none_or(|(byte, _)| *byte == b'.')
        };
        let stands = match byte {
            b'.' => !is_bound(at.checked_sub(1)) && !is_bound(at.checked_add(1)),
            b'/' => !was_encoded,
            b'_' | b'-' | b'~' => true,
            _ => byte.is_ascii_alphanumeric(),
        };
        if stands {
            name.push(char::from(byte));
        } else {
            name.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    name
}

fn digit(half: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(half)])
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(path: &str) -> Option<String> {
        Some(spelled(&decoded(path)?))
    }

    #[test]
    fn one_byte_has_one_spelling() {
        for (path, name) in [
            ("orders", "orders"),
            ("%6Frders", "orders"),
            ("a/b~c-d_e", "a/b~c-d_e"),
            ("a%2Fb", "a%2Fb"),
            ("a%2fb", "a%2Fb"),
            ("a b", "a%20b"),
            ("ä", "%C3%A4"),
            ("%c3%a4", "%C3%A4"),
            ("a+b", "a%2Bb"),
            ("100%25", "100%25"),
            ("v1.2", "v1.2"),
        ] {
            assert_eq!(spelling(path).as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn a_dot_that_would_leave_a_part_empty_is_written_otherwise() {
        for (path, name) in [
            (".updates", "%2Eupdates"),
            ("doc/.updates", "doc/.updates"),
            ("doc/..", "doc/%2E%2E"),
            ("a..b", "a%2E%2Eb"),
            ("a.", "a%2E"),
            ("a.b.c", "a.b.c"),
        ] {
            assert_eq!(spelling(path).as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn a_percent_that_stands_for_nothing_is_refused() {
        for path in ["%", "a%2", "%zz", "%+1"] {
            assert_eq!(spelling(path), None, "{path}");
        }
    }

    #[test]
    fn what_is_no_stream_is_not_found() {
        for path in ["", "/", "s/a", "/__ds", "/__ds/x", "/%5f_ds/x", "/%5F%5F%64s/subscriptions"] {
            let path = format!("/v1/stream{path}");
            assert_eq!(of_path(&path).unwrap_err().status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert!(of_path("/v1/stream/__dst").is_ok());
        let long = format!("{ROOT}{}", "x".repeat(10_000));
        assert_eq!(of_path(&long).unwrap_err().status(), StatusCode::BAD_REQUEST);
    }
}

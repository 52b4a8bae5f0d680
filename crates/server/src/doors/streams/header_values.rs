//! Reads the value of a request's header. It knows no particular header.

use http::HeaderName;

use super::refusals::Problem;
use crate::http::request::Headers;

/// The one value of the header `name`; `None` where it is not there.
pub(super) fn one<'a>(headers: &'a Headers, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.all(name);
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(Problem::bad(format!("{name} is given twice, and differs")));
    }
    let text = str::from_utf8(value.trim_ascii());
    text.map(Some).map_err(|_| Problem::bad(format!("the value of {name} is no UTF-8")))
}

/// The number that the header `name` holds: digits alone, without needless zeros, `most` at most.
pub(super) fn number(
    headers: &Headers,
    name: &HeaderName,
    most: u64,
) -> Result<Option<u64>, Problem> {
    let Some(text) = one(headers, name)? else { return Ok(None) };
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    let number = text.parse().ok().filter(|number| is_plain && *number <= most);
    let wrong = || format!("{name}: {text:?} is no number from 0 to {most}, as decimal digits");
    number.map(Some).ok_or_else(|| Problem::bad(wrong()))
}

/// Whether the header `name` says `true`; all else is as if it were not there.
pub(super) fn is_true(headers: &Headers, name: &HeaderName) -> bool {
    headers.get(name).is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::streams::names::TIME_TO_LIVE;
    use crate::http::request::Request;

    fn with(values: &[&str]) -> Headers {
        let given: Vec<_> = values.iter().map(|value| ("stream-ttl", *value)).collect();
        Request::with_headers(&given).headers().clone()
    }

    #[test]
    fn a_number_is_digits_and_nothing_else() {
        for (text, number_of) in [("0", 0), ("60", 60), ("18446744073709551615", u64::MAX)] {
            assert_eq!(number(&with(&[text]), &TIME_TO_LIVE, u64::MAX).unwrap(), Some(number_of));
        }
        for text in
            ["", "abc", "-1", "+60", "00060", "60.5", "1e3", "6 0", "18446744073709551616", "٣"]
        {
            assert!(number(&with(&[text]), &TIME_TO_LIVE, u64::MAX).is_err(), "{text:?}");
        }
        assert!(number(&with(&["11"]), &TIME_TO_LIVE, 10).is_err());
        assert_eq!(number(&with(&[]), &TIME_TO_LIVE, 10).unwrap(), None);
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused() {
        assert_eq!(one(&with(&["1", "1"]), &TIME_TO_LIVE).unwrap(), Some("1"));
        assert!(one(&with(&["1", "2"]), &TIME_TO_LIVE).is_err());
    }

    #[test]
    fn only_true_is_true() {
        for (value, is) in
            [("true", true), ("TRUE", true), ("1", false), ("yes", false), ("", false)]
        {
            assert_eq!(is_true(&with(&[value]), &TIME_TO_LIVE), is, "{value:?}");
        }
        assert!(!is_true(&with(&[]), &TIME_TO_LIVE));
    }
}

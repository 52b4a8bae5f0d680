//! Lists in HTTP headers (RFC 9110, section 5.6.1): elements between commas, which may lie in several header lines.

/// Whether `text` is a token (RFC 9110, section 5.6.2): visible ASCII without delimiters.
pub(crate) fn is_token(text: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// The parts of `text` between `delimiter`, without the spaces around them and without empty ones. One within quotes does
/// not divide.
pub(crate) fn parts(text: &str, delimiter: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = text.bytes().position(|byte| {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_quoted => is_escaped = true,
                b'"' => is_quoted = !is_quoted,
                _ => return byte == delimiter && !is_quoted,
            }
            false
        });
        // A delimiter is one ASCII byte, so both sides of it are whole characters.
        rest = end.and_then(|end| text.get(end + 1..));
        Some(text.get(..end.unwrap_or(text.len())).unwrap_or_default())
    })
    .map(|part| part.trim_matches([' ', '\t']))
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{is_token, parts};

    fn list(text: &str) -> Vec<&str> {
        parts(text, b',').collect()
    }

    #[test]
    fn elements_lie_between_commas_and_empty_ones_are_none() {
        assert_eq!(list(" a , b;c\t,, d,"), ["a", "b;c", "d"]);
        assert!(list("").is_empty());
    }

    #[test]
    fn a_comma_in_quotes_divides_nothing() {
        assert_eq!(list(r#"a="x,\",y", b"#), [r#"a="x,\",y""#, "b"]);
        assert_eq!(list(r#"a="x,"#), [r#"a="x,"#]);
    }

    #[test]
    fn a_token_has_no_spaces_and_no_delimiters() {
        assert!(is_token("centrifuge-json.v1"));
        for text in ["", "a b", "a/b", "ä", "\"a\""] {
            assert!(!is_token(text), "{text}");
        }
    }
}

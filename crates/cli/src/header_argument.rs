//! Parses a header of the command line: `name=value`.

use sennit_model::Header;

/// A header with a text value.
///
/// # Errors
/// A text for people.
pub fn header(text: &str) -> Result<Header, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Header::text(name, value)),
        _ => Err(format!("{text:?} is no header: write name=value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_that_may_hold_anything() {
        assert_eq!(header("type=a=b"), Ok(Header::text("type", "a=b")));
        assert_eq!(header("empty="), Ok(Header::text("empty", "")));
        assert!(header("=value").is_err() && header("name").is_err());
    }
}

//! Whether text that comes in pieces is UTF-8: said at the first byte that makes it wrong, each byte looked at once.

use crate::fault::Fault;

/// Checks `text` from `checked` on, which moves to the end of the last whole character. A character whose end has not
/// come is no fault.
pub(crate) fn check(text: &[u8], checked: &mut usize) -> Result<(), Fault> {
    match str::from_utf8(text.get(*checked..).unwrap_or_default()) {
        Ok(whole) => *checked += whole.len(),
        Err(error) if error.error_len().is_none() => *checked += error.valid_up_to(),
        Err(_) => return Err(Fault::NotUtf8),
    }
    Ok(())
}

/// The text of a message that has come whole.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| Fault::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::check;

    /// How many bytes of `text` pass, byte by byte.
    fn passing(text: &[u8]) -> usize {
        let mut checked = 0;
        let passes = |end: &usize| check(&text[..*end], &mut checked).is_err();
        (1..=text.len()).find(passes).map_or(text.len(), |end| end - 1)
    }

    #[test]
    fn a_wrong_byte_is_found_when_it_comes() {
        assert_eq!(passing("κόσμε".as_bytes()), 11 - 1);
        assert_eq!(passing(b"\xf4\x90\x80\x80"), 1, "beyond the last character");
        assert_eq!(passing(b"\xed\xa0\x80"), 1, "half of a pair");
        assert_eq!(passing(b"\xc0\xaf"), 0, "longer than needed");
        assert_eq!(passing(b"ab\xff"), 2);
        assert_eq!(passing(b"\xce\xba\xe1\xbdz"), 4, "a character without its end");
    }
}

//! Parses offsets: one, or a first and an end, as `5` and `5..9`.

use sennit_model::{Offset, OffsetRange};

/// An offset, or a first one and the first behind the last.
///
/// # Errors
/// A text for people.
pub fn offsets(text: &str) -> Result<OffsetRange, String> {
    let wrong = || format!("{text:?} is no offset and no offsets: write 5, or 5..9");
    let offset = |text: &str| text.trim().parse().map_err(|_| wrong());
    let (start, end) = match text.split_once("..") {
        Some((start, end)) => (offset(start)?, offset(end)?),
        None => {
            let start: u64 = offset(text)?;
            (start, start.saturating_add(1))
        }
    };
    if start >= end {
        return Err(format!("{text}: the second has to be behind the first"));
    }
    Ok(OffsetRange { start: Offset(start), end: Offset(end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_one_or_a_first_and_an_end() {
        assert_eq!(offsets("5"), Ok(OffsetRange::new(Offset(5), 1)));
        assert_eq!(offsets("5..9"), Ok(OffsetRange::new(Offset(5), 4)));
        for text in ["", "..", "5..", "9..5", "5..5", "a"] {
            assert!(offsets(text).is_err(), "{text:?}");
        }
    }
}

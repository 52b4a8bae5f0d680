//! Patterns of stream paths: `*` stands for what one segment holds, `**` as a segment for any number
//! of segments. It knows text only.

use std::fmt;

use super::limits::PATTERN_BYTES_MAX;

/// A pattern of stream paths, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Box<str>);

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GlobError {
    /// There is nothing in it.
    #[error("a pattern is not empty")]
    Empty,
    /// It is too long.
    #[error("PATTERN_BYTES_MAX is {PATTERN_BYTES_MAX}")]
    TooLong,
    /// No path has this byte.
    #[error("byte {0}: paths are made of a-z A-Z 0-9 _ - . ~ / and %XX, patterns of these and *")]
    Byte(usize),
    /// `**` stands beside something else.
    #[error("** is a segment of its own")]
    Stars,
}

impl Glob {
    /// The pattern that `text` is, percent signs as in addresses.
    pub(crate) fn parse(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::TooLong);
        }
        let mut spelled = String::with_capacity(text.len());
        let mut rest = text.char_indices();
        while let Some((at, letter)) = rest.next() {
            match letter {
                '%' => {
                    let digits = text.get(at + 1..at + 3).filter(|digits| is_hex(digits));
                    let digits = digits.ok_or(GlobError::Byte(at))?;
                    spelled.push('%');
                    spelled.push_str(&digits.to_ascii_uppercase());
                    rest.nth(1);
                }
                '_' | '-' | '.' | '~' | '/' | '*' => spelled.push(letter),
                _ if letter.is_ascii_alphanumeric() => spelled.push(letter),
                _ => return Err(GlobError::Byte(at)),
            }
        }
        if spelled.split('/').any(|segment| segment != "**" && segment.contains("**")) {
            return Err(GlobError::Stars);
        }
        Ok(Self(spelled.into()))
    }

    /// The pattern as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern means the stream at `path`. Takes as many steps as both have segments,
    /// multiplied, at most.
    pub(crate) fn matches(&self, path: &str) -> bool {
        // Nearly all streams of a broker are ruled out here, for each of nearly all patterns.
        let before_stars = self.0.split('*').next().unwrap_or_default();
        if !path.starts_with(before_stars.trim_end_matches('/')) {
            return false;
        }
        let pattern: Vec<&str> = self.0.split('/').collect();
        let path: Vec<&str> = path.split('/').collect();
        matches_with(
            &pattern,
            &path,
            |segment| *segment == "**",
            |pattern, segment| {
                let one = |letter: &u8| *letter == b'*';
                matches_with(pattern.as_bytes(), segment.as_bytes(), one, |a, b| a == b)
            },
        )
    }
}

fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Whether `pattern` means `path`, where an element that `is_any` stands for any number of elements.
/// It is enough to go back to the last of these: what an earlier one could take, that one can.
fn matches_with<T>(
    pattern: &[T],
    path: &[T],
    is_any: impl Fn(&T) -> bool,
    is_same: impl Fn(&T, &T) -> bool,
) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while from < path.len() {
        match pattern.get(at) {
            Some(any) if is_any(any) => {
                back = Some((at + 1, from));
                at += 1;
            }
            Some(one) if is_same(one, &path[from]) => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((behind, taken)) = &mut back else { return false };
                *taken += 1;
                (at, from) = (*behind, *taken);
            }
        }
    }
    pattern[at..].iter().all(is_any)
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn a_star_stays_within_its_segment() {
        for (pattern, path) in [
            ("events/*", "events/a"),
            ("*", "a"),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("events/*/log", "events/a/log"),
            ("user-*", "user-1"),
            ("*-*-x", "a-b-c-x"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("events/*", "events"),
            ("events/*", "events/a/b"),
            ("events/*", "other/a"),
            ("*", "a/b"),
            ("a*c", "a/c"),
            ("user-*", "users"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn two_stars_are_any_segments() {
        for (pattern, path) in [
            ("**", "a"),
            ("**", "a/b/c"),
            ("events/**", "events/a/b"),
            ("events/**", "events"),
            ("**/log", "log"),
            ("**/log", "a/b/log"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/z/c/z"),
            ("**/b/**/d", "a/b/c/d"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("events/**", "event/a"), ("**/log", "a/logs"), ("a/**/z", "a/b")] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_no_path_holds_is_no_pattern() {
        for (text, error) in [
            ("", GlobError::Empty),
            ("a b", GlobError::Byte(1)),
            ("a%2", GlobError::Byte(1)),
            ("a/ä", GlobError::Byte(2)),
            ("a**", GlobError::Stars),
            ("***", GlobError::Stars),
        ] {
            assert_eq!(Glob::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(Glob::parse(&"a".repeat(PATTERN_BYTES_MAX + 1)), Err(GlobError::TooLong));
        assert_eq!(Glob::parse("a%c3%a4/*").unwrap().as_str(), "a%C3%A4/*");
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = format!("{}b", "*a".repeat(PATTERN_BYTES_MAX / 2 - 1));
        assert!(!matches(&pattern, &"a".repeat(200)));
    }

    /// As slow and as plain as can be.
    fn naive(pattern: &[&str], path: &[&str]) -> bool {
        fn segment(pattern: &str, text: &str) -> bool {
            match pattern.chars().next() {
                None => text.is_empty(),
                Some('*') => (0..=text.len()).any(|at| segment(&pattern[1..], &text[at..])),
                Some(letter) => text.starts_with(letter) && segment(&pattern[1..], &text[1..]),
            }
        }
        match pattern.split_first() {
            None => path.is_empty(),
            Some((&"**", rest)) => (0..=path.len()).any(|at| naive(rest, &path[at..])),
            Some((first, rest)) => path
                .split_first()
                .is_some_and(|(one, behind)| segment(first, one) && naive(rest, behind)),
        }
    }

    proptest! {
        #[test]
        fn it_is_as_the_plain_one_says(
            pattern in "(\\*\\*|[ab*]{0,3})(/(\\*\\*|[ab*]{0,3})){0,3}",
            path in "[ab]{0,3}(/[ab]{0,3}){0,4}",
        ) {
            let Ok(glob) = Glob::parse(&pattern) else { return Ok(()) };
            let pattern: Vec<&str> = pattern.split('/').collect();
            let segments: Vec<&str> = path.split('/').collect();
            prop_assert_eq!(glob.matches(&path), naive(&pattern, &segments));
        }
    }
}

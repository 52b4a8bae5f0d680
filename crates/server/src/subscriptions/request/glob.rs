//! Patterns of stream paths: `*` stands for what one segment holds, `**` as a segment for any number
//! of segments. It knows text only.

use std::fmt;

use super::limits::PATTERN_BYTES_MAX;
use crate::broker::path_encoding::{Letter, decoded, put, spelled, stands_anywhere};

/// A star that stands for something. One that stands for itself is written `%2A`.
const STAR: Letter = (b'*', false);

/// A pattern of stream paths, checked. However it was written, it has one spelling: that of names, but that
/// dots stand for themselves wherever they are, for nobody knows what is beside one that is beside a star.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    text: Box<str>,
    /// What the name of every stream begins with that it means.
    beginning: Box<str>,
}

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
        let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        for (at, byte) in text.bytes().enumerate() {
            let may_stand = match byte {
                b'%' => text.get(at + 1..at + 3).filter(is_hex).is_some(),
                b'.' | b'/' | b'*' => true,
                byte => stands_anywhere(byte),
            };
            if !may_stand {
                return Err(GlobError::Byte(at));
            }
        }
        let letters = letters_of(text);
        let mut text = String::with_capacity(text.len());
        for &(byte, was_encoded) in &letters {
            let stands = match byte {
                b'.' => true,
                b'/' | b'*' => !was_encoded,
                byte => stands_anywhere(byte),
            };
            put(byte, stands, &mut text);
        }
        if text.split('/').any(|segment| segment != "**" && segment.contains("**")) {
            return Err(GlobError::Stars);
        }
        Ok(Self { text: text.into(), beginning: beginning_of(&letters).into() })
    }

    /// The pattern as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// What the name of every stream begins with that the pattern means.
    pub(crate) fn beginning(&self) -> &str {
        &self.beginning
    }

    /// Whether the pattern means the stream of the name `path`. Takes as many steps as both have segments,
    /// multiplied, at most.
    pub(crate) fn matches(&self, path: &str) -> bool {
        // Nearly all streams of a broker are ruled out here, for each of nearly all patterns.
        if !path.starts_with(&*self.beginning) {
            return false;
        }
        let pattern: Vec<&str> = self.text.split('/').collect();
        let path: Vec<&str> = path.split('/').collect();
        matches_with(
            &pattern,
            &path,
            |segment| *segment == "**",
            |pattern, segment| {
                // Byte by byte, however each is written: a star takes no half of one.
                let (pattern, segment) = (letters_of(pattern), letters_of(segment));
                matches_with(&pattern, &segment, |letter| *letter == STAR, |a, b| a.0 == b.0)
            },
        )
    }
}

/// The bytes that `text` means, in which every percent sign has its digits.
fn letters_of(text: &str) -> Vec<Letter> {
    decoded(text).unwrap_or_default()
}

/// What every name begins with that a pattern of these letters means. What stands before a star may be the
/// end of a name: a slash is missing then, and a dot is written otherwise.
fn beginning_of(letters: &[Letter]) -> String {
    let before = letters.iter().take_while(|letter| **letter != STAR);
    let mut before: Vec<Letter> = before.copied().collect();
    if before.len() < letters.len() {
        while matches!(before.last(), Some((b'.', _) | (b'/', false))) {
            before.pop();
        }
        // It is not the end, as far as is known.
        before.push((b'x', false));
        let mut beginning = spelled(&before);
        beginning.pop();
        return beginning;
    }
    spelled(&before)
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
        f.write_str(&self.text)
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
    fn a_pattern_means_a_name_however_either_is_written() {
        let named = |path: &str| spelled(&decoded(path).unwrap());
        for (pattern, path) in [
            (".hidden/*", ".hidden/a"),
            ("%2ehidden/*", ".hidden/a"),
            ("%6Frders/*", "orders/a"),
            ("%7Euser", "~user"),
            ("a.*", "a."),
            ("a.*", "a..b"),
            ("a.*", "a.b"),
            ("a..*", "a.."),
            ("*.log", ".log"),
            ("*.log", "a..log"),
            ("**/.log", ".log"),
            ("**/.log", "a/.log"),
            ("a./**", "a."),
            ("a./**", "a./b"),
            ("..", ".."),
            ("a%2Ab", "a*b"),
            ("a%2fb/*", "a%2Fb/c"),
            ("*", "a%2Fb"),
            ("a%20*", "a b"),
        ] {
            assert!(matches(pattern, &named(path)), "{pattern} {path}");
        }
        for (pattern, path) in
            [("a%2Ab", "axb"), ("a*2", "a\""), ("a/b", "a%2Fb"), ("a%2Fb", "a/b"), ("*F", "a/")]
        {
            assert!(!matches(pattern, &named(path)), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_has_one_spelling_which_is_no_longer() {
        for (text, spelling) in [
            ("%6Frders/%2A/*", "orders/%2A/*"),
            ("%2ehidden/**", ".hidden/**"),
            ("a%c3%a4%2f*", "a%C3%A4%2F*"),
            (".a..b.", ".a..b."),
        ] {
            let glob = Glob::parse(text).unwrap();
            assert_eq!(glob.as_str(), spelling);
            assert_eq!(Glob::parse(spelling), Ok(glob), "it is kept so");
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
        fn whatever_is_named_is_meant_by_itself_and_by_stars_in_it(
            path in "[a.%*]{1,3}(/[a.%*]{1,3}){0,2}",
            starred in proptest::collection::vec(any::<bool>(), 12),
        ) {
            let letters: Vec<Letter> =
                path.bytes().map(|byte| (byte, matches!(byte, b'%' | b'*'))).collect();
            let name = spelled(&letters);
            let mut pattern = String::new();
            for (&(byte, was_encoded), is_star) in letters.iter().zip(starred) {
                if is_star && byte != b'/' && !pattern.ends_with('*') {
                    pattern.push('*');
                } else {
                    put(byte, !was_encoded, &mut pattern);
                }
            }
            prop_assert!(matches(&pattern, &name), "{} {}", pattern, name);
        }

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

//! The patterns of rights, over names of topics and keys of the configuration. A pattern may have places that a
//! principal fills, such as `{sub}`. It is checked when it is parsed, and filled once for a principal.

use std::{fmt, str::FromStr};

use crate::limits::PATTERN_BYTES_MAX;

/// The reason why a text is no pattern of a right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty or too long.
    #[error("a pattern has 1 to {PATTERN_BYTES_MAX} bytes, this one has {0}")]
    Length(usize),
    /// The text has a character that neither a name nor a key has.
    #[error("{character:?} at byte {position}: a pattern is made of visible ASCII characters")]
    Character {
        /// The character.
        character: char,
        /// Its position in bytes.
        position: usize,
    },
    /// A wildcard stands beside something else in its part.
    #[error("{0:?}: a wildcard is a whole part, * for any one and > for all that follow")]
    PartOfPart(String),
    /// Something follows `>`.
    #[error("{0:?}: > stands for all that follows, and is the last")]
    NotLast(String),
    /// A place is not closed, is empty, or has a character that no claim's name has.
    #[error("{0:?}: a place is {{sub}}, {{name}}, {{tenant}} or the name of a claim in braces")]
    Place(String),
}

/// A pattern of topic names or keys. Parts are separated by `.` or `/`. A part is a text with places such as `{sub}`, or
/// `*` for any one part; the last part may be `>` for all that follows, at least one character. Wildcards match
/// dead-letter topics, and no name of the broker's own (`__ds/`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RightPattern {
    text: Box<str>,
    tokens: Box<[Token]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Token {
    /// This text.
    Text(Box<str>),
    /// The value that a principal has for it.
    Place(Box<str>),
    /// One part: at least one character, no separator.
    Part,
    /// All that follows, at least one character.
    Rest,
}

/// A pattern whose places are filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledPattern {
    tokens: Box<[Token]>,
    /// Whether it was written for names of the broker's own.
    is_for_reserved: bool,
}

/// The first part of names that are the broker's own.
const RESERVED: &str = "__ds";

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'.' | b'/')
}

impl RightPattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The pattern with its places filled. A value is made one part of a name: bytes other than letters, digits, `_`,
    /// `-` and `~` become `%XX`. `None` if a value is missing or empty.
    pub fn fill<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> Option<FilledPattern> {
        let tokens = self.tokens.iter().map(|token| match token {
            Token::Place(name) => {
                let value = value_of(name).filter(|value| !value.is_empty())?;
                Some(Token::Text(as_part(value).into()))
            }
            other => Some(other.clone()),
        });
        let is_for_reserved =
            matches!(self.tokens.first(), Some(Token::Text(text)) if text.starts_with(RESERVED));
        Some(FilledPattern { tokens: tokens.collect::<Option<_>>()?, is_for_reserved })
    }
}

/// A value as one part of a name.
fn as_part(value: &str) -> String {
    let mut part = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~') {
            part.push(byte.into());
        } else {
            part.push_str(&format!("%{byte:02X}"));
        }
    }
    part
}

impl FilledPattern {
    /// Returns whether a name or key matches. Costs no more than a walk over both.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if !self.is_for_reserved && is_reserved(name) {
            return false;
        }
        let mut rest = name;
        for token in &self.tokens {
            match token {
                Token::Text(text) => match rest.strip_prefix(&**text) {
                    Some(behind) => rest = behind,
                    None => return false,
                },
                Token::Part => {
                    let end = rest.bytes().position(is_separator).unwrap_or(rest.len());
                    if end == 0 {
                        return false;
                    }
                    rest = &rest[end..];
                }
                Token::Rest => return !rest.is_empty(),
                // None is left in a pattern that is filled.
                Token::Place(_) => return false,
            }
        }
        rest.is_empty()
    }
}

impl FilledPattern {
    /// Returns whether all names match that begin with `prefix` and are longer, but for those of the broker's own.
    pub(crate) fn matches_all_behind(&self, prefix: &str) -> bool {
        let mut rest = prefix;
        for token in &self.tokens {
            match token {
                Token::Text(text) => match rest.strip_prefix(&**text) {
                    Some(behind) => rest = behind,
                    None => return false,
                },
                Token::Rest => return true,
                Token::Part | Token::Place(_) => return false,
            }
        }
        false
    }

    /// Returns whether a name may match that begins with `prefix` and is longer. It may say so of a pattern that matches none.
    pub(crate) fn may_match_behind(&self, prefix: &str) -> bool {
        let mut rest = prefix;
        for token in &self.tokens {
            match token {
                Token::Text(text) => match rest.strip_prefix(&**text) {
                    Some(behind) => rest = behind,
                    None => return text.starts_with(rest),
                },
                Token::Rest | Token::Part | Token::Place(_) => return true,
            }
        }
        false
    }
}

fn is_reserved(name: &str) -> bool {
    name.strip_prefix(RESERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl FromStr for RightPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::Length(text.len()));
        }
        if let Some((position, character)) =
            text.char_indices().find(|(_, character)| !character.is_ascii_graphic())
        {
            return Err(PatternError::Character { character, position });
        }
        let mut tokens = Vec::new();
        let mut from = 0;
        loop {
            // A separator within a place is the place's, and refused there.
            let end = part_end(text, from);
            let part = &text[from..end];
            match part {
                "*" => tokens.push(Token::Part),
                ">" if end == text.len() => tokens.push(Token::Rest),
                ">" => return Err(PatternError::NotLast(text.into())),
                part if part.contains(['*', '>']) => {
                    return Err(PatternError::PartOfPart(part.into()));
                }
                part => push_part(part, &mut tokens)?,
            }
            if end == text.len() {
                break;
            }
            push_text(&text[end..=end], &mut tokens);
            from = end + 1;
        }
        Ok(Self { text: text.into(), tokens: tokens.into() })
    }
}

/// Where the part that begins at `from` ends.
fn part_end(text: &str, from: usize) -> usize {
    let mut in_place = false;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            b'{' => in_place = true,
            b'}' => in_place = false,
            byte if is_separator(byte) && !in_place => return at,
            _ => {}
        }
    }
    text.len()
}

/// Adds the tokens of a part without wildcards.
fn push_part(part: &str, tokens: &mut Vec<Token>) -> Result<(), PatternError> {
    let wrong = || PatternError::Place(part.into());
    let mut rest = part;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, place) = rest.split_at(at);
        let (name, behind) =
            place.strip_prefix('{').and_then(|place| place.split_once('}')).ok_or_else(wrong)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(wrong());
        }
        push_text(before, tokens);
        tokens.push(Token::Place(name.into()));
        rest = behind;
    }
    push_text(rest, tokens);
    Ok(())
}

/// Adds a text, to the last one if there is one.
fn push_text(text: &str, tokens: &mut Vec<Token>) {
    if text.is_empty() {
        return;
    }
    match tokens.last_mut() {
        Some(Token::Text(last)) => *last = format!("{last}{text}").into(),
        _ => tokens.push(Token::Text(text.into())),
    }
}

impl fmt::Display for RightPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(pattern: &str) -> FilledPattern {
        let values = |name: &str| match name {
            "sub" => Some("ada"),
            "mail" => Some("a.b@c/d*"),
            "own" => Some("__ds"),
            _ => None,
        };
        pattern.parse::<RightPattern>().unwrap().fill(values).unwrap()
    }

    #[test]
    fn parts_wildcards_and_places_match_names() {
        for (pattern, name, expected) in [
            ("orders", "orders", true),
            ("orders", "orders.eu", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders.dead-letter", true),
            ("orders.*", "orders.eu.new", false),
            ("orders.*", "orders.eu/new", false),
            ("orders.*", "orders/eu", false),
            ("orders/*", "orders/eu", true),
            ("orders.>", "orders.eu/new.x", true),
            ("orders.>", "orders.", false),
            ("orders.>", "ordersx.eu", false),
            (">", "a", true),
            ("*", "a.b", false),
            ("*.*", "a.b", true),
            ("*/x", "a/x", true),
            (">", "__ds/configuration", false),
            ("*/>", "__ds/configuration", false),
            ("*", "__ds", false),
            ("*", "__dsx", true),
            ("__ds/>", "__ds/configuration", true),
            ("{own}/>", "__ds/configuration", false),
            ("user.{sub}.>", "user.ada.inbox", true),
            ("user.{sub}.>", "user.adam.inbox", false),
            ("user-{sub}", "user-ada", true),
            ("{sub}{sub}", "adaada", true),
            ("m.{mail}.x", "m.a%2Eb%40c%2Fd%2A.x", true),
            ("m.{mail}.x", "m.a.b@c/d*.x", false),
        ] {
            assert_eq!(filled(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_place_without_a_value_fills_nothing() {
        let pattern: RightPattern = "user.{team}.>".parse().unwrap();
        assert_eq!(pattern.fill(|_| None), None);
        assert_eq!(pattern.fill(|_| Some("")), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "a b",
            "é",
            "a*",
            "a.b>",
            ">.a",
            "a.{",
            "a.}",
            "{}",
            "{a b}",
            "{a/b}",
            "{{a}}",
            "a.{sub",
            &"x".repeat(PATTERN_BYTES_MAX + 1),
        ] {
            assert!(text.parse::<RightPattern>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_parsed_is_shown_as_it_was(text in "\\PC{0,40}", name in "\\PC{0,40}") {
            if let Ok(pattern) = text.parse::<RightPattern>() {
                prop_assert_eq!(pattern.to_string(), text);
                if let Some(filled) = pattern.fill(|_| Some("x")) {
                    let _ = filled.matches(&name);
                }
            }
        }

        #[test]
        fn no_value_reaches_beyond_its_part(value in "\\PC{1,20}") {
            let pattern: RightPattern = "user.{sub}".parse().unwrap();
            let filled = pattern.fill(|_| Some(&value)).unwrap();
            let name = format!("user.{}", as_part(&value));
            prop_assert!(filled.matches(&name));
            let one_part = "user.*".parse::<RightPattern>().unwrap().fill(|_| None).unwrap();
            prop_assert!(one_part.matches(&name), "{}", name);
        }
    }
}

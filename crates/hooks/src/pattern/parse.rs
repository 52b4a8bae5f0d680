//! A pattern as text, and as the items that are matched one after the other. Characters are bytes.

use sennit_model::limits::HOOK_PATTERN_BYTES_MAX;

use super::PatternError;

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(super) items: Vec<Item>,
    /// Whether it matches at the beginning only.
    pub(super) anchored: bool,
}

/// A part of a pattern.
#[derive(Debug)]
pub(super) enum Item {
    /// A byte of a set, so often.
    One(Set, Repeat),
    /// A capture begins.
    Open,
    /// The last capture that has begun ends.
    Close,
    /// A capture of the place.
    Position,
    /// The text of a capture, by number from 0, comes again.
    Again(usize),
    /// Text between two bytes that occur equally often.
    Balanced(u8, u8),
    /// A byte outside the set is followed by one of it.
    Frontier(Set),
    /// The end of the subject.
    End,
}

/// How often a byte comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeat {
    Once,
    Maybe,
    /// As often as possible, and at least so often.
    Most(usize),
    /// As rarely as possible.
    Least,
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Set([u64; 4]);

impl Set {
    pub(super) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & 1 << (byte & 63) != 0
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn of(test: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::default();
        (0..=255).filter(|byte| test(*byte)).for_each(|byte| set.add(byte));
        set
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, more)| *mine |= more);
    }

    fn inverted(self) -> Self {
        Self(self.0.map(|part| !part))
    }

    /// The class that a letter behind `%` names; of another byte, that byte.
    fn of_class(letter: u8) -> Self {
        let class = match letter.to_ascii_lowercase() {
            b'a' => Self::of(|byte| byte.is_ascii_alphabetic()),
            b'c' => Self::of(|byte| byte.is_ascii_control()),
            b'd' => Self::of(|byte| byte.is_ascii_digit()),
            b'g' => Self::of(|byte| byte.is_ascii_graphic()),
            b'l' => Self::of(|byte| byte.is_ascii_lowercase()),
            b'p' => Self::of(|byte| byte.is_ascii_punctuation()),
            b's' => Self::of(|byte| byte.is_ascii_whitespace() || byte == 0x0b),
            b'u' => Self::of(|byte| byte.is_ascii_uppercase()),
            b'w' => Self::of(|byte| byte.is_ascii_alphanumeric()),
            b'x' => Self::of(|byte| byte.is_ascii_hexdigit()),
            _ => return Self::of(|byte| byte == letter),
        };
        if letter.is_ascii_uppercase() { class.inverted() } else { class }
    }
}

impl Pattern {
    /// Parses a pattern.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, PatternError> {
        if text.len() > HOOK_PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let anchored = text.first() == Some(&b'^');
        let mut parser = Parser { rest: &text[usize::from(anchored)..] };
        let mut items = Vec::with_capacity(parser.rest.len());
        let (mut open, mut begun) = (0_usize, 0_usize);
        while let Some(item) = parser.item()? {
            match item {
                Item::Open => (open, begun) = (open + 1, begun + 1),
                Item::Position => begun += 1,
                Item::Close if open == 0 => {
                    return Err(PatternError::Malformed("unexpected )"));
                }
                Item::Close => open -= 1,
                Item::Again(number) if number >= begun => {
                    return Err(PatternError::Malformed("no capture has this number"));
                }
                _ => {}
            }
            items.push(item);
        }
        if open > 0 {
            return Err(PatternError::Malformed("a capture is not ended"));
        }
        Ok(Self { items, anchored })
    }
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn item(&mut self) -> Result<Option<Item>, PatternError> {
        let Some(byte) = self.next() else { return Ok(None) };
        let set = match byte {
            b'(' if self.rest.first() == Some(&b')') => {
                self.next();
                return Ok(Some(Item::Position));
            }
            b'(' => return Ok(Some(Item::Open)),
            b')' => return Ok(Some(Item::Close)),
            b'$' if self.rest.is_empty() => return Ok(Some(Item::End)),
            b'.' => Set::default().inverted(),
            b'[' => self.set()?,
            b'%' => match self.next() {
                None => return Err(PatternError::Malformed("ends with %")),
                Some(b'b') => {
                    let (Some(open), Some(close)) = (self.next(), self.next()) else {
                        return Err(PatternError::Malformed("missing bytes behind %b"));
                    };
                    return Ok(Some(Item::Balanced(open, close)));
                }
                Some(b'f') => {
                    if self.next() != Some(b'[') {
                        return Err(PatternError::Malformed("missing [ behind %f"));
                    }
                    return Ok(Some(Item::Frontier(self.set()?)));
                }
                Some(digit @ b'1'..=b'9') => {
                    return Ok(Some(Item::Again(usize::from(digit - b'1'))));
                }
                Some(letter) => Set::of_class(letter),
            },
            other => Set::of(|byte| byte == other),
        };
        let repeat = match self.rest.first() {
            Some(b'?') => Repeat::Maybe,
            Some(b'*') => Repeat::Most(0),
            Some(b'+') => Repeat::Most(1),
            Some(b'-') => Repeat::Least,
            _ => return Ok(Some(Item::One(set, Repeat::Once))),
        };
        self.next();
        Ok(Some(Item::One(set, repeat)))
    }

    /// A set, behind its `[`.
    fn set(&mut self) -> Result<Set, PatternError> {
        let missing = PatternError::Malformed("missing ]");
        let inverted = self.rest.first() == Some(&b'^');
        if inverted {
            self.next();
        }
        let mut set = Set::default();
        let mut is_first = true;
        loop {
            let byte = self.next().ok_or(missing)?;
            match byte {
                b']' if !is_first => break,
                b'%' => set.merge(&Set::of_class(self.next().ok_or(missing)?)),
                first => match self.rest {
                    [b'-', last, ..] if *last != b']' => {
                        let last = *last;
                        self.rest = &self.rest[2..];
                        (first..=last).for_each(|byte| set.add(byte));
                    }
                    _ => set.add(first),
                },
            }
            is_first = false;
        }
        Ok(if inverted { set.inverted() } else { set })
    }
}

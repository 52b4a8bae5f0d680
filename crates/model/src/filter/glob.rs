//! Glob patterns: `*` for any bytes, `?` for one character, `\` before one that is meant itself.

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// `?`: a character of UTF-8, or a byte of what is none.
    One,
    /// `*`.
    Any,
}

/// A pattern that a whole value has to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Box<[Part]>,
}

impl Glob {
    pub(super) fn of(pattern: &[u8]) -> Self {
        let mut parts = Vec::with_capacity(pattern.len());
        let mut rest = pattern;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            parts.push(match byte {
                b'*' if parts.last() == Some(&Part::Any) => continue,
                b'*' => Part::Any,
                b'?' => Part::One,
                b'\\' if matches!(rest.first(), Some(b'*' | b'?' | b'\\')) => {
                    let meant = rest[0];
                    rest = &rest[1..];
                    Part::Byte(meant)
                }
                byte => Part::Byte(byte),
            });
        }
        Self { parts: parts.into() }
    }

    /// How many times a byte of a value may be looked at.
    pub(super) fn weight(&self) -> u64 {
        // Only behind a star is there something to try again.
        match self.parts.contains(&Part::Any) {
            true => self.parts.len().max(1) as u64,
            false => 1,
        }
    }

    /// Only the newest star is ever tried again: what an older one took has been found as early as
    /// it can be.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(Part::Byte(byte)) if value.get(at) == Some(byte) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                Some(Part::One) if at < value.len() => {
                    let behind = &value[at + 1..];
                    let more = behind.iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
                    (part, at) = (part + 1, at + 1 + more);
                    continue;
                }
                None if at == value.len() => return true,
                _ => {}
            }
            match star {
                Some((of_star, taken)) if taken < value.len() => {
                    star = Some((of_star, taken + 1));
                    (part, at) = (of_star + 1, taken + 1);
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_whole_values() {
        for (pattern, value, matches) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "é", true),
            ("??", "é", false),
            ("*?", "é", true),
            ("*?€?*", "a€b", true),
            ("*ab*ab", "abxabab", true),
            ("*aab", "aaaaaab", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"a\\b", r"a\b", true),
            (r"a\b", r"a\b", true),
            ("order-*-eu", "order-17-eu", true),
            ("order-*-eu", "order-17-us", false),
        ] {
            assert_eq!(
                Glob::of(pattern.as_bytes()).matches(value.as_bytes()),
                matches,
                "{pattern} {value}"
            );
        }
    }

    #[test]
    fn stars_beside_each_other_are_one() {
        assert_eq!(Glob::of(b"a**b"), Glob::of(b"a*b"));
    }
}

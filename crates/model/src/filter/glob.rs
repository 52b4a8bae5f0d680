//! Glob patterns: `*` for any bytes, `?` for one character, and `\` before a literal character.

/// Bytes of a character of UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// `?`: a character of UTF-8, or one byte of other data.
    One,
    /// `*`.
    Any,
}

/// A pattern that matches whole values.
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

    /// How often a match may examine each byte of a value.
    pub(super) fn weight(&self) -> u64 {
        // Only behind a star is there something to try again.
        if !self.parts.contains(&Part::Any) {
            return 1;
        }
        let looks_at = |part: &Part| match part {
            Part::One => CHARACTER_BYTES_MAX as u64,
            Part::Byte(_) | Part::Any => 1,
        };
        self.parts.iter().map(looks_at).sum()
    }

    /// Only the newest star is retried, because an older star has matched as early as possible.
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
                    let goes_on = |byte: &&u8| **byte & 0xc0 == 0x80;
                    let more =
                        behind.iter().take(CHARACTER_BYTES_MAX - 1).take_while(goes_on).count();
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
            // What was tried begins again within what it had taken.
            ("*aab", "aaab", true),
            ("*a?b*", "aaxb", true),
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
    fn a_question_mark_takes_no_more_bytes_than_a_character_has() {
        // Bytes that go on a character, without one that begins it. If one sign took them all, each would be
        // looked at for each before it where a star has it try again.
        let is_taken = |count| Glob::of(b"?").matches(&[0x80; 5][..count]);
        assert!(is_taken(4) && !is_taken(5));
    }

    #[test]
    fn stars_beside_each_other_are_one() {
        assert_eq!(Glob::of(b"a**b"), Glob::of(b"a*b"));
    }
}

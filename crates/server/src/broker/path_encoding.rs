//! The one spelling of the path of a stream: a byte stands for itself, or is written `%XX`. It knows text only.

/// A byte of a path, and whether it was written `%XX`.
pub(crate) type Letter = (u8, bool);

/// The bytes that `path` means.
pub(crate) fn decoded(path: &str) -> Option<Vec<Letter>> {
    let mut bytes = path.bytes();
    let mut letters = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        letters.push(match byte {
            b'%' => (hex(bytes.next()?)? << 4 | hex(bytes.next()?)?, true),
            byte => (byte, false),
        });
    }
    Some(letters)
}

/// The one spelling of `letters` as a name: a byte that a name may hold stands for itself, but a dot that
/// would make a part of the name empty, and a slash that was written otherwise.
pub(crate) fn spelled(letters: &[Letter]) -> String {
    let mut name = String::with_capacity(letters.len());
    for (at, &(byte, was_encoded)) in letters.iter().enumerate() {
        let is_bound = |at: Option<usize>| {
            let letter = at.and_then(|at| letters.get(at));
            letter.is_none_or(|(byte, _)| *byte == b'.')
        };
        let stands = match byte {
            b'.' => !is_bound(at.checked_sub(1)) && !is_bound(at.checked_add(1)),
            b'/' => !was_encoded,
            byte => stands_anywhere(byte),
        };
        put(byte, stands, &mut name);
    }
    name
}

/// Whether a byte stands for itself wherever it is.
pub(crate) fn stands_anywhere(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~')
}

/// Writes a byte as it stands, or as `%XX`.
pub(crate) fn put(byte: u8, stands: bool, out: &mut String) {
    if stands {
        out.push(char::from(byte));
    } else {
        out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
    }
}

fn digit(half: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(half)])
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(path: &str) -> Option<String> {
        Some(spelled(&decoded(path)?))
    }

    #[test]
    fn one_byte_has_one_spelling() {
        for (path, name) in [
            ("orders", "orders"),
            ("%6Frders", "orders"),
            ("a/b~c-d_e", "a/b~c-d_e"),
            ("a%2Fb", "a%2Fb"),
            ("a%2fb", "a%2Fb"),
            ("a b", "a%20b"),
            ("ä", "%C3%A4"),
            ("%c3%a4", "%C3%A4"),
            ("a+b", "a%2Bb"),
            ("100%25", "100%25"),
            ("v1.2", "v1.2"),
        ] {
            assert_eq!(spelling(path).as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn a_dot_that_would_leave_a_part_empty_is_written_otherwise() {
        for (path, name) in [
            (".updates", "%2Eupdates"),
            ("doc/.updates", "doc/.updates"),
            ("doc/..", "doc/%2E%2E"),
            ("a..b", "a%2E%2Eb"),
            ("a.", "a%2E"),
            ("a.b.c", "a.b.c"),
        ] {
            assert_eq!(spelling(path).as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn a_percent_that_stands_for_nothing_is_refused() {
        for path in ["%", "a%2", "%zz", "%+1"] {
            assert_eq!(spelling(path), None, "{path}");
        }
    }
}

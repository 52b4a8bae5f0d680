//! The delimiter between messages that are printed or read: a newline by default.

use std::str::FromStr;

/// The bytes behind each message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimiter(Vec<u8>);

impl Delimiter {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// No delimiter.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// A zero byte.
    #[must_use]
    pub fn null() -> Self {
        Self(vec![0])
    }
}

impl Default for Delimiter {
    /// A newline.
    fn default() -> Self {
        Self(b"\n".to_vec())
    }
}

impl FromStr for Delimiter {
    type Err = String;

    /// Parses a text with the escapes `\n`, `\r`, `\t`, `\0`, `\\` and `\x1e`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |rest: &str| {
            let sequence: String = rest.chars().take(2).collect();
            format!("{sequence:?} is no escape: write \\n, \\r, \\t, \\0, \\x1e or \\\\")
        };
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            bytes.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at..];
            let (byte, length) = match rest.as_bytes() {
                [_, b'n', ..] => (b'\n', 2),
                [_, b'r', ..] => (b'\r', 2),
                [_, b't', ..] => (b'\t', 2),
                [_, b'0', ..] => (0, 2),
                [_, b'\\', ..] => (b'\\', 2),
                [_, b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    (u8::from_str_radix(&rest[2..4], 16).map_err(|_| wrong(rest))?, 4)
                }
                _ => return Err(wrong(rest)),
            };
            bytes.push(byte);
            rest = &rest[length..];
        }
        bytes.extend_from_slice(rest.as_bytes());
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_is_text_with_escapes() {
        for (text, bytes) in [
            ("", &b""[..]),
            (",", b","),
            ("\\n", b"\n"),
            ("\\0", b"\0"),
            ("a\\tb\\x1e", b"a\tb\x1e"),
            ("\\\\n", b"\\n"),
            ("--\\r\\n", b"--\r\n"),
            ("ä", "ä".as_bytes()),
        ] {
            assert_eq!(text.parse::<Delimiter>().map(|it| it.bytes().to_vec()), Ok(bytes.into()));
        }
        for text in ["\\", "\\q", "\\x1", "\\xzz", "\\ä", "\\xä"] {
            assert!(text.parse::<Delimiter>().unwrap_err().contains("is no escape"), "{text}");
        }
    }
}

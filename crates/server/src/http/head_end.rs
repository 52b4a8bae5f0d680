//! Finds the end of a request's head as its bytes arrive; each byte is looked at once. It refuses bytes that
//! parsers disagree on: a line feed or a carriage return by itself, and NUL. It knows nothing else of a head.

use memchr::memchr3;

use super::bad_request::Refused;

/// How much of the empty line that ends a head has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    /// Within a line.
    #[default]
    Text,
    /// A carriage return behind text.
    Return,
    /// The end of a line.
    Line,
    /// A carriage return at the beginning of a line.
    EmptyLine,
}

/// Finds the end of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadEnd {
    seen: Seen,
    lines: usize,
}

impl HeadEnd {
    /// Begins at the beginning of a line: a section may be empty.
    pub(crate) const fn of_section() -> Self {
        Self { seen: Seen::Line, lines: 0 }
    }

    /// Lines that have ended so far.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Looks at what comes next; returns how many bytes of it belong to the head if it ends here.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        let mut at = 0;
        while at < bytes.len() {
            if self.seen == Seen::Text {
                let Some(text) = memchr3(0, b'\r', b'\n', &bytes[at..]) else { return Ok(None) };
                at += text;
                // Nearly every line ends like this, and another begins.
                if let [b'\r', b'\n', b' '..=b'~', ..] = bytes[at..] {
                    self.lines += 1;
                    at += 3;
                    continue;
                }
            }
            let byte = bytes[at];
            at += 1;
            self.seen = match (self.seen, byte) {
                (_, 0) => return Err(Refused::bad("a NUL byte in the head")),
                (Seen::Text, b'\r') => Seen::Return,
                (Seen::Line, b'\r') => Seen::EmptyLine,
                (Seen::Return, b'\n') => {
                    self.lines += 1;
                    Seen::Line
                }
                (Seen::EmptyLine, b'\n') => return Ok(Some(at)),
                (Seen::Return | Seen::EmptyLine, _) => {
                    return Err(Refused::bad("a carriage return without a line feed"));
                }
                (_, b'\n') => return Err(Refused::bad("a line feed without a carriage return")),
                (Seen::Text | Seen::Line, _) => Seen::Text,
            };
        }
        Ok(None)
    }
}

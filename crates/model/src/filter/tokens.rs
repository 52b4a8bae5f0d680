//! Splits a filter's text into tokens with their positions. It knows no grammar.

use super::error::FilterError;

/// A token of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A keyword, or a field with its name: `and`, `key`, `header.region`.
    Word(&'a str),
    /// The text between quotes, with escapes resolved.
    Text(Vec<u8>),
    /// Digits, with an optional sign, fraction and exponent.
    Number(&'a str),
    /// `(`, `)` or a comparison.
    Symbol(&'a str),
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// The description of the token in an error.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) | Self::Symbol(text) => format!("found `{text}`"),
            Self::Text(text) => format!("found the text {:?}", String::from_utf8_lossy(text)),
            Self::End => "the filter ends here".to_owned(),
        }
    }
}

const SYMBOLS: [&str; 9] = ["(", ")", "!=", "<=", ">=", "=", "<", ">", "~"];

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Iterates over the tokens of a text.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    pub(super) text: &'a str,
    pub(super) position: usize,
}

impl<'a> Tokens<'a> {
    /// The next token and its position.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), FilterError> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.position).is_some_and(u8::is_ascii_whitespace) {
            self.position += 1;
        }
        let start = self.position;
        let rest = &self.text[start..];
        let Some(&first) = rest.as_bytes().first() else { return Ok((start, Token::End)) };
        if first == b'"' || first == b'\'' {
            return Ok((start, Token::Text(self.quoted_text()?)));
        }
        if let Some(sign) = SYMBOLS.into_iter().find(|sign| rest.starts_with(sign)) {
            self.position += sign.len();
            return Ok((start, Token::Symbol(&rest[..sign.len()])));
        }
        let is_number = first.is_ascii_digit() || matches!(first, b'-' | b'+');
        let mut length = rest.bytes().take_while(|&byte| is_word_byte(byte)).count();
        if is_number {
            // `+` is no part of a word, but stands first or in an exponent.
            let is_part = |&(at, byte): &(usize, u8)| {
                is_word_byte(byte) || byte == b'+' && (at == 0 || rest[..at].ends_with(['e', 'E']))
            };
            length = rest.bytes().enumerate().take_while(is_part).count();
        }
        if length == 0 {
            let character = rest.chars().next().unwrap_or_default();
            let wanted = "key, header.NAME, exists, not, or a parenthesis";
            return Err(FilterError::new(start, format!("found {character:?}"), wanted));
        }
        self.position += length;
        let word = &rest[..length];
        Ok((start, if is_number { Token::Number(word) } else { Token::Word(word) }))
    }

    /// The text between the quotes that begin here.
    pub(super) fn quoted_text(&mut self) -> Result<Vec<u8>, FilterError> {
        let bytes = self.text.as_bytes();
        let (start, quote) = (self.position, bytes[self.position]);
        let mut text = Vec::new();
        let mut at = start + 1;
        loop {
            match bytes.get(at) {
                None => {
                    let wanted = format!("a second {} to end it", char::from(quote));
                    return Err(FilterError::new(start, "text without an end", wanted));
                }
                Some(&byte) if byte == quote => break,
                Some(b'\\') => {
                    let (byte, length) = escaped(&bytes[at + 1..]).ok_or_else(|| {
                        let wanted = r#"\\, \", \' or \x and two hexadecimal digits"#;
                        FilterError::new(at, "an escape that there is not", wanted)
                    })?;
                    text.push(byte);
                    at += 1 + length;
                }
                Some(&byte) => {
                    text.push(byte);
                    at += 1;
                }
            }
        }
        self.position = at + 1;
        Ok(text)
    }
}

/// The byte for the escape after a backslash, and the length of the escape.
fn escaped(rest: &[u8]) -> Option<(u8, usize)> {
    match rest {
        [byte @ (b'\\' | b'"' | b'\''), ..] => Some((*byte, 1)),
        [b'x', high, low, ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let byte = digit(*high)? * 16 + digit(*low)?;
            Some((u8::try_from(byte).ok()?, 3))
        }
        _ => None,
    }
}

//! The offset token: how a message's offset is written in headers and addresses. It knows no
//! streams.

use std::fmt;

use http::HeaderValue;
use sennit_model::{Offset, ReadFrom};

/// Reads a token: `-1` for what is kept first, `now` for the end, or one as [`Token`] is written. What stands behind its underscore is
/// of no account: clients count there from one read to the next.
pub(super) fn parse(text: &str) -> Option<ReadFrom> {
    match text {
        "-1" => Some(ReadFrom::Earliest),
        "now" => Some(ReadFrom::Latest),
        _ => {
            let (offset, rest) = text.split_once('_')?;
            let is_number = |part: &str| {
                (1..=16).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
            };
            let offset = offset.parse().ok().filter(|_| is_number(offset) && is_number(rest));
            offset.map(|offset| ReadFrom::Offset(Offset(offset)))
        }
    }
}

/// An offset as it is written: 16 digits, an underscore and 16 zeros, so that tokens sort as offsets
/// do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) Offset);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016}_{:016}", self.0.0, 0)
    }
}

impl From<Token> for HeaderValue {
    fn from(token: Token) -> Self {
        let mut text = *b"0000000000000000_0000000000000000";
        let mut rest = token.0.0;
        for digit in text[..16].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self::from_bytes(&text).expect("digits and an underscore can stand in a header")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for offset in [0, 1, 42, 9_999_999_999_999_999] {
            let token = Token(Offset(offset));
            assert_eq!(parse(&token.to_string()), Some(ReadFrom::Offset(Offset(offset))));
            assert_eq!(HeaderValue::from(token), token.to_string());
        }
        assert_eq!(Token(Offset(7)).to_string(), "0000000000000007_0000000000000000");
    }

    #[test]
    fn what_is_behind_the_underscore_is_of_no_account() {
        assert_eq!(parse("0000000000000003_0000000000000001"), Some(ReadFrom::Offset(Offset(3))));
        assert_eq!(parse("3_99"), Some(ReadFrom::Offset(Offset(3))));
    }

    #[test]
    fn the_start_and_the_end_have_words() {
        assert_eq!((parse("-1"), parse("now")), (Some(ReadFrom::Earliest), Some(ReadFrom::Latest)));
    }

    #[test]
    fn all_else_is_no_token() {
        for text in [
            "",
            "0",
            "_",
            "0_",
            "_0",
            "0,1",
            "0 1",
            "0_0 ",
            "../0_0",
            "0_0/..",
            "0_0\0",
            "0_0\r\n",
            "+1_0",
            "NOW",
            "-2",
            "00000000000000000_0",
            "0_00000000000000000",
            "1_0_0",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

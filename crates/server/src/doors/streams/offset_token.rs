//! The offset token: how a stream's offset is written in headers and addresses. It knows no streams.

use std::fmt;

use http::HeaderValue;
use sennit_model::{Offset, ReadFrom};

use crate::broker::stream_offset::{IncarnationTag, StreamOffset, UNUSED};

/// Where a client wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Where what is kept begins.
    Earliest,
    /// At the end.
    Latest,
    /// At this offset, of the stream that it was given of.
    At(StreamOffset),
}

impl Position {
    /// Where that is in the stream that it is of.
    pub(super) fn read_from(self) -> ReadFrom {
        match self {
            Self::Earliest => ReadFrom::Earliest,
            Self::Latest => ReadFrom::Latest,
            Self::At(offset) => ReadFrom::Offset(offset.at),
        }
    }

    /// Which stream it is of, if it is of one.
    pub(super) fn of(self) -> Option<IncarnationTag> {
        match self {
            Self::At(offset) if offset != StreamOffset::BEGINNING => Some(offset.of),
            _ => None,
        }
    }
}

/// Reads a token: `-1` for what is kept first, `now` for the end, or one as [`Token`] is written. An
/// offset that names no stream is none, but for the first one, `0_0`.
pub(super) fn parse(text: &str) -> Option<Position> {
    match text {
        "-1" => Some(Position::Earliest),
        "now" => Some(Position::Latest),
        _ => {
            let (offset, rest) = text.split_once('_')?;
            let is_number = |part: &str| {
                (1..=16).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
            };
            if !(is_number(offset) && is_number(rest)) {
                return None;
            }
            let (at, rest) = (offset.parse().ok()?, rest.parse::<u64>().ok()?);
            let of = IncarnationTag::of_number(rest / UNUSED)?;
            let offset = StreamOffset { of, at: Offset(at) };
            let names_a_stream = of != IncarnationTag::NONE;
            (names_a_stream || offset == StreamOffset::BEGINNING).then_some(Position::At(offset))
        }
    }
}

/// An offset as it is written in headers and addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) StreamOffset);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Token> for HeaderValue {
    fn from(token: Token) -> Self {
        let mut text = *b"0000000000000000_0000000000000000";
        put_digits(token.0.at.0, &mut text[..16]);
        put_digits(token.0.of.number() * UNUSED, &mut text[17..]);
        Self::from_bytes(&text).expect("digits and an underscore can stand in a header")
    }
}

fn put_digits(mut number: u64, places: &mut [u8]) {
    for digit in places.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::Incarnation;

    use super::*;

    fn offset(at: u64, incarnation: u64) -> StreamOffset {
        StreamOffset { of: IncarnationTag::of(Incarnation(incarnation)), at: Offset(at) }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for at in [0, 1, 42, 9_999_999_999_999_999] {
            for incarnation in [0, 6, u64::MAX] {
                let token = Token(offset(at, incarnation));
                let read = parse(&token.to_string());
                assert_eq!(read, Some(Position::At(offset(at, incarnation))));
                assert_eq!(HeaderValue::from(token), token.to_string());
            }
        }
        assert_eq!(Token(offset(7, 6)).to_string(), "0000000000000007_0000000000070000");
    }

    #[test]
    fn clients_may_count_in_the_last_digits() {
        // As a JavaScript number: 2^53 is not reached.
        let largest = Token(StreamOffset {
            of: IncarnationTag::of(Incarnation(899_999_999_998)),
            at: Offset(3),
        });
        let (_, rest) =
            largest.to_string().split_once('_').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(rest.parse::<u64>().unwrap() + UNUSED < 1 << 53);
        let counted = parse("0000000000000003_0000000000070001");
        assert_eq!(counted, Some(Position::At(offset(3, 6))));
        assert_eq!(parse("3_79999"), Some(Position::At(offset(3, 6))));
    }

    #[test]
    fn the_start_and_the_end_have_words() {
        assert_eq!((parse("-1"), parse("now")), (Some(Position::Earliest), Some(Position::Latest)));
        let zero = "0000000000000000_0000000000000000";
        for zero in [zero, "0_0", "0_9999"] {
            assert_eq!(parse(zero), Some(Position::At(StreamOffset::BEGINNING)), "{zero}");
        }
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
            // No stream has that name.
            "9999999999999999_9999999999999999",
            // It names no stream.
            "1_0",
            "0000000000000003_0000000000000001",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

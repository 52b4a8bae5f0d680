//! Server-sent events as bytes: the content of a read, and behind it the offset to continue at. It knows no streams
//! and no time.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use sennit_engine::media_type;

use super::{content::Form, offset_token::Token, query::Live};
use crate::broker::stream_offset::StreamOffset;

/// How what a stream holds stands in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Line by line: all but carriage returns arrives as it is.
    Text,
    /// In base64, since it need not be text.
    Base64,
}

impl Encoding {
    /// That of streams of that type, for one who wants to be told so.
    pub(super) fn of(content_type: &str, live: Live) -> Self {
        if live == Live::Base64Events {
            return Self::Base64;
        }
        let media_type = media_type(content_type);
        let is_text = media_type.get(..5).is_some_and(|kind| kind.eq_ignore_ascii_case("text/"));
        if is_text || Form::of(content_type) == Form::Json { Self::Text } else { Self::Base64 }
    }
}

/// A comment, which says that the connection still stands.
pub(crate) const KEEP_ALIVE: &[u8] = b":\n\n";

/// Where a reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) next: StreamOffset,
    pub(super) is_up_to_date: bool,
    pub(super) is_closed: bool,
    pub(super) cursor: u64,
}

/// Adds the event that carries `pieces`.
pub(super) fn put_data(out: &mut BytesMut, encoding: Encoding, pieces: &[Bytes]) {
    out.put_slice(b"event: data\ndata:");
    match encoding {
        Encoding::Text => put_lines(out, pieces),
        Encoding::Base64 => {
            let whole = match pieces {
                [piece] => piece.clone(),
                pieces => Bytes::from(pieces.concat()),
            };
            let at = out.len();
            let length = whole.len().div_ceil(3) * 4;
            out.resize(at + length, 0);
            let written = STANDARD.encode_slice(&whole, &mut out[at..]);
            debug_assert_eq!(written, Ok(length));
        }
    }
    out.put_slice(b"\n\n");
}

/// Adds text as lines of one event, whatever its lines end with: nothing that it holds ends the event. A
/// carriage return ends a line of events as well, so that it arrives as a line feed, and with a line feed
/// behind it as one.
fn put_lines(out: &mut BytesMut, pieces: &[Bytes]) {
    let (mut begins, mut after_return) = (true, false);
    for piece in pieces {
        let mut rest = &piece[..];
        while let Some(&first) = rest.first() {
            if after_return && first == b'\n' {
                rest = &rest[1..];
                after_return = false;
                continue;
            }
            // A reader drops one space at a line's beginning.
            if begins && first == b' ' {
                out.put_u8(b' ');
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            out.put_slice(line);
            (begins, after_return) = (false, false);
            rest = after;
            if let [ending, after @ ..] = after {
                out.put_slice(b"\ndata:");
                (begins, after_return) = (true, *ending == b'\r');
                rest = after;
            }
        }
    }
}

/// Adds the event that says where to go on. Its id says it too, for browsers that come again by
/// themselves.
pub(super) fn put_control(out: &mut BytesMut, place: Place) {
    let token = Token(place.next);
    let rest = match place {
        Place { is_closed: true, .. } => ",\"upToDate\":true,\"streamClosed\":true".to_owned(),
        Place { cursor, is_up_to_date: true, .. } => {
            format!(",\"streamCursor\":\"{cursor}\",\"upToDate\":true")
        }
        Place { cursor, .. } => format!(",\"streamCursor\":\"{cursor}\""),
    };
    write!(out, "id: {token}\nevent: control\ndata:{{\"streamNextOffset\":\"{token}\"{rest}}}\n\n")
        .expect("a buffer grows as needed");
}

#[cfg(test)]
mod tests {
    use sennit_model::Offset;

    use super::*;
    use crate::broker::stream_offset::IncarnationTag;

    fn data(encoding: Encoding, pieces: &[&'static str]) -> String {
        let pieces: Vec<Bytes> =
            pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let mut out = BytesMut::new();
        put_data(&mut out, encoding, &pieces);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn text_stands_line_by_line() {
        for (pieces, lines) in [
            (&["plain"][..], &["plain"][..]),
            (&["a\nb\r\nc\rd"], &["a", "b", "c", "d"]),
            (&["a\n\nb"], &["a", "", "b"]),
            (&["a\r\rb"], &["a", "", "b"]),
            (&["a\r", "\nb"], &["a", "b"]),
            (&["a\r", "b"], &["a", "b"]),
            (&["a\n", "\nb"], &["a", "", "b"]),
            (&["end\n"], &["end", ""]),
            (&[" space"], &["  space"]),
            (&["a", " b"], &["a b"]),
            (&["a\n b"], &["a", "  b"]),
        ] {
            let expected: String = lines.iter().map(|line| format!("data:{line}\n")).collect();
            assert_eq!(data(Encoding::Text, pieces), format!("event: data\n{expected}\n"));
        }
    }

    #[test]
    fn text_cannot_pretend_to_be_another_event() {
        let event = data(Encoding::Text, &["safe\r\n\r\nevent: control\r\ndata: {}\r\n\r\n"]);
        assert_eq!(event.matches("\n\n").count(), 1);
        assert!(event.contains("data:event: control\n") && event.ends_with("data:\n\n"));
        assert!(!event.contains('\r'));
    }

    #[test]
    fn bytes_are_joined_before_they_are_encoded() {
        assert_eq!(data(Encoding::Base64, &["Hello"]), "event: data\ndata:SGVsbG8=\n\n");
        assert_eq!(data(Encoding::Base64, &["He", "llo"]), "event: data\ndata:SGVsbG8=\n\n");
    }

    #[test]
    fn only_text_and_json_are_text() {
        for text in ["text/plain", "TEXT/html; charset=utf-8", "application/json"] {
            assert_eq!(Encoding::of(text, Live::Events), Encoding::Text, "{text}");
            assert_eq!(Encoding::of(text, Live::Base64Events), Encoding::Base64, "{text}");
        }
        for bytes in ["application/octet-stream", "image/png", "application/x-protobuf", "", "tex"]
        {
            assert_eq!(Encoding::of(bytes, Live::Events), Encoding::Base64, "{bytes}");
        }
    }

    #[test]
    fn a_control_event_says_where_to_go_on() {
        let place = |is_up_to_date, is_closed| {
            let of = IncarnationTag::of_number(3).unwrap();
            let next = StreamOffset { of, at: Offset(7) };
            let place = Place { next, is_up_to_date, is_closed, cursor: 5 };
            let mut out = BytesMut::new();
            put_control(&mut out, place);
            let text = String::from_utf8(out.to_vec()).unwrap();
            let token = "0000000000000007_0000000000030000";
            let json = text.strip_prefix(&format!("id: {token}\nevent: control\ndata:")).unwrap();
            let json: serde_json::Value = serde_json::from_str(json.trim_end()).unwrap();
            assert_eq!(json["streamNextOffset"], token);
            json
        };
        let on_the_way = place(false, false);
        assert_eq!(on_the_way["streamCursor"], "5");
        assert!(on_the_way.get("upToDate").is_none());
        assert_eq!(place(true, false)["upToDate"], true);
        let closed = place(true, true);
        assert_eq!(closed["streamClosed"], true);
        assert!(closed.get("streamCursor").is_none());
    }
}

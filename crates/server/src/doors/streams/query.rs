//! The query of a read: its offset, and whether the read is live. It knows no headers.

use std::borrow::Cow;

use super::{
    cursor, name,
    offset_token::{self, Position},
    refusals::Problem,
};

/// How a reader stays for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Live {
    /// One answer, once there is something.
    LongPoll,
    /// Server-sent events, each as its stream's type has it.
    Events,
    /// The same, all in base64: an event cannot hold a carriage return otherwise.
    Base64Events,
}

impl Live {
    /// Whether it is one of those with events.
    pub(crate) fn is_events(self) -> bool {
        matches!(self, Self::Events | Self::Base64Events)
    }
}

/// The query of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadQuery {
    pub(super) at: Position,
    pub(super) live: Option<Live>,
    /// The cursor of the answer before.
    pub(super) cursor: Option<u64>,
}

/// Reads the query of an address. Parameters that nobody knows are passed over.
///
/// # Errors
/// The offset, `live` or `encoding` is nothing that is known, is given twice, or the offset is missing
/// where one stays.
pub(super) fn parse(query: &str) -> Result<ReadQuery, Problem> {
    let (mut offset, mut live, mut cursor, mut encoding) = (None, None, None, None);
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match name {
            "offset" => &mut offset,
            "live" => &mut live,
            "cursor" => &mut cursor,
            "encoding" => &mut encoding,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Err(Problem::bad(format!("{name} is given twice")));
        }
    }
    let live = match live {
        None => None,
        Some("long-poll") => Some(Live::LongPoll),
        Some("sse") if encoding == Some("base64") => Some(Live::Base64Events),
        Some("sse") => Some(Live::Events),
        Some(_) => return Err(Problem::bad("live is long-poll or sse")),
    };
    if encoding.is_some() && live != Some(Live::Base64Events) {
        return Err(Problem::bad("encoding is base64, and goes with live=sse"));
    }
    let at = match offset {
        None if live.is_some() => return Err(Problem::bad("a live read needs an offset")),
        None => Position::Earliest,
        Some(text) => {
            let position = decoded(text).and_then(|text| offset_token::parse(&text));
            position.ok_or_else(|| no_offset(text))?
        }
    };
    Ok(ReadQuery { at, live, cursor: cursor.and_then(cursor::parse) })
}

/// The refusal of a text that is no offset.
pub(super) fn no_offset(text: &str) -> Problem {
    let detail =
        format!("{text:?} is no offset: it is -1, now, or what Stream-Next-Offset has said");
    Problem::new(http::StatusCode::BAD_REQUEST, "invalid_offset", detail)
}

/// `text` without `%XX`; `None` where that is not text.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    name::text(text).map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::stream_offset::StreamOffset;

    #[test]
    fn a_read_begins_at_the_start_unless_it_says_otherwise() {
        let query = |at, live, cursor| ReadQuery { at, live, cursor };
        for (query, expected) in [
            ("", query(Position::Earliest, None, None)),
            ("offset=-1&foo=bar&baz", query(Position::Earliest, None, None)),
            ("offset=0_0", query(Position::At(StreamOffset::BEGINNING), None, None)),
            ("offset=%30_0", query(Position::At(StreamOffset::BEGINNING), None, None)),
            ("offset=now&live=sse", query(Position::Latest, Some(Live::Events), None)),
            (
                "cursor=7&live=long-poll&offset=-1",
                query(Position::Earliest, Some(Live::LongPoll), Some(7)),
            ),
            (
                "offset=-1&live=sse&encoding=base64",
                query(Position::Earliest, Some(Live::Base64Events), None),
            ),
            ("cursor=x", query(Position::Earliest, None, None)),
        ] {
            assert_eq!(parse(query).unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn what_is_no_read_is_refused() {
        for query in [
            "offset=",
            "offset",
            "offset=a&offset=b",
            "offset=0_0&offset=0_0",
            "offset=0,1",
            "offset=0%201",
            "offset=0+1",
            "offset=0_0%00",
            "offset=%ff",
            "offset=%3",
            "offset=..%2F0_0",
            "live=long-poll",
            "live=sse",
            "offset=-1&live=ever",
            "offset=-1&live=sse&encoding=hex",
            "offset=-1&live=long-poll&encoding=base64",
            "encoding=base64",
        ] {
            assert_eq!(parse(query).unwrap_err().status(), 400, "{query}");
        }
    }
}

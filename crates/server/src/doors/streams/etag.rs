//! The entity tag of a read: the stream, the range, and whether the range ends at the final end. It knows no
//! bodies.

use http::header::IF_NONE_MATCH;
use sennit_engine::StreamChunk;

use crate::{broker::stream_offset::Identified, http::request::Headers};

/// The tag of `chunk`, quotes and all. One of a stream that was created anew differs, one of a
/// stream that was closed since too.
pub(super) fn of(chunk: &Identified<StreamChunk>) -> String {
    let closed = if chunk.answer.is_closed { ":c" } else { "" };
    format!("\"{}:{}:{}{closed}\"", chunk.of.number(), chunk.answer.first.0, chunk.answer.next.0)
}

/// Whether who asks has what `etag` is the tag of.
pub(super) fn is_known(headers: &Headers, etag: &str) -> bool {
    headers.all(&IF_NONE_MATCH).filter_map(|value| str::from_utf8(value).ok()).any(|value| {
        value
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_engine::StreamSettings;
    use sennit_model::{Offset, TopicId};

    use super::*;
    use crate::{broker::stream_offset::IncarnationTag, http::request::Request};

    fn chunk(tag: u64, next: u64, is_closed: bool) -> Identified<StreamChunk> {
        let answer = StreamChunk {
            topic: TopicId(1),
            first: Offset(1),
            next: Offset(next),
            is_up_to_date: true,
            is_closed,
            rest: None,
            messages: Vec::new(),
            settings: Arc::new(StreamSettings::of_topic()),
        };
        Identified { of: IncarnationTag::of_number(tag).unwrap(), answer }
    }

    #[test]
    fn data_closing_and_creation_each_change_it() {
        let tags = [
            of(&chunk(7, 2, false)),
            of(&chunk(7, 3, false)),
            of(&chunk(7, 2, true)),
            of(&chunk(8, 2, false)),
        ];
        assert_eq!(tags[0], "\"7:1:2\"");
        assert_eq!(tags[2], "\"7:1:2:c\"");
        assert_ne!(tags[0], tags[1]);
        assert_ne!(tags[0], tags[3]);
    }

    #[test]
    fn it_is_found_in_a_list_weak_or_not() {
        for (value, is) in [
            ("\"7:1:2\"", true),
            ("\"a\", W/\"7:1:2\"", true),
            ("*", true),
            ("\"7:1:2:c\"", false),
            ("7:1:2", false),
            ("", false),
        ] {
            let request = Request::with_headers(&[("if-none-match", value)]);
            assert_eq!(is_known(request.headers(), "\"7:1:2\""), is, "{value:?}");
        }
        assert!(!is_known(Request::with_headers(&[]).headers(), "\"7:1:2\""));
    }
}

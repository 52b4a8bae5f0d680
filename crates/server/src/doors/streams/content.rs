//! The content of streams: a body becomes the messages of a batch, messages become a body. Bytes are cut and
//! joined; a JSON array is split into its elements and put together again.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use sennit_engine::{Content, media_type};
use sennit_model::{
    Batch, BatchBuilder, BatchError, Message, Messages,
    limits::{APPEND_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN},
};
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::refusals::Problem;

/// What a stream's content is to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes: an append is a message, a read gives them joined.
    Bytes,
    /// JSON: an element is a message, a read gives an array.
    Json,
}

/// Arrays and objects within each other, at most: what any reader's parser can take.
const JSON_DEPTH_MAX: usize = 128;

/// A longer payload goes out as it lies, a shorter one is copied.
const COPIED_BYTES_MAX: usize = 16 << 10;

impl Form {
    /// The form of what is of that type.
    pub(super) fn of(content_type: &str) -> Self {
        if media_type(content_type).eq_ignore_ascii_case("application/json") {
            Self::Json
        } else {
            Self::Bytes
        }
    }
}

/// The messages that `body` is; `None` if there are none: no bytes, or an empty array.
///
/// # Errors
/// It is no JSON where it has to be, or too much.
pub(super) fn content_of(form: Form, body: &Bytes) -> Result<Option<Content>, Problem> {
    match form {
        _ if body.is_empty() => Ok(None),
        Form::Bytes => content_of_bytes(body),
        Form::Json => content_of_json(body),
    }
}

fn content_of_bytes(body: &Bytes) -> Result<Option<Content>, Problem> {
    let piece = MESSAGE_BYTES_MAX - MESSAGE_BYTES_MIN;
    let pieces = body.len().div_ceil(piece);
    let mut batch = BatchBuilder::for_append(body.len() + pieces * MESSAGE_BYTES_MIN);
    let mut rest = body.clone();
    while !rest.is_empty() {
        let cut = cut_of(&rest, piece);
        batch.push(&Message::new(rest.split_to(cut))).map_err(of_batch)?;
    }
    Ok(batch.take().map(Content::from))
}

/// Where `bytes` are cut so that at most `most` lie before: should they be text, in no character and
/// in no end of a line, for each piece is an event of its own.
fn cut_of(bytes: &[u8], most: usize) -> usize {
    if bytes.len() <= most {
        return bytes.len();
    }
    let begins = |at: &usize| bytes[*at] & 0xC0 != 0x80;
    let cut = (most - 3..=most).rev().find(begins).unwrap_or(most);
    if bytes[cut - 1..=cut] == *b"\r\n" { cut - 1 } else { cut }
}

fn content_of_json(body: &Bytes) -> Result<Option<Content>, Problem> {
    let wrong = |error: serde_json::Error| {
        Problem::new(http::StatusCode::BAD_REQUEST, "invalid_json", format!("no JSON: {error}"))
    };
    if depth_exceeds(body, JSON_DEPTH_MAX) {
        let detail = format!("JSON_DEPTH_MAX is {JSON_DEPTH_MAX}");
        return Err(Problem::new(http::StatusCode::BAD_REQUEST, "limit_reached", detail));
    }
    let is_array = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if !is_array {
        let value: &RawValue = serde_json::from_slice(body).map_err(wrong)?;
        let text = body.slice_ref(value.get().as_bytes());
        let mut batch = BatchBuilder::for_append(text.len() + MESSAGE_BYTES_MIN);
        batch.push(&Message::new(text)).map_err(of_batch)?;
        return Ok(batch.take().map(Content::from));
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    let mut elements = Elements {
        body,
        full: Vec::new(),
        batch: BatchBuilder::for_append(body.len() + MESSAGE_BYTES_MIN),
        left: APPEND_BYTES_MAX,
        refused: None,
    };
    let parsed = parser.deserialize_seq(&mut elements).and_then(|()| parser.end());
    if let Some(refused) = elements.refused {
        return Err(refused);
    }
    parsed.map_err(wrong)?;
    Ok(Content::of(elements.full.into_iter().chain(elements.batch.take())))
}

/// Makes a message of each element of an array.
struct Elements<'a> {
    body: &'a Bytes,
    /// Batches that hold as many as one can.
    full: Vec<Batch>,
    batch: BatchBuilder,
    /// Bytes that may still be appended at once.
    left: usize,
    /// Why it goes no further, if that is not the text's fault.
    refused: Option<Problem>,
}

impl<'de> Visitor<'de> for &mut Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element::<&RawValue>()? {
            let text = self.body.slice_ref(element.get().as_bytes());
            if let Err(refused) = self.take(&Message::new(text)) {
                self.refused = Some(refused);
                return Err(A::Error::custom("too much"));
            }
        }
        Ok(())
    }
}

impl Elements<'_> {
    fn take(&mut self, message: &Message) -> Result<(), Problem> {
        if self.batch.count() as usize == BATCH_MESSAGES_MAX {
            self.full.extend(self.batch.take());
            self.batch = BatchBuilder::for_append(self.full[0].bytes().len().min(self.left));
        }
        let before = self.batch.byte_count();
        self.batch.push(message).map_err(of_batch)?;
        let taken = self.batch.byte_count() - before;
        let left = self.left.checked_sub(taken);
        self.left = left.ok_or_else(|| Problem::too_large("APPEND_BYTES_MAX", APPEND_BYTES_MAX))?;
        Ok(())
    }
}

fn of_batch(error: BatchError) -> Problem {
    match error {
        BatchError::TooLong { .. } => Problem::too_large("APPEND_BYTES_MAX", APPEND_BYTES_MAX),
        BatchError::MessageTooLong { .. } => {
            Problem::too_large("MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX)
        }
        error => Problem::bad(error.to_string()),
    }
}

/// Whether more than `most` arrays and objects are open at once anywhere in `text`.
fn depth_exceeds(text: &[u8], most: usize) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    if text.len() <= most {
        return false;
    }
    for byte in text {
        if in_text {
            (in_text, escaped) = match byte {
                _ if escaped => (true, false),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (true, false),
            };
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return true;
        }
    }
    false
}

/// The payloads of `messages`, as one body in pieces: joined, or as a JSON array. `messages` are
/// parts that hold whole messages each.
pub(super) fn pieces_of(form: Form, messages: &[Bytes]) -> Vec<Bytes> {
    Joining::new(form).join(messages, true)
}

/// A body of payloads that come a few at a time.
#[derive(Debug)]
pub(super) struct Joining {
    form: Form,
    /// What stands before the next element of an array.
    opening: &'static [u8],
}

impl Joining {
    pub(super) fn new(form: Form) -> Self {
        Self { form, opening: b"[" }
    }

    /// The pieces that `messages`, which come next, are in the body; with its end, if they are the last.
    pub(super) fn join(&mut self, messages: &[Bytes], are_last: bool) -> Vec<Bytes> {
        let bytes: usize = messages.iter().map(Bytes::len).sum();
        let mut pieces = Pieces { done: Vec::new(), open: BytesMut::new(), left: bytes + 2 };
        for part in messages {
            for message in Messages::of_checked(part) {
                if self.form == Form::Json {
                    pieces.copy(self.opening);
                    self.opening = b",";
                }
                match message.payload() {
                    long if long.len() > COPIED_BYTES_MAX => pieces.share(part.slice_ref(long)),
                    short => pieces.copy(short),
                }
            }
        }
        if are_last && self.form == Form::Json {
            pieces.copy(if self.opening == b"[" { b"[]" } else { b"]" });
        }
        pieces.take()
    }
}

/// A body that grows.
struct Pieces {
    done: Vec<Bytes>,
    open: BytesMut,
    /// How much may still come, at most.
    left: usize,
}

impl Pieces {
    fn copy(&mut self, bytes: &[u8]) {
        if self.open.is_empty() && !bytes.is_empty() {
            self.open.reserve(self.left.min(4 * COPIED_BYTES_MAX).max(bytes.len()));
        }
        self.left = self.left.saturating_sub(bytes.len());
        self.open.put_slice(bytes);
    }

    fn share(&mut self, bytes: Bytes) {
        self.left = self.left.saturating_sub(bytes.len());
        self.close();
        self.done.push(bytes);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(self.open.split().freeze());
        }
    }

    fn take(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(form: Form, body: &'static str) -> Vec<String> {
        let content = content_of(form, &Bytes::from_static(body.as_bytes())).unwrap();
        let messages = content.iter().flat_map(Content::messages);
        messages.map(|message| String::from_utf8_lossy(message.payload()).into_owned()).collect()
    }

    fn parts_of(content: &Content) -> Vec<Bytes> {
        content.batches().map(|batch| batch.bytes().clone()).collect()
    }

    fn read(form: Form, bodies: &[&'static str]) -> String {
        let parts: Vec<Bytes> = bodies
            .iter()
            .filter_map(|body| content_of(form, &Bytes::from_static(body.as_bytes())).unwrap())
            .flat_map(|content| parts_of(&content))
            .collect();
        String::from_utf8(pieces_of(form, &parts).concat()).unwrap()
    }

    #[test]
    fn a_long_text_is_cut_beside_characters_and_ends_of_lines() {
        for (text, cut) in [("abcdefgh", 6), ("abcd\u{20ac}h", 4), ("abcde\r\nh", 5), ("ab", 2)] {
            assert_eq!(cut_of(text.as_bytes(), 6), cut, "{text:?}");
        }
        assert_eq!(cut_of(&[0x80; 8], 6), 6, "it is no text");
        let long = Bytes::from("\u{20ac}".repeat(MESSAGE_BYTES_MAX / 2));
        let content = content_of(Form::Bytes, &long).unwrap();
        let pieces: Vec<_> = content.iter().flat_map(Content::messages).collect();
        assert!(
            pieces.len() > 1 && pieces.iter().all(|piece| str::from_utf8(piece.payload()).is_ok())
        );
        let whole: Vec<_> = pieces.iter().map(|piece| piece.payload()).collect();
        assert!(whole.concat() == long);
    }

    #[test]
    fn only_json_is_json() {
        for json in ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8"] {
            assert_eq!(Form::of(json), Form::Json, "{json}");
        }
        for other in ["text/plain", "application/ndjson", "application/ld+json", "", "json"] {
            assert_eq!(Form::of(other), Form::Bytes, "{other}");
        }
    }

    #[test]
    fn an_array_is_taken_apart_by_one_level() {
        for (body, expected) in [
            (r#"{"a":1}"#, &[r#"{"a":1}"#][..]),
            ("[1,2]", &["1", "2"]),
            (" [ 1 , \"x, y\" ]\n", &["1", "\"x, y\""]),
            ("[[1,2],[3,4]]", &["[1,2]", "[3,4]"]),
            ("[[[1]]]", &["[[1]]"]),
            ("[[]]", &["[]"]),
            ("null", &["null"]),
            ("  \"text\"  ", &["\"text\""]),
            ("[]", &[]),
            (" [ ] ", &[]),
            ("", &[]),
        ] {
            assert_eq!(payloads(Form::Json, body), expected, "{body}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for body in
            ["{ invalid json }", "[1,", "[1]]", "1 2", "[1,]", "'a'", "[1] x", "\"\u{1}\"", " "]
        {
            let problem = content_of(Form::Json, &Bytes::from_static(body.as_bytes())).unwrap_err();
            assert_eq!(problem.code(), "invalid_json", "{body:?}");
        }
        let problem = content_of(Form::Json, &Bytes::from_static(b"\"\xff\"")).unwrap_err();
        assert_eq!(problem.code(), "invalid_json");
    }

    #[test]
    fn a_body_is_read_as_it_was_written() {
        assert_eq!(read(Form::Bytes, &["a", "", "bc\n"]), "abc\n");
        assert_eq!(read(Form::Bytes, &[]), "");
        assert_eq!(read(Form::Json, &["[1,2]", "{\"a\": [3]}"]), "[1,2,{\"a\": [3]}]");
        assert_eq!(read(Form::Json, &[]), "[]");
    }

    #[test]
    fn a_long_payload_is_not_copied() {
        let body = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let content = content_of(Form::Bytes, &body).unwrap().unwrap();
        let part = parts_of(&content).remove(0);
        let pieces = pieces_of(Form::Bytes, std::slice::from_ref(&part));
        assert_eq!(pieces, [body]);
        assert!(part.as_ptr_range().contains(&pieces[0].as_ptr()));
    }

    #[test]
    fn a_body_longer_than_a_message_becomes_several() {
        let body: Bytes = (0..MESSAGE_BYTES_MAX * 2).map(|at| at as u8).collect();
        let content = content_of(Form::Bytes, &body).unwrap().unwrap();
        assert_eq!(content.count(), 3);
        assert_eq!(pieces_of(Form::Bytes, &parts_of(&content)).concat(), body);
    }

    #[test]
    fn an_array_of_more_than_a_batch_holds_becomes_several() {
        let count = 2 * BATCH_MESSAGES_MAX + 1;
        let elements: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let body = Bytes::from(format!("[{}]", elements.join(",")));
        let content = content_of(Form::Json, &body).unwrap().unwrap();
        let counts: Vec<_> = content.batches().map(|batch| batch.count() as usize).collect();
        assert_eq!(counts, [BATCH_MESSAGES_MAX, BATCH_MESSAGES_MAX, 1]);
        assert_eq!(pieces_of(Form::Json, &parts_of(&content)).concat(), body);
    }

    #[test]
    fn too_much_is_refused_by_name() {
        let refused = |form, body: Vec<u8>| {
            let problem = content_of(form, &Bytes::from(body)).unwrap_err();
            (problem.status().as_u16(), problem.code())
        };
        let elements = format!("[{}1]", "1,".repeat(APPEND_BYTES_MAX / MESSAGE_BYTES_MIN));
        assert_eq!(refused(Form::Json, elements.into_bytes()), (413, "limit_reached"));
        let long = format!("\"{}\"", "x".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(refused(Form::Json, long.into_bytes()), (413, "limit_reached"));
        assert_eq!(refused(Form::Bytes, vec![0; APPEND_BYTES_MAX]), (413, "limit_reached"));
        let deep = "[".repeat(JSON_DEPTH_MAX + 1) + &"]".repeat(JSON_DEPTH_MAX + 1);
        assert_eq!(refused(Form::Json, deep.into_bytes()), (400, "limit_reached"));
        let fits = format!("\"{}\"", r#"[[\"[["#.repeat(JSON_DEPTH_MAX));
        assert!(content_of(Form::Json, &Bytes::from(fits)).is_ok());
    }
}

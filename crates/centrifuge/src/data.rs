//! The data of an application, which the protocol carries without a look at it: in JSON any JSON value, in Protobuf any
//! bytes. A message of a topic may be published in one and read in the other, so it has a form in both.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use prost::encoding::WireType;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::{
    context::{Context, Stopped},
    decode_error::Problem,
    field::{Field, Put, put_json_text},
    limits::Limits,
    protobuf,
};

/// Data that is kept. The default is no data; in Protobuf there is no difference between that and empty data.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Data {
    bytes: Bytes,
    form: Form,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Absent,
    /// JSON without a line break.
    Json,
    Any,
}

/// Data that lies elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DataView<'d> {
    bytes: &'d [u8],
    form: Form,
}

impl Data {
    /// The payload of a message: any bytes. Copies nothing. If the data is written in JSON more than once, see
    /// [`Data::shown_as_json`].
    pub fn of_payload(payload: Bytes) -> Self {
        Self { bytes: payload, form: Form::Any }
    }

    /// The same data in the form that JSON needs, so that writing it is a copy: JSON stays JSON, other text becomes a
    /// string, other bytes an object whose member `b64data` holds them in base64. In Protobuf it is that JSON from then on.
    pub fn shown_as_json(&self) -> Self {
        if self.form != Form::Any {
            return self.clone();
        }
        let bytes = match json_text(&self.bytes) {
            Some(json) if !has_line_break(json.as_bytes()) => self.bytes.slice_ref(json.as_bytes()),
            json => {
                let mut out = Vec::with_capacity(self.bytes.len() + 16);
                put_payload_as_json(&self.bytes, json, &mut out);
                out.into()
            }
        };
        Self { bytes, form: Form::Json }
    }

    /// The payload that a topic keeps of data that a client has sent: in JSON the text of the value, in Protobuf the bytes.
    pub fn into_payload(self) -> Bytes {
        self.bytes
    }

    /// The bytes as they are.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no data.
    pub fn is_absent(&self) -> bool {
        self.form == Form::Absent
    }

    /// Looks at it where it lies.
    pub fn view(&self) -> DataView<'_> {
        DataView { bytes: &self.bytes, form: self.form }
    }
}

impl<'d> DataView<'d> {
    /// The payload of a message: any bytes. In JSON each writing looks through them.
    pub fn of_payload(payload: &'d [u8]) -> Self {
        Self { bytes: payload, form: Form::Any }
    }

    /// The length of the bytes as they are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Put for DataView<'_> {
    fn is_absent(&self) -> bool {
        self.form == Form::Absent
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Absent => out.extend_from_slice(b"null"),
            Form::Json => out.extend_from_slice(self.bytes),
            Form::Any => put_payload_as_json(self.bytes, json_text(self.bytes), out),
        }
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        protobuf::put_bytes(number, self.bytes, out);
    }
}

/// Application data is not for logs.
impl fmt::Debug for Data {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), to)
    }
}

impl fmt::Debug for DataView<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Absent => to.write_str("Data(none)"),
            Form::Json => write!(to, "Data({} bytes of JSON)", self.bytes.len()),
            Form::Any => write!(to, "Data({} bytes)", self.bytes.len()),
        }
    }
}

impl Put for Data {
    fn is_absent(&self) -> bool {
        Self::is_absent(self)
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        self.view().put_json(out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        self.view().put_protobuf(number, out);
    }
}

impl Field for Data {
    const EXPECTED: &'static str = "data of the application";

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        let depth_max = context.limits.depth_max.min(Limits::DEPTH_MAX);
        if is_deeper_than(depth_max, text.as_bytes()) {
            return Err(context.stop_json(Problem::TooDeep { depth_max }));
        }
        let mut json = Vec::with_capacity(text.len());
        put_on_one_line(text.as_bytes(), &mut json);
        *self = Self { bytes: json.into(), form: Form::Json };
        Ok(())
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        let bytes = protobuf::bytes(wire_type, from, Self::EXPECTED, context)?;
        let form = if bytes.is_empty() { Form::Absent } else { Form::Any };
        *self = Self { bytes: Bytes::copy_from_slice(bytes), form };
        Ok(())
    }
}

/// The text of a payload that is JSON, without the space around it, unless it is so deep that parsers of clients refuse it.
fn json_text(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload).ok()?;
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    // What reads it takes the value alone, and would write it again without.
    (is_json && !is_deeper_than(Limits::DEPTH_MAX, payload)).then(|| text.trim_ascii())
}

fn has_line_break(text: &[u8]) -> bool {
    memchr::memchr2(b'\n', b'\r', text).is_some()
}

/// Writes a payload, whose text as JSON is this if it is JSON.
fn put_payload_as_json(payload: &[u8], json: Option<&str>, out: &mut Vec<u8>) {
    if let Some(json) = json {
        put_on_one_line(json.as_bytes(), out);
    } else if let Ok(text) = std::str::from_utf8(payload) {
        put_json_text(text, out);
    } else {
        out.extend_from_slice(b"{\"b64data\":\"");
        out.extend_from_slice(STANDARD.encode(payload).as_bytes());
        out.extend_from_slice(b"\"}");
    }
}

/// Writes JSON without the space between its tokens, if there is a line break in it.
fn put_on_one_line(json: &[u8], out: &mut Vec<u8>) {
    // Strings of JSON have no line breaks, these are always between tokens.
    if !has_line_break(json) {
        out.extend_from_slice(json);
        return;
    }
    let mut place = Place::BetweenTokens;
    for &byte in json {
        place = place.after(byte);
        if place != Place::BetweenTokens || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
    }
}

/// Whether JSON has more than `depth_max` objects and lists within each other.
fn is_deeper_than(depth_max: usize, json: &[u8]) -> bool {
    // Most payloads have fewer objects and lists than may lie within each other.
    if memchr::memchr2_iter(b'[', b'{', json).nth(depth_max).is_none() {
        return false;
    }
    let (mut place, mut depth) = (Place::BetweenTokens, 0_usize);
    json.iter().any(|&byte| {
        place = place.after(byte);
        match byte {
            b'[' | b'{' if place == Place::BetweenTokens => depth += 1,
            b']' | b'}' if place == Place::BetweenTokens => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > depth_max
    })
}

/// Where a walk through JSON is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BetweenTokens,
    String,
    /// In a string, behind a backslash.
    Escape,
}

impl Place {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::BetweenTokens, b'"') | (Self::Escape, _) => Self::String,
            (Self::String, b'"') => Self::BetweenTokens,
            (Self::String, b'\\') => Self::Escape,
            (place, _) => place,
        }
    }
}

//! The interface of fields and of messages, which are lists of fields; and the writer that puts them in either encoding.

use prost::encoding::{self, WireType};
use serde::{Deserializer, de::MapAccess};

use crate::{
    context::{Context, Stopped},
    encoding::Encoding,
    protobuf,
};

/// What can be the value of a field that is written.
pub(crate) trait Put {
    /// Whether it has the value that stands for absent; such a field is not written.
    fn is_absent(&self) -> bool;

    fn put_json(&self, out: &mut Vec<u8>);

    /// Writes the field with its key.
    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>);
}

/// A type that a field may have.
pub(crate) trait Field: Put + Default {
    /// What a reader of an error should put there.
    const EXPECTED: &'static str;

    /// Reads a value, `null` as absent.
    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error>;

    /// Reads what follows a key.
    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped>;
}

/// A list of fields.
pub(crate) trait Message: Default {
    fn put(&self, to: &mut Writer<'_>);

    /// The number of the field with this name in JSON.
    fn number_of(name: &str) -> Option<u32>;

    fn read_json_field<'de, A: MapAccess<'de>>(
        &mut self,
        number: u32,
        from: &mut A,
        context: &Context,
    ) -> Result<(), A::Error>;

    fn read_protobuf_field(
        &mut self,
        number: u32,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped>;
}

/// Appends the fields of one message.
pub(crate) struct Writer<'w> {
    encoding: Encoding,
    out: &'w mut Vec<u8>,
    is_first: bool,
}

impl Writer<'_> {
    /// Writes a field, unless it is absent.
    pub fn field<F: Put + ?Sized>(&mut self, number: u32, name: &str, value: &F) {
        if !value.is_absent() {
            self.put(number, name, value);
        }
    }

    /// Writes a field, even if its value is the default: an empty result is a result.
    pub fn put<F: Put + ?Sized>(&mut self, number: u32, name: &str, value: &F) {
        match self.encoding {
            Encoding::Json => {
                self.json_name(name);
                value.put_json(self.out);
            }
            Encoding::Protobuf => value.put_protobuf(number, self.out),
        }
    }

    /// Writes a message whose fields `write` lists.
    pub fn nested(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Writer<'_>)) {
        match self.encoding {
            Encoding::Json => {
                self.json_name(name);
                put_json_fields(self.out, write);
            }
            Encoding::Protobuf => put_protobuf_fields(number, self.out, write),
        }
    }

    fn json_name(&mut self, name: &str) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

/// Writes one whole message of a connection: a line of JSON, or Protobuf behind its length.
pub(crate) fn put_whole(
    encoding: Encoding,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Writer<'_>),
) {
    match encoding {
        Encoding::Json => {
            put_json_fields(out, write);
            out.push(b'\n');
        }
        Encoding::Protobuf => protobuf::put_delimited(out, |out| {
            write(&mut Writer { encoding, out, is_first: true });
        }),
    }
}

pub(crate) fn put_json_message(message: &impl Message, out: &mut Vec<u8>) {
    put_json_fields(out, |to| message.put(to));
}

pub(crate) fn put_protobuf_message(number: u32, message: &impl Message, out: &mut Vec<u8>) {
    put_protobuf_fields(number, out, |to| message.put(to));
}

fn put_json_fields(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    out.push(b'{');
    write(&mut Writer { encoding: Encoding::Json, out, is_first: true });
    out.push(b'}');
}

fn put_protobuf_fields(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    encoding::encode_key(number, WireType::LengthDelimited, out);
    protobuf::put_delimited(out, |out| {
        write(&mut Writer { encoding: Encoding::Protobuf, out, is_first: true });
    });
}

/// Writes a text as a JSON string.
pub(crate) fn put_json_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    serde_json::to_writer(out, text).unwrap_or_default();
}

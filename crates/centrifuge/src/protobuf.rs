//! The primitives of Protobuf: keys, varints and lengths. prost has them; this file adds what errors say.

use prost::encoding::{self, DecodeContext, WireType};

use crate::{
    context::{Context, Stopped},
    decode_error::Problem,
};

/// The number and wire type of the next field.
pub(crate) fn key(from: &mut &[u8], context: &Context) -> Result<(u32, WireType), Stopped> {
    encoding::decode_key(from).map_err(|_| context.stop(Problem::NotProtobuf))
}

/// A varint that belongs to no field.
pub(crate) fn length(from: &mut &[u8], context: &Context) -> Result<u64, Stopped> {
    encoding::decode_varint(from).map_err(|_| context.stop(Problem::NotProtobuf))
}

/// The value of a field that is a varint.
pub(crate) fn varint(
    wire_type: WireType,
    from: &mut &[u8],
    expected: &'static str,
    context: &Context,
) -> Result<u64, Stopped> {
    if wire_type != WireType::Varint {
        return Err(context.stop(Problem::WrongValue { expected }));
    }
    length(from, context)
}

/// The value of a field that has a length.
pub(crate) fn bytes<'b>(
    wire_type: WireType,
    from: &mut &'b [u8],
    expected: &'static str,
    context: &Context,
) -> Result<&'b [u8], Stopped> {
    if wire_type != WireType::LengthDelimited {
        return Err(context.stop(Problem::WrongValue { expected }));
    }
    delimited(from, context)
}

/// What follows a length.
pub(crate) fn delimited<'b>(from: &mut &'b [u8], context: &Context) -> Result<&'b [u8], Stopped> {
    let length = length(from, context)?;
    let end = usize::try_from(length).ok().filter(|end| *end <= from.len());
    let Some(end) = end else {
        return Err(context.stop(Problem::Cut { bytes: length, left: from.len() }));
    };
    let (bytes, rest) = from.split_at(end);
    *from = rest;
    Ok(bytes)
}

/// Passes over a field that is not known here.
pub(crate) fn skip(
    number: u32,
    wire_type: WireType,
    from: &mut &[u8],
    context: &Context,
) -> Result<(), Stopped> {
    encoding::skip_field(wire_type, number, from, DecodeContext::default())
        .map_err(|_| context.stop(Problem::NotProtobuf))
}

/// Writes a field that has a length.
pub(crate) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encoding::encode_key(number, WireType::LengthDelimited, out);
    encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a field that is a varint.
pub(crate) fn put_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    encoding::encode_key(number, WireType::Varint, out);
    encoding::encode_varint(value, out);
}

/// Writes what `write` appends, behind its length.
pub(crate) fn put_delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    // The length is known afterwards: if it needs more than the one byte held for it, the rest moves.
    let more = encoding::encoded_len_varint(length as u64) - 1;
    if more > 0 {
        out.resize(out.len() + more, 0);
        out.copy_within(start + 1..start + 1 + length, start + 1 + more);
    }
    let mut prefix = &mut out[start..=start + more];
    encoding::encode_varint(length as u64, &mut prefix);
}

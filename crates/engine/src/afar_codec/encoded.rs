//! The frame of a command or an effect: kind, lengths, fields, payloads. It knows no field.

use bytes::{Buf, BufMut, Bytes};

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::refusal::Refusal;

/// Bytes of the fields of a command or an effect, at most. The longest describes a partition of 256 groups, each with
/// 64 runs of parked messages that have a reason of 1 KiB.
pub const AFAR_HEAD_BYTES_MAX: usize = 32 << 20;

/// Bytes of the payloads of a command or an effect, at most. The longest appends to several streams.
pub const AFAR_PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Bytes of the kind and both lengths.
const LENGTHS_BYTES: usize = 9;

/// Commands or effects as bytes: what was copied, and between that the payloads as they are.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    copied: Vec<u8>,
    /// Each lies before the byte of `copied` with this number.
    payloads: Vec<(usize, Bytes)>,
    payload_bytes: usize,
}

impl Encoded {
    /// The pieces, which lie one behind the other.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        let ends = self.payloads.iter().map(|(end, payload)| (*end, Some(payload)));
        ends.chain(std::iter::once((self.copied.len(), None)))
            .flat_map(move |(end, payload)| {
                let copied = &self.copied[std::mem::replace(&mut at, end)..end];
                [Some(copied), payload.map(|payload| &payload[..])]
            })
            .flatten()
            .filter(|piece| !piece.is_empty())
    }

    /// The length of all pieces.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.copied.len() + self.payload_bytes
    }

    /// The pieces as one. Costs a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.byte_count());
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.into()
    }

    /// Lets go of everything, and keeps the room.
    pub fn clear(&mut self) {
        self.copied.clear();
        self.payloads.clear();
        self.payload_bytes = 0;
    }

    /// Appends one command or effect: `encode` writes its fields, and returns its kind.
    pub(super) fn append(
        &mut self,
        encode: impl FnOnce(&mut FieldWriter<'_>) -> Result<u8, Refusal>,
    ) -> Result<(), Refusal> {
        let (start, earlier) = (self.copied.len(), self.payloads.len());
        let fields = start + LENGTHS_BYTES;
        self.copied.resize(fields, 0);
        let mut w = FieldWriter::new(&mut self.copied, &mut self.payloads);
        let (kind, payload_bytes) = (encode(&mut w), w.payload_bytes);
        let head = self.copied.len() - fields;
        let checked = kind.and_then(|kind| {
            is_within("AFAR_HEAD_BYTES_MAX", head, AFAR_HEAD_BYTES_MAX)?;
            is_within("AFAR_PAYLOAD_BYTES_MAX", payload_bytes, AFAR_PAYLOAD_BYTES_MAX)?;
            Ok(kind)
        });
        let kind = checked.inspect_err(|_| {
            self.copied.truncate(start);
            self.payloads.truncate(earlier);
        })?;
        let mut lengths = &mut self.copied[start..fields];
        lengths.put_u8(kind);
        lengths.put_u32_le(head as u32);
        lengths.put_u32_le(payload_bytes as u32);
        let end = self.copied.len();
        self.payloads[earlier..].iter_mut().for_each(|(before, _)| *before = end);
        self.payload_bytes += payload_bytes;
        Ok(())
    }
}

fn is_within(limit: &'static str, length: usize, most: usize) -> Result<(), Refusal> {
    if length > most { Err(Refusal::Limit { limit, value: most as u64 }) } else { Ok(()) }
}

/// Takes one command or effect off the front.
pub(super) fn take(bytes: &mut Bytes) -> Result<FieldReader, DecodeError> {
    let found = bytes.len() as u64;
    let mut lengths = bytes.clone();
    if bytes.len() < LENGTHS_BYTES {
        bytes.clear();
        return Err(DecodeError::Short { found, expected: LENGTHS_BYTES as u64 });
    }
    let (kind, head, payload) = (lengths.get_u8(), lengths.get_u32_le(), lengths.get_u32_le());
    let expected = LENGTHS_BYTES as u64 + u64::from(head) + u64::from(payload);
    if expected > found {
        bytes.clear();
        return Err(DecodeError::Short { found, expected });
    }
    bytes.advance(LENGTHS_BYTES);
    let fields = bytes.split_to(head as usize);
    let payloads = bytes.split_to(payload as usize);
    for (limit, most, found) in [
        ("AFAR_HEAD_BYTES_MAX", AFAR_HEAD_BYTES_MAX, head),
        ("AFAR_PAYLOAD_BYTES_MAX", AFAR_PAYLOAD_BYTES_MAX, payload),
    ] {
        let (value, found) = (most as u64, u64::from(found));
        if found > value {
            return Err(DecodeError::TooLong { kind, limit, value, found });
        }
    }
    Ok(FieldReader::new(kind, fields, payloads))
}

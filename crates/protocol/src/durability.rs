//! The one-byte encoding of a durability in the frames of the data path.

use sennit_model::Durability;

use crate::{decode_error::DecodeError, kind::Kind};

pub(crate) fn decode(kind: Kind, byte: u8) -> Result<Durability, DecodeError> {
    Durability::of_number(byte).ok_or(DecodeError::Field {
        kind,
        field: "durability",
        value: byte.into(),
        allowed: "1 durable, 2 speculative, 3 ephemeral or 4 memory",
    })
}

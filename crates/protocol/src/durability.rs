//! Durability as hot frames carry it: one byte.

use crate::{decode_error::DecodeError, kind::Kind};

/// When a message may be delivered and confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Durability {
    /// Delivered and confirmed after the sync.
    #[default]
    Durable = 1,
    /// Delivered at append, confirmed after the sync.
    Speculative = 2,
    /// Delivered and confirmed at append, written later.
    Ephemeral = 3,
    /// Delivered and confirmed at append, never written.
    Memory = 4,
}

impl Durability {
    pub(crate) fn decode(kind: Kind, byte: u8) -> Result<Self, DecodeError> {
        match byte {
            1 => Ok(Self::Durable),
            2 => Ok(Self::Speculative),
            3 => Ok(Self::Ephemeral),
            4 => Ok(Self::Memory),
            _ => Err(DecodeError::Field {
                kind,
                field: "durability",
                value: byte.into(),
                allowed: "1 durable, 2 speculative, 3 ephemeral or 4 memory",
            }),
        }
    }
}

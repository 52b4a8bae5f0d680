//! The first 8 bytes of a connection, sent by the client: `SENNIT` 0x00 and the major version.

use bytes::{Buf, BytesMut};

use crate::decode_error::DecodeError;

/// The preface of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface;

impl Preface {
    /// The major version of the protocol.
    pub const VERSION: u8 = 1;

    /// The first bytes of a client.
    pub const BYTES: [u8; 8] = *b"SENNIT\x00\x01";

    /// Removes the preface from `input`; `None` while it is incomplete. A wrong byte is refused as
    /// soon as it comes.
    ///
    /// # Errors
    /// [`DecodeError::Preface`] or [`DecodeError::Version`].
    pub fn take(input: &mut BytesMut) -> Result<Option<Self>, DecodeError> {
        let received = &input[..input.len().min(Self::BYTES.len())];
        let magic = received.len().min(Self::BYTES.len() - 1);
        if received[..magic] != Self::BYTES[..magic] {
            return Err(DecodeError::Preface { received: received.to_vec() });
        }
        match received.get(magic) {
            None => Ok(None),
            Some(&Self::VERSION) => {
                input.advance(Self::BYTES.len());
                Ok(Some(Self))
            }
            Some(&received) => Err(DecodeError::Version { received, known: Self::VERSION }),
        }
    }
}

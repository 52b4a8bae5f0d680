//! The control bodies, generated from `schema/control.proto`. Decoding checks only that a body is protobuf.

use std::fmt;

use bytes::{BufMut, Bytes};
use prost::Message;

pub use generated::*;

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

mod generated {
    include!(concat!(env!("OUT_DIR"), "/sennit.v1.rs"));
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shows_credentials = self.token.is_some() || self.password.is_some();
        f.debug_struct("Hello")
            .field("client_name", &self.client_name)
            .field("client_version", &self.client_version)
            .field("features", &self.features)
            .field("frame_bytes_max", &self.frame_bytes_max)
            .field("shows_credentials", &shows_credentials)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserPassword").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for AccessChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessChanged").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Appends the frame to `out`, which must have room or grow.
pub(crate) fn encode(kind: Kind, body: &impl Message, request: u64, out: &mut impl BufMut) {
    FrameHeader::new(kind, body.encoded_len(), request).encode(out);
    body.encode(out).expect("the buffer has room or grows");
}

pub(crate) fn decode<M: Message + Default>(kind: Kind, body: Bytes) -> Result<M, DecodeError> {
    M::decode(body).map_err(|source| DecodeError::Control { kind, source })
}

pub(crate) fn decode_empty(kind: Kind, body: &Bytes) -> Result<(), DecodeError> {
    if !body.is_empty() {
        return Err(DecodeError::Length { kind, needed: 0, received: body.len() });
    }
    Ok(())
}

//! The settled frame: the outcome of a settlement.

use bytes::{Buf, BufMut, Bytes};

use crate::{
    decode_error::DecodeError,
    frame_header::FrameHeader,
    kind::Kind,
    runs::{Run, Runs, count_field},
    settle::SettleRun,
};

const KIND: Kind = Kind::Settled;

/// A settlement is committed, or parts of it were stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The number of messages that were settled.
    pub applied: u64,
    /// The stale runs: the messages were delivered again, or never delivered. Messages that were
    /// settled before count neither here nor there.
    pub stale: Runs<SettleRun>,
}

impl Settled {
    /// Length of the part before the runs, in bytes.
    pub const HEAD_BYTES: usize = 16;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        let size = Self::HEAD_BYTES + self.stale.len() * SettleRun::BYTES;
        FrameHeader::new(KIND, size, request).encode(out);
        out.put_u64_le(self.applied);
        out.put_u32_le(count_field(self.stale.len()));
        out.put_u32_le(0);
        for run in self.stale.iter() {
            run.encode(out);
        }
    }

    /// Reads the body. The runs share its memory.
    ///
    /// # Errors
    /// [`DecodeError::Length`], or [`DecodeError::Field`] for the first field that is out of
    /// bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(KIND, body.len(), Self::HEAD_BYTES)?;
        let applied = body.get_u64_le();
        let count = body.get_u32_le();
        DecodeError::require_zero(KIND, "padding", body.get_u32_le().into())?;
        let stale = Runs::take(KIND, count, &mut body)?;
        DecodeError::require_zero(KIND, "bytes after the runs", body.len() as u64)?;
        Ok(Self { applied, stale })
    }
}

//! Splits a stream of bytes into frames and checks their size. It knows nothing of their bodies.

use bytes::{Buf, Bytes, BytesMut};
use sennit_model::limits::GREETING_BYTES_MAX;

use crate::{decode_error::DecodeError, frame_header::FrameHeader};

/// Room that is reserved for a body whose bytes have not come. Memory grows with the bytes that
/// were sent, in this frame or an earlier one, and not with the announced size.
const RESERVE_BYTES: usize = 64 << 10;

/// Splits a stream of bytes into frames. It refuses a frame beyond the limit before it allocates
/// memory for it.
#[derive(Clone, Debug)]
pub struct FrameReader {
    limit: usize,
    reserves: bool,
    header: Option<FrameHeader>,
    /// The length of the longest body so far.
    longest: usize,
}

impl FrameReader {
    /// A reader for a connection without a greeting: bodies have at most [`GREETING_BYTES_MAX`]
    /// bytes.
    #[must_use]
    pub fn before_greeting() -> Self {
        Self { limit: GREETING_BYTES_MAX, reserves: true, header: None, longest: 0 }
    }

    /// The limit for a body in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the limit for bodies in bytes, from the next frame on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Stops reserving room: the caller trusts the peer with a whole frame, and gets the size from
    /// [`FrameReader::missing`].
    pub fn disable_reserve(&mut self) {
        self.reserves = false;
    }

    /// The number of missing bytes of a frame whose header has come; 0 otherwise.
    #[must_use]
    pub fn missing(&self, input: &BytesMut) -> usize {
        self.header.map_or(0, |header| (header.size as usize).saturating_sub(input.len()))
    }

    /// Removes the next frame from `input`; `None` while it is incomplete. `input` then has
    /// reserved room for the rest of the frame and the next header, unless reserving is disabled,
    /// so that a read can go directly into it. The body shares `input`'s memory.
    ///
    /// # Errors
    /// [`DecodeError::FrameTooLarge`] or [`DecodeError::Reserved`]. The stream cannot be read
    /// further after either.
    pub fn next_frame(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<(FrameHeader, Bytes)>, DecodeError> {
        let Some(header) = self.header(input)? else { return Ok(None) };
        let size = header.size as usize;
        if input.len() < size {
            let missing = size - input.len();
            if self.reserves {
                let has_come = input.len().max(self.longest.saturating_sub(input.len()));
                let trusted = RESERVE_BYTES.max(has_come + FrameHeader::BYTES);
                input.reserve(trusted.min(missing + FrameHeader::BYTES));
            }
            return Ok(None);
        }
        self.header = None;
        self.longest = self.longest.max(size);
        Ok(Some((header, input.split_to(size).freeze())))
    }

    fn header(&mut self, input: &mut BytesMut) -> Result<Option<FrameHeader>, DecodeError> {
        if self.header.is_none() {
            let Some(bytes) = input.first_chunk() else { return Ok(None) };
            let header = FrameHeader::decode(bytes)?;
            if header.size as usize > self.limit {
                let FrameHeader { kind, size, .. } = header;
                return Err(DecodeError::FrameTooLarge { kind, size, limit: self.limit });
            }
            input.advance(FrameHeader::BYTES);
            self.header = Some(header);
        }
        Ok(self.header)
    }
}

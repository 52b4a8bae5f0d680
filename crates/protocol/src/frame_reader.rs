//! Cuts a stream of bytes into frames. It judges their size, and knows nothing of what they hold.

use bytes::{Buf, Bytes, BytesMut};
use sennit_model::limits::GREETING_BYTES_MAX;

use crate::{decode_error::DecodeError, frame_header::FrameHeader};

/// Room made for a body whose bytes have not come: memory follows what was sent, not what was
/// announced.
const RESERVE_BYTES: usize = 64 << 10;

/// Cuts a stream of bytes into frames, and refuses a frame beyond the limit in force before
/// anything is allocated for it.
#[derive(Clone, Debug)]
pub struct FrameReader {
    limit: usize,
    reserve_bytes: usize,
    header: Option<FrameHeader>,
}

impl FrameReader {
    /// A reader for a connection that has not been greeted: bodies have at most
    /// [`GREETING_BYTES_MAX`] bytes.
    #[must_use]
    pub fn before_greeting() -> Self {
        Self { limit: GREETING_BYTES_MAX, reserve_bytes: RESERVE_BYTES, header: None }
    }

    /// The limit in force, in bytes of body.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// From the next frame on, bodies have at most `limit` bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// From now on room is made for the whole of a frame once its header has come: the peer may be
    /// trusted with as much memory, and what has come of a long frame need not be moved again and again.
    pub fn trust(&mut self) {
        self.reserve_bytes = usize::MAX;
    }

    /// Whether no frame has begun whose header is known.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.header.is_none()
    }

    /// Takes the next whole frame off `input`; `None` while it has not come whole. `input` then has
    /// room for more of it, so that a read can be made right into it. The body shares `input`'s
    /// memory.
    ///
    /// # Errors
    /// [`DecodeError::FrameTooLarge`] or [`DecodeError::Reserved`]. The stream cannot be read on
    /// after either.
    pub fn next_frame(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<(FrameHeader, Bytes)>, DecodeError> {
        let Some(header) = self.header(input)? else { return Ok(None) };
        let size = header.size as usize;
        if input.len() < size {
            let missing = size - input.len();
            input.reserve(missing.min(self.reserve_bytes.max(input.len())));
            return Ok(None);
        }
        self.header = None;
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

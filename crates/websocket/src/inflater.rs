//! Takes the compression off messages (RFC 7692, section 7.2.2), each by itself. One serves all connections of a core.

use flate2::{Decompress, FlushDecompress, Status};

use crate::limits::DEFLATE_STREAMS_MAX;

/// What a sender leaves out at the end of a message: an empty block.
pub(crate) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// First room for what is inflated, in bytes.
const ROOM_BYTES: usize = 512;

/// Why a message cannot be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateFault {
    /// It has more than this many bytes.
    #[error("the content has more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// It is not DEFLATE, or has too many streams.
    #[error("the content is not DEFLATE")]
    NotDeflate,
}

/// Inflates messages. It has about 48 KiB of state, made with the first message, and no context between messages.
#[derive(Debug, Default)]
pub struct Inflater(Option<Decompress>);

impl Inflater {
    /// One without state yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The content of a message. It has at most `bytes_max` bytes and takes no more memory than that.
    pub fn inflate(
        &mut self,
        compressed: &[u8],
        bytes_max: usize,
    ) -> Result<Vec<u8>, InflateFault> {
        let stream = self.0.get_or_insert_with(|| Decompress::new(false));
        stream.reset(false);
        let mut content = Content { bytes: Vec::new(), bytes_max };
        content.reserve(compressed.len().saturating_mul(3).max(ROOM_BYTES));
        let mut rest = compressed;
        for _ in 0..DEFLATE_STREAMS_MAX {
            if content.inflate(stream, &mut rest)? != Status::StreamEnd {
                content.inflate(stream, &mut &TAIL[..])?;
                return Ok(content.bytes);
            }
            // A sender may end its stream in each message (RFC 7692, section 7.2.3.4), with or without a block behind.
            if rest.is_empty() {
                return Ok(content.bytes);
            }
            stream.reset(false);
        }
        Err(InflateFault::NotDeflate)
    }
}

/// What was inflated, with its limit.
struct Content {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Content {
    /// Makes room for `more` bytes, or for as many as there may be.
    fn reserve(&mut self, more: usize) {
        self.bytes.reserve_exact(more.min(self.bytes_max - self.bytes.len()));
    }

    /// Inflates from `rest` until it is empty and all of it has come out, or the stream ends.
    fn inflate(
        &mut self,
        stream: &mut Decompress,
        rest: &mut &[u8],
    ) -> Result<Status, InflateFault> {
        loop {
            let (taken_before, made_before) = (stream.total_in(), stream.total_out());
            let is_full = self.bytes.len() >= self.bytes_max;
            let status = if is_full {
                // Nothing more may come, but the end of a block may have to be read.
                stream.decompress(rest, &mut [0], FlushDecompress::None)
            } else {
                stream.decompress_vec(rest, &mut self.bytes, FlushDecompress::None)
            };
            let status = status.map_err(|_| InflateFault::NotDeflate)?;
            let taken = usize::try_from(stream.total_in() - taken_before).unwrap_or(usize::MAX);
            let made = stream.total_out() - made_before;
            *rest = rest.get(taken..).unwrap_or_default();
            if is_full && made > 0 || self.bytes.len() > self.bytes_max {
                return Err(InflateFault::TooLarge { bytes_max: self.bytes_max });
            }
            let has_room = is_full || self.bytes.len() < self.bytes.capacity();
            if status == Status::StreamEnd || rest.is_empty() && has_room {
                return Ok(status);
            }
            if taken == 0 && made == 0 && has_room {
                return Err(InflateFault::NotDeflate);
            }
            if !has_room {
                self.reserve(self.bytes.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InflateFault, Inflater};

    fn inflate(compressed: &[u8]) -> Result<Vec<u8>, InflateFault> {
        Inflater::new().inflate(compressed, 1000)
    }

    #[test]
    fn the_examples_of_the_rfc_are_inflated() {
        let one_block = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        assert_eq!(inflate(&one_block), Ok(b"Hello".to_vec()));
        let stored = [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
        assert_eq!(inflate(&stored), Ok(b"Hello".to_vec()));
        let last_block = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        assert_eq!(inflate(&last_block), Ok(b"Hello".to_vec()));
        let two_blocks =
            [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
        assert_eq!(inflate(&two_blocks), Ok(b"Hello".to_vec()));
    }

    #[test]
    fn an_empty_message_is_one_zero_byte_or_none() {
        assert_eq!(inflate(&[0]), Ok(Vec::new()));
        assert_eq!(inflate(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_context_of_one_message_is_not_there_for_the_next() {
        let mut inflater = Inflater::new();
        let first = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        assert!(inflater.inflate(&first, 100).is_ok());
        let refers_to_the_first = [0xf2, 0x00, 0x11, 0x00, 0x00];
        let refused = inflater.inflate(&refers_to_the_first, 100);
        assert_eq!(refused, Err(InflateFault::NotDeflate));
        assert_eq!(inflater.inflate(&first, 100), Ok(b"Hello".to_vec()));
    }

    #[test]
    fn garbage_is_no_deflate() {
        assert_eq!(inflate(&[0xff; 9]), Err(InflateFault::NotDeflate));
        assert_eq!(inflate(&[0x03, 0x00].repeat(1000)), Err(InflateFault::NotDeflate));
    }
}

//! Any stream of bytes: the same frames whatever the size of the pieces, and no more memory than the input
//! justifies. The first two bytes are the limit in 16s, the third the length of the pieces.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use sennit_protocol::{DecodeError, FrameHeader, FrameReader, Preface};

/// The frames of `pieces`, in order, and the error that ended them.
fn frames<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    limit: usize,
) -> (Vec<(FrameHeader, Bytes)>, Option<DecodeError>) {
    let mut reader = FrameReader::before_greeting();
    reader.set_limit(limit);
    let mut input = BytesMut::new();
    let (mut frames, mut received) = (Vec::new(), 0);
    for piece in pieces {
        input.extend_from_slice(piece);
        received += piece.len();
        loop {
            match reader.next_frame(&mut input) {
                Ok(Some((header, body))) => {
                    assert_eq!(header.size as usize, body.len());
                    assert!(body.len() <= limit, "a frame beyond the limit in force");
                    frames.push((header, body));
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(input.capacity() <= 4 * received + (256 << 10), "memory for what was not sent");
    }
    (frames, None)
}

fuzz_target!(|data: &[u8]| {
    let _ = Preface::take(&mut BytesMut::from(data));
    let [low, high, piece, stream @ ..] = data else { return };
    let limit = 16 * usize::from(u16::from_le_bytes([*low, *high]));
    let whole = frames(std::iter::once(stream), limit);
    let pieces = frames(stream.chunks(usize::from(*piece).max(1)), limit);
    assert_eq!(whole, pieces, "frames depend on how the bytes arrive");
});

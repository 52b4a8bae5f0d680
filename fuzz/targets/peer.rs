//! Any bytes of a link between nodes: the same frames however they arrive, no more memory than for what has come and
//! one piece, and each frame is sent as it was read. The first byte says whether the greeting was before, the second the
//! length of the parts in 16s.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sennit_protocol::peer::{PIECE_BYTES_MAX, PeerError, PeerFrame, PeerReader, Pieces};

fn reader(is_greeted: bool) -> PeerReader {
    let mut reader = PeerReader::before_greeting();
    if is_greeted {
        reader.set_greeted();
    }
    reader
}

/// The frames of `bytes` in parts, in order, and the error that ended them.
fn frames(is_greeted: bool, bytes: &[u8], part: usize) -> (Vec<PeerFrame>, Option<PeerError>) {
    let (mut reader, mut input, mut frames) = (reader(is_greeted), BytesMut::new(), Vec::new());
    let mut received = 0;
    for part in bytes.chunks(part) {
        input.extend_from_slice(part);
        received += part.len();
        loop {
            match reader.next_frame(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(
            input.capacity() <= 4 * received + 2 * PIECE_BYTES_MAX,
            "memory for what was not sent"
        );
    }
    (frames, None)
}

fuzz_target!(|data: &[u8]| {
    let [greeted, part, bytes @ ..] = data else { return };
    let is_greeted = greeted % 2 == 1;
    let whole = frames(is_greeted, bytes, bytes.len().max(1));
    let parts = frames(is_greeted, bytes, 16 * usize::from(*part) + 1);
    assert_eq!(whole, parts, "frames depend on how the bytes arrive");
    for frame in whole.0 {
        let (mut pieces, mut out) = (Pieces::new(frame.clone()), BytesMut::new());
        while !pieces.is_sent() {
            let body = pieces.next_piece(&mut out);
            out.extend_from_slice(&body);
        }
        assert_eq!(
            reader(is_greeted).next_frame(&mut out),
            Ok(Some(frame)),
            "a frame is sent as it was read"
        );
    }
});

//! Compresses messages (RFC 7692, section 7.2.1), each by itself. One serves all connections of a core.

use std::fmt;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::{frame, inflater::TAIL, opcode::Opcode, window_bits::WindowBits};

/// What compression of a message may cost: zlib's own compromise.
const LEVEL: u32 = 6;

/// The smallest window that zlib compresses with.
const WINDOW_BITS_MIN: u8 = 9;

/// Room for compressed bytes that is kept between messages.
const KEPT_BYTES: usize = 64 << 10;

/// Compresses messages. For each window in use it has up to 300 KiB of state, made with the first message that needs
/// it, and no context between messages.
#[derive(Default)]
pub struct Deflater {
    by_window: [Option<Box<Compress>>; (WindowBits::MAX.bits() - WINDOW_BITS_MIN + 1) as usize],
    compressed: Vec<u8>,
}

impl Deflater {
    /// One without state yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a frame with a whole message: compressed for a receiver with that window if this makes it shorter, plain
    /// otherwise. Returns whether it is compressed. A frame whose message a window [covers](WindowBits::covers) serves
    /// every connection with such a window that negotiated compression.
    ///
    /// Messages below a hundred bytes or so gain nothing; the caller has a limit of its own.
    pub fn put_frame(
        &mut self,
        opcode: Opcode,
        message: &[u8],
        window: WindowBits,
        out: &mut Vec<u8>,
    ) -> bool {
        let compressed = self.deflate(message, window);
        let is_compressed = compressed.is_some();
        let payload = compressed.unwrap_or(message);
        frame::put_header(opcode, is_compressed, payload.len(), out);
        out.extend_from_slice(payload);
        is_compressed
    }

    /// The payload of a compressed frame, unless it is not shorter than the message.
    pub fn deflate(&mut self, message: &[u8], window: WindowBits) -> Option<&[u8]> {
        let window = if window.covers(message.len()) { WindowBits::MAX } else { window };
        let state =
            self.by_window.get_mut(usize::from(window.bits().checked_sub(WINDOW_BITS_MIN)?))?;
        let stream = state.get_or_insert_with(|| {
            let level = Compression::new(LEVEL);
            Box::new(Compress::new_with_window_bits(level, false, window.bits()))
        });
        stream.reset();
        let out = &mut self.compressed;
        out.shrink_to(KEPT_BYTES);
        // Room for something as long as the message is no compression; one byte of it stays free when all was flushed.
        out.clear();
        out.resize(message.len() + TAIL.len(), 0);
        let status = stream.compress(message, out, FlushCompress::Sync).ok()?;
        let made = usize::try_from(stream.total_out()).ok()?;
        let is_whole = status == Status::Ok && made < out.len();
        let payload = out.get(..made).filter(|_| is_whole)?.strip_suffix(&TAIL)?;
        (payload.len() < message.len()).then_some(payload)
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Deflater;
    use crate::{Inflater, Opcode, WindowBits};

    /// Compressible, and the same each time.
    fn words(bytes: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut word = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ["topic ", "offset ", "lease ", "frame "][(state >> 30) as usize]
        };
        std::iter::repeat_with(&mut word).flat_map(str::bytes).take(bytes).collect()
    }

    #[test]
    fn what_is_deflated_is_inflated_whatever_the_window() {
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
        for window in (8..=15).filter_map(WindowBits::of) {
            for bytes in [40, 256, 257, 4096, 40_000, 300_000] {
                let message = words(bytes);
                let deflated = deflater.deflate(&message, window);
                let covered = window.covers(bytes) || window.bits() > 8;
                assert_eq!(deflated.is_some(), covered, "{bytes} bytes, window {window}");
                if let Some(deflated) = deflated {
                    let inflated = inflater.inflate(deflated, bytes);
                    assert_eq!(inflated.as_deref(), Ok(&message[..]), "{bytes}, {window}");
                }
            }
        }
    }

    #[test]
    fn what_a_window_covers_is_compressed_once_for_all() {
        let mut deflater = Deflater::new();
        let message = words(4096);
        let small = WindowBits::of(12).expect("a window");
        let whole = deflater.deflate(&message, WindowBits::MAX).map(<[u8]>::to_vec);
        assert_eq!(deflater.deflate(&message, small).map(<[u8]>::to_vec), whole);
    }

    #[test]
    fn what_does_not_become_shorter_is_sent_plain() {
        let mut deflater = Deflater::new();
        let mut out = Vec::new();
        for message in [&b""[..], b"a", b"Hello"] {
            out.clear();
            assert!(!deflater.put_frame(Opcode::Text, message, WindowBits::MAX, &mut out));
            assert_eq!(&out[..2], [0x81, message.len() as u8]);
            assert_eq!(&out[2..], message);
        }
    }

    #[test]
    fn a_message_is_deflated_without_the_ones_before() {
        let mut deflater = Deflater::new();
        let message = words(300);
        let first = deflater.deflate(&message, WindowBits::MAX).map(<[u8]>::to_vec);
        assert!(first.is_some());
        assert_eq!(deflater.deflate(&message, WindowBits::MAX).map(<[u8]>::to_vec), first);
    }
}

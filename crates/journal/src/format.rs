//! The encoding of segment headers, frame headers and record headers. FORMAT.md describes it. All numbers are
//! little-endian.

use crc_fast::{CrcAlgorithm, checksum};
use xxhash_rust::xxh3::xxh3_64;

use crate::position::Position;

/// Everything on disk begins and ends on a multiple of this.
pub const BLOCK_BYTES: usize = 4096;

/// The format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;

/// A frame's header; its body follows.
pub const FRAME_HEADER_BYTES: usize = 64;
/// A record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"SENNITSG";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"SNFR");
const PACK_MAGIC: [u8; 8] = *b"SENNITPK";
/// The bytes of a segment or pack header that its checksum covers.
const CHECKED_BYTES: usize = 64;

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // CRC-32C fits 32 bits; the library returns every width as u64.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u16,
    pub(crate) lane: u32,
    pub(crate) segment: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) incarnation: u64,
    pub(crate) generation: u32,
    /// The valid end of the log before this segment.
    pub(crate) previous_end: Position,
    /// The start of a replay at the time when the segment was opened.
    pub(crate) replay_from: Position,
}

impl SegmentHeader {
    /// Writes the header into the first [`BLOCK_BYTES`] of `block`.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        let block = &mut block[..BLOCK_BYTES];
        block.fill(0);
        block[..8].copy_from_slice(&SEGMENT_MAGIC);
        block[8..10].copy_from_slice(&self.version.to_le_bytes());
        block[10..12].copy_from_slice(&(CHECKED_BYTES as u16 + 4).to_le_bytes());
        block[12..16].copy_from_slice(&self.lane.to_le_bytes());
        block[16..24].copy_from_slice(&self.segment.to_le_bytes());
        block[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
        block[32..40].copy_from_slice(&self.incarnation.to_le_bytes());
        block[40..44].copy_from_slice(&self.generation.to_le_bytes());
        block[48..56].copy_from_slice(&self.previous_end.0.to_le_bytes());
        block[56..64].copy_from_slice(&self.replay_from.0.to_le_bytes());
        let checksum = crc32c(&block[..CHECKED_BYTES]);
        block[64..68].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The header in `block`; `None` if it is not whole. Of a header in a newer format only the
    /// version is valid.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if block.len() < BLOCK_BYTES || block[..8] != SEGMENT_MAGIC {
            return None;
        }
        if crc32c(&block[..CHECKED_BYTES]) != u32_at(block, 64) {
            return None;
        }
        Some(Self {
            version: u16::from_le_bytes([block[8], block[9]]),
            lane: u32_at(block, 12),
            segment: u64_at(block, 16),
            segment_bytes: u64_at(block, 24),
            incarnation: u64_at(block, 32),
            generation: u32_at(block, 40),
            previous_end: Position(u64_at(block, 48)),
            replay_from: Position(u64_at(block, 56)),
        })
    }

    /// The chain value for the first frame of the segment.
    pub(crate) fn chain(&self) -> u64 {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        xxh3_64(&block[..CHECKED_BYTES])
    }
}

/// The first block of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackHeader {
    pub(crate) version: u16,
    pub(crate) lane: u32,
    pub(crate) pack: u64,
    pub(crate) class: u64,
    pub(crate) incarnation: u64,
}

impl PackHeader {
    /// Writes the header into the first [`BLOCK_BYTES`] of `block`.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        let block = &mut block[..BLOCK_BYTES];
        block.fill(0);
        block[..8].copy_from_slice(&PACK_MAGIC);
        block[8..10].copy_from_slice(&self.version.to_le_bytes());
        block[10..12].copy_from_slice(&(CHECKED_BYTES as u16 + 4).to_le_bytes());
        block[12..16].copy_from_slice(&self.lane.to_le_bytes());
        block[16..24].copy_from_slice(&self.pack.to_le_bytes());
        block[24..32].copy_from_slice(&self.class.to_le_bytes());
        block[32..40].copy_from_slice(&self.incarnation.to_le_bytes());
        let checksum = crc32c(&block[..CHECKED_BYTES]);
        block[64..68].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The header in `block`; `None` if it is not whole. Of a header in a newer format only the
    /// version is valid.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if block.len() < BLOCK_BYTES || block[..8] != PACK_MAGIC {
            return None;
        }
        if crc32c(&block[..CHECKED_BYTES]) != u32_at(block, 64) {
            return None;
        }
        Some(Self {
            version: u16::from_le_bytes([block[8], block[9]]),
            lane: u32_at(block, 12),
            pack: u64_at(block, 16),
            class: u64_at(block, 24),
            incarnation: u64_at(block, 32),
        })
    }

    /// The chain value for the first frame of the pack.
    pub(crate) fn chain(&self) -> u64 {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        xxh3_64(&block[..CHECKED_BYTES])
    }
}

/// The body of a frame: where it lies, its length, its checksum and the number of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBody {
    /// The position of the frame's header. The body begins [`FRAME_HEADER_BYTES`] behind it.
    pub frame: Position,
    /// Its length in bytes, without the padding of the frame.
    pub bytes: u32,
    /// Its CRC-32C.
    pub checksum: u32,
    /// The number of its records.
    pub records: u32,
}

impl FrameBody {
    /// The position of its first byte.
    #[must_use]
    pub fn position(&self) -> Position {
        self.frame.plus(FRAME_HEADER_BYTES as u64)
    }

    /// The end of the frame: the position of the next one in the segment.
    #[must_use]
    pub fn frame_end(&self) -> Position {
        self.frame.plus(frame_bytes(self.bytes) as u64)
    }
}

/// The size on disk of a frame whose body has `body_bytes` bytes.
fn frame_bytes(body_bytes: u32) -> usize {
    (FRAME_HEADER_BYTES + body_bytes as usize).next_multiple_of(BLOCK_BYTES)
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) body_crc: u32,
    /// Bytes of the body, before padding.
    pub(crate) body_len: u32,
    pub(crate) position: Position,
    pub(crate) incarnation: u64,
    /// All positions before this were durable when the frame was sealed.
    pub(crate) durable: Position,
    /// The XXH3 of the frame header before this one, or of the segment header.
    pub(crate) chain: u64,
    pub(crate) generation: u32,
    pub(crate) record_count: u32,
}

impl FrameHeader {
    /// Writes the header into the first [`FRAME_HEADER_BYTES`] of `frame`, and returns the chain
    /// value for the next frame.
    pub(crate) fn encode(&self, frame: &mut [u8]) -> u64 {
        // A header that says otherwise is not decoded.
        assert!(self.durable <= self.position, "a frame is durable before it is written");
        let header = &mut frame[..FRAME_HEADER_BYTES];
        header.fill(0);
        header[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&self.body_crc.to_le_bytes());
        header[12..16].copy_from_slice(&self.body_len.to_le_bytes());
        header[16..24].copy_from_slice(&self.position.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        header[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        header[40..48].copy_from_slice(&self.chain.to_le_bytes());
        header[48..52].copy_from_slice(&self.generation.to_le_bytes());
        header[52..56].copy_from_slice(&self.record_count.to_le_bytes());
        let checksum = crc32c(&header[8..]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        xxh3_64(header)
    }

    /// The header at the start of `bytes`, and the chain value for the next frame; `None` if it is
    /// not whole, or is impossible.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let header = bytes.get(..FRAME_HEADER_BYTES)?;
        if u32_at(header, 0) != FRAME_MAGIC || crc32c(&header[8..]) != u32_at(header, 4) {
            return None;
        }
        let decoded = Self {
            body_crc: u32_at(header, 8),
            body_len: u32_at(header, 12),
            position: Position(u64_at(header, 16)),
            incarnation: u64_at(header, 24),
            durable: Position(u64_at(header, 32)),
            chain: u64_at(header, 40),
            generation: u32_at(header, 48),
            record_count: u32_at(header, 52),
        };
        // No frame says of itself that it was durable: nobody has written this one.
        (decoded.durable <= decoded.position).then(|| (decoded, xxh3_64(header)))
    }

    /// The size of the frame on disk.
    pub(crate) fn frame_bytes(&self) -> usize {
        frame_bytes(self.body_len)
    }

    /// The body that it describes.
    pub(crate) fn body(&self) -> FrameBody {
        FrameBody {
            frame: self.position,
            bytes: self.body_len,
            checksum: self.body_crc,
            records: self.record_count,
        }
    }
}

/// The size of a record with `body_len` bytes in a frame.
pub(crate) fn record_bytes(body_len: usize) -> usize {
    RECORD_HEADER_BYTES + body_len.next_multiple_of(8)
}

/// Iterates over the records of a frame's body: `(kind, start of the body, end of the body)`.
/// `None` is a record with an invalid length.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = Option<(u8, usize, usize)>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == body.len() {
            return None;
        }
        let header = body.get(at..at + RECORD_HEADER_BYTES);
        let found = header.and_then(|header| {
            let (start, len) = (at + RECORD_HEADER_BYTES, u32_at(header, 0) as usize);
            let next = at + record_bytes(len);
            (next <= body.len()).then_some((header[4], start, start + len, next))
        });
        at = found.map_or(body.len(), |(_, _, _, next)| next);
        Some(found.map(|(kind, start, end, _)| (kind, start, end)))
    })
}

//! The stamp at the start of each payload: producer, sequence, and the intended time of sending; behind it a
//! filling that both ends know.
//!
//! ```text
//! offset size
//!      0    8  sequence     of this producer, from 0
//!      8    8  intended_ns  the intended time of sending, on the shared clock
//!     16    4  producer
//!     20    4  checksum     XXH3-64 of bytes 0..20, low half
//!     24    .  filling      bytes that both ends know
//! ```
//!
//! A payload may be JSON as well: an object with the stamp in hexadecimal digits, and a filling of letters.

use bytes::{Bytes, BytesMut};
use sennit_client::{BatchBuilder, Message};
use xxhash_rust::xxh3::xxh3_64;

/// The length of the stamp in bytes: no payload is shorter.
pub const STAMP_BYTES: usize = 24;

/// What comes before the stamp, between it and the filling, and behind that, in a payload of JSON.
const JSON_PARTS: [&[u8]; 3] = [b"{\"stamp\":\"", b"\",\"text\":\"", b"\"}"];

/// The same for payloads of JSON.
pub const JSON_STAMP_BYTES: usize =
    2 * STAMP_BYTES + JSON_PARTS[0].len() + JSON_PARTS[1].len() + JSON_PARTS[2].len();

/// The length in a batch of a message with a payload of `size` bytes.
#[must_use]
pub fn message_bytes(size: usize) -> usize {
    BatchBuilder::encoded_len(&Message::new(vec![0; size]))
}

/// Bytes of memory that are allocated at once for payloads.
const ARENA_BYTES: usize = 1 << 20;

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The producer's number.
    pub producer: u32,
    /// The message's number among those of the producer, from 0.
    pub sequence: u64,
    /// The instant at which the producer intends to send it, in nanoseconds of the shared clock.
    pub intended_ns: u64,
}

/// Builds payloads of one size and parses them.
#[derive(Debug)]
pub struct Payloads {
    is_json: bool,
    filling: Vec<u8>,
    arena: BytesMut,
}

impl Payloads {
    /// Payloads of `size` bytes, at least [`STAMP_BYTES`].
    #[must_use]
    pub fn new(size: usize) -> Self {
        // Bytes without a pattern that a compressing disk could use.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut filling = vec![0; size.saturating_sub(STAMP_BYTES)];
        for chunk in filling.chunks_mut(8) {
            state = xxh3_64(&state.to_le_bytes());
            chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
        }
        Self { is_json: false, filling, arena: BytesMut::new() }
    }

    /// Payloads of JSON of `size` bytes, at least [`JSON_STAMP_BYTES`].
    #[must_use]
    pub fn json(size: usize) -> Self {
        let letters = (b'a'..=b'z').cycle();
        let filling = letters.take(size.saturating_sub(JSON_STAMP_BYTES)).collect();
        Self { is_json: true, filling, arena: BytesMut::new() }
    }

    fn size(&self) -> usize {
        self.filling.len() + if self.is_json { JSON_STAMP_BYTES } else { STAMP_BYTES }
    }

    /// Builds a payload. Costs a copy and no allocation of its own.
    pub fn make(&mut self, stamp: Stamp) -> Bytes {
        let size = self.size();
        if self.arena.capacity() < size {
            self.arena = BytesMut::with_capacity(ARENA_BYTES.max(size));
        }
        let mut head = [0; STAMP_BYTES];
        head[..8].copy_from_slice(&stamp.sequence.to_le_bytes());
        head[8..16].copy_from_slice(&stamp.intended_ns.to_le_bytes());
        head[16..20].copy_from_slice(&stamp.producer.to_le_bytes());
        let sum = checksum(&head);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        if self.is_json {
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            let digits = head.map(|byte| [digit(byte >> 4), digit(byte & 15)]);
            let [before, between, behind] = JSON_PARTS;
            for part in [before, digits.as_flattened(), between, &self.filling, behind] {
                self.arena.extend_from_slice(part);
            }
        } else {
            self.arena.extend_from_slice(&head);
            self.arena.extend_from_slice(&self.filling);
        }
        self.arena.split().freeze()
    }

    /// Parses the stamp of `payload`; `None` if any byte is wrong.
    #[must_use]
    pub fn read(&self, payload: &[u8]) -> Option<Stamp> {
        if self.is_json {
            return self.read_json(payload);
        }
        let stamp = self.read_stamp(payload)?;
        (payload[STAMP_BYTES..] == self.filling).then_some(stamp)
    }

    /// As [`Self::read`], but checks only the length of the filling. Readers that receive the same message many
    /// times rely on the checksum that the clients compute and check.
    #[must_use]
    pub fn read_stamp(&self, payload: &[u8]) -> Option<Stamp> {
        if self.is_json {
            return self.read_json(payload);
        }
        let (head, filling) = payload.split_first_chunk::<STAMP_BYTES>()?;
        let stamp = stamp_of(head)?;
        (filling.len() == self.filling.len()).then_some(stamp)
    }

    /// The sequence in a payload of JSON, without a check of the rest.
    #[must_use]
    pub fn json_sequence(payload: &[u8]) -> Option<u64> {
        let digits = payload.get(JSON_PARTS[0].len()..)?.first_chunk::<16>()?;
        let mut sequence = 0;
        // The lowest byte comes first.
        for pair in digits.chunks_exact(2).rev() {
            sequence = sequence << 8 | u64::from(half(pair[0])? << 4 | half(pair[1])?);
        }
        Some(sequence)
    }

    fn read_json(&self, payload: &[u8]) -> Option<Stamp> {
        let [before, between, behind] = JSON_PARTS;
        let (digits, rest) = payload.strip_prefix(before)?.split_at_checked(2 * STAMP_BYTES)?;
        let filling = rest.strip_prefix(between)?.strip_suffix(behind)?;
        let mut head = [0; STAMP_BYTES];
        for (byte, pair) in head.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = half(pair[0])? << 4 | half(pair[1])?;
        }
        let stamp = stamp_of(&head)?;
        (filling == self.filling).then_some(stamp)
    }
}

/// Half a byte of its hexadecimal digit, as [`Payloads::make`] writes it.
fn half(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn stamp_of(head: &[u8; STAMP_BYTES]) -> Option<Stamp> {
    let u64_at = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let tail = u64_at(16);
    // Two numbers of 32 bits, the producer in the low half.
    let (producer, sum) = (tail as u32, (tail >> 32) as u32);
    let is_whole = sum == checksum(head);
    is_whole.then(|| Stamp { producer, sequence: u64_at(0), intended_ns: u64_at(8) })
}

fn checksum(head: &[u8; STAMP_BYTES]) -> u32 {
    // The low half of the hash.
    xxh3_64(&head[..20]) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { producer: 3, sequence: 1 << 40, intended_ns: 77 };

    #[test]
    fn a_payload_says_who_it_is() {
        for size in [STAMP_BYTES, 25, 64, 1024, 3 << 20] {
            let mut payloads = Payloads::new(size);
            let payload = payloads.make(STAMP);
            assert_eq!(payload.len(), size);
            assert_eq!(Payloads::new(size).read(&payload), Some(STAMP));
        }
        for size in [JSON_STAMP_BYTES, 110] {
            let payload = Payloads::json(size).make(STAMP);
            assert_eq!(payload.len(), size);
            assert!(serde_json::from_slice::<serde_json::Value>(&payload).unwrap().is_object());
            assert_eq!(Payloads::json(size).read(&payload), Some(STAMP));
            assert_eq!(Payloads::json_sequence(&payload), Some(STAMP.sequence));
            assert_eq!(Payloads::json_sequence(&payload[..20]), None);
        }
    }

    #[test]
    fn a_corrupted_message_is_found_wherever_the_bit_flipped() {
        for mut payloads in [Payloads::new(40), Payloads::json(90)] {
            let payload = payloads.make(STAMP);
            for bit in 0..payload.len() * 8 {
                let mut bytes = payload.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(payloads.read(&bytes), None, "bit {bit}");
            }
            assert_eq!(payloads.read(&payload[..payload.len() - 1]), None);
            assert_eq!(payloads.read(&[&payload[..], b"x"].concat()), None);
        }
    }
}

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

use bytes::{Bytes, BytesMut};
use sennit_client::{BatchBuilder, Message};
use xxhash_rust::xxh3::xxh3_64;

/// The length of the stamp in bytes: no payload is shorter.
pub const STAMP_BYTES: usize = 24;

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
        Self { filling, arena: BytesMut::new() }
    }

    /// Builds a payload. Costs a copy and no allocation of its own.
    pub fn make(&mut self, stamp: Stamp) -> Bytes {
        let size = STAMP_BYTES + self.filling.len();
        if self.arena.capacity() < size {
            self.arena = BytesMut::with_capacity(ARENA_BYTES.max(size));
        }
        let mut head = [0; STAMP_BYTES];
        head[..8].copy_from_slice(&stamp.sequence.to_le_bytes());
        head[8..16].copy_from_slice(&stamp.intended_ns.to_le_bytes());
        head[16..20].copy_from_slice(&stamp.producer.to_le_bytes());
        let sum = checksum(&head);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        self.arena.extend_from_slice(&head);
        self.arena.extend_from_slice(&self.filling);
        self.arena.split().freeze()
    }

    /// Parses the stamp of `payload`; `None` if any byte is wrong.
    #[must_use]
    pub fn read(&self, payload: &[u8]) -> Option<Stamp> {
        let stamp = self.read_stamp(payload)?;
        (payload[STAMP_BYTES..] == self.filling).then_some(stamp)
    }

    /// As [`Self::read`], but checks only the length of the filling. Readers that receive the same message many
    /// times rely on the checksum that the clients compute and check.
    #[must_use]
    pub fn read_stamp(&self, payload: &[u8]) -> Option<Stamp> {
        let (head, filling) = payload.split_first_chunk::<STAMP_BYTES>()?;
        let u64_at = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let tail = u64_at(16);
        // Two numbers of 32 bits, the producer in the low half.
        let (producer, sum) = (tail as u32, (tail >> 32) as u32);
        let whole = sum == checksum(head) && filling.len() == self.filling.len();
        whole.then(|| Stamp { producer, sequence: u64_at(0), intended_ns: u64_at(8) })
    }
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
    }

    #[test]
    fn a_corrupted_message_is_found_wherever_the_bit_flipped() {
        let mut payloads = Payloads::new(40);
        let payload = payloads.make(STAMP);
        for bit in 0..payload.len() * 8 {
            let mut bytes = payload.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(payloads.read(&bytes), None, "bit {bit}");
        }
        assert_eq!(payloads.read(&payload[..39]), None);
        assert_eq!(payloads.read(&[&payload[..], b"x"].concat()), None);
    }
}

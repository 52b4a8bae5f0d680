//! One message: owned, as a publisher makes it, and borrowed, as it lies in a batch.
//!
//! ```text
//! offset size
//!      0    4  size          of the whole message, these bytes included
//!      4    4  checksum      CRC-32C of bytes 8..size
//!      8    2  flags         1 = delay follows, 2 = time to live follows; others are 0
//!     10    2  key_len
//!     12    2  headers_len
//!     14    2  reserved, 0
//!     16    8  delay_ms          only with flag 1: ready this long after it was appended
//!      .    8  time_to_live_ms   only with flag 2: expires this long after it was appended
//!      .       key | headers | payload (the rest)
//! ```
//! All numbers are little-endian. Delay and time to live are relative, so that the broker stores
//! the publisher's bytes as they came: the record around the batch says when it was appended.

use std::time::Duration;

use bytes::Bytes;

use crate::header::{Header, Headers};

pub(crate) const FIXED_BYTES: usize = crate::limits::MESSAGE_BYTES_MIN;
pub(crate) const FLAG_DELAY: u16 = 1;
pub(crate) const FLAG_TIME_TO_LIVE: u16 = 2;

/// A message that a publisher makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Determines the partition and names the message; may be empty.
    pub key: Bytes,
    /// Headers, in order; names may repeat.
    pub headers: Vec<Header>,
    /// The payload.
    pub payload: Bytes,
    /// Time before the message is ready, in whole milliseconds.
    pub delay: Option<Duration>,
    /// Age after which the message expires if it was never leased, in whole milliseconds.
    pub time_to_live: Option<Duration>,
}

impl Message {
    /// A message with only a payload.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }
}

/// A message in a checked [`crate::Batch`].
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
}

impl<'a> MessageView<'a> {
    /// `bytes` must be exactly one message that [`crate::Batch`] has checked.
    pub(crate) fn of_checked(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn flags(&self) -> u16 {
        self.u16_at(8)
    }

    fn duration_at(&self, at: usize) -> Duration {
        let mut ms = [0; 8];
        ms.copy_from_slice(&self.bytes[at..at + 8]);
        Duration::from_millis(u64::from_le_bytes(ms))
    }

    fn key_at(&self) -> usize {
        let flags = self.flags();
        FIXED_BYTES
            + 8 * usize::from(flags & FLAG_DELAY != 0)
            + 8 * usize::from(flags & FLAG_TIME_TO_LIVE != 0)
    }

    fn headers_at(&self) -> usize {
        self.key_at() + usize::from(self.u16_at(10))
    }

    fn payload_at(&self) -> usize {
        self.headers_at() + usize::from(self.u16_at(12))
    }

    /// The whole message, encoded.
    #[must_use]
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// The key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at()..self.headers_at()]
    }

    /// The headers, encoded.
    #[must_use]
    pub fn encoded_headers(&self) -> &'a [u8] {
        &self.bytes[self.headers_at()..self.payload_at()]
    }

    /// Iterates over the headers. Each item may be an error, because the broker does not check the
    /// headers of publishers.
    #[must_use]
    pub fn headers(&self) -> Headers<'a> {
        Headers::new(self.encoded_headers())
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_at()..]
    }

    /// Returns whether the message is a tombstone: it has a key and an empty payload. This matters
    /// in topics that keep the latest message of each key.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.payload_at() == self.bytes.len() && self.u16_at(10) != 0
    }

    /// Time before the message is ready, from its append.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        (self.flags() & FLAG_DELAY != 0).then(|| self.duration_at(FIXED_BYTES))
    }

    /// Age after which the message expires, from its append.
    #[must_use]
    pub fn time_to_live(&self) -> Option<Duration> {
        let delay = self.flags() & FLAG_DELAY != 0;
        (self.flags() & FLAG_TIME_TO_LIVE != 0)
            .then(|| self.duration_at(FIXED_BYTES + 8 * usize::from(delay)))
    }
}

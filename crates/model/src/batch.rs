//! The batch: messages back to back in the layout of message.rs. A batch passes from a publisher's socket through
//! the journal to a consumer's socket, and is never taken apart.

mod rewritten;

use std::ops::Range;

use bytes::{BufMut, Bytes};
use crc_fast::{CrcAlgorithm, checksum};

use crate::{
    header::{HeaderError, encode_headers},
    limits::{
        APPEND_BYTES_MAX, BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, BROKER_HEADERS_BYTES_MAX,
        DURATION_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX,
    },
    message::{FIXED_BYTES, FLAG_DELAY, FLAG_TIME_TO_LIVE, Message, MessageView},
};

/// The reason why bytes are not a batch, or why a message does not fit into one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The batch has no message.
    #[error("a batch holds at least one message")]
    Empty,
    /// The batch has too many messages.
    #[error("a batch holds at most {BATCH_MESSAGES_MAX} messages, this one has more")]
    TooMany,
    /// Too many bytes.
    #[error(
        "a batch has at most {BATCH_BYTES_MAX} bytes, or {APPEND_BYTES_MAX} in a stream; this one \
         has {length}"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// One message is too long.
    #[error(
        "a message has at most {MESSAGE_BYTES_MAX} bytes, encoded; message {index} has {length}"
    )]
    MessageTooLong {
        /// Which message of the batch, from 0.
        index: usize,
        /// Its encoded length in bytes.
        length: usize,
    },
    /// A key is too long.
    #[error("a key has at most {KEY_BYTES_MAX} bytes, that of message {index} has {length}")]
    KeyTooLong {
        /// Which message of the batch, from 0.
        index: usize,
        /// The key's length in bytes.
        length: usize,
    },
    /// A header is invalid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The bytes end inside a message, or the parts of a message are longer than the message.
    #[error("message {index} of the batch goes beyond its end")]
    Truncated {
        /// Which message of the batch, from 0.
        index: usize,
    },
    /// A message's checksum does not match its bytes.
    #[error("message {index} of the batch was damaged on the way: its checksum does not match")]
    Checksum {
        /// Which message of the batch, from 0.
        index: usize,
    },
    /// A flag is unknown to this version.
    #[error("message {index} of the batch has unknown flags {flags:#06x}")]
    Flags {
        /// Which message of the batch, from 0.
        index: usize,
        /// The flags as given.
        flags: u16,
    },
    /// A delay or time to live exceeds the limit.
    #[error("message {index} of the batch asks for more than a hundred years")]
    Duration {
        /// Which message of the batch, from 0.
        index: usize,
    },
}

/// A checked batch: one or more whole messages, each of which matches its checksum. Cloning shares
/// the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    bytes: Bytes,
    count: u32,
    timed: bool,
    keyed: bool,
}

impl Batch {
    /// Checks `bytes` of a publisher: sizes, limits, flags and checksums. Costs one pass over the
    /// bytes (~20 ns a message and ~20 ns a KiB).
    ///
    /// # Errors
    /// A [`BatchError`] that names the first invalid message.
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        Self::walk(bytes, true, 0, BATCH_BYTES_MAX)
    }

    /// Checks `bytes` that the broker delivered: like [`Batch::check`], but each message may carry
    /// headers that the broker added.
    ///
    /// # Errors
    /// A [`BatchError`] that names the first invalid message.
    pub fn check_delivered(bytes: Bytes) -> Result<Self, BatchError> {
        let bytes_max = BATCH_BYTES_MAX + BROKER_HEADERS_BYTES_MAX;
        Self::walk(bytes, true, BROKER_HEADERS_BYTES_MAX, bytes_max)
    }

    /// Checks `bytes` from the journal, whose checksum covers them: like [`Batch::check_kept`], but
    /// without the checksums of the messages.
    ///
    /// # Errors
    /// A [`BatchError`] that names the first invalid message.
    pub fn from_journal(bytes: Bytes) -> Result<Self, BatchError> {
        Self::walk(bytes, false, BROKER_HEADERS_BYTES_MAX, APPEND_BYTES_MAX)
    }

    /// Checks `bytes` that were stored and read back: like [`Batch::check_delivered`], but the
    /// batch may be as long as an append to a stream.
    ///
    /// # Errors
    /// A [`BatchError`] that names the first invalid message.
    pub fn check_kept(bytes: Bytes) -> Result<Self, BatchError> {
        Self::walk(bytes, true, BROKER_HEADERS_BYTES_MAX, APPEND_BYTES_MAX)
    }

    fn walk(
        bytes: Bytes,
        checksums: bool,
        extra: usize,
        bytes_max: usize,
    ) -> Result<Self, BatchError> {
        if bytes.len() > bytes_max {
            return Err(BatchError::TooLong { length: bytes.len() });
        }
        let mut rest = &bytes[..];
        let mut index = 0;
        let (mut timed, mut keyed) = (false, true);
        while !rest.is_empty() {
            if index == BATCH_MESSAGES_MAX {
                return Err(BatchError::TooMany);
            }
            let size = check_message(rest, index, checksums, extra)?;
            timed |= rest[8] != 0;
            keyed &= rest[10] | rest[11] != 0;
            rest = &rest[size..];
            index += 1;
        }
        let count = u32::try_from(index).map_err(|_| BatchError::TooMany)?;
        if count == 0 {
            return Err(BatchError::Empty);
        }
        Ok(Self { bytes, count, timed, keyed })
    }

    /// The encoded bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of messages, at least 1.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether any message has a delay or a time to live.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns whether every message has a key.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// The messages of these numbers, from 0, as a batch of their own; it shares the bytes. All of them if the
    /// numbers are none of this batch.
    #[must_use]
    pub fn part(&self, numbers: Range<u32>) -> Self {
        let Range { start, end } = numbers;
        if start >= end || end > self.count {
            return self.clone();
        }
        let mut at = 0;
        let mut bounds = (0, self.bytes.len());
        for (index, message) in (0..).zip(self.messages()) {
            if index == start {
                bounds.0 = at;
            }
            at += message.encoded().len();
            if index + 1 == end {
                bounds.1 = at;
                break;
            }
        }
        Self { bytes: self.bytes.slice(bounds.0..bounds.1), count: end - start, ..*self }
    }

    /// Iterates over the messages.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages::of_checked(&self.bytes)
    }
}

/// Checks the message at the start of `rest` and returns its size.
fn check_message(
    rest: &[u8],
    index: usize,
    checksums: bool,
    extra: usize,
) -> Result<usize, BatchError> {
    let truncated = BatchError::Truncated { index };
    let Some(fixed) = rest.first_chunk::<FIXED_BYTES>() else { return Err(truncated) };
    let u16_at = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let u32_at =
        |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let size = u32_at(0) as usize;
    if size > MESSAGE_BYTES_MAX + extra {
        return Err(BatchError::MessageTooLong { index, length: size });
    }
    let flags = u16_at(8);
    if flags & !(FLAG_DELAY | FLAG_TIME_TO_LIVE) != 0 || u16_at(14) != 0 {
        return Err(BatchError::Flags { index, flags });
    }
    let key_len = usize::from(u16_at(10));
    if key_len > KEY_BYTES_MAX {
        return Err(BatchError::KeyTooLong { index, length: key_len });
    }
    let headers_len = usize::from(u16_at(12));
    if headers_len > HEADERS_BYTES_MAX + extra {
        return Err(HeaderError::TooLong { length: headers_len }.into());
    }
    let times = 8 * (usize::from(flags & 1) + usize::from(flags >> 1 & 1));
    let least = FIXED_BYTES + times + key_len + headers_len;
    if size < least || size > rest.len() {
        return Err(truncated);
    }
    let limit = DURATION_MAX.as_millis();
    for time in rest[FIXED_BYTES..FIXED_BYTES + times].as_chunks::<8>().0 {
        if u128::from(u64::from_le_bytes(*time)) > limit {
            return Err(BatchError::Duration { index });
        }
    }
    if checksums && message_checksum(&rest[8..size]) != u32_at(4) {
        return Err(BatchError::Checksum { index });
    }
    Ok(size)
}

fn message_checksum(bytes: &[u8]) -> u32 {
    // CRC-32C fits 32 bits; the library returns every width as u64.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Iterates over the messages of a checked batch, or of a part of one that begins and ends between
/// messages.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Iterates over `bytes`, which must be whole messages of a checked [`Batch`].
    ///
    /// # Panics
    /// The iteration panics if they are not.
    #[must_use]
    pub fn of_checked(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Skips `count` messages and returns their size in bytes.
    pub fn skip_bytes(&mut self, count: u32) -> usize {
        let before = self.rest.len();
        for _ in 0..count {
            if self.next().is_none() {
                break;
            }
        }
        before - self.rest.len()
    }

    /// Returns whether each message matches its checksum. Costs ~20 ns a message and ~20 ns a KiB.
    #[must_use]
    pub fn are_intact(self) -> bool {
        self.map(|message| message.encoded()).all(|encoded| {
            message_checksum(&encoded[8..])
                == u32::from_le_bytes([encoded[4], encoded[5], encoded[6], encoded[7]])
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = MessageView<'a>;

    fn next(&mut self) -> Option<MessageView<'a>> {
        let size = u32::from_le_bytes(*self.rest.first_chunk()?) as usize;
        let (message, rest) = self.rest.split_at(size);
        self.rest = rest;
        Some(MessageView::of_checked(message))
    }
}

/// Gathers messages into a batch.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: Vec<u8>,
    count: u32,
    timed: bool,
    /// Whether any message has no key.
    keyless: bool,
    /// Bytes by which headers and messages may exceed a publisher's limits.
    extra: usize,
    /// The limit for the batch in bytes.
    bytes_max: usize,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            timed: false,
            keyless: false,
            extra: 0,
            bytes_max: BATCH_BYTES_MAX,
        }
    }
}

impl BatchBuilder {
    /// A builder without messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder whose messages may carry headers that the broker adds.
    #[must_use]
    pub fn for_broker() -> Self {
        let extra = BROKER_HEADERS_BYTES_MAX;
        Self { extra, bytes_max: BATCH_BYTES_MAX + extra, ..Self::default() }
    }

    /// A builder for one append to a stream: up to [`APPEND_BYTES_MAX`]. Allocates room for `bytes`
    /// encoded bytes.
    #[must_use]
    pub fn for_append(bytes: usize) -> Self {
        let room = Vec::with_capacity(bytes.min(APPEND_BYTES_MAX));
        Self { bytes: room, bytes_max: APPEND_BYTES_MAX, ..Self::default() }
    }

    /// The number of messages.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The size of the messages in bytes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the builder has no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a message of `encoded_len` bytes fits.
    #[must_use]
    pub fn has_room_for(&self, encoded_len: usize) -> bool {
        self.bytes.len() + encoded_len <= self.bytes_max - self.extra
            && (self.count as usize) < BATCH_MESSAGES_MAX
    }

    /// The encoded size of `message` in bytes.
    #[must_use]
    pub fn encoded_len(message: &Message) -> usize {
        let headers: usize = message.headers.iter().map(|h| 4 + h.name.len() + h.value.len()).sum();
        let times = 8
            * (usize::from(message.delay.is_some()) + usize::from(message.time_to_live.is_some()));
        FIXED_BYTES + times + message.key.len() + headers + message.payload.len()
    }

    /// Adds a message.
    ///
    /// # Errors
    /// A [`BatchError`] that names the exceeded limit. The builder is then unchanged.
    pub fn push(&mut self, message: &Message) -> Result<(), BatchError> {
        let start = self.bytes.len();
        let pushed = self.try_push(message, start);
        if pushed.is_err() {
            self.bytes.truncate(start);
        }
        pushed
    }

    fn try_push(&mut self, message: &Message, start: usize) -> Result<(), BatchError> {
        let index = self.count as usize;
        let length = Self::encoded_len(message);
        if length > MESSAGE_BYTES_MAX + self.extra {
            return Err(BatchError::MessageTooLong { index, length });
        }
        if index == BATCH_MESSAGES_MAX {
            return Err(BatchError::TooMany);
        }
        if start + length > self.bytes_max {
            return Err(BatchError::TooLong { length: start + length });
        }
        let key_len = u16::try_from(message.key.len())
            .ok()
            .filter(|&n| usize::from(n) <= KEY_BYTES_MAX)
            .ok_or(BatchError::KeyTooLong { index, length: message.key.len() })?;
        let flags = FLAG_DELAY * u16::from(message.delay.is_some())
            + FLAG_TIME_TO_LIVE * u16::from(message.time_to_live.is_some());
        self.bytes.reserve(length);
        self.bytes.put_bytes(0, 8);
        self.bytes.put_u16_le(flags);
        self.bytes.put_u16_le(key_len);
        self.bytes.put_u32_le(0);
        for time in [message.delay, message.time_to_live].into_iter().flatten() {
            if time > DURATION_MAX {
                return Err(BatchError::Duration { index });
            }
            self.bytes.put_u64_le(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        }
        self.bytes.put_slice(&message.key);
        let headers_start = self.bytes.len();
        encode_headers(&message.headers, &mut self.bytes)?;
        let length_of_headers = self.bytes.len() - headers_start;
        if length_of_headers > HEADERS_BYTES_MAX + self.extra {
            return Err(HeaderError::TooLong { length: length_of_headers }.into());
        }
        let headers_len = u16::try_from(length_of_headers).unwrap_or(u16::MAX);
        self.bytes.put_slice(&message.payload);
        let bytes = &mut self.bytes[start..];
        bytes[12..14].copy_from_slice(&headers_len.to_le_bytes());
        let size = u32::try_from(length).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        let checksum = message_checksum(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.count += 1;
        self.timed |= flags != 0;
        self.keyless |= key_len == 0;
        Ok(())
    }

    /// Returns the messages as a batch; `None` without messages. The builder is empty afterwards.
    pub fn take(&mut self) -> Option<Batch> {
        if self.is_empty() {
            return None;
        }
        let Self { extra, bytes_max, .. } = *self;
        let built = std::mem::replace(self, Self { extra, bytes_max, ..Self::default() });
        Some(Batch {
            bytes: Bytes::from(built.bytes),
            count: built.count,
            timed: built.timed,
            keyed: !built.keyless,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::Header;

    fn any_message() -> impl Strategy<Value = Message> {
        let bytes = |n| proptest::collection::vec(any::<u8>(), 0..n).prop_map(Bytes::from);
        let header = ("[a-z]{1,9}", bytes(20)).prop_map(|(name, value)| Header {
            name,
            kind: crate::HeaderKind::Binary,
            value,
        });
        let time = || proptest::option::of((0..1u64 << 40).prop_map(Duration::from_millis));
        (bytes(30), proptest::collection::vec(header, 0..4), bytes(300), time(), time()).prop_map(
            |(key, headers, payload, delay, time_to_live)| Message {
                key,
                headers,
                payload,
                delay,
                time_to_live,
            },
        )
    }

    fn owned(view: MessageView<'_>) -> Message {
        Message {
            key: Bytes::copy_from_slice(view.key()),
            headers: view
                .headers()
                .map(|h| h.unwrap())
                .map(|(name, kind, value)| Header {
                    name: name.into(),
                    kind,
                    value: Bytes::copy_from_slice(value),
                })
                .collect(),
            payload: Bytes::copy_from_slice(view.payload()),
            delay: view.delay(),
            time_to_live: view.time_to_live(),
        }
    }

    proptest! {
        #[test]
        fn what_was_put_into_a_batch_comes_out_of_it(
            messages in proptest::collection::vec(any_message(), 1..8),
        ) {
            let mut builder = BatchBuilder::new();
            for message in &messages {
                builder.push(message).unwrap();
            }
            let built = builder.take().unwrap();
            let checked = Batch::check(built.bytes().clone()).unwrap();
            prop_assert_eq!(&checked, &built);
            prop_assert_eq!(checked.messages().map(owned).collect::<Vec<_>>(), messages);
        }

        #[test]
        fn any_bytes_are_checked_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Batch::check(Bytes::from(bytes));
        }

        #[test]
        fn a_flipped_bit_is_found(message in any_message(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut builder = BatchBuilder::new();
            builder.push(&message).unwrap();
            let mut bytes = builder.take().unwrap().bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Batch::check(Bytes::from(bytes)).is_err());
        }
    }

    #[test]
    fn an_append_may_be_longer_than_a_publishers_batch() {
        let message = Message::new(vec![7; MESSAGE_BYTES_MAX - FIXED_BYTES]);
        let mut append = BatchBuilder::for_append(APPEND_BYTES_MAX);
        append.push(&message).unwrap();
        append.push(&message).unwrap();
        let length = 3 * MESSAGE_BYTES_MAX;
        assert_eq!(append.push(&message), Err(BatchError::TooLong { length }));
        let batch = append.take().unwrap();
        assert_eq!(Batch::from_journal(batch.bytes().clone()), Ok(batch.clone()));
        assert_eq!(Batch::check_kept(batch.bytes().clone()), Ok(batch.clone()));
        let length = 2 * MESSAGE_BYTES_MAX;
        assert_eq!(Batch::check(batch.bytes().clone()), Err(BatchError::TooLong { length }));
    }

    #[test]
    fn a_message_that_does_not_match_its_checksum_is_not_intact() {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("first")).unwrap();
        builder.push(&Message::new("second")).unwrap();
        let batch = builder.take().unwrap();
        assert!(batch.messages().are_intact());
        let mut bytes = batch.bytes().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        assert!(!Messages::of_checked(&bytes).are_intact());
    }

    #[test]
    fn a_refused_message_leaves_the_builder_as_it_was() {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("first")).unwrap();
        let before = builder.byte_count();
        let long = Message { key: vec![0; KEY_BYTES_MAX + 1].into(), ..Message::default() };
        assert_eq!(
            builder.push(&long),
            Err(BatchError::KeyTooLong { index: 1, length: KEY_BYTES_MAX + 1 })
        );
        assert_eq!((builder.count(), builder.byte_count()), (1, before));
    }
}

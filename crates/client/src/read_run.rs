//! Messages as a reader receives them. They are not settled. It knows no socket.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use sennit_model::{
    Batch, Headers, MessageView, Messages, Offset, PartitionIndex, Timestamp, TopicName,
};
use sennit_protocol::{DeliverHead, Durability};

/// The messages of one deliver frame.
#[derive(Debug)]
pub(crate) struct ReadBatch {
    pub(crate) topic: TopicName,
    pub(crate) head: DeliverHead,
    pub(crate) batch: Batch,
}

macro_rules! describe {
    ($type:ident) => {
        impl $type {
            /// The topic.
            #[must_use]
            pub fn topic(&self) -> &TopicName {
                &self.batch.topic
            }

            /// Which of the topic's partitions.
            #[must_use]
            pub fn partition(&self) -> PartitionIndex {
                self.batch.head.partition
            }

            /// When it was appended, by the broker's clock.
            #[must_use]
            pub fn appended_at(&self) -> Timestamp {
                self.batch.head.appended_at
            }

            /// The durability that it had when it was delivered.
            #[must_use]
            pub fn durability(&self) -> Durability {
                self.batch.head.durability
            }
        }
    };
}

/// One message that a reader received. Cheap to clone.
#[derive(Clone)]
pub struct ReadMessage {
    batch: Arc<ReadBatch>,
    from: u32,
    bytes: Range<usize>,
}

describe!(ReadMessage);

impl ReadMessage {
    /// The message's offset.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.batch.head.first.plus(u64::from(self.from))
    }

    /// The message as it lies in its batch.
    #[must_use]
    pub fn message(&self) -> MessageView<'_> {
        let bytes = &self.batch.batch.bytes()[self.bytes.clone()];
        Messages::of_checked(bytes).next().expect("the range is one message of a checked batch")
    }

    /// The key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.message().key()
    }

    /// Iterates over the headers. Each item may be an error, because the broker does not check what
    /// publishers send.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        self.message().headers()
    }

    /// The payload. It shares the memory of its frame; copy a small part that you keep for long.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.batch.batch.bytes().slice_ref(self.message().payload())
    }
}

impl fmt::Debug for ReadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadMessage")
            .field("topic", &self.topic().as_str())
            .field("partition", &self.partition().0)
            .field("offset", &self.offset().0)
            .finish_non_exhaustive()
    }
}

/// Messages of one partition that came in one frame, in order. Cheap to clone.
#[derive(Clone)]
pub struct ReadRun {
    batch: Arc<ReadBatch>,
    from: u32,
    from_byte: usize,
    /// The index behind the last message.
    to: u32,
    to_byte: usize,
}

describe!(ReadRun);

impl ReadRun {
    pub(crate) fn new(batch: ReadBatch) -> Self {
        let (to, to_byte) = (batch.head.count, batch.batch.bytes().len());
        Self { batch: Arc::new(batch), from: 0, from_byte: 0, to, to_byte }
    }

    /// The first message's offset; the others follow.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        self.batch.head.first.plus(u64::from(self.from))
    }

    /// How many messages, at least 1.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.to - self.from
    }

    /// How many bytes they take, encoded.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.to_byte - self.from_byte
    }

    /// A walk over the messages, without copying.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages::of_checked(&self.batch.batch.bytes()[self.from_byte..self.to_byte])
    }

    /// Removes the messages at `end` and behind it. Returns whether any message remains.
    pub(crate) fn keep_before(&mut self, end: Offset) -> bool {
        let kept = end.0.saturating_sub(self.first_offset().0);
        if kept < u64::from(self.count()) {
            let kept = u32::try_from(kept).expect("less than the run has");
            self.to_byte = self.from_byte + self.messages().skip_bytes(kept);
            self.to = self.from + kept;
        }
        self.count() > 0
    }

    /// Removes and returns the first message; `None` if the run is empty.
    pub(crate) fn take_first(&mut self) -> Option<ReadMessage> {
        let length = self.messages().next()?.encoded().len();
        let bytes = self.from_byte..self.from_byte + length;
        let first = ReadMessage { batch: Arc::clone(&self.batch), from: self.from, bytes };
        self.from += 1;
        self.from_byte += length;
        Some(first)
    }
}

impl fmt::Debug for ReadRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRun")
            .field("topic", &self.topic().as_str())
            .field("partition", &self.partition().0)
            .field("first_offset", &self.first_offset().0)
            .field("count", &self.count())
            .finish()
    }
}

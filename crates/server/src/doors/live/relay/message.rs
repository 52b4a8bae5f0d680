//! Messages between brokers, as bytes. Numbers are little-endian:
//!
//! ```text
//! offset  bytes
//!  0    1  version, 1
//!  1    1  kind: 1 news, 2 sent again, 3 question, 4 gone; of presence 5 joined, 6 left, 7 here, 8 who is here, 9 alive
//!  2   16  the broker that sends it
//! 18    8  the incarnation tag of the topic there
//! 26    8  from: the first offset that it is about
//! 34    8  end: the offset behind the last
//! 42    2  length of the topic's name, then the name
//!  .    .  of news and what is sent again: messages, each `offset u64 | length u32 | message`
//! ```
//!
//! Those of presence are about clients that are subscribed, each as a message (`members`); their tag is 0 and their offsets count
//! from 0. `alive` is of no topic, and names one that nobody has. A message is encoded as the journal has it. Offsets between
//! `from` and `end` that have no message are not for others.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use sennit_model::{Batch, TopicName};

const VERSION: u8 = 1;

/// Bytes before the name of the topic.
const FIXED_BYTES: usize = 44;

/// A broker among those that share a Redis: drawn when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) [u8; 16]);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a message between brokers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayKind {
    /// What was published.
    News,
    /// What was asked for again.
    Again,
    /// A question for what was published from an offset on.
    Question,
    /// What was asked for is not kept any more.
    Gone,
    /// Clients came to a topic.
    Joined,
    /// Clients went.
    Left,
    /// All clients that are subscribed to a topic at a broker, or the first of them.
    Here,
    /// A question for those.
    WhoIsHere,
    /// A broker is there.
    Alive,
}

impl RelayKind {
    const ALL: [Self; 9] = [
        Self::News,
        Self::Again,
        Self::Question,
        Self::Gone,
        Self::Joined,
        Self::Left,
        Self::Here,
        Self::WhoIsHere,
        Self::Alive,
    ];

    fn number(self) -> u8 {
        match self {
            Self::News => 1,
            Self::Again => 2,
            Self::Question => 3,
            Self::Gone => 4,
            Self::Joined => 5,
            Self::Left => 6,
            Self::Here => 7,
            Self::WhoIsHere => 8,
            Self::Alive => 9,
        }
    }
}

/// A message between brokers that share a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayMessage {
    pub(crate) kind: RelayKind,
    /// The broker that sends it.
    pub(crate) node: NodeId,
    pub(crate) topic: TopicName,
    /// Which topic of this name it is about: of the broker that has published.
    pub(crate) tag: u64,
    /// The first offset that it is about, and that behind the last.
    pub(crate) from: u64,
    pub(crate) end: u64,
    /// Messages with their offsets, encoded.
    pub(crate) messages: Vec<(u64, Bytes)>,
}

/// The reason why bytes are no message between brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayDecodeError {
    /// Another version of the broker has sent it.
    #[error("version {0}: this broker speaks {VERSION}; have all brokers run the same version")]
    Version(u8),
    /// The kind is unknown.
    #[error("kind {0} is not known")]
    Kind(u8),
    /// The bytes end too early.
    #[error("it ends within a field")]
    Truncated,
    /// No topic has this name.
    #[error("the topic's name is none")]
    Topic,
    /// A message of it is none, or its checksum does not match.
    #[error("the message at offset {0} is none")]
    Message(u64),
    /// An offset is not where it may be.
    #[error("offset {0} is not between those that it is about, or not behind the one before")]
    Offset(u64),
}

impl RelayMessage {
    /// Bytes of all messages in it.
    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|(_, message)| message.len()).sum()
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let name = self.topic.as_str().as_bytes();
        let length = FIXED_BYTES + name.len() + self.bytes() + 12 * self.messages.len();
        let mut out = BytesMut::with_capacity(length);
        out.put_u8(VERSION);
        out.put_u8(self.kind.number());
        out.put_slice(&self.node.0);
        out.put_u64_le(self.tag);
        out.put_u64_le(self.from);
        out.put_u64_le(self.end);
        // A name has at most 255 bytes.
        out.put_u16_le(name.len() as u16);
        out.put_slice(name);
        for (offset, message) in &self.messages {
            out.put_u64_le(*offset);
            out.put_u32_le(message.len() as u32);
            out.put_slice(message);
        }
        out.freeze()
    }

    /// The message that these bytes are. Costs a pass over them.
    ///
    /// # Errors
    /// They are none: it says why.
    pub fn decode(mut bytes: Bytes) -> Result<Self, RelayDecodeError> {
        let truncated = RelayDecodeError::Truncated;
        if let Some(&version) = bytes.first().filter(|version| **version != VERSION) {
            return Err(RelayDecodeError::Version(version));
        }
        if bytes.len() < FIXED_BYTES {
            return Err(truncated);
        }
        bytes.advance(1);
        let number = bytes.get_u8();
        let kind = RelayKind::ALL.into_iter().find(|kind| kind.number() == number);
        let kind = kind.ok_or(RelayDecodeError::Kind(number))?;
        let mut node = NodeId([0; 16]);
        bytes.copy_to_slice(&mut node.0);
        let (tag, from, end) = (bytes.get_u64_le(), bytes.get_u64_le(), bytes.get_u64_le());
        let length = usize::from(bytes.get_u16_le());
        if bytes.len() < length {
            return Err(truncated);
        }
        let name = bytes.split_to(length);
        let topic = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
        let topic = topic.ok_or(RelayDecodeError::Topic)?;
        let mut messages = Vec::new();
        let mut next = from;
        while !bytes.is_empty() {
            if bytes.len() < 12 {
                return Err(truncated);
            }
            let (offset, length) = (bytes.get_u64_le(), bytes.get_u32_le() as usize);
            if bytes.len() < length {
                return Err(truncated);
            }
            if !(next..end).contains(&offset) {
                return Err(RelayDecodeError::Offset(offset));
            }
            let message = bytes.split_to(length);
            let is_one =
                Batch::check_delivered(message.clone()).is_ok_and(|batch| batch.count() == 1);
            if !is_one {
                return Err(RelayDecodeError::Message(offset));
            }
            messages.push((offset, message));
            next = offset + 1;
        }
        Ok(Self { kind, node, topic, tag, from, end, messages })
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{BatchBuilder, Message};

    use super::*;

    fn message() -> RelayMessage {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("hello")).unwrap();
        let encoded = Bytes::copy_from_slice(builder.take().unwrap().bytes());
        let messages = vec![(5, encoded.clone()), (7, encoded)];
        let (topic, node) = ("news".parse().unwrap(), NodeId([3; 16]));
        RelayMessage { kind: RelayKind::News, node, topic, tag: 9, from: 4, end: 8, messages }
    }

    #[test]
    fn a_message_is_what_its_bytes_say() {
        let message = message();
        assert_eq!(RelayMessage::decode(message.encode()), Ok(message));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_refused() {
        let bytes = message().encode();
        for length in 0..bytes.len() {
            // What ends behind a whole message is a shorter one.
            if let Ok(read) = RelayMessage::decode(bytes.slice(..length)) {
                assert!(read.messages.len() < 2, "{length}");
            }
        }
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            RelayMessage::decode(bytes.into())
        };
        assert_eq!(changed(0, 2), Err(RelayDecodeError::Version(2)));
        assert_eq!(changed(1, 10), Err(RelayDecodeError::Kind(10)));
        assert_eq!(changed(44, 0), Err(RelayDecodeError::Topic));
        assert_eq!(changed(48, 3), Err(RelayDecodeError::Offset(3)));
        let last = bytes.len() - 1;
        assert_eq!(changed(last, bytes[last] ^ 1), Err(RelayDecodeError::Message(7)));
    }
}

//! A frame between nodes: what it says, and the fixed part and the body that it becomes. Numbers are little-endian.
//!
//! ```text
//! kind             fixed part                                        body
//! Greeting, -Answer  protobuf (schema/peer.proto), all of it         -
//! Raft             the table of a message (96 bytes)                 the rest of the message
//! Commands         count u32, checksum u32: CRC-32C of the body      commands
//! Effects          count u32, checksum u32: CRC-32C of the body      effects
//! Request, Answer  sort u32, checksum u32: CRC-32C of the body       what the controls of both nodes know
//! Ping, Pong       the sender's wall clock u64, in ms since 1970     -
//! Piece            -                                                 of the frame that it continues
//! ```

use bytes::{Buf, BufMut, Bytes};

use super::{
    RAFT_MESSAGE_BYTES,
    error::PeerError,
    greeting::{Greeting, GreetingAnswer},
    header::{PeerHeader, checksum_of},
    kind::{Class, PeerKind},
};

/// A frame between nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerFrame {
    /// The class by which it is sent.
    pub class: Class,
    /// The group that it concerns; 0 if none.
    pub group: u32,
    /// The number of a ping; of commands and effects the number that their sender gives them.
    pub number: u64,
    /// What it says.
    pub content: Content,
}

/// What a frame between nodes says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The node that dials introduces itself.
    Greeting(Greeting),
    /// The other node accepts the link or refuses it.
    GreetingAnswer(GreetingAnswer),
    /// A message between replicas of the group.
    Raft {
        /// Its table.
        table: Box<[u8; RAFT_MESSAGE_BYTES]>,
        /// The rest of it, with a checksum of its own in the table.
        body: Bytes,
    },
    /// Commands for the group.
    Commands {
        /// How many there are.
        count: u32,
        /// All of them, one behind the other.
        body: Bytes,
    },
    /// Effects of the group for sessions.
    Effects {
        /// How many there are.
        count: u32,
        /// All of them, one behind the other.
        body: Bytes,
    },
    /// The control of a node asks that of another node. Its number is the asker's.
    Request {
        /// The sort of request: the controls of both nodes know it.
        sort: u32,
        /// The request.
        body: Bytes,
    },
    /// Answers a request, and has its number.
    Answer {
        /// The sort of answer.
        sort: u32,
        /// The answer.
        body: Bytes,
    },
    /// Asks for a pong.
    Ping {
        /// The sender's wall clock, in ms since 1970.
        clock_ms: u64,
    },
    /// Answers a ping.
    Pong {
        /// The sender's wall clock, in ms since 1970.
        clock_ms: u64,
    },
}

impl Content {
    /// The kind of the frame.
    #[must_use]
    pub fn kind(&self) -> PeerKind {
        match self {
            Self::Greeting(_) => PeerKind::Greeting,
            Self::GreetingAnswer(_) => PeerKind::GreetingAnswer,
            Self::Raft { .. } => PeerKind::Raft,
            Self::Commands { .. } => PeerKind::Commands,
            Self::Effects { .. } => PeerKind::Effects,
            Self::Request { .. } => PeerKind::Request,
            Self::Answer { .. } => PeerKind::Answer,
            Self::Ping { .. } => PeerKind::Ping,
            Self::Pong { .. } => PeerKind::Pong,
        }
    }

    /// The fixed part and the body.
    pub(super) fn into_parts(self) -> (Vec<u8>, Bytes) {
        let counted = |count: u32, body: Bytes| {
            let mut fixed = Vec::with_capacity(8);
            fixed.put_u32_le(count);
            fixed.put_u32_le(checksum_of(&[&body]));
            (fixed, body)
        };
        match self {
            Self::Greeting(greeting) => (greeting.encode(), Bytes::new()),
            Self::GreetingAnswer(answer) => (answer.encode(), Bytes::new()),
            Self::Raft { table, body } => (table.to_vec(), body),
            Self::Commands { count, body } | Self::Effects { count, body } => counted(count, body),
            Self::Request { sort, body } | Self::Answer { sort, body } => counted(sort, body),
            Self::Ping { clock_ms } | Self::Pong { clock_ms } => {
                (clock_ms.to_le_bytes().to_vec(), Bytes::new())
            }
        }
    }

    /// Makes it of a fixed part, as long as the header says, and the body.
    pub(super) fn of_parts(
        header: &PeerHeader,
        mut fixed: Bytes,
        body: Bytes,
    ) -> Result<Self, PeerError> {
        let kind = header.kind;
        let counted = |mut fixed: Bytes, body: Bytes| {
            let (count, checksum) = (fixed.get_u32_le(), fixed.get_u32_le());
            match checksum_of(&[&body]) == checksum {
                true => Ok((count, body)),
                false => Err(PeerError::BodyChecksum { kind }),
            }
        };
        Ok(match kind {
            PeerKind::Greeting => Self::Greeting(Greeting::decode(fixed)?),
            PeerKind::GreetingAnswer => Self::GreetingAnswer(GreetingAnswer::decode(fixed)?),
            PeerKind::Raft => {
                let mut table = Box::new([0; RAFT_MESSAGE_BYTES]);
                fixed.copy_to_slice(&mut table[..]);
                Self::Raft { table, body }
            }
            PeerKind::Commands => {
                let (count, body) = counted(fixed, body)?;
                Self::Commands { count, body }
            }
            PeerKind::Effects => {
                let (count, body) = counted(fixed, body)?;
                Self::Effects { count, body }
            }
            PeerKind::Request => {
                let (sort, body) = counted(fixed, body)?;
                Self::Request { sort, body }
            }
            PeerKind::Answer => {
                let (sort, body) = counted(fixed, body)?;
                Self::Answer { sort, body }
            }
            PeerKind::Ping => Self::Ping { clock_ms: fixed.get_u64_le() },
            PeerKind::Pong => Self::Pong { clock_ms: fixed.get_u64_le() },
            PeerKind::Piece => return Err(PeerError::Order { kind }),
        })
    }
}

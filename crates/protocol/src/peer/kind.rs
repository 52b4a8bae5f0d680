//! The kinds and the classes of frames between nodes, and how long a frame of each may be.

use std::fmt;

use super::{BODY_BYTES_MAX, PEER_GREETING_BYTES_MAX, PIECE_BYTES_MAX, RAFT_MESSAGE_BYTES};

/// A class of frames. A lower number goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Votes, heartbeats, acknowledgements, pings. None of them is longer than a piece.
    Urgent = 1,
    /// Appends with bodies, commands, effects.
    Ordinary = 2,
    /// Shipments of the state of a group.
    Bulk = 3,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Ordinary, Self::Bulk];

    /// Its index in [`Class::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize - 1
    }

    /// The class with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| *class as u8 == number)
    }
}

/// The kind of a frame between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PeerKind {
    /// The first frame of the node that dials.
    Greeting = 1,
    /// The first frame of the other node.
    GreetingAnswer = 2,
    /// A message between replicas of a group, perhaps with the body of an entry.
    Raft = 3,
    /// Commands for a group whose leader is at the receiver.
    Commands = 4,
    /// Effects for sessions at the receiver.
    Effects = 5,
    /// Asks for a [`PeerKind::Pong`].
    Ping = 6,
    /// Answers a [`PeerKind::Ping`] and repeats its number.
    Pong = 7,
    /// Continues the body that is under way in its class. Its number is the piece's place in the body.
    Piece = 8,
    /// A request of a node's control, for the control of another node.
    Request = 9,
    /// Answers a [`PeerKind::Request`] and repeats its number.
    Answer = 10,
}

impl PeerKind {
    /// All kinds, by number.
    pub const ALL: [Self; 10] = [
        Self::Greeting,
        Self::GreetingAnswer,
        Self::Raft,
        Self::Commands,
        Self::Effects,
        Self::Ping,
        Self::Pong,
        Self::Piece,
        Self::Request,
        Self::Answer,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns whether it is one of the two first frames of a link.
    #[must_use]
    pub fn is_greeting(self) -> bool {
        matches!(self, Self::Greeting | Self::GreetingAnswer)
    }

    /// Returns whether frames of this kind are sent in the class.
    pub(super) fn may_have(self, class: Class) -> bool {
        match self {
            Self::Greeting | Self::GreetingAnswer | Self::Ping | Self::Pong => {
                class == Class::Urgent
            }
            Self::Raft => class <= Class::Ordinary,
            Self::Commands | Self::Effects | Self::Request | Self::Answer => {
                class == Class::Ordinary
            }
            Self::Piece => class >= Class::Ordinary,
        }
    }

    /// The length of the part that the header's checksum covers, in bytes; `length` is the frame's.
    pub(super) fn fixed_bytes(self, length: usize) -> usize {
        match self {
            Self::Greeting | Self::GreetingAnswer => length,
            Self::Raft => RAFT_MESSAGE_BYTES,
            Self::Commands | Self::Effects | Self::Request | Self::Answer => 8,
            Self::Ping | Self::Pong => 8,
            Self::Piece => 0,
        }
    }

    /// The shortest and the longest that a frame may be.
    pub(super) fn lengths(self, class: Class) -> (usize, usize) {
        let body_max = if class == Class::Urgent { PIECE_BYTES_MAX } else { BODY_BYTES_MAX };
        let fixed = self.fixed_bytes(0);
        match self {
            Self::Greeting | Self::GreetingAnswer => (0, PEER_GREETING_BYTES_MAX),
            Self::Raft | Self::Commands | Self::Effects | Self::Request | Self::Answer => {
                (fixed, fixed + body_max)
            }
            Self::Ping | Self::Pong => (fixed, fixed),
            Self::Piece => (1, PIECE_BYTES_MAX),
        }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

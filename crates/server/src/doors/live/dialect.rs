//! A dialect: the protocol of a live connection, and how a message of a topic is written in it. Connections of one dialect
//! share the frames of a topic. It knows no connections.

use sennit_centrifuge::{Encoding, PublicationView, put_publication};
use sennit_websocket::{Opcode, frame};

use super::published::Published;

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The Centrifuge client protocol.
    Centrifuge(Encoding),
}

impl Dialect {
    /// All of them, as they are numbered.
    pub(crate) const ALL: [Self; 2] =
        [Self::Centrifuge(Encoding::Json), Self::Centrifuge(Encoding::Protobuf)];

    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Its number.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Centrifuge(Encoding::Json) => 0,
            Self::Centrifuge(Encoding::Protobuf) => 1,
        }
    }

    /// The names of the protocol and of how it is encoded, as applications are told.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Centrifuge(Encoding::Json) => ("json", "json"),
            Self::Centrifuge(Encoding::Protobuf) => ("protobuf", "binary"),
        }
    }

    /// The kind of its WebSocket messages.
    pub(crate) fn opcode(self) -> Opcode {
        match self {
            Self::Centrifuge(Encoding::Json) => Opcode::Text,
            Self::Centrifuge(Encoding::Protobuf) => Opcode::Binary,
        }
    }

    /// Has `put` write a message behind what is in `out`, as a message of the WebSocket has it.
    pub(crate) fn put_message(self, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
        put(out);
        // Each line of JSON is a message of its own.
        if self == Self::Centrifuge(Encoding::Json) && out.last() == Some(&b'\n') {
            out.pop();
        }
    }
}

/// Room in which frames are made, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Scratch {
    /// Makes the frame of a message, in two parts.
    pub(crate) fn make(&mut self, dialect: Dialect, channel: &str, message: &Published) {
        self.head.clear();
        self.body.clear();
        let Dialect::Centrifuge(encoding) = dialect;
        let view = PublicationView {
            data: message.data.view(),
            info: message.publisher.as_deref(),
            offset: message.offset + 1,
            tags: &[],
            time_ms: 0,
        };
        dialect.put_message(&mut self.body, |out| put_publication(encoding, channel, &view, out));
        frame::put_header(dialect.opcode(), false, self.body.len(), &mut self.head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_are_numbered_as_they_are_listed() {
        for (index, dialect) in Dialect::ALL.into_iter().enumerate() {
            assert_eq!(dialect.index(), index, "{dialect:?}");
        }
    }
}

//! A format: how messages of a dialect lie on a connection, with what stands around each so that the other end finds where
//! it ends. It knows no sockets.

use sennit_centrifuge::Encoding;
use sennit_websocket::frame;

use super::dialect::{Dialect, Scratch};

/// What carries the messages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Each is a message of a WebSocket.
    WebSocket,
    /// Each is a server-sent event.
    Events,
    /// They follow one another in an answer that goes on.
    Stream,
}

/// A dialect and what carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) dialect: Dialect,
    pub(crate) carrier: Carrier,
}

const JSON: Dialect = Dialect::Centrifuge(Encoding::Json);
const PROTOBUF: Dialect = Dialect::Centrifuge(Encoding::Protobuf);

impl Carrier {
    /// Its name, as applications are told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Events => "sse",
            Self::Stream => "http_stream",
        }
    }
}

impl Format {
    /// All of them, as they are numbered: those of WebSockets as their dialects are.
    pub(crate) const ALL: [Self; Dialect::COUNT + 3] = {
        let mut all = [Self { dialect: JSON, carrier: Carrier::WebSocket }; Dialect::COUNT + 3];
        let mut index = 0;
        while index < Dialect::COUNT {
            all[index].dialect = Dialect::ALL[index];
            index += 1;
        }
        all[index] = Self { dialect: JSON, carrier: Carrier::Events };
        all[index + 1] = Self { dialect: JSON, carrier: Carrier::Stream };
        all[index + 2] = Self { dialect: PROTOBUF, carrier: Carrier::Stream };
        all
    };

    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Its number.
    pub(crate) fn index(self) -> usize {
        match (self.carrier, self.dialect) {
            (Carrier::WebSocket, dialect) => dialect.index(),
            (Carrier::Events, _) => Dialect::COUNT,
            (Carrier::Stream, PROTOBUF) => Dialect::COUNT + 2,
            (Carrier::Stream, _) => Dialect::COUNT + 1,
        }
    }

    /// What stands before a message in an answer.
    fn head(self) -> &'static [u8] {
        match self.carrier {
            Carrier::Events => b"data: ",
            // A line has nothing there, and a message of Protobuf begins with its length itself.
            Carrier::WebSocket | Carrier::Stream => b"",
        }
    }

    /// What stands behind a message.
    fn tail(self) -> &'static [u8] {
        match (self.carrier, self.dialect) {
            (Carrier::WebSocket, _) | (Carrier::Stream, PROTOBUF) => b"",
            (Carrier::Events, _) => b"\n\n",
            (Carrier::Stream, _) => b"\n",
        }
    }

    /// The message of a topic that was made last, as it goes out: what stands before it, the message, what stands behind it.
    pub(crate) fn parts(self, made: &Scratch) -> [&[u8]; 3] {
        match self.carrier {
            Carrier::WebSocket => [&made.head, &made.body, b""],
            Carrier::Events | Carrier::Stream => [self.head(), &made.body, self.tail()],
        }
    }

    /// Appends a message, which may have several lines.
    pub(crate) fn put(self, message: &[u8], out: &mut Vec<u8>) {
        if self.carrier == Carrier::WebSocket {
            return frame::put_frame(self.dialect.opcode(), message, out);
        }
        for (number, line) in message.split(|byte| *byte == b'\n').enumerate() {
            // Protobuf has no lines.
            if number > 0 {
                out.extend_from_slice(b"\n");
            }
            if number == 0 || self.carrier == Carrier::Events {
                out.extend_from_slice(self.head());
            }
            out.extend_from_slice(line);
        }
        out.extend_from_slice(self.tail());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_numbered_as_they_are_listed() {
        for (index, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(format.index(), index, "{format:?}");
        }
    }

    #[test]
    fn a_message_stands_between_what_its_format_has_around_it() {
        for (dialect, carrier, expected) in [
            (JSON, Carrier::WebSocket, &b"\x81\x02{}"[..]),
            (PROTOBUF, Carrier::WebSocket, b"\x82\x02{}"),
            (JSON, Carrier::Events, b"data: {}\n\n"),
            (JSON, Carrier::Stream, b"{}\n"),
            (PROTOBUF, Carrier::Stream, b"{}"),
        ] {
            let mut out = Vec::new();
            Format { dialect, carrier }.put(b"{}", &mut out);
            assert_eq!(out, expected, "{dialect:?} {carrier:?}");
        }
    }

    #[test]
    fn an_event_has_each_line_of_its_message() {
        let mut out = Vec::new();
        Format { dialect: JSON, carrier: Carrier::Events }.put(b"{}\n[]", &mut out);
        assert_eq!(out, b"data: {}\ndata: []\n\n");
    }
}

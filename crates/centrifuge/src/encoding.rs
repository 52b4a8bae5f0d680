//! The two encodings of the protocol, and how a client asks for one.

/// How messages of one connection are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Text: one JSON object a line.
    Json,
    /// Binary: each message behind its length, a varint.
    Protobuf,
}

impl Encoding {
    /// The name of the WebSocket subprotocol by which a client asks for Protobuf.
    pub const PROTOBUF_SUBPROTOCOL: &str = "centrifuge-protobuf";
    /// The name of the WebSocket subprotocol by which a client may ask for JSON; most ask for none.
    pub const JSON_SUBPROTOCOL: &str = "centrifuge-json";

    /// The encoding that a WebSocket subprotocol stands for, if it is one of this protocol.
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        match name {
            Self::PROTOBUF_SUBPROTOCOL => Some(Self::Protobuf),
            Self::JSON_SUBPROTOCOL => Some(Self::Json),
            _ => None,
        }
    }
}

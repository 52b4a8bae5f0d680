//! Commands beside the stream: over SSE and HTTP streams a client sends its commands in requests of their own, each with
//! the session and node that the reply to its connect named.

use crate::{
    context::Context,
    data::Data,
    decode_error::{DecodeError, Problem},
    encoding::Encoding,
    limits::Limits,
    message,
};

/// The body of such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulationRequest {
    /// The node that has the session.
    pub node: String,
    /// Whose commands they are.
    pub session: String,
    /// What would be one message of a WebSocket, in the encoding of the request.
    pub message: Vec<u8>,
}

message! {
    /// The body as it is sent.
    struct EmulationFields {
        1 "node" node: String,
        2 "session" session: String,
        3 "data" data: Data,
    }
}

impl EmulationRequest {
    /// Reads a body. In JSON `data` is a string of commands, or one command as it is.
    pub fn decode(encoding: Encoding, body: &[u8], limits: Limits) -> Result<Self, DecodeError> {
        let refused = |problem| DecodeError { command: 0, field: String::new(), problem };
        // A string may spell each byte of the message with six.
        let bytes_max = limits.message_bytes_max.saturating_mul(6).saturating_add(1_024);
        if body.len() > bytes_max {
            return Err(refused(Problem::MessageTooLong { bytes: body.len(), bytes_max }));
        }
        let context = Context::new(limits);
        let mut fields = EmulationFields::default();
        match encoding {
            Encoding::Json => {
                message::read_json_text(&mut fields, body, &context)
                    .map_err(|error| context.json_error(0, &error))?;
            }
            Encoding::Protobuf => {
                message::read_protobuf(&mut fields, body, &context)
                    .map_err(|_| context.error(0))?;
            }
        }
        let data = fields.data.as_bytes();
        let message = match encoding {
            Encoding::Json if data.starts_with(b"\"") => serde_json::from_slice::<String>(data)
                .map_err(|error| refused(Problem::NotJson { at: error.column() }))?
                .into_bytes(),
            Encoding::Json | Encoding::Protobuf => data.to_vec(),
        };
        Ok(Self { node: fields.node, session: fields.session, message })
    }
}

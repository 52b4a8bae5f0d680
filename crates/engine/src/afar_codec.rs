//! Commands and effects as bytes, for a node that does not lead: it sends commands to the leader of a group and gets
//! effects back, as cores of one node do. Knows no link and no session.
//!
//! Everything of a command or an effect travels. Payloads (batches, messages) are neither copied by the sender nor by
//! the receiver: they lie behind the rest as they came.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind: the variant, that of a command to the catalogue, a partition or a stream included |
//! | 4 | `head`: bytes of the fields |
//! | 4 | `payloads`: bytes of the payloads |
//! | `head` | the fields in the order of their declaration, little-endian; of a payload its length |
//! | `payloads` | the payloads, in the order of their lengths |
//!
//! A kind's number and the fields it has never change; later versions add fields behind them, which a receiver that
//! does not know them skips. A receiver skips a kind that it does not know, and says so.
//!
//! Settings travel in the layout of records, so they have to be within their bounds: the sender refuses others as the
//! leader would. [`Command::SetThrottles`] holds rules, and [`crate::Throttles`], with its buckets, stays on its node.

mod atomic;
mod catalogue_command;
mod command;
mod decode_error;
mod description;
mod effect;
mod encoded;
mod fields;
mod partition_command;
mod publish;
mod refusal;
mod static_text;
mod stream_answer;
mod stream_command;
#[cfg(test)]
mod tests;
mod wait_reason;
mod walk;

use bytes::Bytes;

pub use decode_error::DecodeError;
pub use encoded::{AFAR_HEAD_BYTES_MAX, AFAR_PAYLOAD_BYTES_MAX, Encoded};

use crate::{command::Command, effect::Effect, refusal::Refusal};

impl Command {
    /// Appends the command to `out`. Costs a copy of everything but payloads.
    ///
    /// # Errors
    /// The refusal that answers the command: a setting is out of bounds, or the command is longer than
    /// [`AFAR_HEAD_BYTES_MAX`] or [`AFAR_PAYLOAD_BYTES_MAX`]. `out` is as it was.
    pub fn encode(&self, out: &mut Encoded) -> Result<(), Refusal> {
        out.append(|w| command::encode(self, w))
    }

    /// Takes a command off the front of `bytes`; its payloads are slices of them. Costs a copy of everything else, and
    /// a look at each byte of a batch.
    ///
    /// # Errors
    /// The bytes are no command of this version. Then all of them are taken if they end too early, and one command
    /// otherwise.
    pub fn decode(bytes: &mut Bytes) -> Result<Self, DecodeError> {
        command::decode(&mut encoded::take(bytes)?)
    }
}

impl Effect {
    /// Appends the effect to `out`. Costs a copy of everything but payloads.
    ///
    /// # Errors
    /// The refusal that answers instead: the effect is longer than [`AFAR_HEAD_BYTES_MAX`] or
    /// [`AFAR_PAYLOAD_BYTES_MAX`]. `out` is as it was.
    pub fn encode(&self, out: &mut Encoded) -> Result<(), Refusal> {
        out.append(|w| effect::encode(self, w))
    }

    /// Takes an effect off the front of `bytes`; its payloads are slices of them. Costs a copy of everything else.
    ///
    /// # Errors
    /// As [`Command::decode`].
    pub fn decode(bytes: &mut Bytes) -> Result<Self, DecodeError> {
        effect::decode(&mut encoded::take(bytes)?)
    }
}

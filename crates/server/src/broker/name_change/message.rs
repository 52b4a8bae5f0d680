//! Messages between the controls of two nodes, as the body of a frame of their link: a change of names, or its answer with the
//! entry of the catalogue's group up to which whoever is answered has to have applied before it goes by the answer.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 0 for a change, 1 for an answer |
//! | 16 | of an answer, the entry's term u64 and index u64 |
//! | | the change, or the answer |

use bytes::Bytes;
use sennit_engine::Refusal;

use super::{
    NameChange, answer_codec,
    answer_codec::Outcome,
    codec,
    codec_error::NameChangeError,
    fields::{FieldReader, FieldWriter},
};
use crate::broker::{control_request::ControlRefusal, stream_request::StreamFailure};

const CHANGE: u8 = 0;
const ANSWER: u8 = 1;

/// A change of names, or an answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameMessage(pub(crate) Content);

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A change that is asked for.
    Change(Box<NameChange>),
    /// Its outcome.
    Answer(AppliedTo, Outcome),
}

/// The entry of the catalogue's group up to which an answer goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedTo {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

impl NameMessage {
    /// Makes bytes of it. A change that cannot travel becomes none; an answer that cannot becomes the refusal that says so.
    ///
    /// # Errors
    /// The refusal that answers the change: a setting is out of bounds, or it is too long.
    pub fn to_bytes(&self) -> Result<Bytes, Refusal> {
        let mut w = FieldWriter(Vec::new());
        match &self.0 {
            Content::Change(change) => codec::encode(change, w.u8(CHANGE))?,
            Content::Answer(applied, outcome) => {
                let head = |w: &mut FieldWriter| {
                    w.u8(ANSWER).u64(applied.term).u64(applied.index);
                };
                head(&mut w);
                if let Err(refusal) = answer_codec::encode(outcome, &mut w) {
                    w.0.clear();
                    head(&mut w);
                    let refused: StreamFailure = ControlRefusal::Engine(refusal).into();
                    answer_codec::encode(&Err(refused), &mut w)?;
                }
            }
        }
        Ok(w.0.into())
    }

    /// Takes it from the body of a frame. What follows its fields is skipped: a later version has added it.
    ///
    /// # Errors
    /// The bytes are no message of this version.
    pub fn decode(bytes: Bytes) -> Result<Self, NameChangeError> {
        let mut r = FieldReader(bytes);
        let content = match r.u8()? {
            CHANGE => Content::Change(Box::new(codec::decode(&mut r)?)),
            ANSWER => {
                let applied = AppliedTo { term: r.u64()?, index: r.u64()? };
                Content::Answer(applied, answer_codec::decode(&mut r)?)
            }
            kind => return Err(NameChangeError::Kind(kind)),
        };
        Ok(Self(content))
    }
}

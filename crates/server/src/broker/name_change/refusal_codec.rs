//! Refusals of the control as bytes: a kind, then the fields in the order below. Those of the engine lie in an effect that has them.
//!
//! ```text
//! kind                     fields                                                      last
//!   32 Engine refuses      -                                                           Refused
//!   33 UnknownTopic        topic                                                       -
//!   34 UnknownGroup        topic, group                                                -
//!   35 TopicsApart         topic, beside                                               -
//!   36 Busy                too many flag                                               -
//!   37 WrongAnswer         -                                                           -
//!   38 Reserved            -                                                           -
//!   39 OverQuota           quota, limit u64, flag and stored u64, retry u8 (2: ms u64) -
//!   40 HookRefused         reason                                                      -
//!   41 HookFailed          reason                                                      -
//! ```
//!
//! Other refusals are about what is not asked of other nodes: they become a wrong answer. That the other broker stops is nothing
//! that this one's clients are told: it is not known what has become of what was asked.

use std::time::Duration;

use bytes::Bytes;
use sennit_engine::{Effect, Refusal};
use sennit_identity::{OverQuota, QuotaRetry};
use serde::{Deserialize, Serialize};

use super::{
    codec_error::NameChangeError,
    fields::{FieldReader, FieldWriter, NOBODY},
};
use crate::{broker::control_request::ControlRefusal, runtime::publish_gauge::NoRoom};

const ENGINE_REFUSES: u8 = 32;
const UNKNOWN_TOPIC: u8 = 33;
const UNKNOWN_GROUP: u8 = 34;
const TOPICS_APART: u8 = 35;
const BUSY: u8 = 36;
const WRONG_ANSWER: u8 = 37;
const RESERVED: u8 = 38;
const OVER_QUOTA: u8 = 39;
const HOOK_REFUSED: u8 = 40;
const HOOK_FAILED: u8 = 41;

/// The quotas that there are.
const QUOTAS: [&str; 5] =
    ["messages_per_second", "bytes_per_second", "stored_bytes", "topics", "connections"];

/// A refusal of the control as bytes, in a text of another kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusalBytes(Vec<u8>);

impl From<&ControlRefusal> for RefusalBytes {
    fn from(refusal: &ControlRefusal) -> Self {
        let mut w = FieldWriter(Vec::new());
        if encode_refusal(refusal, &mut w).is_err() {
            w.0 = vec![WRONG_ANSWER];
        }
        Self(w.0)
    }
}

impl TryFrom<RefusalBytes> for ControlRefusal {
    type Error = NameChangeError;

    fn try_from(RefusalBytes(bytes): RefusalBytes) -> Result<Self, NameChangeError> {
        let mut r = FieldReader(Bytes::from(bytes));
        let kind = r.u8()?;
        decode_refusal(kind, &mut r)
    }
}

/// # Errors
/// It is longer than what travels.
pub(super) fn encode_refusal(refusal: &ControlRefusal, w: &mut FieldWriter) -> Result<(), Refusal> {
    let of_engine = |w: &mut FieldWriter, refusal: &Refusal| {
        w.u8(ENGINE_REFUSES).effect(&Effect::Refused { origin: NOBODY, refusal: refusal.clone() })
    };
    match refusal {
        ControlRefusal::Engine(refusal) => return of_engine(w, refusal),
        ControlRefusal::ShuttingDown => return of_engine(w, &Refusal::OutcomeUnknown),
        ControlRefusal::UnknownTopic(topic) => w.u8(UNKNOWN_TOPIC).text(topic.as_str()),
        ControlRefusal::UnknownGroup { topic, group } => {
            w.u8(UNKNOWN_GROUP).text(topic.as_str()).text(group.as_str())
        }
        ControlRefusal::TopicsApart { topic, beside } => {
            w.u8(TOPICS_APART).text(topic.as_str()).text(beside.as_str())
        }
        ControlRefusal::Busy(room) => w.u8(BUSY).flag(*room == NoRoom::TooMany),
        ControlRefusal::Reserved => w.u8(RESERVED),
        ControlRefusal::OverQuota(OverQuota { quota, limit, stored, retry }) => {
            w.u8(OVER_QUOTA).text(quota).u64(*limit).optional(*stored, |w, stored| {
                w.u64(stored);
            });
            match retry {
                QuotaRetry::ByHand => w.u8(0),
                QuotaRetry::WhenFreed => w.u8(1),
                QuotaRetry::After(wait) => {
                    w.u8(2).u64(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
                }
                QuotaRetry::OnceMeasured => w.u8(3),
            }
        }
        ControlRefusal::HookRefused(reason) => w.u8(HOOK_REFUSED).text(reason),
        ControlRefusal::HookFailed(reason) => w.u8(HOOK_FAILED).text(reason),
        ControlRefusal::UnknownPartition { .. }
        | ControlRefusal::UnknownCursor { .. }
        | ControlRefusal::NoOffsets { .. }
        | ControlRefusal::SameTopic(_)
        | ControlRefusal::Missing(_)
        | ControlRefusal::TooManyWatched(_)
        | ControlRefusal::Batch(_)
        | ControlRefusal::NoChannel { .. }
        | ControlRefusal::NoRandomNumbers(_)
        | ControlRefusal::WrongAnswer => w.u8(WRONG_ANSWER),
    };
    Ok(())
}

/// # Errors
/// The bytes are no refusal of this version.
pub(super) fn decode_refusal(
    kind: u8,
    r: &mut FieldReader,
) -> Result<ControlRefusal, NameChangeError> {
    Ok(match kind {
        ENGINE_REFUSES => match r.effect()? {
            Effect::Refused { refusal, .. } => ControlRefusal::Engine(refusal),
            _ => return Err(NameChangeError::Holds),
        },
        UNKNOWN_TOPIC => ControlRefusal::UnknownTopic(r.name()?),
        UNKNOWN_GROUP => ControlRefusal::UnknownGroup { topic: r.name()?, group: r.name()? },
        TOPICS_APART => ControlRefusal::TopicsApart { topic: r.name()?, beside: r.name()? },
        BUSY => ControlRefusal::Busy(match r.flag("too many wait")? {
            true => NoRoom::TooMany,
            false => NoRoom::TooLong,
        }),
        WRONG_ANSWER => ControlRefusal::WrongAnswer,
        RESERVED => ControlRefusal::Reserved,
        OVER_QUOTA => {
            let name = r.text()?;
            let quota = QUOTAS.into_iter().find(|quota| *quota == name);
            let quota = quota.ok_or(NameChangeError::Holds)?;
            let (limit, stored) = (r.u64()?, r.optional("has stored", FieldReader::u64)?);
            let retry = match r.u8()? {
                0 => QuotaRetry::ByHand,
                1 => QuotaRetry::WhenFreed,
                2 => QuotaRetry::After(Duration::from_millis(r.u64()?)),
                3 => QuotaRetry::OnceMeasured,
                kind => return Err(NameChangeError::Kind(kind)),
            };
            ControlRefusal::OverQuota(OverQuota { quota, limit, stored, retry })
        }
        HOOK_REFUSED => ControlRefusal::HookRefused(r.text()?),
        HOOK_FAILED => ControlRefusal::HookFailed(r.text()?),
        kind => return Err(NameChangeError::Kind(kind)),
    })
}

//! Why a control body is no request, as its client is told; and the names in bodies.

use std::str::FromStr;

use sennit_model::{
    ConfigError, NameError, TopicName,
    limits::{DELAYED_LISTED_MAX, FAIR_KEY_BYTES_MAX, FAIR_KEYS_LISTED_MAX},
};
use sennit_protocol::{ErrorCode, Kind, control};

use crate::{
    broker::control_request::{ControlRefusal, ControlRequest, check_topic},
    doors::native::refusal_reply::control_reply,
};

/// Why a body is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// A name is not one.
    Name(NameError),
    /// A setting is out of bounds.
    Config(ConfigError),
    /// The topic that it would change is the broker's own.
    Reserved,
    /// The name of a group or cursor is not one; the client is told of that only if this request about the
    /// topic is not refused.
    IfAccepted(Box<ControlRequest>, NameError),
    /// A question about a waiting message names neither an offset nor a fair key.
    NoSubject,
    /// A fair key of so many bytes is asked about, which no message has.
    LongFairKey(usize),
    /// So many fair keys are asked for, more than a listing has.
    ManyFairKeys(u32),
    /// So many delayed messages are asked for, more than a page has.
    ManyDelayed(u32),
    /// A page of delayed messages is asked for with a token that no page came with.
    PageToken,
    /// A change of delays does not say which.
    NoChange,
    /// A request of the workbench is none: the client is told this.
    Workbench(Box<control::Error>),
    /// The control has no answer to frames of this kind.
    Kind(Kind),
}

impl From<NameError> for RequestFault {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl From<ConfigError> for RequestFault {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<&RequestFault> for control::Error {
    fn from(fault: &RequestFault) -> Self {
        match fault {
            RequestFault::Name(error) | RequestFault::IfAccepted(_, error) => error.into(),
            RequestFault::Config(error) => error.into(),
            RequestFault::Workbench(error) => error.as_ref().clone(),
            RequestFault::Reserved => control_reply(&ControlRefusal::Reserved),
            RequestFault::NoSubject => Self::new(
                ErrorCode::InvalidConfig,
                "the question names no message: name an offset or a fair key",
            ),
            RequestFault::LongFairKey(bytes) => Self::new(
                ErrorCode::LimitReached,
                format!(
                    "a fair key has at most FAIR_KEY_BYTES_MAX, {FAIR_KEY_BYTES_MAX}, bytes, not {bytes}: a longer \
                     one of a message is cut to it"
                ),
            ),
            RequestFault::ManyFairKeys(most) => Self::new(
                ErrorCode::LimitReached,
                format!(
                    "a listing has at most FAIR_KEYS_LISTED_MAX, {FAIR_KEYS_LISTED_MAX}, keys, not {most}"
                ),
            ),
            RequestFault::ManyDelayed(most) => Self::new(
                ErrorCode::LimitReached,
                format!(
                    "a page has at most DELAYED_LISTED_MAX, {DELAYED_LISTED_MAX}, runs, not {most}"
                ),
            ),
            RequestFault::PageToken => Self::new(
                ErrorCode::InvalidConfig,
                "the page_token is none that a page of delayed messages came with",
            ),
            RequestFault::NoChange => Self::new(
                ErrorCode::InvalidConfig,
                "the change is missing: cancel, or name a due time or a delay",
            ),
            RequestFault::Kind(kind) => {
                Self::new(ErrorCode::Internal, format!("{kind:?} is not for the control"))
            }
        }
    }
}

/// The name of a topic that is to be changed, if it is one. That it is reserved is said before all else; the
/// control refuses that too, of every door.
pub(super) fn changed_topic(name: &str) -> Result<Result<TopicName, NameError>, RequestFault> {
    let name = name.parse::<TopicName>();
    match &name {
        Ok(topic) if check_topic(topic).is_err() => Err(RequestFault::Reserved),
        _ => Ok(name),
    }
}

/// The name of a group or cursor of a topic.
pub(super) fn name_in<T: FromStr<Err = NameError>>(
    topic: &TopicName,
    name: &str,
) -> Result<T, RequestFault> {
    name.parse().map_err(|error| {
        let of_topic = ControlRequest::ListGroups { topic: topic.clone() };
        RequestFault::IfAccepted(Box::new(of_topic), error)
    })
}

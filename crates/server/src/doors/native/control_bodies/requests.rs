//! Parses control bodies into requests of the control: names and settings are checked here.
//!
//! A body may have several errors, and the client receives one. The order is fixed: a reserved topic comes before
//! everything else, and a missing topic before the name of its group or cursor.

use std::str::FromStr;

use sennit_engine::ExplainSubject;
use sennit_model::{
    ConfigError, CursorName, GroupChange, NameError, Offset, PartitionIndex, ReadFrom, TopicId,
    TopicName,
    limits::{FAIR_KEY_BYTES_MAX, FAIR_KEYS_LISTED_DEFAULT, FAIR_KEYS_LISTED_MAX},
};
use sennit_protocol::{ErrorCode, Kind, Request, control};

use crate::{
    broker::control_request::{
        AlterGroup, ControlRefusal, ControlRequest, CreateGroup, Explain, ListTopics,
        OffsetsOfPartition, PartitionOffset, Read, RetryParked, SetCursor, Subscribe, check_topic,
    },
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
            RequestFault::Kind(kind) => {
                Self::new(ErrorCode::Internal, format!("{kind:?} is not for the control"))
            }
        }
    }
}

/// The request that a frame carries.
///
/// # Errors
/// The fault that the client is to be told of.
pub(super) fn control_request(request: &Request) -> Result<ControlRequest, RequestFault> {
    Ok(match request {
        Request::CreateTopic(body) => {
            let name = changed_topic(&body.name)??;
            let config = body.topic_config()?;
            let beside = body.beside.as_deref().map(str::parse).transpose()?;
            ControlRequest::CreateTopic { name, config, beside }
        }
        Request::AlterTopic(body) => {
            let name = changed_topic(&body.name)?;
            let config = body.topic_config()?;
            ControlRequest::AlterTopic { name: name?, config }
        }
        Request::DeleteTopic(body) => {
            ControlRequest::DeleteTopic { name: changed_topic(&body.name)?? }
        }
        Request::DescribeTopic(body) => ControlRequest::DescribeTopic { name: body.name.parse()? },
        Request::ListTopics(body) => ControlRequest::ListTopics(list_topics(body)),
        Request::OpenTopic(body) => ControlRequest::OpenTopic {
            name: changed_topic(&body.name)??,
            create_if_missing: body.create_if_missing,
        },
        Request::TrimTopic(body) => ControlRequest::TrimTopic {
            topic: changed_topic(&body.topic)??,
            positions: offsets(&body.positions),
        },
        Request::CreateGroup(body) => ControlRequest::CreateGroup(create_group(body)?),
        Request::AlterGroup(body) => ControlRequest::AlterGroup(alter_group(body)?),
        Request::DeleteGroup(body) => {
            let topic = changed_topic(&body.topic)??;
            let group = name_in(&topic, &body.name)?;
            ControlRequest::DeleteGroup { topic, group }
        }
        Request::ListGroups(body) => ControlRequest::ListGroups { topic: body.topic.parse()? },
        Request::DescribeGroup(body) => {
            let topic = body.topic.parse()?;
            let group = name_in(&topic, &body.name)?;
            ControlRequest::DescribeGroup { topic, group }
        }
        Request::Explain(body) => ControlRequest::Explain(explain(body)?),
        Request::ListFairKeys(body) => list_fair_keys(body)?,
        Request::RetryParked(body) => ControlRequest::RetryParked(retry_parked(body)?),
        Request::Subscribe(body) => ControlRequest::Subscribe(subscribe(body)?),
        Request::Read(body) => ControlRequest::Read(read(body)?),
        Request::SetCursor(body) => ControlRequest::SetCursor(set_cursor(body)?),
        Request::DeleteCursor(body) => {
            let topic = body.topic.parse()?;
            let cursor = name_in(&topic, &body.name)?;
            ControlRequest::DeleteCursor { topic, cursor }
        }
        Request::ListCursors(body) => ControlRequest::ListCursors { topic: body.topic.parse()? },
        other => return Err(RequestFault::Kind(other.kind())),
    })
}

/// The name of a topic that is to be changed, if it is one. That it is reserved is said before all else; the
/// control refuses that too, of every door.
fn changed_topic(name: &str) -> Result<Result<TopicName, NameError>, RequestFault> {
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

fn list_topics(body: &control::ListTopics) -> ListTopics {
    let topics_max = (body.page_size > 0).then_some(body.page_size as usize);
    ListTopics { after: body.page_token.clone(), topics_max }
}

fn create_group(body: &control::CreateGroup) -> Result<CreateGroup, RequestFault> {
    let topic = changed_topic(&body.topic)?;
    let group = body.name.parse()?;
    let config = body.group_config()?;
    Ok(CreateGroup { topic: topic?, group, config, start: body.start_at() })
}

fn alter_group(body: &control::AlterGroup) -> Result<AlterGroup, RequestFault> {
    let topic = changed_topic(&body.topic)??;
    let group = name_in(&topic, &body.name)?;
    let given = body.config.as_ref().map(GroupChange::try_from).transpose()?;
    Ok(AlterGroup { topic, group, change: given.unwrap_or_default() })
}

fn retry_parked(body: &control::RetryParked) -> Result<RetryParked, RequestFault> {
    let topic = changed_topic(&body.topic)??;
    let group = name_in(&topic, &body.name)?;
    let offsets = body.offsets.iter().map(|offsets| OffsetsOfPartition {
        partition: PartitionIndex(offsets.partition),
        start: Offset(offsets.start),
        end: Offset(offsets.end),
    });
    Ok(RetryParked { topic, group, offsets: offsets.collect() })
}

fn explain(body: &control::Explain) -> Result<Explain, RequestFault> {
    let topic = body.topic.parse()?;
    let group = name_in(&topic, &body.group)?;
    let subject = match &body.subject {
        None => return Err(RequestFault::NoSubject),
        Some(control::explain::Subject::Offset(offset)) => ExplainSubject::Offset(Offset(*offset)),
        Some(control::explain::Subject::FairKey(key)) if key.len() > FAIR_KEY_BYTES_MAX => {
            return Err(RequestFault::LongFairKey(key.len()));
        }
        Some(control::explain::Subject::FairKey(key)) => ExplainSubject::FairKey(key.clone()),
    };
    Ok(Explain { topic, group, partition: body.partition.map(PartitionIndex), subject })
}

fn list_fair_keys(body: &control::ListFairKeys) -> Result<ControlRequest, RequestFault> {
    let topic = body.topic.parse()?;
    let group = name_in(&topic, &body.group)?;
    let most = match body.most as usize {
        0 => FAIR_KEYS_LISTED_DEFAULT,
        most if most > FAIR_KEYS_LISTED_MAX => return Err(RequestFault::ManyFairKeys(body.most)),
        most => most,
    };
    Ok(ControlRequest::ListFairKeys { topic, group, most })
}

fn subscribe(body: &control::Subscribe) -> Result<Subscribe, RequestFault> {
    let topic = changed_topic(&body.topic)??;
    let group = name_in(&topic, &body.group)?;
    let create_group_if_missing = body.create_group_if_missing;
    Ok(Subscribe { topic, group, create_group_if_missing })
}

fn read(body: &control::Read) -> Result<Read, RequestFault> {
    let read = Read {
        topic: body.topic.parse()?,
        topic_id: body.topic_id.map(TopicId),
        from: body.read_from(),
        positions: offsets(&body.positions),
        cursor: None,
        take_over: body.take_over,
    };
    match body.cursor.as_deref().map(str::parse::<CursorName>).transpose() {
        Ok(cursor) => Ok(Read { cursor, ..read }),
        Err(error) => {
            // Whether the topic is that one is looked at before the name, and where it begins after it.
            let (from, positions) = (ReadFrom::Earliest, Vec::new());
            let of_topic = ControlRequest::Read(Read { from, positions, ..read });
            Err(RequestFault::IfAccepted(Box::new(of_topic), error))
        }
    }
}

fn set_cursor(body: &control::SetCursor) -> Result<SetCursor, RequestFault> {
    let topic = body.topic.parse()?;
    let cursor = name_in(&topic, &body.name)?;
    Ok(SetCursor {
        topic,
        cursor,
        positions: offsets(&body.positions),
        subscription: body.subscription,
        take_over: body.take_over,
    })
}

fn offsets(positions: &[control::ReadPosition]) -> Vec<PartitionOffset> {
    let offset = |position: &control::ReadPosition| PartitionOffset {
        partition: PartitionIndex(position.partition),
        offset: Offset(position.offset),
    };
    positions.iter().map(offset).collect()
}

#[cfg(test)]
mod tests;

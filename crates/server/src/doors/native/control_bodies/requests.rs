//! Parses control bodies into requests of the control: names and settings are checked here.
//!
//! A body may have several errors, and the client receives one. The order is fixed: a reserved topic comes before
//! everything else, and a missing topic before the name of its group or cursor.

use std::str::FromStr;

use sennit_model::{
    ConfigError, CursorName, GroupChange, NameError, Offset, PartitionIndex, ReadFrom, TopicId,
    TopicName,
};
use sennit_protocol::{ErrorCode, Kind, Request, control};

use crate::{
    broker::control_request::{
        AlterGroup, ControlRefusal, ControlRequest, CreateGroup, ListTopics, OffsetsOfPartition,
        PartitionOffset, Read, RetryParked, SetCursor, Subscribe, check_topic,
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
            ControlRequest::CreateTopic { name, config: body.topic_config()? }
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
fn name_in<T: FromStr<Err = NameError>>(topic: &TopicName, name: &str) -> Result<T, RequestFault> {
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

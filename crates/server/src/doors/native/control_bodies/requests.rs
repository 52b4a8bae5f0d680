//! Parses control bodies into requests of the control: names and settings are checked here.
//!
//! A body may have several errors, and the client receives one. The order is fixed: a reserved topic comes before
//! everything else, and a missing topic before the name of its group or cursor.

use std::time::Duration;

use sennit_engine::{DelayChange, ExplainSubject};
use sennit_model::{
    CursorName, GroupChange, Offset, PartitionIndex, ReadFrom, Timestamp, TopicId,
    limits::{
        DELAYED_LISTED_DEFAULT, DELAYED_LISTED_MAX, FAIR_KEY_BYTES_MAX, FAIR_KEYS_LISTED_DEFAULT,
        FAIR_KEYS_LISTED_MAX,
    },
};
use sennit_protocol::{Request, control};

use super::{
    delayed,
    request_fault::{RequestFault, changed_topic, name_in},
    workbench,
};
use crate::broker::control_request::{
    AlterGroup, ChangeDelayed, ControlRequest, CreateGroup, Explain, ListDelayed, ListTopics,
    OffsetsOfPartition, PartitionOffset, Read, RetryParked, SetCursor, Subscribe,
};

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
        Request::ListDelayed(body) => ControlRequest::ListDelayed(list_delayed(body)?),
        Request::ChangeDelayed(body) => ControlRequest::ChangeDelayed(change_delayed(body)?),
        Request::Explain(body) => ControlRequest::Explain(explain(body)?),
        Request::Inspect(body) => workbench::inspect(body)?,
        Request::Rework(body) => workbench::rework(body)?,
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

fn list_delayed(body: &control::ListDelayed) -> Result<ListDelayed, RequestFault> {
    let topic = body.topic.parse()?;
    let after = match body.page_token.as_str() {
        "" => None,
        token => Some(delayed::position(token).ok_or(RequestFault::PageToken)?),
    };
    let most = match body.page_size as usize {
        0 => DELAYED_LISTED_DEFAULT,
        most if most > DELAYED_LISTED_MAX => {
            return Err(RequestFault::ManyDelayed(body.page_size));
        }
        most => most,
    };
    Ok(ListDelayed { topic, partition: body.partition.map(PartitionIndex), after, most })
}

fn change_delayed(body: &control::ChangeDelayed) -> Result<ChangeDelayed, RequestFault> {
    let topic = changed_topic(&body.topic)??;
    let change = match body.change {
        Some(control::change_delayed::Change::Cancel(true)) => DelayChange::Cancel,
        Some(control::change_delayed::Change::DueMs(due)) => DelayChange::DueAt(Timestamp(due)),
        Some(control::change_delayed::Change::DelayMs(delay)) => {
            DelayChange::DueAfter(Duration::from_millis(delay))
        }
        Some(control::change_delayed::Change::Cancel(false)) | None => {
            return Err(RequestFault::NoChange);
        }
    };
    let offsets = body.offsets.iter().copied().map(Offset).collect();
    Ok(ChangeDelayed { topic, partition: PartitionIndex(body.partition), offsets, change })
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

//! What a client can ask and change about topics and groups: requests out, descriptions in, checked
//! at the rim.

use std::time::Duration;

use sennit_model::{
    CursorName, GroupConfig, GroupId, GroupName, Incarnation, Offset, OffsetRange, PartitionIndex,
    StartAt, Timestamp, TopicConfig, TopicId, TopicKind, TopicName,
};
use sennit_protocol::{Reply, Request, control};

use crate::{client::Client, error::Error};

/// A topic as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    /// Its name.
    pub name: TopicName,
    /// Its number, never used again after it is deleted.
    pub id: TopicId,
    /// Its settings.
    pub config: TopicConfig,
}

/// A named cursor of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Its name.
    pub name: CursorName,
    /// Where it is in each partition where it was set: the first offset that is not done with.
    pub positions: Vec<(PartitionIndex, Offset)>,
}

/// How a topic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its number, never used again after it is deleted.
    pub id: TopicId,
    /// Tells topics of the same name at different times apart.
    pub incarnation: Incarnation,
    /// Its settings.
    pub config: TopicConfig,
    /// The short name of these settings.
    pub kind: TopicKind,
    /// When it was created, where that is known.
    pub created_at: Option<Timestamp>,
    /// Its partitions, by index.
    pub partitions: Vec<PartitionDescription>,
    /// Its groups.
    pub groups: Vec<GroupDescription>,
}

/// How a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Which of the topic's.
    pub index: PartitionIndex,
    /// The oldest offset kept.
    pub start: Offset,
    /// The offset the next message will get.
    pub end: Offset,
    /// Bytes of the batches kept.
    pub bytes: u64,
    /// Of these, bytes of messages that every group is through with; the others are live.
    pub dead_bytes: u64,
    /// Messages that cannot be read: the disk has damaged them.
    pub damaged: u64,
    /// Offsets whose messages the journal has lost, if they had any.
    pub lost: u64,
    /// When the oldest message kept was appended.
    pub oldest_at: Option<Timestamp>,
}

/// How a group is, over all partitions. Counts are of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its name.
    pub name: GroupName,
    /// Its number, never used again after it is deleted.
    pub id: GroupId,
    /// Its topic.
    pub topic: TopicName,
    /// Its settings.
    pub config: GroupConfig,
    /// Waiting for a consumer.
    pub ready: u64,
    /// Held by consumers.
    pub leased: u64,
    /// Waiting for their due time.
    pub delayed: u64,
    /// On their way to the dead-letter topic.
    pub dying: u64,
    /// In a dead-letter topic: failed there for good, and not delivered until
    /// [`Client::retry_parked`] asks for it.
    pub parked: u64,
    /// The first of those, by partition and offset: only [`Client::describe_group`] tells of them.
    pub parked_runs: Vec<ParkedRun>,
    /// Where the topic keeps messages until they are settled and has several groups: if this one holds
    /// messages which others are through with, when the oldest of them was appended.
    pub holds_since: Option<Timestamp>,
    /// How many subscriptions take part.
    pub consumers: u32,
    /// For each partition, by index: all offsets before this one are settled.
    pub settled_before: Vec<Offset>,
}

/// Messages of a dead-letter topic that failed there for good, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRun {
    /// Of which partition.
    pub partition: PartitionIndex,
    /// Which messages.
    pub offsets: OffsetRange,
    /// How many attempts were made at each.
    pub attempts: u32,
    /// When the last attempt failed.
    pub failed_at: Timestamp,
    /// Why.
    pub reason: String,
}

/// Errors of all of these: [`Error::Refused`] as the broker says, [`Error::Closed`],
/// [`Error::Unreachable`] when the client has given up. A change whose answer was lost with the
/// connection is [`Error::OutcomeUnknown`]; a question is asked again.
impl Client {
    /// Creates a topic, or finds it if it has the same settings; whether it was created.
    ///
    /// # Errors
    /// `topic-exists` if it has others; and see above.
    pub async fn create_topic(&self, name: &TopicName, config: TopicConfig) -> Result<bool, Error> {
        let body = control::CreateTopic { name: name.to_string(), config: Some((&config).into()) };
        self.change(Request::CreateTopic(body)).await.map(|done| done.created)
    }

    /// Gives a topic other settings, all of them; `partitions` must be as they are.
    ///
    /// # Errors
    /// `unknown-topic`, `setting-fixed`; and see above.
    pub async fn alter_topic(&self, name: &TopicName, config: TopicConfig) -> Result<(), Error> {
        let body = control::AlterTopic { name: name.to_string(), config: Some((&config).into()) };
        self.change(Request::AlterTopic(body)).await.map(drop)
    }

    /// Deletes a topic, its messages and its groups.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), Error> {
        let body = control::DeleteTopic { name: name.to_string() };
        self.change(Request::DeleteTopic(body)).await.map(drop)
    }

    /// How is a topic?
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn describe_topic(&self, name: &TopicName) -> Result<TopicDescription, Error> {
        let body = control::DescribeTopic { name: name.to_string() };
        match self.link.ask(Request::DescribeTopic(body), true).await? {
            Reply::TopicDescription(body) => topic_description(body),
            other => Err(unexpected(&other)),
        }
    }

    /// Which topics are there? All of them, by name, however many pages that takes.
    ///
    /// # Errors
    /// See above.
    pub async fn list_topics(&self) -> Result<Vec<TopicSummary>, Error> {
        let mut topics = Vec::new();
        let mut page_token = String::new();
        loop {
            let body = control::ListTopics { page_token, page_size: 0 };
            let page = match self.link.ask(Request::ListTopics(body), true).await? {
                Reply::TopicList(page) => page,
                other => return Err(unexpected(&other)),
            };
            let empty = page.topics.is_empty();
            for entry in page.topics {
                let config = config(entry.config.as_ref())?;
                let (name, id) = (topic_name(&entry.name)?, TopicId(entry.id));
                topics.push(TopicSummary { name, id, config });
            }
            page_token = page.next_page_token;
            if page_token.is_empty() || empty {
                return Ok(topics);
            }
        }
    }

    /// Creates a group, or finds it if it has the same settings; whether it was created.
    ///
    /// # Errors
    /// `unknown-topic`, `topic-exists` if the group has other settings; and see above.
    pub async fn create_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        config: GroupConfig,
        start: StartAt,
    ) -> Result<bool, Error> {
        let body = control::CreateGroup {
            topic: topic.to_string(),
            name: group.to_string(),
            config: Some((&config).into()),
            start: Some(start.into()),
        };
        self.change(Request::CreateGroup(body)).await.map(|done| done.created)
    }

    /// Changes settings of a group; what is `None` stays as it is. Leases that begin from now on have
    /// the new length, and the next failed attempt is counted against the new number.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`, `invalid-config`, `unknown-kind` by a broker that cannot;
    /// and see above.
    pub async fn alter_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        lease: Option<Duration>,
        attempts_max: Option<u32>,
    ) -> Result<(), Error> {
        let lease_ms = lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        let config = Some(control::GroupConfig { lease_ms, attempts_max });
        let (topic, name) = (topic.to_string(), group.to_string());
        let body = control::AlterGroup { topic, name, config };
        self.change(Request::AlterGroup(body)).await.map(drop)
    }

    /// Makes parked messages of a group of a dead-letter topic ready again, with all their attempts:
    /// those of these offsets, or, where none are named, all. Says how many there were.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that it does not have, `unknown-group`, `unknown-kind` by
    /// a broker that parks nothing; and see above.
    pub async fn retry_parked(
        &self,
        topic: &TopicName,
        group: &GroupName,
        offsets: &[(PartitionIndex, OffsetRange)],
    ) -> Result<u64, Error> {
        let named = |&(partition, range): &(PartitionIndex, OffsetRange)| {
            let OffsetRange { start, end } = range;
            control::OffsetsOfPartition { partition: partition.0, start: start.0, end: end.0 }
        };
        let offsets = offsets.iter().map(named).collect();
        let (topic, name) = (topic.to_string(), group.to_string());
        let body = control::RetryParked { topic, name, offsets };
        self.change(Request::RetryParked(body)).await.map(|done| done.messages)
    }

    /// Deletes a group and what it knows of its messages.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`; and see above.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<(), Error> {
        let body = control::DeleteGroup { topic: topic.to_string(), name: group.to_string() };
        self.change(Request::DeleteGroup(body)).await.map(drop)
    }

    /// The groups of a topic, and how each of them is.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn list_groups(&self, topic: &TopicName) -> Result<Vec<GroupDescription>, Error> {
        // A listing has names and settings only; the topic's description has the counts as well.
        self.describe_topic(topic).await.map(|description| description.groups)
    }

    /// How is a group?
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`; and see above.
    pub async fn describe_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<GroupDescription, Error> {
        let body = control::DescribeGroup { topic: topic.to_string(), name: group.to_string() };
        match self.link.ask(Request::DescribeGroup(body), true).await? {
            Reply::GroupDescription(body) => group_description(body),
            other => Err(unexpected(&other)),
        }
    }

    /// Has a named cursor be at these offsets: the first that is not done with, of each partition
    /// that is named. Beyond the end is at the end. With `take_over` a reader that has the cursor
    /// ends.
    ///
    /// # Errors
    /// `cursor-held` while a reader of another client has it, unless it is taken over,
    /// `unknown-topic`, also for a partition that it does not have, `limit-reached`; and see above.
    pub async fn set_cursor(
        &self,
        topic: &TopicName,
        cursor: &CursorName,
        positions: &[(PartitionIndex, Offset)],
        take_over: bool,
    ) -> Result<(), Error> {
        let body = control::SetCursor {
            topic: topic.to_string(),
            name: cursor.to_string(),
            positions: positions.iter().map(position).collect(),
            subscription: None,
            take_over,
        };
        self.change(Request::SetCursor(body)).await.map(drop)
    }

    /// Frees the oldest messages: every batch that lies before these offsets as a whole. The offset
    /// of the first message that is left is told by [`Client::describe_topic`].
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that it does not have; and see above.
    pub async fn trim_topic(
        &self,
        topic: &TopicName,
        positions: &[(PartitionIndex, Offset)],
    ) -> Result<(), Error> {
        let positions = positions.iter().map(position).collect();
        let body = control::TrimTopic { topic: topic.to_string(), positions };
        self.change(Request::TrimTopic(body)).await.map(drop)
    }

    /// Forgets a named cursor.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-cursor`; and see above.
    pub async fn delete_cursor(&self, topic: &TopicName, cursor: &CursorName) -> Result<(), Error> {
        let body = control::DeleteCursor { topic: topic.to_string(), name: cursor.to_string() };
        self.change(Request::DeleteCursor(body)).await.map(drop)
    }

    /// The named cursors of a topic, in the order of their names.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn list_cursors(&self, topic: &TopicName) -> Result<Vec<Cursor>, Error> {
        let body = control::ListCursors { topic: topic.to_string() };
        match self.link.ask(Request::ListCursors(body), true).await? {
            Reply::CursorList(list) => list.cursors.into_iter().map(cursor).collect(),
            other => Err(unexpected(&other)),
        }
    }

    async fn change(&self, request: Request) -> Result<control::Done, Error> {
        match self.link.ask(request, false).await? {
            Reply::Done(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }
}

fn position(&(partition, offset): &(PartitionIndex, Offset)) -> control::ReadPosition {
    control::ReadPosition { partition: partition.0, offset: offset.0 }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} is not the answer to this request", reply.kind()))
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Unexpected(error.to_string())
}

fn topic_name(name: &str) -> Result<TopicName, Error> {
    name.parse().map_err(malformed)
}

fn config(config: Option<&control::TopicConfig>) -> Result<TopicConfig, Error> {
    TopicConfig::try_from(config.unwrap_or(&control::TopicConfig::default())).map_err(malformed)
}

fn topic_description(body: control::TopicDescription) -> Result<TopicDescription, Error> {
    let config = config(body.config.as_ref())?;
    let partition = |partition: control::PartitionDescription| PartitionDescription {
        index: PartitionIndex(partition.index),
        start: Offset(partition.start),
        end: Offset(partition.end),
        bytes: partition.bytes,
        dead_bytes: partition.dead_bytes,
        damaged: partition.damaged,
        lost: partition.lost,
        oldest_at: partition.oldest_ms.map(Timestamp),
    };
    Ok(TopicDescription {
        name: topic_name(&body.name)?,
        id: TopicId(body.id),
        incarnation: Incarnation(body.incarnation),
        kind: config.kind(),
        config,
        created_at: body.created_ms.map(Timestamp),
        partitions: body.partitions.into_iter().map(partition).collect(),
        groups: body.groups.into_iter().map(group_description).collect::<Result<_, _>>()?,
    })
}

fn cursor(body: control::Cursor) -> Result<Cursor, Error> {
    let position =
        |held: control::ReadPosition| (PartitionIndex(held.partition), Offset(held.offset));
    Ok(Cursor {
        name: body.name.parse().map_err(malformed)?,
        positions: body.positions.into_iter().map(position).collect(),
    })
}

fn parked_run(body: control::ParkedRun) -> ParkedRun {
    let start = Offset(body.first);
    ParkedRun {
        partition: PartitionIndex(body.partition),
        offsets: OffsetRange { start, end: Offset(body.first.saturating_add(body.count)) },
        attempts: body.attempts,
        failed_at: Timestamp(body.failed_at_ms),
        reason: body.reason,
    }
}

fn group_description(body: control::GroupDescription) -> Result<GroupDescription, Error> {
    let config = body.config.unwrap_or_default();
    Ok(GroupDescription {
        name: body.name.parse().map_err(malformed)?,
        id: GroupId(body.id),
        topic: topic_name(&body.topic)?,
        config: GroupConfig::try_from(&config).map_err(malformed)?,
        ready: body.ready,
        leased: body.leased,
        delayed: body.delayed,
        dying: body.dying,
        parked: body.parked,
        parked_runs: body.parked_runs.into_iter().map(parked_run).collect(),
        holds_since: body.holds_since_ms.map(Timestamp),
        consumers: body.consumers,
        settled_before: body.settled_before.into_iter().map(Offset).collect(),
    })
}

//! Requests about topics, groups and cursors, and their descriptions, which are checked here.

use sennit_model::{
    CursorName, GroupChange, GroupConfig, GroupId, GroupName, Incarnation, Offset, OffsetRange,
    PartitionIndex, StartAt, Timestamp, TopicConfig, TopicId, TopicKind, TopicName,
};
use sennit_protocol::{Reply, Request, control};

use crate::{client::Client, error::Error};

/// A topic in a listing.
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
    /// The cursor's offset in each partition where it was set: the first offset that is not
    /// processed.
    pub positions: Vec<(PartitionIndex, Offset)>,
}

/// A description of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its number, never used again after it is deleted.
    pub id: TopicId,
    /// A number that distinguishes successive topics of the same name.
    pub incarnation: Incarnation,
    /// Its settings.
    pub config: TopicConfig,
    /// The short name of these settings.
    pub kind: TopicKind,
    /// The creation time, if it is known.
    pub created_at: Option<Timestamp>,
    /// Its partitions, by index.
    pub partitions: Vec<PartitionDescription>,
    /// Its groups.
    pub groups: Vec<GroupDescription>,
}

/// A description of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Its index in the topic.
    pub index: PartitionIndex,
    /// The oldest offset that is kept.
    pub start: Offset,
    /// The offset of the next message.
    pub end: Offset,
    /// Bytes of the batches that are kept.
    pub bytes: u64,
    /// The part of them that belongs to messages which every group has settled.
    pub dead_bytes: u64,
    /// Number of messages that cannot be read because of damage on the disk.
    pub damaged: u64,
    /// Number of offsets whose messages the journal has lost.
    pub lost: u64,
    /// The time at which the oldest kept message was appended.
    pub oldest_at: Option<Timestamp>,
}

/// A description of a group, over all partitions. Counts are of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its name.
    pub name: GroupName,
    /// Its number, never used again after it is deleted.
    pub id: GroupId,
    /// Its topic.
    pub topic: TopicName,
    /// Its settings. Only [`Client::describe_group`] returns its rules for keys.
    pub config: GroupConfig,
    /// Messages that wait for a consumer.
    pub ready: u64,
    /// Messages that consumers hold.
    pub leased: u64,
    /// Messages that wait for their due time.
    pub delayed: u64,
    /// Messages on their way to the dead-letter topic.
    pub dying: u64,
    /// In a dead-letter topic: messages that failed for good and are not delivered until
    /// [`Client::retry_parked`].
    pub parked: u64,
    /// The first of them, by partition and offset. Only [`Client::describe_group`] returns them.
    pub parked_runs: Vec<ParkedRun>,
    /// If the topic keeps messages until they are settled, has several groups, and this group holds
    /// messages that the others have settled: the time at which the oldest of them was appended.
    pub holds_since: Option<Timestamp>,
    /// The number of subscriptions.
    pub consumers: u32,
    /// For each partition, by index: all offsets before this one are settled.
    pub settled_before: Vec<Offset>,
    /// In a group that keeps the order of partitions, for each partition, by index: the session of the consumer
    /// that holds messages of it.
    pub active_sessions: Vec<Option<u64>>,
}

/// Adjacent messages of a dead-letter topic that failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRun {
    /// The partition.
    pub partition: PartitionIndex,
    /// The messages.
    pub offsets: OffsetRange,
    /// The number of attempts at each message.
    pub attempts: u32,
    /// The time of the last failed attempt.
    pub failed_at: Timestamp,
    /// The reason.
    pub reason: String,
}

/// All of these calls return [`Error::Refused`] with the broker's code, [`Error::Closed`], or
/// [`Error::Unreachable`] when the client has given up. A change whose answer was lost with the
/// connection is [`Error::OutcomeUnknown`]; a query is sent again.
impl Client {
    /// Creates a topic. If the topic exists with the same settings, this does nothing. Returns
    /// whether it was created.
    ///
    /// # Errors
    /// `topic-exists` if it has other settings; and see above.
    pub async fn create_topic(&self, name: &TopicName, config: TopicConfig) -> Result<bool, Error> {
        self.create_topic_beside(name, config, None).await
    }

    /// Creates a topic as [`Self::create_topic`]. Its partitions lie on the shards of the broker where
    /// those of `beside` lie, so that [`Client::atomic`] may name both topics.
    ///
    /// # Errors
    /// `topics-apart` if it exists and lies elsewhere; and as [`Self::create_topic`].
    pub async fn create_topic_beside(
        &self,
        name: &TopicName,
        config: TopicConfig,
        beside: Option<&TopicName>,
    ) -> Result<bool, Error> {
        let (name, config) = (name.to_string(), Some((&config).into()));
        let beside = beside.map(ToString::to_string);
        let body = control::CreateTopic { name, config, beside };
        self.change(Request::CreateTopic(body)).await.map(|done| done.created)
    }

    /// Replaces all settings of a topic. The number of `partitions` must be the same.
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

    /// Describes a topic.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn describe_topic(&self, name: &TopicName) -> Result<TopicDescription, Error> {
        let body = control::DescribeTopic { name: name.to_string() };
        match self.connection.ask(Request::DescribeTopic(body), true).await? {
            Reply::TopicDescription(body) => topic_description(body),
            other => Err(unexpected(&other)),
        }
    }

    /// Lists all topics, by name, with as many requests as there are pages.
    ///
    /// # Errors
    /// See above.
    pub async fn list_topics(&self) -> Result<Vec<TopicSummary>, Error> {
        let mut topics = Vec::new();
        let mut page_token = String::new();
        loop {
            let body = control::ListTopics { page_token, page_size: 0 };
            let page = match self.connection.ask(Request::ListTopics(body), true).await? {
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

    /// Creates a group. If the group exists with the same settings, this does nothing. Returns
    /// whether it was created.
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

    /// Changes settings of a group. New leases have the new length. The next failed attempt is
    /// compared with the new limit and has the new delay. A rule for keys replaces the one with the
    /// same pattern, and removes it if it is empty.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`, `invalid-config`, `unknown-kind` by a broker that does not
    /// support it; and see above.
    pub async fn alter_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        change: GroupChange,
    ) -> Result<(), Error> {
        let config = Some((&change).into());
        let (topic, name) = (topic.to_string(), group.to_string());
        let body = control::AlterGroup { topic, name, config };
        self.change(Request::AlterGroup(body)).await.map(drop)
    }

    /// Makes parked messages of a group of a dead-letter topic ready again, with all their
    /// attempts: the messages at these offsets, or all if there are none. Returns their number.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that the topic does not have, `unknown-group`,
    /// `unknown-kind` by a broker that does not support it; and see above.
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

    /// Deletes a group and its state.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`; and see above.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<(), Error> {
        let body = control::DeleteGroup { topic: topic.to_string(), name: group.to_string() };
        self.change(Request::DeleteGroup(body)).await.map(drop)
    }

    /// Describes all groups of a topic, without their rules for keys.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn list_groups(&self, topic: &TopicName) -> Result<Vec<GroupDescription>, Error> {
        // A listing has names and settings only; the topic's description has the counts as well.
        self.describe_topic(topic).await.map(|description| description.groups)
    }

    /// Describes a group.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`; and see above.
    pub async fn describe_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<GroupDescription, Error> {
        let body = control::DescribeGroup { topic: topic.to_string(), name: group.to_string() };
        match self.connection.ask(Request::DescribeGroup(body), true).await? {
            Reply::GroupDescription(body) => group_description(body),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets a named cursor to these offsets: for each named partition the first offset that is not
    /// processed. An offset beyond the end counts as the end. With `take_over` a reader that holds
    /// the cursor ends.
    ///
    /// # Errors
    /// `cursor-held` while a reader of another client holds it and `take_over` is false,
    /// `unknown-topic`, also for a partition that the topic does not have, `limit-reached`; and see
    /// above.
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

    /// Frees the oldest messages: every batch that lies wholly before these offsets.
    /// [`Client::describe_topic`] returns the offset of the first message that remains.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that the topic does not have; and see above.
    pub async fn trim_topic(
        &self,
        topic: &TopicName,
        positions: &[(PartitionIndex, Offset)],
    ) -> Result<(), Error> {
        let positions = positions.iter().map(position).collect();
        let body = control::TrimTopic { topic: topic.to_string(), positions };
        self.change(Request::TrimTopic(body)).await.map(drop)
    }

    /// Deletes a named cursor.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-cursor`; and see above.
    pub async fn delete_cursor(&self, topic: &TopicName, cursor: &CursorName) -> Result<(), Error> {
        let body = control::DeleteCursor { topic: topic.to_string(), name: cursor.to_string() };
        self.change(Request::DeleteCursor(body)).await.map(drop)
    }

    /// Lists the named cursors of a topic, by name.
    ///
    /// # Errors
    /// `unknown-topic`; and see above.
    pub async fn list_cursors(&self, topic: &TopicName) -> Result<Vec<Cursor>, Error> {
        let body = control::ListCursors { topic: topic.to_string() };
        match self.connection.ask(Request::ListCursors(body), true).await? {
            Reply::CursorList(list) => list.cursors.into_iter().map(cursor).collect(),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn change(&self, request: Request) -> Result<control::Done, Error> {
        match self.connection.ask(request, false).await? {
            Reply::Done(done) => Ok(done),
            other => Err(unexpected(&other)),
        }
    }
}

fn position(&(partition, offset): &(PartitionIndex, Offset)) -> control::ReadPosition {
    control::ReadPosition { partition: partition.0, offset: offset.0 }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
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
    let config = body.config.clone().unwrap_or_default();
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
        active_sessions: body
            .active_sessions
            .into_iter()
            .map(|session| Some(session).filter(|session| *session > 0))
            .collect(),
    })
}

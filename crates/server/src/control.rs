//! Names and settings. The first core's shard leads the catalogue; once it has committed a change,
//! the shards that own the partitions follow. What a crash leaves undone between the two is done at
//! the next start.
#![expect(clippy::result_large_err, reason = "a failure is rare, and leaves at once as a reply")]

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use sennit_engine::{
    CatalogueCommand, Command, PartitionCommand, PartitionDescription, Refusal, SessionId, Topic,
};
use sennit_model::{
    GroupConfig, GroupName, Incarnation, Offset, PartitionId, PartitionIndex, StartAt, TopicConfig,
    TopicId, TopicKind, TopicName,
};
use sennit_protocol::{ErrorCode, Reply, Request, control, topic_kind};
use tokio::{sync::oneshot, task::spawn_local};

use crate::{
    answers::Answer,
    changes::Changes,
    core::{CoreHandle, Cores, own_session},
    descriptions::{group_description, partition_descriptions, watched_topic},
    found::{Found, FoundPartition, Lag},
    inbox::Message,
    placement::shard_of,
    refusal_reply, reserved,
    topic_listener::TopicListener,
    watches::Watches,
};

pub(crate) use crate::refusal_reply::wrong_answer;

/// Most topics in a page of a listing.
const PAGE_TOPICS_MAX: usize = 1000;

/// Topics whose partitions are brought in line at once when the broker starts.
const OPENED_MAX: usize = 4096;

/// The control of names and settings, on the first core.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) core: CoreHandle,
    pub(crate) changes: Changes,
    pub(crate) watches: Rc<RefCell<Watches>>,
    listener: Rc<dyn TopicListener>,
    frame_bytes_max: usize,
}

/// The answer to a request about names and settings.
#[derive(Debug)]
pub(crate) struct ControlReply {
    /// What the client is told.
    pub(crate) reply: Reply,
    /// The topic beside which the topic in question is placed.
    pub(crate) home: TopicId,
}

/// Asks the first core, for a session. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    session: SessionId,
    request: Request,
) -> oneshot::Receiver<ControlReply> {
    let (sender, answer) = oneshot::channel();
    let _ = cores.inboxes[0].send(Message::call(move |control: &Rc<Control>| {
        let control = control.clone();
        spawn_local(async move {
            let _ = sender.send(control.answer(session, request).await);
        });
    }));
    answer
}

/// Answers that shards owe.
pub(crate) type Asked = Vec<oneshot::Receiver<Result<Answer, Refusal>>>;

/// What went wrong, as the client is told.
pub(crate) type Failure = control::Error;

pub(crate) fn failure(refusal: Refusal) -> Failure {
    refusal_reply::reply(&refusal)
}

impl Control {
    /// Tells `listener` of topics that come and go.
    pub(crate) fn new(core: CoreHandle, listener: Rc<dyn TopicListener>) -> Self {
        let frame_bytes_max = sennit_model::limits::FRAME_BYTES_MAX;
        let (changes, watches) = Default::default();
        Self { core, changes, watches, listener, frame_bytes_max }
    }

    /// Begins with what shards have found when they were recovered: nobody is let in before `done` is told.
    pub(crate) async fn begin(self: Rc<Self>, found: Found, done: oneshot::Sender<()>) {
        if let Err(error) = self.reconcile(&found.partitions).await {
            tracing::error!(error = error.message, "shards lag the catalogue");
        }
        self.release_streams(&found.held_streams, &found.forks).await;
        self.listener.clone().starts().await;
        let _ = done.send(());
    }

    /// Brings the shards in line with the catalogue: `owned` are the partitions they were
    /// recovered with, in the order of their numbers.
    pub(crate) async fn reconcile(&self, owned: &[FoundPartition]) -> Result<(), Failure> {
        let shards = self.core.cores.inboxes.len();
        let lag = self.core.look(|core| Lag::of(owned, core.shard().catalogue(), shards));
        for topics in lag.topics.chunks(OPENED_MAX) {
            let asked: Vec<_> =
                topics.iter().filter_map(|&topic| self.ask_to_open(topic)).collect();
            for answers in asked {
                gather(answers).await?;
            }
        }
        self.adopt_lost(owned).await?;
        for FoundPartition { shard, id: partition, .. } in lag.strays {
            let is_known = self.core.look(|core| {
                core.shard()
                    .catalogue()
                    .topic(partition.topic)
                    .is_some_and(|topic| partition.index.0 < topic.config().partitions)
            });
            if is_known {
                continue;
            }
            match self.change_partition(shard, partition, PartitionCommand::Drop).await {
                // A stream whose time is over went meanwhile; the others are still to be looked at.
                Err(error) if error.error_code() == Some(ErrorCode::UnknownTopic) => {}
                dropped => drop(dropped?),
            }
        }
        Ok(())
    }

    /// Has topics again whose partitions are there, and whose names and settings the catalogue has
    /// lost.
    async fn adopt_lost(&self, owned: &[FoundPartition]) -> Result<(), Failure> {
        let mut lost: BTreeMap<TopicId, Vec<(usize, PartitionIndex)>> = BTreeMap::new();
        self.core.look(|core| {
            let catalogue = core.shard().catalogue();
            for &FoundPartition { shard, id: partition, .. } in owned {
                if catalogue.may_have_lost(partition.topic) {
                    lost.entry(partition.topic).or_default().push((shard, partition.index));
                }
            }
        });
        let shards = self.core.cores.inboxes.len();
        for (topic, held) in lost {
            // One that was placed beside another topic is placed beside a number nobody has.
            let unused = (0..shards as u32).map(|n| TopicId(u32::MAX - n));
            let fits = |home: &TopicId| {
                held.iter().all(|&(shard, index)| shard_of(*home, index, shards) == shard)
            };
            let Some(home) = std::iter::once(topic).chain(unused).find(fits) else { continue };
            let partitions = 1 + held.iter().map(|(_, index)| index.0).max().unwrap_or_default();
            tracing::error!(
                topic_id = topic.0,
                "a topic has lost its name and settings: it is called lost-{} now",
                topic.0
            );
            let incarnation = incarnation()?;
            let command = CatalogueCommand::AdoptTopic { topic, partitions, home, incarnation };
            self.change_catalogue(command).await?;
            self.open_partitions(topic).await?;
        }
        Ok(())
    }

    /// What a topic is called, for people; its number where it is gone.
    pub(crate) fn name_of(&self, topic: TopicId) -> String {
        let name = self.core.look(|core| {
            core.shard().catalogue().topic(topic).map(|topic| topic.created.name.to_string())
        });
        name.unwrap_or_else(|| format!("number {}", topic.0))
    }

    /// Creates the topic for the dead letters of another, and tells all partitions.
    pub(crate) async fn create_dead_letter_topic(&self, source: TopicId) -> Result<(), Failure> {
        let name = self.core.look(|core| {
            core.shard().catalogue().topic(source).map(|topic| topic.created.name.clone())
        });
        let Some(name) = name else { return Ok(()) };
        let _changes = self.changes.of(name.as_str()).await;
        let incarnation = incarnation()?;
        let command = CatalogueCommand::CreateDeadLetterTopic { source, incarnation };
        let (topic, _, created) = self.change_catalogue(command).await?;
        // The letters' partitions first: the source's send there as soon as they know them.
        self.open_partitions(topic).await?;
        if created {
            self.announce(topic, Offset(0));
        }
        self.name_partitions(source).await?;
        self.open_partitions(source).await
    }

    /// Tells the partitions of a topic what it and its groups are called, for their dead letters.
    async fn name_partitions(&self, topic: TopicId) -> Result<(), Failure> {
        let topic = self.core.look(|core| core.shard().catalogue().topic(topic).cloned());
        let Some(topic) = topic else { return Ok(()) };
        let names = PartitionCommand::Name(Arc::new(topic.source_names()));
        self.tell_partitions(&topic, &names).await.map(drop)
    }

    /// Does a request about names and settings. The broker itself may do more than its clients.

    pub(crate) async fn answer(&self, session: SessionId, request: Request) -> ControlReply {
        if session != own_session(self.core.index)
            && let Some(refusal) = reserved::refusal(&request)
        {
            return refused(refusal);
        }
        let answered = match request {
            Request::CreateTopic(body) => self.create_topic(body).await,
            Request::AlterTopic(body) => self.alter_topic(body).await,
            Request::DeleteTopic(body) => self.delete_topic(body).await,
            Request::DescribeTopic(body) => self.describe_topic(body).await,
            Request::ListTopics(body) => self.list_topics(&body),
            Request::CreateGroup(body) => self.create_group(body).await,
            Request::AlterGroup(body) => self.alter_group(body).await,
            Request::DeleteGroup(body) => self.delete_group(body).await,
            Request::RetryParked(body) => self.retry_parked(body).await,
            Request::ListGroups(body) => self.list_groups(&body),
            Request::DescribeGroup(body) => self.describe_group(body).await,
            Request::OpenTopic(body) => self.open_topic(body).await,
            Request::Subscribe(body) => self.subscribe(body).await,
            Request::Read(body) => self.read(body).await,
            Request::SetCursor(body) => self.set_cursor(session, body).await,
            Request::DeleteCursor(body) => self.delete_cursor(body).await,
            Request::TrimTopic(body) => self.trim_topic(body).await,
            Request::ListCursors(body) => self.list_cursors(body).await,
            other => Err(control::Error::new(
                ErrorCode::Internal,
                format!("{:?} is not for the control", other.kind()),
            )),
        };
        answered.unwrap_or_else(refused)
    }

    async fn ask(
        &self,
        shard: usize,
        command: impl FnOnce(sennit_engine::Origin) -> Command,
    ) -> Result<Answer, Failure> {
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            core.command(shard, command(origin));
            core.handle();
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(control::Error::new(ErrorCode::ShuttingDown, "the broker stops")),
        }
    }

    pub(crate) async fn change_catalogue(
        &self,
        command: CatalogueCommand,
    ) -> Result<(TopicId, u32, bool), Failure> {
        match self.ask(self.core.index, |origin| Command::Catalogue(origin, command)).await? {
            Answer::Done { topic, group, created } => {
                Ok((topic, group.map_or(0, |group| group.0), created))
            }
            _ => Err(wrong_answer()),
        }
    }

    async fn change_partition(
        &self,
        shard: usize,
        partition: PartitionId,
        command: PartitionCommand,
    ) -> Result<Answer, Failure> {
        self.ask(shard, |origin| Command::Partition(origin, partition, command)).await
    }

    /// Has every partition of a topic be as the catalogue says.
    pub(crate) async fn open_partitions(&self, topic: TopicId) -> Result<(), Failure> {
        match self.ask_to_open(topic) {
            Some(asked) => gather(asked).await.map(drop),
            None => Ok(()),
        }
    }

    /// Asks every partition of a topic to be as the catalogue says; `None` if it is gone.
    fn ask_to_open(&self, topic: TopicId) -> Option<Asked> {
        let topic = self.core.look(|core| core.shard().catalogue().topic(topic).cloned())?;
        let open = PartitionCommand::Open {
            config: *topic.config(),
            groups: topic.group_settings(),
            dead_letters: topic.dead_letters(),
        };
        Some(self.ask_partitions(&topic, |_| open.clone()))
    }

    /// Tells every partition of a topic the same, all at once, and gathers their answers.
    pub(crate) async fn tell_partitions(
        &self,
        topic: &Topic,
        command: &PartitionCommand,
    ) -> Result<Vec<Answer>, Failure> {
        gather(self.ask_partitions(topic, |_| command.clone())).await
    }

    pub(crate) fn ask_partitions(
        &self,
        topic: &Topic,
        command: impl Fn(PartitionIndex) -> PartitionCommand,
    ) -> Asked {
        self.ask_partitions_that(topic, |index| Some(command(index)))
    }

    /// Asks the partitions for which there is a command.
    pub(crate) fn ask_partitions_that(
        &self,
        topic: &Topic,
        command: impl Fn(PartitionIndex) -> Option<PartitionCommand>,
    ) -> Asked {
        let shards = self.core.cores.inboxes.len();
        self.core.with(|core| {
            let asked = (0..topic.config().partitions).filter_map(|index| {
                let index = PartitionIndex(index);
                let command = command(index)?;
                let (origin, answer) = core.answers.ask();
                let partition = PartitionId { topic: topic.id(), index };
                let shard = shard_of(topic.created.home, index, shards);
                core.command(shard, Command::Partition(origin, partition, command));
                Some(answer)
            });
            let asked = asked.collect();
            core.handle();
            asked
        })
    }

    pub(crate) fn topic_named(&self, name: &str) -> Result<Topic, Failure> {
        let parsed: TopicName = name.parse().map_err(|error| Failure::from(&error))?;
        let found = self.core.look(|core| core.shard().catalogue().topic_named(&parsed).cloned());
        found.ok_or_else(|| unknown_topic(name))
    }

    pub(crate) fn group_named(
        &self,
        topic: &Topic,
        name: &str,
    ) -> Result<sennit_engine::CatalogueGroup, Failure> {
        let parsed: GroupName = name.parse().map_err(|error| Failure::from(&error))?;
        topic.group(&parsed).cloned().ok_or_else(|| {
            let topic = topic.created.name.as_str();
            let message = format!("topic {topic:?} has no group {name:?}");
            with_topic(control::Error::new(ErrorCode::UnknownGroup, message), topic)
        })
    }

    async fn create_topic(&self, body: control::CreateTopic) -> Result<ControlReply, Failure> {
        let name: TopicName = body.name.parse().map_err(|error| Failure::from(&error))?;
        let config = body.topic_config().map_err(|error| Failure::from(&error))?;
        let _changes = self.changes.of(name.as_str()).await;
        let (topic, created) = self.new_topic(name, config).await?;
        Ok(done(topic, 0, created))
    }

    async fn new_topic(
        &self,
        name: TopicName,
        config: TopicConfig,
    ) -> Result<(TopicId, bool), Failure> {
        let incarnation = incarnation()?;
        let command = CatalogueCommand::CreateTopic {
            name,
            config,
            incarnation,
            placed: None,
            is_stream: false,
        };
        let (topic, _, created) = self.change_catalogue(command).await?;
        if created {
            self.open_partitions(topic).await?;
            self.announce(topic, Offset(0));
        }
        Ok((topic, created))
    }

    /// Tells those who watch, and those who subscribe to it as a stream, that a topic is there and may
    /// be read; what lies behind `from` is new.
    pub(crate) fn announce(&self, topic: TopicId, from: Offset) {
        let topic = self.core.look(|core| core.shard().catalogue().topic(topic).cloned());
        // It may be deleted again by now.
        let Some(topic) = topic else { return };
        let name = &topic.created.name;
        self.watches.borrow_mut().appeared(name, &watched_topic(&topic));
        if topic.config().partitions == 1 {
            self.listener.clone().appeared(name, topic.id(), from);
        }
    }

    async fn alter_topic(&self, body: control::AlterTopic) -> Result<ControlReply, Failure> {
        let config = body.topic_config().map_err(|error| Failure::from(&error))?;
        let _changes = self.changes.of(&body.name).await;
        let topic = self.topic_named(&body.name)?.id();
        self.change_catalogue(CatalogueCommand::AlterTopic { topic, config }).await?;
        self.open_partitions(topic).await?;
        Ok(done(topic, 0, false))
    }

    async fn delete_topic(&self, body: control::DeleteTopic) -> Result<ControlReply, Failure> {
        let _changes = self.changes.of(&body.name).await;
        let topic = self.topic_named(&body.name)?;
        self.remove_whole(&topic).await?;
        Ok(done(topic.id(), 0, false))
    }

    /// Whoever listens is told that a topic is gone.
    pub(crate) fn listener_gone(&self, topic: &Topic) {
        self.listener.clone().gone(&topic.created.name, topic.id());
    }

    /// Deletes a topic, whatever may need it.
    pub(crate) async fn remove_topic(&self, topic: &Topic) -> Result<(), Failure> {
        self.change_catalogue(CatalogueCommand::DeleteTopic { topic: topic.id() }).await?;
        self.watches.borrow_mut().gone(&topic.created.name, &watched_topic(topic));
        self.listener_gone(topic);
        match self.tell_partitions(topic, &PartitionCommand::Drop).await {
            // A start, which has just found that the catalogue does not know it, was first.
            Err(error) if error.error_code() == Some(ErrorCode::UnknownTopic) => {}
            dropped => drop(dropped?),
        }
        if topic.created.home != topic.id() {
            // Its source has nowhere to send its dead letters now.
            self.open_partitions(topic.created.home).await?;
        }
        Ok(())
    }

    async fn open_topic(&self, body: control::OpenTopic) -> Result<ControlReply, Failure> {
        self.wait_for_changes(&body.name).await;
        let topic = match self.topic_named(&body.name) {
            Err(_) if body.create_if_missing => {
                let name: TopicName = body.name.parse().map_err(|error| Failure::from(&error))?;
                let _changes = self.changes.of(&body.name).await;
                if self.topic_named(&body.name).is_err() {
                    self.new_topic(name, TopicConfig::of_kind(TopicKind::Queue)).await?;
                }
                self.topic_named(&body.name)?
            }
            found => found?,
        };
        let opened = control::TopicOpened {
            topic_id: topic.id().0,
            incarnation: topic.created.incarnation.0,
            partitions: topic.config().partitions,
            limits: Some(control::Limits::new(self.frame_bytes_max)),
        };
        Ok(ControlReply { reply: Reply::TopicOpened(opened), home: topic.created.home })
    }

    /// Waits for a change of a topic that is under way: between its commit and the end of it the catalogue has
    /// what partitions do not know yet.
    pub(crate) async fn wait_for_changes(&self, topic: &str) {
        drop(self.changes.of(topic).await);
    }

    async fn subscribe(&self, body: control::Subscribe) -> Result<ControlReply, Failure> {
        self.wait_for_changes(&body.topic).await;
        let mut topic = self.topic_named(&body.topic)?;
        let mut group = self.group_named(&topic, &body.group);
        if body.create_group_if_missing
            && group.as_ref().is_err_and(|e| e.error_code() == Some(ErrorCode::UnknownGroup))
        {
            let name: GroupName = body.group.parse().map_err(|error| Failure::from(&error))?;
            let _changes = self.changes.of(&body.topic).await;
            topic = self.topic_named(&body.topic)?;
            if self.group_named(&topic, &body.group).is_err() {
                let config = GroupConfig::default();
                self.new_group(topic.id(), name, config, StartAt::Earliest).await?;
            }
            topic = self.topic_named(&body.topic)?;
            group = self.group_named(&topic, &body.group);
        }
        let group = group?;
        let lease = group.config().lease.as_millis();
        let subscribed = control::Subscribed {
            subscription: body.subscription,
            topic_id: topic.id().0,
            group_id: group.id.0,
            partitions: topic.config().partitions,
            lease_ms: u64::try_from(lease).unwrap_or(u64::MAX),
            ranges: Vec::new(),
        };
        Ok(ControlReply { reply: Reply::Subscribed(subscribed), home: topic.created.home })
    }

    fn list_topics(&self, body: &control::ListTopics) -> Result<ControlReply, Failure> {
        let size = match body.page_size as usize {
            0 => PAGE_TOPICS_MAX,
            size => size.min(PAGE_TOPICS_MAX),
        };
        let (topics, next_page_token) = self.core.look(|core| {
            let mut named = core.shard().catalogue().topics_after_name(&body.page_token);
            let entries = named.by_ref().take(size).map(|topic| control::TopicEntry {
                name: topic.created.name.to_string(),
                id: topic.id().0,
                config: Some(topic.config().into()),
            });
            let entries: Vec<_> = entries.collect();
            let last = entries.last().map(|entry| entry.name.clone());
            let next = named.next().and(last);
            (entries, next.unwrap_or_default())
        });
        let list = control::TopicList { topics, next_page_token };
        Ok(ControlReply { reply: Reply::TopicList(list), home: TopicId::default() })
    }

    pub(crate) async fn describe_partitions(
        &self,
        topic: &Topic,
    ) -> Result<Vec<PartitionDescription>, Failure> {
        let answers = self.tell_partitions(topic, &PartitionCommand::Describe).await?;
        let described = answers.into_iter().map(|answer| match answer {
            Answer::Described(description) => Ok(description),
            _ => Err(wrong_answer()),
        });
        described.collect()
    }

    async fn describe_topic(&self, body: control::DescribeTopic) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.name)?;
        let partitions = self.describe_partitions(&topic).await?;
        let groups = topic.groups.iter().map(|group| group_description(&topic, group, &partitions));
        let groups = groups.collect();
        let description = control::TopicDescription {
            name: topic.created.name.to_string(),
            id: topic.id().0,
            incarnation: topic.created.incarnation.0,
            config: Some(topic.config().into()),
            kind: topic_kind(topic.config()).into(),
            created_ms: None,
            partitions: partition_descriptions(&partitions),
            groups,
        };
        let reply = Reply::TopicDescription(description);
        Ok(ControlReply { reply, home: topic.created.home })
    }
}

/// Waits for all answers.
pub(crate) async fn gather(asked: Asked) -> Result<Vec<Answer>, Failure> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        let answer = answer
            .await
            .map_err(|_| control::Error::new(ErrorCode::ShuttingDown, "the broker stops"))?;
        answers.push(answer.map_err(failure)?);
    }
    Ok(answers)
}

pub(crate) fn done(topic: TopicId, group: u32, created: bool) -> ControlReply {
    let done = control::Done { created, topic_id: topic.0, group_id: group, messages: 0 };
    ControlReply { reply: Reply::Done(done), home: topic }
}

fn refused(error: Failure) -> ControlReply {
    ControlReply { reply: Reply::Error(error), home: TopicId::default() }
}

pub(crate) fn incarnation() -> Result<Incarnation, Failure> {
    let random = getrandom::u64().map_err(|error| {
        let message = format!("the system has no random numbers: {error}");
        control::Error::new(ErrorCode::Internal, message)
    })?;
    Ok(Incarnation(random))
}

pub(crate) fn unknown_topic(name: &str) -> Failure {
    let message = format!("there is no topic {name:?}");
    with_topic(control::Error::new(ErrorCode::UnknownTopic, message), name)
}

pub(crate) fn with_topic(mut error: Failure, topic: &str) -> Failure {
    error.topic = Some(topic.to_owned());
    error
}

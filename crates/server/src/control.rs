//! Names and settings. The first core's shard leads the catalogue; once it has committed a change,
//! the shards that own the partitions follow. What a crash leaves undone between the two is done at
//! the next start. It is asked in the types of `control_request`, and knows no protocol.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use sennit_engine::{CatalogueCommand, Command, PartitionCommand, Refusal, SessionId, Topic};
use sennit_model::{
    GroupId, GroupName, Incarnation, Offset, PartitionId, PartitionIndex, TopicId, TopicName,
};
use tokio::{sync::oneshot, task::spawn_local};

use crate::{
    answers::Answer,
    changes::Changes,
    control_request::{ControlAnswer, ControlRefusal, ControlRequest},
    core::{CoreHandle, Cores, own_session},
    found::{Found, FoundPartition, Lag},
    inbox::Message,
    placement::shard_of,
    reserved,
    subscriptions::Subscriptions,
    watches::Watches,
};

mod topics;
mod watch;

pub(crate) use self::{topics::place_of, watch::watch};

/// Topics whose partitions are brought in line at once when the broker starts.
const OPENED_MAX: usize = 4096;

/// The control of names and settings, on the first core.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) core: CoreHandle,
    pub(crate) changes: Changes,
    pub(crate) watches: Rc<RefCell<Watches>>,
    pub(crate) subscriptions: Rc<Subscriptions>,
}

/// A change that the catalogue has committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    pub(crate) topic: TopicId,
    pub(crate) group: Option<GroupId>,
    /// Whether something was created that did not exist before.
    pub(crate) created: bool,
}

/// Asks the first core, for a session. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    session: SessionId,
    request: ControlRequest,
) -> oneshot::Receiver<Result<ControlAnswer, ControlRefusal>> {
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

impl Control {
    pub(crate) fn new(core: CoreHandle, subscriptions: Rc<Subscriptions>) -> Self {
        let (changes, watches) = Default::default();
        Self { core, changes, watches, subscriptions }
    }

    /// Begins with what shards have found when they were recovered: nobody is let in before `done` is told.
    pub(crate) async fn begin(self: Rc<Self>, found: Found, done: oneshot::Sender<()>) {
        if let Err(error) = self.reconcile(&found.partitions).await {
            tracing::error!(error = error.to_string(), "shards lag the catalogue");
        }
        self.release_streams(&found.held_streams, &found.forks).await;
        self.subscriptions.load().await;
        let _ = done.send(());
    }

    /// Brings the shards in line with the catalogue: `owned` are the partitions they were
    /// recovered with, in the order of their numbers.
    pub(crate) async fn reconcile(&self, owned: &[FoundPartition]) -> Result<(), ControlRefusal> {
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
                Err(ControlRefusal::Engine(Refusal::UnknownTopic)) => {}
                dropped => drop(dropped?),
            }
        }
        Ok(())
    }

    /// Has topics again whose partitions are there, and whose names and settings the catalogue has
    /// lost.
    async fn adopt_lost(&self, owned: &[FoundPartition]) -> Result<(), ControlRefusal> {
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
    pub(crate) async fn create_dead_letter_topic(
        &self,
        source: TopicId,
    ) -> Result<(), ControlRefusal> {
        let name = self.core.look(|core| {
            core.shard().catalogue().topic(source).map(|topic| topic.created.name.clone())
        });
        let Some(name) = name else { return Ok(()) };
        let _changes = self.changes.of(name.as_str()).await;
        let incarnation = incarnation()?;
        let command = CatalogueCommand::CreateDeadLetterTopic { source, incarnation };
        let Changed { topic, created, .. } = self.change_catalogue(command).await?;
        // The letters' partitions first: the source's send there as soon as they know them.
        self.open_partitions(topic).await?;
        if created {
            self.announce(topic, Offset(0));
        }
        self.name_partitions(source).await?;
        self.open_partitions(source).await
    }

    /// Tells the partitions of a topic what it and its groups are called, for their dead letters.
    async fn name_partitions(&self, topic: TopicId) -> Result<(), ControlRefusal> {
        let topic = self.core.look(|core| core.shard().catalogue().topic(topic).cloned());
        let Some(topic) = topic else { return Ok(()) };
        let names = PartitionCommand::Name(Arc::new(topic.source_names()));
        self.tell_partitions(&topic, &names).await.map(drop)
    }

    /// Does a request about names and settings. The broker itself may do more than its clients.
    async fn answer(
        &self,
        session: SessionId,
        request: ControlRequest,
    ) -> Result<ControlAnswer, ControlRefusal> {
        if session != own_session(self.core.index) {
            reserved::check_request(&request)?;
        }
        match request {
            ControlRequest::CreateTopic { name, config } => self.create_topic(name, config).await,
            ControlRequest::AlterTopic { name, config } => self.alter_topic(&name, config).await,
            ControlRequest::DeleteTopic { name } => self.delete_topic(&name).await,
            ControlRequest::DescribeTopic { name } => self.describe_topic(&name).await,
            ControlRequest::ListTopics(list) => Ok(self.list_topics(&list)),
            ControlRequest::OpenTopic { name, create_if_missing } => {
                self.open_topic(name, create_if_missing).await
            }
            ControlRequest::TrimTopic { topic, positions } => {
                self.trim_topic(&topic, &positions).await
            }
            ControlRequest::CreateGroup(create) => self.create_group(create).await,
            ControlRequest::AlterGroup(alter) => self.alter_group(alter).await,
            ControlRequest::DeleteGroup { topic, group } => self.delete_group(&topic, &group).await,
            ControlRequest::ListGroups { topic } => self.list_groups(&topic),
            ControlRequest::DescribeGroup { topic, group } => {
                self.describe_group(&topic, &group).await
            }
            ControlRequest::RetryParked(retry) => self.retry_parked(retry).await,
            ControlRequest::Subscribe(subscribe) => self.subscribe(subscribe).await,
            ControlRequest::Read(read) => self.read(read).await,
            ControlRequest::SetCursor(set) => self.set_cursor(session, set).await,
            ControlRequest::DeleteCursor { topic, cursor } => {
                self.delete_cursor(&topic, cursor).await
            }
            ControlRequest::ListCursors { topic } => self.list_cursors(&topic).await,
        }
    }

    async fn ask(
        &self,
        shard: usize,
        command: impl FnOnce(sennit_engine::Origin) -> Command,
    ) -> Result<Answer, ControlRefusal> {
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            core.command(shard, command(origin));
            core.handle();
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(ControlRefusal::Engine),
            Err(_) => Err(ControlRefusal::ShuttingDown),
        }
    }

    pub(crate) async fn change_catalogue(
        &self,
        command: CatalogueCommand,
    ) -> Result<Changed, ControlRefusal> {
        match self.ask(self.core.index, |origin| Command::Catalogue(origin, command)).await? {
            Answer::Done { topic, group, created } => Ok(Changed { topic, group, created }),
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    async fn change_partition(
        &self,
        shard: usize,
        partition: PartitionId,
        command: PartitionCommand,
    ) -> Result<Answer, ControlRefusal> {
        self.ask(shard, |origin| Command::Partition(origin, partition, command)).await
    }

    /// Has every partition of a topic be as the catalogue says.
    pub(crate) async fn open_partitions(&self, topic: TopicId) -> Result<(), ControlRefusal> {
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
    ) -> Result<Vec<Answer>, ControlRefusal> {
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

    pub(crate) fn topic_named(&self, name: &TopicName) -> Result<Topic, ControlRefusal> {
        let found = self.core.look(|core| core.shard().catalogue().topic_named(name).cloned());
        found.ok_or_else(|| ControlRefusal::UnknownTopic(name.clone()))
    }
}

/// The group of this name in a topic.
pub(crate) fn group_named(
    topic: &Topic,
    name: &GroupName,
) -> Result<sennit_engine::CatalogueGroup, ControlRefusal> {
    topic.group(name).cloned().ok_or_else(|| ControlRefusal::UnknownGroup {
        topic: topic.created.name.clone(),
        group: name.clone(),
    })
}

/// Waits for all answers.
pub(crate) async fn gather(asked: Asked) -> Result<Vec<Answer>, ControlRefusal> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        let answer = answer.await.map_err(|_| ControlRefusal::ShuttingDown)?;
        answers.push(answer?);
    }
    Ok(answers)
}

/// The answer that a change is committed, which made no messages ready.
pub(crate) fn done(topic: TopicId, group: Option<GroupId>, created: bool) -> ControlAnswer {
    ControlAnswer::Done { topic, group, created, messages: 0 }
}

pub(crate) fn incarnation() -> Result<Incarnation, ControlRefusal> {
    let random = getrandom::u64().map_err(ControlRefusal::NoRandomNumbers)?;
    Ok(Incarnation(random))
}

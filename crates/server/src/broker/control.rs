//! Names and settings. The first core's shard leads the catalogue; once it has committed a change,
//! the shards that own the partitions follow. What a crash leaves undone between the two is done at
//! the next start. It is asked in the types of `control_request`, and knows no protocol.

mod cursor_list;
mod dead_letter_topics;
mod delayed;
mod descriptions;
mod explain;
mod groups;
mod leader;
mod leadership;
mod live;
mod name_changes;
mod name_lookup;
mod news;
mod reading;
mod start;
mod topics;
mod watch;
mod watches;
mod workbench;

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    rc::Rc,
    time::Duration,
};

use sennit_engine::{
    Catalogue, CatalogueCommand, Command, PartitionCommand, Refusal, SessionId, Topic,
};
use sennit_model::{
    GroupId, GroupName, Incarnation, PartitionId, PartitionIndex, TopicId, TopicName,
};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    audit,
    control_peers::ControlPeers,
    control_request::{
        ControlAnswer, ControlRefusal, ControlRequest, act, check_request, check_rights,
    },
    name_change::{Changed, NameChange},
    topic_listener::TopicListener,
    topic_locks::TopicLocks,
};
use crate::identity::principal::Principal;
use crate::runtime::{
    core::{CoreHandle, Cores},
    inbox::Message,
    index::{CoreIndex, ShardIndex},
    shard_answers::Answer,
};

pub(crate) use self::{
    live::LiveStart,
    watch::watch,
    watches::{CHANGES_WAITING_MAX, Change, WatchedTopic},
};
use self::{topics::place_of, watches::Watches};

/// The control of names and settings, on the first core.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) core: CoreHandle,
    pub(crate) changes: TopicLocks,
    pub(crate) watches: Rc<RefCell<Watches>>,
    listeners: Rc<[Rc<dyn TopicListener>]>,
    /// How long channels that live connections create keep messages; without it as long as the broker runs.
    channels_keep: Option<Duration>,
    /// The controls of the other nodes, on a node of a cluster.
    pub(crate) peers: Option<Rc<ControlPeers>>,
    /// The changes of the catalogue that are known to be committed, as far as they were counted, and how often its state had been
    /// made anew.
    committed_changes: Rc<Cell<(u64, u64)>>,
    /// Topics that were reported by who has created or deleted them here (true: created), and of which the catalogue's news are not
    /// taken yet.
    reported: Rc<RefCell<HashSet<(TopicId, bool)>>>,
}

/// Asks the first core, for a session and on behalf of a principal. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    session: SessionId,
    principal: Principal,
    request: ControlRequest,
) -> oneshot::Receiver<Result<ControlAnswer, ControlRefusal>> {
    let (sender, answer) = oneshot::channel();
    let _ = cores.inboxes[CoreIndex::FIRST].send(Message::call(move |control: &Rc<Control>| {
        let control = control.clone();
        spawn_local(async move {
            let _ = sender.send(control.answer(session, &principal, request).await);
        });
    }));
    answer
}

/// Has the first core do something with the control on behalf of another, and returns what comes of it.
///
/// # Errors
/// What the control says; or the broker stops.
pub(crate) async fn ask_control<T: Send + 'static, F>(
    cores: &Cores,
    ask: impl FnOnce(Rc<Control>) -> F + Send + 'static,
) -> Result<T, ControlRefusal>
where
    F: Future<Output = Result<T, ControlRefusal>> + 'static,
{
    let (sender, answer) = oneshot::channel();
    let call = Message::call(move |control: &Rc<Control>| {
        let asked = ask(control.clone());
        spawn_local(async move {
            let _ = sender.send(asked.await);
        });
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(call);
    answer.await.map_err(|_| ControlRefusal::ShuttingDown)?
}

/// Answers that shards owe.
type PendingAnswers = Vec<oneshot::Receiver<Result<Answer, Refusal>>>;

impl Control {
    /// Tells `listeners` of topics that come and go.
    /// Channels that live connections create keep messages for so long.
    pub(crate) fn new(
        core: CoreHandle,
        listeners: Rc<[Rc<dyn TopicListener>]>,
        channels_keep: Option<Duration>,
        peers: Option<Rc<ControlPeers>>,
    ) -> Self {
        let (changes, watches, committed_changes, reported) = Default::default();
        Self {
            core,
            changes,
            watches,
            listeners,
            channels_keep,
            peers,
            committed_changes,
            reported,
        }
    }

    /// What a topic is called, for people; its number where it is gone.
    pub(crate) fn name_of(&self, topic: TopicId) -> String {
        let name = self
            .core
            .look(|core| core.catalogue().topic(topic).map(|topic| topic.created.name.to_string()));
        name.unwrap_or_else(|| format!("number {}", topic.0))
    }

    /// Does a request about names and settings. The broker itself may do more than its clients.
    async fn answer(
        &self,
        session: SessionId,
        principal: &Principal,
        request: ControlRequest,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let act = act(&request);
        let answer = self.carry_out(session, principal, request).await;
        if let Some((act, to)) = act {
            audit::note(&self.core.cores, principal, act, to, &answer);
        }
        answer
    }

    async fn carry_out(
        &self,
        session: SessionId,
        principal: &Principal,
        request: ControlRequest,
    ) -> Result<ControlAnswer, ControlRefusal> {
        check_rights(principal, &request)?;
        if !principal.is_broker() {
            check_request(&request)?;
        }
        self.know_all(request.looked_up()).await?;
        match request {
            ControlRequest::CreateTopic { name, config, beside } => {
                self.check_topics_quota(principal, &name)?;
                self.changed(NameChange::CreateTopic { name, config, beside }).await
            }
            ControlRequest::AlterTopic { name, config } => {
                self.changed(NameChange::AlterTopic { name, config }).await
            }
            ControlRequest::DeleteTopic { name } => {
                self.changed(NameChange::DeleteTopic { name }).await
            }
            ControlRequest::DescribeTopic { name } => self.describe_topic(&name).await,
            ControlRequest::ListTopics(list) => self.list_topics(principal, &list),
            ControlRequest::OpenTopic { name, create_if_missing } => {
                self.open_topic(principal, name, create_if_missing).await
            }
            ControlRequest::TrimTopic { topic, positions } => {
                self.trim_topic(&topic, &positions).await
            }
            ControlRequest::CreateGroup(create) => {
                self.changed(NameChange::CreateGroup(create)).await
            }
            ControlRequest::AlterGroup(alter) => self.changed(NameChange::AlterGroup(alter)).await,
            ControlRequest::DeleteGroup { topic, group } => {
                self.changed(NameChange::DeleteGroup { topic, group }).await
            }
            ControlRequest::ListGroups { topic } => self.list_groups(&topic),
            ControlRequest::DescribeGroup { topic, group } => {
                self.describe_group(&topic, &group).await
            }
            ControlRequest::ListDelayed(list) => self.list_delayed(list).await,
            ControlRequest::ChangeDelayed(change) => self.change_delayed(change).await,
            ControlRequest::Explain(explain) => self.explain(explain).await,
            ControlRequest::ListFairKeys { topic, group, most } => {
                self.list_fair_keys(&topic, &group, most).await
            }
            ControlRequest::Inspect(inspect) => self.inspect(inspect).await,
            ControlRequest::Rework(rework) => self.rework(principal, rework).await,
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
        shard: ShardIndex,
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

    async fn change_catalogue(&self, command: CatalogueCommand) -> Result<Changed, ControlRefusal> {
        match self.ask(ShardIndex::CATALOGUE, |origin| Command::Catalogue(origin, command)).await? {
            Answer::Done { topic, group, created } => Ok(Changed { topic, group, created }),
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    async fn change_partition(
        &self,
        shard: ShardIndex,
        partition: PartitionId,
        command: PartitionCommand,
    ) -> Result<Answer, ControlRefusal> {
        self.ask(shard, |origin| Command::Partition(origin, partition, command)).await
    }

    /// Has every partition of a topic be as the catalogue says.
    async fn open_partitions(&self, topic: TopicId) -> Result<(), ControlRefusal> {
        self.look_up(|_| ())?;
        match self.ask_to_open(topic) {
            Some(asked) => gather(asked).await.map(drop),
            None => Ok(()),
        }
    }

    /// Asks every partition of a topic to be as the catalogue says; `None` if it is gone.
    fn ask_to_open(&self, topic: TopicId) -> Option<PendingAnswers> {
        let topic = self.core.look(|core| core.catalogue().topic(topic).cloned())?;
        let open = PartitionCommand::Open {
            config: topic.config().clone(),
            groups: topic.group_settings(),
            dead_letters: topic.dead_letters(),
        };
        Some(self.ask_partitions(&topic, |_| open.clone()))
    }

    /// Tells every partition of a topic the same, all at once, and gathers their answers.
    async fn tell_partitions(
        &self,
        topic: &Topic,
        command: &PartitionCommand,
    ) -> Result<Vec<Answer>, ControlRefusal> {
        gather(self.ask_partitions(topic, |_| command.clone())).await
    }

    fn ask_partitions(
        &self,
        topic: &Topic,
        command: impl Fn(PartitionIndex) -> PartitionCommand,
    ) -> PendingAnswers {
        self.ask_partitions_that(topic, |index| Some(command(index)))
    }

    /// Asks the partitions for which there is a command.
    fn ask_partitions_that(
        &self,
        topic: &Topic,
        command: impl Fn(PartitionIndex) -> Option<PartitionCommand>,
    ) -> PendingAnswers {
        let placement = &self.core.cores.placement;
        self.core.with(|core| {
            let asked = (0..topic.config().partitions).filter_map(|index| {
                let index = PartitionIndex(index);
                let command = command(index)?;
                let (origin, answer) = core.answers.ask();
                let partition = PartitionId { topic: topic.id(), index };
                let shard = placement.shard_of(topic.created.home, index);
                core.command(shard, Command::Partition(origin, partition, command));
                Some(answer)
            });
            let asked = asked.collect();
            core.handle();
            asked
        })
    }

    /// Looks up what there is.
    ///
    /// # Errors
    /// The state of the catalogue is made anew: nothing can be said, least of all that something is not there.
    pub(crate) fn look_up<T>(
        &self,
        look: impl FnOnce(&Catalogue) -> T,
    ) -> Result<T, ControlRefusal> {
        let found = self.core.look(|core| core.whole_catalogue().map(look));
        found.ok_or_else(|| Refusal::NoLeader.into())
    }

    fn topic_named(&self, name: &TopicName) -> Result<Topic, ControlRefusal> {
        let found = self.look_up(|catalogue| catalogue.topic_named(name).cloned())?;
        found.ok_or_else(|| ControlRefusal::UnknownTopic(name.clone()))
    }
}

/// The group of this name in a topic.
fn group_named(
    topic: &Topic,
    name: &GroupName,
) -> Result<sennit_engine::CatalogueGroup, ControlRefusal> {
    topic.group(name).cloned().ok_or_else(|| ControlRefusal::UnknownGroup {
        topic: topic.created.name.clone(),
        group: name.clone(),
    })
}

/// Waits for all answers.
async fn gather(asked: PendingAnswers) -> Result<Vec<Answer>, ControlRefusal> {
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        let answer = answer.await.map_err(|_| ControlRefusal::ShuttingDown)?;
        answers.push(answer?);
    }
    Ok(answers)
}

/// The answer that a change is committed, which made no messages ready.
fn done(topic: TopicId, group: Option<GroupId>, created: bool) -> ControlAnswer {
    ControlAnswer::Done { topic, group, created, messages: 0 }
}

pub(crate) fn incarnation() -> Result<Incarnation, ControlRefusal> {
    let random = getrandom::u64().map_err(ControlRefusal::NoRandomNumbers)?;
    Ok(Incarnation(random))
}

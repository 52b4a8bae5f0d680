//! Questions of live connections to other cores, and to shards: each is a task whose answer comes to the loop of the
//! connections. It knows no connections.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use foldhash::fast::RandomState;
use sennit_centrifuge::{Data, ErrorCode, ReplyError};
use sennit_engine::{Command, Publish, Refusal};
use sennit_identity::Verb;
use sennit_model::{BatchBuilder, Message as BrokerMessage, ProducerStamp, TopicName};
use tokio::{
    sync::{Notify, oneshot},
    task::spawn_local,
};

use super::{connection_id::ConnectionId, limits::PLACES_MAX};
use crate::{
    broker::{
        control::{Control, LiveStart},
        control_request::ControlRefusal,
        stream_request::Located,
        streams::wait_for_room,
    },
    hooks::core_hooks::CoreHooks,
    identity::{
        authority::Authority,
        login::{self, Credential, LoginRefusal},
        principal::Principal,
    },
    runtime::{
        clock::now, core::CoreHandle, inbox::Message, index::CoreIndex, peer::Peer,
        shard_answers::Answer as ShardAnswer,
    },
};

/// An answer for a connection.
#[derive(Debug)]
pub(crate) enum Told {
    /// Its client is this, or is refused. With the number of its command.
    LoggedIn(u32, Result<Principal, LoginRefusal>),
    /// Its subscription may begin there.
    Begins(Beginning, Result<LiveStart, ReplyError>),
    /// The topic whose history it asks for keeps that.
    HasHistory(HistoryQuestion, Result<LiveStart, ReplyError>),
    /// It may know who is subscribed to a topic.
    HasPresence(PresenceQuestion, Result<(), ReplyError>),
    /// Its publication is on its way, or refused: what it asked behind that may be done.
    Handed,
    /// Its publication is committed, or refused.
    Published(u32, Result<(), ReplyError>),
}

/// A subscription that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) channel: Rc<str>,
    pub(crate) topic: TopicName,
    /// Where it wants to go on: the epoch and the offset of the next message.
    pub(crate) recovers: Option<(String, u64)>,
    /// Whether it is refused, if it cannot go on there.
    pub(crate) rejects_unrecovered: bool,
    /// Whether it wants to be told who comes and goes.
    pub(crate) is_told: bool,
    /// What its client says of the subscription, for others who ask who is there.
    pub(crate) data: Data,
}

/// A question for those who are subscribed.
#[derive(Clone, Debug)]
pub(crate) struct PresenceQuestion {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) topic: TopicName,
    /// Whether it is for their number only.
    pub(crate) counts_only: bool,
}

/// A question for what was published before.
#[derive(Clone, Debug)]
pub(crate) struct HistoryQuestion {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) topic: TopicName,
    /// How many publications; none if all that are kept are wanted.
    pub(crate) limit: Option<usize>,
    /// The epoch and the offset (from 1) behind which to begin, or before which if the newest come first.
    pub(crate) since: Option<(String, u64)>,
    /// Whether the newest come first.
    pub(crate) reverse: bool,
}

/// The answers that wait for the loop.
#[derive(Debug)]
pub(crate) struct Answers {
    told: RefCell<Vec<(ConnectionId, Told)>>,
    notify: Rc<Notify>,
}

impl Answers {
    /// Answers for which this bell is rung.
    pub(crate) fn new(notify: Rc<Notify>) -> Self {
        Self { told: RefCell::default(), notify }
    }

    pub(crate) fn take(&self) -> Vec<(ConnectionId, Told)> {
        self.told.take()
    }

    fn tell(&self, connection: ConnectionId, told: Told) {
        self.told.borrow_mut().push((connection, told));
        self.notify.notify_one();
    }
}

/// Asks, for connections.
#[derive(Clone, Debug)]
pub(crate) struct CoreRequests {
    core: CoreHandle,
    authority: Authority,
    answers: Rc<Answers>,
    /// Where topics are that were published to. A number is never given to another topic: one that is gone says so.
    places: Rc<RefCell<HashMap<TopicName, Located, RandomState>>>,
}

impl CoreRequests {
    pub(crate) fn new(core: CoreHandle, authority: Authority, answers: Rc<Answers>) -> Self {
        Self { core, authority, answers, places: Rc::default() }
    }

    /// Where a topic is. One that is missing is created for a principal that may create it.
    async fn place(
        &self,
        principal: &Principal,
        topic: &TopicName,
    ) -> Result<Located, ControlRefusal> {
        let known = self.places.borrow().get(topic).copied();
        if let Some(located) = known {
            return Ok(located);
        }
        let (asker, name) = (principal.clone(), topic.clone());
        let asked = self.ask_control(move |control| async move {
            control.find_or_create_live(&asker, &name).await
        });
        let located = asked.await?;
        let mut places = self.places.borrow_mut();
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(topic.clone(), located);
        Ok(located)
    }

    /// Has a client logged in.
    pub(crate) fn log_in(
        &self,
        connection: ConnectionId,
        command: u32,
        credential: Credential,
        peer: Peer,
    ) {
        let this = self.clone();
        spawn_local(async move {
            let metrics = &this.core.cores.metrics[this.core.index];
            let login = login::log_in(&this.authority, &credential, &peer, metrics, now());
            let principal = login.await;
            this.answers.tell(connection, Told::LoggedIn(command, principal));
        });
    }

    /// Asks where a subscription begins.
    pub(crate) fn begin(
        &self,
        connection: ConnectionId,
        principal: &Principal,
        beginning: Beginning,
    ) {
        let (this, principal) = (self.clone(), principal.clone());
        spawn_local(async move {
            let topic = beginning.topic.clone();
            let start = this.ask_control(move |control| async move {
                control.begin_live(&principal, &topic).await
            });
            let start = start.await.map_err(|refusal| reply_error(&refusal));
            this.answers.tell(connection, Told::Begins(beginning, start));
        });
    }

    /// Asks what a topic keeps.
    pub(crate) fn history(
        &self,
        connection: ConnectionId,
        principal: &Principal,
        question: HistoryQuestion,
    ) {
        let (this, principal) = (self.clone(), principal.clone());
        spawn_local(async move {
            let topic = question.topic.clone();
            let kept = this.ask_control(move |control| async move {
                control.locate_live(&principal, &topic).await
            });
            let kept = kept.await.map_err(|refusal| reply_error(&refusal));
            this.answers.tell(connection, Told::HasHistory(question, kept));
        });
    }

    /// Asks whether a principal may know who is subscribed to a topic.
    pub(crate) fn presence(
        &self,
        connection: ConnectionId,
        principal: &Principal,
        question: PresenceQuestion,
    ) {
        let (this, principal) = (self.clone(), principal.clone());
        spawn_local(async move {
            let topic = question.topic.clone();
            let kept = this.ask_control(move |control| async move {
                control.locate_live(&principal, &topic).await
            });
            let may = match kept.await {
                Ok(kept) if kept.keeps_presence => Ok(()),
                Ok(_) => {
                    let name = question.topic.as_str();
                    let detail =
                        format!("topic {name:?} keeps no presence: its setting `presence` is off");
                    Err(ReplyError::new(ErrorCode::NotAvailable, detail))
                }
                Err(refusal) => Err(reply_error(&refusal)),
            };
            this.answers.tell(connection, Told::HasPresence(question, may));
        });
    }

    /// Publishes. The client is told when it is committed.
    pub(crate) fn publish(
        &self,
        connection: ConnectionId,
        principal: &Principal,
        command: u32,
        topic: TopicName,
        payload: BrokerMessage,
    ) {
        let (this, principal) = (self.clone(), principal.clone());
        spawn_local(async move {
            let handed = this.hand_over(&principal, &topic, &payload).await;
            this.answers.tell(connection, Told::Handed);
            let published = match handed {
                Ok(answer) => match answer.await {
                    Ok(Ok(ShardAnswer::Published { .. })) => Ok(()),
                    Ok(Ok(_)) => Err(ControlRefusal::WrongAnswer),
                    Ok(Err(refusal)) => {
                        // The name may be another topic's by now.
                        this.places.borrow_mut().remove(&topic);
                        Err(ControlRefusal::Engine(refusal))
                    }
                    Err(_) => Err(ControlRefusal::ShuttingDown),
                },
                Err(refusal) => Err(refusal),
            };
            let published = published.map_err(|refusal| reply_error(&refusal));
            this.answers.tell(connection, Told::Published(command, published));
        });
    }

    /// Has a message on its way to its shard.
    async fn hand_over(
        &self,
        principal: &Principal,
        topic: &TopicName,
        payload: &BrokerMessage,
    ) -> Result<oneshot::Receiver<Result<ShardAnswer, Refusal>>, ControlRefusal> {
        principal.may(Verb::Publish, topic.as_str())?;
        let located = self.place(principal, topic).await?;
        if located.partitions > 1 {
            return Err(ControlRefusal::Engine(Refusal::UnknownTopic));
        }
        let mut builder = BatchBuilder::new();
        let pushed = builder.push(payload);
        let batch = pushed.ok().and_then(|()| builder.take()).ok_or(ControlRefusal::WrongAnswer)?;
        let batch = match self
            .core
            .services
            .find::<CoreHooks>()
            .and_then(|hooks| Some((hooks.find(located.topic)?, hooks)))
        {
            Some((hook, hooks)) => hooks
                .on_publish(&hook, &self.core, 0, batch)
                .await
                .map_err(|refusal| ControlRefusal::HookRefused(refusal.to_string()))?,
            None => batch,
        };
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let bytes = batch.bytes().len() as u64;
        principal.take((batch.count().into(), bytes))?;
        wait_for_room(&self.core, shard, bytes).await.map_err(|_| ControlRefusal::ShuttingDown)?;
        // It may have waited, and the right been taken meanwhile.
        principal.may(Verb::Publish, topic.as_str())?;
        if self.core.look(|core| core.is_draining()) {
            return Err(ControlRefusal::ShuttingDown);
        }
        Ok(self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            let producer = ProducerStamp::default();
            core.command(shard, Command::Publish(Publish { origin, partition, producer, batch }));
            answer
        }))
    }

    /// Asks the first core.
    async fn ask_control<T: Send + 'static, F>(
        &self,
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
        let _ = self.core.cores.inboxes[CoreIndex::FIRST].send(call);
        answer.await.map_err(|_| ControlRefusal::ShuttingDown)?
    }
}

/// The error by which a client of the protocol is told of a refusal.
pub(crate) fn reply_error(refusal: &ControlRefusal) -> ReplyError {
    let code = match refusal {
        ControlRefusal::Missing(_) | ControlRefusal::Reserved => ErrorCode::PermissionDenied,
        ControlRefusal::UnknownTopic(_) => ErrorCode::UnknownChannel,
        ControlRefusal::OverQuota(_) => ErrorCode::TooManyRequests,
        ControlRefusal::HookRefused(_) => ErrorCode::PermissionDenied,
        refusal if refusal.is_retryable() => ErrorCode::Internal,
        ControlRefusal::Engine(_) => ErrorCode::BadRequest,
        _ => ErrorCode::Internal,
    };
    let mut error = ReplyError::new(code, refusal.to_string());
    error.temporary = refusal.is_retryable();
    error
}

//! Questions of live connections to other cores, and to shards: each is a task whose answer comes to the loop of the
//! connections. It knows no connections.

mod application;

use std::{cell::RefCell, rc::Rc};

use sennit_centrifuge::{Answer as ClientAnswer, ClientInfo, Data, ErrorCode, ReplyError, Token};
use sennit_model::{Message as BrokerMessage, TopicName};
use tokio::{sync::Notify, task::spawn_local};

pub(crate) use self::application::{KeptIn, LetIn};
use super::{
    backend::{Backend, CommandRefusal, Question},
    connection_id::ConnectionId,
    format::Format,
    group_channel::{GroupChannel, verbs},
    pending_subscriptions::PendingSubscriptions,
    published::headers,
    relay::{Interest, Subject},
};
use crate::{
    broker::{
        control::{Control, LiveStart, ask_control},
        control_request::{ConsumerStart, ControlRefusal},
    },
    hooks::topic_publisher::{Destination, TopicPublisher},
    identity::{
        authority::Authority,
        login::{self, Credential, LoginRefusal},
        principal::Principal,
    },
    runtime::{clock::now, core::CoreHandle, peer::Peer},
};

/// An answer for a connection.
#[derive(Debug)]
pub(crate) enum Told {
    /// Its client is this, or is refused. With the number of its command.
    LoggedIn(u32, Result<Principal, LoginRefusal>),
    /// The application says who its client is, or refuses it. With the number of its command.
    LetIn(u32, Result<LetIn, CommandRefusal>),
    /// The application says whether it may stay, or does not say it.
    KeptIn(Result<KeptIn, CommandRefusal>),
    /// Its subscription may begin there.
    Begins(Beginning, Result<SubscriptionStart, CommandRefusal>),
    /// The credentials for a subscription that it has: of the principal, or refused.
    Refreshes(SubscriptionRefresh, Result<Principal, ReplyError>),
    /// The topic whose history it asks for keeps that.
    HasHistory(HistoryQuestion, Result<LiveStart, ReplyError>),
    /// It may know who is subscribed to a topic.
    HasPresence(PresenceQuestion, Result<(), ReplyError>),
    /// Its publication is on its way, or refused: what it asked behind that may be done.
    Handed,
    /// Its publication is committed, its call is answered, or either is refused.
    Done(u32, Result<ClientAnswer, CommandRefusal>),
}

/// A connection that asks for something.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// On whose behalf it asks.
    pub(crate) principal: Principal,
    /// As others see it.
    pub(crate) info: ClientInfo,
    pub(crate) format: Format,
}

impl Asker {
    /// What the application is told of it.
    fn question(&self) -> Question<'_> {
        let (protocol, encoding) = self.format.dialect.names();
        let transport = self.format.carrier.name();
        let (client, user) = (&*self.info.client, &*self.info.user);
        Question { client, user, transport, protocol, encoding, ..Question::default() }
    }
}

/// A token for a subscription alone, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct ShownToken {
    pub(crate) text: Token,
    pub(crate) peer: Peer,
}

/// A subscription that is to go on with another token.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionRefresh {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) channel: String,
}

/// Where a subscription begins.
#[derive(Clone, Debug)]
pub(crate) enum SubscriptionStart {
    /// In a topic.
    Topic(LiveStart),
    /// In a group, from what nobody in it has yet.
    Group(ConsumerStart),
}

/// A subscription that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) channel: Rc<str>,
    pub(crate) topic: TopicName,
    /// How it takes part in a group, if the channel is one.
    pub(crate) group: Option<GroupChannel>,
    /// Where it wants to go on: the epoch and the offset of the next message.
    pub(crate) recovers: Option<(String, u64)>,
    /// Whether it is refused, if it cannot go on there.
    pub(crate) rejects_unrecovered: bool,
    /// Whether it wants to be told who comes and goes.
    pub(crate) is_told: bool,
    /// What its client says of the subscription, or the application, for others who ask who is there.
    pub(crate) data: Data,
    /// The token for this subscription alone, if its client has shown one.
    pub(crate) token: Option<ShownToken>,
    /// On whose behalf it is, where that is not the connection's.
    pub(crate) principal: Option<Principal>,
    /// For the client, from the application.
    pub(crate) answer: Data,
    pub(crate) cause: Cause,
    /// That in what other brokers publish, if they send it.
    pub(crate) interest: Option<Rc<Interest>>,
}

impl Beginning {
    /// Checks that it may be on this principal's behalf.
    pub(crate) fn check_rights(&self, principal: &Principal) -> Result<(), ReplyError> {
        for verb in verbs(self.group.as_ref()) {
            let may = principal.may(*verb, self.topic.as_str());
            may.map_err(|missing| {
                ReplyError::new(ErrorCode::PermissionDenied, missing.to_string())
            })?;
        }
        Ok(())
    }
}

/// Why a subscription begins.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// Its client has asked for it.
    Client,
    /// The token of its client names it.
    Token,
    /// A program wants it.
    Program(Rc<PendingSubscriptions>),
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
    backend: Option<Rc<Backend>>,
    /// Whether other brokers send messages of topics.
    has_relay: bool,
    publisher: Rc<TopicPublisher>,
}

impl CoreRequests {
    pub(crate) fn new(
        core: CoreHandle,
        authority: Authority,
        answers: Rc<Answers>,
        backend: Option<Backend>,
        has_relay: bool,
    ) -> Self {
        let (backend, publisher) = (backend.map(Rc::new), TopicPublisher::of_core(&core));
        Self { core, authority, answers, backend, has_relay, publisher }
    }

    /// The application that may be asked.
    pub(crate) fn backend(&self) -> Option<&Backend> {
        self.backend.as_deref()
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
    pub(crate) fn begin(&self, connection: ConnectionId, asker: Asker, mut beginning: Beginning) {
        let this = self.clone();
        spawn_local(async move {
            let start = this.try_begin(&asker, &mut beginning).await;
            this.answers.tell(connection, Told::Begins(beginning, start));
        });
    }

    async fn try_begin(
        &self,
        asker: &Asker,
        beginning: &mut Beginning,
    ) -> Result<SubscriptionStart, CommandRefusal> {
        let mut principal = asker.principal.clone();
        if let Some(token) = &beginning.token {
            principal = self.holder_of(token, &asker.info.user).await?;
            beginning.principal = Some(principal.clone());
        }
        let topic = beginning.topic.clone();
        beginning.check_rights(&principal)?;
        let about = (&topic, &*beginning.channel);
        let granted = self.ask_application("subscribe", asker, about, &beginning.data).await?;
        if let Some(granted) = granted {
            beginning.data = granted.info().unwrap_or_else(|| beginning.data.clone());
            beginning.answer = granted.data().unwrap_or_default();
        }
        let (asks, name) = (principal.clone(), topic.clone());
        if let Some(GroupChannel { group, .. }) = beginning.group.clone() {
            let start = self.ask_control(move |control| async move {
                control.begin_live_consumer(&asks, name, group).await
            });
            let start = start.await.map_err(|refusal| reply_error(&refusal))?;
            return Ok(SubscriptionStart::Group(start));
        }
        let start =
            self.ask_control(move |control| async move { control.begin_live(&asks, &name).await });
        let start = start.await.map_err(|refusal| reply_error(&refusal))?;
        beginning.interest = self.follow_elsewhere(Subject::Topic(topic.clone())).await;
        if beginning.interest.is_none() {
            return Ok(SubscriptionStart::Topic(start));
        }
        // What others have published meanwhile is before it.
        let start = self.ask_control(move |control| async move {
            control.locate_live(&principal, &topic).await
        });
        let start = start.await.map_err(|refusal| reply_error(&refusal))?;
        Ok(SubscriptionStart::Topic(start))
    }

    /// The principal of a token that is for a subscription of this user.
    async fn holder_of(&self, token: &ShownToken, user: &str) -> Result<Principal, ReplyError> {
        let metrics = &self.core.cores.metrics[self.core.index];
        let credential = Credential::Key(token.text.as_str().to_owned());
        let login = login::log_in(&self.authority, &credential, &token.peer, metrics, now());
        let principal = login.await.map_err(|refusal| match refusal {
            LoginRefusal::Expired => ReplyError::new(ErrorCode::TokenExpired, refusal.to_string()),
            LoginRefusal::NotReady => {
                let mut error = ReplyError::new(ErrorCode::Internal, refusal.to_string());
                error.temporary = true;
                error
            }
            _ => ReplyError::new(ErrorCode::PermissionDenied, refusal.to_string()),
        })?;
        if !user.is_empty() && principal.is_known() && principal.user_name() != user {
            let detail = "the token of the subscription is of another user than the connection";
            return Err(ReplyError::new(ErrorCode::PermissionDenied, detail));
        }
        Ok(principal)
    }

    /// Asks whose the new token of a subscription is.
    pub(crate) fn refresh(
        &self,
        connection: ConnectionId,
        user: String,
        refresh: SubscriptionRefresh,
        token: ShownToken,
    ) {
        let this = self.clone();
        spawn_local(async move {
            let holder = this.holder_of(&token, &user).await;
            this.answers.tell(connection, Told::Refreshes(refresh, holder));
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
                Ok(kept) if kept.live.presence => Ok(()),
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
        asker: Asker,
        command: u32,
        (topic, channel): (TopicName, String),
        data: Data,
    ) {
        let this = self.clone();
        spawn_local(async move {
            let granted = this.ask_application("publish", &asker, (&topic, &channel), &data).await;
            let data = match granted {
                Ok(granted) => granted.and_then(|granted| granted.data()).unwrap_or(data),
                Err(refusal) => {
                    this.answers.tell(connection, Told::Handed);
                    return this.answers.tell(connection, Told::Done(command, Err(refusal)));
                }
            };
            let headers = headers(&asker.info);
            let message = BrokerMessage { headers, ..BrokerMessage::new(data.into_payload()) };
            let publisher = &this.publisher;
            let principal = &asker.principal;
            let handed =
                publisher.hand_over(principal, &topic, Destination::Channel, &message).await;
            this.answers.tell(connection, Told::Handed);
            let published = match handed {
                Ok(handed) => match publisher.committed(&topic, handed).await {
                    // Its place was remembered: the name may be another topic's by now.
                    Err(ControlRefusal::UnknownTopic(_)) => {
                        publisher.publish(principal, &topic, Destination::Channel, &message).await
                    }
                    outcome => outcome,
                },
                Err(refusal) => Err(refusal),
            };
            let published = published.map(|_| ClientAnswer::Publish);
            let published = published.map_err(|refusal| reply_error(&refusal).into());
            this.answers.tell(connection, Told::Done(command, published));
        });
    }

    /// Has messages come that are published at other brokers.
    pub(crate) async fn follow_elsewhere(&self, subject: Subject) -> Option<Rc<Interest>> {
        if !self.has_relay {
            return None;
        }
        Interest::in_subject(self.core.cores.clone(), subject).await.map(Rc::new)
    }

    /// Asks the first core.
    async fn ask_control<T: Send + 'static, F>(
        &self,
        ask: impl FnOnce(Rc<Control>) -> F + Send + 'static,
    ) -> Result<T, ControlRefusal>
    where
        F: Future<Output = Result<T, ControlRefusal>> + 'static,
    {
        ask_control(&self.core.cores, ask).await
    }
}

/// The error by which a client of the protocol is told of a refusal.
pub(crate) fn reply_error(refusal: &ControlRefusal) -> ReplyError {
    let code = match refusal {
        ControlRefusal::Missing(_) | ControlRefusal::Reserved => ErrorCode::PermissionDenied,
        ControlRefusal::UnknownTopic(_) => ErrorCode::UnknownChannel,
        ControlRefusal::OverQuota(_) => ErrorCode::TooManyRequests,
        ControlRefusal::HookRefused(_) => ErrorCode::PermissionDenied,
        ControlRefusal::Batch(_) | ControlRefusal::TooManyWatched(_) => ErrorCode::LimitExceeded,
        ControlRefusal::NoChannel { .. } => ErrorCode::BadRequest,
        refusal if refusal.is_retryable() => ErrorCode::Internal,
        ControlRefusal::Engine(_) => ErrorCode::BadRequest,
        _ => ErrorCode::Internal,
    };
    let mut error = ReplyError::new(code, refusal.to_string());
    error.temporary = refusal.is_retryable();
    error
}

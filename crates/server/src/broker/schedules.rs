//! Recurring schedules: at each tick a message is published, on the first core, in a cluster on the node that leads the catalogue. For each
//! tick there is exactly one message: it is published under a producer of the schedule with an epoch of the tick, so that a broker that
//! dies between the publish and the note of it finds, when it publishes the tick again, that this is done; so does another node.
//!
//! In reading order: a `request` is a schedule's settings or a change of it, which any node takes, and whose rights it checks; it becomes
//! what is `asked` of the `led` schedules, as a `message` if another node leads. `cron` says when a schedule that is `held` ticks, `plan`
//! which `ticks` are due, `publishing` publishes them; the `store` keeps what is `kept`.

pub(crate) mod cron;
mod held;
mod kept;
mod led;
mod message;
mod plan;
mod publishing;
mod request;
mod state;
mod store;
mod ticks;

use std::{future::ready, pin::Pin, rc::Rc};

use bytes::Bytes;
use sennit_engine::Refusal;
use sennit_identity::Verb;
use sennit_model::{Offset, ScheduleName, TopicId, TopicName};
use tokio::{sync::oneshot, task::spawn_local};

use self::{
    held::check_config,
    led::{Asked, LedSchedules, Outcome},
    publishing::Publishing,
};
pub(crate) use self::{
    kept::header_kind,
    request::{
        ScheduleAnswer, ScheduleChange, ScheduleConfig, ScheduleRefusal, ScheduleRequest,
        ToldSchedule,
    },
};
use super::{
    audit,
    control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer, Unanswered},
    control_request::ControlRefusal,
    publish_hook::PublishHook,
    topic_listener::TopicListener,
    where_led::WhereLed,
};
use crate::{
    identity::{
        authority::Authority,
        principal::{MissingRight, Principal},
    },
    runtime::{
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
        own_topic::OwnStream,
    },
};

type Answer = Result<ScheduleAnswer, ScheduleRefusal>;

/// The schedules as the first core of any node sees them.
#[derive(Debug)]
pub(crate) struct Schedules {
    core: CoreHandle,
    /// The name of the stream that they are kept in.
    stream: TopicName,
    publishing: Rc<Publishing>,
    led: Rc<WhereLed<LedSchedules>>,
}

/// Asks the first core, on behalf of a principal. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    principal: Principal,
    request: ScheduleRequest,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    let _ = cores.inboxes[CoreIndex::FIRST].send(Message::call(move |held: &Rc<Schedules>| {
        let schedules = held.clone();
        spawn_local(async move {
            let changes = match &request {
                ScheduleRequest::Change(name, _) => Some(name.to_string()),
                ScheduleRequest::Get(_) | ScheduleRequest::List { .. } => None,
            };
            let cores = schedules.core.cores.clone();
            let answer = schedules.answer(&principal, request).await;
            if let Some(name) = changes {
                audit::note(&cores, &principal, "schedule change", name, &answer);
            }
            let _ = sender.send(answer);
        });
    }));
    answer
}

impl TopicListener for Schedules {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            self.note_stream();
            let (core, stream) = (self.core.clone(), self.stream.clone());
            let (publishing, peers) = (self.publishing.clone(), self.led.peers().cloned());
            let load = async move || {
                LedSchedules::load(&core, &stream, publishing.clone(), peers.clone()).await
            };
            if let Err(failure) = self.led.begin(load).await {
                tracing::error!(%failure, "the schedules cannot be read: none of them ticks");
            }
        })
    }

    fn is_where_led(&self) -> bool {
        true
    }

    fn rests(self: Rc<Self>) {
        self.led.rest();
    }

    fn appeared(self: Rc<Self>, stream: &TopicName, topic: TopicId, _from: Offset) {
        if *stream == self.stream {
            self.core.cores.own_topic.set(OwnStream::Schedules, topic);
            if let Some(led) = self.led.part() {
                led.stream().appeared();
            }
        }
    }

    fn gone(self: Rc<Self>, _stream: &TopicName, _topic: TopicId) {}
}

impl PeerRequests for Schedules {
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer {
        let asked = match message::decode_asked(&body) {
            Ok(asked) => asked,
            Err(error) => {
                tracing::warn!(%error, "what another node asks of schedules cannot be read");
                let refused = Outcome::Refused(ControlRefusal::WrongAnswer.into());
                return Box::pin(ready(message::encode_outcome(Some(&refused))));
            }
        };
        let led = self.led.asked();
        Box::pin(async move {
            let outcome = match led {
                Some(led) => Some(led.answer(asked).await),
                None => None,
            };
            message::encode_outcome(outcome.as_ref())
        })
    }
}

impl Schedules {
    /// None yet: they are read when the broker starts, or begins to lead.
    pub(crate) fn new(
        core: CoreHandle,
        authority: Authority,
        hook: Rc<dyn PublishHook>,
        peers: Option<Rc<ControlPeers>>,
    ) -> Rc<Self> {
        let stream = store::STREAM.parse().expect("the name of the broker's own stream is one");
        let publishing = Rc::new(Publishing::new(core.clone(), authority, hook));
        Rc::new(Self { core, stream, publishing, led: WhereLed::new(peers) })
    }

    fn note_stream(&self) {
        let topic = self
            .core
            .look(|core| core.catalogue().topic_named(&self.stream).map(|topic| topic.id()));
        if let Some(topic) = topic {
            self.core.cores.own_topic.set(OwnStream::Schedules, topic);
        }
    }

    async fn answer(self: Rc<Self>, principal: &Principal, request: ScheduleRequest) -> Answer {
        match request {
            ScheduleRequest::Get(name) => self.get(principal, name).await,
            ScheduleRequest::List { after, most } => self.list(principal, after, most).await,
            ScheduleRequest::Change(name, change) => self.change(principal, name, change).await,
        }
    }

    async fn get(&self, principal: &Principal, name: ScheduleName) -> Answer {
        let answer = self.ask_led(Asked::Get(name.clone())).await.done();
        let topics = match &answer {
            Ok(ScheduleAnswer::Page { schedules, .. }) => {
                schedules.iter().map(|told| told.config.topic.clone()).collect()
            }
            _ => Vec::new(),
        };
        tells_of(principal, Verb::Describe, &name, &topics, answer)
    }

    /// Schedules that the principal may know of.
    async fn list(&self, principal: &Principal, mut after: String, most: usize) -> Answer {
        let mut told: Vec<ToldSchedule> = Vec::new();
        loop {
            let page = self.ask_led(Asked::List { after, most }).await.done()?;
            let ScheduleAnswer::Page { schedules, more: follow } = page else {
                return Err(ControlRefusal::WrongAnswer.into());
            };
            let next = schedules.last().map(|last| last.name.to_string());
            let may_tell = |told: &ToldSchedule| {
                principal.may(Verb::Describe, told.config.topic.as_str()).is_ok()
            };
            told.extend(schedules.into_iter().filter(may_tell));
            let more = told.len() > most;
            match next.filter(|_| follow && !more) {
                Some(next) => after = next,
                None => {
                    told.truncate(most);
                    return Ok(ScheduleAnswer::Page { schedules: told, more });
                }
            }
        }
    }

    /// Changes a schedule, if the principal may do so to its topic, and to the one that it is to have.
    async fn change(
        &self,
        principal: &Principal,
        name: ScheduleName,
        change: ScheduleChange,
    ) -> Answer {
        let mut of = None;
        if let ScheduleChange::Create(config) = &change {
            may(principal, Verb::Publish, &name, config.topic.as_str())?;
            if self.led.peers().is_some() {
                check_config(&name, config)?;
            }
            of = Some(config.topic.clone());
        }
        let creates = of.is_some();
        loop {
            let (name, change) = (name.clone(), change.clone());
            let asked = Asked::Change { name: name.clone(), change, of: of.clone() };
            match self.ask_led(asked).await {
                Outcome::IsOf(topic) => {
                    may(principal, Verb::Publish, &name, topic.as_str())?;
                    of = Some(topic);
                }
                Outcome::Refused(unknown @ ScheduleRefusal::Unknown(_)) if !creates => {
                    return tells_of(principal, Verb::Publish, &name, &[], Err(unknown));
                }
                outcome => return outcome.done(),
            }
        }
    }

    /// Asks the schedules where they are led.
    async fn ask_led(&self, asked: Asked) -> Outcome {
        let no_leader = || ControlRefusal::from(Refusal::NoLeader).into();
        let Some(peers) = self.led.peers() else {
            return match self.led.asked() {
                Some(led) => led.answer(asked).await,
                None => Outcome::Refused(ScheduleRefusal::Unreadable),
            };
        };
        let body = message::encode_asked(&asked);
        let here = async || {
            let outcome = self.led.asked()?.answer(asked.clone()).await;
            (!outcome.is_without_leader()).then_some(outcome)
        };
        let there = async |node| self.ask_node(peers, node, &asked, body.clone()).await;
        let outcome = Box::pin(peers.where_led(here, there)).await;
        outcome.unwrap_or_else(|| Outcome::Refused(no_leader()))
    }

    /// Asks another node; nothing if nothing was done because it does not lead.
    async fn ask_node(
        &self,
        peers: &ControlPeers,
        node: u16,
        asked: &Asked,
        body: Bytes,
    ) -> Option<Outcome> {
        let unknown = || Outcome::Refused(ControlRefusal::from(Refusal::OutcomeUnknown).into());
        let answer = match peers.ask(node, PeerTopic::Schedules, body).await {
            Ok(answer) => answer,
            // A question can be asked again.
            Err(Unanswered::Lost) if matches!(asked, Asked::Change { .. }) => {
                return Some(unknown());
            }
            Err(Unanswered::NotSent | Unanswered::Lost) => return None,
        };
        match message::decode_outcome(&answer) {
            Ok(outcome) => outcome.filter(|outcome| !outcome.is_without_leader()),
            Err(error) => {
                tracing::warn!(node, %error, "what another node says of schedules cannot be read");
                Some(unknown())
            }
        }
    }
}

impl Outcome {
    fn done(self) -> Answer {
        match self {
            Self::Done(answer) => Ok(answer),
            Self::Refused(refusal) => Err(refusal),
            Self::IsOf(_) => Err(ControlRefusal::WrongAnswer.into()),
        }
    }

    fn is_without_leader(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_without_leader())
    }
}

/// Checks that the principal may do this to a topic of a schedule.
fn may(
    principal: &Principal,
    verb: Verb,
    name: &ScheduleName,
    topic: &str,
) -> Result<(), ScheduleRefusal> {
    principal.may(verb, topic).map_err(|_| {
        let name = format!("the topic of the schedule {name}");
        ControlRefusal::from(MissingRight { verb, name }).into()
    })
}

/// An answer about a schedule of these topics, if the principal may do this to them. Of a schedule that is not there only those hear who
/// may do it to every topic.
fn tells_of(
    principal: &Principal,
    verb: Verb,
    name: &ScheduleName,
    topics: &[TopicName],
    answer: Answer,
) -> Answer {
    if matches!(answer, Err(ScheduleRefusal::Unknown(_))) {
        may(principal, verb, name, ">")?;
    }
    topics.iter().try_for_each(|topic| may(principal, verb, name, topic.as_str()))?;
    answer
}

//! Subscriptions: whoever is to work on streams is woken when there is something, and says up to where
//! it is done. They live on the first core, in a cluster on the node that leads the catalogue, and are kept in a stream of the
//! broker's own.
//!
//! In reading order: a `subscription` is a state machine of `phase`s, changed by `change`s; the `registry` has all of
//! them and knows which are linked to which stream, the `pattern_index` which may be; the `store` keeps changes. The `led`
//! subscriptions are those of the node that leads: a `stream_follower` finds out where a stream ends, a `driver` works for each
//! subscription: it calls a `webhook` (where the `url_guard` lets it), signed with the broker's `own_keys`, or writes a wake into a
//! stream. A `request` comes from outside, becomes a `message` if another node leads, and is answered by `requests`; `tokens` show
//! who may, and `view` is what they see.

mod change;
mod driver;
mod keys;
mod led;
mod message;
mod name_lookup;
mod own_keys;
mod pattern_index;
mod phase;
mod registry;
pub(crate) mod request;
mod requests;
mod store;
mod stream_follower;
mod subscription;
mod tokens;
mod url_guard;
mod view;
mod webhook;

use std::{future::ready, path::PathBuf, pin::Pin, rc::Rc};

use bytes::Bytes;
use sennit_identity::Verb;
use sennit_model::{Offset, TopicId, TopicName};

use self::{
    led::LedSubscriptions,
    message::Outcome,
    own_keys::OwnKeys,
    request::{SubscriptionAnswer, SubscriptionRefusal, SubscriptionRequest},
    requests::of_keys,
    webhook::Caller,
};
use crate::{
    broker::{
        audit,
        control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer, Unanswered},
        topic_listener::TopicListener,
        where_led::WhereLed,
    },
    identity::principal::Principal,
    runtime::{core::CoreHandle, own_topic::OwnStream},
};

/// Subscriptions as the first core of any node sees them.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    core: CoreHandle,
    /// The name of the stream that they are kept in.
    stream: TopicName,
    caller: Rc<Caller>,
    keys: Rc<OwnKeys>,
    led: Rc<WhereLed<LedSubscriptions>>,
}

impl TopicListener for Subscriptions {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let topic = self
                .core
                .look(|core| core.catalogue().topic_named(&self.stream).map(|topic| topic.id()));
            if let Some(topic) = topic {
                self.core.cores.own_topic.set(OwnStream::Subscriptions, topic);
            }
            let (core, stream) = (self.core.clone(), self.stream.clone());
            let (caller, keys) = (self.caller.clone(), self.keys.clone());
            let peers = self.led.peers().cloned();
            let load = async move || {
                let has = (caller.clone(), keys.clone());
                LedSubscriptions::load(&core, &stream, has, peers.clone()).await
            };
            if let Err(failure) = self.led.begin(load).await {
                tracing::error!(%failure, "what was kept of subscriptions cannot be read: there are none");
            }
        })
    }

    fn is_where_led(&self) -> bool {
        true
    }

    fn rests(self: Rc<Self>) {
        self.led.rest();
    }

    fn appeared(self: Rc<Self>, stream: &TopicName, topic: TopicId, from: Offset) {
        let led = self.led.part();
        if *stream == self.stream {
            self.core.cores.own_topic.set(OwnStream::Subscriptions, topic);
            led.iter().for_each(|led| led.stream().appeared());
        }
        if let Some(led) = led {
            led.appeared(stream, topic, from);
        }
    }

    fn gone(self: Rc<Self>, stream: &TopicName, topic: TopicId) {
        if let Some(led) = self.led.part() {
            led.gone(stream, topic);
        }
    }
}

impl PeerRequests for Subscriptions {
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer {
        let asked = match message::decode_asked(&body) {
            Ok(asked) => asked,
            Err(error) => {
                tracing::warn!(%error, "what another node asks of subscriptions cannot be read");
                let refused = SubscriptionRefusal::Unavailable("it cannot read that".into());
                return Box::pin(ready(message::encode_outcome(Some(Err(refused)))));
            }
        };
        let led = self.led.asked();
        Box::pin(async move {
            let outcome = match led {
                Some(led) => Some(led.answer(asked).await),
                None => None,
            };
            message::encode_outcome(outcome)
        })
    }
}

impl Subscriptions {
    /// None yet. Where `allows_loopback`, webhooks of this machine are called.
    pub(crate) fn new(
        core: CoreHandle,
        directory: PathBuf,
        allows_loopback: bool,
        peers: Option<Rc<ControlPeers>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            core,
            stream: store::STREAM.parse().expect("the name of the broker's own stream is one"),
            caller: Rc::new(Caller::new(allows_loopback)),
            keys: Rc::new(OwnKeys::new(directory, peers.is_none())),
            led: WhereLed::new(peers),
        })
    }

    /// Says whether webhooks of this machine are called from now on.
    pub(crate) fn allow_loopback(&self, allows: bool) {
        self.caller.allows_loopback.set(allows);
    }

    /// Does what a principal asks.
    pub(crate) async fn answer(
        self: Rc<Self>,
        principal: &Principal,
        asked: SubscriptionRequest,
    ) -> Outcome {
        let (act, id) = match &asked {
            SubscriptionRequest::Create(new) => ("subscription create", new.id.to_string()),
            SubscriptionRequest::Delete(id) => ("subscription delete", id.to_string()),
            SubscriptionRequest::Link(id, _) => ("subscription link", id.to_string()),
            SubscriptionRequest::Unlink(id, _) => ("subscription unlink", id.to_string()),
            SubscriptionRequest::Get(_)
            | SubscriptionRequest::List
            | SubscriptionRequest::Claim(..)
            | SubscriptionRequest::Ack(_)
            | SubscriptionRequest::Release(_)
            | SubscriptionRequest::Keys => return self.carry_out(principal, asked).await,
        };
        let answer = self.carry_out(principal, asked).await;
        audit::note(&self.core.cores, principal, act, id, &answer);
        answer
    }

    async fn carry_out(&self, principal: &Principal, asked: SubscriptionRequest) -> Outcome {
        match &asked {
            // The token of the wake counts, and the keys are public.
            SubscriptionRequest::Ack(_)
            | SubscriptionRequest::Release(_)
            | SubscriptionRequest::Keys => {}
            SubscriptionRequest::Create(_)
            | SubscriptionRequest::Get(_)
            | SubscriptionRequest::List
            | SubscriptionRequest::Delete(_)
            | SubscriptionRequest::Link(..)
            | SubscriptionRequest::Unlink(..)
            | SubscriptionRequest::Claim(..) => principal.may(Verb::Webhook, "")?,
        }
        let Some(peers) = self.led.peers() else {
            let led = self.led.asked().ok_or_else(|| {
                SubscriptionRefusal::Unavailable("what was kept cannot be read, see its log".into())
            })?;
            return led.answer(asked).await;
        };
        if asked == SubscriptionRequest::Keys {
            return Ok(SubscriptionAnswer::Keys(self.keys.get().map_err(of_keys)?.public()));
        }
        let body = message::encode_asked(&asked);
        let here = async || Some(self.led.asked()?.answer(asked.clone()).await);
        let there = async |node| ask_node(peers, node, &asked, body.clone()).await;
        Box::pin(peers.where_led(here, there)).await.unwrap_or_else(|| {
            Err(SubscriptionRefusal::Unavailable("no node leads the catalogue now".into()))
        })
    }
}

/// Asks another node; nothing if nothing was done because it does not lead.
async fn ask_node(
    peers: &ControlPeers,
    node: u16,
    asked: &SubscriptionRequest,
    body: Bytes,
) -> Option<Outcome> {
    let unknown = || Some(Err(SubscriptionRefusal::Unavailable("its outcome is not known".into())));
    let answer = match peers.ask(node, PeerTopic::Subscriptions, body).await {
        Ok(answer) => answer,
        Err(Unanswered::NotSent) => return None,
        Err(Unanswered::Lost) => {
            // A question can be asked again.
            let is_question =
                matches!(asked, SubscriptionRequest::Get(_) | SubscriptionRequest::List);
            return if is_question { None } else { unknown() };
        }
    };
    match message::decode_outcome(&answer) {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::warn!(node, %error, "what another node says of subscriptions cannot be read");
            unknown()
        }
    }
}

//! Works for one subscription: wakes it when there is something, tells whoever does the work, and ends
//! leases whose time is over. One task for each. What others are told was durable before.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_engine::{Content, Refusal, StreamAppend, StreamNote, StreamRefusal};
use sennit_model::{BatchBuilder, Message, TopicName};
use serde_json::json;
use tokio::{select, sync::Notify, time::sleep};

use super::request::Way;
use super::{
    Subscriptions,
    change::{Change, Link, Moved, What},
    keys::Keys,
    subscription::{Due, Subscription, Told},
    tokens::Token,
    view,
    webhook::WebhookAnswer,
};
use crate::{
    broker::{
        control_request::ControlRefusal, stream_offset::Identified, stream_request::StreamFailure,
        streams::wrong_answer,
    },
    identity::principal::Principal,
    runtime::clock::{self, now},
};

/// The clock may be set: nobody sleeps longer without looking at it.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// How long after the broker could not do something it is tried again.
const REST: Duration = Duration::from_secs(1);

impl Subscriptions {
    /// Works for a subscription as long as there is one of this life.
    pub(super) async fn drive(self: Rc<Self>, id: Box<str>, life: u64) {
        loop {
            let (due, notify) = match self.registry.borrow().get(&id) {
                Some(member) if member.life == life => {
                    (member.subscription.due(now()), member.notify.clone())
                }
                _ => return,
            };
            match due {
                Due::Nothing => notify.notified().await,
                Due::At(at) => {
                    let left = Duration::from_millis(at.0.saturating_sub(now().0));
                    select! {
                        () = sleep(left.min(SLEEP_MAX)) => {}
                        () = notify.notified() => {}
                    }
                }
                Due::Wake => match super::wake_name() {
                    Ok(wake) => {
                        let decide = |it: &Subscription| it.wake(now(), wake);
                        self.advance(&id, life, decide).await;
                    }
                    Err(error) => {
                        tracing::error!(%error, "there are no random numbers");
                        sleep(REST).await;
                    }
                },
                Due::Tell => self.tell(&id, life, &notify).await,
            }
        }
    }

    /// Applies what is decided for the subscription of this life, and waits until it is durable.
    async fn advance(
        self: &Rc<Self>,
        id: &str,
        life: u64,
        decide: impl FnOnce(&Subscription) -> Option<Moved>,
    ) {
        let moved = match self.registry.borrow().get(id) {
            Some(member) if member.life == life => decide(&member.subscription),
            _ => None,
        };
        if let Some(moved) = moved {
            self.registry.borrow_mut().apply(id, &moved);
            let durable = self.keep(&[Change { id: id.into(), what: What::Moved(moved) }]);
            let _ = durable.await;
        }
    }

    /// Tells whoever does the work that there is some.
    async fn tell(self: &Rc<Self>, id: &str, life: u64, notify: &Notify) {
        let (way, wake, snapshot) = match self.registry.borrow().get(id) {
            Some(member) => {
                let it = &member.subscription;
                let Some(wake) = it.phase().wake() else { return };
                let links: Vec<(TopicName, Link)> =
                    it.links().iter().map(|(stream, link)| (stream.clone(), *link)).collect();
                (it.config.way.clone(), Box::<str>::from(wake), links)
            }
            None => return,
        };
        let chance = getrandom::u64().unwrap_or_default();
        let told = match &way {
            Way::PullWake(stream) => {
                let topic = self.topic(stream);
                let announced = self.announce(id, stream).await;
                if let Err(failure) = &announced {
                    tracing::warn!(id, %stream, %failure, "a wake was not written");
                }
                // What never takes a wake, and a name that no stream has, are not asked again. Whoever works
                // may claim all the same, and is told when another stream has the name, or one at all.
                let is_never = |failure: &StreamFailure| {
                    takes_no_wakes(failure, topic.is_some()) && topic == self.topic(stream)
                };
                if announced.as_ref().err().is_none_or(is_never) {
                    if announced.is_err() {
                        self.core.cores.metrics[self.core.index].subscription_wakes_failed.add(1);
                    }
                    if let Some(member) = self.registry.borrow_mut().get_mut(id) {
                        member.subscription.told(&wake);
                    }
                    return;
                }
                Told::Failed(chance)
            }
            Way::Webhook(url) => {
                let Ok(_turn) = self.webhooks.acquire().await else { return };
                let called = self.call(url, id, &wake);
                let is_over = self.is_over(id, &wake, notify);
                let called = select! {
                    called = called => called,
                    // It was called back already, or is not wanted any more.
                    () = is_over => return,
                };
                match called {
                    Ok(WebhookAnswer::Done) => Told::Done(snapshot),
                    Ok(WebhookAnswer::Taken) => Told::Taken,
                    Err(reason) => {
                        tracing::info!(id, reason, "a webhook was not told");
                        Told::Failed(chance)
                    }
                }
            }
        };
        self.advance(id, life, |it| it.answered(&wake, &told, now())).await;
    }

    /// Waits until another wake is under way, or none.
    async fn is_over(&self, id: &str, wake: &str, notify: &Notify) {
        loop {
            let is_it = self
                .registry
                .borrow()
                .get(id)
                .is_some_and(|member| member.subscription.phase().wake() == Some(wake));
            if !is_it {
                return;
            }
            notify.notified().await;
        }
    }

    async fn call(&self, url: &str, id: &str, wake: &str) -> Result<WebhookAnswer, String> {
        let keys = self.keys().map_err(|error| format!("the broker's keys: {error}"))?;
        let body = self.body(id, wake, &keys).ok_or("it is gone")?;
        let signature = keys.sign(clock::wall().as_secs(), &body);
        let called = self.caller.call(url, body, &signature).await;
        called.map_err(|failure| failure.to_string())
    }

    /// What a webhook is told of this wake.
    fn body(&self, id: &str, wake: &str, keys: &Keys) -> Option<Bytes> {
        let registry = self.registry.borrow();
        let it = &registry.get(id)?.subscription;
        let token = Token::new(id, it.generation(), wake, now()).write(keys);
        let body = json!({
            "type": "wake",
            "subscription_id": id,
            "wake_id": wake,
            "generation": it.generation(),
            "streams": view::streams(it, |topic| self.tag(topic)),
            "callback_url": format!("{}/subscriptions/{id}/callback", it.base),
            "callback_token": token,
        });
        Some(body.to_string().into())
    }

    /// Writes into the wake stream that there is something.
    async fn announce(&self, id: &str, stream: &TopicName) -> Result<(), StreamFailure> {
        let text = {
            let registry = self.registry.borrow();
            let Some(member) = registry.get(id) else { return Ok(()) };
            let it = &member.subscription;
            let pending = it.links().iter().find(|(_, link)| link.is_pending());
            json!({
                "type": "wake",
                "subscription_id": id,
                "stream": pending.map(|(stream, _)| stream.as_str()),
                "generation": it.generation(),
                "ts": now().0,
            })
            .to_string()
        };
        let mut batch = BatchBuilder::for_append(text.len() + 1024);
        // It is short, whatever it names.
        batch.push(&Message::new(Bytes::from(text))).map_err(|_| wrong_answer())?;
        let append = StreamAppend {
            content: batch.take().map(Content::from),
            content_type: Some("application/json".into()),
            note: StreamNote::default(),
        };
        let append = || Some(Box::new(append.clone()));
        self.streams.append(&Principal::broker(), stream, append).await.map(drop)
    }
}

/// Whether what says so takes no wake until another stream has its name: the one that `is_there` is
/// closed, or of another kind; or none is there.
fn takes_no_wakes(failure: &StreamFailure, is_there: bool) -> bool {
    use StreamRefusal::{Closed, ContentType, Deleted, NativeTopic, Unknown};
    match failure {
        // Of one that is there, it says that its time is over: it is about to go.
        StreamFailure::Stream(Unknown) | StreamFailure::Partitioned(_) => !is_there,
        StreamFailure::Stream(refusal)
        | StreamFailure::StreamAt(Identified { answer: refusal, .. }) => {
            let takes_none =
                matches!(refusal, Closed { .. } | Deleted | ContentType { .. } | NativeTopic);
            is_there && takes_none
        }
        StreamFailure::Broker(refusal) => {
            is_there && **refusal == ControlRefusal::Engine(Refusal::KeyMissing)
        }
        _ => false,
    }
}

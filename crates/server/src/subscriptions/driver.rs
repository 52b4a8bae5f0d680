//! Drives one subscription: wakes it when a stream has more, sends the wake, and ends leases whose time is
//! over. One task for each. A wake is durable before it is sent.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_engine::{Content, Refusal, StreamAppend, StreamNote, StreamRefusal};
use sennit_model::{BatchBuilder, Message, TopicName};
use serde_json::json;
use tokio::{select, sync::Notify, time::sleep};

use super::request::Way;
use super::{
    change::{Change, Link, Moved, What},
    keys::Keys,
    led::LedSubscriptions,
    subscription::{Due, Subscription, WakeOutcome},
    tokens::Token,
    view,
    webhook::WebhookAnswer,
};
use crate::{
    broker::{
        control_request::ControlRefusal, stream_offset::Identified, stream_request::StreamFailure,
        streams::wrong_answer, where_led::LedPart as _,
    },
    identity::principal::Principal,
    runtime::clock::{self, now},
};

/// The clock may be set: nobody sleeps longer without looking at it.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// How long after the broker could not do something it is tried again.
const REST: Duration = Duration::from_secs(1);

impl LedSubscriptions {
    /// Works for a subscription as long as there is one of this life.
    pub(super) async fn drive(self: Rc<Self>, id: Box<str>, life: u64) {
        while !self.ending().is_over() {
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
                Due::Wake => match super::led::wake_name() {
                    Ok(wake) => {
                        let decide = |it: &Subscription| it.wake(now(), wake);
                        self.advance(&id, life, decide).await;
                    }
                    Err(error) => {
                        tracing::error!(%error, "there are no random numbers");
                        sleep(REST).await;
                    }
                },
                Due::SendWake => self.send_wake(&id, life, &notify).await,
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

    /// Sends a wake: calls the webhook, or writes into the wake stream.
    async fn send_wake(self: &Rc<Self>, id: &str, life: u64, notify: &Notify) {
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
                if self.write_wake(id, stream).await {
                    if let Some(member) = self.registry.borrow_mut().get_mut(id) {
                        member.subscription.note_wake_sent(&wake);
                    }
                    return;
                }
                WakeOutcome::Failed(chance)
            }
            Way::Webhook(url) => match self.call_until_over(url, id, &wake, notify).await {
                None => return,
                Some(Ok(WebhookAnswer::Done)) => WakeOutcome::Done(snapshot),
                Some(Ok(WebhookAnswer::Taken)) => WakeOutcome::Taken,
                Some(Err(reason)) => {
                    tracing::info!(id, reason, "a webhook did not accept a wake");
                    WakeOutcome::Failed(chance)
                }
            },
        };
        self.advance(id, life, |it| it.answered(&wake, &told, now())).await;
    }

    /// Writes a wake into its stream. Returns false if that is to be tried again.
    async fn write_wake(&self, id: &str, stream: &TopicName) -> bool {
        let topic = self.topic(stream);
        let Err(failure) = self.announce(id, stream).await else { return true };
        tracing::warn!(id, %stream, %failure, "a wake was not written");
        // A stream that never takes a wake, and a name that no stream has, are not tried again. Workers can claim
        // the subscription all the same, and another stream of this name gets the wake.
        let is_final = takes_no_wakes(&failure, topic.is_some()) && topic == self.topic(stream);
        if is_final {
            self.core.cores.metrics[self.core.index].subscription_wakes_failed.add(1);
        }
        is_final
    }

    /// Calls a webhook; `None` if the wake ended first, by a callback or because it is not wanted any more.
    async fn call_until_over(
        &self,
        url: &str,
        id: &str,
        wake: &str,
        notify: &Notify,
    ) -> Option<Result<WebhookAnswer, String>> {
        let _permit = self.webhooks.acquire().await.ok()?;
        select! {
            called = self.call(url, id, wake) => Some(called),
            () = self.wait_until_over(id, wake, notify) => None,
        }
    }

    /// Waits until another wake is under way, or none.
    async fn wait_until_over(&self, id: &str, wake: &str, notify: &Notify) {
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

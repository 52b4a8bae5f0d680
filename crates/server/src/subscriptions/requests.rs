//! Requests to subscriptions from outside, and their answers. An answer reports only durable changes. It knows no
//! HTTP.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use sennit_model::{Offset, TopicId, TopicName};
use serde_json::{Value, json};
use tokio::{task::spawn_local, time::timeout};

use super::request::{
    Ack, Config, NewSubscription, SubscriptionAnswer, SubscriptionRefusal, SubscriptionRequest,
    Way,
    limits::{CHANGES_WAITING_MAX, COMMIT_TIMEOUT},
};
use super::{
    change::{Change, Link, Moved, What},
    led::LedSubscriptions,
    store::Durable,
    subscription::{Fence, Subscription},
    tokens::Token,
    view,
};
use crate::{
    broker::{stream_offset::StreamOffset, stream_request::StreamFailure},
    identity::principal::Principal,
    runtime::clock::now,
};

impl LedSubscriptions {
    /// Does what is asked by somebody who may.
    pub(super) async fn answer(
        self: Rc<Self>,
        asked: SubscriptionRequest,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        if self.store.waiting() >= CHANGES_WAITING_MAX
            && !matches!(asked, SubscriptionRequest::Get(_) | SubscriptionRequest::List)
        {
            let (name, limit) = ("CHANGES_WAITING_MAX".into(), CHANGES_WAITING_MAX);
            return Err(SubscriptionRefusal::Limit { name, limit });
        }
        match asked {
            SubscriptionRequest::Create(new) => self.create(new).await,
            SubscriptionRequest::Get(id) => self.view(&id).map(SubscriptionAnswer::Body),
            SubscriptionRequest::List => {
                Ok(SubscriptionAnswer::Body(view::all(self.registry.borrow().members())))
            }
            SubscriptionRequest::Delete(id) => self.delete(id).await,
            SubscriptionRequest::Link(id, streams) => self.link(id, streams).await,
            SubscriptionRequest::Unlink(id, stream) => self.unlink(id, stream).await,
            SubscriptionRequest::Claim(id, worker) => self.claim(id, worker).await,
            SubscriptionRequest::Ack(ack) => self.ack(ack).await,
            SubscriptionRequest::Release(ack) => self.release(ack).await,
            SubscriptionRequest::Keys => {
                Ok(SubscriptionAnswer::Keys(self.keys().map_err(of_keys)?.public()))
            }
        }
    }

    async fn create(
        self: &Rc<Self>,
        new: NewSubscription,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let NewSubscription { id, config, base } = new;
        if let Some(found) = self.find(&id, &config)? {
            return self.kept(found).await;
        }
        if let Way::Webhook(url) = &config.way {
            self.caller.check(url).await?;
        }
        // What is there is linked from its end on; what comes while that is found out, from its start.
        let meant = self.meant(&config);
        self.registry.borrow().check_room(meant.len(), meant.len())?;
        let ends = self.ends(meant).await?;
        if let Some(found) = self.find(&id, &config)? {
            return self.kept(found).await;
        }
        let durable = self.add(&id, config, base, &ends)?;
        wait_until_durable(durable).await?;
        self.view(&id).map(SubscriptionAnswer::Created)
    }

    /// Adds a subscription, linked to what is there.
    fn add(
        self: &Rc<Self>,
        id: &str,
        config: Config,
        base: Box<str>,
        ends: &Ends,
    ) -> Result<Durable, SubscriptionRefusal> {
        let links = self.links_of(&config, ends);
        let mut registry = self.registry.borrow_mut();
        registry.check_members()?;
        registry.check_room(links.len(), links.len())?;
        let subscription = Subscription::new(config, base, now(), links);
        let kept = What::Kept(Box::new(subscription.keep()));
        let (life, followed) = registry.add(id, subscription);
        drop(registry);
        let durable = self.keep(&[Change { id: id.into(), what: kept }]);
        spawn_local(self.clone().drive(id.into(), life));
        self.follow_all(followed);
        Ok(durable)
    }

    /// The subscription that is asked for, if it is there.
    fn find(
        &self,
        id: &str,
        config: &Config,
    ) -> Result<Option<SubscriptionAnswer>, SubscriptionRefusal> {
        let registry = self.registry.borrow();
        match registry.get(id) {
            None => Ok(None),
            Some(found) if found.subscription.config == *config => {
                drop(registry);
                self.view(id).map(|answer| Some(SubscriptionAnswer::Body(answer)))
            }
            Some(_) => Err(SubscriptionRefusal::Exists),
        }
    }

    /// Says it once all that it relies on is durable.
    async fn kept(
        self: &Rc<Self>,
        answer: SubscriptionAnswer,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        wait_until_durable(self.keep(&[])).await?;
        Ok(answer)
    }

    /// The links of a new subscription, where these streams were seen to end.
    fn links_of(&self, config: &Config, ends: &Ends) -> BTreeMap<TopicName, Link> {
        let mut links: BTreeMap<TopicName, Link> = BTreeMap::new();
        for (stream, topic) in self.meant(config) {
            let is_explicit = config.names(&stream);
            if let Some(end) = end_of(ends, &stream, topic) {
                links.insert(stream, Link::at(is_explicit, topic, end));
            }
        }
        for stream in &config.streams {
            links.entry(stream.clone()).or_insert_with(|| Link::to_come(true));
        }
        links
    }

    /// Where these streams end.
    async fn ends(
        &self,
        streams: HashMap<TopicName, TopicId>,
    ) -> Result<Ends, SubscriptionRefusal> {
        let mut ends = Ends::new();
        for (stream, topic) in streams {
            let end = match self.streams.status(&Principal::broker(), &stream, false).await {
                Ok(status) => Some(status.answer.next),
                // Its time is over, or it is kept for its forks only.
                Err(StreamFailure::Stream(_)) => None,
                Err(failure) => {
                    return Err(SubscriptionRefusal::Unavailable(failure.to_string().into()));
                }
            };
            ends.insert(stream, (topic, end));
        }
        Ok(ends)
    }

    fn view(&self, id: &str) -> Result<Value, SubscriptionRefusal> {
        let keys = self.keys().map_err(of_keys)?;
        let registry = self.registry.borrow();
        let member = registry.get(id).ok_or(SubscriptionRefusal::Unknown)?;
        Ok(view::subscription(id, &member.subscription, &keys, |topic| self.tag(topic)))
    }

    async fn delete(
        self: &Rc<Self>,
        id: Box<str>,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        if self.registry.borrow_mut().remove(&id) {
            drop(self.keep(&[Change { id, what: What::Deleted }]));
        }
        self.kept(SubscriptionAnswer::Done).await
    }

    async fn link(
        self: &Rc<Self>,
        id: Box<str>,
        streams: Vec<TopicName>,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        self.of_this(&id, |it| {
            let own = it.config.wake_stream();
            if streams.iter().any(|stream| Some(stream) == own) {
                return Err(SubscriptionRefusal::invalid("the wake stream cannot wake its own"));
            }
            Ok(())
        })?;
        let ends = self.ends(self.there(&streams)).await?;
        wait_until_durable(self.link_to(id, streams, &ends)?).await?;
        Ok(SubscriptionAnswer::Done)
    }

    /// Links a subscription to streams that it has named.
    fn link_to(
        self: &Rc<Self>,
        id: Box<str>,
        streams: Vec<TopicName>,
        ends: &Ends,
    ) -> Result<Durable, SubscriptionRefusal> {
        let (links, mut followed) = (self.of_this(&id, |it| Ok(it.links().clone()))?, Vec::new());
        let more = streams.iter().filter(|stream| !links.contains_key(*stream)).count();
        let mut registry = self.registry.borrow_mut();
        registry.check_room(links.len() + more, more)?;
        let mut kept = Vec::new();
        for stream in streams {
            let there = self.topic(&stream).and_then(|topic| {
                end_of(ends, &stream, topic).map(|end| Link::at(true, topic, end))
            });
            let link = match links.get(&stream) {
                Some(link) if link.is_explicit => continue,
                Some(link) => Link { is_explicit: true, ..*link },
                None => there.unwrap_or_else(|| Link::to_come(true)),
            };
            kept.push(link.keep(&stream));
            followed.append(&mut registry.link(&id, &stream, link));
        }
        drop(registry);
        let durable = self.keep(&[Change { id, what: What::Linked(kept) }]);
        self.follow_all(followed);
        Ok(durable)
    }

    async fn unlink(
        self: &Rc<Self>,
        id: Box<str>,
        stream: TopicName,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let (is_meant, link) = self
            .of_this(&id, |it| Ok((it.config.means(&stream), it.links().get(&stream).copied())))?;
        let what = match link {
            Some(link) if is_meant && link.topic.is_some() => {
                let link = Link { is_explicit: false, ..link };
                self.registry.borrow_mut().link(&id, &stream, link);
                What::Linked(vec![link.keep(&stream)])
            }
            Some(_) => {
                self.registry.borrow_mut().unlink(&id, &stream);
                What::Unlinked(vec![stream.as_str().into()])
            }
            None => return Ok(SubscriptionAnswer::Done),
        };
        wait_until_durable(self.keep(&[Change { id, what }])).await?;
        Ok(SubscriptionAnswer::Done)
    }

    async fn claim(
        self: &Rc<Self>,
        id: Box<str>,
        worker: Box<str>,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let wake = || super::led::wake_name().map_err(of_keys);
        let decide = |it: &Subscription| match &it.config.way {
            Way::PullWake(_) => it.claim(worker.clone(), now(), wake()?),
            Way::Webhook(_) => {
                Err(SubscriptionRefusal::invalid("a webhook is told, nobody claims"))
            }
        };
        let moved = match self.of_this(&id, decide) {
            // What was appended just now may not have been seen.
            Err(SubscriptionRefusal::NoPendingWork) => {
                self.look_at(&id, |_| true).await;
                self.of_this(&id, decide)?
            }
            decided => decided?,
        };
        let generation = moved.generation;
        let wake = moved.phase.wake().unwrap_or_default().to_owned();
        self.change(&id, moved).await?;
        let keys = self.keys().map_err(of_keys)?;
        let token = Token::new(&id, generation, &wake, now()).write(&keys);
        self.of_this(&id, |it| {
            Ok(SubscriptionAnswer::Body(json!({
                "wake_id": wake,
                "generation": generation,
                "token": token,
                "streams": view::streams(it, |topic| self.tag(topic)),
                "lease_ttl_ms": it.config.lease_ms,
            })))
        })
    }

    async fn ack(self: &Rc<Self>, ack: Ack) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let fence = self.fence(&ack)?;
        let acked: BTreeSet<&TopicName> = ack.acks.iter().map(|(stream, _)| stream).collect();
        self.look_at(&ack.id, |stream| acked.contains(stream)).await;
        let acks = self.of_this(&ack.id, |it| Ok(self.offsets(it, &ack.acks)))?;
        let decide = |it: &Subscription| it.ack(&fence, &acks, ack.is_done, now());
        let moved = self.of_this(&ack.id, decide)?;
        let durable = self.apply(&ack.id, moved);
        let is_pending = self.of_this(&ack.id, |it| Ok(it.is_pending()))?;
        wait_until_durable(durable).await?;
        Ok(SubscriptionAnswer::Body(json!({ "ok": true, "next_wake": ack.is_done && is_pending })))
    }

    /// Up to where the streams that it is linked to are done. An offset of a stream that had the name
    /// before is left out: what was done of that says nothing of this one.
    fn offsets(
        &self,
        it: &Subscription,
        acks: &[(TopicName, StreamOffset)],
    ) -> Vec<(TopicName, Offset)> {
        let is_of = |(stream, offset): &&(TopicName, StreamOffset)| {
            let topic = it.links().get(stream).and_then(|link| link.topic);
            topic.is_some_and(|topic| offset.is_of(self.tag(topic)))
        };
        acks.iter().filter(is_of).map(|(stream, offset)| (stream.clone(), offset.at)).collect()
    }

    async fn release(self: &Rc<Self>, ack: Ack) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let fence = self.fence(&ack)?;
        let moved = self.of_this(&ack.id, |it| it.release(&fence, now()))?;
        self.change(&ack.id, moved).await?;
        Ok(SubscriptionAnswer::Done)
    }

    /// What somebody shows who says something of their work.
    fn fence(&self, ack: &Ack) -> Result<Fence, SubscriptionRefusal> {
        self.of_this(&ack.id, |it| {
            if ack.is_callback == it.config.wake_stream().is_none() {
                return Ok(());
            }
            Err(SubscriptionRefusal::invalid(if ack.is_callback {
                "who has claimed the work acks it, or releases it"
            } else {
                "a webhook says what is done by its callback"
            }))
        })?;
        let keys = self.keys().map_err(of_keys)?;
        let token = Token::read(&keys, &ack.token, &ack.id, now())?;
        Ok(Fence {
            generations: [token.generation, ack.generation],
            wakes: [token.wake, ack.wake.clone()],
        })
    }

    /// Looks where those of its streams end right now that are wanted.
    async fn look_at(self: &Rc<Self>, id: &str, is_wanted: impl Fn(&TopicName) -> bool) {
        let streams = self.of_this(id, |it| {
            let links = it.links().iter().filter(|(stream, _)| is_wanted(stream));
            Ok(links.filter_map(|(one, link)| Some((one.clone(), link.topic?))).collect())
        });
        if let Ok(streams) = streams {
            self.look(streams).await;
        }
    }

    fn of_this<T>(
        &self,
        id: &str,
        look: impl FnOnce(&Subscription) -> Result<T, SubscriptionRefusal>,
    ) -> Result<T, SubscriptionRefusal> {
        let registry = self.registry.borrow();
        look(&registry.get(id).ok_or(SubscriptionRefusal::Unknown)?.subscription)
    }

    fn apply(self: &Rc<Self>, id: &str, moved: Moved) -> Durable {
        self.registry.borrow_mut().apply(id, &moved);
        self.keep(&[Change { id: id.into(), what: What::Moved(moved) }])
    }

    async fn change(self: &Rc<Self>, id: &str, moved: Moved) -> Result<(), SubscriptionRefusal> {
        wait_until_durable(self.apply(id, moved)).await
    }
}

/// Where streams were seen to end; `None` for those that are not there any more for anybody.
type Ends = BTreeMap<TopicName, (TopicId, Option<Offset>)>;

/// Where a stream is linked from: its end as it was seen, or its beginning if it has come since.
fn end_of(ends: &Ends, stream: &TopicName, topic: TopicId) -> Option<Offset> {
    match ends.get(stream) {
        Some((seen, end)) if *seen == topic => *end,
        _ => Some(Offset(0)),
    }
}

async fn wait_until_durable(durable: Durable) -> Result<(), SubscriptionRefusal> {
    match timeout(COMMIT_TIMEOUT, durable).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(SubscriptionRefusal::Unavailable(
            "it stops, or another node leads: whether that was kept is not known".into(),
        )),
        Err(_) => Err(SubscriptionRefusal::Unavailable("the journal takes too long".into())),
    }
}

pub(super) fn of_keys(error: std::io::Error) -> SubscriptionRefusal {
    tracing::error!(%error, "the broker's keys cannot be used");
    SubscriptionRefusal::Unavailable("its keys cannot be used".into())
}

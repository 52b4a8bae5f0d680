//! Subscriptions: whoever is to work on streams is woken when there is something, and says up to where
//! it is done. They live on the first core, and are kept in a stream of the broker's own.
//!
//! In reading order: a `subscription` is a state machine of `phase`s, changed by `change`s; the `registry` has all of
//! them and knows which are linked to which stream, the `pattern_index` which may be; the `store` keeps changes. A
//! `stream_follower` finds out where a stream ends, a `driver` works for each subscription: it calls a `webhook` (where
//! the `url_guard` lets it), signed with the broker's `keys`, or writes a wake into a stream. A `request` comes from
//! outside and is answered by `requests`; `tokens` show who may, and `view` is what they see.

mod change;
mod driver;
mod keys;
mod name_lookup;
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

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    io,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sennit_engine::Topic;
use sennit_model::{Offset, TopicId, TopicName};
use tokio::{sync::Semaphore, task::spawn_local};

use self::request::{Config, limits::WEBHOOKS_UNDER_WAY_MAX};
use self::{
    change::{Change, Moved, What},
    keys::Keys,
    phase::Phase,
    registry::{NewlyFollowed, Registry},
    store::{Durable, Store},
    webhook::Caller,
};
use crate::{
    broker::{stream_offset::IncarnationTag, streams::Streams, topic_listener::TopicListener},
    runtime::{core::CoreHandle, own_topic::OwnStream},
};

/// All subscriptions, on the first core.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    core: CoreHandle,
    streams: Rc<Streams>,
    registry: RefCell<Registry>,
    store: Store,
    /// Whether the registry has all that was kept.
    is_loaded: Cell<bool>,
    caller: Caller,
    /// One turn for each webhook that is being told.
    webhooks: Semaphore,
    /// Where the keys lie.
    directory: PathBuf,
    keys: OnceCell<Rc<Keys>>,
}

impl TopicListener for Subscriptions {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move { self.load().await })
    }

    fn is_where_led(&self) -> bool {
        true
    }

    fn rests(self: Rc<Self>) {
        // Those that work for its members find them gone.
        self.is_loaded.set(false);
        self.registry.take();
    }

    fn appeared(self: Rc<Self>, stream: &TopicName, topic: TopicId, from: Offset) {
        if stream == self.store.name() {
            self.core.cores.own_topic.set(OwnStream::Subscriptions, topic);
        }
        if self.registry.borrow().is_empty() {
            return;
        }
        self.registry.borrow_mut().wakes_appeared(stream);
        let (changes, followed) = self.registry.borrow_mut().appeared(stream, topic, from);
        if !changes.is_empty() {
            drop(self.keep(&changes));
        }
        self.follow_all(followed);
    }

    fn gone(self: Rc<Self>, stream: &TopicName, topic: TopicId) {
        let changes = self.registry.borrow_mut().gone(stream, topic);
        if !changes.is_empty() {
            drop(self.keep(&changes));
        }
    }
}

impl Subscriptions {
    /// None yet. Where `allows_loopback`, webhooks of this machine are called.
    pub(crate) fn new(core: CoreHandle, directory: PathBuf, allows_loopback: bool) -> Rc<Self> {
        let streams = Streams::new(core.clone());
        Rc::new(Self {
            store: Store::new(core.clone(), streams.clone()),
            core,
            streams,
            registry: RefCell::default(),
            is_loaded: Cell::new(false),
            caller: Caller::new(allows_loopback),
            webhooks: Semaphore::new(WEBHOOKS_UNDER_WAY_MAX),
            directory,
            keys: OnceCell::new(),
        })
    }

    /// Says whether webhooks of this machine are called from now on.
    pub(crate) fn allow_loopback(&self, allows: bool) {
        self.caller.allows_loopback.set(allows);
    }

    /// Takes back what was kept, brings it in line with the streams that there are, and works on.
    ///
    /// What cannot be read is not taken for nothing: then nobody is answered, nothing is written, and what
    /// lies there stays as it is.
    async fn load(self: &Rc<Self>) {
        if let Some(topic) = self.topic(self.store.name()) {
            self.core.cores.own_topic.set(OwnStream::Subscriptions, topic);
        }
        let take = |change: Change| {
            let id = change.id.clone();
            if !self.registry.borrow_mut().replay(change) {
                tracing::error!(%id, "what was kept of a subscription cannot have been");
            }
        };
        if let Err(failure) = self.store.read(take).await {
            tracing::error!(%failure, "what was kept of subscriptions cannot be read: there are none");
            self.registry.take();
            return;
        }
        self.is_loaded.set(true);
        if self.registry.borrow().is_empty() {
            return;
        }
        let (changes, _) = self.registry.borrow_mut().reconcile(&self.topics(|_| true));
        if !changes.is_empty() {
            drop(self.keep(&changes));
        }
        self.count(&[]);
        let (members, followed) = self.registry.borrow().all();
        for (id, life) in members {
            spawn_local(self.clone().drive(id, life));
        }
        self.follow_all(followed);
    }

    /// Has changes be written.
    fn keep(self: &Rc<Self>, changes: &[Change]) -> Durable {
        self.count(changes);
        let (durable, is_to_be_served) = self.store.keep(changes);
        if is_to_be_served {
            let this = self.clone();
            spawn_local(async move {
                this.store.write(|| this.registry.borrow().keep().collect()).await;
            });
        }
        durable
    }

    /// Says in the metrics what has changed, and how it is now.
    fn count(&self, changes: &[Change]) {
        let metrics = &self.core.cores.metrics[self.core.index];
        let [all, links, woken, held] = self.registry.borrow().counts().map(|count| count as u64);
        metrics.subscriptions.set(all);
        metrics.subscription_links.set(links);
        metrics.subscriptions_woken.set(woken);
        metrics.subscriptions_held.set(held);
        for change in changes {
            if let What::Moved(Moved { phase: Phase::Woken { attempt, .. }, .. }) = &change.what {
                let is_new = *attempt == 0;
                let counted = if is_new {
                    &metrics.subscription_wakes
                } else {
                    &metrics.subscription_wakes_failed
                };
                counted.add(1);
            }
        }
    }

    fn follow_all(self: &Rc<Self>, streams: NewlyFollowed) {
        for (stream, life) in streams {
            spawn_local(self.clone().follow(stream, life));
        }
    }

    /// The broker's keys, made when first needed.
    fn keys(&self) -> io::Result<Rc<Keys>> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys.clone());
        }
        let keys = Rc::new(Keys::open(&self.directory)?);
        Ok(self.keys.get_or_init(|| keys).clone())
    }

    /// The topics that can be streams, those that are wanted.
    fn topics(&self, is_wanted: impl Fn(&TopicName) -> bool) -> HashMap<TopicName, TopicId> {
        self.core.look(|core| {
            let streams = core.catalogue().topics().filter(|topic| can_be_stream(topic));
            let wanted = streams.filter(|topic| is_wanted(&topic.created.name));
            wanted.map(|topic| (topic.created.name.clone(), topic.id())).collect()
        })
    }

    /// The topic of this name, if there is one that can be a stream.
    fn topic(&self, stream: &TopicName) -> Option<TopicId> {
        self.core.look(|core| {
            let topic = core.catalogue().topic_named(stream);
            topic.filter(|topic| can_be_stream(topic)).map(Topic::id)
        })
    }

    /// What the offsets of a topic carry; nothing if there is no such topic any more.
    fn tag(&self, topic: TopicId) -> IncarnationTag {
        self.core.look(|core| {
            let topic = core.catalogue().topic(topic);
            topic
                .map_or(IncarnationTag::NONE, |topic| IncarnationTag::of(topic.created.incarnation))
        })
    }

    /// The topics that a new subscription is linked to.
    fn meant(&self, config: &Config) -> HashMap<TopicName, TopicId> {
        if config.pattern.is_some() {
            return self.topics(|stream| config.means(stream) || config.names(stream));
        }
        self.there(&config.streams)
    }

    /// Those of these streams that are there.
    fn there(&self, streams: &[TopicName]) -> HashMap<TopicName, TopicId> {
        let there = streams.iter().filter_map(|stream| Some((stream.clone(), self.topic(stream)?)));
        there.collect()
    }
}

fn can_be_stream(topic: &Topic) -> bool {
    topic.config().partitions == 1
}

/// A name for a wake that nobody guesses and no other wake has.
fn wake_name() -> io::Result<Box<str>> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("wake_{}", URL_SAFE_NO_PAD.encode(random)).into())
}

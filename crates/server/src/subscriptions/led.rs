//! The subscriptions where the catalogue is led: they are read from their stream, and somebody works for each of them. They know
//! nobody's rights.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sennit_engine::Topic;
use sennit_model::{Offset, TopicId, TopicName};
use tokio::{sync::Semaphore, task::spawn_local};

use super::{
    change::{Change, Moved, What},
    keys::Keys,
    own_keys::OwnKeys,
    phase::Phase,
    registry::{NewlyFollowed, Registry},
    request::{Config, limits::WEBHOOKS_UNDER_WAY_MAX},
    store::{Durable, Store},
    webhook::Caller,
};
use crate::{
    broker::{
        control_peers::ControlPeers,
        led_stream::LedStream,
        stream_offset::IncarnationTag,
        stream_request::StreamFailure,
        streams::Streams,
        where_led::{Ending, LedPart},
    },
    runtime::core::CoreHandle,
};

/// See the file's page.
#[derive(Debug)]
pub(super) struct LedSubscriptions {
    pub(super) core: CoreHandle,
    pub(super) streams: Rc<Streams>,
    pub(super) registry: RefCell<Registry>,
    pub(super) store: Store,
    pub(super) caller: Rc<Caller>,
    /// One turn for each webhook that is being told.
    pub(super) webhooks: Semaphore,
    keys: Rc<OwnKeys>,
    ending: Rc<Ending>,
}

impl LedPart for LedSubscriptions {
    fn begins(self: Rc<Self>) {
        self.work();
    }

    fn ends(&self) {
        // Those that work for its members find them gone.
        self.ending.end();
        self.registry.borrow_mut().end();
        self.store.end();
        self.count(&[]);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }
}

impl LedSubscriptions {
    /// Those that are kept in the stream of this name.
    ///
    /// What cannot be read is not taken for nothing: then nobody is answered, nothing is written, and what lies there
    /// stays as it is.
    ///
    /// # Errors
    /// The stream cannot be read, or it cannot be said that this node leads.
    pub(super) async fn load(
        core: &CoreHandle,
        name: &TopicName,
        (caller, keys): (Rc<Caller>, Rc<OwnKeys>),
        peers: Option<Rc<ControlPeers>>,
    ) -> Result<Self, StreamFailure> {
        let ending = Rc::<Ending>::default();
        let store = Store::new(core.clone(), name, peers, ending.clone());
        let mut registry = Registry::default();
        let take = |change: Change| {
            let id = change.id.clone();
            if !registry.replay(change) {
                tracing::error!(%id, "what was kept of a subscription cannot have been");
            }
        };
        store.take_over(take).await?;
        Ok(Self {
            core: core.clone(),
            streams: Streams::new(core.clone()),
            registry: RefCell::new(registry),
            store,
            caller,
            webhooks: Semaphore::new(WEBHOOKS_UNDER_WAY_MAX),
            keys,
            ending,
        })
    }

    /// Brings what was kept in line with the streams that there are, and works on.
    fn work(self: &Rc<Self>) {
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

    /// The stream that they are kept in.
    pub(super) fn stream(&self) -> &LedStream {
        self.store.stream()
    }

    /// A stream is there, and was not before.
    pub(super) fn appeared(self: &Rc<Self>, stream: &TopicName, topic: TopicId, from: Offset) {
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

    /// A stream is gone.
    pub(super) fn gone(self: &Rc<Self>, stream: &TopicName, topic: TopicId) {
        let changes = self.registry.borrow_mut().gone(stream, topic);
        if !changes.is_empty() {
            drop(self.keep(&changes));
        }
    }

    /// Has changes be written.
    pub(super) fn keep(self: &Rc<Self>, changes: &[Change]) -> Durable {
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
    pub(super) fn count(&self, changes: &[Change]) {
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

    pub(super) fn follow_all(self: &Rc<Self>, streams: NewlyFollowed) {
        for (stream, life) in streams {
            spawn_local(self.clone().follow(stream, life));
        }
    }

    /// The broker's keys.
    pub(super) fn keys(&self) -> io::Result<Rc<Keys>> {
        self.keys.get()
    }

    /// The topics that can be streams, those that are wanted.
    pub(super) fn topics(
        &self,
        is_wanted: impl Fn(&TopicName) -> bool,
    ) -> HashMap<TopicName, TopicId> {
        self.core.look(|core| {
            let streams = core.catalogue().topics().filter(|topic| can_be_stream(topic));
            let wanted = streams.filter(|topic| is_wanted(&topic.created.name));
            wanted.map(|topic| (topic.created.name.clone(), topic.id())).collect()
        })
    }

    /// The topic of this name, if there is one that can be a stream.
    pub(super) fn topic(&self, stream: &TopicName) -> Option<TopicId> {
        self.core.look(|core| {
            let topic = core.catalogue().topic_named(stream);
            topic.filter(|topic| can_be_stream(topic)).map(Topic::id)
        })
    }

    /// What the offsets of a topic carry; nothing if there is no such topic any more.
    pub(super) fn tag(&self, topic: TopicId) -> IncarnationTag {
        self.core.look(|core| {
            let topic = core.catalogue().topic(topic);
            topic
                .map_or(IncarnationTag::NONE, |topic| IncarnationTag::of(topic.created.incarnation))
        })
    }

    /// The topics that a new subscription is linked to.
    pub(super) fn meant(&self, config: &Config) -> HashMap<TopicName, TopicId> {
        if config.pattern.is_some() {
            return self.topics(|stream| config.means(stream) || config.names(stream));
        }
        self.there(&config.streams)
    }

    /// Those of these streams that are there.
    pub(super) fn there(&self, streams: &[TopicName]) -> HashMap<TopicName, TopicId> {
        let there = streams.iter().filter_map(|stream| Some((stream.clone(), self.topic(stream)?)));
        there.collect()
    }
}

fn can_be_stream(topic: &Topic) -> bool {
    topic.config().partitions == 1
}

/// A name for a wake that nobody guesses and no other wake has.
pub(super) fn wake_name() -> io::Result<Box<str>> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("wake_{}", URL_SAFE_NO_PAD.encode(random)).into())
}

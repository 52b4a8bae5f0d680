//! Messages of topics between brokers that share a Redis: what is published at one reaches those who are subscribed at
//! another. Each broker publishes it to its own topic of that name, so that recovery is from the log there.
//!
//! On the first core, one loop follows the topics of this broker by readers and publishes to Redis what did not come from
//! there (`message`); it takes what others publish of topics that somebody here is subscribed to, asks for what is missing
//! (`positions`), and publishes it here. `interests` is what that is, `redis_link` keeps the connection.

mod interests;
mod members;
pub(crate) mod message;
mod own_topics;
mod positions;
pub(crate) mod redis_link;
mod relay_loop;

use std::{cell::RefCell, fmt, pin::Pin, rc::Rc, sync::Arc};

use ring::rand::{SecureRandom as _, SystemRandom};
use sennit_centrifuge::ClientInfo;
use sennit_identity::{RightPattern, Zeroizing};
use sennit_model::{Offset, TopicId, TopicName};
use tokio::{
    sync::{Notify, oneshot},
    task::spawn_local,
    time::timeout,
};

use self::{
    message::{NodeId, RelayKind},
    redis_link::RedisUrl,
    relay_loop::RelayLoop,
};

pub(crate) use self::interests::Subject;
use super::{calls::Calls, limits::RELAY_PATIENCE};
use crate::{
    broker::topic_listener::TopicListener,
    runtime::{
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
    },
};

/// The Redis by which brokers send one another the messages of live topics.
#[derive(Clone)]
pub struct LiveRedis {
    /// Where it is; without it this broker is alone.
    pub url: Option<RedisUrl>,
    /// Its password.
    pub password: Option<Zeroizing<String>>,
    /// The topics whose messages go to other brokers, and come from them.
    pub topics: Vec<RightPattern>,
    /// The first part of the names of its channels.
    pub prefix: String,
}

impl Default for LiveRedis {
    fn default() -> Self {
        let topics = ">".parse().into_iter().collect();
        Self { url: None, password: None, topics, prefix: "sennit".to_owned() }
    }
}

impl fmt::Debug for LiveRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRedis").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What live connections are told.
#[derive(Clone, Debug)]
pub(crate) enum RelayNews {
    /// Messages of a topic are missing for good.
    Missed(TopicName),
    /// Clients have come to a topic at another broker, or gone, or are all that are there.
    Members { kind: RelayKind, topic: TopicName, node: NodeId, members: Vec<ClientInfo> },
    /// Another broker asks who is subscribed to a topic here.
    Asked { topic: TopicName, asker: NodeId },
    /// Nobody follows a topic here any more: what others say of it does not come.
    Unfollowed(TopicName),
    /// A broker is gone.
    Gone(NodeId),
    /// Others may not know who is here.
    Announce,
}

impl RelayNews {
    /// The topic that it is about, if it is about one.
    pub(crate) fn topic(&self) -> Option<&TopicName> {
        match self {
            Self::Missed(topic)
            | Self::Members { topic, .. }
            | Self::Asked { topic, .. }
            | Self::Unfollowed(topic) => Some(topic),
            Self::Gone(_) | Self::Announce => None,
        }
    }
}

/// The relay of this broker: a service of the first core.
pub(crate) struct Relay {
    calls: Calls<RelayLoop>,
    /// Until the broker has started.
    starting: RefCell<Option<RelayLoop>>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay(..)")
    }
}

impl Relay {
    /// The relay that the settings name, if they do. `tell` has live connections told what comes from others.
    pub(crate) fn open(
        core: &CoreHandle,
        settings: &LiveRedis,
        tell: impl Fn(RelayNews) + 'static,
    ) -> Option<Rc<Self>> {
        let url = settings.url.as_ref()?;
        let mut node = NodeId([0; 16]);
        let link = redis_link::begin(url, settings.password.as_ref());
        let drawn = SystemRandom::new().fill(&mut node.0);
        let link = match (link, drawn) {
            (Ok(link), Ok(())) => link,
            (Err(error), _) => {
                tracing::error!(%error, %url, "there is no way to this Redis");
                return None;
            }
            (_, Err(_)) => return None,
        };
        let notify = Rc::new(Notify::new());
        let patterns = settings.topics.iter().filter_map(|pattern| pattern.fill(|_| None));
        let names = (patterns.collect(), settings.prefix.clone());
        let starting =
            RelayLoop::new(core.clone(), node, names, link, notify.clone(), Rc::new(tell));
        Some(Rc::new(Self { calls: Calls::new(notify), starting: RefCell::new(Some(starting)) }))
    }

    /// Other brokers, or one of them, are told of clients that are subscribed here.
    pub(crate) fn announce(
        &self,
        kind: RelayKind,
        topic: TopicName,
        members: Vec<ClientInfo>,
        asker: Option<NodeId>,
    ) {
        self.calls.call(move |relay| relay.announce(kind, &topic, &members, asker));
    }
}

/// Somebody on a core follows what others publish: it comes until this is dropped, and a while longer.
pub(crate) struct Interest {
    cores: Arc<Cores>,
    subject: Subject,
    /// How it is followed: another number when something may have been missed.
    pub(crate) number: u32,
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Interest");
        shown.field("subject", &self.subject).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Interest {
    /// Follows something at other brokers, and waits until Redis says so; nothing, if its messages are not for other brokers.
    pub(crate) async fn in_subject(cores: Arc<Cores>, subject: Subject) -> Option<Self> {
        let (sender, told) = oneshot::channel();
        let mut this = Self { cores, subject, number: 0 };
        let subject = this.subject.clone();
        this.call(move |relay| relay.add(subject, sender));
        let followed = told.await.ok()??;
        this.number = followed.number;
        // Without Redis it is as if the others were silent.
        let _ = timeout(RELAY_PATIENCE, followed.confirmed).await;
        Some(this)
    }

    fn call(&self, act: impl FnOnce(&mut RelayLoop) + Send + 'static) {
        let call = Message::call(move |relay: &Rc<Relay>| relay.calls.call(act));
        // A broker that stops follows nothing.
        let _ = self.cores.inboxes[CoreIndex::FIRST].send(call);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let subject = self.subject.clone();
        self.call(move |relay| relay.remove(&subject));
    }
}

impl TopicListener for Relay {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some(relay) = self.starting.take() else { return };
            spawn_local(relay.run(self));
        })
    }

    fn appeared(self: Rc<Self>, name: &TopicName, topic: TopicId, from: Offset) {
        let name = name.clone();
        self.calls.call(move |relay| relay.follow(name, topic, from));
    }

    fn gone(self: Rc<Self>, _: &TopicName, topic: TopicId) {
        self.calls.call(move |relay| relay.unfollow(topic));
    }
}

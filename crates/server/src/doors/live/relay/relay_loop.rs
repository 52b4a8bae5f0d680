//! The loop of the relay: what readers, Redis and live connections bring, and what is done with it.

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sennit_engine::{
    Command, Credit, Delivery, Effect, GapReason, Origin, Publish, Read, ReaderChange, SessionId,
};
use sennit_identity::FilledPattern;
use sennit_model::{
    BatchBuilder, Header, Message, Messages, Offset, ProducerStamp, TopicId, TopicName, WhenSlow,
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::spawn_local,
    time::{interval, timeout},
};

use super::{
    Relay,
    message::{NodeId, RelayKind, RelayMessage},
    own_topics::{ORIGIN, OwnTopics},
    positions::{Positions, Step},
    redis_link::{Link, LinkEvent, LinkOrder},
};
use crate::{
    broker::{
        control::Control, reserved_names::is_reserved, stream_request::Located,
        streams::wait_for_room,
    },
    doors::live::{
        reader_numbers::ReaderNumbers,
        limits::{RELAY_BYTES, RELAY_LINGER, RELAY_MESSAGES, RELAY_PATIENCE, RELAY_REPEATS_MAX},
        sink::LiveSink,
    },
    identity::principal::Principal,
    runtime::{core::CoreHandle, index::CoreIndex},
};

/// How often it is looked who has not answered, and what nobody follows any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a topic is followed at other brokers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// Another one when something of others may have been missed.
    pub(crate) number: u32,
}

/// A topic that somebody here is subscribed to, or was a while ago.
#[derive(Debug, Default)]
struct Wanted {
    cores: BTreeSet<CoreIndex>,
    /// When nobody was subscribed any more.
    left: Option<Instant>,
    /// See [`Followed`]; none before Redis has said that it is followed.
    number: Option<u32>,
}

/// See the file's page.
pub(super) struct RelayLoop {
    core: CoreHandle,
    node: NodeId,
    /// The topics whose messages go to others and come from them.
    topics: Vec<FilledPattern>,
    prefix: String,
    orders: mpsc::Sender<LinkOrder>,
    events: Option<mpsc::Receiver<LinkEvent>>,
    sink: Rc<LiveSink>,
    session: SessionId,
    readers: ReaderNumbers,
    own: OwnTopics,
    wanted: HashMap<TopicName, Wanted, RandomState>,
    positions: Positions,
    numbers: u32,
    tell: Rc<dyn Fn(TopicName)>,
    /// Set when it runs.
    relay: Option<Rc<Relay>>,
}

impl RelayLoop {
    pub(super) fn new(
        core: CoreHandle,
        node: NodeId,
        (topics, prefix): (Vec<FilledPattern>, String),
        (orders, events): Link,
        notify: Rc<Notify>,
        tell: Rc<dyn Fn(TopicName)>,
    ) -> Self {
        let sink = Rc::new(LiveSink::new(notify));
        let session = core.with(|core| core.open_own_session(sink.clone()));
        Self {
            core,
            node,
            topics,
            prefix,
            orders,
            events: Some(events),
            sink,
            session,
            readers: ReaderNumbers::default(),
            own: OwnTopics::default(),
            wanted: HashMap::default(),
            positions: Positions::default(),
            // Drawn, so that no other start of the broker has the same.
            numbers: u32::from_le_bytes([node.0[0], node.0[1], node.0[2], node.0[3]]),
            tell,
            relay: None,
        }
    }

    /// Runs until the broker stops.
    pub(super) async fn run(mut self, relay: Rc<Relay>) {
        let Some(mut events) = self.events.take() else { return };
        self.relay = Some(relay.clone());
        let sink = self.sink.clone();
        let node_channel = self.node_channel(self.node);
        self.order(LinkOrder::Subscribe(node_channel, oneshot::channel().0));
        self.follow_all().await;
        let mut looking = interval(LOOK_EVERY);
        looking.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            for act in relay.calls.take() {
                act(&mut self);
            }
            self.take_effects();
            if self.sink.is_closing() {
                return;
            }
            tokio::select! {
                event = events.recv() => match event {
                    None => return,
                    Some(LinkEvent::Up) => self.is_up().await,
                    Some(LinkEvent::Message(bytes)) => self.take(bytes).await,
                },
                () = sink.notify.notified() => {}
                _ = looking.tick() => self.look().await,
            }
        }
    }

    fn topic_channel(&self, topic: &TopicName) -> String {
        format!("{}:topic:{topic}", self.prefix)
    }

    fn node_channel(&self, node: NodeId) -> String {
        format!("{}:node:{node}", self.prefix)
    }

    fn is_for_others(&self, name: &TopicName) -> bool {
        !is_reserved(name) && self.topics.iter().any(|pattern| pattern.matches(name.as_str()))
    }

    /// Orders something, behind what was ordered before.
    fn order(&self, order: LinkOrder) {
        let orders = self.orders.clone();
        spawn_local(async move {
            // The link ends with the broker.
            let _ = orders.send(order).await;
        });
    }

    /// Sends a message; then the room is given back that its reader has used.
    fn send(&self, channel: String, message: &RelayMessage, taken: Option<(u32, u32, u64)>) {
        let (orders, bytes) = (self.orders.clone(), message.encode());
        let relay = self.relay.clone();
        let (done, confirmed) = oneshot::channel();
        spawn_local(async move {
            let sent = orders.send(LinkOrder::Publish(channel, bytes, done)).await;
            if let (Ok(()), Some(relay), Some((reader, messages, bytes))) = (sent, relay, taken)
                && confirmed.await.is_ok()
            {
                relay.calls.call(move |relay| relay.give_back(reader, messages, bytes));
            }
        });
    }

    fn give_back(&mut self, reader: u32, messages: u32, bytes: u64) {
        if let Some(sending) = self.own.get(reader) {
            self.change(reader, sending.located, ReaderChange::Taken { messages, bytes });
        }
    }

    fn change(&self, subscription: u32, located: Located, change: ReaderChange) {
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let command = Command::Reader { session: self.session, subscription, partition, change };
        self.core.with(|core| core.command(shard, command));
    }

    fn end(&mut self, reader: u32, located: Located) {
        self.readers.end(reader);
        self.change(reader, located, ReaderChange::End);
    }

    /// Begins a reader at an offset.
    fn read(&mut self, located: Located, at: u64) -> u32 {
        let Self { readers, own, .. } = self;
        let subscription = readers.begin(|number| own.get(number).is_some());
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let read = Read {
            origin: Origin { session: self.session, request: subscription.into() },
            subscription,
            partition,
            at: Offset(at),
            credit: Credit { messages: RELAY_MESSAGES, bytes: RELAY_BYTES },
            cursor: None,
            when_slow: WhenSlow::Wait,
            filter: None,
        };
        self.core.with(|core| core.command(shard, Command::Read(read)));
        subscription
    }

    /// Follows the topics that there are when the broker starts, from their ends.
    async fn follow_all(&mut self) {
        let Some(control) = self.core.services.find::<Control>() else { return };
        let names = self.core.look(|core| {
            let topics = core.catalogue().topics().filter(|topic| topic.config().partitions == 1);
            topics.map(|topic| topic.created.name.clone()).collect::<Vec<_>>()
        });
        for name in names {
            if !self.is_for_others(&name) {
                continue;
            }
            if let Ok(start) = control.locate_live(&Principal::broker(), &name).await {
                self.follow(name, start.located.topic, start.end);
            }
        }
    }

    /// Follows a topic of this broker.
    pub(super) fn follow(&mut self, name: TopicName, topic: TopicId, from: Offset) {
        let located = self.core.look(|core| core.catalogue().topic(topic).map(Located::of));
        let Some(located) = located.filter(|located| located.partitions == 1) else { return };
        if !self.is_for_others(&name) || self.own.follows(topic) {
            return;
        }
        let reader = self.read(located, from.0);
        self.own.follow(reader, name, located, from.0);
    }

    /// A topic of this broker is gone.
    pub(super) fn unfollow(&mut self, topic: TopicId) {
        for (reader, located) in self.own.forget_topic(topic) {
            self.end(reader, located);
        }
    }

    fn take_effects(&mut self) {
        for effect in self.sink.take_all(Vec::new()) {
            match effect {
                Effect::Deliver(delivery) => self.deliver(&delivery),
                Effect::Gap { subscription, range, reason, .. } => {
                    let is_lost = !matches!(reason, GapReason::Compacted | GapReason::Filtered);
                    let told = self.own.pass_over(subscription, range.end.0, is_lost, self.node);
                    self.pass_on(subscription, told, None);
                }
                Effect::SubscriptionEnded { subscription, .. } => {
                    self.own.forget(subscription);
                }
                Effect::Refused { origin, .. } => {
                    self.own.forget(u32::try_from(origin.request).unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        let taken = (delivery.subscription, delivery.count, delivery.messages.len() as u64);
        let message = self.own.take(delivery, self.node);
        self.pass_on(delivery.subscription, message, Some(taken));
    }

    /// Sends what a reader has brought, if there is something for others.
    fn pass_on(
        &mut self,
        reader: u32,
        message: Option<RelayMessage>,
        taken: Option<(u32, u32, u64)>,
    ) {
        let Some(sending) = self.own.get(reader) else { return };
        let (located, is_done) = (sending.located, sending.is_done());
        match (message, taken) {
            (Some(message), taken) => {
                let channel = match sending.asker {
                    Some(asker) => self.node_channel(asker),
                    None => self.topic_channel(&message.topic),
                };
                self.send(channel, &message, taken);
            }
            (None, Some((reader, messages, bytes))) => self.give_back(reader, messages, bytes),
            (None, None) => {}
        }
        if is_done {
            self.own.forget(reader);
            self.end(reader, located);
        }
    }

    /// There is a connection with Redis, and there may have been none.
    async fn is_up(&mut self) {
        // Others learn whether they have missed the last of something.
        for hello in self.own.hellos(self.node) {
            self.send(self.topic_channel(&hello.topic), &hello, None);
        }
        let steps = self.positions.ask_all(Instant::now());
        self.act(steps).await;
    }

    /// Takes a message from Redis.
    async fn take(&mut self, bytes: Bytes) {
        let message = match RelayMessage::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                return tracing::warn!(%error, "Redis has brought what no broker sends");
            }
        };
        if message.node == self.node {
            return;
        }
        if message.kind == RelayKind::Question {
            return self.answer(&message);
        }
        if self.wanted.contains_key(&message.topic) {
            let steps = self.positions.take(message, Instant::now());
            self.act(steps).await;
        }
    }

    /// Another broker asks for what was published here.
    fn answer(&mut self, question: &RelayMessage) {
        let (name, asker) = (question.topic.clone(), question.node);
        let located = self.core.look(|core| core.catalogue().topic_named(&name).map(Located::of));
        let Some(located) = located.filter(|it| it.tag.number() == question.tag) else { return };
        let Some(until) = self.own.sent_of(located.topic) else { return };
        if question.from >= until {
            let (kind, node, from) = (RelayKind::Again, self.node, until);
            let message = RelayMessage { kind, node, from, end: until, ..question.clone() };
            return self.send(self.node_channel(asker), &message, None);
        }
        if self.own.repeats() >= RELAY_REPEATS_MAX {
            return;
        }
        let reader = self.read(located, question.from);
        self.own.repeat(reader, (name, located), asker, (question.from, until));
    }

    async fn act(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Publish(message) => self.publish(&message).await,
                Step::Ask { node, topic, tag, from } => {
                    let (kind, messages) = (RelayKind::Question, Vec::new());
                    let question = RelayMessage {
                        kind,
                        node: self.node,
                        topic,
                        tag,
                        from,
                        end: from,
                        messages,
                    };
                    self.send(self.node_channel(node), &question, None);
                }
                Step::Tell(topic) => {
                    let number = self.next_number();
                    if let Some(wanted) = self.wanted.get_mut(&topic) {
                        wanted.number = Some(number);
                    }
                    tracing::warn!(%topic, "messages of another broker are missing");
                    (self.tell)(topic);
                }
            }
        }
    }

    /// Publishes here what was published at another broker.
    async fn publish(&self, message: &RelayMessage) {
        let named = |name: &TopicName| core_topic(&self.core, name);
        let Some(located) = named(&message.topic).filter(|located| located.partitions == 1) else {
            return;
        };
        let mut builder = BatchBuilder::for_broker();
        for (offset, encoded) in &message.messages {
            for view in Messages::of_checked(encoded) {
                let text = format!("{}:{}:{offset}", message.node, message.tag);
                let headers = view.headers().map_while(Result::ok);
                let mut headers: Vec<Header> = headers
                    .map(|(name, kind, value)| {
                        let value = encoded.slice_ref(value);
                        Header { name: name.to_owned(), kind, value }
                    })
                    .collect();
                headers.push(Header::text(ORIGIN, text));
                let copy = Message {
                    key: encoded.slice_ref(view.key()),
                    headers,
                    payload: encoded.slice_ref(view.payload()),
                    delay: None,
                    time_to_live: view.time_to_live(),
                };
                if let Err(error) = builder.push(&copy) {
                    tracing::warn!(%error, topic = %message.topic, "a message of another broker is not published");
                }
            }
        }
        let Some(batch) = builder.take() else { return };
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let bytes = batch.bytes().len() as u64;
        if wait_for_room(&self.core, shard, bytes).await.is_err() {
            // Whoever follows it here is told.
            return (self.tell)(message.topic.clone());
        }
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            let producer = ProducerStamp::default();
            core.command(shard, Command::Publish(Publish { origin, partition, producer, batch }));
            answer
        });
        let (tell, topic) = (self.tell.clone(), message.topic.clone());
        spawn_local(async move {
            if let Ok(Err(refusal)) = answer.await {
                tracing::warn!(%topic, %refusal, "messages of another broker are not published");
                tell(topic);
            }
        });
    }

    pub(super) fn want(
        &mut self,
        topic: TopicName,
        core: CoreIndex,
        told: oneshot::Sender<Option<Followed>>,
    ) {
        if !self.is_for_others(&topic) {
            let _ = told.send(None);
            return;
        }
        let (channel, next) = (self.topic_channel(&topic), self.next_number());
        let wanted = self.wanted.entry(topic).or_default();
        wanted.cores.insert(core);
        wanted.left = None;
        let number = *wanted.number.get_or_insert(next);
        let orders = self.orders.clone();
        spawn_local(async move {
            // Whoever comes second waits as well: it may not be followed yet.
            let (done, confirmed) = oneshot::channel();
            let subscribe = LinkOrder::Subscribe(channel, done);
            // Without Redis it is as if the others were silent.
            let waits = async { orders.send(subscribe).await.is_ok() && confirmed.await.is_ok() };
            let _ = timeout(RELAY_PATIENCE, waits).await;
            let _ = told.send(Some(Followed { number }));
        });
    }

    /// A number that no topic was followed by before.
    fn next_number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1).max(1);
        self.numbers
    }

    pub(super) fn leave(&mut self, topic: &TopicName, core: CoreIndex) {
        if let Some(wanted) = self.wanted.get_mut(topic) {
            wanted.cores.remove(&core);
            if wanted.cores.is_empty() {
                wanted.left = Some(Instant::now());
            }
        }
    }

    /// Time has passed.
    async fn look(&mut self) {
        let now = Instant::now();
        let is_over = |wanted: &Wanted| {
            wanted.left.is_some_and(|left| now.duration_since(left) >= RELAY_LINGER)
        };
        let over: Vec<TopicName> =
            self.wanted.extract_if(|_, wanted| is_over(wanted)).map(|(topic, _)| topic).collect();
        for topic in over {
            self.positions.forget(&topic);
            self.order(LinkOrder::Unsubscribe(self.topic_channel(&topic)));
        }
        let steps = self.positions.look(now);
        self.act(steps).await;
    }
}

fn core_topic(core: &CoreHandle, name: &TopicName) -> Option<Located> {
    core.look(|core| core.catalogue().topic_named(name).map(Located::of))
}

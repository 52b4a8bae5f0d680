//! The loop of the relay: what readers, Redis and live connections bring, and what is done with it.

mod presence;

use std::{
    collections::{HashMap, VecDeque},
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
    time::interval,
};

use super::{
    Relay, RelayNews,
    interests::{Followed, Interests, Subject, topic_channel},
    message::{NodeId, RelayKind, RelayMessage},
    own_topics::{ORIGIN, OwnTopics},
    positions::{Positions, Step},
    redis_link::{Channel, Link, LinkEvent, LinkOrder},
};
use crate::{
    broker::{
        control::Control, reserved_names::is_reserved, stream_request::Located,
        streams::wait_for_room,
    },
    doors::live::{
        limits::{RELAY_BYTES, RELAY_MESSAGES, RELAY_REPEATS_MAX},
        reader_numbers::ReaderNumbers,
        sink::LiveSink,
    },
    identity::principal::Principal,
    runtime::core::CoreHandle,
};

/// How often it is looked who has not answered, and what nobody follows any more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    interests: Interests,
    positions: Positions,
    tell: Rc<dyn Fn(RelayNews)>,
    /// Other brokers, and when they were heard last.
    neighbors: HashMap<NodeId, Instant, RandomState>,
    /// When this one has said last that it is there.
    alive_at: Instant,
    /// What others are to be told of clients here.
    untold: VecDeque<LinkOrder>,
    /// Whether more was to be told than may wait.
    was_too_much: bool,
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
        tell: Rc<dyn Fn(RelayNews)>,
    ) -> Self {
        let sink = Rc::new(LiveSink::new(notify));
        let session = core.with(|core| core.open_own_session(sink.clone()));
        // Drawn, so that no other start of the broker has the same.
        let numbers = u32::from_le_bytes([node.0[0], node.0[1], node.0[2], node.0[3]]);
        let interests = Interests::new(prefix.clone(), numbers);
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
            interests,
            positions: Positions::default(),
            tell,
            neighbors: HashMap::default(),
            alive_at: Instant::now(),
            untold: VecDeque::new(),
            was_too_much: false,
            relay: None,
        }
    }

    /// Runs until the broker stops.
    pub(super) async fn run(mut self, relay: Rc<Relay>) {
        let Some(mut events) = self.events.take() else { return };
        self.relay = Some(relay.clone());
        let sink = self.sink.clone();
        let node_channel = Channel::Name(self.node_channel(self.node));
        self.order(LinkOrder::Subscribe(node_channel, oneshot::channel().0));
        let alive_channel = Channel::Name(self.alive_channel());
        self.order(LinkOrder::Subscribe(alive_channel, oneshot::channel().0));
        self.follow_all().await;
        let orders = self.orders.clone();
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
                    Some(LinkEvent::Message(bytes, glob)) => {
                        self.take(bytes, glob.as_deref()).await;
                    }
                },
                Ok(place) = orders.reserve(), if !self.untold.is_empty() => {
                    if let Some(order) = self.untold.pop_front() {
                        place.send(order);
                    }
                }
                () = sink.notify.notified() => {}
                _ = looking.tick() => self.look().await,
            }
        }
    }

    fn topic_channel(&self, topic: &TopicName) -> String {
        topic_channel(&self.prefix, topic)
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
                Effect::SubscriptionEnded { subscription, .. }
                | Effect::SubscriptionInterrupted { subscription, .. } => {
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
        self.interests.note_up();
        // Others learn whether they have missed the last of something.
        for hello in self.own.hellos(self.node) {
            self.send(self.topic_channel(&hello.topic), &hello, None);
        }
        // All is told anew.
        self.untold.clear();
        self.meet_neighbors();
        let steps = self.positions.ask_all(Instant::now());
        self.act(steps).await;
    }

    /// Takes a message from Redis, which has sent it for a pattern, or because its topic is followed by name.
    async fn take(&mut self, bytes: Bytes, glob: Option<&str>) {
        let message = match RelayMessage::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                return tracing::warn!(%error, "Redis has brought what no broker sends");
            }
        };
        if message.node == self.node {
            return;
        }
        match message.kind {
            RelayKind::Question => return self.answer(&message),
            RelayKind::News | RelayKind::Again | RelayKind::Gone => {}
            _ => return self.take_of_presence(&message),
        }
        if self.interests.want(&message.topic, glob) && self.is_for_others(&message.topic) {
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
                    self.interests.note_missed(&topic);
                    tracing::warn!(%topic, "messages of another broker are missing");
                    (self.tell)(RelayNews::Missed(topic));
                }
            }
        }
    }

    /// Publishes here what was published at another broker.
    async fn publish(&self, message: &RelayMessage) {
        if message.messages.is_empty() {
            return;
        }
        let located = match core_topic(&self.core, &message.topic) {
            None => self.create(&message.topic).await,
            located => located,
        };
        let Some(located) = located.filter(|located| located.partitions == 1) else { return };
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
            return (self.tell)(RelayNews::Missed(message.topic.clone()));
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
                tell(RelayNews::Missed(topic));
            }
        });
    }

    /// A topic that another broker has and this one has not, if a pattern means it: it becomes a channel here.
    async fn create(&self, topic: &TopicName) -> Option<Located> {
        if !self.interests.has_pattern_for(topic) {
            return None;
        }
        let control = self.core.services.find::<Control>()?;
        match control.begin_live(&Principal::broker(), topic).await {
            Ok(start) => Some(start.located),
            Err(refusal) => {
                tracing::warn!(%topic, %refusal, "a topic of another broker is not created");
                None
            }
        }
    }

    pub(super) fn add(&mut self, subject: Subject, told: oneshot::Sender<Option<Followed>>) {
        if let Subject::Topic(topic) = &subject
            && !self.is_for_others(topic)
        {
            let _ = told.send(None);
            return;
        }
        let (followed, asks) = self.interests.add(&subject);
        let _ = told.send(Some(followed));
        if let (Some(channel), Some(relay)) = (asks, self.relay.clone()) {
            let orders = self.orders.clone();
            spawn_local(async move {
                let (done, confirmed) = oneshot::channel();
                let subscribe = LinkOrder::Subscribe(channel, done);
                let is_confirmed = orders.send(subscribe).await.is_ok() && confirmed.await.is_ok();
                relay.calls.call(move |relay| relay.confirm(&subject, is_confirmed));
            });
        }
    }

    pub(super) fn remove(&mut self, subject: &Subject) {
        self.interests.remove(subject, Instant::now());
    }

    /// Time has passed.
    async fn look(&mut self) {
        let now = Instant::now();
        let over = self.interests.let_go(now);
        for (subject, channel) in over {
            self.order(LinkOrder::Unsubscribe(channel));
            if let Subject::Topic(topic) = &subject {
                (self.tell)(RelayNews::Unfollowed(topic.clone()));
            }
            let Self { positions, interests, .. } = self;
            positions.forget(|topic| {
                let was_meant = match &subject {
                    Subject::Topic(name) => name == topic,
                    Subject::Pattern(pattern) => pattern.matches(topic),
                };
                was_meant && !interests.want(topic, None) && !interests.has_pattern_for(topic)
            });
        }
        self.look_at_neighbors(now);
        let steps = self.positions.look(now);
        self.act(steps).await;
    }
}

fn core_topic(core: &CoreHandle, name: &TopicName) -> Option<Located> {
    core.look(|core| core.catalogue().topic_named(name).map(Located::of))
}

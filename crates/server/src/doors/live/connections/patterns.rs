//! Subscriptions to patterns: to all topics that match, also those that come later. A pattern has rings of its own, which the
//! broadcasts of its topics fill; who falls behind subscribes anew, as there is no one log to go on from.

use std::{rc::Rc, sync::Arc};

use sennit_centrifuge::{
    Answer, ErrorCode, ReplyError, SubscribeRequest, SubscribeResult, UnsubscribeCode,
};
use sennit_engine::Delivery;
use sennit_model::{PatternError, TopicName, TopicPattern};
use tokio::{sync::mpsc, task::spawn_local};

use super::{LiveCalls, LiveConnections};
use crate::{
    broker::{
        control::{CHANGES_WAITING_MAX, Change, LiveStart, WatchedTopic, ask_control, watch},
        control_request::ControlRefusal,
    },
    doors::live::{
        backend::Backend,
        broadcast::Broadcast,
        connection::{Place, Subscription},
        connection_id::ConnectionId,
        core_requests::{CoreRequests, reply_error},
        limits::{PATTERN_TOPICS_MAX, PATTERNS_MAX, SUBSCRIPTIONS_MAX},
        relay::Subject,
        source::{PatternFilter, PatternSource, SharedPattern, Waiting},
    },
    identity::principal::Principal,
    runtime::core::Cores,
};

/// Topics, each with what it keeps.
type Located = Vec<(TopicName, LiveStart)>;

impl LiveConnections {
    /// A client wants to be subscribed to all topics that a pattern means.
    pub(super) fn subscribe_to_pattern(
        &mut self,
        connection: ConnectionId,
        command: u32,
        request: &SubscribeRequest,
        pattern: Result<TopicPattern, PatternError>,
    ) {
        let Self { connections, broadcasts, .. } = self;
        let held = connections.get_mut(connection.slot as usize).and_then(Option::as_mut);
        let Some(client) = held.filter(|held| held.id == connection) else { return };
        let pattern = match pattern {
            Ok(pattern) => pattern,
            Err(error) => {
                return client.refuse(command, ErrorCode::BadRequest, error.to_string());
            }
        };
        if request.kind != 0 {
            let detail = "subscriptions are to streams: other types are not served";
            return client.refuse(command, ErrorCode::BadRequest, detail);
        }
        if client.subscription(&request.channel).is_some() {
            let detail = ErrorCode::AlreadySubscribed.message();
            return client.refuse(command, ErrorCode::AlreadySubscribed, detail);
        }
        if request.recover && request.flag & SubscribeRequest::REJECT_UNRECOVERED != 0 {
            let detail = "a pattern has no history: what was missed is in its topics";
            return client.refuse(command, ErrorCode::UnrecoverablePosition, detail);
        }
        if !request.token.is_empty() {
            let detail =
                "a pattern has the topics that the connection may have: leave the token out";
            return client.refuse(command, ErrorCode::BadRequest, detail);
        }
        let is_pattern = |held: &&Subscription| {
            broadcasts.get(&held.broadcast).is_some_and(|of| of.pattern().is_some())
        };
        if client.subscriptions.iter().filter(is_pattern).count() >= PATTERNS_MAX {
            let detail = format!("PATTERNS_MAX is {PATTERNS_MAX}");
            return client.refuse(command, ErrorCode::LimitExceeded, detail);
        }
        let Some((shared, rights)) = SharedPattern::of(&pattern, &client.principal) else {
            let detail = format!("missing right: subscribe {:?}", pattern.as_str());
            return client.refuse(command, ErrorCode::PermissionDenied, detail);
        };
        client.is_busy = true;
        let waiting = Waiting { connection, command, recovers: request.recover };
        let number = match self.patterns.get(&shared) {
            Some(&number) => number,
            None => self.follow_pattern(&request.channel, PatternSource::new(shared, rights)),
        };
        let source = self.broadcasts.get_mut(&number).and_then(Broadcast::pattern_mut);
        match source.and_then(|source| source.waiting.as_mut()) {
            Some(all) => all.push(waiting),
            None => self.begin_in_pattern(number, &waiting),
        }
    }

    /// Begins to follow a pattern; returns the number of its broadcast.
    fn follow_pattern(&mut self, channel: &str, source: PatternSource) -> u32 {
        let number = self.next_number();
        let (shared, filter) = (source.shared.clone(), source.filter());
        let follower = Follower { number, filter, requests: self.requests.clone() };
        let (cores, calls) = (self.core.cores.clone(), self.calls.clone());
        let watching = spawn_local(follower.follow(cores, calls, shared.pattern.clone()));
        let mut source = source;
        source.watching = Some(watching.abort_handle());
        self.broadcasts.insert(number, Broadcast::of_pattern(channel.into(), source));
        self.patterns.insert(shared, number);
        number
    }

    /// The topics of a pattern are known: its subscriptions begin.
    fn pattern_found(&mut self, number: u32, found: Result<Located, ReplyError>) {
        let Some(source) = self.broadcasts.get_mut(&number).and_then(Broadcast::pattern_mut) else {
            return;
        };
        let waiting = source.waiting.take().unwrap_or_default();
        match found {
            Ok(topics) => {
                for (name, start) in topics {
                    self.attach(number, name, &start, start.end.0);
                }
                waiting.iter().for_each(|waiting| self.begin_in_pattern(number, waiting));
                self.end_if_forsaken(number);
            }
            Err(error) => {
                for waiting in waiting {
                    let Some(connection) = self.get(waiting.connection) else { continue };
                    connection.is_busy = false;
                    connection.reply(waiting.command, Err(error.clone()));
                    self.to_flush.add(waiting.connection);
                    self.to_read.push(waiting.connection.slot);
                }
                self.forget_pattern(number);
            }
        }
    }

    fn begin_in_pattern(&mut self, number: u32, waiting: &Waiting) {
        let Self { connections, broadcasts, .. } = self;
        let id = waiting.connection;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let Some(connection) = held.filter(|held| held.id == id) else { return };
        let Some(broadcast) = broadcasts.get_mut(&number) else { return };
        connection.is_busy = false;
        self.to_flush.add(id);
        self.to_read.push(id.slot);
        if connection.is_ending() {
            return;
        }
        if connection.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let detail = format!("SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}");
            return connection.refuse(waiting.command, ErrorCode::LimitExceeded, detail);
        }
        broadcast.add(id, connection.format());
        connection.subscriptions.push(Subscription {
            channel: broadcast.channel.clone(),
            broadcast: number,
            next: broadcast.next,
            is_told: false,
            is_server_side: false,
            principal: None,
            place: Place::Ring(broadcast.ring(connection.format()).tail()),
        });
        self.thread_state.metrics.live_subscriptions.add(1);
        // Nothing can be recovered, and that is said.
        let result =
            SubscribeResult { was_recovering: waiting.recovers, ..SubscribeResult::default() };
        connection.reply(waiting.command, Ok(Answer::Subscribe(result)));
    }

    /// A pattern means a topic, whose messages count from this offset on.
    fn attach(&mut self, number: u32, name: TopicName, start: &LiveStart, at: u64) {
        let topic = self.broadcast(&name, (start.located, start.live), at);
        if let Some(source) = self.broadcasts.get_mut(&topic).and_then(Broadcast::topic_mut)
            && source.patterns.iter().all(|(pattern, _)| *pattern != number)
        {
            source.patterns.push((number, at));
        }
        if let Some(source) = self.broadcasts.get_mut(&number).and_then(Broadcast::pattern_mut) {
            source.topics.insert(name, topic);
        }
    }

    /// A topic has come that a pattern means.
    fn topic_appeared(&mut self, number: u32, topics: Located) {
        for (name, start) in topics {
            let source = self.broadcasts.get(&number).and_then(Broadcast::pattern);
            let Some(source) = source else { return };
            if source.topics.len() >= PATTERN_TOPICS_MAX {
                // Who subscribes again is told.
                return self.end_pattern(number);
            }
            self.attach(number, name, &start, start.kept_from.0);
        }
    }

    /// The broadcast of a topic ends: patterns do not follow it any more.
    pub(super) fn detach(&mut self, topic: u32, name: &TopicName, patterns: &[(u32, u64)]) {
        for (number, _) in patterns {
            let source = self.broadcasts.get_mut(number).and_then(Broadcast::pattern_mut);
            if let Some(source) = source
                && source.topics.get(name) == Some(&topic)
            {
                source.topics.remove(name);
            }
        }
    }

    /// Messages of a topic go to a pattern that means it, those from this offset on.
    pub(super) fn deliver_to_pattern(
        &mut self,
        number: u32,
        topic: &str,
        from: u64,
        delivery: &Delivery,
    ) {
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        let before = broadcast.held();
        broadcast.take_of_topic(topic, from, delivery, &mut self.scratch);
        self.rings_bytes = self.rings_bytes + broadcast.held() - before;
        self.note_news(number);
    }

    /// What the subscribers of a pattern have is not all: they subscribe anew.
    pub(super) fn end_pattern(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        for connection in broadcast.subscribers.clone() {
            self.unsubscribe_from(connection, number, UnsubscribeCode::InsufficientState);
        }
        let error = ReplyError::from(ErrorCode::Internal);
        self.pattern_found(number, Err(error));
    }

    /// Nobody is subscribed to a pattern any more.
    pub(super) fn forget_pattern(&mut self, number: u32) {
        let Some(mut broadcast) = self.broadcasts.remove(&number) else { return };
        self.numbers.end(number);
        self.rings_bytes -= broadcast.held();
        let Some(source) = broadcast.pattern_mut() else { return };
        self.patterns.remove(&source.shared);
        for topic in source.topics.values() {
            if let Some(of) = self.broadcasts.get_mut(topic).and_then(Broadcast::topic_mut) {
                of.patterns.retain(|(pattern, _)| *pattern != number);
            }
            self.give_back_to_reader(*topic);
            self.end_if_forsaken(*topic);
        }
    }
}

/// The task that knows the topics of a pattern.
struct Follower {
    /// The number of the broadcast.
    number: u32,
    filter: PatternFilter,
    requests: CoreRequests,
}

impl Follower {
    /// Finds the topics of a pattern, and tells the loop of them and of those that come, until nobody is subscribed to it.
    async fn follow(self, cores: Arc<Cores>, calls: Rc<LiveCalls>, pattern: TopicPattern) {
        let number = self.number;
        // It ends with this task.
        let _interest = self.requests.follow_elsewhere(Subject::Pattern(pattern.clone())).await;
        let (changes, mut received) = mpsc::channel(CHANGES_WAITING_MAX);
        let watched = watch(&cores, Principal::broker(), pattern, changes).await;
        let found = match watched.unwrap_or(Err(ControlRefusal::ShuttingDown)) {
            Ok(topics) => self.find(&cores, topics).await,
            Err(refusal) => Err(reply_error(&refusal)),
        };
        calls.call(move |live| live.pattern_found(number, found));
        while let Some(change) = received.recv().await {
            // Of one that is gone, its shard tells.
            let Change::Appeared(topic) = change else { continue };
            if let Ok(topics) = self.find(&cores, vec![topic]).await
                && !topics.is_empty()
            {
                calls.call(move |live| live.topic_appeared(number, topics));
            }
        }
        // More has changed than could be told.
        calls.call(move |live| live.end_pattern(number));
    }

    /// Where those topics begin that are delivered.
    async fn find(&self, cores: &Cores, topics: Vec<WatchedTopic>) -> Result<Located, ReplyError> {
        let delivered = topics.into_iter().filter(|topic| self.delivers(topic));
        let names: Vec<_> = delivered.map(|topic| topic.name).collect();
        if names.len() > PATTERN_TOPICS_MAX {
            let count = names.len();
            let detail =
                format!("{count} topics match, and PATTERN_TOPICS_MAX is {PATTERN_TOPICS_MAX}");
            return Err(ReplyError::new(ErrorCode::LimitExceeded, detail));
        }
        let located =
            ask_control(cores, move |control| async move { control.locate_each(names).await });
        located.await.map_err(|refusal| reply_error(&refusal))
    }

    /// Whether a topic is delivered: one of those of which the application decides for each client is not.
    fn delivers(&self, topic: &WatchedTopic) -> bool {
        let is_asked = |backend: &Backend| backend.is_asked_to_subscribe(&topic.name);
        topic.partitions == 1
            && self.filter.lets(&topic.name)
            && !self.requests.backend().is_some_and(is_asked)
    }
}

//! Subscriptions of live connections begin, catch up and end. Live messages and earlier ones go through the same broadcast, and
//! the right to them is asked for in one place.

use std::rc::Rc;

use sennit_centrifuge::{ErrorCode, ReplyError, SubscribeResult, UnsubscribeCode};
use sennit_engine::{Command as ShardCommand, Credit, Origin, Read, ReaderChange};
use sennit_model::{LiveSettings, Offset, TopicName, WhenSlow};

use super::{CatchUp, LiveConnections};
use crate::{
    broker::{control::LiveStart, stream_request::Located},
    doors::live::{
        broadcast::Broadcast,
        connection::{Place, Subscription, time_to_refresh},
        connection_id::ConnectionId,
        core_requests::{Beginning, Cause, SubscriptionStart},
        format::Format,
        limits::{
            BROADCAST_BYTES, BROADCAST_MESSAGES, CATCH_UP_BYTES, CATCH_UP_MESSAGES,
            CATCH_UP_SHARE_BYTES, CATCH_UPS_BYTES_MAX, SUBSCRIPTIONS_MAX, UNSENT_BYTES_MAX,
        },
        relay::Interest,
        source::MessageSource,
    },
    identity::principal::Principal,
    runtime::clock::now,
};

/// A connection that is not there any more.
pub(super) fn has_gone() -> ReplyError {
    ReplyError::new(ErrorCode::Internal, "the connection has gone")
}

/// The epoch of a topic as clients hold it.
pub(super) fn epoch(located: Located) -> String {
    located.tag.number().to_string()
}

impl LiveConnections {
    /// It is known where a subscription begins: it does. What the client is told of it comes before anything of it.
    pub(super) fn begin_at(
        &mut self,
        id: ConnectionId,
        mut beginning: Beginning,
        start: SubscriptionStart,
    ) -> Result<SubscribeResult, ReplyError> {
        let connection = self.get(id).ok_or_else(has_gone)?;
        beginning.check_rights(beginning.principal.as_ref().unwrap_or(&connection.principal))?;
        // A program may have subscribed it meanwhile.
        if connection.subscription(&beginning.channel).is_some() {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if connection.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let detail = format!("SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}");
            return Err(ReplyError::new(ErrorCode::LimitExceeded, detail));
        }
        match (beginning.group.take(), start) {
            (None, SubscriptionStart::Topic(start)) => self.begin_in_topic(id, beginning, start),
            (Some(group), SubscriptionStart::Group(start)) => {
                self.begin_in_group(id, beginning, &group, start)
            }
            // It was asked where this one begins, and not the other.
            _ => Err(ErrorCode::Internal.into()),
        }
    }

    fn begin_in_topic(
        &mut self,
        id: ConnectionId,
        beginning: Beginning,
        start: LiveStart,
    ) -> Result<SubscribeResult, ReplyError> {
        let LiveStart { located, kept_from, end, live } = start;
        let Beginning { channel, topic, recovers, rejects_unrecovered, .. } = beginning;
        let Beginning { is_told, data, principal, answer, cause, interest, .. } = beginning;
        let refused = |code, detail: String| Err(ReplyError::new(code, detail));
        let connection = self.get(id).ok_or_else(has_gone)?;
        let format = connection.format();
        let refresh = principal.as_ref().and_then(Principal::expires);
        let refresh = refresh.map(|at| time_to_refresh(at, now()));
        if located.partitions > 1 {
            let detail = format!(
                "topic {:?} has {} partitions: live subscriptions are to topics of one",
                topic.as_str(),
                located.partitions
            );
            return refused(ErrorCode::BadRequest, detail);
        }
        let number = self.broadcast(&topic, (located, live), end.0);
        let number = match interest {
            Some(interest) => self.follow_by(number, &topic, (located, live), end.0, interest),
            None => number,
        };
        let held = self.broadcasts.get(&number).and_then(Broadcast::located);
        let located = held.unwrap_or(located);
        let gap = self.gaps.get(&located.topic).copied().unwrap_or_default();
        let broadcast = self.broadcasts.get_mut(&number).ok_or_else(has_gone)?;
        // Nothing is lost between what it had and what it gets: it may go on there.
        let recoverable = kept_from.0.max(gap)..=end.0.max(broadcast.next);
        // No epoch is any: an application that begins with the first message of a topic may not know it.
        let is_of = |of: &str| of.is_empty() || of == epoch(located);
        let recovered =
            recovers.as_ref().is_some_and(|(of, next)| is_of(of) && recoverable.contains(next));
        if rejects_unrecovered && recovers.is_some() && !recovered {
            self.end_if_forsaken(number);
            let detail =
                "messages behind this position are not kept any more, or are of another topic";
            return refused(ErrorCode::UnrecoverablePosition, detail.to_owned());
        }
        let next = match &recovers {
            Some((_, next)) if recovered => *next,
            _ => broadcast.next,
        };
        let keeps_presence = broadcast.live().presence;
        let before = broadcast.held();
        broadcast.add(id, format);
        self.rings_bytes = self.rings_bytes + broadcast.held() - before;
        let place = broadcast.position_of(format, next);
        let result = SubscribeResult {
            recoverable: true,
            positioned: true,
            epoch: epoch(located),
            offset: next,
            recovered,
            was_recovering: recovers.is_some(),
            expires: refresh.is_some(),
            ttl_s: refresh.unwrap_or_default(),
            data: answer,
            ..SubscribeResult::default()
        };
        let connection = self.get(id).ok_or_else(has_gone)?;
        let at = connection.subscriptions.len();
        connection.subscriptions.push(Subscription {
            channel,
            broadcast: number,
            next,
            is_told,
            principal: principal.map(Box::new),
            is_server_side: !matches!(cause, Cause::Client),
            place: Place::Ring(place.unwrap_or_default()),
        });
        self.thread_state.metrics.live_subscriptions.add(1);
        if place.is_none() {
            // A reader brings it there.
            self.catch_up(id, at);
        }
        if keeps_presence {
            self.join(id, topic, is_told, data);
        }
        self.to_flush.add(id);
        Ok(result)
    }

    /// The number of the broadcast of a topic, which begins at `end` if there is none.
    pub(super) fn broadcast(
        &mut self,
        topic: &TopicName,
        (located, live): (Located, LiveSettings),
        end: u64,
    ) -> u32 {
        if let Some(&number) = self.broadcasts_by_name.get(topic) {
            let is_it = |broadcast: &Broadcast| {
                broadcast.topic().is_some_and(|of| {
                    (of.located.topic, of.incarnation) == (located.topic, located.tag)
                })
            };
            if self.broadcasts.get(&number).is_some_and(is_it) {
                return number;
            }
            // The topic was deleted, and is another; its subscribers are told by its shard.
            self.broadcasts_by_name.remove(topic);
        }
        let credit = Credit { messages: BROADCAST_MESSAGES, bytes: BROADCAST_BYTES };
        let number = self.read(located, end, credit);
        self.broadcasts.insert(number, Broadcast::new(topic.clone(), (located, live), end));
        self.broadcasts_by_name.insert(topic.clone(), number);
        number
    }

    /// A topic is followed at other brokers; returns the number of its broadcast. A position counts for as long as their messages
    /// come without a gap: what clients hold as the epoch says so.
    fn follow_by(
        &mut self,
        number: u32,
        topic: &TopicName,
        (located, live): (Located, LiveSettings),
        end: u64,
        interest: Rc<Interest>,
    ) -> u32 {
        let Some(broadcast) = self.broadcasts.get(&number) else { return number };
        let held = broadcast.topic().and_then(|topic| topic.interest.as_ref());
        // Numbers are given in their order: one from before something was missed counts no more.
        let is_as_new =
            |held: &Rc<Interest>| held.number.wrapping_sub(interest.number).cast_signed() >= 0;
        if held.is_some_and(is_as_new) {
            return number;
        }
        // Those who were there before have missed something, if there are any.
        for connection in broadcast.subscribers.clone() {
            self.unsubscribe_from(connection, number, UnsubscribeCode::InsufficientState);
        }
        let number = self.broadcast(topic, (located, live), end);
        if let Some(topic) = self.broadcasts.get_mut(&number).and_then(Broadcast::topic_mut) {
            topic.located.tag = topic.incarnation.followed(interest.number);
            topic.interest = Some(interest);
        }
        number
    }

    /// Begins a reader at an offset; returns its number.
    pub(super) fn read(&mut self, located: Located, at: u64, credit: Credit) -> u32 {
        let subscription = self.next_number();
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let read = Read {
            origin: Origin { session: self.session, request: subscription.into() },
            subscription,
            partition,
            at: Offset(at),
            credit,
            cursor: None,
            when_slow: WhenSlow::Wait,
            filter: None,
        };
        self.core.with(|core| core.command(shard, ShardCommand::Read(read)));
        subscription
    }

    /// Has a subscription go on from the log, where it is.
    pub(super) fn catch_up(&mut self, id: ConnectionId, at: usize) {
        let Some(connection) = self.get(id) else { return };
        let Some(subscription) = connection.subscriptions.get(at) else { return };
        let (broadcast, next) = (subscription.broadcast, subscription.next);
        let Some(located) = self.broadcasts.get(&broadcast).and_then(Broadcast::located) else {
            return;
        };
        let share = CATCH_UPS_BYTES_MAX / (self.catch_ups.len() as u64 + 1);
        let bytes = share.clamp(CATCH_UP_SHARE_BYTES, CATCH_UP_BYTES);
        let reader = self.read(located, next, Credit { messages: CATCH_UP_MESSAGES, bytes });
        self.catch_ups.insert(reader, CatchUp { connection: id, broadcast });
        if let Some(connection) = self.get(id) {
            connection.subscriptions[at].place = Place::Log { reader, owed: (0, 0) };
        }
    }

    /// Subscriptions that were caught up go on in the rings, or among the newest frames, where these have what comes next.
    pub(super) fn join_rings(&mut self, id: ConnectionId) {
        let Self { connections, broadcasts, .. } = self;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let Some(connection) = held.filter(|held| held.id == id) else { return };
        let format = connection.format();
        let mut joined = Vec::new();
        for subscription in &mut connection.subscriptions {
            if let Place::Log { reader, .. } = subscription.place
                && let Some(broadcast) = broadcasts.get(&subscription.broadcast)
                && let Some(located) = broadcast.located()
            {
                let next = subscription.next;
                subscription.place = match broadcast.position_of(format, next) {
                    Some(position) => Place::Ring(position),
                    None if broadcast.newest(format, next).is_some() => Place::Newest,
                    None => continue,
                };
                joined.push((reader, located));
            }
        }
        for (reader, located) in joined {
            self.catch_ups.remove(&reader);
            self.reader(reader, located, ReaderChange::End);
        }
    }

    /// Readers that catch up for a connection may send more, if its socket has taken what they sent.
    pub(super) fn give_back_catching_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        if connection.unsent().len() >= UNSENT_BYTES_MAX {
            return;
        }
        let mut owing = Vec::new();
        for subscription in &mut connection.subscriptions {
            if let Place::Log { reader, owed } = &mut subscription.place
                && owed.0 > 0
            {
                owing.push((*reader, subscription.broadcast, std::mem::take(owed)));
            }
        }
        for (reader, broadcast, (messages, bytes)) in owing {
            if let Some(located) = self.broadcasts.get(&broadcast).and_then(Broadcast::located) {
                self.reader(reader, located, ReaderChange::Taken { messages, bytes });
            }
        }
    }

    /// A connection is not subscribed any more.
    pub(super) fn leave(&mut self, id: ConnectionId, format: Format, number: u32, place: Place) {
        self.thread_state.metrics.live_subscriptions.less(1);
        if place == Place::Group {
            return self.leave_group(number);
        }
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        broadcast.remove(id, format);
        let has_presence = broadcast.live().presence;
        if let Some(topic) = broadcast.topic() {
            let (located, name) = (topic.located, has_presence.then(|| topic.name.clone()));
            if let Some(name) = name {
                self.note_left(id, name);
            }
            if let Place::Log { reader, .. } = place {
                self.catch_ups.remove(&reader);
                self.reader(reader, located, ReaderChange::End);
            }
        }
        self.end_if_forsaken(number);
    }

    /// Nobody follows a topic or a pattern any more, if nobody is subscribed to it.
    pub(super) fn end_if_forsaken(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        if !broadcast.subscribers.is_empty() {
            return;
        }
        match &broadcast.source {
            MessageSource::Topic(topic) if topic.patterns.is_empty() => {
                let located = topic.located;
                self.reader(number, located, ReaderChange::End);
                self.forget_topic(number);
            }
            MessageSource::Pattern(pattern) if pattern.waiting.is_none() => {
                self.forget_pattern(number)
            }
            _ => {}
        }
    }

    pub(super) fn forget_topic(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.remove(&number) else { return };
        self.rings_bytes -= broadcast.held();
        let Some(topic) = broadcast.topic() else { return };
        if self.broadcasts_by_name.get(&topic.name) == Some(&number) {
            self.broadcasts_by_name.remove(&topic.name);
        }
        self.detach(number, &topic.name, &topic.patterns);
    }
}

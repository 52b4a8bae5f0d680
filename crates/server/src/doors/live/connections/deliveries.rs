//! What shards send to the readers of the live door: messages go into rings, or to the one connection that catches up; a
//! gap, or the end of a topic, is told to all whom it concerns.

use sennit_centrifuge::{DisconnectCode, Push, PushKind, UnsubscribeCode, Unsubscribed};
use sennit_engine::{Delivery, Effect, GapReason, ReaderChange};

use sennit_model::Offset;

use super::{LiveConnections, subscriptions::epoch};
use crate::doors::live::{
    broadcast::{Broadcast, encode_from},
    connection::Place,
    connection_id::ConnectionId,
    dialect::{ClientRequest, Dialect, Source},
    limits::{GAPS_MAX, RING_BYTES_MAX, RING_SHARE_BYTES, RINGS_BYTES_MAX},
};

/// The push by which a client learns that a subscription has ended.
pub(super) fn unsubscribed(channel: &str, code: UnsubscribeCode) -> Push {
    let (code, reason) = (code.code(), code.reason().to_owned());
    Push { channel: channel.to_owned(), kind: PushKind::Unsubscribe(Unsubscribed { code, reason }) }
}

impl LiveConnections {
    pub(super) fn take_effects(&mut self) {
        let empty = std::mem::take(&mut self.effects);
        let mut effects = self.sink.take_all(empty);
        for effect in effects.drain(..) {
            match effect {
                Effect::Deliver(delivery) => self.deliver(&delivery),
                Effect::Gap { subscription, range, reason, .. } => match reason {
                    // Nothing is lost with them.
                    GapReason::Compacted | GapReason::Filtered => {
                        self.pass_over_in_history(subscription, range.end.0);
                    }
                    _ => self.note_gap(subscription, range.end),
                },
                Effect::SubscriptionEnded { subscription, .. }
                | Effect::SubscriptionInterrupted { subscription, .. }
                | Effect::ReaderTooSlow { subscription, .. }
                | Effect::CursorTaken { subscription, .. } => {
                    self.lose(subscription, UnsubscribeCode::InsufficientState);
                }
                Effect::Settled(settled) => {
                    self.hear_settled(settled.origin.request, Ok(settled));
                }
                Effect::Refused { origin, refusal } => {
                    if self.hear_settled(origin.request, Err(refusal.to_string())) {
                        continue;
                    }
                    // What could not begin: its number is that of the request.
                    let reader = u32::try_from(origin.request).unwrap_or_default();
                    self.lose(reader, UnsubscribeCode::InsufficientState);
                }
                _ => {}
            }
        }
        self.effects = effects;
        self.give_back_all_taken();
    }

    fn deliver(&mut self, delivery: &Delivery) {
        let number = delivery.subscription;
        if let Some(broadcast) = self.broadcasts.get_mut(&number) {
            let (before, from) = (broadcast.held(), broadcast.next);
            broadcast.take(delivery, &mut self.scratch);
            self.rings_bytes = self.rings_bytes + broadcast.held() - before;
            let patterns = broadcast.topic().map(|topic| topic.patterns.clone());
            let channel = broadcast.channel.clone();
            self.note_news(number);
            for (pattern, first) in patterns.unwrap_or_default() {
                self.deliver_to_pattern(pattern, &channel, from.max(first), delivery);
            }
            return;
        }
        if self.catch_ups.contains_key(&number) {
            return self.deliver_to_one(number, delivery);
        }
        if self.consumers.contains_key(&number) {
            return self.deliver_to_consumer(delivery);
        }
        self.add_to_history(number, delivery);
    }

    /// The rings of a broadcast have more: its subscribers are told.
    pub(super) fn note_news(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return };
        if broadcast.has_news {
            // Those who were told before this came are told again.
            broadcast.is_disturbed = broadcast.flushed > 0;
        } else {
            broadcast.has_news = true;
            self.with_news.push_back(number);
        }
    }

    /// A reader that catches up has more for its subscription.
    fn deliver_to_one(&mut self, number: u32, delivery: &Delivery) {
        let Some(&of) = self.catch_ups.get(&number) else { return };
        let Self { connections, broadcasts, scratch, .. } = self;
        let Some(broadcast) = broadcasts.get(&of.broadcast) else { return };
        let held = connections.get_mut(of.connection.slot as usize).and_then(Option::as_mut);
        let held = held.filter(|held| held.id == of.connection);
        let Some(connection) = held else { return };
        let format = connection.format();
        let found = connection.subscriptions.iter().position(|held| held.broadcast == of.broadcast);
        let Some(at) = found else { return };
        let subscription = &mut connection.subscriptions[at];
        let Place::Log { reader, owed: (messages, bytes) } = subscription.place else { return };
        debug_assert_eq!(reader, number);
        let (from, channel) = (subscription.next, subscription.channel.clone());
        subscription.next = (delivery.first.0 + u64::from(delivery.count)).max(from);
        let length = delivery.messages.len() as u64;
        subscription.place =
            Place::Log { reader, owed: (messages + delivery.count, bytes + length) };
        let out = connection.out();
        let epoch = broadcast.located().map_or(0, |located| located.tag.number());
        let source = Source { channel: &channel, epoch };
        let count = encode_from(from, delivery, (format, source), scratch, out);
        self.thread_state.metrics.live_deliveries.add(count);
        self.join_rings(of.connection);
        self.to_flush.add(of.connection);
    }

    /// Gives readers of topics the room back that was taken, but for those whose rings are full: they wait until all
    /// subscribers have had a turn. So a ring does not grow with the number of these.
    fn give_back_all_taken(&mut self) {
        let owes =
            |number: &u32| self.broadcasts.get(number)?.topic().filter(|topic| topic.taken.0 > 0);
        let have_room = self.with_news.iter().copied();
        let have_room = have_room.filter(|number| owes(number).is_some() && !self.is_full(*number));
        for number in have_room.collect::<Vec<_>>() {
            self.give_back_taken(number);
        }
    }

    /// Whether the rings of a broadcast hold so much that it takes no more before they are written.
    fn is_full(&self, number: u32) -> bool {
        let is_scarce = self.rings_bytes > RINGS_BYTES_MAX;
        let most = if is_scarce { RING_SHARE_BYTES } else { RING_BYTES_MAX };
        self.broadcasts.get(&number).is_some_and(|of| of.has_news && of.held() >= most)
    }

    /// Gives the reader of a topic the room back that was taken, unless a pattern that means it is full. The readers of all
    /// topics, if it is a pattern.
    pub(super) fn give_back_taken(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        if let Some(pattern) = broadcast.pattern() {
            for topic in pattern.topics.values().copied().collect::<Vec<_>>() {
                self.give_back_to_reader(topic);
            }
            return;
        }
        let patterns = broadcast.topic().map(|topic| &topic.patterns[..]).unwrap_or_default();
        if !patterns.iter().any(|(pattern, _)| self.is_full(*pattern)) {
            self.give_back_to_reader(number);
        }
    }

    pub(super) fn give_back_to_reader(&mut self, number: u32) {
        let Some(topic) = self.broadcasts.get_mut(&number).and_then(Broadcast::topic_mut) else {
            return;
        };
        let (messages, bytes) = std::mem::take(&mut topic.taken);
        if messages > 0 {
            let located = topic.located;
            self.reader(number, located, ReaderChange::Taken { messages, bytes });
        }
    }

    /// Messages before `end` are missing: whoever has not got them cannot recover them.
    fn note_gap(&mut self, reader: u32, end: Offset) {
        if self.histories.contains_key(&reader) {
            return self.pass_over_in_history(reader, end.0);
        }
        let broadcast = self.catch_ups.get(&reader).map_or(reader, |of| of.broadcast);
        if let Some(topic) = self.broadcasts.get(&broadcast).and_then(Broadcast::topic) {
            if self.gaps.len() >= GAPS_MAX {
                self.gaps.clear();
            }
            let gap = self.gaps.entry(topic.located.topic).or_default();
            *gap = (*gap).max(end.0);
            if broadcast == reader {
                let patterns = topic.patterns.clone();
                patterns.into_iter().for_each(|(pattern, _)| self.end_pattern(pattern));
            }
        }
        self.lose(reader, UnsubscribeCode::InsufficientState);
    }

    /// A reader does not go on: all that depends on it ends, and clients subscribe again.
    pub(super) fn lose(&mut self, reader: u32, code: UnsubscribeCode) {
        if self.histories.contains_key(&reader) {
            return self.end_history(reader);
        }
        if self.consumers.contains_key(&reader) {
            return self.lose_consumer(reader);
        }
        if let Some(of) = self.catch_ups.get(&reader).copied() {
            return self.unsubscribe_from(of.connection, of.broadcast, code);
        }
        let Some(broadcast) = self.broadcasts.get(&reader) else { return };
        for connection in broadcast.subscribers.clone() {
            self.unsubscribe_from(connection, reader, code);
        }
        self.forget_topic(reader);
    }

    /// Ends a subscription of a connection, and tells its client.
    pub(super) fn unsubscribe_from(
        &mut self,
        id: ConnectionId,
        broadcast: u32,
        code: UnsubscribeCode,
    ) {
        let held = self.broadcasts.get(&broadcast).map(|of| of.located().map(epoch));
        let Some(connection) = self.get(id) else { return };
        let Some(at) = connection.subscriptions.iter().position(|held| held.broadcast == broadcast)
        else {
            return;
        };
        let is_server_side = connection.subscriptions[at].is_server_side;
        if is_server_side && code.resubscribes() && connection.dialect != Dialect::Wse {
            // Its client cannot subscribe again: it connects again, and what its token names goes on where it was.
            connection.end(DisconnectCode::InsufficientState);
            return self.to_flush.add(id);
        }
        let subscription = connection.subscriptions.swap_remove(at);
        let (dialect, format) = (connection.dialect, connection.format());
        match held.filter(|_| dialect == Dialect::Wse && code.resubscribes()) {
            // Its clients do not subscribe again by themselves.
            Some(epoch) => {
                let topic = subscription.channel.to_string();
                let recovers = epoch.map(|epoch| (epoch, subscription.next));
                let presence = subscription.is_told.then(String::new);
                let again = sennit_wse::Request::Subscribe { topic, recovers, presence };
                connection.requests.push_front(ClientRequest::Wse(again));
                self.to_read.push(id.slot);
            }
            None => connection.push(&unsubscribed(&subscription.channel, code)),
        }
        self.leave(id, format, broadcast, subscription.place);
        self.to_flush.add(id);
    }
}

//! Live connections in groups: a message goes to one of a group's consumers, wherever the others are. It is settled once the
//! socket has taken it, or by the client, which says so in a call. Leases, retries and dead letters are the engine's.

use std::{collections::BTreeMap, rc::Rc};

use sennit_centrifuge::{ErrorCode, ReplyError, RpcRequest, SubscribeResult, UnsubscribeCode};
use sennit_engine::{
    Command as ShardCommand, Credit, Delivery, DeliveryRun, Origin, Settle, Settled, Subscribe,
};
use sennit_identity::Verb;
use sennit_model::{GroupId, Offset, PartitionIndex, TopicName, limits::SUBSCRIBED_PARTITIONS_MAX};

use super::{LiveConnections, subscriptions::has_gone};
use crate::{
    broker::control_request::{ConsumerStart, TopicPlace},
    doors::live::{
        connection::{Place, Subscription, time_to_refresh},
        connection_id::ConnectionId,
        core_requests::{Beginning, Cause},
        dialect::Dialect,
        group_channel::{Acks, DeliveryTag, GroupChannel},
        limits::{
            GROUP_WINDOW_BYTES, GROUP_WINDOW_SHARE_BYTES, GROUP_WINDOWS_BYTES_MAX, GROUPS_MAX,
        },
        published::messages,
        settlement::{PendingSettlement, Settlement},
    },
    identity::principal::Principal,
    runtime::clock::now,
};

/// The number of a request whose answer is for nobody.
const UNASKED: u64 = u64::MAX;

/// A part in a group.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) connection: ConnectionId,
    channel: Rc<str>,
    topic: TopicName,
    place: TopicPlace,
    group: GroupId,
    acks: Acks,
    /// What its socket has not taken, where that settles it.
    handed: Vec<(PartitionIndex, DeliveryRun)>,
}

impl LiveConnections {
    /// A connection takes part in a group from now on.
    pub(super) fn begin_in_group(
        &mut self,
        id: ConnectionId,
        beginning: Beginning,
        group: &GroupChannel,
        start: ConsumerStart,
    ) -> Result<SubscribeResult, ReplyError> {
        let refused = |code, detail: String| Err(ReplyError::new(code, detail));
        let ConsumerStart { place, group: group_id, .. } = start;
        let connection = self.get(id).ok_or_else(has_gone)?;
        if connection.dialect == Dialect::Wse && group.acks == Acks::ByClient {
            let detail = "clients of WSE cannot settle: leave out `ack=client`";
            return refused(ErrorCode::BadRequest, detail.to_owned());
        }
        let numbers: Vec<u32> = connection.subscriptions.iter().map(|of| of.broadcast).collect();
        let held = numbers.iter().filter_map(|number| self.consumers.get(number));
        let held: Vec<&Consumer> = held.collect();
        if held.len() >= GROUPS_MAX {
            let detail = format!("GROUPS_MAX is {GROUPS_MAX}");
            return refused(ErrorCode::LimitExceeded, detail);
        }
        let partitions: u64 = held.iter().map(|held| u64::from(held.place.partitions)).sum();
        if partitions + u64::from(place.partitions) > SUBSCRIBED_PARTITIONS_MAX {
            let detail = format!("SUBSCRIBED_PARTITIONS_MAX is {SUBSCRIBED_PARTITIONS_MAX}");
            return refused(ErrorCode::LimitExceeded, detail);
        }
        let number = self.next_number();
        let share = GROUP_WINDOWS_BYTES_MAX / (self.consumers.len() as u64 + 1);
        let bytes = share.clamp(GROUP_WINDOW_SHARE_BYTES, GROUP_WINDOW_BYTES);
        let window = Credit { messages: group.window, bytes };
        let credit = place.share(window);
        let origin = Origin { session: self.session, request: number.into() };
        self.core.with(|core| {
            for (shard, partition) in place.each_partition(&self.core.cores.placement) {
                let (subscription, group) = (number, group_id);
                let part = Subscribe { origin, subscription, partition, group, credit };
                core.command(shard, ShardCommand::Subscribe(part));
            }
        });
        let Beginning { channel, topic, principal, answer, cause, .. } = beginning;
        let consumer = Consumer {
            connection: id,
            channel: channel.clone(),
            topic,
            place,
            group: group_id,
            acks: group.acks,
            handed: Vec::new(),
        };
        self.consumers.insert(number, consumer);
        let expires = principal.as_ref().and_then(Principal::expires);
        let refresh = expires.map(|at| time_to_refresh(at, now()));
        let connection = self.get(id).ok_or_else(has_gone)?;
        connection.subscriptions.push(Subscription {
            channel,
            broadcast: number,
            next: 0,
            is_told: false,
            principal: principal.map(Box::new),
            is_server_side: !matches!(cause, Cause::Client),
            place: Place::Group,
        });
        self.thread_state.metrics.live_subscriptions.add(1);
        Ok(SubscribeResult {
            expires: refresh.is_some(),
            ttl_s: refresh.unwrap_or_default(),
            data: answer,
            ..SubscribeResult::default()
        })
    }

    /// The group has something for one of its consumers.
    pub(super) fn deliver_to_consumer(&mut self, delivery: &Delivery) {
        let number = delivery.subscription;
        let Self { connections, consumers, scratch, .. } = self;
        let Some(consumer) = consumers.get_mut(&number) else { return };
        let id = consumer.connection;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let held = held.filter(|held| held.id == id && !held.is_ending());
        let Some(connection) = held else {
            // It takes no more: another may have this.
            return self.leave_group(number);
        };
        let format = connection.format();
        let partition = delivery.partition.index;
        let (attempt, generation) = (delivery.attempt, delivery.generation);
        let attempt_text = attempt.to_string();
        for message in messages(delivery) {
            let first = Offset(message.offset);
            let run = DeliveryRun { first, count: 1, attempt, generation };
            let tag = DeliveryTag { partition, run }.to_string();
            let tags = [("delivery", &*tag), ("attempt", &*attempt_text)];
            let tags = match consumer.acks {
                Acks::AtHandOver => &tags[1..],
                Acks::ByClient => &tags,
            };
            let channel = &*consumer.channel;
            scratch.make_without_position(format.dialect, channel, channel, tags, &message);
            format.parts(scratch).iter().for_each(|part| connection.out().extend_from_slice(part));
        }
        if consumer.acks == Acks::AtHandOver {
            let (first, count) = (delivery.first, delivery.count);
            consumer.handed.push((partition, DeliveryRun { first, count, attempt, generation }));
        }
        self.thread_state.metrics.live_deliveries.add(delivery.count.into());
        self.to_flush.add(id);
    }

    /// If the socket of a connection has taken all that groups have given it, that is settled, where nobody else is to say so.
    pub(super) fn settle_taken(&mut self, id: ConnectionId) {
        if self.consumers.is_empty() {
            return;
        }
        let Some(connection) = self.get(id).filter(|held| held.unsent().is_empty()) else { return };
        let parts = connection.subscriptions.iter().filter(|held| held.place == Place::Group);
        let numbers: Vec<u32> = parts.map(|held| held.broadcast).collect();
        for number in numbers {
            let Some(consumer) = self.consumers.get_mut(&number) else { continue };
            let (place, group) = (consumer.place, consumer.group);
            let handed = std::mem::take(&mut consumer.handed);
            if !handed.is_empty() {
                let settlement = Settlement::ack();
                self.settle(place, group, UNASKED, &settlement, handed);
            }
        }
    }

    /// Settles deliveries; says in how many partitions.
    fn settle(
        &self,
        place: TopicPlace,
        group: GroupId,
        request: u64,
        settlement: &Settlement<'_>,
        deliveries: Vec<(PartitionIndex, DeliveryRun)>,
    ) -> usize {
        let mut by_partition: BTreeMap<PartitionIndex, Vec<DeliveryRun>> = BTreeMap::new();
        for (partition, run) in deliveries {
            by_partition.entry(partition).or_default().push(run);
        }
        let count = by_partition.len();
        let origin = Origin { session: self.session, request };
        self.core.with(|core| {
            for (index, runs) in by_partition {
                let (shard, partition) = place.partition(&self.core.cores.placement, index);
                let settle = Settle {
                    origin,
                    partition,
                    group,
                    verdict: settlement.verdict(),
                    runs,
                    confirm: request != UNASKED,
                };
                core.command(shard, ShardCommand::Settle(settle));
            }
        });
        count
    }

    /// A client settles what it was given.
    pub(super) fn settle_for_client(&mut self, id: ConnectionId, number: u32, call: &RpcRequest) {
        match self.try_settle(id, number, call) {
            Ok(()) => {}
            Err(error) => {
                if let Some(connection) = self.get(id) {
                    connection.reply(number, Err(error));
                }
            }
        }
    }

    fn try_settle(
        &mut self,
        id: ConnectionId,
        number: u32,
        call: &RpcRequest,
    ) -> Result<(), ReplyError> {
        let settlement = Settlement::of(&call.method, call.data.as_bytes())?;
        let Some(connection) = self.get(id) else { return Ok(()) };
        let bad = |detail: String| ReplyError::new(ErrorCode::BadRequest, detail);
        let not_held = || bad(format!("there is no subscription to {:?}", settlement.channel));
        let at = connection.subscription(&settlement.channel).ok_or_else(not_held)?;
        let held = connection.subscriptions[at].broadcast;
        let principal = connection.follower(&settlement.channel).clone();
        let consumer = self.consumers.get(&held).ok_or_else(|| {
            bad(format!("{:?} is no channel of a group: nothing is settled", settlement.channel))
        })?;
        principal
            .may(Verb::Settle, consumer.topic.as_str())
            .map_err(|missing| ReplyError::new(ErrorCode::PermissionDenied, missing.to_string()))?;
        if consumer.acks != Acks::ByClient {
            let detail = "the broker settles what this subscription gets: subscribe with `ack=client` to settle yourself";
            return Err(bad(detail.to_owned()));
        }
        let (place, group) = (consumer.place, consumer.group);
        let mut deliveries = Vec::with_capacity(settlement.deliveries.len());
        for text in &settlement.deliveries {
            let tag: Option<DeliveryTag> = text.parse().ok();
            let tag = tag.filter(|tag| tag.partition.0 < place.partitions).ok_or_else(|| {
                bad(format!("{text:?} is no delivery: give the tag `delivery` of a publication"))
            })?;
            deliveries.push((tag.partition, tag.run));
        }
        self.settlements_begun += 1;
        let request = self.settlements_begun;
        let parts = self.settle(place, group, request, &settlement, deliveries);
        let pending = PendingSettlement::new(id, number, parts);
        self.settlements.insert(request, pending);
        if let Some(connection) = self.get(id) {
            connection.unconfirmed += 1;
        }
        Ok(())
    }

    /// A shard has settled a part of what a client wanted, or refused to. False if no settlement has this number.
    pub(super) fn hear_settled(&mut self, request: u64, outcome: Result<Settled, String>) -> bool {
        let Some(pending) = self.settlements.get_mut(&request) else { return false };
        pending.note(outcome);
        if pending.is_done()
            && let Some(pending) = self.settlements.remove(&request)
        {
            let (id, number) = (pending.connection, pending.command);
            if let Some(connection) = self.get(id) {
                connection.unconfirmed -= 1;
                connection.reply(number, pending.answer());
                self.to_flush.add(id);
                self.to_read.push(id.slot);
            }
        }
        true
    }

    /// A consumer is in its group no more: others get what it has not settled.
    pub(super) fn leave_group(&mut self, number: u32) {
        let Some(Consumer { place, group, .. }) = self.consumers.remove(&number) else { return };
        self.numbers.end(number);
        let (session, subscription) = (self.session, number);
        self.core.with(|core| {
            for (shard, partition) in place.each_partition(&self.core.cores.placement) {
                let command = ShardCommand::Unsubscribe { session, subscription, partition, group };
                core.command(shard, command);
            }
        });
    }

    /// A group, or its topic, has ended; or something of it cannot be read.
    pub(super) fn lose_consumer(&mut self, number: u32) {
        if let Some(consumer) = self.consumers.get(&number) {
            let id = consumer.connection;
            self.unsubscribe_from(id, number, UnsubscribeCode::InsufficientState);
        }
    }

    /// The topic of a part in a group.
    pub(super) fn topic_of_consumer(&self, number: u32) -> Option<&TopicName> {
        self.consumers.get(&number).map(|consumer| &consumer.topic)
    }
}

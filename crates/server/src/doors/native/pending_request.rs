//! A session's request about names and settings while it waits for its answer, and the topics and subscriptions
//! that the session notes from the answer. It does not know what the request does.

use std::{cell::RefCell, rc::Rc};

use sennit_engine::{Command, Credit, CursorClaim, Origin, Read, SessionId};
use sennit_model::{Filter, FilterError, GroupId, OffsetRange, TopicName, WhenSlow};
use sennit_protocol::{ErrorCode, Reply, Request, control};
use tokio::sync::Semaphore;

use super::{
    control_bodies,
    outbox::Outbox,
    reply_size::fitting,
    session_guard::SessionGuard,
    subscription_routes::{Beginning, Routes, Subscription},
};
use crate::{
    broker::control_request::{ControlAnswer, TopicPlace},
    identity::principal::Principal,
    runtime::core::CoreHandle,
};

/// A request about names and settings that waits for its answer.
pub(crate) struct PendingRequest {
    pub(crate) session: SessionId,
    pub(crate) principal: Principal,
    pub(crate) guard: Rc<SessionGuard>,
    pub(crate) number: u64,
    pub(crate) core: CoreHandle,
    pub(crate) outbox: Rc<Outbox>,
    pub(crate) routes: Rc<RefCell<Routes>>,
    /// Gets so many permits back with the answer.
    pub(crate) controls: Rc<Semaphore>,
    pub(crate) permits: usize,
}

/// What a subscription that is asked for will tell its shards.
struct Wanted {
    number: u32,
    topic: Option<TopicName>,
    credit: Credit,
    cursor: Option<CursorClaim>,
    when_slow: WhenSlow,
    /// Parsed once for all partitions.
    filter: Option<Filter>,
}

impl Wanted {
    /// `None` for a request that begins no subscription.
    fn of(request: &Request) -> Result<Option<Self>, FilterError> {
        let credit = |messages, bytes| Credit { messages, bytes };
        Ok(match request {
            Request::Subscribe(body) => Some(Self {
                number: body.subscription,
                topic: body.topic.parse().ok(),
                credit: credit(body.credit_messages, body.credit_bytes),
                cursor: None,
                when_slow: WhenSlow::Wait,
                filter: None,
            }),
            Request::Read(body) => {
                let name = body.cursor.as_deref().and_then(|name| name.parse().ok());
                let take_over = body.take_over;
                Some(Self {
                    number: body.subscription,
                    topic: body.topic.parse().ok(),
                    credit: credit(body.credit_messages, body.credit_bytes),
                    // Numbered when it is claimed.
                    cursor: name.map(|name| CursorClaim { name, take_over, number: 0 }),
                    when_slow: body.when_it_is_slow(),
                    filter: body.filter.as_deref().map(str::parse).transpose()?,
                })
            }
            _ => None,
        })
    }
}

impl PendingRequest {
    /// Asks the first core, and tells the client what it says. A subscription that was called off
    /// meanwhile does not begin.
    pub(crate) async fn answer(self, request: Request, beginning: Option<Beginning>) {
        let mut wanted = match Wanted::of(&request) {
            Ok(wanted) => wanted,
            Err(error) => {
                self.controls.add_permits(self.permits);
                self.finish_beginning(beginning);
                let error = control::Error::new(ErrorCode::InvalidFilter, error.to_string());
                return self.outbox.refused(self.number, error);
            }
        };
        if let Some(Wanted { cursor: Some(claim), .. }) = &mut wanted {
            claim.number = self.core.cores.next_claim();
        }
        let cores = &self.core.cores;
        let answer = control_bodies::ask(cores, self.session, &self.principal, &request).await;
        self.controls.add_permits(self.permits);
        let is_wanted = self.finish_beginning(beginning);
        let frame_bytes_max = self.outbox.frame_bytes_max();
        let answer = match answer {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                let reply = fitting(Reply::Error(*error), frame_bytes_max);
                return self.outbox.reply(&reply, self.number);
            }
            None => {
                let error = control::Error::new(ErrorCode::ShuttingDown, "the broker stops");
                return self.outbox.refused(self.number, error);
            }
        };
        let subscription = wanted.as_ref().map_or(0, |wanted| wanted.number);
        let reply = fitting(control_bodies::reply(&answer, subscription), frame_bytes_max);
        let is_told = !matches!(reply, Reply::Error(_));
        // Of what no frame of the connection can tell nothing is learnt, and it does not begin.
        if let Some(place) = answer.place().filter(|_| is_told) {
            self.learn(place);
            if let Some(wanted) = wanted {
                if !is_wanted {
                    let message = format!("subscription {} ended before it began", wanted.number);
                    let error = control::Error::new(ErrorCode::UnknownSubscription, message);
                    return self.outbox.refused(self.number, error);
                }
                return self.begin_subscription(&reply, place, &answer, wanted);
            }
        }
        self.outbox.reply(&reply, self.number);
    }

    /// Whether what was asked for is still wanted now that its answer is there.
    fn finish_beginning(&self, beginning: Option<Beginning>) -> bool {
        beginning.is_none_or(|beginning| self.routes.borrow_mut().answered(beginning))
    }

    fn learn(&self, TopicPlace { topic, home, partitions }: TopicPlace) {
        let mut routes = self.routes.borrow_mut();
        if topic != home {
            routes.homes.insert(topic, home);
        }
        if partitions > 1 {
            routes.spread.insert(topic);
        }
    }

    /// Notes the subscription, answers the client, and subscribes to each partition.
    fn begin_subscription(
        &self,
        reply: &Reply,
        place: TopicPlace,
        answer: &ControlAnswer,
        wanted: Wanted,
    ) {
        let (group, ranges): (_, &[OffsetRange]) = match answer {
            ControlAnswer::ConsumerStart(start) => (start.group, &[]),
            ControlAnswer::ReaderStart(start) => (GroupId::NONE, &start.ranges),
            // Nothing else answers a request that begins a subscription.
            _ => return self.outbox.reply(reply, self.number),
        };
        let number = wanted.number;
        let window = place.share(wanted.credit);
        let subscription = Subscription { place, group, window };
        if let Err(error) = self.guard.begin(number, &subscription, wanted.topic.clone()) {
            return self.outbox.refused(self.number, *error);
        }
        {
            let mut routes = self.routes.borrow_mut();
            if routes.closed {
                return;
            }
            if let Err(error) = routes.subscriptions.insert(number, subscription) {
                drop(routes);
                return self.outbox.refused(self.number, *error);
            }
        }
        self.outbox.subscription_begins(number);
        self.outbox.reply(reply, self.number);
        self.subscribe_to_partitions(subscription, ranges, wanted);
    }

    fn subscribe_to_partitions(
        &self,
        subscription: Subscription,
        ranges: &[OffsetRange],
        Wanted { number, cursor, when_slow, filter, .. }: Wanted,
    ) {
        let credit = self.outbox.window_now(subscription.window);
        let placement = &self.core.cores.placement;
        let origin = Origin { session: self.session, request: self.number };
        self.core.with(|core| {
            for (shard, partition) in subscription.each_partition(placement) {
                let group = subscription.group;
                let command = if subscription.is_reader() {
                    let range = ranges.get(partition.index.0 as usize);
                    let at = range.map(|range| range.start).unwrap_or_default();
                    Command::Read(Read {
                        origin,
                        subscription: number,
                        partition,
                        at,
                        credit,
                        cursor: cursor.clone(),
                        when_slow,
                        filter: filter.clone(),
                    })
                } else {
                    Command::Subscribe(sennit_engine::Subscribe {
                        origin,
                        subscription: number,
                        partition,
                        group,
                        credit,
                    })
                };
                core.command(shard, command);
            }
            core.handle();
        });
    }
}

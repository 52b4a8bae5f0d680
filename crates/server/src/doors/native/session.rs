//! A session: frames come in, commands go out. A frame is admitted or refused here; the engine gives it its
//! meaning.

mod atomic_publish;
mod greeting;
mod settled_runs;

use std::{cell::RefCell, rc::Rc, time::Duration};

use bytes::{Bytes, BytesMut};
use sennit_engine::{Command, Credit, Origin, ReaderChange, SessionId};
use sennit_identity::Verb;
use sennit_model::{
    GroupId, Offset, PartitionId, PartitionIndex, TopicId, limits::SETTLE_RUNS_MAX,
};
use sennit_protocol::{
    DecodeError, ErrorCode, FrameHeader, FrameReader, Preface, Publish, PublishAt, PublishHead,
    Reply, Request, SetCredit, Settle, Taken, control,
};
use tokio::sync::{Semaphore, oneshot};

use self::settled_runs::{runs_by_partition, verdict};
use super::{
    arrival::Moved,
    control_bodies, flow_control, hooks,
    outbox::Outbox,
    pending_request::PendingRequest,
    refusal_reply::control_reply,
    session_guard::{SessionGuard, SessionGuards},
    subscription_routes::Routes,
};
use crate::{
    broker::control_request::{ControlRefusal, TopicPlace},
    hooks::core_hooks::CoreHooks,
    identity::authority::Authority,
    runtime::{
        core::CoreHandle,
        index::{CoreIndex, ShardIndex},
        peer::Peer,
        placement::{has_place_at, has_reading_place_at},
    },
};

/// Requests about names and settings that one session may have under way; further ones wait.
const CONTROL_REQUESTS_MAX: usize = 32;

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Read on.
    GoOn,
    /// The client left on purpose.
    Left,
    /// The connection goes on at this core, where its partition is.
    Moves(CoreIndex),
    /// What was sent cannot be served; the error is in the outbox.
    Broken,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    /// Whose session it is, and what that may.
    guard: Rc<SessionGuard>,
    authority: Authority,
    /// Who is at the other end, until that has said Hello.
    peer: Peer,
    core: CoreHandle,
    outbox: Rc<Outbox>,
    frames: FrameReader,
    preface_seen: bool,
    greeted: bool,
    routes: Rc<RefCell<Routes>>,
    controls: Rc<Semaphore>,
    frame_bytes_max: usize,
    /// Whether it is known at which core the connection stays.
    is_settled: bool,
    /// The frame that said that the connection belongs elsewhere.
    moving: Option<(FrameHeader, Bytes)>,
    hooks: Rc<CoreHooks>,
    /// Shards that this pass has published to.
    pub(crate) published_to: Vec<ShardIndex>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        core: CoreHandle,
        outbox: Rc<Outbox>,
        authority: Authority,
        peer: Peer,
    ) -> Self {
        let routes = outbox.routes.clone();
        let hooks = hooks::of_core(&core);
        let guards = core.services.find_or_add::<SessionGuards>();
        let guard = guards.add(id, core.clone(), outbox.clone());
        Self {
            id,
            guard,
            authority,
            peer,
            core,
            outbox,
            frames: FrameReader::before_greeting(),
            preface_seen: false,
            greeted: false,
            routes,
            controls: Rc::new(Semaphore::new(CONTROL_REQUESTS_MAX)),
            frame_bytes_max: 0,
            is_settled: false,
            moving: None,
            hooks,
            published_to: Vec::new(),
        }
    }

    /// The guard of the session.
    pub(crate) fn guard(&self) -> Rc<SessionGuard> {
        self.guard.clone()
    }

    /// Goes on with a connection that comes from another core, with what that has read of it.
    pub(crate) async fn moved_in(&mut self, moved: Moved, input: &mut BytesMut) -> Flow {
        (self.preface_seen, self.greeted, self.is_settled) = (true, true, true);
        self.frames = moved.frames;
        self.guard.set_principal(moved.principal);
        self.guard.keep_place(moved.place);
        self.greeted_with(moved.frame_bytes_max, moved.features);
        self.routes.borrow_mut().homes = moved.homes;
        if let Some(token) = moved.token {
            self.core.with(|core| core.name_session(self.id, token));
        }
        *input = moved.input;
        let (header, body) = moved.frame;
        match self.frame(&header, body).await {
            Flow::GoOn => self.take(input).await,
            ended => ended,
        }
    }

    /// What goes along when the connection moves.
    pub(crate) fn moves_out(&mut self, input: BytesMut) -> Option<Moved> {
        Some(Moved {
            input,
            frame: self.moving.take()?,
            frames: self.frames.clone(),
            principal: self.guard.principal(),
            place: self.guard.give_place(),
            frame_bytes_max: self.frame_bytes_max,
            features: self.outbox.features(),
            token: self.outbox.successor.token.get(),
            homes: std::mem::take(&mut self.routes.borrow_mut().homes),
        })
    }

    /// Where the connection belongs, if a frame is the first to say so and that is elsewhere.
    async fn belongs_to(&mut self, request: &Request) -> Option<CoreIndex> {
        let (topic, home) = match request {
            Request::Publish(publish) | Request::PublishAt(PublishAt { publish, .. }) => {
                let topic = publish.head.partition.topic;
                (topic, self.home(topic))
            }
            Request::PublishAtomic(step) => {
                let topic = step.parts.first()?.head.partition.topic;
                (topic, self.home(topic))
            }
            Request::Subscribe(_) | Request::Read(_) => {
                let (id, principal, cores) = (self.id, self.guard.principal(), &self.core.cores);
                let answer = control_bodies::ask(cores, id, &principal, request).await;
                let TopicPlace { topic, home, partitions } = answer?.ok()?.place()?;
                if partitions > 1 {
                    self.routes.borrow_mut().spread.insert(topic);
                }
                (topic, home)
            }
            _ => return None,
        };
        self.is_settled = true;
        let placement = &self.core.cores.placement;
        let core = placement.core_of(placement.shard_of(home, PartitionIndex(0)));
        let is_idle = self.outbox.is_empty()
            && self.controls.available_permits() == CONTROL_REQUESTS_MAX
            && self.routes.borrow().subscriptions.len() == 0;
        let moves = is_idle
            && core != self.core.index
            && !self.routes.borrow().spread.contains(&topic)
            && !self.core.look(|core| core.is_draining())
            && match request {
                Request::Read(_) => has_reading_place_at(&self.core.cores.metrics, core),
                _ => has_place_at(&self.core.cores.metrics, core),
            };
        moves.then_some(core)
    }

    /// Whether Hello was accepted.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// How many bytes of a frame are missing that has begun.
    pub(crate) fn missing(&self, input: &BytesMut) -> usize {
        self.frames.missing(input)
    }

    /// Waits while a shard that was published to has too much to commit.
    pub(crate) async fn wait_for_room(&self, shard: ShardIndex) {
        self.core.cores.gauges[shard].wait_for_room().await;
    }

    /// Takes every whole frame off `input` and does what it asks, all in one turn of the shard.
    pub(crate) async fn take(&mut self, input: &mut BytesMut) -> Flow {
        if !self.preface_seen {
            match Preface::take(input) {
                Ok(Some(_)) => self.preface_seen = true,
                Ok(None) => return Flow::GoOn,
                Err(error) => return self.broken(&error, 0),
            }
        }
        let flow = loop {
            match self.frames.next_frame(input) {
                Ok(None) => break Flow::GoOn,
                Err(error) => break self.broken(&error, 0),
                Ok(Some((header, body))) => match self.frame(&header, body).await {
                    Flow::GoOn => {}
                    ended => break ended,
                },
            }
        };
        self.core.with(|core| core.handle());
        flow
    }

    fn broken(&self, error: &DecodeError, request: u64) -> Flow {
        self.core.with(|core| core.metrics().broken_frames.add(1));
        self.outbox.refused(request, control::Error::from(error));
        if error.code().closes_connection() { Flow::Broken } else { Flow::GoOn }
    }

    fn refuse(&self, request: u64, code: ErrorCode, message: impl Into<String>) -> Flow {
        self.outbox.refused(request, control::Error::new(code, message));
        if code.closes_connection() { Flow::Broken } else { Flow::GoOn }
    }

    async fn frame(&mut self, header: &FrameHeader, body: Bytes) -> Flow {
        let unsettled = (self.greeted && !self.is_settled).then(|| body.clone());
        let request = match Request::decode(header, body) {
            Ok(request) => request,
            Err(error) => return self.broken(&error, header.request),
        };
        if let Some(body) = unsettled
            && let Some(shard) = self.belongs_to(&request).await
        {
            self.moving = Some((*header, body));
            return Flow::Moves(shard);
        }
        // The control checks the rights to what goes on to it; those to messages are checked before a request becomes
        // a command.
        match request {
            Request::Hello(hello) => return self.hello(&hello, header.request).await,
            _ if !self.greeted => {
                let code = ErrorCode::HelloExpected;
                return self.refuse(header.request, code, "the first frame must be Hello");
            }
            Request::Publish(publish) => return self.publish(&publish, None, header.request).await,
            Request::PublishAt(PublishAt { expected, publish }) => {
                return self.publish(&publish, Some(expected), header.request).await;
            }
            Request::PublishAtomic(step) => {
                return self.publish_atomic(&step, header.request).await;
            }
            Request::Settle(settle) => return self.settle(&settle, header.request).await,
            Request::SetCredit(credit) => return self.set_credit(credit, header.request),
            Request::Taken(taken) => return self.taken(taken, header.request),
            Request::Ping => self.outbox.reply(&Reply::Pong, header.request),
            Request::Pong => {}
            Request::Goodbye => return Flow::Left,
            Request::Unsubscribe(body) => {
                return self.unsubscribe(body.subscription, header.request);
            }
            other => self.control(other, header.request).await,
        }
        Flow::GoOn
    }

    fn origin(&self, request: u64) -> Origin {
        Origin { session: self.id, request }
    }

    fn home(&self, topic: TopicId) -> TopicId {
        self.routes.borrow().homes.get(&topic).copied().unwrap_or(topic)
    }

    fn shard(&self, partition: PartitionId) -> ShardIndex {
        self.routes.borrow().shard(partition, &self.core.cores.placement)
    }

    /// Where an offset is expected, the answer has the request's number.
    async fn publish(&mut self, publish: &Publish, expected: Option<Offset>, request: u64) -> Flow {
        let head = publish.head;
        let batch = match publish.check_batch() {
            Ok(batch) => batch,
            Err(error) => return self.refuse_batch(head, control::Error::from(&error), request),
        };
        let topic = head.partition.topic;
        if let Err(error) = self.guard.check(topic, Verb::Publish).await {
            return self.refuse_batch(head, error, request);
        }
        if self.core.cores.own_topic.is(topic) {
            let error = control_reply(&ControlRefusal::Reserved);
            return self.refuse_batch(head, error, request);
        }
        let batch = match hooks::on_publish(&self.hooks, &self.core, &head, batch).await {
            Ok(batch) => batch,
            Err(error) => return self.refuse_batch(head, error, request),
        };
        let shard = self.shard(head.partition);
        // The frame may have begun to come when there was room, and so may those of very many others.
        self.wait_for_room(shard).await;
        if self.core.look(|core| core.is_draining()) {
            return self.refuse_publish(head, request);
        }
        if let Err(error) = self.guard.take((batch.count().into(), batch.bytes().len() as u64)) {
            return self.refuse_batch(head, *error, request);
        }
        // It may have waited, and the right been taken meanwhile.
        if let Err(error) = self.guard.check(topic, Verb::Publish).await {
            return self.refuse_batch(head, error, request);
        }
        if !self.published_to.contains(&shard) {
            self.published_to.push(shard);
        }
        let publish = sennit_engine::Publish {
            origin: self.origin(request),
            partition: head.partition,
            producer: head.producer,
            batch,
        };
        let command = match expected {
            None => Command::Publish(publish),
            Some(expected) => Command::PublishAt(publish, expected),
        };
        self.core.with(|core| core.command(shard, command));
        Flow::GoOn
    }

    /// Says which batch it was, so that its publisher knows.
    fn refuse_batch(&self, head: PublishHead, mut error: control::Error, request: u64) -> Flow {
        error.topic_id = Some(head.partition.topic.0);
        error.partition = Some(head.partition.index.0);
        error.producer_id = Some(head.producer.id.0);
        error.first_sequence = Some(head.producer.first_sequence);
        error.count = Some(head.count);
        self.outbox.refused(request, error);
        Flow::GoOn
    }

    fn refuse_publish(&self, head: PublishHead, request: u64) -> Flow {
        let mut error = control::Error::new(ErrorCode::ShuttingDown, "the broker stops");
        error.topic_id = Some(head.partition.topic.0);
        error.closes_connection = false;
        self.outbox.refused(request, error);
        Flow::GoOn
    }

    async fn settle(&mut self, settle: &Settle, request: u64) -> Flow {
        // Its answer comes to this session: the connection stays.
        self.is_settled = true;
        let head = &settle.head;
        if head.group == GroupId::NONE {
            let message = "readers hold nothing that could be settled";
            return self.refuse(request, ErrorCode::NotLeased, message);
        }
        if settle.runs.len() > SETTLE_RUNS_MAX {
            let message = format!(
                "SETTLE_RUNS_MAX is {SETTLE_RUNS_MAX}, the frame names {} runs",
                settle.runs.len()
            );
            return self.refuse(request, ErrorCode::LimitReached, message);
        }
        if let Err(error) = self.guard.check(head.topic, Verb::Settle).await {
            self.outbox.refused(request, error);
            return Flow::GoOn;
        }
        let parts = runs_by_partition(&settle.runs);
        let verdict = verdict(&head.verdict);
        if head.confirm {
            if parts.is_empty() {
                self.outbox.settled(request, 0, std::iter::empty());
            } else {
                self.outbox.expect_settled(request, parts.len());
            }
        }
        for (index, runs) in parts {
            let partition = PartitionId { topic: head.topic, index };
            let settle = sennit_engine::Settle {
                origin: self.origin(request),
                partition,
                group: head.group,
                verdict: verdict.clone(),
                runs,
                confirm: head.confirm,
            };
            let shard = self.shard(partition);
            self.core.with(|core| core.command(shard, Command::Settle(settle)));
        }
        Flow::GoOn
    }

    fn set_credit(&mut self, credit: SetCredit, request: u64) -> Flow {
        let window = Credit { messages: credit.messages, bytes: credit.bytes };
        let held = self.routes.borrow_mut().subscriptions.set_window(credit.subscription, window);
        let Some(subscription) = held else {
            return self.unknown_subscription(credit.subscription, request);
        };
        flow_control::set_windows(
            self.id,
            credit.subscription,
            subscription,
            &self.core,
            &self.outbox,
        );
        Flow::GoOn
    }

    fn taken(&mut self, taken: Taken, request: u64) -> Flow {
        let Taken { subscription, partition: index, messages, bytes } = taken;
        let routes = self.routes.borrow();
        let held = routes.subscriptions.get(subscription);
        drop(routes);
        let Some(held) = held.filter(|held| held.is_reader()) else {
            return self.unknown_subscription(subscription, request);
        };
        let partition = PartitionId { topic: held.place.topic, index };
        let shard = self.shard(partition);
        let change = ReaderChange::Taken { messages, bytes };
        let command = Command::Reader { session: self.id, subscription, partition, change };
        self.core.with(|core| core.command(shard, command));
        Flow::GoOn
    }

    fn unknown_subscription(&self, subscription: u32, request: u64) -> Flow {
        let message = format!("this connection has no subscription {subscription}");
        self.refuse(request, ErrorCode::UnknownSubscription, message)
    }

    fn unsubscribe(&mut self, number: u32, request: u64) -> Flow {
        let is_called_off = {
            let mut routes = self.routes.borrow_mut();
            routes.watches.remove(&number).is_some() || routes.beginning.remove(&number).is_some()
        };
        if is_called_off {
            self.outbox.reply(&Reply::Done(control::Done::default()), request);
            return Flow::GoOn;
        }
        let mut routes = self.routes.borrow_mut();
        routes.topic_names.remove(&number);
        let subscription = routes.subscriptions.remove(number);
        drop(routes);
        let Some(subscription) = subscription else {
            return self.unknown_subscription(number, request);
        };
        let placement = &self.core.cores.placement;
        self.core.with(|core| {
            for (shard, partition) in subscription.each_partition(placement) {
                core.command(shard, subscription.end(self.id, number, partition));
            }
        });
        let done = control::Done {
            created: false,
            topic_id: subscription.place.topic.0,
            group_id: subscription.group.0,
            messages: 0,
        };
        self.outbox.reply(&Reply::Done(done), request);
        Flow::GoOn
    }

    /// Passes a request about names and settings on to the first core. Its answer comes when it
    /// comes; frames behind it do not wait.
    async fn control(&mut self, request: Request, number: u64) {
        let subscription = match &request {
            Request::Subscribe(body) => Some((body.subscription, false)),
            Request::Read(body) => Some((body.subscription, false)),
            Request::Watch(body) => Some((body.subscription, true)),
            Request::WatchConfiguration(body) => Some((body.subscription, true)),
            _ => None,
        };
        if let Some((subscription, is_watch)) = subscription {
            let mut routes = self.routes.borrow_mut();
            // Numbers of subscriptions that have ended are free again.
            for ended in self.outbox.take_ended() {
                routes.topic_names.remove(&ended);
                routes.subscriptions.remove(ended);
            }
            if let Err(error) = routes.admit(subscription, is_watch) {
                drop(routes);
                return self.outbox.refused(number, *error);
            }
        }
        // What was read before goes first, whatever this waits for.
        self.core.with(|core| core.handle());
        // One read may ask for thousands of answers, each as large as a frame may be.
        self.outbox.wait_for_room().await;
        // Where the core holds too much already, each has one answer on the way.
        let permits = if self.outbox.is_room_full() { CONTROL_REQUESTS_MAX } else { 1 };
        let Ok(permit) = self.controls.acquire_many(permits as u32).await else { return };
        // Given back when the answer has come.
        permit.forget();
        let pending = PendingRequest {
            session: self.id,
            guard: self.guard.clone(),
            principal: self.guard.principal(),
            number,
            core: self.core.clone(),
            outbox: self.outbox.clone(),
            routes: self.routes.clone(),
            controls: self.controls.clone(),
            permits,
        };
        match request {
            Request::Watch(watch) => {
                // What it hears comes to this session: the connection stays.
                self.is_settled = true;
                let (ends, ended) = oneshot::channel();
                self.routes.borrow_mut().watches.insert(watch.subscription, ends);
                tokio::task::spawn_local(pending.watch(watch, ended));
            }
            Request::WatchConfiguration(watch) => {
                self.is_settled = true;
                let (ends, ended) = oneshot::channel();
                self.routes.borrow_mut().watches.insert(watch.subscription, ends);
                tokio::task::spawn_local(pending.watch_configuration(watch, ended));
            }
            Request::GetConfiguration(_)
            | Request::SetConfiguration(_)
            | Request::DeleteConfiguration(_)
            | Request::ListConfiguration(_) => {
                drop(tokio::task::spawn_local(pending.configuration(request)));
            }
            Request::ChangeSchedule(_) | Request::ListSchedules(_) => {
                drop(tokio::task::spawn_local(pending.schedules(request)));
            }
            Request::ChangeAccess(_) | Request::ListAccess(_) | Request::DecideRight(_) => {
                drop(tokio::task::spawn_local(pending.access(request)));
            }
            Request::SetHook(_)
            | Request::UseHook(_)
            | Request::DescribeHook(_)
            | Request::ListHooks(_) => drop(tokio::task::spawn_local(pending.hooks(request))),
            request => {
                let beginning = subscription.map(|(to, _)| self.routes.borrow_mut().begin(to));
                drop(tokio::task::spawn_local(pending.answer(request, beginning)));
            }
        }
    }

    /// The connection is gone: its subscriptions end, after a grace unless it left on purpose.
    pub(crate) fn end(&mut self, left: bool) {
        let grace = if left { Duration::ZERO } else { self.core.cores.session_grace };
        let mut routes = self.routes.borrow_mut();
        routes.closed = true;
        routes.watches.clear();
        routes.beginning.clear();
        let placement = &self.core.cores.placement;
        let mut concerned: Vec<ShardIndex> = routes
            .subscriptions
            .iter()
            .flat_map(|held| held.each_partition(placement).map(|(shard, _)| shard))
            .collect();
        concerned.sort_unstable();
        concerned.dedup();
        self.core.with(|core| {
            for shard in concerned {
                core.command(shard, Command::EndSession { session: self.id, grace });
            }
            core.handle();
            core.close_session(self.id);
        });
        self.core.services.find_or_add::<SessionGuards>().remove(self.id);
    }
}

#[cfg(test)]
mod tests;

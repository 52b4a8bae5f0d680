//! One core: a shard, the sessions that are at home here, and the carrying between them, the lane
//! and the other cores. Everything here runs on one thread and never waits while it holds the core.

mod emptying;
mod folding;

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sennit_engine::{Command, Effect, ReaderChange, SessionId, StreamAppend, StreamCommand};
use sennit_model::{
    Timestamp,
    limits::{LAZY_BYTES, LAZY_SPAN},
};
use sennit_protocol::{ErrorCode, Gap, GapReason, PublishedAt, Reply, SettleRun};
use sennit_shard::{Fetch, Shard};
use tokio::sync::{Notify, oneshot};

use crate::{
    answers::Answers,
    breaks::Breaks,
    gauge::IngestGauge,
    inbox::{self, Committed, Message},
    lane_thread::{LaneHandle, LaneMessage},
    metrics::CoreMetrics,
    move_thread::MoveHandle,
    move_turn::MoveTurn,
    outbox::Outbox,
    outgoing::Outgoing,
    pace::Pace,
    read_thread::ReadThreads,
    refusal_reply,
    reserved::OwnTopic,
    successor::SessionToken,
};

/// Bytes that make it worth to hand the lane a second batch while it writes the first.
const SECOND_BATCH_BYTES: u64 = 512 << 10;

/// Bytes whose commit the core does not leave to the lane's thread, if the last
/// commit was quick: waking one thread, and being woken by it, takes about as long as the sync.
const COMMIT_HERE_BYTES: u64 = 64 << 10;
const COMMIT_HERE_TIME: Duration = Duration::from_micros(400);

/// Looks at the sockets, at most, before what they have brought is done.
const LOOKS_MAX: usize = 16;

/// The least time between two looks at what is due.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// The ways to those who work for a core.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) lane: LaneHandle,
    pub(crate) reads: ReadThreads,
    pub(crate) moves: MoveHandle,
}

/// What all cores share: the ways to each other.
#[derive(Debug)]
pub(crate) struct Cores {
    pub(crate) inboxes: Vec<inbox::Sender>,
    pub(crate) gauges: Vec<IngestGauge>,
    pub(crate) metrics: Vec<Arc<CoreMetrics>>,
    pub(crate) session_grace: Duration,
    pub(crate) move_turn: Arc<MoveTurn>,
    /// Claims to named cursors so far.
    pub(crate) claims: AtomicU64,
    /// Where no client publishes.
    pub(crate) own_topic: OwnTopic,
}

/// The state of a core's thread.
#[derive(Debug)]
pub(crate) struct Core {
    index: usize,
    shard: Shard,
    cores: Arc<Cores>,
    outboxes: HashMap<SessionId, Rc<Outbox>>,
    /// The sessions that may be replaced.
    tokens: HashMap<SessionToken, SessionId>,
    sessions_opened: u64,
    workers: Workers,
    batches_under_way: usize,
    /// How long the last commit took.
    last_commit: Duration,
    /// Since when records have gathered that nobody waits for.
    lazy_since: Option<Timestamp>,
    /// When it is looked next whether something is to be emptied.
    look_at: Timestamp,
    /// Commits of the shard when it was looked last.
    looked_commits: u64,
    /// Commands for other cores' shards, gathered during this pass.
    commands: Vec<Vec<Command>>,
    /// Effects for other cores' sessions, gathered during this pass.
    effects: Vec<Vec<Effect>>,
    pub(crate) answers: Answers,
    pub(crate) breaks: Breaks,
    fenced: bool,
    storage_full: bool,
    draining: bool,
    scratch: Vec<Effect>,
}

/// A core, and the bell that makes it carry what has gathered.
#[derive(Clone, Debug)]
pub(crate) struct CoreHandle {
    core: Rc<RefCell<Core>>,
    bell: Rc<Notify>,
    /// Where the writers of this core's connections make their writes ready, one after the other.
    pub(crate) write_scratch: Rc<RefCell<Outgoing>>,
    /// How often they write to readers.
    pub(crate) pace: Rc<Pace>,
    pub(crate) cores: Arc<Cores>,
    pub(crate) index: usize,
}

/// The wall clock, as the shard wants it.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl CoreHandle {
    pub(crate) fn new(index: usize, shard: Shard, cores: Arc<Cores>, workers: Workers) -> Self {
        let count = cores.inboxes.len();
        let core = Core {
            index,
            shard,
            cores: cores.clone(),
            outboxes: HashMap::new(),
            tokens: HashMap::new(),
            sessions_opened: 0,
            workers,
            batches_under_way: 0,
            last_commit: Duration::MAX,
            lazy_since: None,
            look_at: Timestamp(0),
            looked_commits: 0,
            commands: (0..count).map(|_| Vec::new()).collect(),
            effects: (0..count).map(|_| Vec::new()).collect(),
            answers: Answers::new(own_session(index)),
            breaks: Breaks::default(),
            fenced: false,
            storage_full: false,
            draining: false,
            scratch: Vec::new(),
        };
        Self {
            core: Rc::new(RefCell::new(core)),
            bell: Rc::default(),
            write_scratch: Rc::default(),
            pace: Rc::default(),
            cores,
            index,
        }
    }

    /// Does something with the core, and has it carry what comes of it once the connections that
    /// are ready now have had their turn.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let result = act(&mut self.core.borrow_mut());
        self.bell.notify_one();
        result
    }

    /// Looks at the core.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&self.core.borrow())
    }

    /// Lets the sockets bring more, as long as each look at them brings another question: one commit is
    /// then for all of them, and their answers go out one after the other. Where a look brings nothing the
    /// thread gives way once, for who is about to ask may wait for the processor: on one that nobody waits
    /// for, that takes no time. Who asks alone is not held up. `carried` is how many questions there were
    /// before.
    async fn gather(&self, carried: &mut u64) {
        let asked = || self.look(|core| core.answers.asked());
        let mut seen = *carried + 1;
        let mut gives_way = false;
        for _ in 0..LOOKS_MAX {
            let now = asked();
            if now > seen {
                gives_way = true;
            } else if gives_way {
                gives_way = false;
                thread::yield_now();
            } else {
                break;
            }
            seen = now;
            // The sockets are looked at before who yields goes on.
            tokio::task::yield_now().await;
        }
        *carried = asked();
    }

    /// Carries what has gathered, whenever something has, and does what is due.
    pub(crate) async fn run(self) {
        let mut carried = 0;
        loop {
            self.gather(&mut carried).await;
            // Looked at in every pass: a bell that never rests must not hold up what is due.
            self.core.borrow_mut().advance();
            let wake = self.core.borrow_mut().carry();
            match wake {
                None => self.bell.notified().await,
                Some(due) => {
                    let wait = due.since(now()).max(TIMER_STEP);
                    let _ = tokio::time::timeout(wait, self.bell.notified()).await;
                }
            }
        }
    }
}

impl Core {
    /// Gives a new session its number and its way out.
    pub(crate) fn open_session(&mut self, outbox: Rc<Outbox>) -> SessionId {
        self.sessions_opened += 1;
        let session = SessionId(own_session(self.index).0 | self.sessions_opened);
        self.outboxes.insert(session, outbox);
        self.metrics().connections.add(1);
        session
    }

    /// Forgets a session. Its subscriptions are ended by commands of their own.
    pub(crate) fn close_session(&mut self, session: SessionId) {
        if let Some(outbox) = self.outboxes.remove(&session) {
            self.metrics().connections.less(1);
            outbox.successor.token.get().and_then(|token| self.tokens.remove(&token));
        }
    }

    /// From now on a session can be replaced by whoever knows its token.
    pub(crate) fn name_session(&mut self, session: SessionId, token: SessionToken) {
        if let Some(outbox) = self.outboxes.get(&session) {
            outbox.successor.token.set(Some(token));
            self.tokens.insert(token, session);
        }
    }

    /// Ends the session of this token, if it is here; says when all shards are told.
    pub(crate) fn replace(&mut self, token: SessionToken, ended: oneshot::Sender<()>) {
        let session = self.tokens.get(&token).and_then(|session| self.outboxes.get(session));
        match session {
            Some(outbox) => outbox.successor.comes(ended),
            None => {
                // It may have ended just now.
                self.carry_commands();
                let _ = ended.send(());
            }
        }
    }

    pub(crate) fn metrics(&self) -> &CoreMetrics {
        &self.cores.metrics[self.index]
    }

    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    pub(crate) fn outboxes(&self) -> impl Iterator<Item = &Rc<Outbox>> {
        self.outboxes.values()
    }

    /// Notes a command for the shard of `core`; done when [`Core::handle`] is called.
    pub(crate) fn command(&mut self, core: usize, command: Command) {
        self.commands[core].push(command);
    }

    /// Does the commands noted for this core's shard; the others travel when the core carries.
    pub(crate) fn handle(&mut self) {
        if !self.commands[self.index].is_empty() {
            let mut commands = std::mem::take(&mut self.commands[self.index]);
            self.shard.handle(&mut commands, now());
            self.commands[self.index] = commands;
            self.route();
        }
    }

    /// Does commands of other cores' sessions.
    pub(crate) fn handle_from_afar(&mut self, mut commands: Vec<Command>) {
        self.cores.gauges[self.index].arrived(published_bytes(&commands));
        self.shard.handle(&mut commands, now());
        self.route();
    }

    /// Sends effects of other cores' shards where they belong here.
    pub(crate) fn effects_from_afar(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.route_one(effect);
        }
    }

    /// The lane's thread has committed a batch.
    pub(crate) fn committed(&mut self, committed: Committed) {
        self.batches_under_way -= 1;
        self.release(committed);
    }

    fn release(&mut self, Committed { end, took }: Committed) {
        self.last_commit = took;
        self.shard.committed(end, now());
        self.route();
    }

    pub(crate) fn fenced(&mut self) {
        self.shard.fenced();
        self.fenced = true;
        self.route();
    }

    /// Whether the journal has failed.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The broker stops: publishes are refused and nothing more is delivered from now on.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.shard.stop();
    }

    /// The lane is to write no more, once it has written what it was given.
    pub(crate) fn end_lane(&mut self) {
        self.workers.lane.tell(LaneMessage::End);
    }

    /// Whether the broker stops.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) fn fetched(&mut self, fetch: Fetch, bytes: Option<bytes::Bytes>) {
        self.shard.fetched(fetch, bytes, now());
        self.route();
    }

    pub(crate) fn set_storage_full(&mut self, full: bool) {
        self.storage_full = full;
        self.shard.set_storage_full(full);
    }

    /// Does what is due, if anything is.
    fn advance(&mut self) {
        let now = now();
        if self.shard.next_wake().is_some_and(|due| due <= now) {
            self.shard.advance(now);
            self.route();
        }
    }

    /// Whether the lane has nothing left to write.
    pub(crate) fn is_quiet(&self) -> bool {
        self.batches_under_way == 0
            && !self.shard.has_frames()
            && self.commands[self.index].is_empty()
    }

    /// Carries commands to the other cores' shards.
    pub(crate) fn carry_commands(&mut self) {
        for core in 0..self.commands.len() {
            if core != self.index && !self.commands[core].is_empty() {
                let commands = std::mem::take(&mut self.commands[core]);
                self.cores.gauges[core].sent(published_bytes(&commands));
                let _ = self.cores.inboxes[core].send(Message::Commands(commands));
            }
        }
    }

    /// Carries frames to the lane if it has time for them, fetches to the reader, and batches to
    /// the other cores; says when the shard wants to be woken.
    fn carry(&mut self) -> Option<Timestamp> {
        self.handle();
        self.carry_commands();
        let lazy_until = self.commit();
        for core in 0..self.effects.len() {
            if !self.effects[core].is_empty() {
                let effects = std::mem::take(&mut self.effects[core]);
                let _ = self.cores.inboxes[core].send(Message::Effects(effects));
            }
        }
        let mut released = Vec::new();
        self.shard.take_released(&mut released);
        if !released.is_empty() {
            self.workers.lane.tell(LaneMessage::Release(released));
        }
        let mut fetches = Vec::new();
        self.shard.take_fetches(&mut fetches);
        for fetch in fetches {
            self.workers.reads.fetch(fetch);
        }
        let look_at = self.empty_something();
        let ingest = self.shard.uncommitted_bytes();
        // Once the disk is full publishes are read, to be refused: what waits for it to have room
        // again must not keep the acks behind it from making some.
        self.cores.gauges[self.index].set(if self.storage_full { 0 } else { ingest });
        self.publish_metrics(ingest);
        self.shard.next_wake().into_iter().chain(lazy_until).chain(look_at).min()
    }

    /// Commits what has gathered, or hands it to the lane's thread, if the lane has time for it and
    /// somebody waits for it; says until when it may wait otherwise.
    fn commit(&mut self) -> Option<Timestamp> {
        if !self.shard.has_frames() {
            return None;
        }
        let gathered = self.shard.gathered_bytes();
        let lane_has_time = match self.batches_under_way {
            0 => true,
            1 => gathered >= SECOND_BATCH_BYTES,
            _ => false,
        };
        if !lane_has_time {
            return None;
        }
        let is_awaited = self.shard.is_awaited();
        if !is_awaited && gathered < LAZY_BYTES && !self.draining {
            // A crash before that costs a delivery more, or an ephemeral message, which who waits
            // for no commit puts up with.
            let now = now();
            let until = self.lazy_since.get_or_insert(now).plus(LAZY_SPAN);
            if now < until {
                return Some(until);
            }
        }
        let is_small = is_awaited
            && gathered <= COMMIT_HERE_BYTES
            && self.batches_under_way == 0
            && self.last_commit <= COMMIT_HERE_TIME;
        self.lazy_since = None;
        let mut frames = Vec::new();
        self.shard.take_frames(&mut frames);
        match is_small.then(|| self.workers.lane.append_here(&frames)).flatten() {
            Some(Ok(committed)) => {
                self.release(committed);
                // What came of it, dead letters say, is nobody's to wait for.
                return self.commit();
            }
            Some(Err(fault)) => {
                let _ = self.cores.inboxes[self.index].send(Message::Fenced(fault));
            }
            None => {
                if self.workers.lane.tell(LaneMessage::Append(frames)) {
                    self.batches_under_way += 1;
                }
            }
        }
        None
    }

    fn publish_metrics(&self, ingest: u64) {
        let (metrics, counters) = (self.metrics(), self.shard.counters());
        metrics.confirmed_messages.set(counters.confirmed_messages);
        metrics.confirmed_early_messages.set(counters.confirmed_early_messages);
        metrics.duplicate_batches.set(counters.duplicate_batches);
        metrics.delivered_messages.set(counters.delivered_messages);
        metrics.delivered_bytes.set(counters.delivered_bytes);
        metrics.delivered_early_messages.set(counters.delivered_early_messages);
        metrics.refusals.set(counters.refusals);
        metrics.damaged_batches.set(counters.damaged_batches);
        metrics.checkpoints.set(counters.checkpoints);
        let (packs, pack_bytes, pack_live_bytes) = self.shard.pack_usage();
        metrics.packs.set(packs as u64);
        metrics.pack_bytes.set(pack_bytes);
        metrics.pack_live_bytes.set(pack_live_bytes);
        metrics.journal_segments.set(self.shard.segment_count() as u64);
        metrics.cache_bytes.set(self.shard.cache_bytes() as u64);
        metrics.memory_topic_bytes.set(self.shard.memory_bytes());
        metrics.ingest_bytes.set(ingest);
    }

    /// Sends the shard's effects where they belong.
    fn route(&mut self) {
        let mut effects = std::mem::take(&mut self.scratch);
        effects.append(self.shard.effects());
        for effect in effects.drain(..) {
            self.route_one(effect);
        }
        self.scratch = effects;
    }

    fn route_one(&mut self, effect: Effect) {
        let (session, request) = match &effect {
            Effect::Confirmed(confirmed) => (confirmed.origin.session, confirmed.origin.request),
            Effect::Deliver(delivery) => (delivery.session, 0),
            Effect::Settled(settled) => (settled.origin.session, settled.origin.request),
            Effect::SubscriptionEnded { session, .. }
            | Effect::CursorTaken { session, .. }
            | Effect::ReaderTooSlow { session, .. }
            | Effect::Gap { session, .. } => (*session, 0),
            Effect::Subscribed { origin, .. }
            | Effect::Done { origin, .. }
            | Effect::PublishedAt { origin, .. }
            | Effect::Described { origin, .. }
            | Effect::Located { origin, .. }
            | Effect::Cursors { origin, .. }
            | Effect::Refused { origin, .. } => (origin.session, origin.request),
            Effect::Stream(origin, _) => (origin.session, origin.request),
            // The first core has the control of topics.
            Effect::DeadLetterTopicNeeded { .. } | Effect::StreamEnded { .. } => {
                (own_session(0), 0)
            }
        };
        let home = (session.0 >> 48) as usize;
        if home != self.index {
            self.effects[home].push(effect);
            return;
        }
        if session == own_session(home) {
            self.answers.take(effect);
            return;
        }
        let Some(outbox) = self.outboxes.get(&session) else { return };
        match effect {
            Effect::Confirmed(confirmed) => outbox.confirm(&confirmed),
            Effect::Deliver(_) if self.draining => {}
            Effect::Deliver(delivery) => outbox.deliver(delivery),
            Effect::Settled(settled) => {
                let stale = settled.stale.iter().map(|run| SettleRun {
                    partition: settled.partition.index,
                    first: run.first,
                    count: run.count,
                    attempt: run.attempt,
                    generation: run.generation,
                });
                outbox.settled(request, settled.applied, stale);
            }
            Effect::SubscriptionEnded { subscription, .. } => {
                outbox.subscription_ended(subscription, ErrorCode::UnknownTopic);
            }
            Effect::PublishedAt { first, count, .. } => {
                outbox.reply(&Reply::PublishedAt(PublishedAt { first, count }), request);
            }
            Effect::ReaderTooSlow { subscription, .. }
            | Effect::CursorTaken { subscription, .. } => {
                let is_slow = matches!(effect, Effect::ReaderTooSlow { .. });
                let code = if is_slow { ErrorCode::SlowConsumer } else { ErrorCode::CursorHeld };
                outbox.subscription_ended(subscription, code);
                let held = outbox.routes.borrow_mut().subscriptions.remove(&subscription);
                for (core, partition) in
                    held.iter().flat_map(|held| held.each_partition(self.commands.len()))
                {
                    // It ends in all partitions, whatever the others think of it.
                    let change = ReaderChange::End;
                    let end = Command::Reader { session, subscription, partition, change };
                    let _ = self.cores.inboxes[core].send(Message::Commands(vec![end]));
                }
            }
            Effect::Refused { refusal, .. } => {
                outbox.refused(request, refusal_reply::reply(&refusal));
            }
            Effect::Gap { subscription, partition, range, reason, session: _ } => outbox.gap(Gap {
                subscription,
                partition: partition.index,
                offsets: range,
                reason: match reason {
                    sennit_engine::GapReason::Damaged => GapReason::Damaged,
                    sennit_engine::GapReason::Lost => GapReason::Lost,
                    sennit_engine::GapReason::Retention => GapReason::Retention,
                    sennit_engine::GapReason::RolledBack => GapReason::RolledBack,
                    sennit_engine::GapReason::Skipped => GapReason::Skipped,
                    sennit_engine::GapReason::Filtered => GapReason::Filtered,
                    sennit_engine::GapReason::Compacted => GapReason::Compacted,
                },
            }),
            Effect::Subscribed { .. }
            | Effect::Done { .. }
            | Effect::Described { .. }
            | Effect::Located { .. }
            | Effect::Cursors { .. }
            | Effect::Stream(..)
            | Effect::StreamEnded { .. }
            | Effect::DeadLetterTopicNeeded { .. } => {}
        }
    }
}

/// The session under which a core asks in nobody's name. Its sessions count from there.
pub(crate) fn own_session(core: usize) -> SessionId {
    SessionId((core as u64) << 48)
}

/// Bytes of the batches that `commands` publish.
fn published_bytes(commands: &[Command]) -> u64 {
    let bytes = |command: &Command| match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => {
            publish.batch.bytes().len() as u64
        }
        Command::Stream(_, _, StreamCommand::Append(append)) => appended_bytes(append),
        Command::AppendTogether(_, appends) => {
            appends.iter().map(|(_, append)| appended_bytes(append)).sum()
        }
        _ => 0,
    };
    commands.iter().map(bytes).sum()
}

fn appended_bytes(append: &StreamAppend) -> u64 {
    append.content.as_ref().map_or(0, |content| content.bytes() as u64)
}

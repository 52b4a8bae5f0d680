//! One core: a shard, the sessions that are at home here, and the carrying between them, the lane
//! and the other cores. Everything here runs on one thread and never waits while it holds the core.

mod catalogue_needs;
mod effect_sink;
mod handle;
mod idle_partitions;
mod move_thread_work;
mod routing;
mod survey;

use std::{
    collections::HashMap,
    rc::Rc,
    slice,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use sennit_engine::{
    Command, Effect, HoldingGroup, SessionId, StreamAppend, StreamCommand, StreamContent,
};
use sennit_model::{
    Timestamp,
    limits::{LAZY_BYTES, LAZY_SPAN},
};
use sennit_shard::{Fetch, Shard};
use tokio::sync::oneshot;

pub(crate) use self::{
    catalogue_needs::CatalogueNeeds,
    effect_sink::EffectSink,
    handle::{Closes, CoreHandle},
};
use super::{
    clock::now,
    disk_reserve::DiskReserve,
    inbox::{self, Committed, Message},
    lane_thread::{LaneHandle, LaneMessage},
    metrics::CoreMetrics,
    move_permit::MovePermit,
    move_thread::MoveHandle,
    own_topic::OwnTopic,
    publish_gauge::PublishGauge,
    read_thread::ReadThreads,
    session_takeover::SessionToken,
    shard_answers::Answers,
};

/// Bytes that make it worth to hand the lane a second batch while it writes the first.
const SECOND_BATCH_BYTES: u64 = 512 << 10;

/// Bytes whose commit the core does not leave to the lane's thread, if the last
/// commit was quick: waking one thread, and being woken by it, takes about as long as the sync.
const COMMIT_HERE_BYTES: u64 = 64 << 10;
const COMMIT_HERE_TIME: Duration = Duration::from_micros(400);

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
    pub(crate) gauges: Vec<PublishGauge>,
    pub(crate) metrics: Vec<Arc<CoreMetrics>>,
    pub(crate) session_grace: Duration,
    pub(crate) move_permit: Arc<MovePermit>,
    pub(crate) reserve: Arc<DiskReserve>,
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
    /// The sessions that are at home here.
    sinks: HashMap<SessionId, Rc<dyn EffectSink>>,
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
    /// Takes what shards need of the catalogue, on the first core.
    needs: Option<Rc<dyn CatalogueNeeds>>,
    fenced: bool,
    storage_full: bool,
    draining: bool,
    scratch: Vec<Effect>,
}

impl Core {
    fn new(index: usize, shard: Shard, cores: Arc<Cores>, workers: Workers) -> Self {
        let count = cores.inboxes.len();
        Self {
            index,
            shard,
            cores,
            sinks: HashMap::new(),
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
            needs: None,
            fenced: false,
            storage_full: false,
            draining: false,
            scratch: Vec::new(),
        }
    }

    /// What shards need of the catalogue goes here from now on.
    pub(crate) fn set_needs(&mut self, needs: Rc<dyn CatalogueNeeds>) {
        self.needs = Some(needs);
    }

    /// The groups of a shard that hold messages which others are through with.
    pub(crate) fn holding(&self, shard: usize, groups: &[HoldingGroup]) {
        if let Some(needs) = &self.needs {
            needs.names_of_holding(shard, groups);
        }
    }

    /// Gives a new session its number and its way out.
    pub(crate) fn open_session(&mut self, sink: Rc<dyn EffectSink>) -> SessionId {
        self.sessions_opened += 1;
        let session = SessionId(own_session(self.index).0 | self.sessions_opened);
        self.sinks.insert(session, sink);
        self.metrics().connections.add(1);
        session
    }

    /// Forgets a session. Its subscriptions are ended by commands of their own.
    pub(crate) fn close_session(&mut self, session: SessionId) {
        if let Some(sink) = self.sinks.remove(&session) {
            self.metrics().connections.less(1);
            sink.token().and_then(|token| self.tokens.remove(&token));
        }
    }

    /// From now on a session can be replaced by whoever knows its token.
    pub(crate) fn name_session(&mut self, session: SessionId, token: SessionToken) {
        if let Some(sink) = self.sinks.get(&session) {
            sink.set_token(token);
            self.tokens.insert(token, session);
        }
    }

    /// Ends the session of this token, if it is here; says when all shards are told.
    pub(crate) fn replace(&mut self, token: SessionToken, ended: oneshot::Sender<()>) {
        let session = self.tokens.get(&token).and_then(|session| self.sinks.get(session));
        match session {
            Some(sink) => sink.replaced(ended),
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

    pub(crate) fn sinks(&self) -> impl Iterator<Item = &Rc<dyn EffectSink>> {
        self.sinks.values()
    }

    /// Notes a command for the shard of `core`; done when [`Core::handle`] is called.
    pub(crate) fn command(&mut self, core: usize, command: Command) {
        // At once: others are about to publish in the same pass.
        self.cores.gauges[core].sent(published_bytes(slice::from_ref(&command)));
        self.commands[core].push(command);
    }

    /// Does the commands noted for this core's shard; the others travel when the core carries.
    pub(crate) fn handle(&mut self) {
        if !self.commands[self.index].is_empty() {
            let mut commands = std::mem::take(&mut self.commands[self.index]);
            self.handle_noted(&mut commands);
            self.commands[self.index] = commands;
        }
    }

    fn handle_noted(&mut self, commands: &mut Vec<Command>) {
        let bytes = published_bytes(commands);
        self.shard.handle(commands, now());
        self.cores.gauges[self.index].arrived(bytes);
        self.set_gauge();
        self.route();
    }

    /// Says what publishers wait for. Once the disk is full publishes are read, to be refused: what waits
    /// for it to have room again must not keep the acks behind it from making some.
    fn set_gauge(&self) {
        let ingest = if self.storage_full { 0 } else { self.shard.uncommitted_bytes() };
        self.cores.gauges[self.index].set(ingest);
    }

    /// Does commands of other cores' sessions.
    pub(crate) fn handle_from_afar(&mut self, mut commands: Vec<Command>) {
        self.handle_noted(&mut commands);
    }

    /// Sends effects of other cores' shards where they belong here.
    pub(crate) fn effects_from_afar(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.route_one(effect);
        }
    }

    /// The lane's thread has committed a batch, or a part of one.
    pub(crate) fn committed(&mut self, committed: Committed) {
        self.batches_under_way -= usize::from(committed.is_all);
        self.release(committed);
    }

    fn release(&mut self, Committed { end, took, spare_slots, is_full, .. }: Committed) {
        self.last_commit = took;
        self.shard.set_spare_slots(spare_slots, end);
        if is_full != self.storage_full {
            // Before anything else is published: the message that says so may be behind much of it.
            self.set_storage_full(is_full);
        }
        self.shard.committed(end, now());
        self.cores.reserve.set_checkpoint_segments(self.index, self.shard.checkpoint_segments());
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
        self.look_at = Timestamp(0);
    }

    /// Whether publishes to some shard are refused: then all of them free what they can.
    pub(crate) fn set_disk_short(&mut self, short: bool) {
        self.shard.set_disk_short(short);
        if short {
            self.workers.lane.tell(LaneMessage::Short);
        }
        self.look_at = Timestamp(0);
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
        self.set_gauge();
        self.publish_metrics(self.shard.uncommitted_bytes());
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
        Command::Stream(_, _, StreamCommand::Open(open)) => content_bytes(open.content.as_ref()),
        _ => 0,
    };
    commands.iter().map(bytes).sum()
}

fn appended_bytes(append: &StreamAppend) -> u64 {
    content_bytes(append.content.as_ref())
}

/// Bytes of what is appended, or begins a stream.
pub(crate) fn content_bytes(content: Option<&StreamContent>) -> u64 {
    content.map_or(0, |content| content.bytes() as u64)
}

#[cfg(test)]
mod tests {
    use sennit_engine::{OpenStream, Origin, StreamNote, StreamSettings};
    use sennit_model::{BatchBuilder, Message, PartitionId, TopicConfig, TopicKind};

    use super::*;

    #[test]
    fn what_begins_a_stream_is_on_its_way_as_an_append_is() {
        let mut batch = BatchBuilder::for_append(100);
        batch.push(&Message::new(bytes::Bytes::from_static(b"content"))).unwrap();
        let content = batch.take().map(StreamContent::from);
        let bytes = content_bytes(content.as_ref());
        let open = StreamCommand::Open(Box::new(OpenStream {
            config: TopicConfig::of_kind(TopicKind::Stream),
            settings: StreamSettings::of_topic(),
            content: content.clone(),
            closes: false,
        }));
        let note = StreamNote::default();
        let append = StreamAppend { content, content_type: None, note };
        let append = StreamCommand::Append(Box::new(append));
        let asked = [open, append, StreamCommand::StopReading]
            .map(|command| Command::Stream(Origin::default(), PartitionId::default(), command));
        assert!(bytes > 0);
        assert_eq!(published_bytes(&asked), 2 * bytes);
    }
}

//! One core: the shards that it runs, the sessions that live here, and the traffic between these, the lanes and the
//! other cores. Everything here runs on one thread and never waits while it holds the core.

mod addressee;
mod catalogue_needs;
mod core_session;
mod effect_sink;
mod failure_decider;
mod former_leader;
mod group_shard;
mod group_traffic;
mod handle;
mod held_commands;
mod idle_partitions;
mod local_shard;
mod move_thread_work;
mod open_requests;
mod parcels;
mod peer_links;
mod reader_window;
mod rebuild_thread;
mod routing;
mod sent_commands;
mod shard_state;
mod survey;
mod visits;

use std::{
    collections::HashMap,
    rc::Rc,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sennit_engine::{
    Catalogue, CatalogueNews, Command, Content, Effect, Engine, Findings, SessionId, Stored,
    StreamAppend, StreamCommand, Throttles,
};
use sennit_journal::Fault;
use sennit_model::{PartitionId, Timestamp};
use sennit_shard::Standing;

use self::core_session::CoreSession;
pub(crate) use self::{
    catalogue_needs::CatalogueNeeds,
    effect_sink::EffectSink,
    failure_decider::FailureDecider,
    group_shard::GroupShard,
    handle::{Closes, CoreHandle},
    local_shard::{LocalShard, Workers},
    peer_links::{Parcel, PeerLinks},
    shard_state::ShardState,
};
use super::{
    clock::{now, wall},
    disk_reserve::DiskReserve,
    groups::{Groups, Leader},
    inbox::{self, Message, ShardMessage},
    index::{CoreIndex, IndexVec, ShardIndex},
    metrics::{CoreMetrics, ShardMetrics},
    move_permit::MovePermit,
    own_topic::OwnTopic,
    placement::Placement,
    publish_gauge::PublishGauge,
    session_takeover::{Ended, SessionToken},
    shard_answers::Answers,
};

/// What all cores share: the ways to each other.
#[derive(Debug)]
pub(crate) struct Cores {
    /// Which core runs which shard.
    pub(crate) placement: Placement,
    pub(crate) inboxes: IndexVec<CoreIndex, inbox::Sender>,
    pub(crate) gauges: IndexVec<ShardIndex, PublishGauge>,
    pub(crate) metrics: IndexVec<CoreIndex, Arc<CoreMetrics>>,
    pub(crate) shard_metrics: IndexVec<ShardIndex, Arc<ShardMetrics>>,
    pub(crate) session_grace: Duration,
    pub(crate) move_permit: Arc<MovePermit>,
    /// The throttles that all shards share.
    pub(crate) throttles: Arc<Throttles>,
    pub(crate) reserve: Arc<DiskReserve>,
    /// The number of the next claim to a named cursor, at least.
    pub(crate) claims: AtomicU64,
    /// Changes of the settings of topics so far.
    pub(crate) topic_changes: AtomicU64,
    /// Where no client publishes.
    pub(crate) own_topic: OwnTopic,
    /// The groups of the shards, on a node of a cluster.
    pub(crate) groups: Option<Arc<Groups>>,
}

impl Cores {
    /// The session under which a core sends commands of its own.
    pub(crate) fn own_session(&self, core: CoreIndex) -> SessionId {
        CoreSession::of_core(self.node(), core).into()
    }

    /// The number of a claim to a named cursor: greater than all before it. On a node of a cluster it follows the wall
    /// clock, and so is greater than earlier claims at other nodes as a rule.
    pub(crate) fn next_claim(&self) -> u64 {
        if self.groups.is_some() {
            let wall = u64::try_from(wall().as_micros()).unwrap_or(u64::MAX);
            self.claims.fetch_max(wall, Relaxed);
        }
        self.claims.fetch_add(1, Relaxed)
    }

    /// Whether this node leads the catalogue: alone it does.
    pub(crate) fn leads_catalogue(&self) -> bool {
        self.leads(ShardIndex::CATALOGUE)
    }

    /// Whether this node leads the group of a shard: alone it does.
    pub(crate) fn leads(&self, shard: ShardIndex) -> bool {
        let leads = |groups: &Arc<Groups>| matches!(groups.leader_of(shard), Leader::Here { .. });
        self.groups.as_ref().is_none_or(leads)
    }

    /// The number of this node; 0 where there is no cluster.
    fn node(&self) -> u16 {
        self.groups.as_ref().map_or(0, |groups| groups.node)
    }

    fn start_epoch(&self) -> u64 {
        self.groups.as_ref().map_or(0, |groups| groups.start_epoch)
    }

    /// Sends commands to a shard, at the core that runs it.
    fn send_commands(&self, shard: ShardIndex, commands: Vec<Command>) {
        let core = self.placement.core_of(shard);
        let _ = self.inboxes[core].send(Message::Shard(shard, ShardMessage::Commands(commands)));
    }
}

/// The state of a core's thread.
#[derive(Debug)]
pub(crate) struct Core {
    index: CoreIndex,
    /// The shards that it runs, as [`Placement::number_on_core`] numbers them.
    shards: Vec<LocalShard>,
    cores: Arc<Cores>,
    /// The sessions that are at home here.
    sinks: HashMap<SessionId, Rc<dyn EffectSink>>,
    /// The sessions that may be replaced.
    tokens: HashMap<SessionToken, SessionId>,
    sessions_opened: u64,
    /// Commands for each shard, gathered during this pass.
    commands: IndexVec<ShardIndex, Vec<Command>>,
    /// Effects for other cores' sessions, gathered during this pass.
    effects: IndexVec<CoreIndex, Vec<Effect>>,
    pub(crate) answers: Answers,
    /// Takes what shards need of the catalogue, on the first core.
    needs: Option<Rc<dyn CatalogueNeeds>>,
    /// Decides about failed attempts that its shards ask about.
    decider: Option<Rc<dyn FailureDecider>>,
    /// Whether the journal of one of its shards has failed.
    fenced: bool,
    draining: bool,
    scratch: Vec<Effect>,
}

impl Core {
    fn new(index: CoreIndex, shards: Vec<LocalShard>, cores: Arc<Cores>) -> Self {
        let placed = cores.placement.shards_of(index);
        assert!(placed.eq(shards.iter().map(|shard| shard.index)), "its shards, in their order");
        Self {
            index,
            shards,
            sinks: HashMap::new(),
            tokens: HashMap::new(),
            sessions_opened: 0,
            commands: IndexVec::of(cores.placement.shards(), |_| Vec::new()),
            effects: IndexVec::of(cores.placement.cores(), |_| Vec::new()),
            answers: Answers::new(cores.own_session(index), cores.start_epoch()),
            cores,
            needs: None,
            decider: None,
            fenced: false,
            draining: false,
            scratch: Vec::new(),
        }
    }

    /// What shards need of the catalogue goes here from now on.
    pub(crate) fn set_needs(&mut self, needs: Rc<dyn CatalogueNeeds>) {
        self.needs = Some(needs);
    }

    /// Failed attempts that its shards ask about go there from now on.
    pub(crate) fn set_decider(&mut self, decider: Rc<dyn FailureDecider>) {
        self.decider = Some(decider);
    }

    /// What a survey of a shard has found.
    pub(crate) fn found(&self, shard: ShardIndex, findings: Findings) {
        if let Some(needs) = &self.needs {
            needs.names_of_groups(shard, findings);
        }
    }

    /// Gives a new session its number and its way out.
    pub(crate) fn open_session(&mut self, sink: Rc<dyn EffectSink>) -> SessionId {
        self.metrics().connections.add(1);
        self.open_own_session(sink)
    }

    /// The same for a part of the broker that stays until the broker stops, and is no connection.
    pub(crate) fn open_own_session(&mut self, sink: Rc<dyn EffectSink>) -> SessionId {
        self.sessions_opened += 1;
        let number = CoreSession::number(self.cores.start_epoch(), self.sessions_opened);
        let session = CoreSession::new(self.cores.node(), self.index, number).into();
        self.sinks.insert(session, sink);
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
    pub(crate) fn replace(&mut self, token: SessionToken, ended: Ended) {
        let session = self.tokens.get(&token).and_then(|session| self.sinks.get(session));
        match session {
            Some(sink) => sink.replaced(ended),
            None => {
                // It may have ended just now.
                self.carry_commands();
                let _ = ended.send(None);
            }
        }
    }

    pub(crate) fn metrics(&self) -> &CoreMetrics {
        &self.cores.metrics[self.index]
    }

    /// The catalogue, on the first core: that runs the shard which keeps it.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        assert_eq!(self.index, CoreIndex::FIRST, "another core has the catalogue");
        self.shards[self.number(ShardIndex::CATALOGUE)].state.shard().catalogue()
    }

    /// The same; `None` while its state is made anew, or in quarantine, so that nothing can be said of names.
    pub(crate) fn whole_catalogue(&self) -> Option<&Catalogue> {
        let shard = self.shards[self.number(ShardIndex::CATALOGUE)].state.shard();
        let is_whole = !matches!(shard.standing(), Standing::Poisoned | Standing::Quarantined);
        is_whole.then(|| self.catalogue())
    }

    /// Has the state of the catalogue be one that its group has not decided.
    #[cfg(test)]
    pub(crate) fn poison_catalogue(&mut self) {
        let number = self.number(ShardIndex::CATALOGUE);
        let shard = self.shards[number].state.shard_mut();
        shard.stand(Standing::Poisoned, Timestamp(1));
    }

    /// Takes what has changed in the catalogue since this was asked last, on the first core; `None` if something may be
    /// missing.
    pub(crate) fn take_catalogue_news(&mut self) -> Option<Vec<CatalogueNews>> {
        let number = self.number(ShardIndex::CATALOGUE);
        self.shards[number].state.shard_mut().take_catalogue_news()
    }

    /// The partitions that its shards have by now, and what their streams hold on to.
    pub(crate) fn engines(&self) -> impl Iterator<Item = (ShardIndex, &Engine)> {
        self.shards.iter().map(|shard| (shard.index, shard.state.shard().engine()))
    }

    /// What a partition stores of a shard that this core runs.
    pub(crate) fn stored(&self, shard: ShardIndex, partition: PartitionId) -> Stored {
        self.shards[self.number(shard)].state.shard().stored(partition)
    }

    pub(crate) fn sinks(&self) -> impl Iterator<Item = &Rc<dyn EffectSink>> {
        self.sinks.values()
    }

    /// Where one of its own shards is among them.
    fn number(&self, shard: ShardIndex) -> usize {
        debug_assert_eq!(self.cores.placement.core_of(shard), self.index, "it is another core's");
        self.cores.placement.number_on_core(shard)
    }

    /// Notes a command for a shard; done when [`Core::handle`] is called, if the shard is this core's.
    pub(crate) fn command(&mut self, shard: ShardIndex, command: Command) {
        // At once: others are about to publish in the same pass.
        self.cores.gauges[shard].sent(published_bytes(slice::from_ref(&command)));
        self.commands[shard].push(command);
    }

    /// Does the commands noted for this core's shards; the others travel when the core carries.
    pub(crate) fn handle(&mut self) {
        for number in 0..self.shards.len() {
            let shard = self.shards[number].index;
            if !self.commands[shard].is_empty() {
                let mut commands = std::mem::take(&mut self.commands[shard]);
                self.shards[number].handle(&mut commands);
                self.commands[shard] = commands;
                self.route(number);
            }
        }
    }

    /// One of its shards takes what has come for it; gives back what failed, if that shard's journal has.
    pub(crate) fn shard_takes(
        &mut self,
        shard: ShardIndex,
        message: ShardMessage,
    ) -> Option<Fault> {
        let number = self.number(shard);
        let fault = self.shards[number].take(message);
        self.fenced |= fault.is_some();
        self.route(number);
        fault
    }

    /// Sends effects of other cores' shards where they belong here.
    pub(crate) fn effects_from_afar(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.route_one(effect);
        }
    }

    /// Whether a journal has failed.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The broker stops: publishes are refused and nothing more is delivered from now on.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.shards.iter_mut().for_each(|shard| shard.state.stop());
    }

    /// The lanes are to write no more, once they have written what they were given.
    pub(crate) fn end_lanes(&self) {
        self.shards.iter().for_each(LocalShard::end_lane);
    }

    /// Whether the broker stops.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether publishes to some shard are refused: then all of them free what they can.
    pub(crate) fn set_disk_short(&mut self, short: bool) {
        self.shards.iter_mut().for_each(|shard| shard.set_disk_short(short));
    }

    /// Does what is due, if anything is.
    fn advance(&mut self) {
        let now = now();
        for number in 0..self.shards.len() {
            if self.shards[number].advance(now) {
                self.route(number);
            }
        }
    }

    /// Whether the lanes have nothing left to write.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_quiet() && self.commands[shard.index].is_empty())
    }

    /// Carries commands to the other cores' shards.
    pub(crate) fn carry_commands(&mut self) {
        for shard in self.commands.indices() {
            let is_elsewhere = || self.cores.placement.core_of(shard) != self.index;
            if !self.commands[shard].is_empty() && is_elsewhere() {
                let commands = std::mem::take(&mut self.commands[shard]);
                self.cores.send_commands(shard, commands);
            }
        }
    }

    /// Whether a small commit waits until the links have sent what goes before it.
    fn has_put_off(&self) -> bool {
        self.shards.iter().any(LocalShard::has_put_off)
    }

    /// Commits what was put off.
    fn commit_put_off(&mut self) {
        for number in 0..self.shards.len() {
            self.shards[number].commit_put_off();
            self.route(number);
        }
    }

    /// Carries frames to each lane that has time for them, fetches to the readers, and batches to the other
    /// cores; says when the shards want to be woken.
    fn carry(&mut self) -> Option<Timestamp> {
        self.handle();
        self.carry_commands();
        let mut wake = None;
        for number in 0..self.shards.len() {
            let lazy_until = self.shards[number].commit(self.draining);
            self.route(number);
            wake = earlier(wake, lazy_until);
        }
        for core in self.effects.indices() {
            if !self.effects[core].is_empty() {
                let effects = std::mem::take(&mut self.effects[core]);
                let _ = self.cores.inboxes[core].send(Message::Effects(effects));
            }
        }
        for shard in &mut self.shards {
            wake = earlier(wake, shard.carry());
        }
        wake
    }
}

/// The earlier of two moments that may be.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Bytes of the batches that `commands` publish.
fn published_bytes(commands: &[Command]) -> u64 {
    let bytes = |command: &Command| match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => {
            publish.batch.bytes().len() as u64
        }
        Command::PublishAtomic(step) => {
            step.parts.iter().map(|part| part.batch.bytes().len() as u64).sum()
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
pub(crate) fn content_bytes(content: Option<&Content>) -> u64 {
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
        let content = batch.take().map(Content::from);
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

//! A shard in a group: its replica here, and the way to whoever leads. Commands of this node's sessions are done here,
//! travel to the node that leads, or wait until somebody does; what the replica tells goes to this node's sessions, or
//! back to the node of a session.

mod leader_change;
mod leading;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{Command, Effect, Refusal};
use sennit_journal::{Frame, Position, Reader, disk::RealDisk};
use sennit_model::Timestamp;
use sennit_replica::{Moment, OutgoingMessage, Replica};
use sennit_replication::Message;
use sennit_shard::{Fetch, Rebuild, RecoverError, Shard, Standing, TakeOver};

use super::{
    addressee::session_of,
    core_session::CoreSession,
    former_leader::FormerLeader,
    held_commands::{HELD_SPAN, HeldCommands},
    open_requests::{Noted, OpenRequests, origin_of},
    parcels::Gathering,
    peer_links::PeerLinks,
    published_bytes,
    visits::Visits,
};
use crate::runtime::{
    clock::moment,
    groups::{Entries, GroupState, Groups, Leader},
    index::ShardIndex,
};

/// Ticks between a rebuild that has failed and the next.
const REBUILD_REST_TICKS: u64 = 100;

/// How long a node leads at least before it gives leadership away.
const LEADS_AT_LEAST: Duration = Duration::from_secs(5);

/// A shard in a group.
#[derive(Debug)]
pub(crate) struct GroupShard {
    index: ShardIndex,
    clock: fn() -> Moment,
    replica: Replica,
    groups: Arc<Groups>,
    session_grace: Duration,
    /// None before the core has its links.
    peers: Option<Rc<dyn PeerLinks>>,
    lead: Leader,
    /// The leader that was heard last, and its term. A replica in quarantine knows of no other.
    heard_leader: Option<(u16, u64)>,
    /// The leader before, as long as it may still answer what was sent to it.
    former: Option<FormerLeader>,
    /// A leader, and its term, that has said that it leads no more.
    ended: Option<(u16, u64)>,
    /// The last term in which this node led.
    led_term: u64,
    /// When the leader has become what it is, or has tried to give leadership away.
    kept_since: Moment,
    /// How long it leads on from then before it gives leadership to the node that is to have it.
    keeps_for: Duration,
    requests: OpenRequests,
    held: HeldCommands,
    visits: Visits,
    to_leader: Gathering,
    to_nodes: BTreeMap<u16, Gathering>,
    /// Effects for sessions of this node.
    ready: Vec<Effect>,
    /// Nodes to which a message was lost.
    unreached: BTreeSet<u16>,
    is_rebuilding: bool,
    /// No state is made anew before this tick, as the last attempt has failed.
    rebuilds_from: u64,
    /// Whether the broker stops: another node is to lead.
    leaves: bool,
    ticks: u64,
    /// Replicas that need what lies before the log: it was said.
    told_behind: BTreeSet<u64>,
}

impl GroupShard {
    /// A replica that follows nobody yet.
    pub(crate) fn new(
        index: ShardIndex,
        replica: Replica,
        groups: Arc<Groups>,
        session_grace: Duration,
    ) -> Self {
        let clock: fn() -> Moment = moment;
        Self {
            index,
            replica,
            groups,
            session_grace,
            peers: None,
            lead: Leader::Unknown,
            heard_leader: None,
            former: None,
            ended: None,
            led_term: 0,
            kept_since: clock(),
            keeps_for: LEADS_AT_LEAST,
            clock,
            requests: OpenRequests::default(),
            held: HeldCommands::default(),
            visits: Visits::default(),
            to_leader: Gathering::default(),
            to_nodes: BTreeMap::new(),
            ready: Vec::new(),
            unreached: BTreeSet::new(),
            is_rebuilding: false,
            rebuilds_from: 0,
            leaves: false,
            ticks: 0,
            told_behind: BTreeSet::new(),
        }
    }

    fn now(&self) -> Moment {
        (self.clock)()
    }

    pub(super) fn set_peers(&mut self, peers: Option<Rc<dyn PeerLinks>>) {
        self.peers = peers;
    }

    pub(super) fn shard(&self) -> &Shard {
        self.replica.shard()
    }

    pub(super) fn shard_mut(&mut self) -> &mut Shard {
        self.replica.shard_mut()
    }

    /// Does what sessions of this node ask, or sees to it.
    pub(super) fn ask(&mut self, commands: &mut Vec<Command>) {
        let now = self.now();
        let mut here = Vec::new();
        for command in commands.drain(..) {
            self.take_one(command, &mut here, now.time);
        }
        self.do_here(here, now);
    }

    fn take_one(&mut self, mut command: Command, here: &mut Vec<Command>, now: Timestamp) {
        // Settings of the broker, which each replica has.
        if matches!(command, Command::SetThrottles(_) | Command::WatchFailures(_)) {
            return here.push(command);
        }
        let way = self.way();
        let (noted, second) = self.requests.note(&mut command, way.is_some(), now);
        for command in second.into_iter().chain([command]) {
            match way {
                Some(Leader::Here { .. }) => here.push(command),
                // Asked by the leader that is one no more; another asks again.
                _ if matches!(command, Command::DecideFailures(_)) => {}
                Some(Leader::Node { node, term }) => self.forward(&command, node, term),
                _ if noted == Noted::Kept => {}
                _ => {
                    if let Some(command) = self.held.push(command, now) {
                        self.refuse(&command, Refusal::NoLeader);
                    }
                }
            }
        }
    }

    /// Whom commands are asked now; nobody if they wait. Without the lease all of them wait, in their order: it comes
    /// back, or another node leads. They wait as well until it is known what became of those before, at another leader.
    fn way(&self) -> Option<Leader> {
        let is_there = match self.lead {
            Leader::Here { .. } => self.takes(),
            Leader::Node { .. } => true,
            Leader::Unknown => false,
        };
        (is_there && self.former.is_none()).then_some(self.lead)
    }

    fn do_here(&mut self, mut commands: Vec<Command>, now: Moment) {
        if !commands.is_empty() {
            self.replica.handle(&mut commands, now);
        }
        self.finish(now);
    }

    /// Sends a command to the node that leads.
    fn forward(&mut self, command: &Command, node: u16, term: u64) {
        if let Err(refusal) = self.to_leader.add_command(command) {
            return self.refuse(command, refusal);
        }
        self.requests.sent(command, published_bytes(std::slice::from_ref(command)));
        if self.to_leader.is_full() {
            self.send_commands(node, term);
        }
    }

    fn refuse(&mut self, command: &Command, refusal: Refusal) {
        let refused = origin_of(command).map(|origin| Effect::Refused { origin, refusal });
        self.ready.extend(refused);
    }

    /// Runs the timers that are due.
    pub(super) fn advance(&mut self) {
        let now = self.now();
        self.replica.advance(now);
        self.finish(now);
    }

    /// Hears a message of another replica.
    pub(super) fn hear(&mut self, message: &Message, body: Option<Bytes>) {
        let now = self.now();
        self.note_leader(message);
        if let Err(error) = self.replica.hear(message, body, now) {
            let (shard, from) = (self.index.0, message.from);
            tracing::debug!(shard, from, %error, "a message of a replica was not heard");
        }
        self.finish(now);
    }

    pub(super) fn take_frames(&mut self, out: &mut Vec<Frame>) {
        let now = self.now();
        self.replica.take_frames(out, now);
        self.finish(now);
        self.send_messages(now);
    }

    pub(super) fn written(&mut self, end: Position) {
        let now = self.now();
        self.replica.written(end, now);
        self.finish(now);
    }

    pub(super) fn fetched(&mut self, fetch: Fetch, bytes: Option<Bytes>) {
        let now = self.now();
        self.replica.handle_fetch(fetch, bytes, now);
        self.finish(now);
    }

    pub(super) fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        self.replica.take_fetches(out);
    }

    pub(super) fn fence(&mut self) {
        self.replica.shard_mut().fence();
        self.finish(self.now());
    }

    pub(super) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.ready);
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.replica.is_awaited()
    }

    /// The followers of a leader write while it does. A follower has nothing to say before it has written.
    pub(super) fn speaks_first(&self) -> bool {
        matches!(self.lead, Leader::Here { .. })
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        let uncommitted = match self.lead {
            Leader::Here { .. } => self.replica.shard().uncommitted_bytes(),
            _ => 0,
        };
        uncommitted + self.requests.under_way.bytes() + self.held.bytes()
    }

    /// Whether commands are done here now.
    fn takes(&self) -> bool {
        matches!(self.replica.shard().standing(), Standing::Leader { may_give: true, .. })
    }

    /// Whether this node decides.
    fn decides(&self) -> bool {
        self.replica.shard().standing().decides()
    }

    fn state(&self) -> &GroupState {
        &self.groups.states[self.index]
    }

    /// After each call to the replica: what it tells goes where it belongs, and what waits for a leader goes on if there
    /// is one now.
    fn finish(&mut self, now: Moment) {
        self.tell_entries();
        self.sort_effects();
        self.turn_away_early();
        self.follow_leader(now);
        let mut here = Vec::new();
        if let Some(way) = self.way()
            && (self.requests.are_unasked() || self.held.len() > 0)
        {
            for command in self.requests.ask().into_iter().chain(self.held.take()) {
                match way {
                    Leader::Node { node, term } => self.forward(&command, node, term),
                    _ => here.push(command),
                }
            }
        }
        if let Leader::Here { term } = self.lead
            && self.takes()
        {
            here.extend(self.visits.release(term));
        }
        if !here.is_empty() {
            self.replica.handle(&mut here, now);
            self.sort_effects();
        }
    }

    fn tell_entries(&mut self) {
        let uncommitted = self.replica.uncommitted();
        let shard = self.replica.shard_mut();
        let is_poisoned = shard.standing() == Standing::Poisoned;
        let may_give = matches!(shard.standing(), Standing::Leader { may_give: true, .. });
        let Some(last) = shard.labels().map(|labels| labels.last()) else { return };
        let (last_term, last_index) = (last.term, last.index);
        let committed = last_index.saturating_sub(uncommitted);
        let entries = Entries { last_term, last_index, committed, is_poisoned, may_give };
        self.groups.set_entries(self.index, entries);
    }

    /// Divides what the replica tells by the nodes of the sessions.
    fn sort_effects(&mut self) {
        let mut effects = std::mem::take(self.replica.effects());
        for effect in effects.drain(..) {
            let node = session_of(&effect).map(|session| CoreSession::from(session).node());
            match node.filter(|node| *node != self.groups.node) {
                Some(node) => self.tell_node(node, &effect),
                None => {
                    if self.requests.hear(&effect, false) {
                        self.ready.push(effect);
                    }
                }
            }
        }
        // Its room is used again.
        *self.replica.effects() = effects;
    }

    fn tell_node(&mut self, node: u16, effect: &Effect) {
        if let Effect::Stream(origin, _) | Effect::Refused { origin, .. } = effect {
            self.visits.answered(node, *origin);
        }
        let gathering = self.to_nodes.entry(node).or_default();
        if let Err(refusal) = gathering.add_effect(effect) {
            let shard = self.index.0;
            tracing::warn!(shard, node, %refusal, "an effect is too long for another node");
            return self.end_link(node);
        }
        if gathering.is_full() {
            self.send_effects(node);
        }
    }

    /// The link to a node is there, since the node's start of this number, or has ended.
    pub(super) fn link_changed(&mut self, node: u16, start_epoch: Option<u64>) {
        let now = self.now();
        let mut ended = match start_epoch {
            Some(start_epoch) => self.visits.come_back(node, start_epoch),
            None => self.visits.cut_off(node, self.session_grace),
        };
        if start_epoch.is_none() {
            self.lose_link(node, now);
            self.replica.link_lost(u64::from(node), now);
        }
        if !ended.is_empty() && self.decides() {
            self.replica.handle(&mut ended, now);
        }
        self.finish(now);
    }

    /// Sends all that waits for other nodes.
    pub(super) fn send(&mut self) {
        self.send_messages(self.now());
        if let Leader::Node { node, term } = self.lead {
            self.send_commands(node, term);
        }
        let nodes: Vec<u16> = self.to_nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.send_effects(node));
    }

    fn send_messages(&mut self, now: Moment) {
        let mut messages: Vec<OutgoingMessage> = Vec::new();
        self.replica.take_messages(&mut messages);
        for outgoing in messages {
            let Ok(node) = u16::try_from(outgoing.message.to) else { continue };
            let peers = self.peers.as_ref();
            if !peers.is_some_and(|peers| peers.send_message(node, outgoing)) {
                self.unreached.insert(node);
            }
        }
        for node in std::mem::take(&mut self.unreached) {
            self.replica.link_lost(u64::from(node), now);
        }
    }

    fn send_commands(&mut self, node: u16, term: u64) {
        let fits = self.to_leader.fits();
        let Some(parcel) = self.to_leader.take(self.index, term) else { return };
        if !fits || !self.peers.as_ref().is_some_and(|peers| peers.send_commands(node, parcel)) {
            self.end_link(node);
        }
    }

    /// Something for a node is lost: both sides have to know.
    fn end_link(&self, node: u16) {
        if let Some(peers) = &self.peers {
            peers.end(node);
        }
    }

    /// Begins to make a poisoned state anew, if it is not under way.
    pub(super) fn begin_rebuild(
        &mut self,
        reader: impl FnOnce() -> Reader<RealDisk>,
    ) -> Option<Rebuild<RealDisk>> {
        if self.is_rebuilding || self.ticks < self.rebuilds_from || !self.replica.is_poisoned() {
            return None;
        }
        self.is_rebuilding = true;
        self.state().rebuilds.add(1);
        tracing::info!(shard = self.index.0, "the state of a replica is made anew");
        Some(self.replica.begin_rebuild(reader(), self.now()))
    }

    /// A rebuild has nothing more to read; returns it if there is more by now.
    pub(super) fn take_over(&mut self, rebuild: Rebuild<RealDisk>) -> Option<Rebuild<RealDisk>> {
        let now = self.now();
        let taken = self.replica.take_over(rebuild, now);
        self.finish(now);
        match taken {
            Ok(TakeOver::TooEarly(rebuild)) => return Some(*rebuild),
            Ok(TakeOver::Done) => {
                self.is_rebuilding = false;
                tracing::info!(shard = self.index.0, "the state of a replica is there again");
            }
            Err(error) => self.note_failed_rebuild(&error),
        }
        None
    }

    /// A rebuild has failed while it was read.
    pub(super) fn handle_failed_rebuild(&mut self, error: &RecoverError) {
        let now = self.now();
        self.replica.handle_failed_rebuild(error, now);
        self.finish(now);
        self.note_failed_rebuild(error);
    }

    fn note_failed_rebuild(&mut self, error: &RecoverError) {
        (self.is_rebuilding, self.rebuilds_from) = (false, self.ticks + REBUILD_REST_TICKS);
        let shard = self.index.0;
        tracing::error!(shard, %error, "the state of a replica cannot be made anew now");
    }

    /// Commands that have waited too long for a leader are refused.
    fn give_up_waiting(&mut self, now: Timestamp) {
        if self.way().is_some() {
            return;
        }
        for command in self.held.take_overdue(now) {
            self.refuse(&command, Refusal::NoLeader);
        }
        let late = Timestamp(now.0.saturating_sub(HELD_SPAN.as_millis() as u64));
        self.requests.give_up_questions(late, &mut self.ready);
    }
}

#[cfg(test)]
mod tests;

//! A shard in a group: its replica here, and the way to whoever leads. Commands of this node's sessions are done here,
//! travel to the node that leads, or wait until somebody does; what the replica tells goes to this node's sessions, or
//! back to the node of a session.

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
use sennit_replication::{Message, MessageKind, Role};
use sennit_shard::{Fetch, Rebuild, RecoverError, Shard, Standing, TakeOver};

use super::{
    addressee::session_of,
    core_session::CoreSession,
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

/// A shard in a group.
#[derive(Debug)]
pub(crate) struct GroupShard {
    index: ShardIndex,
    replica: Replica,
    groups: Arc<Groups>,
    session_grace: Duration,
    /// None before the core has its links.
    peers: Option<Rc<dyn PeerLinks>>,
    lead: Leader,
    /// The leader that was heard last, and its term. A replica in quarantine knows of no other.
    heard_leader: Option<(u16, u64)>,
    /// The last term in which this node led.
    led_term: u64,
    /// When the leader has become what it is, or has tried to give leadership away.
    kept_since: Moment,
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
        let now = moment();
        Self {
            index,
            replica,
            groups,
            session_grace,
            peers: None,
            lead: Leader::Unknown,
            heard_leader: None,
            led_term: 0,
            kept_since: now,
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
        let now = moment();
        let mut here = Vec::new();
        for command in commands.drain(..) {
            self.take_one(command, &mut here, now.time);
        }
        self.do_here(here, now);
    }

    fn take_one(&mut self, command: Command, here: &mut Vec<Command>, now: Timestamp) {
        // Settings of the broker, which each replica has.
        if matches!(command, Command::SetThrottles(_) | Command::WatchFailures(_)) {
            return here.push(command);
        }
        let is_taken = self.takes();
        let is_led = is_taken || matches!(self.lead, Leader::Node { .. });
        let noted = self.requests.note(&command, is_led, now);
        match self.lead {
            Leader::Here { .. } if is_taken => here.push(command),
            // Asked by the leader that is one no more; another asks again.
            _ if matches!(command, Command::DecideFailures(_)) => {}
            Leader::Node { node, term } => self.forward(&command, node, term),
            Leader::Here { .. } | Leader::Unknown if noted == Noted::Kept => {}
            Leader::Here { .. } | Leader::Unknown => {
                if let Some(command) = self.held.push(command, now) {
                    self.refuse(&command, Refusal::NoLeader);
                }
            }
        }
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
        let now = moment();
        self.replica.advance(now);
        self.finish(now);
    }

    /// Hears a message of another replica.
    pub(super) fn hear(&mut self, message: &Message, body: Option<Bytes>) {
        let now = moment();
        self.note_leader(message);
        if let Err(error) = self.replica.hear(message, body, now) {
            let (shard, from) = (self.index.0, message.from);
            tracing::debug!(shard, from, %error, "a message of a replica was not heard");
        }
        self.finish(now);
    }

    /// Notes who leads by what only leaders say. A replica in quarantine hears nothing any more, and sessions of this
    /// node are served where the group is led all the same.
    fn note_leader(&mut self, message: &Message) {
        let is_of_leader =
            matches!(message.kind, MessageKind::Append { .. } | MessageKind::Heartbeat { .. });
        let is_newest = self.heard_leader.is_none_or(|(_, term)| term <= message.term);
        if let Ok(node) = u16::try_from(message.from)
            && is_of_leader
            && is_newest
        {
            self.heard_leader = Some((node, message.term));
        }
    }

    pub(super) fn take_frames(&mut self, out: &mut Vec<Frame>) {
        let now = moment();
        self.replica.take_frames(out, now);
        self.finish(now);
        self.send_messages(now);
    }

    pub(super) fn written(&mut self, end: Position) {
        let now = moment();
        self.replica.written(end, now);
        self.finish(now);
    }

    pub(super) fn fetched(&mut self, fetch: Fetch, bytes: Option<Bytes>) {
        let now = moment();
        self.replica.handle_fetch(fetch, bytes, now);
        self.finish(now);
    }

    pub(super) fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        self.replica.take_fetches(out);
    }

    pub(super) fn fence(&mut self) {
        self.replica.shard_mut().fence();
        self.finish(moment());
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
        match self.lead {
            Leader::Here { .. } => self.replica.shard().uncommitted_bytes() + self.held.bytes(),
            _ => self.requests.bytes_under_way() + self.held.bytes(),
        }
    }

    /// Whether commands are done here now. Without the lease all of them wait, in their order: it comes back, or another
    /// node leads.
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
        self.follow_leader(now);
        let term = match self.lead {
            Leader::Unknown => return,
            Leader::Here { .. } if !self.takes() => return,
            Leader::Here { term } | Leader::Node { term, .. } => term,
        };
        let again = self.requests.ask();
        let has_early = self.lead == Leader::Here { term };
        let early = if has_early { self.visits.release(term) } else { Vec::new() };
        if again.is_empty() && early.is_empty() && self.held.len() == 0 {
            return;
        }
        let held = self.held.take();
        let mut here = Vec::new();
        for command in again.into_iter().chain(held) {
            match self.lead {
                Leader::Node { node, term } => self.forward(&command, node, term),
                _ => here.push(command),
            }
        }
        here.extend(early);
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

    /// Looks who leads now. If that is another than before, what was asked of that one is lost.
    fn follow_leader(&mut self, now: Moment) {
        let lead = self.leader_now();
        if lead == self.lead {
            return;
        }
        let before = std::mem::replace(&mut self.lead, lead);
        if before != Leader::Unknown {
            self.requests.lose_leader(now.time, &mut self.ready);
            self.to_leader.clear();
        }
        if let Leader::Here { .. } = before {
            self.visits.clear();
        }
        if let Leader::Here { term } = lead {
            // Effects of the term before have no reader any more.
            self.to_nodes.values_mut().for_each(Gathering::clear);
            self.led_term = term;
            self.state().elections.add(1);
        }
        self.kept_since = now;
        tracing::info!(shard = self.index.0, leader = ?lead, "the leader of a group has changed");
        self.groups.set_leader(self.index, lead);
        self.say(Vec::new());
    }

    fn leader_now(&self) -> Leader {
        if let Standing::Leader { term, .. } | Standing::HandingOver { term } =
            self.replica.shard().standing()
        {
            return Leader::Here { term };
        }
        let leader = match self.replica.role() {
            Role::Quarantined => self.heard_leader,
            _ => {
                let node = self.replica.leader().and_then(|leader| u16::try_from(leader).ok());
                node.map(|node| (node, self.replica.term()))
            }
        };
        match leader.filter(|(node, _)| *node != self.groups.node && self.is_up(*node)) {
            Some((node, term)) => Leader::Node { node, term },
            None => Leader::Unknown,
        }
    }

    /// Whether there is a link to a node.
    fn is_up(&self, node: u16) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.is_up(node))
    }

    /// Effects of the group for sessions of this node have come from the node that leads.
    pub(super) fn hear_effects(&mut self, node: u16, term: u64, effects: Vec<Effect>) {
        if self.lead != (Leader::Node { node, term }) {
            // Requests to that leader are lost already.
            return;
        }
        for effect in effects {
            let node = session_of(&effect).map(|session| CoreSession::from(session).node());
            if node == Some(self.groups.node) && self.requests.hear(&effect, true) {
                self.ready.push(effect);
            }
        }
        self.finish(moment());
    }

    /// Commands of sessions of another node have come, for the leader of this term.
    pub(super) fn take_from(&mut self, node: u16, term: u64, mut commands: Vec<Command>) {
        let now = moment();
        let leads = self.replica.role() == Role::Leader && self.replica.term() == term;
        if !leads {
            // That node learns who leads, and that what it has asked is lost.
            tracing::debug!(shard = self.index.0, node, term, "commands for another leader");
            return;
        }
        if self.lead == (Leader::Here { term }) && self.takes() {
            self.visits.note(node, &commands);
            self.replica.handle(&mut commands, now);
        } else if !self.visits.hold(node, term, commands) {
            self.end_link(node);
        }
        self.finish(now);
    }

    /// The link to a node is there, since the node's start of this number, or has ended.
    pub(super) fn link_changed(&mut self, node: u16, start_epoch: Option<u64>) {
        let now = moment();
        let mut ended = match start_epoch {
            Some(start_epoch) => self.visits.come_back(node, start_epoch),
            None => self.visits.cut_off(node, self.session_grace),
        };
        if start_epoch.is_none() {
            self.to_nodes.remove(&node);
            self.replica.link_lost(u64::from(node), now);
        }
        if !ended.is_empty() && self.decides() {
            self.replica.handle(&mut ended, now);
        }
        self.finish(now);
    }

    /// Sends all that waits for other nodes.
    pub(super) fn send(&mut self) {
        self.send_messages(moment());
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

    fn send_effects(&mut self, node: u16) {
        let Some(gathering) = self.to_nodes.get_mut(&node) else { return };
        let fits = gathering.fits();
        let Some(parcel) = gathering.take(self.index, self.led_term) else { return };
        if !fits || !self.peers.as_ref().is_some_and(|peers| peers.send_effects(node, parcel)) {
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
        Some(self.replica.begin_rebuild(reader(), moment()))
    }

    /// A rebuild has nothing more to read; returns it if there is more by now.
    pub(super) fn take_over(&mut self, rebuild: Rebuild<RealDisk>) -> Option<Rebuild<RealDisk>> {
        let now = moment();
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
        let now = moment();
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
        if self.takes() || matches!(self.lead, Leader::Node { .. }) {
            return;
        }
        while let Some(command) = self.held.pop_overdue(now) {
            self.refuse(&command, Refusal::NoLeader);
        }
        let late = Timestamp(now.0.saturating_sub(HELD_SPAN.as_millis() as u64));
        self.requests.give_up_questions(late, &mut self.ready);
    }
}

//! Whom this node's sessions ask, and what becomes of that when another leads: the leader before may still answer what was
//! sent to it. On the other side, a leader that is one no more turns the commands of other nodes away, undone.

use sennit_engine::{Command, Effect, Refusal};
use sennit_replica::Moment;
use sennit_replication::{Message, MessageKind, Role};
use sennit_shard::Standing;

use super::{GroupShard, LEADS_AT_LEAST};
use crate::runtime::{
    core::{
        addressee::session_of, core_session::CoreSession, former_leader::FormerLeader,
        open_requests::answered_once, parcels::Gathering,
    },
    groups::Leader,
};

impl GroupShard {
    /// Notes who leads by what only leaders say. A replica in quarantine hears nothing any more, and sessions of this
    /// node are served where the group is led all the same.
    pub(super) fn note_leader(&mut self, message: &Message) {
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

    /// Looks who leads now, and whether the leader before still has to answer.
    pub(super) fn follow_leader(&mut self, now: Moment) {
        let lead = self.leader_now();
        if lead != self.lead {
            self.change_leader(lead, now);
        }
        let Some(former) = self.former else { return };
        let is_waited_for = self.requests.under_way.are_awaited()
            && self.is_up(former.node)
            && former.may_answer(now);
        if !is_waited_for {
            self.give_up_former(former);
        }
    }

    /// The leader before answers no more.
    fn give_up_former(&mut self, former: FormerLeader) {
        self.former = None;
        self.requests.under_way.give_up(&mut self.ready);
        self.held.put_first(self.requests.under_way.take_undone(), former.lost_at());
    }

    /// The link to a node has ended: nothing that was sent on it is answered. Another may have taken its place already.
    pub(super) fn lose_link(&mut self, node: u16, now: Moment) {
        self.to_nodes.remove(&node);
        if matches!(self.lead, Leader::Node { node: leader, .. } if leader == node) {
            self.to_leader.clear();
            self.change_leader(Leader::Unknown, now);
        }
        if let Some(former) = self.former.filter(|former| former.node == node) {
            self.give_up_former(former);
        }
    }

    fn change_leader(&mut self, lead: Leader, now: Moment) {
        match std::mem::replace(&mut self.lead, lead) {
            Leader::Node { node, term } => {
                self.requests.lose_leader(now.time);
                // It turns away what it has not got so far.
                self.send_commands(node, term);
                self.former.get_or_insert(FormerLeader::new(node, term, now));
            }
            Leader::Here { .. } => {
                self.requests.lose_leader(now.time);
                self.visits.clear();
            }
            Leader::Unknown => {}
        }
        match lead {
            Leader::Here { term } => {
                // Effects of the term before have no reader any more.
                self.to_nodes.values_mut().for_each(Gathering::clear);
                self.led_term = term;
                self.state().elections.add(1);
            }
            Leader::Node { node, term } => {
                // It has led on, and its answers are the leader's again.
                self.former.take_if(|former| former.is(node, term));
            }
            Leader::Unknown => {}
        }
        (self.kept_since, self.keeps_for) = (now, LEADS_AT_LEAST);
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
        let leader = leader.filter(|leader| Some(*leader) != self.ended);
        match leader.filter(|(node, _)| *node != self.groups.node && self.is_up(*node)) {
            Some((node, term)) => Leader::Node { node, term },
            None => Leader::Unknown,
        }
    }

    /// Whether there is a link to a node.
    pub(super) fn is_up(&self, node: u16) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.is_up(node))
    }

    /// Effects of the group for sessions of this node have come from the node that leads, or has led before.
    pub(in crate::runtime::core) fn hear_effects(
        &mut self,
        node: u16,
        term: u64,
        effects: Vec<Effect>,
    ) {
        let leads = self.lead == (Leader::Node { node, term });
        if !leads && !self.former.is_some_and(|former| former.is(node, term)) {
            // Requests to that leader are lost already.
            return;
        }
        for effect in effects {
            let home = session_of(&effect).map(|session| CoreSession::from(session).node());
            if home != Some(self.groups.node) {
                continue;
            }
            if let Effect::Refused { origin, refusal: Refusal::NotLeader { .. } } = &effect
                && self.requests.under_way.not_done(*origin)
            {
                self.ended = Some((node, term));
                continue;
            }
            let is_told = match leads {
                true => self.requests.hear(&effect, true),
                false => self.requests.hear_late(&effect),
            };
            if is_told {
                self.ready.push(effect);
            }
        }
        self.finish(self.now());
    }

    /// Commands of sessions of another node have come, for the leader of this term.
    pub(in crate::runtime::core) fn take_from(
        &mut self,
        node: u16,
        term: u64,
        mut commands: Vec<Command>,
    ) {
        let now = self.now();
        if !self.leads_in(term) {
            tracing::debug!(shard = self.index.0, node, term, "commands for another leader");
            self.turn_away(node, term, &commands);
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

    fn leads_in(&self, term: u64) -> bool {
        self.replica.role() == Role::Leader && self.replica.term() == term
    }

    /// Turns the commands away that have waited here for a term in which this node leads no more. What it has told before
    /// is sorted already, so that it goes ahead of that.
    pub(super) fn turn_away_early(&mut self) {
        if !self.visits.has_early() {
            return;
        }
        let term = Some(self.replica.term()).filter(|term| self.leads_in(*term));
        for (node, early_term, commands) in self.visits.take_early_but(term) {
            self.turn_away(node, early_term, &commands);
        }
    }

    /// Tells a node that these commands were not done: it asks whoever leads.
    fn turn_away(&mut self, node: u16, term: u64, commands: &[Command]) {
        self.send_effects(node);
        let leader = self.replica.leader().unwrap_or_default();
        let mut refusals = Gathering::default();
        for origin in commands.iter().filter_map(answered_once) {
            let refused = Effect::Refused { origin, refusal: Refusal::NotLeader { leader } };
            if refusals.add_effect(&refused).is_err() {
                return self.end_link(node);
            }
        }
        self.send_parcel(node, &mut refusals, term);
    }

    /// Sends what has gathered for the sessions of a node.
    pub(super) fn send_effects(&mut self, node: u16) {
        let Some(mut effects) = self.to_nodes.get_mut(&node).map(std::mem::take) else { return };
        self.send_parcel(node, &mut effects, self.led_term);
        // Its room is used again.
        self.to_nodes.insert(node, effects);
    }

    fn send_parcel(&self, node: u16, effects: &mut Gathering, term: u64) {
        let fits = effects.fits();
        let Some(parcel) = effects.take(self.index, term) else { return };
        if !fits || !self.peers.as_ref().is_some_and(|peers| peers.send_effects(node, parcel)) {
            self.end_link(node);
        }
    }
}

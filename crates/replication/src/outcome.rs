//! What comes of all that a member was told: raft's `Ready`s become one [`Orders`].

use raft::eraftpb::{Entry, EntryType, MessageType};
use raft::{Ready, StateRole};

use crate::label::{Content, Label};
use crate::member::Member;
use crate::message::{Message, MessageKind};
use crate::orders::{Confirmed, Mark, MembershipChange, Orders, Round, Vote};
use crate::refusal::Quarantine;
use crate::sync_queue::HandedOut;
use crate::{change, raft_form};

impl Member {
    /// What is to be done, since this was asked last. `now_ns` is the time on a clock that only goes forward: a lease
    /// counts from it, so the messages leave no earlier.
    pub fn orders(&mut self, now_ns: u64) -> Orders {
        let mut orders =
            Orders { messages: std::mem::take(&mut self.released), ..Orders::default() };
        while self.quarantine.is_none() && self.node.has_ready() {
            self.take_ready(&mut orders, now_ns);
            orders.messages.append(&mut self.released);
        }
        if self.quarantine.is_some() {
            orders = Orders::default();
        }
        orders.committed = self.node.raft.raft_log.committed;
        orders.leadership = self.leadership();
        orders.behind = self.node.store().take_behind().into_iter().collect();
        orders
    }

    /// All that was to be written up to the mark is synced.
    pub fn synced(&mut self, mark: Mark) {
        self.unsynced.synced(mark.0);
        self.settle();
        self.stepped();
    }

    /// Takes one `Ready` and gives it back. Nothing else is asked of raft in between.
    fn take_ready(&mut self, orders: &mut Orders, now_ns: u64) {
        let mut ready = self.node.ready();
        let labels: Vec<Label> = ready.entries().iter().map(raft_form::label).collect();
        let cut_from = self.node.mut_store().append(&labels);
        let now = self.outgoing(ready.take_messages());
        let (heard, later) =
            self.outgoing(ready.take_persisted_messages()).into_iter().partition::<Vec<_>, _>(
                |message| matches!(message.kind, MessageKind::HeartbeatHeard { .. }),
            );
        let decided = ready.take_committed_entries();
        let rounds = ready.take_read_states();
        let number = ready.number();
        let vote = self.vote_to_keep(&ready);
        self.node.advance_append_async(ready);

        assert!(cut_from.is_none() || orders.append.is_empty(), "the log is cut at most once");
        orders.cut_from = orders.cut_from.or(cut_from);
        orders.vote = vote.or(orders.vote);
        let writes = !labels.is_empty() || vote.is_some();
        if writes {
            orders.mark = Some(Mark(number));
        }
        orders.messages.extend(now);
        orders.messages.extend(heard);
        for round in rounds.iter().filter_map(|state| {
            let round = raft_form::round_number(&state.request_ctx)?;
            Some(Confirmed { round: Round(round), index: state.index })
        }) {
            self.lease.confirmed(round.round.0);
            orders.confirmed.push(round);
        }
        self.has_left(labels.last(), now_ns);
        orders.append.extend(labels);
        self.unsynced.push(HandedOut { number, writes, cuts: cut_from.is_some(), messages: later });
        self.settle();
        self.apply(&decided, orders);
        self.stepped();
    }

    /// Tells raft of all that is synced, and lets go of the messages that waited for it.
    fn settle(&mut self) {
        if let Some((number, messages)) = self.unsynced.take_synced() {
            self.node.on_persist_ready(number);
            self.released.extend(messages);
        }
    }

    /// The lease counts from now for what leaves now.
    fn has_left(&mut self, last: Option<&Label>, now_ns: u64) {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return;
        }
        if let Some(label) = last.filter(|label| label.id.term == raft.term) {
            self.lease.entries_left(label.id.index, now_ns);
        }
        for round in self.new_rounds.drain(..) {
            self.lease.round_left(round, now_ns);
        }
    }

    fn outgoing(&mut self, messages: Vec<raft::eraftpb::Message>) -> Vec<Message> {
        self.handed_over |=
            messages.iter().any(|message| message.get_msg_type() == MessageType::MsgTimeoutNow);
        let (group, is_full) = (self.settings.group, self.rooms.is_full);
        messages.iter().map(|message| raft_form::from_raft(group, is_full, message)).collect()
    }

    /// The vote, whenever term or vote differ from what was kept last.
    fn vote_to_keep(&mut self, ready: &Ready) -> Option<Vote> {
        let state = ready.hs()?;
        let vote = Vote { term: state.term, vote: raft_form::replica(state.vote) };
        (vote != std::mem::replace(&mut self.kept, vote)).then_some(vote)
    }

    /// Applies what is committed and synced: changes of members, in order.
    fn apply(&mut self, decided: &[Entry], orders: &mut Orders) {
        let Some(last) = decided.last() else {
            return;
        };
        for entry in
            decided.iter().filter(|entry| entry.get_entry_type() == EntryType::EntryConfChangeV2)
        {
            let Content::Membership(to) = raft_form::label(entry).content else {
                continue;
            };
            let applied = change::step(&self.membership, &to, self.node.raft.prs())
                .and_then(|change| self.node.apply_conf_change(&change).ok());
            if applied.is_none() {
                self.quarantine = Some(Quarantine::Members { index: entry.index });
                return;
            }
            orders
                .memberships
                .push(MembershipChange { index: entry.index, membership: (*to).clone() });
            self.membership = *to;
            self.set_timeout(self.node.raft.term);
            self.spread_window();
        }
        self.node.advance_apply_to(last.index);
        self.step_down_without_vote();
    }

    /// A leader that is no voter any more steps down.
    fn step_down_without_vote(&mut self) {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !self.membership.is_voter(self.settings.replica) {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
    }
}

//! The group's orders are carried out: what is to be written goes to the shard, messages to the links, and the shard's
//! standing follows the group.

use sennit_replication::{Content, Label, Leadership, Message, MessageKind, Orders, Refusal, Role};
use sennit_shard::{EntryBody, Standing};

use crate::{label, moment::Moment, quarantine, replica::Replica};

impl Replica {
    /// Carries out what the group wants done since it was asked last.
    pub(crate) fn carry_out(&mut self, now: Moment) {
        let orders = self.member.orders(now.monotonic_ns);
        // A leader that is one no more decides nothing, and what it has not proposed is dropped, before anything else
        // is written.
        self.step_down(&orders, now);
        self.write(&orders, now);
        self.shard.commit_entries(orders.committed, now.time);
        for message in orders.messages {
            let body = self.body_of(&message);
            self.messages.push(message, body);
        }
        self.behind.extend(orders.behind);
        self.leave_if_damaged();
        self.keep_quarantine(now);
        self.follow_standing(now);
        self.release_labels();
        // A state that is thrown away does not lead, nor one of which a batch is damaged.
        self.member.abstain(self.is_poisoned() || self.shard.damage().is_some());
    }

    /// Writes what is ordered; the mark names its end.
    fn write(&mut self, orders: &Orders, now: Moment) {
        if let Some(index) = orders.cut_from {
            self.shard.cut_from(index, now.time);
        }
        if let Some(vote) = orders.vote {
            self.shard.keep_vote(vote.term, vote.vote.unwrap_or(0));
        }
        for label in &orders.append {
            let id = label::id_of_group(label.id);
            if self.shard.labels().is_some_and(|all| all.term(id.index) == Some(id.term)) {
                // The leader has sealed it.
                continue;
            }
            match &label.content {
                Content::TermBegan => self.shard.append_made(id, None),
                Content::Membership(members) => {
                    self.shard.append_made(id, Some(&label::members_of_group(members)));
                }
                Content::Records(_) => {
                    let entry = self.received.remove(&id).expect("its body has come with it");
                    self.shard.receive(&entry, now.time).expect("it fits, as was checked");
                }
            }
        }
        self.received.clear();
        if let Some(mark) = orders.mark {
            self.marks.push_back((mark, self.shard.sealed_end()));
        }
    }

    fn body_of(&self, message: &Message) -> Option<EntryBody> {
        let MessageKind::Append { label: Some(label), .. } = &message.kind else { return None };
        match label.content {
            Content::Records(_) => self.shard.entry_body(label.id.index),
            Content::TermBegan | Content::Membership(_) => None,
        }
    }

    /// Has the lane keep what the group has found.
    fn keep_quarantine(&mut self, now: Moment) {
        if let Some(quarantine) = self.member.quarantine()
            && self.shard.standing() != Standing::Quarantined
        {
            self.shard.enter_quarantine(quarantine::of_group(quarantine), now.time);
        }
    }

    fn step_down(&mut self, orders: &Orders, now: Moment) {
        let standing = self.standing(now);
        let leads =
            |standing| matches!(standing, Standing::Leader { .. } | Standing::HandingOver { .. });
        if leads(self.shard.standing()) && !leads(standing) {
            self.shard.stand(standing, now.time);
            self.shard.drop_gathering_entry(now.time);
            self.cut_unproposed(orders, now);
        } else if let (
            Standing::Leader { term: held, may_give: true },
            Standing::Leader { term, may_give: false },
        ) = (self.shard.standing(), standing)
            && held == term
        {
            // Before anything is told that is committed now.
            self.shard.stand(standing, now.time);
        }
    }

    /// Cuts the entries that the shard has sealed since the last proposal: the group does not know them, and says
    /// nothing of a cut.
    fn cut_unproposed(&mut self, orders: &Orders, now: Moment) {
        let Some(labels) = self.shard.labels().filter(|_| orders.cut_from.is_none()) else {
            return;
        };
        let sealed = |label: &&Label| labels.term(label.id.index) == Some(label.id.term);
        let own = orders.append.iter().take_while(sealed).count();
        let proposed = self.member.last().index - (orders.append.len() - own) as u64;
        if labels.last().index > proposed {
            self.shard.cut_from(proposed + 1, now.time);
        }
    }

    /// Has the shard stand as its replica does in the group. The lease may have come or gone with time alone.
    pub(crate) fn follow_standing(&mut self, now: Moment) {
        let (standing, held) = (self.standing(now), self.shard.standing());
        if standing != held && !matches!(held, Standing::Poisoned | Standing::Quarantined) {
            self.shard.stand(standing, now.time);
        }
    }

    /// The term in which this replica may give at this time, if it may. The shard gives when it has something to give.
    #[must_use]
    pub fn gives_in(&self, now: Moment) -> Option<u64> {
        match (self.shard.standing(), self.standing(now)) {
            (Standing::Leader { .. }, Standing::Leader { term, may_give: true }) => Some(term),
            _ => None,
        }
    }

    fn standing(&self, now: Moment) -> Standing {
        let Leadership { role, term, leader, .. } = self.member.leadership();
        match (role, self.member.next_entry()) {
            (Role::Leader, Ok(_)) => {
                let until_ns = self.member.lease_until_ns();
                Standing::Leader { term, may_give: until_ns > Some(now.monotonic_ns) }
            }
            (Role::Leader, Err(Refusal::HandingOver)) => Standing::HandingOver { term },
            (Role::Follower, _) => Standing::Follower { leader },
            _ => Standing::Follower { leader: None },
        }
    }
}

//! What always holds in a group, whatever happens.

use std::collections::BTreeMap;

use sennit_replication::{Label, Message, MessageKind, Orders, Role};

use crate::lane::Lane;

/// What the checkers remember of a group.
#[derive(Default)]
pub struct Checkers {
    /// The leader of each term.
    leaders: BTreeMap<u64, u64>,
    /// What is committed.
    pub committed: BTreeMap<u64, Label>,
    /// The vote of each replica in each term.
    votes: BTreeMap<(u64, u64), u64>,
}

impl Checkers {
    /// No vote and no acknowledgement leaves before its sync.
    pub fn sent(&mut self, message: &Message, lane: &Lane) {
        let said = &lane.synced;
        match message.kind {
            MessageKind::Vote { pre_vote: false, granted: true, .. } => {
                assert!(
                    said.vote.term > message.term
                        || (said.vote.term, said.vote.vote) == (message.term, Some(message.to)),
                    "{message:?} leaves, but {:?} is synced",
                    said.vote
                );
                let vote = self.votes.entry((message.from, message.term)).or_insert(message.to);
                assert_eq!(*vote, message.to, "replica {} votes twice", message.from);
            }
            MessageKind::RequestVote { pre_vote: false, .. } => {
                assert!(
                    said.vote.term >= message.term,
                    "{message:?} leaves, but {:?} is synced",
                    said.vote
                );
                let vote = self.votes.entry((message.from, message.term)).or_insert(message.from);
                assert_eq!(*vote, message.from, "replica {} votes twice", message.from);
            }
            MessageKind::Appended { index, .. } => {
                assert!(
                    lane.last().index >= index,
                    "{message:?} leaves, synced: {:?}",
                    lane.last()
                );
            }
            _ => {}
        }
    }

    /// One leader a term.
    pub fn ordered(&mut self, replica: u64, orders: &Orders) {
        if orders.leadership.role == Role::Leader {
            let leader = self.leaders.entry(orders.leadership.term).or_insert(replica);
            assert_eq!(*leader, replica, "term {} has two leaders", orders.leadership.term);
        }
    }

    /// A replica takes an entry for committed: it is the same everywhere, and when it first is, a quorum has synced it.
    pub fn committed<'a>(
        &mut self,
        label: &Label,
        lanes: impl Iterator<Item = &'a Lane>,
        quorum: usize,
    ) {
        let index = label.id.index;
        if let Some(known) = self.committed.get(&index) {
            assert_eq!(known, label, "entry {index} is committed twice");
            return;
        }
        let synced = lanes.filter(|lane| lane.synced_label(index) == Some(label)).count();
        assert!(synced >= quorum, "entry {index} is committed, but synced by {synced} only");
        self.committed.insert(index, label.clone());
    }
}

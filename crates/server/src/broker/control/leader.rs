//! Changes of names on a node of a cluster: they are done where the catalogue is led. A node that does not lead it asks the one that does,
//! waits for a leader for a while, and holds the answer back until it has applied as much itself.
//!
//! A change that was on its way when its link ended may have been done: its outcome is unknown, and it can be asked for again.

use std::rc::Rc;

use bytes::Bytes;
use sennit_engine::Refusal;
use tokio::time::timeout;

use super::Control;
use crate::{
    broker::{
        control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer, Unanswered},
        control_request::ControlRefusal,
        leader_requests::LEADER_PATIENCE,
        name_change::{AppliedTo, Content, NameAnswer, NameChange, NameMessage},
        stream_request::StreamFailure,
    },
    runtime::{groups::Leader, index::ShardIndex},
};

type Outcome = Result<NameAnswer, StreamFailure>;

impl Control {
    /// Has a change be done where the catalogue is led, here or elsewhere.
    pub(super) async fn change_where_led(
        &self,
        peers: &ControlPeers,
        change: NameChange,
    ) -> Outcome {
        let here = async || {
            let outcome = self.decide(change.clone()).await;
            (!is_without_leader(&outcome)).then_some(outcome)
        };
        let there = async |node| {
            let outcome = self.change_at(peers, node, &change).await;
            outcome.filter(|outcome| !is_without_leader(outcome))
        };
        let outcome = Box::pin(peers.where_led(here, there)).await;
        outcome.unwrap_or_else(|| Err(refused(Refusal::NoLeader)))
    }

    /// Does a change here. A refusal that was decided while the state was made anew says nothing of names: this node does not lead.
    async fn decide(&self, change: NameChange) -> Outcome {
        let outcome = Box::pin(self.do_change(change)).await;
        if outcome.is_err() {
            self.look_up(|_| ())?;
        }
        outcome
    }

    /// Has a change be done at another node; `None` if it was not sent.
    async fn change_at(
        &self,
        peers: &ControlPeers,
        node: u16,
        change: &NameChange,
    ) -> Option<Outcome> {
        let body = match NameMessage(Content::Change(Box::new(change.clone()))).to_bytes() {
            Ok(body) => body,
            Err(refusal) => return Some(Err(refused(refusal))),
        };
        let answer = match peers.ask(node, PeerTopic::Names, body).await {
            Ok(answer) => answer,
            Err(Unanswered::NotSent) => return None,
            Err(Unanswered::Lost) => return Some(Err(refused(Refusal::OutcomeUnknown))),
        };
        match NameMessage::decode(answer) {
            Ok(NameMessage(Content::Answer(applied, outcome))) => {
                if outcome.is_ok() && !self.has_applied(peers, applied).await {
                    return Some(Err(refused(Refusal::OutcomeUnknown)));
                }
                Some(outcome)
            }
            Ok(NameMessage(Content::Change(_))) => Some(Err(ControlRefusal::WrongAnswer.into())),
            Err(error) => {
                tracing::warn!(node, %error, "the answer to a change of names cannot be read");
                Some(Err(refused(Refusal::OutcomeUnknown)))
            }
        }
    }

    /// Answers a change of names of another node.
    async fn answer_change(self: Rc<Self>, body: Bytes) -> Bytes {
        let Some(peers) = self.peers.clone() else { return Bytes::new() };
        let outcome = match NameMessage::decode(body) {
            Ok(NameMessage(Content::Change(change))) => {
                match peers.groups.leader_of(ShardIndex::CATALOGUE) {
                    Leader::Here { .. } => self.decide(*change).await,
                    Leader::Node { .. } | Leader::Unknown => Err(refused(Refusal::NoLeader)),
                }
            }
            Ok(NameMessage(Content::Answer(..))) => Err(ControlRefusal::WrongAnswer.into()),
            Err(error) => {
                tracing::warn!(%error, "a change of names of another node cannot be read");
                Err(ControlRefusal::WrongAnswer.into())
            }
        };
        // The change is committed by now.
        let entries = *peers.groups.entries(ShardIndex::CATALOGUE).borrow();
        let applied = AppliedTo { term: entries.last_term, index: entries.committed };
        NameMessage(Content::Answer(applied, outcome)).to_bytes().unwrap_or_default()
    }

    /// Waits until the replica here has what a leader's answer goes by; false if that takes too long.
    ///
    /// The leader of a term has every entry that was committed before, and a log whose last entry is of a term is that of the
    /// term's leader up to there. So a log that is as long and ends in that term, or in a later one, has the entry.
    pub(super) async fn has_applied(&self, peers: &ControlPeers, applied: AppliedTo) -> bool {
        let mut entries = peers.groups.entries(ShardIndex::CATALOGUE);
        let waits = entries.wait_for(|entries| {
            !entries.is_poisoned
                && (entries.committed >= applied.index
                    || entries.last_term >= applied.term && entries.last_index >= applied.index)
        });
        let has_applied = timeout(LEADER_PATIENCE, waits).await.is_ok_and(|waited| waited.is_ok());
        if has_applied {
            peers.note_committed(applied.index);
        }
        has_applied
    }
}

impl PeerRequests for Control {
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer {
        Box::pin(self.answer_change(body))
    }
}

/// Whether nothing was done because nobody led there.
fn is_without_leader(outcome: &Outcome) -> bool {
    let Err(StreamFailure::Broker(refusal)) = outcome else { return false };
    matches!(**refusal, ControlRefusal::Engine(Refusal::NotLeader { .. } | Refusal::NoLeader))
}

pub(super) fn refused(refusal: Refusal) -> StreamFailure {
    ControlRefusal::Engine(refusal).into()
}

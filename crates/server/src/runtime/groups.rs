//! The groups of a node, one for each shard, as all threads see them: who leads each, and what its replica here is like.
//! The core that runs a shard writes what is said of its group; everybody may read it, and wait for it to change.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    count::Count,
    index::{IndexVec, ShardIndex},
};

/// The node that leads a group, as this node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leader {
    /// No leader is known: commands wait.
    #[default]
    Unknown,
    /// This node leads, in this term.
    Here {
        /// The term.
        term: u64,
    },
    /// Another node leads, and can be reached.
    Node {
        /// Its id.
        node: u16,
        /// The term.
        term: u64,
    },
}

/// How far the log of a group is at the replica here: what it has appended is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    /// The last entry's term.
    pub(crate) last_term: u64,
    /// The last entry's index.
    pub(crate) last_index: u64,
    /// The last entry that is committed, as far as this replica knows.
    pub(crate) committed: u64,
    /// Whether the state has applied what the group did not decide, and is made anew.
    pub(crate) is_poisoned: bool,
    /// Whether this replica leads and has the leader's lease: what it has not is not there.
    pub(crate) may_give: bool,
}

/// A replica of the group, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaLag {
    pub(crate) node: u16,
    /// Entries that it has not acknowledged.
    pub(crate) entries: u64,
    /// Whether there is a link to it.
    pub(crate) is_heard: bool,
}

/// The state of a group, as its replica here knows it.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    leader: Mutex<(Leader, &'static str, Vec<ReplicaLag>)>,
    pub(crate) term: Count,
    /// Whether the replica leads.
    pub(crate) leads: Count,
    /// Entries of the log that are not committed, as far as the replica knows.
    pub(crate) commit_lag: Count,
    /// How often this replica has begun to lead.
    pub(crate) elections: Count,
    /// How often the state was made anew.
    pub(crate) rebuilds: Count,
    /// Replicas that need what lies before the log, each time that they said so.
    pub(crate) behind: Count,
    /// Commands that wait for a leader.
    pub(crate) held_commands: Count,
    /// Whether the replica has put itself in quarantine.
    pub(crate) is_quarantined: Count,
    entries: watch::Sender<Entries>,
}

/// The groups of a node.
#[derive(Debug)]
pub(crate) struct Groups {
    /// This node.
    pub(crate) node: u16,
    /// The nodes that have replicas, this one too, by their ids.
    pub(crate) members: Vec<u16>,
    pub(crate) states: IndexVec<ShardIndex, GroupState>,
    changes: watch::Sender<u64>,
    /// How often this node was started, for numbers that must not repeat.
    pub(crate) start_epoch: u64,
    next_number: AtomicU64,
}

impl Groups {
    /// Of a node that has heard of no leader.
    pub(crate) fn new(
        node: u16,
        peers: impl Iterator<Item = u16>,
        shards: usize,
        start_epoch: u64,
    ) -> Self {
        let mut members: Vec<u16> = peers.chain([node]).collect();
        members.sort_unstable();
        Self {
            node,
            members,
            states: IndexVec::of(shards, |_| GroupState::default()),
            changes: watch::Sender::new(0),
            start_epoch,
            next_number: AtomicU64::new(1),
        }
    }

    /// The leader of the group of a shard.
    pub(crate) fn leader_of(&self, shard: ShardIndex) -> Leader {
        self.states[shard].lock().0
    }

    /// Is told, from now on, whenever some group has another leader, or none.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How far the log of a shard's group is here, now and from now on.
    pub(crate) fn entries(&self, shard: ShardIndex) -> watch::Receiver<Entries> {
        self.states[shard].entries.subscribe()
    }

    /// A number that this node has not used before, for a request to another node.
    pub(crate) fn next_number(&self) -> u64 {
        (self.start_epoch << 40).wrapping_add(self.next_number.fetch_add(1, Relaxed))
    }

    /// The node that is to lead a group if it can: leaders are spread over the nodes.
    pub(crate) fn preferred(&self, shard: ShardIndex) -> u16 {
        self.members[shard.0 as usize % self.members.len()]
    }

    /// The log of a shard's group is so far here.
    pub(super) fn set_entries(&self, shard: ShardIndex, entries: Entries) {
        self.states[shard].entries.send_if_modified(|held| {
            let is_new = *held != entries;
            *held = entries;
            is_new
        });
    }

    /// Another node leads the group of a shard, or this one, or nobody who is known.
    pub(super) fn set_leader(&self, shard: ShardIndex, leader: Leader) {
        self.states[shard].lock().0 = leader;
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// The role of the replica of a shard, in a word, and the others' lag if it leads.
    pub(super) fn set_role(
        &self,
        shard: ShardIndex,
        role: &'static str,
        replicas: Vec<ReplicaLag>,
    ) {
        let mut state = self.states[shard].lock();
        (state.1, state.2) = (role, replicas);
    }

    /// Whether each group has a leader that this node can reach.
    pub(crate) fn are_led(&self) -> bool {
        self.states.iter().all(|state| state.lock().0 != Leader::Unknown)
    }

    /// Whether the replica of the catalogue is in quarantine: then this node knows no names and no users.
    pub(crate) fn knows_nobody(&self) -> bool {
        self.states[ShardIndex::CATALOGUE].is_quarantined.value() > 0
    }

    /// All of it, for people and programs.
    pub(crate) fn describe(&self) -> Value {
        let of_group = |(shard, state): (ShardIndex, &GroupState)| {
            let (leader, role, replicas) = state.lock().clone();
            let leader = match leader {
                Leader::Unknown => None,
                Leader::Here { .. } => Some(self.node),
                Leader::Node { node, .. } => Some(node),
            };
            let of_replica = |lag: &ReplicaLag| json!({ "node": lag.node, "lag_entries": lag.entries, "heard": lag.is_heard });
            json!({
                "group": shard.0 + 1,
                "role": role,
                "term": state.term.value(),
                "leader": leader,
                "preferred": self.preferred(shard),
                "commit_lag": state.commit_lag.value(),
                "replicas": replicas.iter().map(of_replica).collect::<Vec<_>>(),
            })
        };
        self.states.iter_indexed().map(of_group).collect()
    }
}

impl GroupState {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Leader, &'static str, Vec<ReplicaLag>)> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_spread_over_the_nodes_by_their_ids() {
        let groups = Groups::new(7, [9, 2].into_iter(), 4, 1);
        let preferred: Vec<_> = (0..4).map(|shard| groups.preferred(ShardIndex(shard))).collect();
        assert_eq!(preferred, [2, 7, 9, 2]);
    }

    #[test]
    fn a_change_of_leader_is_told_and_all_are_led_once_each_has_one() {
        let groups = Groups::new(1, [2].into_iter(), 2, 1);
        let mut changes = groups.watch();
        groups.set_leader(ShardIndex(0), Leader::Here { term: 3 });
        assert!(changes.has_changed().unwrap());
        assert!(!groups.are_led());
        changes.mark_unchanged();
        groups.set_leader(ShardIndex(1), Leader::Node { node: 2, term: 3 });
        assert!(changes.has_changed().unwrap() && groups.are_led());
        assert_eq!(groups.leader_of(ShardIndex(1)), Leader::Node { node: 2, term: 3 });
        assert_eq!(groups.describe()[1]["leader"], 2);
    }
}

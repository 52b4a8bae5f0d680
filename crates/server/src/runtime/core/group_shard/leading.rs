//! The ticks of a group: elections and heartbeats, what is said of the group, and giving leadership to the node that is
//! to have it.

use std::time::Duration;

use sennit_replica::Moment;
use sennit_replication::{Role, WINDOW_MAX};
use sennit_shard::Standing;

use super::GroupShard;
use crate::runtime::groups::{Leader, ReplicaLag};

/// Ticks between two looks at what is said of the group and who is to lead it.
const LOOK_TICKS: u64 = 10;

/// How long it leads on at most, after attempts that have come to nothing.
const KEEPS_AT_MOST: Duration = Duration::from_secs(60);

/// Entries by which the node that is to lead may be behind, and their bytes: it has to catch up while nothing is decided.
/// One that keeps pace with a busy leader has as much under way.
const LAG_ENTRIES_MAX: u64 = 4 * WINDOW_MAX as u64;
const LAG_BYTES_MAX: u64 = 32 << 20;

impl GroupShard {
    /// A tick has passed.
    pub(in crate::runtime::core) fn tick(&mut self) {
        let now = self.now();
        self.replica.tick(now);
        self.ticks += 1;
        self.finish(now);
        self.give_up_waiting(now.time);
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Moment) {
        for replica in self.replica.take_behind() {
            self.state().behind.add(1);
            if self.told_behind.insert(replica) {
                let shard = self.index.0;
                tracing::warn!(
                    shard,
                    replica,
                    "a replica needs what lies before the log: it stays behind"
                );
            }
        }
        let lags: Vec<ReplicaLag> = self
            .replica
            .lags()
            .into_iter()
            .filter_map(|lag| {
                let node = u16::try_from(lag.replica).ok()?;
                Some(ReplicaLag { node, entries: lag.entries, is_heard: self.is_up(node) })
            })
            .collect();
        if self.leaves {
            // A rebuild that was refused, or has failed, is tried again.
            self.leave();
        } else {
            self.give_away(&lags, now);
        }
        self.say(lags);
    }

    /// Says to all threads what the replica is like.
    pub(super) fn say(&self, lags: Vec<ReplicaLag>) {
        let state = self.state();
        state.term.set(self.replica.term());
        state.leads.set(matches!(self.lead, Leader::Here { .. }).into());
        state.commit_lag.set(self.replica.uncommitted());
        state.held_commands.set(self.held.len() as u64);
        state.is_quarantined.set((self.replica.role() == Role::Quarantined).into());
        self.groups.set_role(self.index, self.role(), lags);
    }

    /// Gives leadership to the node that is to have it, if that is there and will have the log in a moment.
    fn give_away(&mut self, lags: &[ReplicaLag], now: Moment) {
        let Leader::Here { .. } = self.lead else { return };
        let preferred = self.groups.preferred(self.index);
        let lag = lags.iter().find(|lag| lag.node == preferred && lag.is_heard);
        let kept_ns = now.monotonic_ns.saturating_sub(self.kept_since.monotonic_ns);
        if !self.decides() || u128::from(kept_ns) < self.keeps_for.as_nanos() {
            return;
        }
        if lag.is_some_and(|lag| self.catches_up(lag.entries)) {
            self.kept_since = now;
            // If it comes to nothing, the group has stood still for that.
            self.keeps_for = (2 * self.keeps_for).min(KEEPS_AT_MOST);
            self.hand_to(preferred, now);
        }
    }

    /// Whether a replica that lacks so many entries has them in a moment.
    fn catches_up(&self, entries: u64) -> bool {
        let bytes = || {
            self.shard().labels().map(|labels| {
                let last = labels.last().index;
                labels.bytes_between(last.saturating_sub(entries), last + 1)
            })
        };
        entries <= LAG_ENTRIES_MAX && bytes() <= Some(LAG_BYTES_MAX)
    }

    /// The broker stops: the node that has the most of the log is to lead.
    pub(in crate::runtime::core) fn leave(&mut self) {
        self.leaves = true;
        if let (Some(heir), true) = (self.heir(), self.decides()) {
            self.hand_to(heir, self.now());
        }
    }

    /// Whether this node leads no more, or nobody else could.
    pub(in crate::runtime::core) fn has_left(&self) -> bool {
        !matches!(self.lead, Leader::Here { .. }) || self.heir().is_none()
    }

    /// Whether sessions of this node have their answers, and other nodes what was said to them.
    pub(in crate::runtime::core) fn owes_nothing(&self) -> bool {
        let has_sent_all = self.peers.as_ref().is_none_or(|peers| peers.has_sent_all());
        has_sent_all && self.held.len() == 0 && !self.requests.under_way.are_awaited()
    }

    /// The node that is to lead when this one stops.
    fn heir(&self) -> Option<u16> {
        let lags = self.replica.lags().into_iter();
        let nodes = lags.filter_map(|lag| Some((lag.entries, u16::try_from(lag.replica).ok()?)));
        nodes.filter(|(_, node)| self.is_up(*node)).min().map(|(_, node)| node)
    }

    pub(super) fn hand_to(&mut self, node: u16, now: Moment) {
        match self.replica.transfer(u64::from(node), now) {
            Ok(()) => tracing::info!(shard = self.index.0, to = node, "leadership is handed over"),
            Err(refusal) => tracing::debug!(shard = self.index.0, %refusal, "leadership stays"),
        }
        self.finish(now);
    }

    /// The role of the replica, in a word.
    fn role(&self) -> &'static str {
        match (self.replica.role(), self.replica.shard().standing()) {
            (Role::Quarantined, _) => "quarantined",
            (_, Standing::Poisoned) => "rebuilding",
            (_, Standing::Leader { .. }) => "leader",
            (_, Standing::HandingOver { .. }) => "handing over",
            (Role::Leader, _) => "elected",
            (Role::Candidate, _) => "candidate",
            (Role::Follower, _) => "follower",
        }
    }
}

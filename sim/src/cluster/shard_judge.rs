//! The judge of a cluster of shards: what raft promises, what the states of replicas are, what clients are told, and that
//! all comes to rest in the end.

use std::collections::{BTreeMap, BTreeSet};

use sennit_replication::Role;
use sennit_shard::{LOG_BEGIN, Standing};

use crate::{
    cluster::{
        agreed_log::AgreedLog,
        clients::{Clients, Reach},
        judge::{Instant, Judge},
        node::Node,
        raft_judge::{
            GIVES_ALL, HEALED, LEADER_HAS_ALL, LOGS_MATCH, NO_QUARANTINE, ONE_LEADER, ONE_LEASE,
            QUORUM,
        },
        shard_node::ShardNode,
    },
    oracle::Violation,
    random::Random,
};

/// The promise that histories are those of one log.
pub const HISTORY: &str = "I1 what clients are told is the history of one log";

/// The state of a replica, as it is known.
#[derive(Clone, Copy, Debug)]
struct Seen {
    life: u64,
    /// The index up to which its log was compared.
    compared: u64,
    role: Role,
}

/// The steps at the end of a run, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Heals,
    ReadsBack,
    Drains,
    Over,
}

/// The state of the cluster as a whole, as it is known.
pub struct ShardJudge {
    nodes: usize,
    has_sane_clocks: bool,
    leaders: BTreeMap<u64, usize>,
    agreed: AgreedLog,
    /// Up to which index a leader has told that all is committed.
    confirmed: u64,
    /// The same by the newest term that had a leader then.
    confirmed_before: BTreeMap<u64, u64>,
    seen: Vec<Seen>,
    ending: Ending,
    /// The nodes that need what lies before the log of another. There are no shipments, so they may stay behind.
    behind: BTreeSet<usize>,
    /// The nodes whose log has rotted. They are not replaced.
    rotten: BTreeSet<usize>,
    /// The clients of the cluster.
    pub clients: Clients,
}

impl ShardJudge {
    /// The judge of a cluster that has done nothing.
    pub fn new(nodes: usize, has_sane_clocks: bool, clients: Clients) -> Self {
        let seen = Seen { life: 0, compared: LOG_BEGIN.index, role: Role::Follower };
        Self {
            nodes,
            has_sane_clocks,
            leaders: BTreeMap::new(),
            agreed: AgreedLog::new(),
            confirmed: LOG_BEGIN.index,
            confirmed_before: BTreeMap::new(),
            seen: vec![seen; nodes],
            ending: Ending::Heals,
            behind: BTreeSet::new(),
            rotten: BTreeSet::new(),
            clients,
        }
    }

    /// Whether a replica stayed behind for want of a shipment.
    pub fn needs_shipment(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Whether enough of these nodes have all that they need.
    fn is_quorum(&self, nodes: impl IntoIterator<Item = usize>) -> bool {
        let is_well = |node: &usize| !self.behind.contains(node) && !self.rotten.contains(node);
        nodes.into_iter().filter(is_well).count() > self.nodes / 2
    }

    /// The number of terms that had a leader.
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }

    fn look_at(
        &mut self,
        index: usize,
        nodes: &mut [ShardNode],
        at: &Instant,
    ) -> Result<(), Violation> {
        let node = &mut nodes[index];
        self.agreed.hear(&node.take_frames());
        self.behind.extend(node.take_behind());
        match node.is_rotten() {
            true => self.rotten.insert(index),
            false => self.rotten.remove(&index),
        };
        let life = node.lives;
        let Some(replica) = node.replica() else { return Ok(()) };
        if self.seen[index].life != life {
            self.seen[index] = Seen { life, compared: LOG_BEGIN.index, role: Role::Follower };
        }
        let (role, term) = (replica.role(), replica.term());
        if role == Role::Quarantined && self.rotten.contains(&index) {
            return Ok(());
        }
        if role == Role::Quarantined {
            let detail = format!("{index}: {:?}", replica.quarantine());
            return Err(Violation::new(NO_QUARANTINE, detail));
        }
        let before = std::mem::replace(&mut self.seen[index].role, role);
        let committed = replica.shard().here().expect("it is a replica").commit;
        if committed > self.seen[index].compared {
            self.check_commits(index, committed, nodes)?;
            if role == Role::Leader {
                self.confirmed = self.confirmed.max(committed);
                if let Some((newest, _)) = self.leaders.last_key_value() {
                    self.confirmed_before.insert(*newest, self.confirmed);
                }
            }
        }
        if role == Role::Leader && before != role {
            self.check_leader(index, term, &mut nodes[index])?;
        }
        if role != before {
            nodes[index].is_to_compare = true;
        }
        self.check_gives(index, committed, &nodes[index], at)?;
        self.compare(index, &mut nodes[index])
    }

    /// A leader that may give knows what was confirmed, and none may behind a newer one, within sane clocks.
    fn check_gives(
        &mut self,
        index: usize,
        committed: u64,
        node: &ShardNode,
        at: &Instant,
    ) -> Result<(), Violation> {
        let gives_in = node.gives_in(at.read_us[index]).filter(|_| at.awake[index]);
        let Some(term) = gives_in.filter(|_| self.has_sane_clocks) else { return Ok(()) };
        let newest = self.clients.note_lease(term);
        if term < newest {
            let detail = format!("{index} has one in term {term}, and another had it in {newest}");
            return Err(Violation::new(ONE_LEASE, detail));
        }
        if committed < self.confirmed {
            let detail = format!("{index} knows {committed} of {}", self.confirmed);
            return Err(Violation::new(GIVES_ALL, detail));
        }
        Ok(())
    }

    /// Compares what a replica takes for committed with what the group has agreed on.
    fn check_commits(
        &mut self,
        index: usize,
        committed: u64,
        nodes: &mut [ShardNode],
    ) -> Result<(), Violation> {
        let compared = std::mem::replace(&mut self.seen[index].compared, committed);
        for entry in compared + 1..=committed {
            let replica = nodes[index].replica().expect("it runs");
            let labels = replica.shard_mut().labels().expect("it is a replica");
            if entry < labels.first_index() {
                continue;
            }
            let Some(label) = labels.get(entry).copied() else {
                let detail = format!("{index} takes {entry} for committed, and does not have it");
                return Err(Violation::new(LOGS_MATCH, detail));
            };
            if self.agreed.commit(index, entry, &label)? {
                let has = |node: &&ShardNode| node.synced().term(entry) == Some(label.term);
                let count = nodes.iter().filter(has).count();
                if count <= self.nodes / 2 {
                    let detail = format!("entry {entry}: {label:?} is on {count} lanes");
                    return Err(Violation::new(QUORUM, detail));
                }
            }
        }
        self.agreed.apply();
        Ok(())
    }

    fn check_leader(
        &mut self,
        index: usize,
        term: u64,
        node: &mut ShardNode,
    ) -> Result<(), Violation> {
        if let Some(leader) = self.leaders.insert(term, index).filter(|leader| *leader != index) {
            let detail = format!("{leader} and {index} lead term {term}");
            return Err(Violation::new(ONE_LEADER, detail));
        }
        let labels = node.replica().and_then(|replica| replica.shard_mut().labels());
        let labels = labels.expect("it is a replica");
        // A vote that comes late makes a leader of an older term, and harms nobody.
        let earlier = self.confirmed_before.range(..=term).next_back();
        let confirmed = earlier.map_or(LOG_BEGIN.index, |(_, confirmed)| *confirmed);
        for entry in labels.first_index()..=confirmed {
            if self.agreed.term(entry) != labels.term(entry) {
                let (agreed, own) = (self.agreed.term(entry), labels.term(entry));
                let detail =
                    format!("{entry}: {agreed:?} was confirmed, {index} leads with {own:?}");
                return Err(Violation::new(LEADER_HAS_ALL, detail));
            }
        }
        Ok(())
    }

    /// Compares the state of a replica, if it is to be compared and has what is agreed on, and no more. Returns whether
    /// it is what it should be.
    fn compare(&mut self, index: usize, node: &mut ShardNode) -> Result<(), Violation> {
        if !node.is_to_compare || !self.agreed.is_applied() {
            return Ok(());
        }
        let Some(replica) = node.replica() else { return Ok(()) };
        let shard = replica.shard_mut();
        let last = shard.labels().expect("it is a replica").last();
        let is_there = last.index == self.agreed.last()
            && Some(last.term) == self.agreed.term(last.index)
            && shard.gathered_bytes() == 0
            && shard.standing() != Standing::Poisoned;
        if is_there {
            self.agreed.compare(index, shard.engine())?;
            node.is_to_compare = false;
        }
        Ok(())
    }

    /// The node that decides, if all have all; otherwise what is not well.
    fn healed(&self, nodes: &mut [ShardNode]) -> Result<usize, Violation> {
        let (last, mut leader) = (self.agreed.last(), None);
        for (index, node) in nodes.iter_mut().enumerate() {
            let Some(replica) = node.replica() else {
                return Err(Violation::new(HEALED, format!("{index} does not run")));
            };
            if self.rotten.contains(&index) {
                continue;
            }
            let shard = replica.shard_mut();
            if shard.standing().decides() {
                leader = Some(index);
            }
            let has = shard.labels().expect("it is a replica").last().index;
            let knows = shard.here().expect("it is a replica").commit;
            let standing = shard.standing();
            let is_well = has == last && knows == last && standing != Standing::Poisoned;
            if !is_well && !self.behind.contains(&index) {
                let detail =
                    format!("{index}, {standing:?}, knows {knows} of {last}, and has {has}");
                return Err(Violation::new(HEALED, detail));
            }
        }
        leader.ok_or_else(|| Violation::new(HEALED, "nobody leads"))
    }

    fn is_any_to_compare(&self, nodes: &[ShardNode]) -> bool {
        let is_left_out = |index| self.behind.contains(&index) || self.rotten.contains(&index);
        let mut all = nodes.iter().enumerate();
        all.any(|(index, node)| node.is_to_compare && !is_left_out(index))
    }

    fn verdict(&mut self) -> Result<(), Violation> {
        let verdict = sennit_history::check(self.clients.history());
        match verdict.violations.first() {
            None => Ok(()),
            Some(first) => {
                let count = verdict.violations.len();
                Err(Violation::new(HISTORY, format!("{first} (one of {count})")))
            }
        }
    }
}

impl Judge<ShardNode> for ShardJudge {
    fn look(&mut self, nodes: &mut [ShardNode], at: &Instant) -> Result<(), Violation> {
        (0..nodes.len()).try_for_each(|index| self.look_at(index, nodes, at))?;
        self.clients.look(&mut Reach { nodes, at })
    }

    fn serve(
        &mut self,
        nodes: &mut [ShardNode],
        node: usize,
        at: &Instant,
        _random: &mut Random,
    ) -> Result<(), Violation> {
        self.clients.act(node, &mut Reach { nodes, at })
    }

    fn progress(&self) -> u64 {
        self.agreed.with_records()
    }

    fn may_stand_still(&self, nodes: &[usize]) -> bool {
        !self.is_quorum(nodes.iter().copied())
    }

    fn end(&mut self, nodes: &mut [ShardNode], at: &Instant) -> Result<(), Violation> {
        if self.ending == Ending::Over {
            return self.verdict();
        }
        if !self.is_quorum(0..self.nodes) {
            // Without a quorum nothing more can be asked.
            return Ok(());
        }
        let leader = self.healed(nodes)?;
        let reach = &mut Reach { nodes, at };
        let still = |of| Err(Violation::new(HEALED, of));
        match self.ending {
            Ending::Heals if !self.clients.finish(leader, reach)? => {
                still("a publisher has no answer")
            }
            Ending::Heals => {
                self.clients.begin_to_read_back();
                nodes.iter_mut().for_each(|node| node.is_to_compare = true);
                self.ending = Ending::ReadsBack;
                still("all is to be read back")
            }
            Ending::ReadsBack if !self.clients.read_back(leader, reach)? => {
                still("a reader does not come to the end")
            }
            Ending::ReadsBack => {
                self.clients.begin_to_drain(leader, reach)?;
                self.ending = Ending::Drains;
                still("a group is to be drained")
            }
            Ending::Drains if !self.clients.drain(leader, reach)? => {
                still("a group does not come to its end")
            }
            _ if self.is_any_to_compare(nodes) => still("a state is not compared"),
            _ => {
                self.ending = Ending::Over;
                self.verdict()
            }
        }
    }
}

//! What raft promises, held against all nodes at once, after each event.

use std::collections::BTreeMap;

use sennit_replication::{Content, GROUP_BEGINS, Label, Member, Role, Vote};

use crate::{
    cluster::{
        judge::{Instant, Judge},
        label_node::LabelNode,
    },
    oracle::Violation,
    random::Random,
};

/// The promise that votes and terms are kept.
pub const VOTES_KEPT: &str = "I1 a term and a vote on disk never go back";
/// The promise that a term has one leader.
pub const ONE_LEADER: &str = "I5 a term has one leader";
/// The promise that the logs agree.
pub const LOGS_MATCH: &str = "I1 the logs match up to the commit";
/// The promise that what is confirmed is durable.
pub const QUORUM: &str = "I1 a committed entry is synced by a quorum";
/// The promise that a leader has all that was confirmed.
pub const LEADER_HAS_ALL: &str = "I1 a confirmed entry is in every later leader";
/// The promise that one leader gives at a time.
pub const ONE_LEASE: &str = "I5 leases of two leaders never overlap";
/// The promise that who gives knows all that was confirmed.
pub const GIVES_ALL: &str = "I5 a leader that gives knows what was confirmed";
/// The promise that a replica whose disk forgets nothing stays in its group.
pub const NO_QUARANTINE: &str = "I8 a replica that has forgotten nothing is not in quarantine";
/// The promise that all replicas have everything in the end.
pub const HEALED: &str = "I8 in the end all replicas have all entries";

/// What is known of the group as a whole.
pub struct RaftJudge {
    nodes: usize,
    has_sane_clocks: bool,
    /// The leader of each term.
    leaders: BTreeMap<u64, usize>,
    /// The committed entries, from the first one on.
    agreed: Vec<Label>,
    /// How many of them have records.
    with_records: u64,
    /// Up to which index a leader has told that all is committed.
    confirmed: u64,
    /// The same while no term newer than the key had a leader.
    confirmed_before: BTreeMap<u64, u64>,
    /// Up to which index each replica's log was compared, in its life.
    compared: Vec<u64>,
    /// The vote that each lane had.
    votes: Vec<Vote>,
}

impl RaftJudge {
    /// The judge of a group that has done nothing.
    pub fn new(nodes: usize, has_sane_clocks: bool) -> Self {
        Self {
            nodes,
            has_sane_clocks,
            leaders: BTreeMap::new(),
            agreed: Vec::new(),
            with_records: 0,
            confirmed: GROUP_BEGINS.index,
            confirmed_before: BTreeMap::new(),
            compared: vec![GROUP_BEGINS.index; nodes],
            votes: vec![Vote::default(); nodes],
        }
    }

    /// The number of terms that had a leader.
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }

    fn agreed(&self, index: u64) -> Option<&Label> {
        self.agreed.get((index - GROUP_BEGINS.index - 1) as usize)
    }

    fn check_vote(&mut self, node: usize, vote: Vote) -> Result<(), Violation> {
        let before = std::mem::replace(&mut self.votes[node], vote);
        let is_same_term = before.term == vote.term;
        if vote.term < before.term
            || is_same_term && before.vote.is_some() && before.vote != vote.vote
        {
            let detail = format!("{node} had {before:?}, and has {vote:?}");
            return Err(Violation::new(VOTES_KEPT, detail));
        }
        Ok(())
    }

    fn check_leader(&mut self, node: usize, member: &Member) -> Result<(), Violation> {
        let leadership = member.leadership();
        if leadership.role == Role::Quarantined {
            let detail = format!("{node}: {:?}", member.quarantine());
            return Err(Violation::new(NO_QUARANTINE, detail));
        }
        if leadership.role != Role::Leader {
            return Ok(());
        }
        let term = leadership.term;
        match self.leaders.get(&term) {
            Some(leader) if *leader == node => return Ok(()),
            Some(leader) => {
                let detail = format!("{leader} and {node} lead term {term}");
                return Err(Violation::new(ONE_LEADER, detail));
            }
            None => {}
        }
        self.leaders.insert(term, node);
        // A vote that comes late makes a leader of an older term, and harms nobody.
        let earlier = self.confirmed_before.range(..=term).next_back();
        let confirmed = earlier.map_or(GROUP_BEGINS.index, |(_, confirmed)| *confirmed);
        for index in GROUP_BEGINS.index + 1..=confirmed {
            if self.agreed(index) != member.label(index) {
                let (agreed, own) = (self.agreed(index), member.label(index));
                let detail = format!("{agreed:?} was confirmed, {node} leads {term} with {own:?}");
                return Err(Violation::new(LEADER_HAS_ALL, detail));
            }
        }
        Ok(())
    }

    /// Compares what a replica takes for committed with what the group has agreed on.
    fn check_commits(
        &mut self,
        node: usize,
        member: &Member,
        committed: u64,
        nodes: &[LabelNode],
    ) -> Result<(), Violation> {
        for index in self.compared[node] + 1..=committed {
            let own = member.label(index);
            match (self.agreed(index), own) {
                (Some(agreed), Some(own)) if agreed == own => {}
                (None, Some(own)) => {
                    self.check_quorum(own, nodes)?;
                    self.with_records += u64::from(matches!(own.content, Content::Records(_)));
                    self.agreed.push(own.clone());
                }
                (agreed, own) => {
                    let detail = format!("{index}: {agreed:?}, but {node} has {own:?}");
                    return Err(Violation::new(LOGS_MATCH, detail));
                }
            }
        }
        self.compared[node] = committed;
        if member.leadership().role == Role::Leader {
            self.confirmed = self.confirmed.max(committed);
            if let Some((newest, _)) = self.leaders.last_key_value() {
                self.confirmed_before.insert(*newest, self.confirmed);
            }
        }
        Ok(())
    }

    fn check_quorum(&self, label: &Label, nodes: &[LabelNode]) -> Result<(), Violation> {
        let has = |node: &&LabelNode| node.lane().durable().label(label.id.index) == Some(label);
        let count = nodes.iter().filter(has).count();
        if count > self.nodes / 2 {
            return Ok(());
        }
        Err(Violation::new(QUORUM, format!("{label:?} is on {count} lanes")))
    }

    fn check_leases(&self, nodes: &[LabelNode], read_us: &[u64]) -> Result<(), Violation> {
        let gives = |node: &usize| {
            let member = nodes[*node].member();
            let until_ns = member.and_then(Member::lease_until_ns);
            until_ns.is_some_and(|until_ns| until_ns > read_us[*node] * 1000)
        };
        let giving: Vec<usize> = (0..nodes.len()).filter(gives).collect();
        if giving.len() > 1 {
            return Err(Violation::new(ONE_LEASE, format!("{giving:?}")));
        }
        for &node in &giving {
            let committed = nodes[node].committed();
            if committed < self.confirmed {
                let detail = format!("{node} knows {committed} of {}", self.confirmed);
                return Err(Violation::new(GIVES_ALL, detail));
            }
        }
        Ok(())
    }
}

impl Judge<LabelNode> for RaftJudge {
    fn look(&mut self, nodes: &mut [LabelNode], at: &Instant) -> Result<(), Violation> {
        for (index, node) in nodes.iter().enumerate() {
            self.check_vote(index, node.lane().durable().vote)?;
            match node.member() {
                None => self.compared[index] = GROUP_BEGINS.index,
                Some(member) => {
                    self.check_commits(index, member, node.committed(), nodes)?;
                    self.check_leader(index, member)?;
                }
            }
        }
        match self.has_sane_clocks {
            true => self.check_leases(nodes, &at.read_us),
            false => Ok(()),
        }
    }

    fn serve(
        &mut self,
        nodes: &mut [LabelNode],
        node: usize,
        at: &Instant,
        random: &mut Random,
    ) -> Result<(), Violation> {
        nodes[node].serve(random, at.read_us[node])
    }

    fn progress(&self) -> u64 {
        self.with_records
    }

    fn end(&mut self, nodes: &mut [LabelNode], _at: &Instant) -> Result<(), Violation> {
        let last = GROUP_BEGINS.index + self.agreed.len() as u64;
        for (index, node) in nodes.iter().enumerate() {
            let has = node.lane().durable().labels.len();
            if node.committed() != last || has != self.agreed.len() {
                let knows = node.committed();
                let detail = format!("{index} knows {knows} of {last}, and has {has} entries");
                return Err(Violation::new(HEALED, detail));
            }
        }
        Ok(())
    }
}

//! What a trouble does to the nodes and to the network between them.

use super::{Course, Event};
use crate::{
    cluster::{
        judge::Judge,
        node::{Node, Stop},
        weather::Trouble,
    },
    oracle::Violation,
};

/// The longest time from a cut to the break of its connection.
const CUT_BREAKS_US: u64 = 2_000_000;

/// The shortest and the longest time for which a node is isolated.
const ISOLATED_US: (u64, u64) = (700_000, 2_000_000);
/// The shortest and the longest time from a cut to a restart of a voter beside it.
const RESTART_US: (u64, u64) = (400_000, 2_000_000);
/// The number of its restarts.
const RESTARTS: usize = 3;
/// The longest time that it is down.
const RESTARTING_US: u64 = 30_000;

impl<N: Node, J: Judge<N>> Course<N, J> {
    /// The next trouble happens, unless it would reach into the quorum that is left alone.
    pub(super) fn draw_trouble(&mut self) -> Result<(), Violation> {
        let leads = |node: &usize| self.nodes[*node].leads() && !self.is_stalled(*node);
        let leader = (0..self.weather.nodes).find(leads);
        let trouble = self.weather.trouble(leader, &mut self.random);
        if self.spares(trouble) {
            self.after(self.weather.trouble_every_us, Event::Trouble);
            return Ok(());
        }
        match trouble {
            // Nothing else happens meanwhile.
            Trouble::RestartVoter { .. } => {
                self.agenda.add(self.now_us + RESTART_US.1, Event::Trouble);
            }
            _ => self.after(self.weather.trouble_every_us, Event::Trouble),
        }
        self.trace.step(format_args!("{} {trouble:?}", self.now_us));
        self.trouble(trouble)
    }

    /// Whether a trouble would reach into the quorum that is left alone.
    fn spares(&self, trouble: Trouble) -> bool {
        let Some(calm) = &self.calm else { return false };
        let has = |node: usize| calm.has(node);
        match trouble {
            Trouble::Crash { node }
            | Trouble::Kill { node }
            | Trouble::CutNode { node, .. }
            | Trouble::Isolate { node }
            | Trouble::StallLane { node }
            | Trouble::SlowLane { node }
            | Trouble::FailSync { node }
            | Trouble::StallCore { node }
            | Trouble::FillDisk { node }
            | Trouble::Rot { node } => has(node),
            Trouble::RestartVoter { .. } => true,
            Trouble::CutPair { one, other } | Trouble::Break { one, other } => {
                has(one) && has(other)
            }
            Trouble::CutDirection { from, to } | Trouble::Pause { from, to } => {
                has(from) && has(to)
            }
            Trouble::Transfer { .. } => true,
        }
    }

    fn trouble(&mut self, trouble: Trouble) -> Result<(), Violation> {
        let lasts_us = self.random.below(self.weather.trouble_us_max) + 1;
        let until_us = self.now_us + lasts_us;
        match trouble {
            Trouble::Crash { node } => return self.stop(node, Stop::PowerCut),
            Trouble::Kill { node } => return self.stop(node, Stop::Kill),
            Trouble::CutNode { node, inward, outward } => {
                self.cut_node(node, (inward, outward), until_us);
            }
            Trouble::Isolate { node } => {
                let lasts_us = self.random.between(ISOLATED_US.0, ISOLATED_US.1);
                self.cut_node(node, (true, true), self.now_us + lasts_us);
            }
            Trouble::CutPair { one, other } => {
                self.cut(one, other, until_us);
                self.cut(other, one, until_us);
            }
            Trouble::CutDirection { from, to } => self.cut(from, to, until_us),
            Trouble::RestartVoter { leader } => self.restart_voter(leader),
            Trouble::FillDisk { node } => {
                self.nodes[node].set_full(true);
                self.agenda.add(until_us, Event::DiskHasRoom { node });
            }
            Trouble::Rot { .. } if self.has_rotted => {}
            Trouble::Rot { node } => {
                self.has_rotted = self.nodes[node].prepare_to_rot(&mut self.random);
                return self.stop(node, Stop::PowerCut);
            }
            Trouble::Break { one, other } => return self.disconnect(one, other),
            Trouble::Pause { from, to } => self.network.pause(from, to, until_us),
            Trouble::StallLane { node } => self.around[node].stalls_sync = true,
            Trouble::SlowLane { node } => self.around[node].slow_until_us = until_us,
            Trouble::FailSync { node } => self.around[node].fails_sync = true,
            Trouble::StallCore { node } if !self.nodes[node].is_up() => {}
            Trouble::StallCore { node } => {
                let life = self.around[node].life;
                self.around[node].stalled_until_us = until_us;
                self.agenda.add(until_us, Event::CoreResumes { node, life });
            }
            Trouble::Transfer { to } => {
                let leads = |node: &usize| self.nodes[*node].leads() && !self.is_stalled(*node);
                let leader = (0..self.weather.nodes).find(leads);
                if let Some(node) = leader.filter(|node| *node != to) {
                    let read_us = self.read_us(node);
                    self.nodes[node].transfer(to, read_us)?;
                    self.carry(node)?;
                }
            }
        }
        Ok(())
    }

    /// Cuts the leader off from as many as the group can do without; meanwhile one of the others restarts.
    fn restart_voter(&mut self, leader: usize) {
        let count = self.weather.nodes;
        let first = self.random.below(count as u64 - 1) as usize;
        let others = (0..count - 1).map(|turn| (leader + 1 + (first + turn) % (count - 1)) % count);
        let others: Vec<usize> = others.collect();
        let (hearing, deaf) = others.split_at(count / 2);
        for to in deaf {
            self.cut(leader, *to, self.now_us + RESTART_US.1);
            self.cut(*to, leader, self.now_us + RESTART_US.1);
        }
        for _ in 0..RESTARTS {
            let after_us = self.random.between(RESTART_US.0, RESTART_US.1);
            self.agenda.add(self.now_us + after_us, Event::Restart { node: hearing[0] });
        }
    }

    /// The process of a node dies and starts again at once, unless it is in a quorum that is left alone.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), Violation> {
        let is_spared = self.calm.as_ref().is_some_and(|calm| calm.has(node));
        if is_spared || self.troubles_are_over || !self.nodes[node].is_up() {
            return Ok(());
        }
        self.trace.step(format_args!("{} node {node} restarts", self.now_us));
        self.stop(node, Stop::Kill)?;
        self.start_within(node, RESTARTING_US);
        Ok(())
    }

    fn cut_node(&mut self, node: usize, (inward, outward): (bool, bool), until_us: u64) {
        for other in (0..self.weather.nodes).filter(|other| *other != node) {
            if inward {
                self.cut(other, node, until_us);
            }
            if outward {
                self.cut(node, other, until_us);
            }
        }
    }

    fn cut(&mut self, from: usize, to: usize, until_us: u64) {
        self.network.cut(from, to, until_us);
        self.agenda.add(until_us, Event::Heal { from, to });
        if self.random.chance(self.weather.cuts_break) {
            self.after(CUT_BREAKS_US, Event::CutBreaks { one: from, other: to });
        }
    }
}

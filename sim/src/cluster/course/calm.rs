//! At times a quorum is left alone: no trouble reaches into it, and it has to make progress.

use super::{CONNECT_US, Course, Event};
use crate::{
    cluster::{
        judge::{Judge, PROGRESS},
        node::Node,
    },
    oracle::Violation,
};

/// Time for which a quorum is left alone, within which it has to make progress.
const CALM_US: u64 = 5_000_000;
/// The same in evil seeds, where messages of a leader that is gone arrive for three seconds.
const EVIL_CALM_US: u64 = 10_000_000;
/// The same where progress ends it: a replica that is behind catches up one entry at a time while messages come in any order.
const EVIL_CALM_US_MAX: u64 = 30_000_000;
/// Time between two looks at whether it has made progress, where that ends it.
const LOOK_US: u64 = 100_000;

/// A quorum that is left alone.
#[derive(Debug)]
pub(super) struct Calm {
    nodes: Vec<usize>,
    progress: u64,
    until_us: u64,
}

impl Calm {
    /// Whether a node is in the quorum.
    pub(super) fn has(&self, node: usize) -> bool {
        self.nodes.contains(&node)
    }
}

impl<N: Node, J: Judge<N>> Course<N, J> {
    /// A quorum is left alone from now on.
    pub(super) fn begin_calm(&mut self) -> Result<(), Violation> {
        let quorum = self.draw_quorum();
        self.trace.step(format_args!("{} calm for {quorum:?}", self.now_us));
        let calm_us = match (self.weather.is_evil, self.weather.calm_ends_early) {
            (false, _) => CALM_US,
            (true, false) => EVIL_CALM_US,
            (true, true) => EVIL_CALM_US_MAX,
        };
        self.calm_down(quorum, calm_us)?;
        self.look_at_calm_later();
        Ok(())
    }

    fn look_at_calm_later(&mut self) {
        let Some(calm) = &self.calm else { return };
        let ends_early = self.weather.calm_ends_early;
        let at_us =
            if ends_early { calm.until_us.min(self.now_us + LOOK_US) } else { calm.until_us };
        self.agenda.add(at_us, Event::CalmEnds);
    }

    /// The quorum has been left alone long enough, or has made progress, where that is enough.
    pub(super) fn look_at_calm(&mut self) -> Result<(), Violation> {
        let Some(calm) = &self.calm else { return Ok(()) };
        let is_enough = self.weather.calm_ends_early && self.has_made_progress();
        if self.now_us < calm.until_us && !is_enough {
            self.look_at_calm_later();
            return Ok(());
        }
        self.check_progress()?;
        self.calm = None;
        self.after(self.weather.calm_every_us, Event::CalmBegins);
        Ok(())
    }

    fn draw_quorum(&mut self) -> Vec<usize> {
        let is_well = |node: &usize| !self.nodes[*node].is_rotten();
        let mut quorum: Vec<usize> = (0..self.weather.nodes).filter(is_well).collect();
        let least = self.weather.nodes / 2 + 1;
        let count = self.random.between(least as u64, quorum.len() as u64) as usize;
        while quorum.len() > count {
            let index = self.random.below(quorum.len() as u64) as usize;
            quorum.remove(index);
        }
        quorum
    }

    /// Ends all troubles of these nodes and between them, and keeps further ones away.
    pub(super) fn calm_down(&mut self, quorum: Vec<usize>, calm_us: u64) -> Result<(), Violation> {
        for &node in &quorum {
            let of = &mut self.around[node];
            (of.slow_until_us, of.fails_sync, of.stalls_sync) = (0, false, false);
            self.nodes[node].set_full(false);
            let life = of.life;
            if of.stalled_until_us > self.now_us {
                of.stalled_until_us = self.now_us;
                self.agenda.add(self.now_us, Event::CoreResumes { node, life });
            }
            if !self.nodes[node].is_up() {
                self.start(node)?;
            } else if let Some(sync) = self.around[node].syncing {
                self.agenda.add(self.now_us + 1, Event::SyncEnds { node, life, sync });
            }
        }
        for &from in &quorum {
            for &to in quorum.iter().filter(|to| **to != from) {
                self.network.heal(from, to, self.now_us);
                self.after(CONNECT_US, Event::Connect { one: from, other: to });
            }
        }
        let (progress, until_us) = (self.judge.progress(), self.now_us + calm_us);
        self.calm = Some(Calm { nodes: quorum, progress, until_us });
        Ok(())
    }

    /// Whether the quorum which was left alone has made progress.
    pub(super) fn has_made_progress(&self) -> bool {
        self.calm.as_ref().is_some_and(|calm| self.judge.progress() > calm.progress)
    }

    /// Checks that it has.
    pub(super) fn check_progress(&self) -> Result<(), Violation> {
        let Some(calm) = &self.calm else { return Ok(()) };
        if self.has_made_progress() || self.judge.may_stand_still(&calm.nodes) {
            return Ok(());
        }
        let detail = format!("{:?} were left alone, and it stays at {}", calm.nodes, calm.progress);
        Err(Violation::new(PROGRESS, detail))
    }
}

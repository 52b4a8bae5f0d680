//! The groups of a core's shards: their clock, and the messages from other nodes.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_engine::{Command, Effect};
use sennit_replication::{Message, TICK_MS};
use tokio::time::sleep;

use super::{Core, CoreHandle, group_shard::GroupShard, peer_links::PeerLinks};
use crate::runtime::index::ShardIndex;

/// The least time between two ticks.
const TICK: Duration = Duration::from_millis(TICK_MS);

/// Ticks for ever. However late the thread is, no tick comes sooner than [`TICK`] after the one before, and none is made up
/// for: a follower counts ticks of silence, and ten of them have to be nine whole ones, or it votes while the leader that
/// it has heard still has its lease (`sennit_replication::LEASE_NS`).
async fn tick_for_ever(mut tick: impl FnMut()) {
    loop {
        sleep(TICK).await;
        tick();
    }
}

impl CoreHandle {
    /// Ticks the groups of the core's shards as long as its thread lives.
    pub(crate) async fn tick_groups(self) {
        tick_for_ever(|| self.with(Core::tick)).await;
    }
}

impl Core {
    /// Its shards' groups reach the other nodes by these links.
    pub(crate) fn set_peers(&mut self, peers: &Rc<dyn PeerLinks>) {
        for shard in &mut self.shards {
            if let Some(group) = shard.state.group() {
                group.set_peers(Some(peers.clone()));
            }
        }
    }

    /// There are no links any more.
    pub(crate) fn forget_peers(&mut self) {
        for shard in &mut self.shards {
            if let Some(group) = shard.state.group() {
                group.set_peers(None);
            }
        }
    }

    fn tick(&mut self) {
        self.each_group(GroupShard::tick);
    }

    /// The link to a node is there, since the node's start of this number, or has ended.
    pub(crate) fn link_changed(&mut self, node: u16, start_epoch: Option<u64>) {
        self.each_group(|group| group.link_changed(node, start_epoch));
    }

    /// A message of another replica has come for one of its shards; false if it has no such shard.
    pub(crate) fn hear(
        &mut self,
        shard: ShardIndex,
        message: &Message,
        body: Option<Bytes>,
    ) -> bool {
        self.with_group(shard, |group| group.hear(message, body))
    }

    /// Commands of another node's sessions have come, for the leader of this term; false if the core has no such shard.
    pub(crate) fn take_from(
        &mut self,
        node: u16,
        (shard, term): (ShardIndex, u64),
        commands: Vec<Command>,
    ) -> bool {
        self.with_group(shard, |group| group.take_from(node, term, commands))
    }

    /// Effects for this node's sessions have come from a leader; false if the core has no such shard.
    pub(crate) fn hear_effects(
        &mut self,
        node: u16,
        (shard, term): (ShardIndex, u64),
        effects: Vec<Effect>,
    ) -> bool {
        self.with_group(shard, |group| group.hear_effects(node, term, effects))
    }

    fn each_group(&mut self, mut act: impl FnMut(&mut GroupShard)) {
        for number in 0..self.shards.len() {
            if let Some(group) = self.shards[number].state.group() {
                act(group);
            }
            self.route(number);
        }
    }

    fn with_group(&mut self, shard: ShardIndex, act: impl FnOnce(&mut GroupShard)) -> bool {
        let placement = &self.cores.placement;
        let is_here =
            (shard.0 as usize) < placement.shards() && placement.core_of(shard) == self.index;
        if !is_here {
            return false;
        }
        let number = self.number(shard);
        let Some(group) = self.shards[number].state.group() else { return false };
        act(group);
        self.route(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_was_held_up_ticks_no_faster_afterwards() {
        let ticked = RefCell::new(vec![Instant::now()]);
        let ticks = tick_for_ever(|| ticked.borrow_mut().push(Instant::now()));
        let held_up = async {
            for millis in [50, 149, 10, 1_000, 40, 10, 99, 1, 50, 50] {
                advance(Duration::from_millis(millis)).await;
            }
        };
        tokio::select! {
            biased;
            () = ticks => {}
            () = held_up => {}
        }
        let ticked = ticked.into_inner();
        assert!(ticked.len() > 5, "{ticked:?}");
        assert!(ticked.is_sorted_by(|before, next| *next - *before >= TICK), "{ticked:?}");
    }
}

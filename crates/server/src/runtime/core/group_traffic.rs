//! The groups of a core's shards: their clock, and the messages from other nodes.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_engine::{Command, Effect};
use sennit_replication::{Message, TICK_MS};
use tokio::time::{Instant, sleep_until};

use super::{Core, CoreHandle, group_shard::GroupShard, peer_links::PeerLinks};
use crate::runtime::index::ShardIndex;

/// The time between two ticks.
const TICK: Duration = Duration::from_millis(TICK_MS);

/// Ticks that are made up for at once when the thread was held up: others must not be doubted for that.
const TICKS_AT_ONCE_MAX: u32 = 2;

impl CoreHandle {
    /// Ticks the groups of the core's shards as long as its thread lives.
    pub(crate) async fn tick_groups(self) {
        let mut ticked = Instant::now();
        loop {
            sleep_until(ticked + TICK).await;
            let passed = ticked.elapsed().as_millis() / u128::from(TICK_MS);
            let count = u32::try_from(passed).unwrap_or(u32::MAX);
            ticked += TICK * count;
            self.with(|core| core.tick(count.min(TICKS_AT_ONCE_MAX)));
        }
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

    fn tick(&mut self, count: u32) {
        self.each_group(|group| group.tick(count));
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

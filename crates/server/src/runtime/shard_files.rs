//! Access to the shards' files for backup and scrub while the broker serves. It keeps no thread of a shard from
//! ending.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use tokio::sync::oneshot;

use super::{
    inbox::{ShardMessage, ShardSender},
    index::{IndexVec, ShardIndex},
    lane_thread::LaneDoor,
    move_thread::PackPin,
};

/// One shard's.
#[derive(Debug)]
pub(crate) struct LaneFiles {
    pub(crate) lane: LaneDoor,
    pub(crate) packs: Arc<PackPin>,
    pub(crate) core: ShardSender,
}

impl LaneFiles {
    /// The packs that are in use; `None` once the core has ended. To be asked from a thread that may
    /// wait.
    pub(crate) fn packs_in_use(&self) -> Option<BTreeSet<u32>> {
        let (answer, answered) = oneshot::channel();
        self.core.send(ShardMessage::PacksInUse(answer)).then_some(())?;
        answered.blocking_recv().ok()
    }
}

/// All shards'; each is there once its shard is recovered.
#[derive(Debug)]
pub(crate) struct ShardFiles(IndexVec<ShardIndex, OnceLock<LaneFiles>>);

impl ShardFiles {
    pub(crate) fn closed(shards: usize) -> Self {
        Self(IndexVec::of(shards, |_| OnceLock::new()))
    }

    /// The shard is recovered, once.
    pub(crate) fn open(&self, shard: ShardIndex, door: LaneFiles) {
        let _ = self.0[shard].set(door);
    }

    /// The doors, by shard; `None` before all are open.
    pub(crate) fn all(&self) -> Option<IndexVec<ShardIndex, &LaneFiles>> {
        self.0.iter().map(OnceLock::get).collect()
    }
}

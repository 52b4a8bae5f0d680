//! Folds idle partitions of a core's shards, a few at a time. The shards decide which are idle.

use std::time::Duration;

use super::CoreHandle;

/// How often it is gone on with.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So many looks go once round all partitions: what is left alone for two rounds is folded.
const LOOKS_OF_A_ROUND: u32 = 100;

impl CoreHandle {
    /// Folds as long as the core's thread lives.
    pub(crate) async fn fold_untouched(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // Nobody is told: it changes nothing.
            for local in &mut self.core.borrow_mut().shards {
                local.state.shard_mut().fold_untouched(LOOKS_OF_A_ROUND);
            }
        }
    }
}

//! Surveys a core's partitions, a few at a time, for metrics that are not counted on the way. The engine counts;
//! the first core adds the names of topics and groups.

use std::time::Duration;

use super::CoreHandle;
use crate::runtime::{clock::now, inbox::Message, index::CoreIndex};

/// How often it is gone on with.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So many looks go once round all partitions: a metric is at most about 20 s old.
const LOOKS_OF_A_ROUND: u32 = 100;

/// A group that has held messages for less is not told of: as a rule one group is a little behind another.
const HOLDING_TOLD_AFTER: Duration = Duration::from_secs(60);

impl CoreHandle {
    /// Surveys as long as the core's thread lives.
    pub(crate) async fn survey(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let first = &self.cores.inboxes[CoreIndex::FIRST];
            for local in &mut self.core.borrow_mut().shards {
                let Some(mut findings) = local.state.shard_mut().survey(LOOKS_OF_A_ROUND) else {
                    continue;
                };
                local.metrics.counts.parked_messages.set(findings.parked);
                // A replica that does not lead knows nothing of leases: its leader tells of its groups.
                if !self.cores.leads(local.index) {
                    findings.holding.clear();
                    findings.backlogs.clear();
                }
                let now = now();
                findings.holding.retain(|held| now.since(held.since) >= HOLDING_TOLD_AFTER);
                let _ = first.send(Message::Found(local.index, findings));
            }
        }
    }
}

//! Surveys a core's partitions, a few at a time, for the metrics that no turn counts. What is counted, the
//! engine knows; what topics and groups are called, the first core.

use std::time::Duration;

use super::CoreHandle;
use crate::runtime::{clock::now, inbox::Message};

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
            let findings = self.core.borrow_mut().shard.survey(LOOKS_OF_A_ROUND);
            let Some(mut findings) = findings else { continue };
            self.look(|core| core.metrics().parked_messages.set(findings.parked));
            let now = now();
            findings.holding.retain(|held| now.since(held.since) >= HOLDING_TOLD_AFTER);
            let _ = self.cores.inboxes[0].send(Message::Holding(self.index, findings.holding));
        }
    }
}

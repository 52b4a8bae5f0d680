//! Surveys a core's partitions, a few at a time, for the metrics that no turn counts. What is counted, the
//! engine knows.

use std::time::Duration;

use super::CoreHandle;

/// How often it is gone on with.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So many looks go once round all partitions: a metric is at most about 20 s old.
const LOOKS_OF_A_ROUND: u32 = 100;

impl CoreHandle {
    /// Surveys as long as the core's thread lives.
    pub(crate) async fn survey(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut core = self.core.borrow_mut();
            if let Some(findings) = core.shard.survey(LOOKS_OF_A_ROUND) {
                core.metrics().parked_messages.set(findings.parked);
            }
        }
    }
}

//! Requests that any node takes and the node that leads the catalogue answers: this one, or another, which is waited for a while.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::control_peers::ControlPeers;
use crate::runtime::{groups::Leader, index::ShardIndex};

/// How long a request waits for a leader.
pub(crate) const LEADER_PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for news of a leader that says it is none.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl ControlPeers {
    /// Has something be done `here` if this node leads the catalogue, or `there`, at the node that does. Either gives nothing if nothing
    /// was done because that node does not lead it yet, or any more; then it is asked for again. Nothing comes of it if
    /// [`LEADER_PATIENCE`] is over.
    pub(crate) async fn where_led<T>(
        &self,
        here: impl AsyncFn() -> Option<T>,
        there: impl AsyncFn(u16) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + LEADER_PATIENCE;
        let mut leaders = self.groups.watch();
        loop {
            let done = match self.groups.leader_of(ShardIndex::CATALOGUE) {
                Leader::Here { .. } => here().await,
                Leader::Node { node, .. } => there(node).await,
                Leader::Unknown => None,
            };
            let now = Instant::now();
            if done.is_some() || now >= deadline {
                return done;
            }
            drop(timeout_at(deadline.min(now + LOOK_AGAIN), leaders.changed()).await);
        }
    }
}

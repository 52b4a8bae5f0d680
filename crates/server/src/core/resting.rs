//! Has a core's thread give back what came free while it was busy: the allocator keeps that until the
//! thread asks for memory again, which one at rest does not. It does not know what the memory was for.

use std::time::Duration;

use tokio::{runtime::Handle, time::sleep};

use super::CoreHandle;

/// How often it is looked whether the core rests.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// It rests if it was busy for less than one of so many parts of that time.
const BUSY_PART: u32 = 50;

impl CoreHandle {
    /// Gives back each time that the core has come to rest, as long as its thread lives.
    pub(crate) async fn give_back_at_rest(self) {
        let metrics = Handle::current().metrics();
        let mut busy_before = Duration::ZERO;
        let mut was_at_rest = false;
        loop {
            sleep(LOOK_EVERY).await;
            let busy = metrics.worker_total_busy_duration(0);
            let is_at_rest = busy.saturating_sub(busy_before) < LOOK_EVERY / BUSY_PART;
            if is_at_rest && !was_at_rest {
                (self.cores.give_back)();
            }
            (busy_before, was_at_rest) = (busy, is_at_rest);
        }
    }
}

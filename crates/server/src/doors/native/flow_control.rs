//! Pauses the subscriptions of a session while too many of its deliveries wait for its socket. A window is the
//! client's room; this is the broker's own. It knows no socket.

use std::convert::Infallible;

use sennit_engine::SessionId;
use tokio::task::yield_now;

use super::{outbox::Outbox, subscription_routes::Subscription};
use crate::runtime::core::CoreHandle;

/// Pauses all that the session takes part in whenever too much waits in its outbox, and has it go on once
/// there is room.
pub(crate) async fn hold_back(id: SessionId, core: &CoreHandle, outbox: &Outbox) -> Infallible {
    loop {
        outbox.wait_for_hold_back_change().await;
        let numbers: Vec<u32> = outbox.routes.borrow().subscriptions.numbers().collect();
        for number in numbers {
            let found = outbox.routes.borrow().subscriptions.get(number);
            if let Some(subscription) = found {
                set_windows(id, number, subscription, core, outbox);
                // Others have their turn: it may have very many partitions.
                yield_now().await;
            }
        }
    }
}

/// Tells all partitions of a subscription what its window is now.
pub(crate) fn set_windows(
    id: SessionId,
    number: u32,
    subscription: Subscription,
    core: &CoreHandle,
    outbox: &Outbox,
) {
    let window = outbox.window_now(subscription.window);
    let placement = &core.cores.placement;
    core.with(|core| {
        for (shard, partition) in subscription.each_partition(placement) {
            core.command(shard, subscription.set_window(id, number, partition, window));
        }
    });
}

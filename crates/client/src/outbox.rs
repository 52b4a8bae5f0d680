//! The outbox of the connection task: publishers that have batches, settlements, and a flag for commands. Handles
//! put items in; only the connection task takes them out. It knows no socket.

use std::{
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use sennit_model::{GroupId, TopicId};
use sennit_protocol::{SettleRun, Verdict};

use crate::{
    error::Error,
    publisher_core::SharedPublisher,
    settle_queue::{SettleBatch, SettleQueue, SettleWaiter},
};

#[derive(Default)]
struct State {
    publishers: Vec<SharedPublisher>,
    settles: SettleQueue,
    /// A handle has sent a command that the task has not taken.
    is_notified: bool,
    /// The connection task has ended.
    is_closed: bool,
    /// The waker of the connection task, if the task waits.
    waiting: Option<Waker>,
}

/// The items that the connection task sends next.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
}

/// Says which items an outbox has, or which of them the task waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// Commands in the channel.
    pub(crate) has_commands: bool,
    /// Publishers that have batches, or settlements.
    pub(crate) has_frames: bool,
}

impl State {
    fn readiness(&self) -> Readiness {
        Readiness {
            has_commands: self.is_notified,
            has_frames: !self.publishers.is_empty() || !self.settles.is_empty(),
        }
    }
}

/// Wakes the connection task, if it waits.
fn wake_task(mut state: MutexGuard<'_, State>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the channel has a command.
    pub(crate) fn notify(&self) {
        let mut state = self.state();
        state.is_notified = true;
        wake_task(state);
    }

    /// Clears the note. The task calls it before it reads the channel, so that a later command sets
    /// the note again.
    pub(crate) fn clear_notification(&self) {
        self.state().is_notified = false;
    }

    /// Adds a publisher that has batches to send.
    pub(crate) fn publisher_has_batches(&self, publisher: SharedPublisher) {
        let mut state = self.state();
        if !state.is_closed {
            state.publishers.push(publisher);
            wake_task(state);
        }
    }

    /// Adds a settlement.
    pub(crate) fn settle(
        &self,
        topic: TopicId,
        group: GroupId,
        verdict: Verdict,
        run: SettleRun,
        waiter: Option<SettleWaiter>,
    ) {
        let mut state = self.state();
        if state.settles.push(topic, group, verdict, run, waiter) {
            wake_task(state);
        }
    }

    /// Limits the body of a settle frame to `frame_bytes_max` bytes.
    pub(crate) fn set_frame_bytes_max(&self, frame_bytes_max: usize) {
        self.state().settles.set_frame_bytes_max(frame_bytes_max);
    }

    /// Says which items there are.
    pub(crate) fn readiness(&self) -> Readiness {
        self.state().readiness()
    }

    /// Moves the publishers that have batches to `list`.
    pub(crate) fn take_publishers(&self, list: &mut Vec<SharedPublisher>) {
        list.append(&mut self.state().publishers);
    }

    /// Takes out the settlements.
    pub(crate) fn take_settles(&self) -> Vec<SettleBatch> {
        let mut state = self.state();
        if state.settles.is_empty() { Vec::new() } else { state.settles.take() }
    }

    /// Waits for an item of interest. Only one task may wait.
    pub(crate) async fn ready(&self, interest: Readiness) {
        poll_fn(|cx| self.poll_ready(interest, cx)).await;
    }

    fn poll_ready(&self, interest: Readiness, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let readiness = state.readiness();
        if interest.has_commands && readiness.has_commands
            || interest.has_frames && readiness.has_frames
        {
            return Poll::Ready(());
        }
        if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(cx.waker())) {
            state.waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Drops all items. Later ones are ignored.
    pub(crate) fn close(&self, error: &Error) {
        let mut state = self.state();
        state.is_closed = true;
        state.settles.close(error);
        let unsent = std::mem::take(&mut state.publishers);
        // A publisher may hold the last handle, whose drop notifies the outbox.
        drop(state);
        drop(unsent);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use sennit_model::{Generation, Offset, PartitionIndex};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const COMMANDS: Readiness = Readiness { has_commands: true, has_frames: false };
    const FRAMES: Readiness = Readiness { has_commands: false, has_frames: true };

    fn ack(outbox: &Outbox) {
        let (partition, generation) = (PartitionIndex(0), Generation(1));
        let run = SettleRun { partition, first: Offset(0), count: 1, attempt: 1, generation };
        outbox.settle(TopicId(1), GroupId(2), Verdict::Ack, run, None);
    }

    #[test]
    fn what_is_put_in_wakes_the_task_and_is_there_until_it_is_taken() {
        let (outbox, woken) = (Outbox::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(outbox.poll_ready(FRAMES, &mut cx).is_pending());
        ack(&outbox);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(outbox.poll_ready(COMMANDS, &mut cx).is_pending(), "that is not waited for");
        assert!(outbox.poll_ready(FRAMES, &mut cx).is_ready());
        assert_eq!(outbox.take_settles().len(), 1);
        assert!(outbox.poll_ready(FRAMES, &mut cx).is_pending());
        outbox.notify();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(outbox.poll_ready(FRAMES, &mut cx).is_pending());
        assert!(outbox.poll_ready(COMMANDS, &mut cx).is_ready());
        outbox.clear_notification();
        assert!(outbox.poll_ready(COMMANDS, &mut cx).is_pending());
    }
}

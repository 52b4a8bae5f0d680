//! What the connection task is to send next: publishers that have batches, and settlements; and whether
//! it is to do something else. Others put in, only the connection task takes out. It knows no socket.

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
    /// It was rung, and nobody has answered.
    is_rung: bool,
    /// Nothing is sent any more.
    is_closed: bool,
    /// The connection task, where it waits.
    waiting: Option<Waker>,
}

/// What the connection task is to send next, and its bell.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
}

/// What there is in an outbox, or what is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    /// Something to do: it was rung.
    pub(crate) to_do: bool,
    /// Publishers that have batches, or settlements.
    pub(crate) to_send: bool,
}

impl State {
    fn filling(&self) -> Filling {
        Filling {
            to_do: self.is_rung,
            to_send: !self.publishers.is_empty() || !self.settles.is_empty(),
        }
    }
}

/// Wakes the connection task, if it waits.
fn tell(mut state: MutexGuard<'_, State>) {
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

    /// There is something to do for the connection task.
    pub(crate) fn ring(&self) {
        let mut state = self.state();
        state.is_rung = true;
        tell(state);
    }

    /// It is about to look for that: what comes from here on rings again.
    pub(crate) fn answer(&self) {
        self.state().is_rung = false;
    }

    /// A publisher has batches to send.
    pub(crate) fn publisher_has_batches(&self, publisher: SharedPublisher) {
        let mut state = self.state();
        if !state.is_closed {
            state.publishers.push(publisher);
            tell(state);
        }
    }

    /// A consumer has spoken of deliveries.
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
            tell(state);
        }
    }

    /// From now on a settle frame's body has at most `frame_bytes_max` bytes.
    pub(crate) fn set_frame_bytes_max(&self, frame_bytes_max: usize) {
        self.state().settles.set_frame_bytes_max(frame_bytes_max);
    }

    /// What there is.
    pub(crate) fn filling(&self) -> Filling {
        self.state().filling()
    }

    /// Moves the publishers that have put themselves in to `list`.
    pub(crate) fn take_publishers(&self, list: &mut Vec<SharedPublisher>) {
        list.append(&mut self.state().publishers);
    }

    /// Takes out the settlements that wait.
    pub(crate) fn take_settles(&self) -> Vec<SettleBatch> {
        let mut state = self.state();
        if state.settles.is_empty() { Vec::new() } else { state.settles.take() }
    }

    /// Until there is something of what is awaited. Only one may wait.
    pub(crate) async fn filled(&self, awaited: Filling) {
        poll_fn(|cx| self.poll_filled(awaited, cx)).await;
    }

    fn poll_filled(&self, awaited: Filling, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let there_is = state.filling();
        if awaited.to_do && there_is.to_do || awaited.to_send && there_is.to_send {
            return Poll::Ready(());
        }
        if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(cx.waker())) {
            state.waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&self, error: &Error) {
        let mut state = self.state();
        state.is_closed = true;
        state.settles.close(error);
        let unsent = std::mem::take(&mut state.publishers);
        // They may hold the last handle, which rings.
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

    const TO_DO: Filling = Filling { to_do: true, to_send: false };
    const TO_SEND: Filling = Filling { to_do: false, to_send: true };

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
        assert!(outbox.poll_filled(TO_SEND, &mut cx).is_pending());
        ack(&outbox);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(outbox.poll_filled(TO_DO, &mut cx).is_pending(), "that is not waited for");
        assert!(outbox.poll_filled(TO_SEND, &mut cx).is_ready());
        assert_eq!(outbox.take_settles().len(), 1);
        assert!(outbox.poll_filled(TO_SEND, &mut cx).is_pending());
        outbox.ring();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(outbox.poll_filled(TO_SEND, &mut cx).is_pending());
        assert!(outbox.poll_filled(TO_DO, &mut cx).is_ready());
        outbox.answer();
        assert!(outbox.poll_filled(TO_DO, &mut cx).is_pending());
    }
}

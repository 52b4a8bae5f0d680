//! Settlements that consumers have made and the connection has not sent yet. Equal verdicts share a frame, and
//! adjacent offsets become one run. It knows no socket and no consumer.

use sennit_model::{
    Generation, GroupId, PartitionIndex, TopicId,
    limits::{REASON_BYTES_MAX, SETTLE_RUNS_MAX},
};
use sennit_protocol::{Run, SettleHead, SettleRun, Settled as SettledFrame, Verdict};
use tokio::sync::oneshot;

use crate::error::Error;

/// Number of waiting frames that are searched for one with the same verdict: a consumer with
/// several tasks alternates between few.
const LOOK_BACK: usize = 4;

/// The outcome of a settlement that the program asked to have confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Number of messages that were settled. The settlement is committed.
    pub applied: u64,
    /// Number of messages that were not settled, because they were settled before, or because their
    /// lease had ended and they were delivered again. A settlement that this client sent twice
    /// after a lost connection may count here although the first one was applied.
    pub stale: u64,
}

/// Receives the outcome for one run.
pub(crate) type SettleWaiter = oneshot::Sender<Result<Settled, Error>>;

/// A settle frame that gathers runs.
#[derive(Debug)]
pub(crate) struct SettleBatch {
    pub(crate) head: SettleHead,
    pub(crate) runs: Vec<SettleRun>,
    pub(crate) waiters: Vec<(SettleRun, SettleWaiter)>,
    /// Whether the frame was also sent on an earlier connection.
    pub(crate) is_resent: bool,
}

impl SettleBatch {
    /// Sends each waiter its part of the answer.
    pub(crate) fn answered(self, frame: &SettledFrame) {
        for (run, waiter) in self.waiters {
            let stale = frame.stale.iter().map(|stale| common(&stale, &run)).sum();
            let applied = u64::from(run.count).saturating_sub(stale);
            // The caller may have stopped waiting.
            let _ = waiter.send(Ok(Settled { applied, stale }));
        }
    }

    /// Sends each waiter the error.
    pub(crate) fn failed(self, error: &Error) {
        for (_, waiter) in self.waiters {
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

/// The number of offsets that two runs of the same delivery have in common.
fn common(a: &SettleRun, b: &SettleRun) -> u64 {
    if identity(a) != identity(b) {
        return 0;
    }
    let end = |run: &SettleRun| run.first.0.saturating_add(u64::from(run.count));
    end(a).min(end(b)).saturating_sub(a.first.max(b.first).0)
}

fn identity(run: &SettleRun) -> (PartitionIndex, u32, Generation) {
    (run.partition, run.attempt, run.generation)
}

/// Settlements that wait to be sent.
#[derive(Debug)]
pub(crate) struct SettleQueue {
    batches: Vec<SettleBatch>,
    /// The maximum number of runs in a frame.
    runs_max: usize,
    closed: bool,
}

impl Default for SettleQueue {
    fn default() -> Self {
        Self { batches: Vec::new(), runs_max: SETTLE_RUNS_MAX, closed: false }
    }
}

impl SettleQueue {
    /// Limits the body of a frame to `frame_bytes_max` bytes, its reason included.
    pub(crate) fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        let room = frame_bytes_max.saturating_sub(SettleHead::BYTES + REASON_BYTES_MAX);
        self.runs_max = (room / SettleRun::BYTES).clamp(1, SETTLE_RUNS_MAX);
    }

    /// Adds a run. Returns whether the connection task has to be woken. After the connection has
    /// ended, the waiter is dropped, which its receiver notices, and a run without a waiter is
    /// ignored.
    pub(crate) fn push(
        &mut self,
        topic: TopicId,
        group: GroupId,
        verdict: Verdict,
        run: SettleRun,
        waiter: Option<SettleWaiter>,
    ) -> bool {
        if self.closed {
            return false;
        }
        let was_empty = self.batches.is_empty();
        let head = SettleHead { topic, group, verdict, confirm: waiter.is_some() };
        let runs_max = self.runs_max;
        let has_same_verdict =
            |batch: &&mut SettleBatch| batch.head == head && batch.runs.len() < runs_max;
        let batch = match self.batches.iter_mut().rev().take(LOOK_BACK).find(has_same_verdict) {
            Some(batch) => batch,
            None => {
                let fresh = SettleBatch { head, runs: vec![], waiters: vec![], is_resent: false };
                self.batches.push(fresh);
                self.batches.last_mut().expect("one was pushed")
            }
        };
        match batch.runs.last_mut() {
            Some(last) if follows(last, &run) => last.count += run.count,
            _ => batch.runs.push(run),
        }
        batch.waiters.extend(waiter.map(|waiter| (run, waiter)));
        was_empty
    }

    /// Takes out all frames, ready to be sent.
    pub(crate) fn take(&mut self) -> Vec<SettleBatch> {
        let mut batches = std::mem::take(&mut self.batches);
        for batch in &mut batches {
            join_adjacent(&mut batch.runs);
        }
        batches
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Fails all frames. Later ones are ignored.
    pub(crate) fn close(&mut self, error: &Error) {
        self.closed = true;
        self.batches.drain(..).for_each(|batch| batch.failed(error));
    }
}

fn follows(last: &SettleRun, next: &SettleRun) -> bool {
    identity(last) == identity(next)
        && last.first.plus(u64::from(last.count)) == next.first
        && last.count.checked_add(next.count).is_some()
}

/// Sorts runs and joins adjacent ones. An offset that occurs twice stays twice; the broker reports
/// the second one as stale.
fn join_adjacent(runs: &mut Vec<SettleRun>) {
    if runs.len() < 2 {
        return;
    }
    runs.sort_unstable_by_key(|run| (identity(run), run.first));
    let mut kept = 0;
    for at in 1..runs.len() {
        let run = runs[at];
        if follows(&runs[kept], &run) {
            runs[kept].count += run.count;
        } else {
            kept += 1;
            runs[kept] = run;
        }
    }
    runs.truncate(kept + 1);
}

#[cfg(test)]
mod tests {
    use sennit_model::Offset;
    use sennit_protocol::Runs;

    use super::*;

    const TOPIC: TopicId = TopicId(1);
    const GROUP: GroupId = GroupId(2);

    fn run(first: u64, count: u32, attempt: u32) -> SettleRun {
        let (partition, generation) = (PartitionIndex(0), Generation(1));
        SettleRun { partition, first: Offset(first), count, attempt, generation }
    }

    fn acked(queue: &mut SettleQueue, first: u64) -> bool {
        queue.push(TOPIC, GROUP, Verdict::Ack, run(first, 1, 1), None)
    }

    #[test]
    fn acks_in_any_order_become_one_run() {
        let mut queue = SettleQueue::default();
        let woken: Vec<_> = [4, 0, 1, 3, 2, 9].map(|first| acked(&mut queue, first)).into();
        assert_eq!(woken, [true, false, false, false, false, false]);
        let [batch] = &queue.take()[..] else { panic!("one frame") };
        assert_eq!(batch.runs, [run(0, 5, 1), run(9, 1, 1)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn attempts_and_verdicts_are_kept_apart() {
        let mut queue = SettleQueue::default();
        acked(&mut queue, 0);
        queue.push(TOPIC, GROUP, Verdict::Ack, run(1, 1, 2), None);
        queue.push(TOPIC, GROUP, Verdict::Retry, run(2, 1, 1), None);
        acked(&mut queue, 3);
        let batches = queue.take();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].runs, [run(0, 1, 1), run(3, 1, 1), run(1, 1, 2)]);
        assert_eq!(batches[1].head.verdict, Verdict::Retry);
    }

    #[test]
    fn a_frame_never_names_more_runs_than_it_may() {
        let mut queue = SettleQueue::default();
        for n in 0..SETTLE_RUNS_MAX as u64 + 3 {
            acked(&mut queue, n * 2);
        }
        let counts: Vec<_> = queue.take().iter().map(|batch| batch.runs.len()).collect();
        assert_eq!(counts, [SETTLE_RUNS_MAX, 3]);
    }

    #[test]
    fn each_waiter_learns_what_became_of_its_own_run() {
        let mut queue = SettleQueue::default();
        let (one, mut first) = oneshot::channel();
        let (two, mut second) = oneshot::channel();
        queue.push(TOPIC, GROUP, Verdict::Ack, run(0, 4, 1), Some(one));
        queue.push(TOPIC, GROUP, Verdict::Ack, run(4, 4, 1), Some(two));
        let batch = queue.take().remove(0);
        assert!(batch.head.confirm && batch.runs == [run(0, 8, 1)]);
        let stale = Runs::from_iter([run(3, 3, 1)]);
        batch.answered(&SettledFrame { applied: 5, stale });
        assert_eq!(first.try_recv().unwrap().unwrap(), Settled { applied: 3, stale: 1 });
        assert_eq!(second.try_recv().unwrap().unwrap(), Settled { applied: 2, stale: 2 });
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_tells_who_waits() {
        let mut queue = SettleQueue::default();
        let (waiter, mut answer) = oneshot::channel();
        queue.push(TOPIC, GROUP, Verdict::Ack, run(0, 1, 1), Some(waiter));
        queue.close(&Error::Closed);
        assert!(matches!(answer.try_recv(), Ok(Err(Error::Closed))));
        assert!(!acked(&mut queue, 1) && queue.is_empty());
    }
}

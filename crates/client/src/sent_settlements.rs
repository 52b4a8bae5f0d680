//! Settle frames that were sent and that the broker has not acknowledged. The next connection sends them again. It
//! knows no socket.

use std::{collections::BTreeMap, time::Duration};

use sennit_protocol::{Settled as SettledFrame, Verdict};
use tokio::time::Instant;

use crate::{error::Error, settle_queue::SettleBatch, write_buffer::WriteBuffer};

/// Settle frames after which the client sends a ping; its answer says that the broker has received
/// them. This bounds the frames that are kept here.
const FRAMES_BETWEEN_PINGS: usize = 32;

/// Delay before a settlement is sent again for which there was no leader.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

/// Unacknowledged settle frames, by request number.
#[derive(Debug, Default)]
pub(crate) struct SentSettlements {
    sent: BTreeMap<u64, SettleBatch>,
    /// Frames with waiters, by their numbers, that were refused for want of a leader, and the time at which they are sent again.
    postponed: Vec<(u64, SettleBatch)>,
    again_at: Option<Instant>,
    since_ping: usize,
    /// Whether the broker of this connection supports the feature `started`.
    supports_started: bool,
}

impl SentSettlements {
    /// Notes a new connection, and whether its broker supports the feature `started`.
    pub(crate) fn connected(&mut self, supports_started: bool) {
        self.supports_started = supports_started;
    }

    /// Encodes and keeps a frame.
    pub(crate) fn send(&mut self, number: u64, batch: SettleBatch, write_buffer: &mut WriteBuffer) {
        if batch.head.verdict == Verdict::Started && !self.supports_started {
            // It was meant for the newer broker of an earlier connection.
            return batch.answered(&SettledFrame::default());
        }
        let SettleBatch { head, runs, .. } = &batch;
        write_buffer.append(|out| head.encode(runs.iter().copied(), number, out));
        self.sent.insert(number, batch);
        self.since_ping += 1;
    }

    /// Sends frames again that may be lost. A frame without a waiter is sent at most twice: the
    /// broker most likely received it, and otherwise the lease ends.
    pub(crate) fn send_again(&mut self, write_buffer: &mut WriteBuffer) {
        // They have the numbers of frames that are not in `sent`.
        self.again_at = None;
        let postponed = std::mem::take(&mut self.postponed).into_iter();
        for (number, batch) in postponed.chain(std::mem::take(&mut self.sent)) {
            if !batch.is_resent || !batch.waiters.is_empty() {
                self.send(number, SettleBatch { is_resent: true, ..batch }, write_buffer);
            }
        }
    }

    /// Returns whether a ping is due.
    pub(crate) fn wants_ping(&self) -> bool {
        self.since_ping >= FRAMES_BETWEEN_PINGS
    }

    /// Notes that a ping was sent.
    pub(crate) fn pinged(&mut self) {
        self.since_ping = 0;
    }

    /// Removes the frames before this ping, which the broker has received. Frames with waiters stay
    /// until their answer comes.
    pub(crate) fn arrived(&mut self, ping: u64) {
        self.sent.retain(|&number, batch| number > ping || batch.head.confirm);
    }

    /// Handles an answer. An answer to a frame that asked for none lists stale runs, and more
    /// answers may follow.
    pub(crate) fn answered(&mut self, number: u64, frame: &SettledFrame) {
        if !frame.stale.is_empty() {
            tracing::debug!(runs = ?frame.stale, "settled too late");
        }
        if self.sent.get(&number).is_some_and(|batch| batch.head.confirm)
            && let Some(batch) = self.sent.remove(&number)
        {
            batch.answered(frame);
        }
    }

    /// Handles a refusal. Returns whether the request was a settlement.
    pub(crate) fn refused(&mut self, number: u64, error: &Error, now: Instant) -> bool {
        let Some(batch) = self.sent.remove(&number) else { return false };
        tracing::debug!(%error, "a settlement was refused");
        if error.asks_for_leader() && !batch.waiters.is_empty() {
            self.postponed.push((number, SettleBatch { is_resent: true, ..batch }));
            self.again_at.get_or_insert(now + AGAIN_DELAY);
        } else {
            batch.failed(error);
        }
        true
    }

    /// The time at which refused frames are sent again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// Takes the frames whose time has come.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<SettleBatch> {
        if self.again_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.again_at = None;
        std::mem::take(&mut self.postponed).into_iter().map(|(_, batch)| batch).collect()
    }

    /// Fails all frames that have waiters.
    pub(crate) fn fail(&mut self, error: &Error) {
        std::mem::take(&mut self.sent).into_values().for_each(|batch| batch.failed(error));
        let postponed = std::mem::take(&mut self.postponed);
        postponed.into_iter().for_each(|(_, batch)| batch.failed(error));
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{Generation, GroupId, Offset, PartitionIndex, TopicId};
    use sennit_protocol::{SettleHead, SettleRun};
    use tokio::sync::oneshot;

    use super::*;
    use crate::settle_queue::SettleWaiter;

    fn ack(offset: u64, waiter: Option<SettleWaiter>) -> SettleBatch {
        let (partition, generation) = (PartitionIndex(0), Generation(1));
        let run = SettleRun { partition, first: Offset(offset), count: 1, attempt: 1, generation };
        let (topic, group, confirm) = (TopicId(1), GroupId(2), waiter.is_some());
        let head = SettleHead { topic, group, verdict: Verdict::Ack, confirm };
        let waiters = waiter.map(|waiter| (run, waiter)).into_iter().collect();
        SettleBatch { head, runs: vec![run], waiters, is_resent: false }
    }

    #[test]
    fn what_was_sent_is_asked_after_and_forgotten_once_it_has_arrived_unless_somebody_waits() {
        let (mut ledger, mut write_buffer) = (SentSettlements::default(), WriteBuffer::default());
        let (waiter, mut answer) = oneshot::channel();
        ledger.send(1, ack(0, Some(waiter)), &mut write_buffer);
        for number in 2..=FRAMES_BETWEEN_PINGS as u64 {
            assert!(!ledger.wants_ping());
            ledger.send(number, ack(number, None), &mut write_buffer);
        }
        assert!(ledger.wants_ping());
        ledger.pinged();
        assert!(!ledger.wants_ping());
        // Sent behind the ping, whose number is the one between.
        let (ping, behind) = (FRAMES_BETWEEN_PINGS as u64 + 1, FRAMES_BETWEEN_PINGS as u64 + 2);
        ledger.send(behind, ack(behind, None), &mut write_buffer);
        ledger.arrived(ping);
        assert!(ledger.sent.keys().eq(&[1, behind]));
        assert!(answer.try_recv().is_err());
        ledger.answered(1, &SettledFrame { applied: 1, ..SettledFrame::default() });
        assert!(answer.try_recv().is_ok() && ledger.sent.keys().eq(&[behind]));
    }
}

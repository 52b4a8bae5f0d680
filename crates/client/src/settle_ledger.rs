//! Settle frames that were sent and are not known to have arrived, so that the next connection can
//! say them again. It knows no socket.

use std::collections::BTreeMap;

use sennit_protocol::{Settled as SettledFrame, Verdict};

use crate::{error::Error, outgoing::Outgoing, settle_queue::SettleBatch};

/// Settle frames after which a ping has to ask whether the broker has got them: what bounds what is
/// kept here.
const FRAMES_BETWEEN_PINGS: usize = 32;

/// Settle frames not known to have arrived, by request number.
#[derive(Debug, Default)]
pub(crate) struct SettleLedger {
    sent: BTreeMap<u64, SettleBatch>,
    since_ping: usize,
    /// Whether the broker of this connection is told what programs work on.
    tells_started: bool,
}

impl SettleLedger {
    /// A connection is there, and its broker may be told what programs work on, or not.
    pub(crate) fn connected(&mut self, tells_started: bool) {
        self.tells_started = tells_started;
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, number: u64, batch: SettleBatch, outgoing: &mut Outgoing) {
        if batch.head.verdict == Verdict::Started && !self.tells_started {
            // It was said for an earlier connection, to a newer broker.
            return batch.answered(&SettledFrame::default());
        }
        let SettleBatch { head, runs, .. } = &batch;
        outgoing.append(|out| head.encode(runs.iter().copied(), number, out));
        self.sent.insert(number, batch);
        self.since_ping += 1;
    }

    /// Says again what may be lost. Without a waiter it is said once more and no oftener: it was
    /// likely heard, and a lease that ends is the remedy for the rest.
    pub(crate) fn send_again(&mut self, outgoing: &mut Outgoing) {
        for (number, batch) in std::mem::take(&mut self.sent) {
            if !batch.again || !batch.waiters.is_empty() {
                self.send(number, SettleBatch { again: true, ..batch }, outgoing);
            }
        }
    }

    /// Whether it is time to ask.
    pub(crate) fn wants_ping(&self) -> bool {
        self.since_ping >= FRAMES_BETWEEN_PINGS
    }

    /// It is asked.
    pub(crate) fn pinged(&mut self) {
        self.since_ping = 0;
    }

    /// All frames before this ping have arrived. Those with waiters still wait for their answers.
    pub(crate) fn arrived(&mut self, ping: u64) {
        self.sent.retain(|&number, batch| number > ping || batch.head.confirm);
    }

    /// Takes an answer. One to a frame that asked for none says what was stale, and more may come.
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

    /// Takes a refusal; whether the request was a settlement.
    pub(crate) fn refused(&mut self, number: u64, error: &Error) -> bool {
        let Some(batch) = self.sent.remove(&number) else { return false };
        tracing::debug!(%error, "a settlement was refused");
        batch.failed(error);
        true
    }

    /// The end: whoever waits is told why.
    pub(crate) fn fail(&mut self, error: &Error) {
        std::mem::take(&mut self.sent).into_values().for_each(|batch| batch.failed(error));
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
        SettleBatch { head, runs: vec![run], waiters, again: false }
    }

    #[test]
    fn what_was_sent_is_asked_after_and_forgotten_once_it_has_arrived_unless_somebody_waits() {
        let (mut ledger, mut outgoing) = (SettleLedger::default(), Outgoing::default());
        let (waiter, mut answer) = oneshot::channel();
        ledger.send(1, ack(0, Some(waiter)), &mut outgoing);
        for number in 2..=FRAMES_BETWEEN_PINGS as u64 {
            assert!(!ledger.wants_ping());
            ledger.send(number, ack(number, None), &mut outgoing);
        }
        assert!(ledger.wants_ping());
        ledger.pinged();
        assert!(!ledger.wants_ping());
        // Sent behind the ping, whose number is the one between.
        let (ping, behind) = (FRAMES_BETWEEN_PINGS as u64 + 1, FRAMES_BETWEEN_PINGS as u64 + 2);
        ledger.send(behind, ack(behind, None), &mut outgoing);
        ledger.arrived(ping);
        assert!(ledger.sent.keys().eq(&[1, behind]));
        assert!(answer.try_recv().is_err());
        ledger.answered(1, &SettledFrame { applied: 1, ..SettledFrame::default() });
        assert!(answer.try_recv().is_ok() && ledger.sent.keys().eq(&[behind]));
    }
}

//! Settle frames that were sent and are not known to have arrived, so that the next connection can
//! say them again. It knows no socket.

use std::collections::BTreeMap;

use sennit_protocol::Settled as SettledFrame;

use crate::{error::Error, outgoing::Outgoing, settle_queue::SettleBatch};

/// Settle frames after which a ping has to ask whether the broker has got them: what bounds what is
/// kept here.
const FRAMES_BETWEEN_PINGS: usize = 32;

/// Settle frames not known to have arrived, by request number.
#[derive(Debug, Default)]
pub(crate) struct SettleLedger {
    sent: BTreeMap<u64, SettleBatch>,
    since_ping: usize,
}

impl SettleLedger {
    /// Sends a frame.
    pub(crate) fn send(&mut self, number: u64, batch: SettleBatch, outgoing: &mut Outgoing) {
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

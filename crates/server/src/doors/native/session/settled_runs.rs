//! Settled runs and verdicts of frames, as the engine has them. It knows no session.

use sennit_engine::{DeliveryRun, Verdict};
use sennit_model::PartitionIndex;
use sennit_protocol::{Runs, SettleRun};

/// The runs that a frame settles, for each partition that it names.
pub(super) fn runs_by_partition(runs: &Runs<SettleRun>) -> Vec<(PartitionIndex, Vec<DeliveryRun>)> {
    let mut parts: Vec<(PartitionIndex, Vec<DeliveryRun>)> = Vec::new();
    for run in runs.iter() {
        let delivery = DeliveryRun {
            first: run.first,
            count: run.count,
            attempt: run.attempt,
            generation: run.generation,
        };
        match parts.iter_mut().rev().find(|(index, _)| *index == run.partition) {
            Some((_, runs)) => runs.push(delivery),
            None => parts.push((run.partition, vec![delivery])),
        }
    }
    parts
}

/// The verdict of a frame, as the engine has it.
pub(super) fn verdict(verdict: &sennit_protocol::Verdict) -> Verdict {
    match verdict {
        sennit_protocol::Verdict::Ack => Verdict::Ack,
        sennit_protocol::Verdict::Retry => Verdict::Retry,
        sennit_protocol::Verdict::RetryAfter(delay) => Verdict::RetryAfter(*delay),
        sennit_protocol::Verdict::DeadLetter { reason } => {
            Verdict::DeadLetter { reason: reason.clone() }
        }
        sennit_protocol::Verdict::Extend(span) => Verdict::Extend(*span),
        sennit_protocol::Verdict::Started => Verdict::Started,
    }
}

//! Merges the reports of the producers of a process, and of the processes of a run.

use crate::{latency::Latencies, plan::Report, sequence_check::ReceivedSequences};

/// The sum of reports.
#[derive(Debug, Default)]
pub struct MergedReports {
    sum: Report,
    received: Vec<ReceivedSequences>,
    confirm: Latencies,
    deliver: Latencies,
    settle: Latencies,
}

impl MergedReports {
    /// Adds a report.
    pub fn add(&mut self, report: Report) {
        self.confirm.add(&report.publish_to_confirm);
        self.deliver.add(&report.publish_to_deliver);
        self.settle.add(&report.publish_to_settle);
        self.sum.published += report.published;
        self.sum.confirmed += report.confirmed;
        self.sum.delivered += report.delivered;
        self.sum.acked += report.acked;
        self.sum.sent.extend(report.sent);
        self.sum.readers.extend(report.readers);
        self.sum.errors.extend(report.errors);
        for instant_ns in report.span_ns.into_iter().flat_map(|(first, last)| [first, last]) {
            self.sum.mark(instant_ns);
        }
        self.received.push(report.received);
    }

    /// The received messages of each process.
    #[must_use]
    pub fn received(&self) -> &[ReceivedSequences] {
        &self.received
    }

    /// The sum, without the received messages.
    #[must_use]
    pub fn report(self) -> Report {
        Report {
            publish_to_confirm: self.confirm.buckets(),
            publish_to_deliver: self.deliver.buckets(),
            publish_to_settle: self.settle.buckets(),
            ..self.sum
        }
    }
}

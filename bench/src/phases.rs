//! A load in two phases: a backlog is published, then it is consumed. Each phase is measured by itself.

use anyhow::{Context, Result, ensure};

use crate::{
    clock::now_ns,
    latency::Percentiles,
    load::{Bench, Load, RunResults, START_DELAY_NS, send_all},
    plan::{Window, WorkerCommand},
    sequence_check::MessageErrors,
    stamp::STAMP_BYTES,
    usage::{cpu_ns, rss_bytes},
};

/// One phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Messages per second.
    pub per_s: f64,
    /// Microseconds of the broker's processor time for each message; `None` if its process is not known.
    pub cpu_us: Option<f64>,
}

/// Both phases of a load.
#[derive(Clone, Debug)]
pub struct Phases {
    /// The publishes, from the start to the last confirm.
    pub publish: Phase,
    /// The consumption, from the subscription to the last delivery.
    pub consume: Option<Phase>,
    /// The latency of confirms.
    pub publish_to_confirm_us: Option<Percentiles>,
    /// The broker's resident bytes while the whole backlog lies there.
    pub rss_bytes: Option<u64>,
    /// Counts of lost, doubled, reordered and damaged messages.
    pub message_errors: MessageErrors,
    /// Other errors.
    pub error_texts: Vec<String>,
    /// Their number.
    pub errors: u64,
}

impl Bench<'_> {
    /// Publishes the messages of `load`, then consumes them, in a topic of its own.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker fails. The result has the errors of messages.
    pub fn run_phases(&self, row: &str, load: &Load) -> Result<Phases> {
        ensure!(load.size >= STAMP_BYTES, "a payload has at least {STAMP_BYTES} bytes");
        let each = load.messages.context("a backlog has a number of messages")?;
        let total = each * u64::from(load.producers);
        let run_topic = self.run_topic(load)?;

        let mut producers = self.start_producers(&run_topic, load)?;
        let window = Window { start_ns: now_ns() + START_DELAY_NS, from_ns: 0, until_ns: u64::MAX };
        let before = self.cpu_ns();
        send_all(&mut producers, WorkerCommand::Start(window))?;
        let mut published = RunResults::default();
        for report in self.reports(&mut producers, row, Some(total))? {
            published.add(report);
        }
        let after = self.cpu_ns();
        drop(producers);
        let sent = published.sent.clone();
        let confirmed = published.confirmed_in_all();
        let published = published.row(&Load { consumers: 0, ..load.clone() }, window);
        let rss_bytes = self.broker.pid.and_then(rss_bytes);
        let mut phases = Phases {
            publish: phase(published.confirmed_per_s, before, after, confirmed),
            consume: None,
            publish_to_confirm_us: published.publish_to_confirm_us,
            rss_bytes,
            message_errors: MessageErrors::default(),
            error_texts: published.error_texts,
            errors: published.errors,
        };
        if load.consumers == 0 {
            return Ok(phases);
        }

        let mut consumers = self.start_consumers(&run_topic, load)?;
        let window = Window { start_ns: now_ns(), from_ns: 0, until_ns: u64::MAX };
        let before = self.cpu_ns();
        send_all(&mut consumers, WorkerCommand::Start(window))?;
        let deadline_ns = now_ns() + (load.drain_s * 1e9) as u64;
        send_all(&mut consumers, WorkerCommand::Finish { expect: confirmed, deadline_ns })?;
        let mut consumed = RunResults::of_sent(sent);
        for report in self.reports(&mut consumers, row, Some(confirmed))? {
            consumed.add(report);
        }
        let after = self.cpu_ns();
        let consumed = consumed.row(&Load { preload: Some(each), ..load.clone() }, window);
        phases.consume = Some(phase(consumed.delivered_per_s, before, after, confirmed));
        phases.message_errors = consumed.message_errors;
        phases.errors += consumed.errors;
        phases.error_texts.extend(consumed.error_texts);
        let unsettled = run_topic.unsettled()?;
        if unsettled > 0 {
            phases.errors += unsettled;
            phases.error_texts.push(format!("{unsettled} messages were not settled"));
        }
        Ok(phases)
    }

    fn cpu_ns(&self) -> Option<u64> {
        self.broker.pid.and_then(cpu_ns)
    }
}

fn phase(per_s: Option<f64>, before: Option<u64>, after: Option<u64>, messages: u64) -> Phase {
    let used_ns = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let cpu_us = used_ns.map(|ns| ns as f64 / 1000.0 / messages.max(1) as f64);
    Phase { per_s: per_s.unwrap_or_default(), cpu_us }
}

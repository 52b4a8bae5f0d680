//! Consumers: take, verify and ack messages, each with a connection of its own.

use std::{
    cell::RefCell,
    pin::pin,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use sennit_client::{Client, DeliveryRun};
use sennit_model::{GroupName, TopicName};
use tokio::sync::watch;

use crate::connect::connect;
use crate::{
    clock::now_ns,
    latency::Latencies,
    plan::{Consume, FairKeys, Plan, Report, Window},
    sequence_check::SequenceCheck,
    stamp::{Payloads, Stamp},
};

/// The results of all consumers of a process.
pub struct ConsumerResults {
    window: Window,
    sequences: SequenceCheck,
    keys: Option<FairKeys>,
    payloads: Payloads,
    latencies: Latencies,
    report: Report,
}

impl ConsumerResults {
    /// Results without messages.
    #[must_use]
    pub fn new(plan: &Plan, window: Window) -> Self {
        Self {
            window,
            sequences: SequenceCheck::new(),
            keys: plan.keys.clone(),
            payloads: Payloads::new(plan.size),
            latencies: Latencies::new(),
            report: Report::default(),
        }
    }

    fn record(&mut self, consumer: u32, run: &DeliveryRun) {
        let now = now_ns();
        let partition = run.partition().0;
        let mut fresh = 0;
        for message in run.messages() {
            let Some(stamp) = self.payloads.read(message.payload()) else {
                self.sequences.record_corrupt(1);
                continue;
            };
            let Stamp { producer, sequence, intended_ns } = stamp;
            let is_fresh = match &self.keys {
                None => self.sequences.record(consumer, partition, producer, sequence),
                Some(keys) => {
                    let key = keys.of(sequence);
                    self.sequences.record_of_key(consumer, producer, key, sequence)
                }
            };
            if is_fresh {
                fresh += 1;
                if self.window.holds(intended_ns) {
                    self.latencies.record(intended_ns, now);
                }
            }
        }
        if self.window.holds(now) {
            self.report.delivered += fresh;
            self.report.acked += u64::from(run.count());
            self.report.mark(now);
        }
    }

    /// The number of different messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.sequences.count()
    }

    /// The report for the parent.
    #[must_use]
    pub fn report(self) -> Report {
        Report {
            received: self.sequences.received(),
            publish_to_deliver: self.latencies.buckets(),
            ..self.report
        }
    }
}

/// A consumer's connection. It subscribes when the run starts, so that it takes no backlog before.
pub struct Consumer {
    number: u32,
    client: Client,
}

impl Consumer {
    /// Connects consumer `number`.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn connect(plan: &Plan, number: u32) -> Result<Self> {
        Ok(Self { number, client: connect(&plan.server).await? })
    }

    /// Takes and acks messages until `stop`, then waits until the last ack is committed.
    ///
    /// # Errors
    /// The broker refuses a request, or a message is damaged.
    pub async fn run(
        self,
        plan: &Plan,
        consume: &Consume,
        results: &Rc<RefCell<ConsumerResults>>,
        progress: &AtomicU64,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        let (topic, group): (TopicName, GroupName) = (plan.topic.parse()?, plan.group.parse()?);
        let mut consumer = self
            .client
            .consumer(&topic, &group)
            .credit_messages(consume.credit_messages)
            .credit_bytes(consume.credit_bytes)
            .subscribe()
            .await?;
        // One future for all receives: to start a wait costs more than a message.
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            let next = tokio::select! {
                biased;
                next = consumer.next_run() => next,
                _ = &mut stopped => break,
            };
            let Some(run) = next else { break };
            let run = run?;
            results.borrow_mut().record(self.number, &run);
            run.ack();
            progress.fetch_add(u64::from(run.count()), Ordering::Relaxed);
        }
        consumer.close().await?;
        self.client.close().await;
        Ok(())
    }
}

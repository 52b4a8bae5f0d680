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

use crate::{
    clock::now_ns,
    identity::Identity,
    latency::Latencies,
    plan::{Consume, Plan, Report, Window},
    stamp::Payloads,
};

/// What all consumers of a process have seen.
pub struct Sights {
    window: Window,
    identity: Identity,
    payloads: Payloads,
    latencies: Latencies,
    report: Report,
}

impl Sights {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(plan: &Plan, window: Window) -> Self {
        Self {
            window,
            identity: Identity::new(),
            payloads: Payloads::new(plan.size),
            latencies: Latencies::new(),
            report: Report::default(),
        }
    }

    fn saw(&mut self, consumer: u32, run: &DeliveryRun) {
        let now = now_ns();
        let partition = run.partition().0;
        let mut fresh = 0;
        for message in run.messages() {
            let Some(stamp) = self.payloads.read(message.payload()) else {
                self.identity.saw_corrupt(1);
                continue;
            };
            if self.identity.saw(consumer, partition, stamp.producer, stamp.sequence) {
                fresh += 1;
                if self.window.holds(stamp.intended_ns) {
                    self.latencies.record(stamp.intended_ns, now);
                }
            }
        }
        if self.window.holds(now) {
            self.report.delivered += fresh;
            self.report.acked += u64::from(run.count());
            self.report.mark(now);
        }
    }

    /// How many different messages have come.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.identity.count()
    }

    /// All that was seen.
    #[must_use]
    pub fn report(self) -> Report {
        Report {
            sighting: self.identity.sighting(),
            publish_to_deliver: self.latencies.buckets(),
            ..self.report
        }
    }
}

/// A consumer's connection. It subscribes at the start, so that a backlog is not taken before.
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
        Ok(Self { number, client: Client::connect(plan.server.clone()).await? })
    }

    /// Takes and acks until told to stop; then waits until the last ack is committed.
    ///
    /// # Errors
    /// The broker refuses, or damaged messages came.
    pub async fn run(
        self,
        plan: &Plan,
        consume: &Consume,
        sights: &Rc<RefCell<Sights>>,
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
        // It waits through all receives: to begin waiting costs more than a message.
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            let next = tokio::select! {
                biased;
                next = consumer.next_run() => next,
                _ = &mut stopped => break,
            };
            let Some(run) = next else { break };
            let run = run?;
            sights.borrow_mut().saw(self.number, &run);
            run.ack();
            progress.fetch_add(u64::from(run.count()), Ordering::Relaxed);
        }
        consumer.close().await?;
        self.client.close().await;
        Ok(())
    }
}

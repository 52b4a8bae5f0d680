//! A queue whose fair keys are tenants, driven by a few clients of this process: for rows that count the order of
//! deliveries instead of their rate.

use std::time::Duration;

use anyhow::{Context, Result};
use sennit_client::{
    Client, Consumer, Delivery, GroupChange, Header, KeyRule, Message, MessageFields, Publisher,
    TopicConfig, TopicKind,
};
use sennit_model::{GroupName, TopicName};
use tokio::time::timeout;

use crate::connect::connect;
use crate::{
    clock::now_ns,
    load::Bench,
    plan::KEY_HEADER,
    row::Row,
    sequence_check::{MessageErrors, SequenceCheck, compare},
    stamp::{Payloads, Stamp},
};

/// Time within which the next message comes.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The header with the weight of a tenant.
const WEIGHT_HEADER: &str = "weight";

/// Messages that a consumer of the rest may hold.
const REST_CREDIT: u32 = 16_384;

/// A queue of one partition, its publisher, and what was delivered of it.
pub struct TenantQueue {
    client: Client,
    topic: TopicName,
    group: GroupName,
    publisher: Publisher,
    payloads: Payloads,
    check: SequenceCheck,
    /// How many messages each tenant has published.
    sent: Vec<u64>,
}

impl TenantQueue {
    /// Creates the queue, with rules for its keys. A tenant is a producer of its own: its messages keep their order.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the topic.
    pub async fn create(bench: &Bench<'_>, size: usize, key_rules: Vec<KeyRule>) -> Result<Self> {
        let client = connect(&bench.broker.server).await?;
        let name = format!("bench.{}.{}-{}", bench.workload, std::process::id(), now_ns());
        let (topic, group): (TopicName, _) = (name.parse()?, GroupName::default_group());
        let fields = MessageFields {
            fair_key: Some(KEY_HEADER.parse()?),
            weight: Some(WEIGHT_HEADER.parse()?),
            ..MessageFields::default()
        };
        let queue = TopicConfig::of_kind(TopicKind::Queue);
        client.create_topic(&topic, TopicConfig { fields: fields.if_any(), ..queue }).await?;
        // The queue has its group from the start.
        if !key_rules.is_empty() {
            let change = GroupChange { key_rules, ..GroupChange::default() };
            client.alter_group(&topic, &group, change).await?;
        }
        let publisher = client.publisher(&topic).open().await?;
        let (payloads, check) = (Payloads::new(size), SequenceCheck::new());
        Ok(Self { client, topic, group, publisher, payloads, check, sent: Vec::new() })
    }

    /// The client, for changes of settings.
    #[must_use]
    pub fn client(&self) -> (&Client, &TopicName, &GroupName) {
        (&self.client, &self.topic, &self.group)
    }

    /// The fair key of a tenant.
    #[must_use]
    pub fn key(tenant: u32) -> String {
        format!("tenant-{tenant}")
    }

    /// Publishes `count` messages of a tenant, without waiting for the last confirms.
    ///
    /// # Errors
    /// The broker refuses a message.
    pub async fn publish(&mut self, tenant: u32, weight: u32, count: u64) -> Result<()> {
        let index = tenant as usize;
        if self.sent.len() <= index {
            self.sent.resize(index + 1, 0);
        }
        let headers = vec![
            Header::text(KEY_HEADER, Self::key(tenant)),
            Header::text(WEIGHT_HEADER, weight.to_string()),
        ];
        for _ in 0..count {
            let (sequence, intended_ns) = (self.sent[index], now_ns());
            let stamp = Stamp { producer: tenant, sequence, intended_ns };
            let headers = headers.clone();
            let message = Message { headers, ..Message::new(self.payloads.make(stamp)) };
            drop(self.publisher.publish(message).await?);
            self.sent[index] += 1;
        }
        Ok(())
    }

    /// Waits until everything is confirmed.
    ///
    /// # Errors
    /// The broker has refused a message.
    pub async fn flush(&self) -> Result<()> {
        Ok(self.publisher.flush().await?)
    }

    /// A consumer that may hold so many messages.
    ///
    /// # Errors
    /// The broker refuses the subscription.
    pub async fn consumer(&self, credit: u32) -> Result<Consumer> {
        let consumer = self.client.consumer(&self.topic, &self.group);
        Ok(consumer.credit_messages(credit).subscribe().await?)
    }

    /// Waits for the next message and checks it. Returns it with its tenant; `None` for a damaged one.
    ///
    /// # Errors
    /// Nothing comes in time, or the subscription ends.
    pub async fn next(&mut self, consumer: &mut Consumer) -> Result<(Delivery, Option<u32>)> {
        let next = timeout(DELIVERY_TIMEOUT, consumer.next()).await;
        let delivery = next.context("no message came")?.context("the subscription ended")??;
        let Some(stamp) = self.payloads.read(&delivery.payload()) else {
            self.check.record_corrupt(1);
            return Ok((delivery, None));
        };
        self.check.record(0, delivery.partition().0, stamp.producer, stamp.sequence);
        Ok((delivery, Some(stamp.producer)))
    }

    /// How many different messages came so far, and how many were published.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.check.count(), self.sent.iter().sum())
    }

    /// Consumes the rest, deletes the queue, and puts into `row` what is lost, doubled, out of order or damaged.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn finish(mut self, bench: &Bench<'_>, row: &mut Row) -> Result<()> {
        let mut consumer = self.consumer(REST_CREDIT).await?;
        // Counting takes a step for each tenant, so that it is done anew only when as many came as were missing.
        loop {
            let (came, published) = self.counts();
            let missing = published.saturating_sub(came);
            let mut left = missing;
            while left > 0 {
                let Ok((delivery, _)) = self.next(&mut consumer).await else { break };
                delivery.ack();
                left -= 1;
                if left.is_multiple_of(1024) {
                    (bench.progress)("the rest", published - left, Some(published));
                }
            }
            if missing == 0 || left > 0 {
                break;
            }
        }
        consumer.close().await?;
        row.message_errors = self.message_errors();
        self.client.delete_topic(&self.topic).await?;
        self.client.close().await;
        Ok(())
    }

    fn message_errors(&self) -> MessageErrors {
        let sent: Vec<_> =
            (0..).zip(&self.sent).map(|(tenant, &count)| (tenant, count, count)).collect();
        compare(&sent, &[self.check.received()])
    }
}

/// A runtime for the clients of this process.
///
/// # Errors
/// The system refuses it.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

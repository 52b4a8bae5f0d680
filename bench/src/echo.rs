//! One client that publishes a message, takes it and acks it, and then repeats. A round trip is the latency that
//! the user of an idle broker sees.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use sennit_client::{Client, Message};
use sennit_model::{GroupName, TopicName};

use crate::connect::connect;
use crate::{
    clock::{Alarm, now_ns},
    latency::Latencies,
    plan::{Echo, Plan, Report, Window},
    sequence_check::SequenceCheck,
    stamp::{Payloads, Stamp},
};

/// The producer's number.
const PRODUCER: u32 = 0;

/// A client with a connection and a subscription.
pub struct EchoClient {
    client: Client,
    publisher: sennit_client::Publisher,
    consumer: sennit_client::Consumer,
}

impl EchoClient {
    /// Connects.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the subscription.
    pub async fn connect(plan: &Plan) -> Result<Self> {
        let client = connect(&plan.server).await?;
        let (topic, group): (TopicName, GroupName) = (plan.topic.parse()?, plan.group.parse()?);
        let publisher = client.publisher(&topic).open().await?;
        let consumer = client.consumer(&topic, &group).credit_messages(16).subscribe().await?;
        Ok(Self { client, publisher, consumer })
    }

    /// Runs all rounds.
    ///
    /// # Errors
    /// The broker refuses a request, or delivers another message than the client has sent.
    pub async fn run(
        mut self,
        plan: &Plan,
        echo: &Echo,
        window: Window,
        progress: &AtomicU64,
    ) -> Result<Report> {
        let mut payloads = Payloads::new(plan.size);
        let mut sequences = SequenceCheck::new();
        let mut report = Report::default();
        let [mut confirm, mut deliver, mut settle] = [(); 3].map(|()| Latencies::new());
        Alarm::new()?.until(window.start_ns).await?;
        for sequence in 0..echo.warmup + echo.messages {
            let intended_ns = now_ns();
            let stamp = Stamp { producer: PRODUCER, sequence, intended_ns };
            let pending = self.publisher.publish(Message::new(payloads.make(stamp))).await?;
            let confirmed = async {
                pending.await?;
                Ok::<_, anyhow::Error>(now_ns())
            };
            let delivered = async {
                let next = self.consumer.next().await.context("the subscription has ended")?;
                Ok::<_, anyhow::Error>((next?, now_ns()))
            };
            let (confirmed_ns, (delivery, delivered_ns)) = tokio::try_join!(confirmed, delivered)?;
            let delivered_stamp = payloads.read(&delivery.payload());
            match delivered_stamp {
                Some(delivered_stamp) => {
                    sequences.record(
                        0,
                        delivery.partition().0,
                        delivered_stamp.producer,
                        delivered_stamp.sequence,
                    );
                }
                None => sequences.record_corrupt(1),
            }
            if delivered_stamp != Some(stamp) {
                bail!("round {sequence}: the received message is not the sent one");
            }
            if echo.confirm_ack {
                let settled = delivery.ack_confirmed().await?;
                if settled.stale > 0 {
                    bail!("round {sequence}: the ack was stale");
                }
            } else {
                delivery.ack();
            }
            let now = now_ns();
            progress.fetch_add(1, Ordering::Relaxed);
            if sequence >= echo.warmup {
                confirm.record(intended_ns, confirmed_ns);
                deliver.record(intended_ns, delivered_ns);
                settle.record(intended_ns, now);
                report.mark(intended_ns);
                report.mark(now);
                report.published += 1;
            }
        }
        (report.confirmed, report.delivered) = (report.published, report.published);
        report.acked = report.published;
        let sent = echo.warmup + echo.messages;
        report.sent = vec![(PRODUCER, sent, sent)];
        report.received = sequences.received();
        report.publish_to_confirm = confirm.buckets();
        report.publish_to_deliver = deliver.buckets();
        if echo.confirm_ack {
            report.publish_to_settle = settle.buckets();
        }
        self.consumer.close().await?;
        self.client.close().await;
        Ok(report)
    }
}

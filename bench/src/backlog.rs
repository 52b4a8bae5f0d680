//! Kills a broker with pending messages in a queue: measures the time until it is ready and delivers again, and
//! checks that nothing is missing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sennit_client::{Client, Consumer, GroupConfig, Offset, Reconnect, StartAt};
use sennit_model::{GroupName, TopicName};
use serde::Serialize;
use tokio::time::timeout;

use crate::connect::builder;
use crate::{
    broker::{Broker, disk_bytes},
    children::unless_ended,
    load::{Bench, Load},
    row::{RestartResults, Row},
    sequence_check::MessageErrors,
    stamp::Payloads,
    usage::number,
};

/// Time within which an expected message is delivered.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(300);

/// The number of places in the queue at which messages are compared.
const SAMPLE_PLACES: u64 = 8;

/// Seconds that a start may take without its replay, and for each GiB of the replay.
const START_S: f64 = 1.0;
const REPLAY_S_PER_GIB: f64 = 1.5;

/// Messages in a queue.
#[derive(Clone, Debug, Serialize)]
pub struct Backlog {
    /// The number of messages in all partitions.
    pub messages: u64,
    /// Partitions, each with a producer of its own.
    pub partitions: u32,
    /// Bytes of a payload.
    pub size: usize,
    /// The number of messages that are compared.
    pub sample: u64,
}

impl Backlog {
    /// Publishes, kills the broker, starts it again, and checks the messages.
    ///
    /// # Errors
    /// The broker does not start, or does not deliver again.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let mut broker = Broker::start(bench.options, &[])?;
        let topic: TopicName = "bench.restart".parse()?;
        let each = self.messages.div_ceil(u64::from(self.partitions));
        let expected = each * u64::from(self.partitions);
        let load = Load {
            producers: self.partitions,
            consumers: 0,
            messages: Some(each),
            size: self.size,
            partitions: self.partitions,
            ..Load::new()
        };
        let here = Bench { broker: &broker, topic: Some(topic.to_string()), ..bench.clone() };
        let published = here.run("publish", &load)?;
        ensure!(published.is_clean(), "not all was confirmed: {:?}", published.error_texts);

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut returning =
            runtime.block_on(ReconnectingConsumer::subscribe(&broker.server, &topic))?;
        broker.kill()?;
        let data_bytes = broker.data.as_deref().map_or(0, disk_bytes);
        (bench.progress)("restart", 0, None);
        let starting = broker.start_again()?;
        let begun = starting.begun();
        runtime.block_on(unless_ended(returning.first_delivery()))?;
        let first_delivery_s = Some(begun.elapsed().as_secs_f64());
        let ready_s = starting.ready()?.as_secs_f64();

        let counted = runtime.block_on(unless_ended(returning.count(&topic)))?;
        let client = runtime.block_on(unless_ended(returning.close()))?;
        let sampling = std::time::Instant::now();
        let sampled = runtime.block_on(unless_ended(self.sample(bench, &client, &topic, each)))?;
        let recovered = broker.recovered();
        let mut result = Row {
            message_errors: sampled.message_errors,
            seconds: begun.elapsed().as_secs_f64(),
            broker_rss_peak_bytes: broker
                .pid
                .and_then(|pid| number(pid, "status", "VmHWM:"))
                .map(|kib| kib * 1024),
            restart: Some(RestartResults {
                first_delivery_s,
                data_bytes,
                expected,
                sampled: sampled.count,
                publish_s: published.seconds,
                sample_s: sampling.elapsed().as_secs_f64(),
                ..replayed(ready_s, &broker)
            }),
            config: serde_json::to_value(self)?,
            ..Row::default()
        };
        for (what, held) in counted {
            if held != expected {
                result.message_errors.missing += expected.saturating_sub(held);
                result.errors += 1;
                result.error_texts.push(format!("{held} of {expected} messages are {what}"));
            }
        }
        if recovered.shards == 0 {
            result.errors += 1;
            result.error_texts.push("the broker's log does not report the replay".into());
        }
        bench.name(&mut result, row);
        Ok(result)
    }

    /// Reads messages at some places of the queue and compares them with the published ones.
    async fn sample(
        &self,
        bench: &Bench<'_>,
        client: &Client,
        topic: &TopicName,
        each: u64,
    ) -> Result<Sample> {
        let payloads = Payloads::new(self.size);
        let mut sampled = Sample::default();
        for place in 0..SAMPLE_PLACES {
            let group: GroupName = format!("sample-{place}").parse()?;
            let from = each * place / SAMPLE_PLACES;
            let left = (each - from) * u64::from(self.partitions);
            let count = (self.sample / SAMPLE_PLACES).clamp(1, left);
            let start = StartAt::Offset(Offset(from));
            client.create_group(topic, &group, GroupConfig::default(), start).await?;
            sampled.read(client, topic, &group, from, count, &payloads).await?;
            (bench.progress)("sample", sampled.count, Some(self.sample));
        }
        Ok(sampled)
    }
}

/// The replay of a start that took `ready_s`, and the time limit of the start.
pub fn replayed(ready_s: f64, broker: &Broker) -> RestartResults {
    let recovered = broker.recovered();
    let gib = recovered.bytes as f64 / f64::from(1 << 30);
    RestartResults {
        ready_s,
        limit_s: START_S + REPLAY_S_PER_GIB * gib,
        replayed_bytes: recovered.bytes,
        replayed_records: recovered.records,
        replay_s_per_gib: (ready_s - START_S).max(0.0) / gib.max(1e-9),
        ..RestartResults::default()
    }
}

/// The messages that were compared.
#[derive(Default)]
struct Sample {
    count: u64,
    message_errors: MessageErrors,
}

impl Sample {
    /// Reads `count` messages of a group that starts at offset `from` in each partition. The producer of a message
    /// is its partition, and its sequence is its offset.
    async fn read(
        &mut self,
        client: &Client,
        topic: &TopicName,
        group: &GroupName,
        from: u64,
        count: u64,
        payloads: &Payloads,
    ) -> Result<()> {
        let credit = u32::try_from(count).unwrap_or(u32::MAX);
        let mut consumer =
            client.consumer(topic, group).credit_messages(credit).subscribe().await?;
        let mut next: std::collections::HashMap<u32, u64> = std::collections::HashMap::new();
        let mut read = 0;
        while read < count {
            let Ok(run) = timeout(DELIVERY_TIMEOUT, consumer.next_run()).await else {
                self.message_errors.missing += count - read;
                break;
            };
            let run = run.context("the subscription ended")??;
            let partition = run.partition().0;
            let next = next.entry(partition).or_insert(from);
            for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
                self.message_errors.missing += offset.saturating_sub(*next);
                self.message_errors.duplicates += u64::from(offset < *next);
                *next = (*next).max(offset + 1);
                let stamp = payloads.read(message.payload());
                let is_it = stamp.is_some_and(|s| (s.producer, s.sequence) == (partition, offset));
                self.message_errors.corrupt += u64::from(!is_it);
                read += 1;
            }
        }
        self.count += read;
        Ok(consumer.close().await?)
    }
}

/// A consumer that is subscribed when the broker dies, and that reconnects by itself.
struct ReconnectingConsumer {
    client: Client,
    consumer: Consumer,
    generation: u32,
}

impl ReconnectingConsumer {
    async fn subscribe(server: &str, topic: &TopicName) -> Result<Self> {
        let often = Reconnect {
            delay_min: Duration::from_millis(2),
            delay_max: Duration::from_millis(10),
            attempt_timeout: DELIVERY_TIMEOUT,
            ..Reconnect::default()
        };
        let client = builder(server).reconnect(often).connect().await?;
        let group = GroupName::default_group();
        let mut consumer = client.consumer(topic, &group).credit_messages(1000).subscribe().await?;
        let run = consumer.next_run().await.context("the subscription ended")??;
        let generation = run.generation().0;
        Ok(Self { client, consumer, generation })
    }

    /// Waits for the first delivery after the restart.
    async fn first_delivery(&mut self) -> Result<()> {
        loop {
            let next = timeout(DELIVERY_TIMEOUT, self.consumer.next_run()).await;
            let next = next.context("nothing was delivered after the restart")?;
            let run = next.context("the subscription ended")??;
            if run.generation().0 > self.generation {
                return Ok(());
            }
        }
    }

    /// The number of messages that the topic keeps, and that the group has not settled.
    async fn count(&self, topic: &TopicName) -> Result<[(&'static str, u64); 2]> {
        let described = self.client.describe_topic(topic).await?;
        let kept = described.partitions.iter().map(|one| one.end.0 - one.start.0).sum();
        let held = |group: &sennit_client::GroupDescription| {
            group.ready + group.leased + group.delayed + group.dying
        };
        let held = described.groups.iter().map(held).sum();
        Ok([("kept", kept), ("unsettled", held)])
    }

    async fn close(self) -> Result<Client> {
        self.consumer.close().await?;
        Ok(self.client)
    }
}

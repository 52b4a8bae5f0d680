//! Kills a broker with many topics of one message each, or many HTTP streams: measures the time until it is ready,
//! and checks that none is missing.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use sennit_client::{Client, Message, TopicConfig, TopicKind};
use sennit_model::{GroupName, TopicName};
use serde::Serialize;
use tokio::{
    task::{JoinSet, LocalSet},
    time::timeout,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::connect::connect;
use crate::{
    backlog::replayed,
    broker::{Broker, disk_bytes},
    load::Bench,
    many_streams::ManyStreams,
    row::{RestartResults, Row},
    stamp::{Payloads, Stamp},
    usage::number,
};

/// The number of requests in flight, and the number of their connections.
const WIDTH: u64 = 512;
const CONNECTIONS: u64 = 16;

/// Time within which an expected message is delivered.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two reports of progress.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The limit of the time until the broker is ready, in seconds.
const READY_S_MAX: f64 = 3.0;

/// Streams without groups, each with one message.
#[derive(Clone, Debug, Serialize)]
pub struct ManyTopics {
    /// The number of topics.
    pub topics: u64,
    /// The length of a payload in bytes.
    pub size: usize,
    /// The number of topics, drawn at random, whose message is compared.
    pub sample: u64,
    /// Whether they are created, filled and read as streams over HTTP.
    pub over_http: bool,
}

/// The name of topic number `number`.
fn name_of(number: u64) -> Result<TopicName> {
    Ok(format!("bench.topics.{number}").parse()?)
}

/// Runs `act` for each number below `count`, [`WIDTH`] at a time, and reports the progress.
async fn for_each<F: Future<Output = Result<()>> + 'static>(
    count: u64,
    tell: &dyn Fn(u64),
    act: impl Fn(u64) -> F + 'static,
) -> Result<()> {
    let (next, act) = (Rc::new(Cell::new(0)), Rc::new(act));
    let mut tasks = JoinSet::new();
    for _ in 0..WIDTH.min(count) {
        let (next, act) = (Rc::clone(&next), Rc::clone(&act));
        tasks.spawn_local(async move {
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                act(number).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    loop {
        match timeout(TELL_EVERY, tasks.join_next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(ended)) => ended??,
            Err(_) => tell(next.get()),
        }
    }
}

/// The connections that share the requests.
#[derive(Clone)]
pub struct Connections(Rc<Vec<Client>>);

impl Connections {
    /// Connects.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn open(server: &str) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(connect(server).await?);
        }
        Ok(Self(Rc::new(clients)))
    }

    fn of(&self, number: u64) -> Client {
        self.0[(number % CONNECTIONS) as usize].clone()
    }
}

/// Creates the topics, and publishes a message to each. Returns the time that each of the two steps took.
///
/// # Errors
/// The broker refuses a request.
pub async fn fill(
    clients: &Connections,
    topics: u64,
    size: usize,
    bench: &Bench<'_>,
) -> Result<(Duration, Duration)> {
    let begun = Instant::now();
    let maker = clients.clone();
    let told = |count: u64| (bench.progress)("create", count, Some(topics));
    for_each(topics, &told, move |number| {
        let client = maker.of(number);
        async move {
            let stream = TopicConfig::of_kind(TopicKind::Stream);
            client.create_topic(&name_of(number)?, stream).await?;
            Ok(())
        }
    })
    .await?;
    let created = begun.elapsed();
    let begun = Instant::now();
    let publishers = clients.clone();
    let payloads = Rc::new(std::cell::RefCell::new(Payloads::new(size)));
    let told = |count: u64| (bench.progress)("publish", count, Some(topics));
    for_each(topics, &told, move |number| {
        let (client, payloads) = (publishers.of(number), Rc::clone(&payloads));
        async move {
            let publisher = client.publisher(&name_of(number)?).open().await?;
            let stamp = Stamp { producer: 0, sequence: number, intended_ns: 0 };
            let payload = payloads.borrow_mut().make(stamp);
            publisher.publish(Message::new(payload)).await?.await?;
            Ok(())
        }
    })
    .await?;
    Ok((created, begun.elapsed()))
}

/// Reads `sample` topics, drawn at random. Returns the number of topics with a wrong message, and the errors.
async fn compare(
    clients: &Connections,
    topics: u64,
    sample: u64,
    size: usize,
    bench: &Bench<'_>,
) -> Result<u64> {
    let (wrong, payloads) = (Rc::new(Cell::new(0)), Rc::new(Payloads::new(size)));
    let counted = Rc::clone(&wrong);
    let clients = clients.clone();
    let told = |count: u64| (bench.progress)("sample", count, Some(sample));
    for_each(sample, &told, move |turn| {
        let (client, payloads) = (clients.of(turn), Rc::clone(&payloads));
        let counted = Rc::clone(&counted);
        let number = xxh3_64(&turn.to_le_bytes()) % topics;
        async move {
            let (topic, group): (_, GroupName) =
                (name_of(number)?, format!("sample-{turn}").parse()?);
            let consumer = client.consumer(&topic, &group).create_group_if_missing(true);
            let mut consumer = consumer.credit_messages(1).subscribe().await?;
            let came = timeout(DELIVERY_TIMEOUT, consumer.next()).await;
            let came = came.with_context(|| format!("{topic} delivers nothing"))?;
            let delivery = came.context("the subscription ended")??;
            let stamp = payloads.read(&delivery.payload());
            let is_it = stamp.is_some_and(|stamp| stamp.sequence == number);
            counted.set(counted.get() + u64::from(!is_it));
            Ok(consumer.close().await?)
        }
    })
    .await?;
    Ok(wrong.get())
}

impl ManyTopics {
    /// Creates the topics, kills the broker, starts it again, and checks the topics.
    ///
    /// # Errors
    /// The broker does not start, or refuses a request.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let mut broker = Broker::start(bench.options, &[])?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        let (server, http) = (broker.server.clone(), broker.http.clone());
        let before = local.block_on(&runtime, async {
            let clients = Connections::open(&server).await?;
            let (created, published) = match self.over_http {
                true => self.streams(&http).fill(bench.progress).await?,
                false => fill(&clients, self.topics, self.size, bench).await?,
            };
            let begun = Instant::now();
            let listed = clients.of(0).list_topics().await?.len() as u64;
            ensure!(listed == self.topics, "{listed} of {} topics are listed", self.topics);
            let list_s = begun.elapsed().as_secs_f64();
            Ok((created.as_secs_f64(), published.as_secs_f64(), list_s))
        });
        let (create_s, publish_s, list_s) = before?;
        broker.kill()?;
        let data_bytes = broker.data.as_deref().map_or(0, disk_bytes);
        (bench.progress)("restart", 0, None);
        let starting = broker.start_again()?;
        let ready_s = starting.ready()?.as_secs_f64();
        let begun = Instant::now();
        let after = local.block_on(&runtime, async {
            let clients = Connections::open(&server).await?;
            let listed = clients.of(0).list_topics().await?.len() as u64;
            let sampling = Instant::now();
            let wrong = match self.over_http {
                true => self.streams(&http).compare(self.sample, bench.progress).await?,
                false => compare(&clients, self.topics, self.sample, self.size, bench).await?,
            };
            Ok::<_, anyhow::Error>((listed, wrong, sampling.elapsed().as_secs_f64()))
        });
        let (listed, wrong, sample_s) = after?;
        let mut result = Row {
            seconds: ready_s + begun.elapsed().as_secs_f64(),
            broker_rss_peak_bytes: broker
                .pid
                .and_then(|pid| number(pid, "status", "VmHWM:"))
                .map(|kib| kib * 1024),
            restart: Some(RestartResults {
                limit_s: READY_S_MAX,
                data_bytes,
                expected: self.topics,
                sampled: self.sample,
                create_s: Some(create_s),
                publish_s,
                list_s: Some(list_s),
                sample_s,
                ..replayed(ready_s, &broker)
            }),
            config: serde_json::to_value(self)?,
            ..Row::default()
        };
        result.message_errors.missing = self.topics.saturating_sub(listed);
        result.message_errors.corrupt = wrong + listed.saturating_sub(self.topics);
        bench.name(&mut result, row);
        Ok(result)
    }

    fn streams<'a>(&self, address: &'a str) -> ManyStreams<'a> {
        ManyStreams { address, streams: self.topics, size: self.size }
    }
}

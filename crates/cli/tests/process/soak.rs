//! A broker under a long mixed load: thousands of queues, many streams, a backlog far beyond its memory. Every
//! message is accounted for, and the broker's use of the machine stays within bounds. `SENNIT_SOAK_SECONDS` makes
//! the load long and large, `SENNIT_SOAK_SEED` repeats its choices.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_client::{Client, Retention, TopicConfig, TopicKind, TopicName};
use tokio::sync::Mutex;

use crate::{
    bounds::within_bound,
    broker::Broker,
    ledger::Ledger,
    torture::{Choices, number},
};

mod load;
mod verify;
mod watch;

const SHARDS: u64 = 2;
/// What a shard may hold: published and not committed, newest frames, and what was read back.
const SHARD_BYTES: u64 = (64 + 32 + 8) << 20;
/// What is being moved, by one shard at a time.
const MOVED_BYTES: u64 = 64 << 20;
/// What a topic may take besides its messages, its part of a checkpoint and all its names with it.
const TOPIC_BYTES: u64 = 1 << 10;
/// What the program takes for itself: its code, its threads, buffers of connections.
const BASE_BYTES: u64 = 64 << 20;
/// Descriptors that are open at most, however many topics there are.
const DESCRIPTORS_MAX: usize = 512;
/// Disk beyond twice what is live: segments, spare ones, packs that are half empty.
const DISK_BYTES: u64 = 2 << 30;

/// Bytes that each stream keeps.
const RETAINED_BYTES: u64 = 16 << 10;
/// Messages that are published at once.
const BATCH_MAX: u64 = 40;
const CONNECTIONS: usize = 8;
const WORKERS: usize = 48;
/// Messages that a consumer may hold.
const CREDIT: u32 = 512;
/// How long making a load's topics and verifying it in the end may take.
const MOST: Duration = Duration::from_secs(1800);
/// How long a message that has to come may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How large a run is.
#[derive(Clone, Copy)]
struct Scale {
    duration: Duration,
    queues: u32,
    streams: u32,
    /// Queues that a backlog lies in, the first of all.
    deep: u32,
    /// Bytes of that backlog.
    backlog_bytes: u64,
    /// Of so many streams one is read in the end.
    sampled: u32,
}

impl Scale {
    fn asked() -> Self {
        let Some(seconds) = number("SENNIT_SOAK_SECONDS") else {
            return Self {
                duration: Duration::from_secs(4),
                queues: 100,
                streams: 500,
                deep: 4,
                backlog_bytes: 64 << 20,
                sampled: 5,
            };
        };
        let (queues, streams) = (10_000, 100_000);
        let scale = Self {
            duration: Duration::from_secs(seconds),
            queues,
            streams,
            deep: 16,
            backlog_bytes: 0,
            sampled: 50,
        };
        Self { backlog_bytes: 10 * scale.budget_bytes(), ..scale }
    }

    /// Memory that the broker may take.
    fn budget_bytes(&self) -> u64 {
        let topics = u64::from(self.queues + self.streams);
        BASE_BYTES + MOVED_BYTES + SHARDS * SHARD_BYTES + topics * TOPIC_BYTES
    }
}

/// A topic, and what it should hold. One worker at a time has it.
struct Held {
    name: TopicName,
    ledger: Mutex<Ledger>,
}

impl Held {
    fn new(kind: &str, number: u32) -> Self {
        let name = format!("soak.{kind}.{number}").parse().unwrap();
        Self { name, ledger: Mutex::new(Ledger::new(number)) }
    }
}

#[derive(Debug, Default)]
struct Counts {
    published: u64,
    acked: u64,
    made_again: u64,
}

struct World {
    scale: Scale,
    clients: Vec<Client>,
    queues: Vec<Held>,
    streams: Vec<Held>,
    working: Cell<bool>,
    counts: RefCell<Counts>,
    /// Bytes of payloads that nobody has settled, in queues.
    unsettled_bytes: Cell<u64>,
    most: RefCell<watch::Most>,
}

fn queue() -> TopicConfig {
    TopicConfig::of_kind(TopicKind::Queue)
}

fn stream() -> TopicConfig {
    let retention = Retention { bytes: Some(RETAINED_BYTES), ..Retention::FOREVER };
    TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) }
}

impl World {
    fn client(&self, turn: u64) -> &Client {
        &self.clients[turn as usize % CONNECTIONS]
    }

    /// Does `act` for each topic, many at a time.
    async fn each<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        count: usize,
        act: impl Fn(Rc<Self>, usize) -> F + 'static,
    ) {
        let (next, act) = (Rc::new(Cell::new(0)), Rc::new(act));
        let tasks = (0..WORKERS).map(|_| {
            let (world, next, act) = (Rc::clone(self), Rc::clone(&next), Rc::clone(&act));
            tokio::task::spawn_local(async move {
                while next.get() < count {
                    let index = next.replace(next.get() + 1);
                    act(Rc::clone(&world), index).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
}

async fn soak(broker: &Broker, data: &Path, scale: Scale, seed: u64) {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Client::connect(broker.listen.clone()).await.unwrap());
    }
    let world = Rc::new(World {
        scale,
        clients,
        queues: (0..scale.queues).map(|number| Held::new("queue", number)).collect(),
        streams: (0..scale.streams).map(|number| Held::new("stream", number)).collect(),
        working: Cell::new(true),
        counts: RefCell::default(),
        unsettled_bytes: Cell::new(0),
        most: RefCell::default(),
    });
    let watch = watch::watch(Rc::clone(&world), broker.pid(), data.to_owned());
    let watching = tokio::task::spawn_local(watch);
    let making = Instant::now();
    world
        .each(scale.queues as usize, |world, index| async move {
            let client = world.client(index as u64);
            client.create_topic(&world.queues[index].name, queue()).await.unwrap();
        })
        .await;
    world
        .each(scale.streams as usize, |world, index| async move {
            let client = world.client(index as u64);
            client.create_topic(&world.streams[index].name, stream()).await.unwrap();
        })
        .await;
    world
        .each(scale.deep as usize, |world, index| async move {
            let held = &world.queues[index];
            let mut ledger = held.ledger.lock().await;
            let publisher = world.publisher(held, index as u64).await;
            let share = world.scale.backlog_bytes / u64::from(world.scale.deep);
            while ledger.unsettled_bytes() < share {
                let before = ledger.unsettled_bytes();
                world.publish(&publisher, &mut ledger, 2000).await;
                world.account(before, &ledger);
            }
        })
        .await;
    eprintln!("soak: topics and backlog made in {:?}", making.elapsed());
    let workers: Vec<_> = (0..WORKERS as u64)
        .map(|worker| {
            let choices = Choices::new(seed ^ (worker << 32));
            tokio::task::spawn_local(Rc::clone(&world).work(worker, choices))
        })
        .collect();
    tokio::time::sleep(scale.duration).await;
    world.working.set(false);
    for worker in workers {
        worker.await.unwrap();
    }
    let verifying = Instant::now();
    world.each(scale.streams as usize, verify::stream).await;
    world.each(scale.queues as usize, verify::queue).await;
    watching.abort();
    let (most, counts) = (world.most.take(), world.counts.take());
    let budget = scale.budget_bytes();
    eprintln!(
        "soak: seed {seed}, {counts:?}, verified in {:?}; at most rss {} MiB of a budget of {} MiB, \
         {} descriptors, disk {} MiB, {} MiB beyond twice what was live",
        verifying.elapsed(),
        most.rss_bytes >> 20,
        budget >> 20,
        most.descriptors,
        most.disk_bytes >> 20,
        most.disk_excess_bytes >> 20
    );
    assert!(counts.acked > 100 && counts.made_again > 0, "too little happened to say anything");
    assert!(most.rss_bytes <= budget + budget * 15 / 100, "seed {seed}: {most:?}");
    assert!(most.descriptors <= DESCRIPTORS_MAX, "seed {seed}: {most:?}");
    assert!(most.disk_excess_bytes <= DISK_BYTES, "seed {seed}: {most:?}");
    for client in &world.clients {
        client.clone().close().await;
    }
}

#[test]
fn a_long_mixed_load_loses_nothing_and_stays_within_its_bounds() {
    let seed = number("SENNIT_SOAK_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    eprintln!("soak: seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let scale = Scale::asked();
    let soaked = soak(&broker, folder.path(), scale, seed);
    within_bound(2 * scale.duration + MOST, "the soak ends", soaked);
    assert_eq!(broker.terminate(), Some(0));
}

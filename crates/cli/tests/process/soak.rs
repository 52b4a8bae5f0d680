//! A broker under a long mixed load: thousands of queues, many streams, a backlog far beyond its
//! memory; everything is accounted for in the end, and what it takes of the machine stays bounded.
//! `SENNIT_SOAK_SECONDS` makes it long and large, `SENNIT_SOAK_SEED` repeats its choices.

use std::{
    cell::{Cell, RefCell, RefMut},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_client::{
    Client, Consumer, GroupName, Message, Publisher, Retention, TopicConfig, TopicKind, TopicName,
};
use tokio::{task::LocalSet, time::timeout};

use crate::{
    broker::Broker,
    ledger::Ledger,
    torture::{Choices, number},
};

const SHARDS: u64 = 2;
/// What a shard may hold: published and not committed, newest frames, and what is being moved.
const SHARD_BYTES: u64 = (64 + 32 + 64) << 20;
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
        BASE_BYTES + SHARDS * SHARD_BYTES + topics * TOPIC_BYTES
    }
}

/// A topic, and what it should hold. One worker at a time has it.
struct Held {
    name: TopicName,
    ledger: RefCell<Ledger>,
}

impl Held {
    fn new(kind: &str, number: u32) -> Self {
        let name = format!("soak.{kind}.{number}").parse().unwrap();
        Self { name, ledger: RefCell::new(Ledger::new(number)) }
    }
}

/// The most that was seen of the machine.
#[derive(Debug, Default)]
struct Most {
    rss_bytes: u64,
    descriptors: usize,
    disk_bytes: u64,
    /// Disk beyond twice what was live then.
    disk_excess_bytes: u64,
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
    most: RefCell<Most>,
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

    /// A topic of `topics` that nobody else has.
    async fn draw<'a>(
        &self,
        topics: &'a [Held],
        choices: &mut Choices,
    ) -> (&'a Held, RefMut<'a, Ledger>) {
        loop {
            let held = &topics[choices.below(topics.len() as u64) as usize];
            if let Ok(ledger) = held.ledger.try_borrow_mut() {
                return (held, ledger);
            }
            tokio::task::yield_now().await;
        }
    }

    fn account(&self, before: u64, ledger: &Ledger) {
        self.unsettled_bytes.set(self.unsettled_bytes.get() + ledger.unsettled_bytes() - before);
    }

    async fn publisher(&self, held: &Held, turn: u64) -> Publisher {
        // A producer of its own for each turn would be remembered for long.
        self.client(turn).publisher(&held.name).idempotent(false).open().await.unwrap()
    }

    /// Publishes `count` messages, each of which must get the next offset.
    async fn publish(&self, publisher: &Publisher, ledger: &mut Ledger, count: u64) {
        let first = ledger.end();
        let mut waiting = Vec::with_capacity(count as usize);
        for offset in first..first + count {
            let message = Message::new(ledger.payload(offset));
            waiting.push(publisher.publish(message).await.unwrap());
        }
        for (offset, pending) in (first..).zip(waiting) {
            let confirm = pending.await.unwrap();
            let at = confirm.offset.map(|at| at.0);
            assert_eq!(at, Some(offset), "{} has lost or invented messages", publisher.topic());
        }
        ledger.confirmed(count);
        self.counts.borrow_mut().published += count;
    }

    async fn subscribe(&self, held: &Held, group: &GroupName, turn: u64) -> Consumer {
        let consumer = self.client(turn).consumer(&held.name, group).credit_messages(256);
        consumer.create_group_if_missing(true).subscribe().await.unwrap()
    }

    /// Takes about `count` messages of a queue. Most are acked, some fail, some are given back.
    async fn consume(
        &self,
        (held, ledger): (&Held, &mut Ledger),
        count: u64,
        (turn, choices): (u64, Option<&mut Choices>),
    ) {
        let mut choices = choices;
        let mut consumer = self.subscribe(held, &GroupName::default_group(), turn).await;
        let (mut taken, mut in_hand) = (0, Vec::new());
        let mut in_hand_count = 0;
        while taken < count && ledger.unsettled() > in_hand_count {
            let name = &held.name;
            let Ok(next) = timeout(PATIENCE, consumer.next_run()).await else {
                panic!("{name} lost some of {} messages: {ledger:?}", ledger.unsettled());
            };
            let run = next.expect("the subscription goes on").unwrap();
            let first = run.first_offset().0;
            for (offset, message) in (first..).zip(run.messages()) {
                if let Some(wrong) = ledger.judge(offset, message.payload()) {
                    panic!("{name} delivered {offset} in {run:?}, and {wrong}: {ledger:?}");
                }
            }
            taken += u64::from(run.count());
            match choices.as_mut().map_or(9, |choices| choices.below(20)) {
                0 => run.retry(),
                1 => {
                    in_hand_count += u64::from(run.count());
                    in_hand.push(run);
                }
                _ => {
                    let settled = run.ack_confirmed().await.unwrap();
                    assert_eq!(settled.stale, 0, "{name} says another had {run:?}");
                    let last = first + u64::from(run.count());
                    (first..last).for_each(|offset| ledger.settle(offset));
                    self.counts.borrow_mut().acked += u64::from(run.count());
                }
            }
        }
        consumer.close().await.unwrap();
    }

    async fn make_again(&self, held: &Held, ledger: &mut Ledger, config: TopicConfig, turn: u64) {
        let client = self.client(turn);
        client.delete_topic(&held.name).await.unwrap();
        assert!(client.create_topic(&held.name, config).await.unwrap(), "it was deleted");
        ledger.begin_again();
        self.counts.borrow_mut().made_again += 1;
    }

    async fn work(self: Rc<Self>, worker: u64, mut choices: Choices) {
        while self.working.get() {
            let deep = self.scale.deep as usize;
            match choices.below(100) {
                0..30 => {
                    let (held, mut ledger) = self.draw(&self.streams, &mut choices).await;
                    let publisher = self.publisher(held, worker).await;
                    self.publish(&publisher, &mut ledger, 1 + choices.below(BATCH_MAX)).await;
                }
                30..32 => {
                    let (held, mut ledger) = self.draw(&self.streams, &mut choices).await;
                    self.make_again(held, &mut ledger, stream(), worker).await;
                }
                32..33 => {
                    let (held, mut ledger) = self.draw(&self.queues[deep..], &mut choices).await;
                    let before = ledger.unsettled_bytes();
                    self.make_again(held, &mut ledger, queue(), worker).await;
                    self.account(before, &ledger);
                }
                turn => {
                    // The backlog is read and fed as well, and stays as long as it is.
                    let is_deep = turn.is_multiple_of(8);
                    let topics = if is_deep { &self.queues[..deep] } else { &self.queues[deep..] };
                    let (held, mut ledger) = self.draw(topics, &mut choices).await;
                    let before = ledger.unsettled_bytes();
                    let share = self.scale.backlog_bytes / deep as u64;
                    let is_enough = if is_deep { before > share } else { before > 64 << 10 };
                    if is_enough {
                        let some = (&mut choices).below(4 * BATCH_MAX);
                        let with = (worker, Some(&mut choices));
                        self.consume((held, &mut ledger), some, with).await;
                    } else {
                        let publisher = self.publisher(held, worker).await;
                        self.publish(&publisher, &mut ledger, 1 + choices.below(BATCH_MAX)).await;
                    }
                    self.account(before, &ledger);
                }
            }
        }
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

    /// Looks what the broker takes of the machine, until the load has ended.
    async fn watch(self: Rc<Self>, pid: u32, data: PathBuf) {
        let mut turn = 0_u64;
        loop {
            let rss_bytes = rss_bytes(pid);
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            let mut most = self.most.borrow_mut();
            most.rss_bytes = most.rss_bytes.max(rss_bytes);
            most.descriptors = most.descriptors.max(descriptors);
            if self.working.get() {
                let disk_bytes = disk_bytes(&data);
                let excess = disk_bytes.saturating_sub(2 * self.unsettled_bytes.get());
                most.disk_bytes = most.disk_bytes.max(disk_bytes);
                most.disk_excess_bytes = most.disk_excess_bytes.max(excess);
                if turn.is_multiple_of(40) {
                    let counts = self.counts.borrow();
                    eprintln!(
                        "soak: {counts:?}, rss {} MiB, {descriptors} descriptors, disk {} MiB, \
                         in queues {} MiB",
                        rss_bytes >> 20,
                        disk_bytes >> 20,
                        self.unsettled_bytes.get() >> 20
                    );
                }
            }
            drop(most);
            turn += 1;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

fn rss_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // It was removed meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}

/// What a stream says of itself, and for some of them what it delivers.
async fn verify_stream(world: Rc<World>, index: usize) {
    let held = &world.streams[index];
    let ledger = held.ledger.try_borrow_mut().unwrap();
    let client = world.client(index as u64);
    let described = client.describe_topic(&held.name).await.unwrap();
    let partition = described.partitions[0];
    assert_eq!(partition.end.0, ledger.end(), "{} has other messages", held.name);
    let most = BATCH_MAX * (2 << 10);
    assert!(
        partition.bytes <= RETAINED_BYTES + most,
        "{} keeps too much: {partition:?}",
        held.name
    );
    let is_whole = partition.start.0 == 0 || partition.bytes + most >= RETAINED_BYTES;
    assert!(is_whole, "{} keeps too little: {partition:?}", held.name);
    if !(index as u32).is_multiple_of(world.scale.sampled) || partition.start == partition.end {
        return;
    }
    let group = "verify".parse().unwrap();
    let mut consumer = world.subscribe(held, &group, index as u64).await;
    let mut next = partition.start.0;
    while next < partition.end.0 {
        let run = timeout(PATIENCE, consumer.next_run()).await;
        let run = run.unwrap_or_else(|_| panic!("{} lost {next} and on", held.name));
        let run = run.expect("the subscription goes on").unwrap();
        for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
            assert_eq!(offset, next, "{} skipped messages", held.name);
            assert_eq!(ledger.judge(offset, message.payload()), None, "{}", held.name);
            next += 1;
        }
        run.ack();
    }
    consumer.close().await.unwrap();
}

/// Empties a queue: all that the ledger says must come, and nothing else.
async fn verify_queue(world: Rc<World>, index: usize) {
    let held = &world.queues[index];
    let mut ledger = held.ledger.try_borrow_mut().unwrap();
    let client = world.client(index as u64);
    let before = client.describe_group(&held.name, &GroupName::default_group()).await.unwrap();
    let counted = before.ready + before.leased + before.delayed + before.dying;
    assert_eq!(counted, ledger.unsettled(), "{}: {before:?}", held.name);
    world.consume((held, &mut ledger), u64::MAX, (index as u64, None)).await;
    let after = client.describe_group(&held.name, &GroupName::default_group()).await.unwrap();
    let left = after.ready + after.leased + after.delayed + after.dying;
    assert_eq!(left, 0, "{}: {after:?}", held.name);
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
    let watch = Rc::clone(&world).watch(broker.pid(), data.to_owned());
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
            let mut ledger = held.ledger.try_borrow_mut().unwrap();
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
    world.each(scale.streams as usize, verify_stream).await;
    world.each(scale.queues as usize, verify_queue).await;
    watching.abort();
    let (most, counts) = (world.most.borrow(), world.counts.borrow());
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let soaked = soak(&broker, folder.path(), Scale::asked(), seed);
    LocalSet::new().block_on(&runtime, soaked);
    assert_eq!(broker.terminate(), Some(0));
}

//! Producers and consumers at work while the broker is killed and restarted again and again.
//! `SENNIT_TORTURE_CYCLES` or `SENNIT_TORTURE_SECONDS` make it long, `SENNIT_TORTURE_SEED` repeats its choices.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{
    bounds::{BOUND, within_bound},
    broker::Broker,
    checker::Checker,
};
use sennit_client::{
    Client, Error, GroupConfig, GroupName, Message, Reconnect, StartAt, TopicConfig, TopicKind,
    TopicName,
};

const PARTITIONS: u32 = 3;
const PRODUCERS: u32 = 4;
const CONSUMERS: u32 = 3;
const CYCLES: u32 = 12;

/// How often a long loop says how far it is.
const SAID_EVERY: Duration = Duration::from_secs(20);

/// Longer than a machine under load keeps anybody waiting.
pub const LEASE: Duration = Duration::from_mins(5);

/// Producers wait for consumers beyond this, so that what is drained in the end is little.
const BACKLOG_MAX: usize = 5000;

/// Choices that a seed repeats (SplitMix64).
pub struct Choices(u64);

impl Choices {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// The number in an environment variable, if it is set.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// The seed of a test's choices, told.
pub fn seed_of(test: &str) -> u64 {
    let seed = number("SENNIT_TORTURE_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    eprintln!("{test}: seed {seed}");
    seed
}

/// The kills of a test, by number: so many, or for `SENNIT_TORTURE_SECONDS`, or `SENNIT_TORTURE_CYCLES` of them. A
/// long loop says how far it is.
pub fn kills(few: u32) -> impl Iterator<Item = u32> {
    let seconds = number("SENNIT_TORTURE_SECONDS").map(Duration::from_secs);
    let most = number("SENNIT_TORTURE_CYCLES").unwrap_or(match seconds {
        Some(_) => u64::MAX,
        None => few.into(),
    });
    let (begun, mut said_at) = (Instant::now(), Instant::now());
    (0..).take_while(move |&kill| {
        if said_at.elapsed() >= SAID_EVERY {
            said_at = Instant::now();
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            eprintln!("{test}: {kill} kills in {:?}", begun.elapsed());
        }
        u64::from(kill) < most && seconds.is_none_or(|limit| begun.elapsed() < limit)
    })
}

/// How long a test with `kills` may take: it has to be drained in the end.
pub fn long() -> Duration {
    let seconds =
        number("SENNIT_TORTURE_SECONDS").or(number("SENNIT_TORTURE_CYCLES").map(|n| 10 * n));
    Duration::from_secs(2 * seconds.unwrap_or(0)) + 2 * LEASE + BOUND
}

/// Waits until a group is through with everything.
pub async fn drained(client: &Client, topic: &TopicName, name: &GroupName) {
    let begun = Instant::now();
    loop {
        let group = client.describe_group(topic, name).await.unwrap();
        if group.ready + group.leased + group.delayed + group.dying == 0 {
            return;
        }
        assert!(begun.elapsed() < 2 * LEASE, "never drained: {group:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What all tasks share.
struct World {
    address: String,
    topic: TopicName,
    group: GroupName,
    checker: RefCell<Checker>,
    /// How often the broker was started.
    generation: Cell<u32>,
    publishing: Cell<bool>,
    consuming: Cell<bool>,
}

impl World {
    async fn client(&self) -> Client {
        let delays = Reconnect { delay_max: Duration::from_millis(200), ..Reconnect::default() };
        loop {
            // The first connection is tried once only, and the broker may be down just now.
            match Client::builder(&self.address).reconnect(delays).connect().await {
                Ok(client) => return client,
                Err(Error::Unreachable { .. }) => tokio::time::sleep(delays.delay_min).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn produce(world: Rc<World>, producer: u32, mut choices: Choices) {
    let client = world.client().await;
    let publisher = client.publisher(&world.topic).open().await.unwrap();
    let mut sequence = 0;
    while world.publishing.get() {
        let (confirmed, acked) = world.checker.borrow().counts();
        if confirmed > acked + BACKLOG_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let mut waiting = Vec::new();
        for _ in 0..1 + choices.below(100) {
            let payload =
                format!("{producer} {sequence} {}", "x".repeat(choices.below(2000) as usize));
            let mut message = Message::new(payload);
            if choices.below(2) == 0 {
                message.key = format!("key {}", choices.below(20)).into();
            }
            let pending = publisher.publish(message).await.unwrap();
            waiting.push((sequence, pending));
            sequence += 1;
        }
        for (sequence, pending) in waiting {
            let confirm = pending.await.unwrap();
            if let Some(offset) = confirm.offset {
                let place = (confirm.partition.0, offset.0);
                world.checker.borrow_mut().confirmed((producer, sequence), place);
            }
        }
    }
    client.close().await;
}

async fn consume(world: Rc<World>, consumer: u32, mut choices: Choices) {
    let client = world.client().await;
    let mut subscription =
        client.consumer(&world.topic, &world.group).credit_messages(64).subscribe().await.unwrap();
    while world.consuming.get() {
        let next = tokio::time::timeout(Duration::from_millis(100), subscription.next_run());
        let Ok(next) = next.await else { continue };
        let run = next.expect("the subscription goes on").unwrap();
        let mut places = Vec::new();
        for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
            let text = std::str::from_utf8(message.payload()).unwrap();
            let mut words = text.split(' ');
            let mut word = || words.next().unwrap();
            let name = (word().parse().unwrap(), word().parse().unwrap());
            let place = (run.partition().0, offset);
            let attempt = (run.generation().0, run.attempt());
            world.checker.borrow_mut().delivered(consumer, name, place, attempt);
            places.push(place);
        }
        match choices.below(20) {
            0 => run.retry(),
            1 => run.retry_after(Duration::from_millis(choices.below(50))),
            _ => {
                let settled = run.ack_confirmed().await.unwrap();
                // With a part of them stale, which ones applied is not said.
                if settled.stale == 0 {
                    places.iter().for_each(|&place| {
                        let attempt = (run.generation().0, run.attempt());
                        let now = world.generation.get();
                        world.checker.borrow_mut().ack_confirmed(place, attempt, now);
                    });
                }
            }
        }
    }
    subscription.close().await.unwrap();
    client.close().await;
}

/// Kills and starts the broker until that is enough; returns how often.
async fn kill(broker: &mut Broker, world: &World, choices: &mut Choices) -> u32 {
    let is_long = ["SENNIT_TORTURE_SECONDS", "SENNIT_TORTURE_CYCLES"].map(number) != [None; 2];
    let life_ms_max = if is_long { 3000 } else { 1000 };
    let mut count = 0;
    for _ in kills(CYCLES) {
        let life_ms = 300 + choices.below(life_ms_max - 300);
        tokio::time::sleep(Duration::from_millis(life_ms)).await;
        broker.kill();
        world.generation.set(world.generation.get() + 1);
        tokio::time::sleep(Duration::from_millis(choices.below(100))).await;
        broker.start_again();
        count += 1;
    }
    count
}

async fn torture(broker: &mut Broker, seed: u64) {
    let world = Rc::new(World {
        address: broker.listen.clone(),
        topic: "torture".parse().unwrap(),
        group: GroupName::default_group(),
        checker: RefCell::default(),
        generation: Cell::new(1),
        publishing: Cell::new(true),
        consuming: Cell::new(true),
    });
    let admin = world.client().await;
    let queue = TopicConfig { partitions: PARTITIONS, ..TopicConfig::of_kind(TopicKind::Stream) };
    admin.create_topic(&world.topic, queue).await.unwrap();
    // Without an end of attempts nothing leaves for the dead-letter topic. Where all stands still for as
    // long as a lease, a client may hold a delivery that has gone to another since.
    let group = GroupConfig { attempts_max: u32::MAX, lease: LEASE, ..GroupConfig::default() };
    admin.create_group(&world.topic, &world.group, group, StartAt::Earliest).await.unwrap();

    let choices = |number: u32| Choices::new(seed ^ (u64::from(number) << 32));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let task = produce(Rc::clone(&world), producer, choices(1 + producer));
            tokio::task::spawn_local(task)
        })
        .collect();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|consumer| {
            let task = consume(Rc::clone(&world), consumer, choices(100 + consumer));
            tokio::task::spawn_local(task)
        })
        .collect();

    let cycles = kill(broker, &world, &mut choices(0)).await;
    world.publishing.set(false);
    for producer in producers {
        producer.await.unwrap();
    }
    drained(&admin, &world.topic, &world.group).await;
    world.consuming.set(false);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    admin.close().await;
    let checker = world.checker.take();
    let (confirmed, acked) = checker.counts();
    let outlived = checker.outlived();
    eprintln!(
        "torture: seed {seed}, {cycles} kills, {confirmed} confirmed, {acked} acks confirmed, \
         {outlived} deliveries outlived their broker"
    );
    assert!(confirmed > 100 && acked > 100, "too little happened to say anything");
    let violations = checker.verdict();
    let shown: Vec<_> = violations.iter().take(8).map(|one| format!("{one:?}")).collect();
    assert!(violations.is_empty(), "seed {seed}: {} violations: {shown:#?}", violations.len());
}

#[test]
fn nothing_confirmed_is_lost_or_told_twice_however_often_the_broker_is_killed() {
    let seed = seed_of("torture");
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    within_bound(long(), "the loop of kills ends", torture(&mut broker, seed));
    assert_eq!(broker.terminate(), Some(0));
}

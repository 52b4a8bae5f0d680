//! Everything at once while the broker is killed again and again: a stream that groups consume, that is read live,
//! filtered, by pattern, and with a cursor whose readers come and go, and whose oldest messages are freed.
//! `SENNIT_TORTURE_CYCLES` or `SENNIT_TORTURE_SECONDS` make it long, `SENNIT_TORTURE_SEED` repeats its choices.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_client::{
    Client, CursorName, Error, ErrorCode, Gap, GapReason, GroupConfig, GroupName, Message,
    ReadFrom, ReadRun, Reader, Received, Reconnect, Retention, StartAt, TopicConfig, TopicKind,
    TopicName,
};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    bounds::within_bound,
    broker::Broker,
    checker::{Checker, Name, Place},
    torture::{Choices, LEASE, drained, kills, long, seed_of},
};

const PARTITIONS: u32 = 4;
const PRODUCERS: u32 = 3;
const GROUPS: usize = 2;
const CONSUMERS: u32 = 2;
const CYCLES: u32 = 8;

/// What a partition keeps: far more than anybody may be behind, far less than is published.
const KEPT_BYTES: u64 = 8 << 20;

/// Producers wait for the slowest group and for the cursor beyond this many messages.
const BEHIND_MAX: u64 = 1000;

const PAYLOAD_BYTES_MAX: u64 = 8000;

const KEYS: u64 = 40;

/// What all tasks share.
struct World {
    address: String,
    topic: TopicName,
    groups: Vec<GroupName>,
    checkers: Vec<RefCell<Checker>>,
    /// Which message lies where, as anybody was told.
    names: RefCell<HashMap<Place, Name>>,
    /// How many messages each producer has begun to publish.
    published: RefCell<HashMap<u32, u64>>,
    /// Behind which offset of each partition the cursor's readers have come.
    cursor_end: RefCell<Vec<u64>>,
    /// How often the broker was started.
    generation: Cell<u32>,
    publishing: Cell<bool>,
    consuming: Cell<bool>,
    /// Where the partitions end, once nothing is published any more.
    ends: RefCell<Option<Vec<u64>>>,
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

    /// Somebody was told that this message lies there: the same as everybody else, and one that was
    /// published.
    fn lies(&self, place: Place, (producer, sequence): Name) {
        let before = *self.names.borrow_mut().entry(place).or_insert((producer, sequence));
        assert_eq!(before, (producer, sequence), "two messages at {place:?}");
        let published = self.published.borrow().get(&producer).copied().unwrap_or(0);
        assert!(sequence < published, "{producer} {sequence} was never published");
    }

    fn is_too_far_ahead(&self) -> bool {
        let mut behind: u64 = self.cursor_end.borrow().iter().sum();
        let mut confirmed = 0;
        for checker in &self.checkers {
            let (all, acked) = checker.borrow().counts();
            (confirmed, behind) = (all as u64, behind.min(acked as u64));
        }
        confirmed > behind + BEHIND_MAX
    }

    fn is_at_the_end(&self, next: &[u64]) -> bool {
        let ends = self.ends.borrow();
        ends.as_ref().is_some_and(|ends| next.iter().zip(ends).all(|(next, end)| next >= end))
    }
}

/// The message that a payload names.
fn name_of(payload: &[u8]) -> Name {
    let mut words = std::str::from_utf8(payload).unwrap().split(' ');
    let mut word = || words.next().unwrap();
    (word().parse().unwrap(), word().parse().unwrap())
}

async fn produce(world: Rc<World>, producer: u32, mut choices: Choices) {
    let client = world.client().await;
    let publisher = client.publisher(&world.topic).open().await.unwrap();
    let mut sequence = 0;
    while world.publishing.get() {
        if world.is_too_far_ahead() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let mut waiting = Vec::new();
        for _ in 0..1 + choices.below(100) {
            let filler = "x".repeat(choices.below(PAYLOAD_BYTES_MAX) as usize);
            let mut message = Message::new(format!("{producer} {sequence} {filler}"));
            message.key = format!("key {}", sequence % KEYS).into();
            world.published.borrow_mut().insert(producer, sequence + 1);
            waiting.push((sequence, publisher.publish(message).await.unwrap()));
            sequence += 1;
        }
        for (sequence, pending) in waiting {
            let confirm = pending.await.unwrap();
            let Some(offset) = confirm.offset else { continue };
            let place = (confirm.partition.0, offset.0);
            world.lies(place, (producer, sequence));
            for checker in &world.checkers {
                checker.borrow_mut().confirmed((producer, sequence), place);
            }
        }
    }
    client.close().await;
}

async fn consume(world: Rc<World>, group: usize, consumer: u32, mut choices: Choices) {
    let client = world.client().await;
    let builder = client.consumer(&world.topic, &world.groups[group]);
    let mut subscription = builder.credit_messages(128).subscribe().await.unwrap();
    while world.consuming.get() {
        let next = timeout(Duration::from_millis(100), subscription.next_run()).await;
        let Ok(next) = next else { continue };
        let run = next.expect("the subscription goes on").unwrap();
        let attempt = (run.generation().0, run.attempt());
        let mut places = Vec::new();
        for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
            let (name, place) = (name_of(message.payload()), (run.partition().0, offset));
            world.lies(place, name);
            world.checkers[group].borrow_mut().delivered(consumer, name, place, attempt);
            places.push(place);
        }
        if choices.below(20) == 0 {
            run.retry();
            continue;
        }
        let settled = run.ack_confirmed().await.unwrap();
        // With a part of them stale, which ones applied is not said.
        if settled.stale == 0 {
            let now = world.generation.get();
            let mut checker = world.checkers[group].borrow_mut();
            places.iter().for_each(|&place| checker.ack_confirmed(place, attempt, now));
        }
    }
    subscription.close().await.unwrap();
    client.close().await;
}

/// Where a reader stands: what comes has to come next, and nothing is left out but what is said to
/// be kept no more.
struct Trail {
    next: Vec<u64>,
    passed_over: u64,
}

impl Trail {
    fn of(reader: &Reader) -> Self {
        let next = reader.ranges().iter().map(|range| range.first.0).collect();
        Self { next, passed_over: 0 }
    }

    fn delivered(&mut self, world: &World, run: &ReadRun) {
        let (partition, first) = (run.partition().0, run.first_offset().0);
        assert_eq!(first, self.next[partition as usize], "partition {partition}");
        for (offset, message) in (first..).zip(run.messages()) {
            world.lies((partition, offset), name_of(message.payload()));
        }
        self.next[partition as usize] += u64::from(run.count());
    }

    fn gap(&mut self, gap: &Gap) {
        assert_eq!(gap.reason, GapReason::Retention, "{gap}");
        let next = &mut self.next[gap.partition.0 as usize];
        assert_eq!(gap.offsets.start.0, *next, "{gap}");
        *next = gap.offsets.end.0;
        self.passed_over += gap.offsets.count();
    }
}

/// Reads from `from` to the end.
async fn read_live(world: Rc<World>, from: ReadFrom) -> Trail {
    let client = world.client().await;
    let mut reader = client.reader(&world.topic).from(from).start().await.unwrap();
    let mut trail = Trail::of(&reader);
    while !world.is_at_the_end(&trail.next) {
        let Ok(received) = timeout(Duration::from_millis(100), reader.receive_run()).await else {
            continue;
        };
        match received.expect("it goes on").unwrap() {
            Received::Delivered(run) => trail.delivered(&world, &run),
            Received::Gap(gap) => trail.gap(&gap),
        }
    }
    reader.close().await.unwrap();
    client.close().await;
    trail
}

/// Reads every topic there is, which is this one, to the end.
async fn read_by_pattern(world: Rc<World>) -> Trail {
    let client = world.client().await;
    let mut reader = client.pattern_reader(&">".parse().unwrap()).start().await.unwrap();
    let mut trail = Trail { next: vec![0; PARTITIONS as usize], passed_over: 0 };
    while !world.is_at_the_end(&trail.next) {
        let Ok(received) = timeout(Duration::from_millis(100), reader.receive_run()).await else {
            continue;
        };
        let (topic, received) = received.expect("it goes on").unwrap();
        assert_eq!(topic, world.topic);
        match received {
            Received::Delivered(run) => trail.delivered(&world, &run),
            Received::Gap(gap) => trail.gap(&gap),
        }
    }
    drop(reader);
    client.close().await;
    trail
}

/// Reads the messages of one key until all of them have come that are not told to be gone; how many
/// came.
async fn read_filtered(world: Rc<World>) -> usize {
    const KEY: u64 = 7;
    let client = world.client().await;
    let filter = format!("key = \"key {KEY}\"").parse().unwrap();
    let mut reader = client.reader(&world.topic).filter(&filter).start().await.unwrap();
    let mut next = vec![0; PARTITIONS as usize];
    let (mut came, mut gone) = (HashSet::new(), Vec::new());
    loop {
        let received = timeout(Duration::from_millis(100), reader.receive_run()).await;
        let Ok(received) = received else {
            let is_here = |(partition, offset): &Place| {
                let is_gone = |gap: &Gap| {
                    gap.partition.0 == *partition
                        && (gap.offsets.start.0..gap.offsets.end.0).contains(offset)
                };
                came.contains(&(*partition, *offset)) || gone.iter().any(is_gone)
            };
            let names = world.names.borrow();
            let mut wanted = names.iter().filter(|(_, (_, sequence))| sequence % KEYS == KEY);
            if world.ends.borrow().is_some() && wanted.all(|(place, _)| is_here(place)) {
                break;
            }
            continue;
        };
        match received.expect("it goes on").unwrap() {
            Received::Delivered(run) => {
                let partition = run.partition().0;
                for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
                    let name = name_of(message.payload());
                    assert_eq!(name.1 % KEYS, KEY, "the filter lets {name:?} through");
                    world.lies((partition, offset), name);
                    assert!(offset >= next[partition as usize], "{partition} {offset}");
                    next[partition as usize] = offset + 1;
                    came.insert((partition, offset));
                }
            }
            Received::Gap(gap) => {
                assert_eq!(gap.reason, GapReason::Retention, "{gap}");
                gone.push(gap);
            }
        }
    }
    reader.close().await.unwrap();
    client.close().await;
    came.len()
}

fn is_cursor_held(error: &Error) -> bool {
    matches!(error, Error::Refused { code: ErrorCode::CursorHeld, .. })
}

/// How the readers of a cursor ended, by count.
#[derive(Debug, Default)]
struct Ends {
    closed: u32,
    dropped: u32,
    taken_over: u32,
    fenced: u32,
    given_again: u64,
}

/// Readers of one cursor, one after the other, until one has come to the end.
async fn read_by_cursor(world: Rc<World>, mut choices: Choices) -> Ends {
    let name: CursorName = "audit".parse().unwrap();
    let (client, other) = (world.client().await, world.client().await);
    let mut ends = Ends::default();
    let mut before: Option<Reader> = None;
    let mut exactly = false;
    loop {
        // Each comes from another process than the one before it.
        let client = if choices.below(2) == 0 { &client } else { &other };
        let builder = client.reader(&world.topic).cursor(&name).take_over(true);
        let started = match choices.below(2) {
            0 => builder.auto_commit(100).start().await,
            _ => builder.auto_commit(Duration::from_millis(20)).start().await,
        };
        let mut reader = match started {
            Ok(reader) => reader,
            Err(error) if is_cursor_held(&error) => continue,
            Err(error) => panic!("{error}"),
        };
        if let Some(mut before) = before.take() {
            ends.taken_over += 1;
            match before.commit().await {
                // It had committed everything, or came back first to a broker that was started
                // again: nobody knows there who took over from whom.
                Ok(()) => {}
                Err(error) if is_cursor_held(&error) => ends.fenced += 1,
                Err(Error::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let mut trail = Trail::of(&reader);
        for (partition, (&first, &end)) in
            trail.next.iter().zip(world.cursor_end.borrow().iter()).enumerate()
        {
            assert!(first <= end, "partition {partition} goes on at {first}, it was at {end}");
            assert!(!exactly || first == end, "partition {partition}: {first}, closed at {end}");
            ends.given_again += end - first;
        }
        exactly = false;
        let until = Instant::now() + Duration::from_millis(choices.below(800));
        let mut given = 0;
        let is_over = loop {
            if world.is_at_the_end(&trail.next) {
                break true;
            }
            if Instant::now() >= until && given > 0 {
                break false;
            }
            let next = timeout(Duration::from_millis(50), reader.receive_run()).await;
            let Ok(received) = next else { continue };
            match received {
                Some(Ok(Received::Delivered(run))) => {
                    trail.delivered(&world, &run);
                    given += run.count();
                }
                Some(Ok(Received::Gap(gap))) => {
                    trail.gap(&gap);
                    let end = world.cursor_end.borrow()[gap.partition.0 as usize];
                    assert!(gap.offsets.end.0 <= end, "nobody has read what is gone: {gap}");
                }
                // The one before it has come back first to a broker that was started again.
                Some(Err(error)) if is_cursor_held(&error) => break false,
                Some(Err(error)) => panic!("{error}"),
                None => break false,
            }
            for (end, &next) in world.cursor_end.borrow_mut().iter_mut().zip(&trail.next) {
                *end = next.max(*end);
            }
        };
        match choices.below(3) {
            _ if is_over => {
                reader.close().await.unwrap();
                break;
            }
            0 => {
                ends.closed += 1;
                exactly = reader.close().await.is_ok()
                    && world.cursor_end.borrow().iter().eq(trail.next.iter());
            }
            1 => {
                ends.dropped += 1;
                drop(reader);
            }
            _ => before = Some(reader),
        }
    }
    let cursors = other.list_cursors(&world.topic).await.unwrap();
    let positions = cursors[0].positions.iter().map(|(_, offset)| offset.0);
    assert!(positions.eq(world.cursor_end.borrow().iter().copied()), "{cursors:?}");
    client.close().await;
    other.close().await;
    ends
}

/// What a task comes to that has only to read to the end.
async fn soon<T>(task: JoinHandle<T>) -> T {
    timeout(Duration::from_secs(60), task).await.expect("it comes to the end").unwrap()
}

/// Kills and starts the broker until that is enough; returns how often.
async fn kill(broker: &mut Broker, world: &World, choices: &mut Choices) -> u32 {
    let mut count = 0;
    for _ in kills(CYCLES) {
        tokio::time::sleep(Duration::from_millis(400 + choices.below(1600))).await;
        broker.kill();
        world.generation.set(world.generation.get() + 1);
        tokio::time::sleep(Duration::from_millis(choices.below(100))).await;
        broker.start_again();
        count += 1;
    }
    count
}

async fn all_at_once(broker: &mut Broker, seed: u64) {
    let groups = (0..GROUPS).map(|n| format!("group-{n}").parse().unwrap());
    let world = Rc::new(World {
        address: broker.listen.clone(),
        topic: "together".parse().unwrap(),
        groups: groups.collect(),
        checkers: (0..GROUPS).map(|_| RefCell::default()).collect(),
        names: RefCell::default(),
        published: RefCell::default(),
        cursor_end: RefCell::new(vec![0; PARTITIONS as usize]),
        generation: Cell::new(1),
        publishing: Cell::new(true),
        consuming: Cell::new(true),
        ends: RefCell::new(None),
    });
    let admin = world.client().await;
    let retention = Retention { bytes: Some(KEPT_BYTES), ..Retention::FOREVER };
    let stream = TopicConfig::of_kind(TopicKind::Stream);
    let config = TopicConfig { partitions: PARTITIONS, retention, ..stream };
    admin.create_topic(&world.topic, config).await.unwrap();
    // Without an end of attempts nothing leaves for the dead-letter topic. Where all stands still for as
    // long as a lease, a client may hold a delivery that has gone to another since.
    let group = GroupConfig { attempts_max: u32::MAX, lease: LEASE, ..GroupConfig::default() };
    for name in &world.groups {
        admin.create_group(&world.topic, name, group.clone(), StartAt::Earliest).await.unwrap();
    }

    let choices = |number: u32| Choices::new(seed ^ (u64::from(number) << 32));
    let mut producers = Vec::new();
    for producer in 0..PRODUCERS {
        let task = produce(Rc::clone(&world), producer, choices(1 + producer));
        producers.push(tokio::task::spawn_local(task));
    }
    let mut consumers = Vec::new();
    for consumer in 0..CONSUMERS * GROUPS as u32 {
        let group = consumer as usize % GROUPS;
        let task = consume(Rc::clone(&world), group, consumer, choices(100 + consumer));
        consumers.push(tokio::task::spawn_local(task));
    }
    let mut readers = Vec::new();
    for from in [ReadFrom::Earliest, ReadFrom::Latest, ReadFrom::Last(10)] {
        readers.push(tokio::task::spawn_local(read_live(Rc::clone(&world), from)));
    }
    readers.push(tokio::task::spawn_local(read_by_pattern(Rc::clone(&world))));
    let filtered = tokio::task::spawn_local(read_filtered(Rc::clone(&world)));
    let by_cursor = read_by_cursor(Rc::clone(&world), choices(200));
    let by_cursor = tokio::task::spawn_local(by_cursor);

    let cycles = kill(broker, &world, &mut choices(0)).await;
    world.publishing.set(false);
    for producer in producers {
        producer.await.unwrap();
    }
    let described = admin.describe_topic(&world.topic).await.unwrap();
    let freed: u64 = described.partitions.iter().map(|partition| partition.start.0).sum();
    *world.ends.borrow_mut() = Some(described.partitions.iter().map(|p| p.end.0).collect());
    let mut passed_over = 0;
    for reader in readers {
        passed_over += soon(reader).await.passed_over;
    }
    let filtered = soon(filtered).await;
    assert!(filtered > 10, "the filter let {filtered} through");
    let ends = soon(by_cursor).await;
    for name in &world.groups {
        drained(&admin, &world.topic, name).await;
    }
    world.consuming.set(false);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    admin.close().await;
    let (confirmed, _) = world.checkers[0].borrow().counts();
    eprintln!(
        "together: seed {seed}, {cycles} kills, {confirmed} confirmed, {freed} freed by retention, \
         {passed_over} of them before a live reader came by; the cursor's readers: {ends:?}"
    );
    assert!(confirmed > 500, "too little happened to say anything");
    assert!(confirmed as u64 <= world.cursor_end.borrow().iter().sum());
    for (name, checker) in world.groups.iter().zip(&world.checkers) {
        let violations = checker.take().verdict();
        let shown: Vec<_> = violations.iter().take(8).collect();
        assert!(violations.is_empty(), "{name}, seed {seed}: {shown:#?}");
    }
}

#[test]
fn groups_cursors_and_readers_miss_nothing_while_all_is_at_work_and_the_broker_is_killed() {
    let seed = seed_of("together");
    let folder = tempfile::tempdir().unwrap();
    // Small, so that much moves to packs meanwhile.
    let flags = ["--shards", "2", "--segment-size", "20MiB", "--journal-segments", "1"];
    let mut broker = Broker::start_with(folder.path(), &flags);
    within_bound(long(), "the loop of kills ends", all_at_once(&mut broker, seed));
    assert_eq!(broker.terminate(), Some(0));
}

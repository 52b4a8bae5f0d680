//! What an idle topic costs: heap bytes per partition with one message that nobody wants yet, a
//! queue's with its default group, and in the catalogue; together, and while it is used. And that one which
//! is gone costs nothing. It counts every allocation, and knows nothing of what they hold.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{
    CatalogueCommand, Command, CompactedBatch, CompactionPass, Credit, CursorClaim, CursorSetter,
    DeadLetters, Engine, GroupSetting, Journal, OpenStream, Origin, Outbox, PartitionCommand,
    Payloads, Place, Publish, Read, Record, SessionId, StreamCommand, StreamSettings, Subscribe,
};
use sennit_model::{
    Batch, BatchBuilder, CursorName, Durability, Generation, GroupConfig, GroupId, Incarnation,
    Message, Offset, PartitionId, PartitionIndex, ProducerId, ProducerStamp, Retention, StartAt,
    Timestamp, TopicConfig, TopicId, TopicKind, WhenSlow,
};

struct Counting;

thread_local! {
    /// Of this test: each has a thread of its own. Less than nothing where that frees what another made.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
    /// All that was ever taken.
    static TAKEN_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn held_bytes() -> isize {
    HELD_BYTES.get()
}

fn count(bytes: isize) {
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
    let taken = bytes.max(0).cast_unsigned();
    let _ = TAKEN_BYTES.try_with(|all| all.set(all.get() + taken));
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Positions(u64);

impl Journal for Positions {
    fn append(&mut self, record: &Record) -> u64 {
        self.0 += 100 + record.batch().map_or(0, |batch| batch.bytes().len() as u64);
        self.0
    }

    fn keep(&mut self, batch: &Batch) -> u64 {
        self.0 += batch.bytes().len() as u64;
        self.0
    }
}

struct Nothing;

impl Payloads for Nothing {
    fn batch(&mut self, _: PartitionId, _: Place) -> Option<Bytes> {
        None
    }
}

/// Each batch is the same.
struct Always(Bytes);

impl Payloads for Always {
    fn batch(&mut self, _: PartitionId, _: Place) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

/// Topics in the measurement: as many as a shard of a large broker has.
const TOPICS: u32 = 500_000;
/// What each may cost, in bytes, once nobody has touched it for a while; what it did when this was
/// written.
const QUEUE_BYTES_MAX: usize = 76; // 74
const STREAM_BYTES_MAX: usize = 70; // 68
const QUEUE_ENTRY_BYTES_MAX: usize = 126; // 124, with a name of 16 characters
const STREAM_ENTRY_BYTES_MAX: usize = 110; // 108
/// What a partition may cost that somebody has touched: as many of them as are used at a time.
const TOUCHED_BYTES_MAX: usize = 338; // 334
/// What a topic of one partition may cost, in its shard and in the catalogue.
const TOPIC_BYTES_MAX: usize = 200;

#[test]
fn an_idle_topic_costs_two_hundred_bytes() {
    for (kind, partition, entry) in [
        (TopicKind::Queue, QUEUE_BYTES_MAX, QUEUE_ENTRY_BYTES_MAX),
        (TopicKind::Stream, STREAM_BYTES_MAX, STREAM_ENTRY_BYTES_MAX),
    ] {
        let idle = each_costs(|| {
            let mut engine = partitions(kind, TOPICS);
            // Twice round, and nobody has touched one.
            (0..2).for_each(|_| engine.fold_untouched(1));
            engine
        });
        assert!(idle <= partition, "{idle} bytes a partition of a {kind:?}");
        let in_catalogue = an_entry_of_the_catalogue(kind);
        assert!(in_catalogue <= entry, "{in_catalogue} bytes a {kind:?} in the catalogue");
        let both = idle + in_catalogue;
        assert!(both <= TOPIC_BYTES_MAX, "{both} bytes a {kind:?}");
        let touched = each_costs(|| partitions(kind, TOPICS));
        assert!(touched <= TOUCHED_BYTES_MAX, "{touched} bytes a touched partition of a {kind:?}");
    }
}

#[test]
fn a_topic_that_is_gone_leaves_nothing() {
    let mut engine = Engine::new(Generation(1), Timestamp(1_000));
    let mut journal = Positions(0);
    let mut held = [0; 2];
    for held in &mut held {
        for _ in 0..200 {
            come_and_go(&mut engine, &mut journal);
        }
        *held = held_bytes();
    }
    let [before, after] = held;
    // Tables keep the room they have had; 200 topics that leave a word each would be more.
    assert!(after < before + 1_000, "{before} bytes, and {after} after 200 more");
}

#[test]
fn groups_that_are_gone_leave_nothing_with_a_session_that_had_left_them() {
    let (mut engine, mut journal) = (Engine::new(Generation(1), Timestamp(1_000)), Positions(0));
    let origin = Origin { session: SessionId(1), request: 1 };
    let (mut held, mut group) = ([0; 2], 0);
    for held in &mut held {
        for _ in 0..1_000 {
            group += 1;
            // Groups of one topic go alone, or with a topic each.
            for topic in [0, group] {
                let partition = PartitionId { topic: TopicId(topic), index: PartitionIndex(0) };
                let open = |groups| PartitionCommand::Open {
                    config: TopicConfig::of_kind(TopicKind::Stream),
                    groups,
                    dead_letters: DeadLetters::NotYet,
                };
                let (id, config) = (GroupId(group), GroupConfig::default());
                let setting = GroupSetting { id, config, start: StartAt::Earliest };
                let (session, subscription) = (origin.session, 3);
                let credit = Credit { messages: 10, bytes: 1_000 };
                let gone = if topic == 0 { open(Vec::new()) } else { PartitionCommand::Drop };
                for command in [
                    Command::Partition(origin, partition, open(vec![setting])),
                    Command::Subscribe(Subscribe {
                        origin,
                        subscription,
                        partition,
                        group: id,
                        credit,
                    }),
                    Command::Unsubscribe { session, subscription, partition, group: id },
                    Command::Partition(origin, partition, gone),
                ] {
                    turn(&mut engine, &mut journal, command, Timestamp(1_000));
                }
            }
        }
        *held = held_bytes();
    }
    let [before, after] = held;
    assert!(after < before + 1_000, "{before} bytes, and {after} after 2000 more");
}

#[test]
fn a_queue_is_idle_again_once_its_consumers_have_left() {
    let topics = 1_000;
    let mut engine = partitions(TopicKind::Queue, topics);
    let (mut journal, mut out) = (Positions(0), Outbox::default());
    (0..2).for_each(|_| engine.fold_untouched(1));
    let idle = held_bytes();
    let mut used = [0; 2];
    for used in &mut used {
        for topic in 0..topics {
            let (session, subscription, group) = (SessionId(1), 3, GroupId(topic));
            let origin = Origin { session, request: 1 };
            let partition = PartitionId { topic: TopicId(topic), index: PartitionIndex(0) };
            let credit = Credit { messages: 10, bytes: 1_000 };
            let subscribe = Subscribe { origin, subscription, partition, group, credit };
            let leave = Command::Unsubscribe { session, subscription, partition, group };
            for command in [Command::Subscribe(subscribe), leave] {
                engine.handle(command, Timestamp(1_000), &mut journal, &mut out);
                engine.deliver(Timestamp(1_000), &mut journal, &mut Nothing, &mut out);
            }
            out.now.clear();
            out.after_commit.clear();
        }
        (0..2).for_each(|_| engine.fold_untouched(1));
        *used = held_bytes();
    }
    // Tables keep the room they have had; a queue that is not idle has 300 bytes.
    assert!(used[0] - idle < 100_000, "{idle} bytes, and {} once used", used[0]);
    assert!(used[1] - used[0] < 1_000, "{} bytes, and {} after once more", used[0], used[1]);
}

#[test]
fn messages_that_are_gone_leave_no_timers() {
    let (origin, day) = (Origin::default(), Duration::from_secs(86_400));
    let id = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
    let config = TopicConfig {
        time_to_live: Some(day),
        retention: Retention { age: Some(day), ..Retention::FOREVER },
        ..TopicConfig::of_kind(TopicKind::Stream)
    };
    let open =
        PartitionCommand::Open { config, groups: Vec::new(), dead_letters: DeadLetters::NotYet };
    let (mut engine, mut out) = (Engine::new(Generation(1), Timestamp(1_000)), Outbox::default());
    let (mut journal, mut held) = (Positions(0), [0; 2]);
    engine.handle(Command::Partition(origin, id, open), Timestamp(1_000), &mut journal, &mut out);
    let mut builder = BatchBuilder::new();
    builder.push(&Message { delay: Some(day), ..Message::new("x") }).expect("within the limits");
    let batch = builder.take().expect("one message was pushed");
    for held in &mut held {
        for at in 0..1_000 {
            // Each in a millisecond of its own, so that none has its timer with another.
            let now = Timestamp(1_000 + journal.0);
            let producer = ProducerStamp::default();
            let publish = Publish { origin, partition: id, producer, batch: batch.clone() };
            let trim = PartitionCommand::Trim(engine.end_of(id).expect("it is open").plus(1));
            for command in [Command::Publish(publish), Command::Partition(origin, id, trim)] {
                turn(&mut engine, &mut journal, command, now);
            }
            drop(engine.take_freed());
            if at % 100 == 0 {
                // As one that rests and is used again.
                (0..2).for_each(|_| engine.fold_untouched(1));
            }
        }
        *held = held_bytes();
    }
    let [before, after] = held;
    assert!(after < before + 1_000, "{before} bytes, and {after} after 1000 more");
    assert!(after < 100_000, "{after}");
}

#[test]
fn a_partition_that_is_compacted_again_and_again_has_one_timer_for_its_tombstones() {
    let origin = Origin::default();
    let id = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
    let config = TopicConfig {
        retention: Retention::LATEST_PER_KEY,
        ..TopicConfig::of_kind(TopicKind::Stream)
    };
    let open =
        PartitionCommand::Open { config, groups: Vec::new(), dead_letters: DeadLetters::NotYet };
    let (mut engine, mut journal) = (Engine::new(Generation(1), Timestamp(1_000)), Positions(0));
    let open = Command::Partition(origin, id, open);
    turn(&mut engine, &mut journal, open, Timestamp(1_000));
    let mut builder = BatchBuilder::new();
    builder.push(&Message { key: "a".into(), ..Message::new("") }).expect("within the limits");
    let batch = builder.take().expect("one message was pushed");
    let (mut held, mut at) = ([0; 2], 0);
    for held in &mut held {
        for _ in 0..1_000 {
            at += 1;
            let now = Timestamp(1_000 + 1_000 * at);
            engine.advance(now, &mut journal);
            let producer = ProducerStamp::default();
            let publish = Publish { origin, partition: id, producer, batch: batch.clone() };
            turn(&mut engine, &mut journal, Command::Publish(publish), now);
            let scope = engine.begin_compaction(id, now).expect("there is something");
            // All but the last is superseded.
            let older = engine.batches_within(id, scope.start, Offset(at - 1));
            let older = older.map(|kept| CompactedBatch {
                first: kept.first,
                count: kept.count,
                parts: Vec::new(),
            });
            let older = older.collect();
            engine.compact(id, older, &mut journal);
            let pass =
                CompactionPass { until: scope.until, keeps_tombstones: true, all_read: true };
            engine.compacted_to(id, pass, now, &mut journal);
            engine.end_turn(&mut journal);
            drop(engine.take_freed());
        }
        *held = held_bytes();
    }
    let [before, after] = held;
    assert!(after < before + 1_000, "{before} bytes, and {after} after 1000 more");
}

#[test]
fn a_message_with_a_time_to_live_costs_no_more_to_deliver_where_many_are_ready() {
    let each_takes = |ready: u64| {
        let origin = Origin { session: SessionId(1), request: 1 };
        let partition = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
        let setting = GroupSetting {
            id: GroupId(1),
            config: GroupConfig::default(),
            start: StartAt::Earliest,
        };
        let open = PartitionCommand::Open {
            config: TopicConfig {
                time_to_live: Some(Duration::from_secs(86_400)),
                ..TopicConfig::of_kind(TopicKind::Queue)
            },
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        };
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("x")).expect("within the limits");
        let batch = builder.take().expect("one message was pushed");
        let (mut engine, mut journal) = (Engine::new(Generation(1), Timestamp(0)), Positions(0));
        turn(&mut engine, &mut journal, Command::Partition(origin, partition, open), Timestamp(0));
        for at in 0..ready {
            let producer = ProducerStamp::default();
            let publish = Publish { origin, partition, producer, batch: batch.clone() };
            // Each in a millisecond of its own, so that each expires at a time of its own.
            turn(&mut engine, &mut journal, Command::Publish(publish), Timestamp(at));
        }
        let credit = Credit { messages: 100, bytes: 1 << 20 };
        let subscribe = Subscribe { origin, subscription: 3, partition, group: GroupId(1), credit };
        let (now, mut out) = (Timestamp(ready), Outbox::default());
        engine.handle(Command::Subscribe(subscribe), now, &mut journal, &mut out);
        out.now.clear();
        out.now.reserve(100);
        let before = TAKEN_BYTES.get();
        engine.deliver(now, &mut journal, &mut Always(batch.bytes().clone()), &mut out);
        assert_eq!(out.now.len(), 100);
        TAKEN_BYTES.get() - before
    };
    let (few, many) = (each_takes(200), each_takes(20_000));
    assert!(many < 2 * few, "{few} bytes where 200 are ready, and {many} where 20000 are");
}

/// Does a command in a turn of its own, and commits it; nobody hears what comes of it.
fn turn(engine: &mut Engine, journal: &mut Positions, command: Command, now: Timestamp) {
    let mut out = Outbox::default();
    engine.handle(command, now, journal, &mut out);
    engine.end_turn(journal);
    engine.committed(u64::MAX);
    engine.deliver(now, journal, &mut Nothing, &mut out);
}

/// A topic of each durability and a stream, used in every way and dropped.
fn come_and_go(engine: &mut Engine, journal: &mut Positions) {
    let now = Timestamp(1_000);
    let origin = Origin { session: SessionId(1), request: 1 };
    for durability in Durability::ALL {
        // Numbers of topics are given once.
        let topic = TopicId(u32::try_from(journal.0).expect("a short test"));
        let id = PartitionId { topic, index: PartitionIndex(0) };
        let name: CursorName = "audit".parse().expect("it is a name");
        let by = CursorSetter { session: origin.session, subscription: None, take_over: false };
        let setting = GroupSetting {
            id: GroupId(topic.0),
            config: GroupConfig::default(),
            start: StartAt::Earliest,
        };
        let retention = Retention::LATEST_PER_KEY;
        let config =
            TopicConfig { durability, retention, ..TopicConfig::of_kind(TopicKind::Stream) };
        let open = PartitionCommand::Open {
            config,
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        };
        let mut builder = BatchBuilder::new();
        builder.push(&Message { key: "k".into(), ..Message::new("x") }).expect("within the limits");
        let batch = builder.take().expect("one message was pushed");
        let producer = ProducerStamp { id: ProducerId(7), epoch: 0, first_sequence: 0 };
        let read = Read {
            origin,
            subscription: 3,
            partition: id,
            at: Offset(0),
            credit: Credit { messages: 10, bytes: 1_000 },
            cursor: Some(CursorClaim { name: name.clone(), take_over: false, number: 1 }),
            when_slow: WhenSlow::default(),
            filter: None,
        };
        for command in [
            Command::Partition(origin, id, open),
            Command::Publish(Publish { origin, partition: id, producer, batch }),
            Command::Partition(origin, id, PartitionCommand::SetCursor(name, Offset(1), by)),
            Command::Read(read),
            Command::Partition(origin, id, PartitionCommand::Drop),
        ] {
            turn(engine, journal, command, now);
        }
        assert!(engine.end_of(id).is_none());
        drop(engine.take_freed());
    }
    let topic = TopicId(u32::try_from(journal.0).expect("a short test"));
    let id = PartitionId { topic, index: PartitionIndex(0) };
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let settings = StreamSettings { time_to_live: Some(86_400), ..StreamSettings::of_topic() };
    let open = OpenStream { config, settings, content: None, closes: false };
    for command in [
        Command::Stream(origin, id, StreamCommand::Open(Box::new(open))),
        Command::Stream(origin, id, StreamCommand::Delete),
        Command::Partition(origin, id, PartitionCommand::Drop),
    ] {
        turn(engine, journal, command, now);
    }
    assert!(engine.end_of(id).is_none());
}

/// Heap bytes that `make` needs for each of [`TOPICS`] topics, and what keeps them.
fn each_costs(make: impl FnOnce() -> Engine) -> usize {
    let before = held_bytes();
    let engine = make();
    let held = held_bytes() - before;
    drop(engine);
    held.cast_unsigned() / TOPICS as usize
}

fn an_entry_of_the_catalogue(kind: TopicKind) -> usize {
    let (mut journal, mut out) = (Positions(0), Outbox::default());
    each_costs(|| {
        let mut engine = Engine::new(Generation(1), Timestamp(1_000));
        for topic in 0..TOPICS {
            let create = CatalogueCommand::CreateTopic {
                name: format!("orders.{topic:09}").parse().expect("it is a name"),
                config: TopicConfig::of_kind(kind),
                incarnation: Incarnation(topic.into()),
                placed: None,
                is_stream: false,
            };
            let create = Command::Catalogue(Origin::default(), create);
            engine.handle(create, Timestamp(1_000), &mut journal, &mut out);
            out.now.clear();
            out.after_commit.clear();
        }
        assert_eq!(engine.catalogue().topic_count(), TOPICS as usize);
        engine
    })
}

/// Partitions of a topic each, so many, with a message each, touched just now.
fn partitions(kind: TopicKind, topics: u32) -> Engine {
    let origin = Origin::default();
    let mut journal = Positions(0);
    let mut out = Outbox::default();
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("pending")).expect("within the limits");
    let batch = builder.take().expect("one message was pushed");
    let mut engine = Engine::new(Generation(1), Timestamp(1_000));
    for topic in 0..topics {
        let partition = PartitionId { topic: TopicId(topic), index: PartitionIndex(0) };
        let setting = GroupSetting {
            id: GroupId(topic),
            config: GroupConfig::default(),
            start: StartAt::Earliest,
        };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(kind),
            groups: if kind == TopicKind::Queue { vec![setting] } else { Vec::new() },
            dead_letters: DeadLetters::NotYet,
        };
        let publish =
            Publish { origin, partition, producer: ProducerStamp::default(), batch: batch.clone() };
        let now = Timestamp(1_000);
        engine.handle(Command::Partition(origin, partition, open), now, &mut journal, &mut out);
        engine.handle(Command::Publish(publish), now, &mut journal, &mut out);
        engine.committed(u64::MAX);
        engine.deliver(now, &mut journal, &mut Nothing, &mut out);
        out.now.clear();
        out.after_commit.clear();
    }
    engine
}

/// What a delayed message with a due time of its own may cost; what it did when this was written.
const DELAYED_BYTES_MAX: f64 = 17.0; // 16.4

#[test]
fn a_delayed_message_costs_seventeen_bytes_in_whatever_order_they_are_due() {
    const MESSAGES: u64 = 1_000_000;
    let origin = Origin::default();
    let id = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
    // As if random, and each a time of its own; or one after the other.
    let in_no_order = |n: u64| n * 7_919 % MESSAGES;
    let in_order = |n: u64| n;
    for delay_of in [in_no_order as fn(u64) -> u64, in_order] {
        let (config, start) = (GroupConfig::default(), StartAt::Earliest);
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![GroupSetting { id: GroupId(1), config, start }],
            dead_letters: DeadLetters::NotYet,
        };
        let (mut engine, mut journal) = (Engine::new(Generation(1), Timestamp(0)), Positions(0));
        turn(&mut engine, &mut journal, Command::Partition(origin, id, open), Timestamp(0));
        let before = held_bytes();
        for first in (0..MESSAGES).step_by(10_000) {
            let mut builder = BatchBuilder::new();
            for n in first..first + 10_000 {
                let delay = Some(Duration::from_millis(1_000 + delay_of(n)));
                builder.push(&Message { delay, ..Message::new("") }).expect("within the limits");
            }
            let batch = builder.take().expect("messages were pushed");
            let producer = ProducerStamp::default();
            let publish = Publish { origin, partition: id, producer, batch };
            turn(&mut engine, &mut journal, Command::Publish(publish), Timestamp(0));
        }
        let each = (held_bytes() - before) as f64 / MESSAGES as f64;
        assert!(each <= DELAYED_BYTES_MAX, "{each} bytes a delayed message");
    }
}

//! What an idle topic costs: heap bytes per partition with one message that nobody wants yet, a
//! queue's with its default group, and in the catalogue; together, and while it is used. It counts every allocation, and knows nothing of what they hold.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use sennit_engine::{
    CatalogueCommand, Command, DeadLetters, Engine, GroupSetting, Journal, Origin, Outbox,
    PartitionCommand, Payloads, Place, Publish, Record,
};
use sennit_model::{
    Batch, BatchBuilder, Generation, GroupConfig, GroupId, Incarnation, Message, PartitionId,
    PartitionIndex, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};

struct Counting;

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
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

    fn keep(&mut self, _: &Batch) -> u64 {
        unreachable!("no topic is kept in memory")
    }
}

struct Nothing;

impl Payloads for Nothing {
    fn batch(&mut self, _: PartitionId, _: Place) -> Option<Bytes> {
        None
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
const TOUCHED_BYTES_MAX: usize = 306; // 302
/// What a topic of one partition may cost, in its shard and in the catalogue.
const TOPIC_BYTES_MAX: usize = 200;

#[test]
fn an_idle_topic_costs_two_hundred_bytes() {
    for (kind, partition, entry) in [
        (TopicKind::Queue, QUEUE_BYTES_MAX, QUEUE_ENTRY_BYTES_MAX),
        (TopicKind::Stream, STREAM_BYTES_MAX, STREAM_ENTRY_BYTES_MAX),
    ] {
        let idle = each_costs(|| {
            let mut engine = partitions(kind);
            // Twice round, and nobody has touched one.
            (0..2).for_each(|_| engine.fold_untouched(1));
            engine
        });
        assert!(idle <= partition, "{idle} bytes a partition of a {kind:?}");
        let in_catalogue = an_entry_of_the_catalogue(kind);
        assert!(in_catalogue <= entry, "{in_catalogue} bytes a {kind:?} in the catalogue");
        let both = idle + in_catalogue;
        assert!(both <= TOPIC_BYTES_MAX, "{both} bytes a {kind:?}");
        let touched = each_costs(|| partitions(kind));
        assert!(touched <= TOUCHED_BYTES_MAX, "{touched} bytes a touched partition of a {kind:?}");
    }
}

/// Heap bytes that `make` needs for each of [`TOPICS`] topics, and what keeps them.
fn each_costs(make: impl FnOnce() -> Engine) -> usize {
    let before = HELD_BYTES.load(Ordering::Relaxed);
    let engine = make();
    let held = HELD_BYTES.load(Ordering::Relaxed) - before;
    drop(engine);
    held / TOPICS as usize
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

/// Partitions of a topic each, with a message each, touched just now.
fn partitions(kind: TopicKind) -> Engine {
    let origin = Origin::default();
    let mut journal = Positions(0);
    let mut out = Outbox::default();
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("pending")).expect("within the limits");
    let batch = builder.take().expect("one message was pushed");
    let mut engine = Engine::new(Generation(1), Timestamp(1_000));
    for topic in 0..TOPICS {
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

//! Restarts of a shard on a disk in memory: committed data exists, segments are reused, and a backlog beyond the
//! cache is read back.

use std::path::PathBuf;

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, Refusal, SessionId, Settle, Subscribe, Verdict,
};
use sennit_journal::{
    Fault, LaneConfig,
    disk::{Disk, FaultPlan, FaultyDisk, MemoryDisk},
};
use sennit_model::{
    BatchBuilder, Generation, GroupConfig, GroupId, Message, Messages, Offset, PartitionId,
    PartitionIndex, ProducerId, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{PackLengths, RecoverError, Recovered, Settings, recover, repair};

const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const GROUP: GroupId = GroupId(1);
const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };
const SEGMENT_BYTES: u64 = 64 << 10;

struct Broker<D: Disk> {
    parts: Recovered<D>,
    now: Timestamp,
    delivered: Vec<(u64, String)>,
    runs: Vec<DeliveryRun>,
    confirmed: u64,
    /// The most bytes that the lane was given at once.
    longest_turn: usize,
    gaps: Vec<(u64, u64)>,
    /// Reads of this byte fail.
    fails_at: Option<u64>,
}

impl<D: Disk> Broker<D> {
    fn open(disk: &D, cache_bytes: usize) -> Self {
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes: SEGMENT_BYTES,
            incarnation: 42,
        };
        let now = Timestamp(1_000);
        let parts = recover(
            disk,
            config,
            Settings {
                cache_bytes,
                journal_segments: 1000,
                packs: PackLengths::default(),
                writes_superseded: false,
                replica: None,
            },
            now,
        )
        .unwrap();
        let (delivered, runs) = (Vec::new(), Vec::new());
        Self {
            parts,
            now,
            delivered,
            runs,
            confirmed: 0,
            longest_turn: 0,
            gaps: Vec::new(),
            fails_at: None,
        }
    }

    fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], self.now);
        self.settle_down();
    }

    fn settle_down(&mut self) {
        let Recovered { shard, lane, reader, slots, .. } = &mut self.parts;
        loop {
            for effect in shard.effects().drain(..) {
                match effect {
                    Effect::Deliver(delivery) => {
                        let texts = Messages::of_checked(&delivery.messages);
                        let texts = texts.map(|m| String::from_utf8_lossy(m.payload()).into());
                        self.delivered.extend((delivery.first.0..).zip(texts));
                        self.runs.push(DeliveryRun {
                            first: delivery.first,
                            count: delivery.count,
                            attempt: delivery.attempt,
                            generation: delivery.generation,
                        });
                    }
                    Effect::Confirmed(confirmed) => self.confirmed += u64::from(confirmed.count),
                    Effect::Gap { range, .. } => self.gaps.push((range.start.0, range.end.0)),
                    Effect::Refused { refusal, .. } => panic!("{refusal}"),
                    _ => {}
                }
            }
            let (mut frames, mut fetches, mut released) = (Vec::new(), Vec::new(), Vec::new());
            shard.take_released(&mut released);
            released.into_iter().for_each(|segment| lane.release(segment));
            shard.take_frames(&mut frames);
            let taken = frames.iter().map(|frame| frame.bytes.len()).sum();
            self.longest_turn = self.longest_turn.max(taken);
            shard.take_fetches(&mut fetches);
            if frames.is_empty() && fetches.is_empty() {
                break;
            }
            while lane.spare_count() < 3 {
                lane.add_spare(slots.make().unwrap());
            }
            if !frames.is_empty() {
                let end = lane.append(&frames).unwrap();
                shard.handle_commit(end, self.now);
            }
            for fetch in fetches {
                let fails = self.fails_at.is_some_and(|bad| {
                    fetch.position.0 <= bad && bad < fetch.position.0 + fetch.length as u64
                });
                let bytes = reader.read(fetch.position, fetch.length).ok().filter(|_| !fails);
                shard.handle_fetch(fetch, bytes, self.now);
            }
        }
    }

    fn create(&mut self) {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        };
        self.tell(Command::Partition(ORIGIN, ORDERS, open));
    }

    fn publish(&mut self, texts: &[String]) {
        let mut builder = BatchBuilder::new();
        for text in texts {
            builder.push(&Message::new(text.clone())).unwrap();
        }
        let producer = ProducerStamp::default();
        let batch = builder.take().unwrap();
        self.tell(Command::Publish(Publish { origin: ORIGIN, partition: ORDERS, producer, batch }));
    }

    fn subscribe(&mut self, messages: u32) {
        let credit = Credit { messages, bytes: 1 << 20 };
        let subscribe =
            Subscribe { origin: ORIGIN, subscription: 1, partition: ORDERS, group: GROUP, credit };
        self.tell(Command::Subscribe(subscribe));
    }

    fn ack_all(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        let (origin, partition, group) = (ORIGIN, ORDERS, GROUP);
        let (verdict, confirm) = (Verdict::Ack, true);
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        self.tell(Command::Settle(settle));
    }
}

fn texts(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("message {n} {}", "x".repeat(100))).collect()
}

#[test]
fn what_was_committed_is_there_after_a_restart() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    broker.publish(&texts(0..3));
    assert_eq!(broker.confirmed, 3);
    broker.subscribe(2);
    assert_eq!(broker.delivered.len(), 2);
    broker.runs.truncate(1);
    broker.runs[0].count = 1;
    broker.ack_all();

    let mut broker = Broker::open(&disk, 1 << 20);
    assert_eq!(broker.parts.report.generation, Generation(2));
    broker.subscribe(10);
    let offsets: Vec<u64> = broker.delivered.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [1, 2]);
}

#[test]
fn segments_are_used_again_once_their_messages_are_settled_and_a_snapshot_says_so() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    broker.subscribe(1000);
    for round in 0..200 {
        broker.publish(&texts(round * 50..round * 50 + 50));
        broker.ack_all();
    }
    assert_eq!(broker.delivered.len(), 10_000);
    let slots = disk.list(std::path::Path::new("data/lane-0")).unwrap().len();
    assert!(slots <= 8, "{slots} slots for {} segments' worth", 10_000 * 130 / SEGMENT_BYTES);
    let mut broker = Broker::open(&disk, 1 << 20);
    assert!(broker.parts.report.bytes < 4 * SEGMENT_BYTES);
    broker.subscribe(1000);
    assert_eq!(broker.delivered, []);
    broker.publish(&texts(0..1));
    assert_eq!(broker.delivered[0].0, 10_000);
}

#[test]
fn a_backlog_beyond_the_cache_is_read_back_in_order() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 16 << 10);
    broker.create();
    for round in 0..100 {
        broker.publish(&texts(round * 20..round * 20 + 20));
    }
    for restart in [false, true] {
        if restart {
            broker = Broker::open(&disk, 16 << 10);
        }
        broker.subscribe(2000);
        let expected: Vec<_> = (0u64..).zip(texts(0..2000)).collect();
        assert_eq!(broker.delivered, expected);
    }
}

#[test]
fn a_batch_that_cannot_be_read_is_passed_over_alone() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 0);
    broker.create();
    for round in 0..10 {
        broker.publish(&texts(round..round + 1));
    }
    let place = broker.parts.shard.engine().places().nth(4).unwrap();
    let mut broker = Broker::open(&disk, 0);
    broker.fails_at = Some(place.position + 3);
    broker.subscribe(100);
    let offsets: Vec<u64> = broker.delivered.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    assert_eq!(broker.gaps, [(4, 5)]);
    assert_eq!(broker.parts.shard.counters().damaged_batches, 1);
}

#[test]
fn an_idle_lane_writes_one_mark_and_then_nothing() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    broker.publish(&texts(0..1));
    let commits = broker.parts.shard.counters().commits;
    let due = broker.parts.shard.next_wake().unwrap();
    for step in [0, 100, 200, 300] {
        broker.now = Timestamp(due.0 + step);
        broker.parts.shard.advance(broker.now);
        broker.settle_down();
    }
    assert_eq!(broker.parts.shard.counters().commits, commits + 1);
    assert_eq!(broker.parts.shard.next_wake(), None);
}

#[test]
fn a_life_that_only_delivers_leaves_its_generation_behind() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    broker.publish(&texts(0..1));
    let mut generations = Vec::new();
    for _ in 0..3 {
        broker = Broker::open(&disk, 1 << 20);
        broker.subscribe(1);
        generations.push(broker.runs[0].generation);
    }
    assert_eq!(generations, [Generation(2), Generation(3), Generation(4)]);
}

#[test]
fn what_is_written_after_a_chunk_was_read_is_read_anew() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 0);
    broker.create();
    broker.subscribe(1000);
    for n in 0..10 {
        broker.publish(&texts(n..n + 1));
    }
    assert_eq!(broker.delivered.len(), 10);
    assert_eq!(broker.parts.shard.counters().damaged_batches, 0);
}

#[test]
fn a_segment_is_not_used_again_before_the_record_that_freed_it_is_durable() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    broker.subscribe(1000);
    let mut released = Vec::new();
    for round in 0..100 {
        broker.publish(&texts(round * 10..round * 10 + 10));
    }
    let runs = std::mem::take(&mut broker.runs);
    let settle = Settle {
        origin: ORIGIN,
        partition: ORDERS,
        group: GROUP,
        verdict: Verdict::Ack,
        runs,
        confirm: false,
    };
    let shard = &mut broker.parts.shard;
    shard.handle(&mut vec![Command::Settle(settle)], broker.now);
    shard.take_released(&mut released);
    assert_eq!(released, [0u64; 0], "the ack could still be lost");
    broker.settle_down();
    let kept = broker.parts.shard.segment_count();
    assert!(kept <= 4, "{kept} segments are kept though nothing is wanted");
}

#[test]
fn many_short_lives_do_not_use_a_segment_each() {
    let disk = MemoryDisk::default();
    for _ in 0..40 {
        let mut broker = Broker::open(&disk, 1 << 20);
        broker.create();
        broker.settle_down();
    }
    let slots = disk.list(std::path::Path::new("data/lane-0")).unwrap().len();
    assert!(slots <= 8, "{slots} slots for an empty topic");
}

#[test]
fn a_checkpoint_is_written_a_piece_a_turn_and_goes_on_while_nobody_asks() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    // The state grows by an entry for each batch, far beyond what a turn may write.
    for round in 0..8000 {
        broker.publish(&texts(round..round + 1));
    }
    assert!(broker.parts.shard.counters().checkpoints > 1);
    assert!(!broker.parts.shard.has_frames(), "the last checkpoint is whole");
    let longest = broker.longest_turn as u64;
    assert!(longest <= SEGMENT_BYTES / 2, "a turn wrote {longest} bytes");
    let mut state = Vec::new();
    broker.parts.shard.engine().encode_snapshot(&mut state);
    assert!(state.len() as u64 > 2 * SEGMENT_BYTES);
    let broker = Broker::open(&disk, 1 << 20);
    let mut replayed = Vec::new();
    broker.parts.shard.engine().encode_snapshot(&mut replayed);
    assert!(state == replayed);
}

#[test]
fn a_snapshot_longer_than_a_short_segment_is_written_in_parts() {
    let disk = MemoryDisk::default();
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.create();
    // A message a batch, so that the state grows by an entry each.
    for round in 0..4000 {
        broker.publish(&texts(round..round + 1));
    }
    assert!(broker.parts.shard.counters().checkpoints > 0);
    let mut broker = Broker::open(&disk, 1 << 20);
    broker.subscribe(4000);
    assert_eq!(broker.delivered.len(), 4000);
}

#[test]
fn a_batch_that_was_there_before_counts_as_confirmed_whoever_asks() {
    let mut broker = Broker::open(&MemoryDisk::default(), 1 << 20);
    broker.create();
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("once")).unwrap();
    let batch = builder.take().unwrap();
    let producer = ProducerStamp { id: ProducerId(5), ..ProducerStamp::default() };
    let publish = Publish { origin: ORIGIN, partition: ORDERS, producer, batch };
    for count in 1..=2 {
        // The second time nothing is written, and nothing waits.
        broker.tell(Command::PublishAt(publish.clone(), Offset(0)));
        assert_eq!(broker.parts.shard.counters().confirmed_messages, count);
    }
}

#[test]
fn who_waits_to_be_refused_when_the_lane_fails_is_told_that_the_outcome_is_unknown() {
    let mut broker = Broker::open(&MemoryDisk::default(), 1 << 20);
    broker.create();
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("first")).unwrap();
    let (batch, producer) = (builder.take().unwrap(), ProducerStamp::default());
    let of = |request| Origin { request, ..ORIGIN };
    let publish = |request| Publish {
        origin: of(request),
        partition: ORDERS,
        producer,
        batch: batch.clone(),
    };
    let at = |request| Command::PublishAt(publish(request), Offset(0));
    let Recovered { shard, .. } = &mut broker.parts;
    shard.handle(&mut vec![at(7), at(8)], broker.now);
    assert_eq!(shard.effects().drain(..).count(), 0);
    shard.fence();
    let unknown =
        |request| Effect::Refused { origin: of(request), refusal: Refusal::OutcomeUnknown };
    assert_eq!(*shard.effects(), [unknown(7), unknown(8)]);
}

#[test]
fn a_slot_that_cannot_be_read_refuses_the_start_only_if_something_may_lie_there() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut broker = Broker::open(&disk, 0);
    broker.create();
    let mut number = 0;
    while broker.parts.shard.counters().checkpoints < 3 {
        broker.publish(&texts(number..number + 100));
        number += 100;
    }
    broker.settle_down();
    broker.parts.slots.make().unwrap();
    drop(broker);
    disk.kill();
    let config = LaneConfig {
        directory: PathBuf::from("data/lane-0"),
        lane: 0,
        segment_bytes: SEGMENT_BYTES,
        incarnation: 42,
    };
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 1000,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica: None,
    };
    let open = || recover(&disk, config.clone(), settings, Timestamp(1_000));
    let mut slots: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
    slots.sort_unstable();
    // The oldest segment is not replayed, and what lies there is wanted.
    disk.make_unreadable(&slots[0], 0);
    assert!(matches!(open().map(drop), Err(RecoverError::Journal(Fault::Io { .. }))));
    assert!(repair(&disk, &config, Timestamp(1_000)).is_err());
    let spare = slots.last().unwrap();
    for byte in [0, 5 * 4096] {
        disk.make_readable();
        disk.make_unreadable(spare, byte);
        let report = open().unwrap().report;
        assert_eq!((report.lost_segments, report.unreadable_slots), (vec![], vec![spare.clone()]));
    }
    let repaired = repair(&disk, &config, Timestamp(1_000)).unwrap();
    assert_eq!((repaired.lost_messages, repaired.to_quarantine), (0, vec![spare.clone()]));
    disk.make_readable();
    let mut broker = Broker::open(&disk, 0);
    broker.subscribe(100_000);
    broker.settle_down();
    assert_eq!(broker.delivered.len(), number);
}

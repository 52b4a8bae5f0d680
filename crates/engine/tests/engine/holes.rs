//! What is settled is freed wherever it lies: a log has holes, and nobody is given what was in them.

use sennit_engine::{
    Command, DeadLetters, DeliveryRun, Engine, GroupSetting, Journal, Origin, Outbox,
    PartitionCommand, Place, Publish, Record, Settle, Verdict,
};
use sennit_model::{
    Batch, Generation, GroupConfig, GroupId, Message, Offset, PartitionId, ProducerStamp, StartAt,
    Timestamp,
};

use crate::world::{ALICE, GROUP, ORDERS, World, batch, check, queue, run, setting};

/// A journal that keeps nothing but how long it is.
struct Length(u64);

impl Journal for Length {
    fn append(&mut self, record: &Record) -> u64 {
        self.0 += 64 + record.batch().map_or(0, |batch| batch.bytes().len() as u64);
        self.0
    }

    fn keep(&mut self, _: &Batch) -> u64 {
        unreachable!("no topic is kept in memory")
    }
}

fn acked_before(first: u64, count: u32) -> DeliveryRun {
    DeliveryRun { first: Offset(first), count, attempt: 1, generation: Generation(9) }
}

#[test]
fn ten_million_messages_acked_but_one_keep_the_batch_of_that_one() {
    const BATCHES: u64 = 10_000;
    const COUNT: u32 = 1_000;
    let (now, origin) = (Timestamp(1_000), Origin::default());
    let (mut journal, mut out) = (Length(0), Outbox::default());
    let mut engine = Engine::new(Generation(10), now);
    let mut tell = |engine: &mut Engine, command| {
        engine.handle(command, now, &mut journal, &mut out);
        engine.committed(u64::MAX);
        out.after_commit.clear();
    };
    let open = PartitionCommand::Open {
        config: queue(),
        groups: vec![setting(GroupConfig::default())],
        dead_letters: DeadLetters::NotYet,
    };
    tell(&mut engine, Command::Partition(origin, ORDERS, open));
    let batch = batch(&vec![Message::new("m"); COUNT as usize]);
    for _ in 0..BATCHES {
        let producer = ProducerStamp::default();
        let batch = batch.clone();
        let publish = Publish { origin, partition: ORDERS, producer, batch };
        tell(&mut engine, Command::Publish(publish));
    }
    let stuck = 3_456_789;
    let mut settle = |engine: &mut Engine, first: u64, count: u32| {
        let settle = Settle {
            origin,
            partition: ORDERS,
            group: GROUP,
            verdict: Verdict::Ack,
            runs: vec![acked_before(first, count)],
            confirm: false,
        };
        tell(engine, Command::Settle(settle));
    };
    // In strides that fit neither the batches nor the message that is left out.
    let mut first = 0;
    while first < BATCHES * u64::from(COUNT) {
        let end = (first + 777).min(BATCHES * u64::from(COUNT));
        if (first..end).contains(&stuck) {
            settle(&mut engine, first, (stuck - first) as u32);
            settle(&mut engine, stuck + 1, (end - stuck - 1) as u32);
        } else {
            settle(&mut engine, first, (end - first) as u32);
        }
        first = end;
    }
    let places: Vec<_> = engine.places().collect();
    assert_eq!(places.len(), 1);
    assert_eq!(places[0].bytes as usize, batch.bytes().len());
    assert_eq!(engine.take_freed().count() as u64, BATCHES - 1);
    check(&engine);
}

#[test]
fn a_group_that_begins_with_the_earliest_gets_nothing_of_what_was_freed() {
    let mut world = World::new();
    for text in ["a", "b", "c", "d"] {
        world.publish_texts(&[text]);
    }
    world.subscribe(ALICE, 10);
    world.deliveries();
    world.settle(Verdict::Ack, vec![run(1, 2, 1)]);
    assert_eq!(world.describe(ORDERS).start.0, 0);
    assert_eq!(world.engine.places().count(), 2);
    let late = GroupId(5);
    let settings = [GROUP, late].map(|id| GroupSetting {
        id,
        config: GroupConfig::default(),
        start: StartAt::Earliest,
    });
    world.open(ORDERS, queue(), settings.to_vec(), DeadLetters::NotYet);
    let group = world.describe(ORDERS).groups[1];
    assert_eq!((group.group, group.ready), (late, 2));
    check(&world.engine);
    assert_eq!(world.replayed().places().count(), 2);
}

#[test]
fn what_only_one_of_two_groups_has_settled_stays_until_the_other_is_gone() {
    let mut world = World::new();
    let both = [GROUP, GroupId(5)].map(|id| GroupSetting {
        id,
        config: GroupConfig::default(),
        start: StartAt::Earliest,
    });
    world.open(ORDERS, queue(), both.to_vec(), DeadLetters::NotYet);
    for text in ["a", "b", "c"] {
        world.publish_texts(&[text]);
    }
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Ack, vec![run(1, 1, 1)]);
    assert_eq!(world.engine.places().count(), 3);
    world.open(ORDERS, queue(), both[..1].to_vec(), DeadLetters::NotYet);
    assert_eq!(world.engine.places().count(), 2);
    assert_eq!(world.describe(PartitionId { ..ORDERS }).start.0, 0);
}

/// Whether the first batch, of one message, is kept at a place.
fn is_live(world: &World, place: Place) -> bool {
    let kept = world.engine.kept_at(ORDERS, (Offset(0), 2), place);
    kept.first().is_some_and(|kept| kept.place == place)
}

#[test]
fn a_batch_that_was_moved_is_read_where_it_lies_now() {
    let mut world = World::new();
    world.publish_texts(&["a", "b"]);
    let old = world.engine.places().next().unwrap();
    let new = Place { position: 1 << 63 | 4096, ..old };
    assert!(is_live(&world, old));
    world.engine.move_batches(ORDERS, &[(Offset(0), new)], &mut world.journal);
    assert!(!is_live(&world, old));
    assert!(is_live(&world, new));
    assert_eq!(world.engine.take_freed().collect::<Vec<_>>(), [old]);
    let bytes = world.journal.batches.remove(&old.position).unwrap();
    world.journal.batches.insert(new.position, bytes);
    world.subscribe(ALICE, 10);
    assert_eq!(world.delivered().len(), 2);
    assert_eq!(world.replayed().places().collect::<Vec<_>>(), [new]);
}

#[test]
fn a_batch_that_is_gone_when_it_has_been_moved_frees_its_new_place() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    let old = world.engine.places().next().unwrap();
    world.subscribe(ALICE, 10);
    world.ack(run(0, 1, 1));
    let new = Place { position: 1 << 63, ..old };
    world.engine.move_batches(ORDERS, &[(Offset(0), new)], &mut world.journal);
    assert_eq!(world.engine.take_freed().collect::<Vec<_>>(), [old, new]);
}

#[test]
fn bytes_are_dead_that_every_group_is_through_with() {
    let mut world = World::new();
    let both = [GROUP, GroupId(5)].map(|id| GroupSetting {
        id,
        config: GroupConfig::default(),
        start: StartAt::Earliest,
    });
    world.open(ORDERS, queue(), both.to_vec(), DeadLetters::NotYet);
    world.publish_texts(&["a", "b", "c", "d"]);
    world.publish_texts(&["e"]);
    let told = world.describe(ORDERS);
    assert_eq!((told.live_bytes, told.dead_bytes), (told.bytes, 0));
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Ack, vec![run(1, 2, 1)]);
    assert_eq!(world.describe(ORDERS).dead_bytes, 0);
    world.open(ORDERS, queue(), both[..1].to_vec(), DeadLetters::NotYet);
    let told = world.describe(ORDERS);
    assert_eq!(told.dead_bytes, told.bytes * 2 / 5);
    assert_eq!(told.live_bytes + told.dead_bytes, told.bytes);
}

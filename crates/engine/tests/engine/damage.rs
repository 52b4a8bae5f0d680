//! A batch that cannot be read holds up nobody: its messages are passed over, counted and told of.

use std::time::Duration;

use sennit_engine::{
    Command, DeadLetters, Effect, Engine, Outbox, Place, StreamAnswer, StreamCommand,
    StreamRefusal, Verdict,
};
use sennit_model::{Generation, GroupConfig, OffsetRange};

use crate::world::{
    ALICE, BOB, DEAD, GROUP, ORDERS, World, queue, run, setting,
    streams::{answers, append, ask, opened, plain, read_at, settings},
};

/// Three batches of a message each.
fn three() -> (World, Place) {
    let mut world = World::new();
    for text in ["a", "b", "c"] {
        world.publish_texts(&[text]);
    }
    let second = world.engine.places().nth(1).expect("three are kept");
    (world, second)
}

fn damage(world: &mut World, place: Place) {
    let mut out = Outbox::default();
    world.engine.damaged(ORDERS, place, &mut out);
    world.finish(out);
}

fn gaps(world: &mut World) -> Vec<(u64, OffsetRange)> {
    let gap = |effect: &Effect| match effect {
        Effect::Gap { session, subscription: 7, partition: ORDERS, range, .. } => {
            Some((session.0, *range))
        }
        _ => None,
    };
    let gaps = world.effects.iter().filter_map(gap).collect();
    world.effects.retain(|effect| gap(effect).is_none());
    gaps
}

fn snapshot(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    engine.encode_snapshot(&mut bytes);
    bytes
}

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(sennit_model::Offset(start), end - start)
}

#[test]
fn what_lies_behind_a_damaged_batch_is_delivered() {
    let (mut world, second) = three();
    world.subscribe(ALICE, 1);
    assert_eq!(world.delivered().len(), 1);
    damage(&mut world, second);
    assert_eq!(gaps(&mut world), [(1, range(1, 2))]);
    world.ack(run(0, 1, 1));
    let delivered: Vec<_> = world.delivered().iter().map(|(offset, ..)| *offset).collect();
    assert_eq!(delivered, [2]);
    world.ack(run(2, 1, 1));
    let told = world.describe(ORDERS);
    assert_eq!((told.damaged, told.groups[0].damaged, told.groups[0].ready), (1, 1, 0));
    assert_eq!((told.start.0, told.bytes), (1, u64::from(second.bytes)));
}

#[test]
fn who_comes_later_is_told_of_the_gap() {
    let (mut world, second) = three();
    damage(&mut world, second);
    assert_eq!(gaps(&mut world), []);
    world.subscribe(BOB, 5);
    assert_eq!(gaps(&mut world), [(2, range(1, 2))]);
    assert_eq!(world.delivered().len(), 2);
}

#[test]
fn who_had_a_message_before_it_was_damaged_settles_the_last_attempt_and_no_other() {
    let (mut world, second) = three();
    for attempt in 1..=2 {
        world.subscribe(ALICE, 3);
        assert_eq!(world.delivered()[1].1, attempt);
        world.do_now(Command::EndSession { session: ALICE, grace: Duration::from_secs(1) });
        world.pass(Duration::from_secs(1));
    }
    damage(&mut world, second);
    for other in [1, 3] {
        assert_eq!(world.ack(run(1, 1, other)).stale, [run(1, 1, other)]);
    }
    assert_eq!(world.ack(run(1, 1, 2)).applied, 1);
    assert_eq!(world.describe(ORDERS).groups[0].damaged, 0);
}

#[test]
fn damage_is_no_part_of_the_state_that_is_kept() {
    let (mut world, second) = three();
    world.subscribe(ALICE, 2);
    world.settle(Verdict::RetryAfter(Duration::from_secs(1)), vec![run(1, 1, 1)]);
    let before = snapshot(&world.engine);
    damage(&mut world, second);
    assert_eq!(snapshot(&world.engine), before);
}

#[test]
fn what_is_kept_of_damaged_messages_is_how_often_they_were_tried_and_which_were_dying() {
    let (mut tried, second) = three();
    tried.subscribe(ALICE, 3);
    tried.do_now(Command::EndSession { session: ALICE, grace: Duration::from_secs(1) });
    tried.pass(Duration::from_secs(1));
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut dying = World::with(queue(), group.clone());
    dying.open(ORDERS, queue(), vec![setting(group)], DeadLetters::NotYet);
    dying.publish_texts(&["a"]);
    dying.publish_texts(&["b"]);
    dying.subscribe(ALICE, 2);
    dying.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    assert_eq!((tried.group().ready, dying.group().dying), (3, 2));
    let first = dying.engine.places().next().expect("both are kept");
    for (mut world, place) in [(tried, second), (dying, first)] {
        let put_back = |world: &World| {
            let kept = snapshot(&world.engine).into();
            let engine = Engine::from_snapshot(kept, Generation(2), world.now);
            snapshot(&engine.expect("it is whole"))
        };
        let before = put_back(&world);
        damage(&mut world, place);
        assert_eq!(world.group().damaged, 1);
        assert_eq!(put_back(&world), before);
    }
}

#[test]
fn a_dead_letter_that_cannot_be_read_is_moved_by_a_life_that_can() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![setting(group.clone())], DeadLetters::NotYet);
    world.publish_texts(&["a"]);
    world.publish_texts(&["b"]);
    world.subscribe(ALICE, 5);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    let first = world.engine.places().next().expect("both are kept");
    damage(&mut world, first);
    world.open(ORDERS, queue(), vec![setting(group)], DeadLetters::To(DEAD.topic));
    assert_eq!(world.describe(DEAD).end.0, 1);
    let told = world.describe(ORDERS);
    assert_eq!((told.groups[0].dying, told.groups[0].damaged), (0, 1));
    world.engine = world.replayed();
    world.name(ORDERS, &[GROUP]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.describe(DEAD).end.0, 2);
    assert_eq!(world.describe(ORDERS).bytes, 0);
}

#[test]
fn a_damaged_message_that_is_acked_is_damaged_no_more() {
    let (mut world, second) = three();
    damage(&mut world, second);
    let before = Generation(0x77);
    world.ack(sennit_engine::DeliveryRun { generation: before, ..run(1, 1, 1) });
    assert_eq!(world.describe(ORDERS).damaged, 0);
    assert_eq!(world.engine.places().count(), 2);
}

#[test]
fn who_comes_later_is_told_of_what_was_lost() {
    let (mut world, _) = three();
    world.engine.give_up(ORDERS, sennit_model::Offset(1), &mut world.journal);
    world.subscribe(BOB, 5);
    assert_eq!(gaps(&mut world), [(2, range(1, 2))]);
    assert_eq!(world.delivered().len(), 2);
}

#[test]
fn consumers_are_told_of_a_damaged_batch_in_the_order_of_its_messages() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![setting(group)], DeadLetters::NotYet);
    world.subscribe(ALICE, 1);
    world.publish_texts(&["dying", "leased", "ready"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    let place = world.engine.places().next().expect("it is kept");
    damage(&mut world, place);
    assert_eq!(gaps(&mut world), [(1, range(0, 1)), (1, range(2, 3))]);
}

#[test]
fn who_waits_to_read_a_stream_there_is_told_where_it_goes_on() {
    let mut world = opened(settings());
    append(&mut world, "a", plain());
    world.journal.absent = true;
    assert_eq!(ask(&mut world, StreamCommand::Read(read_at(0))), None);
    let place = world.engine.places().next().expect("it is kept");
    damage(&mut world, place);
    let [StreamAnswer::Refused(refusal)] = &answers(&mut world)[..] else { panic!("no answer") };
    assert_eq!(*refusal, StreamRefusal::Damaged { next: sennit_model::Offset(1) });
}

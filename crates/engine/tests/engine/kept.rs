//! What was kept of a state goes on where it is put back: times run out, dead letters are moved, and
//! what is in memory alone is gone.

use std::time::Duration;

use sennit_engine::{Command, DeadLetters, Effect, Engine, Outbox, Read, Verdict};
use sennit_model::{
    Durability, Generation, GroupConfig, Message, Offset, Retention, TopicConfig, TopicKind,
    WhenSlow,
};

use crate::world::{ALICE, BOB, DEAD, GROUP, ORDERS, World, queue, run, setting};

const DAY: Duration = Duration::from_secs(86_400);

/// The world in a life that begins with what was kept of this one.
fn put_back(mut world: World) -> World {
    let mut kept = Vec::new();
    world.engine.encode_snapshot(&mut kept);
    let engine = Engine::from_snapshot(kept.into(), Generation(2), world.now);
    world.engine = engine.expect("it is whole");
    world.effects.clear();
    world
}

fn brief() -> Message {
    Message { time_to_live: Some(DAY), ..Message::new("brief") }
}

#[test]
fn what_lives_for_a_time_is_gone_after_it() {
    let mut world = World::new();
    world.publish(&[brief()]);
    world.publish_texts(&["lasting"]);
    let mut world = put_back(world);
    assert_eq!(world.group().ready, 2);
    world.pass(DAY);
    assert_eq!(world.group().ready, 1);
    world.subscribe(ALICE, 9);
    let deliveries = world.deliveries();
    let told: Vec<_> = deliveries.iter().map(|held| (held.first.0, held.generation)).collect();
    assert_eq!(told, [(1, Generation(2))]);
}

#[test]
fn what_may_get_so_old_goes_when_it_is() {
    let retention = Retention { age: Some(DAY), ..Retention::FOREVER };
    let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::empty();
    world.open(ORDERS, config, vec![], DeadLetters::NotYet);
    world.publish_texts(&["old"]);
    let mut world = put_back(world);
    world.pass(DAY + Duration::from_secs(1));
    assert_eq!(world.describe(ORDERS).start, Offset(1));
}

#[test]
fn what_was_dying_is_moved_to_the_dead_letters() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![setting(group)], DeadLetters::To(DEAD.topic));
    world.publish_texts(&["poison"]);
    world.subscribe(ALICE, 1);
    // Its batch has to be fetched first, and that is not done any more.
    world.journal.absent = true;
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(world.group().dying, 1);
    let mut world = put_back(world);
    world.journal.absent = false;
    world.finish(Outbox::default());
    // What the topic is called has to be told again.
    let asked = Effect::DeadLetterTopicNeeded { source: ORDERS.topic };
    assert_eq!((world.effects.contains(&asked), world.group().dying), (true, 1));
    world.name(ORDERS, &[GROUP]);
    assert_eq!((world.group().dying, world.describe(DEAD).end), (0, Offset(1)));
}

#[test]
fn of_what_is_in_memory_alone_only_the_offsets_are_kept() {
    let config =
        TopicConfig { durability: Durability::Memory, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::empty();
    world.open(ORDERS, config, vec![], DeadLetters::NotYet);
    world.publish_texts(&["gone"]);
    let mut world = put_back(world);
    world.journal.batches.clear();
    let told = world.describe(ORDERS);
    assert_eq!((told.start, told.end, told.bytes), (Offset(1), Offset(1), 0));
    // What comes now is in memory again, and in no record.
    let (records, kept) = (world.journal.records.len(), world.journal.kept);
    world.publish_texts(&["there"]);
    assert_eq!((world.journal.records.len(), world.journal.kept), (records, kept + 1));
    let read = Read {
        origin: world.origin(BOB),
        subscription: 3,
        partition: ORDERS,
        at: Offset(0),
        credit: sennit_engine::Credit { messages: 9, bytes: 999 },
        cursor: None,
        when_slow: WhenSlow::Wait,
        filter: None,
    };
    world.do_now(Command::Read(read));
    assert_eq!(world.delivered(), [(1, 0, "there".to_owned())]);
}

#[test]
fn where_anything_lies_nothing_else_is_put() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    world.publish_texts(&["b"]);
    let highest = world.engine.places().map(|place| place.position).max();
    let world = put_back(world);
    assert_eq!(Some(world.engine.highest_place()), highest);
}

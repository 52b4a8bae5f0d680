//! Atomic publishes: batches and acks that are done together, or not at all.

use std::time::Duration;

use sennit_engine::{
    AtomicAck, AtomicItem, AtomicPart, Command, DeadLetters, DeliveryRun, Effect, Outbox, Publish,
    PublishAtomic, Record, Refusal, Verdict,
};
use sennit_model::{
    Durability, Generation, GroupConfig, Message, Offset, PartitionId, PartitionIndex, ProducerId,
    ProducerStamp, TopicConfig, TopicId, TopicLimit, WhenFull,
};

use crate::world::{self, ALICE, BOB, GROUP, ORDERS, World, batch, queue, run, setting};

const MAILS: PartitionId = PartitionId { topic: TopicId(5), index: PartitionIndex(0) };
const BILLS: PartitionId = PartitionId { topic: TopicId(6), index: PartitionIndex(0) };
const ELSEWHERE: PartitionId = PartitionId { topic: TopicId(9), index: PartitionIndex(0) };

/// Orders with three messages, the first two of which a consumer holds, and two topics for what it makes of them.
fn world_with(mails: TopicConfig) -> World {
    let mut world = World::new();
    world.open(MAILS, mails, vec![setting(GroupConfig::default())], DeadLetters::Stay);
    world.open(BILLS, queue(), vec![setting(GroupConfig::default())], DeadLetters::Stay);
    world.publish_texts(&["a", "b", "c"]);
    world.subscribe(ALICE, 2);
    world.effects.clear();
    world
}

fn world() -> World {
    world_with(queue())
}

fn part(partition: PartitionId, text: &str) -> Publish {
    stamped(partition, text, ProducerStamp::default())
}

fn stamped(partition: PartitionId, text: &str, producer: ProducerStamp) -> Publish {
    let batch = batch(&[Message::new(text.to_owned())]);
    Publish { origin: <_>::default(), partition, producer, batch }
}

fn sent_by(epoch: u32, first_sequence: u64) -> ProducerStamp {
    ProducerStamp { id: ProducerId(7), epoch, first_sequence }
}

fn ack(runs: Vec<DeliveryRun>) -> AtomicAck {
    AtomicAck { partition: ORDERS, group: GROUP, runs }
}

fn step(world: &mut World, parts: Vec<Publish>, acks: Vec<AtomicAck>) -> Command {
    let origin = world.origin(ALICE);
    Command::PublishAtomic(PublishAtomic { origin, parts, acks })
}

fn answer(world: &mut World) -> Result<Vec<AtomicPart>, Refusal> {
    let found = world.effects.drain(..).find_map(|effect| match effect {
        Effect::PublishedAtomic { parts, .. } => Some(Ok(parts.into_vec())),
        Effect::Refused { refusal, .. } => Some(Err(refusal)),
        _ => None,
    });
    found.expect("an answer")
}

fn publish(
    world: &mut World,
    parts: Vec<Publish>,
    acks: Vec<AtomicAck>,
) -> Result<Vec<AtomicPart>, Refusal> {
    world.effects.clear();
    let command = step(world, parts, acks);
    world.do_now(command);
    answer(world)
}

/// What a step has to leave alone if it is refused: ends, and what is settled, leased and journaled.
fn state(world: &mut World) -> (Vec<Option<Offset>>, Offset, u64, usize) {
    let ends = [ORDERS, MAILS, BILLS].map(|id| world.engine.end_of(id)).to_vec();
    let group = world.group();
    (ends, group.settled_before, group.leased, world.journal.records.len())
}

#[track_caller]
fn refused(world: &mut World, parts: Vec<Publish>, acks: Vec<AtomicAck>) -> (AtomicItem, Refusal) {
    let before = state(world);
    let refusal = publish(world, parts, acks).expect_err("it is refused");
    assert_eq!(state(world), before);
    match refusal {
        Refusal::Atomic { item, why } => (item, *why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_publishes_to_each_topic_and_acks_in_one_frame() {
    let mut world = world();
    let parts = vec![part(MAILS, "mail"), part(BILLS, "bill")];
    let answered = publish(&mut world, parts, vec![ack(vec![run(0, 2, 1)])]).unwrap();
    let offsets: Vec<_> =
        answered.iter().map(|part| (part.partition, part.runs[0].first_offset.0)).collect();
    assert_eq!(offsets, [(MAILS, 0), (BILLS, 0)]);
    assert_eq!(world.journal.held_together, [3]);
    let group = world.group();
    assert_eq!((group.settled_before, group.leased), (Offset(2), 1));
}

#[test]
fn consumers_of_the_new_messages_get_them_after_the_commit() {
    let mut world = world();
    world.subscribe_to(MAILS, BOB, sennit_engine::Credit { messages: 5, bytes: 1 << 20 });
    world.effects.clear();
    let command = step(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(0, 1, 1)])]);
    let mut out = Outbox::default();
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    let batches = world.journal.batches.clone();
    let mut payloads = world::Memory { batches, ..world::Memory::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    let is_mail = |effect: &Effect| matches!(effect, Effect::Deliver(it) if it.partition == MAILS);
    assert!(!out.now.iter().any(is_mail), "{:?}", out.now);
    assert_eq!(out.after_commit.len(), 1);
    world.finish(out);
    assert!(world.effects.iter().any(is_mail));
}

#[test]
fn an_unknown_topic_refuses_all_and_is_named() {
    let mut world = world();
    let parts = vec![part(MAILS, "mail"), part(ELSEWHERE, "x")];
    let (item, why) = refused(&mut world, parts, vec![ack(vec![run(0, 1, 1)])]);
    assert_eq!(
        (item, why),
        (AtomicItem::Part { at: 1, partition: ELSEWHERE }, Refusal::UnknownTopic)
    );
    let elsewhere = AtomicAck { partition: ELSEWHERE, ..ack(vec![run(0, 1, 1)]) };
    let (item, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![elsewhere]);
    assert_eq!(
        (item, why),
        (AtomicItem::Ack { at: 0, partition: ELSEWHERE }, Refusal::UnknownTopic)
    );
    let other_group = AtomicAck { group: sennit_model::GroupId(8), ..ack(vec![run(0, 1, 1)]) };
    let (_, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![other_group]);
    assert_eq!(why, Refusal::UnknownGroup);
}

#[test]
fn a_stale_lease_refuses_all() {
    let mut world = world();
    let stale = |stale, named| Refusal::StaleDelivery { stale, named };
    for (runs, expected) in [
        // Of another attempt, never delivered, in part, twice.
        (vec![run(0, 1, 2)], stale(1, 1)),
        (vec![run(2, 1, 1)], stale(1, 1)),
        (vec![run(1, 2, 1)], stale(1, 2)),
        (vec![run(0, 1, 1), run(0, 1, 1)], stale(1, 2)),
        (vec![run(0, 1, 1), run(50, 3, 1)], stale(3, 4)),
    ] {
        let (item, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![ack(runs)]);
        assert_eq!((item, why), (AtomicItem::Ack { at: 0, partition: ORDERS }, expected));
    }
    world.ack(run(0, 1, 1));
    let (_, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(0, 1, 1)])]);
    assert_eq!(why, stale(1, 1), "it is settled already");
}

#[test]
fn a_lease_that_ended_can_be_acked_until_the_message_is_delivered_again() {
    let mut world = world();
    let lease = GroupConfig::default().lease;
    // Nobody has room for it again.
    world.engine.handle(
        Command::SetCredit {
            session: ALICE,
            subscription: 7,
            partition: ORDERS,
            group: GROUP,
            credit: sennit_engine::Credit::default(),
        },
        world.now,
        &mut world.journal,
        &mut Outbox::default(),
    );
    world.pass(lease + Duration::from_secs(1));
    publish(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(0, 1, 1)])]).unwrap();
    world.subscribe(BOB, 5);
    let (_, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(1, 1, 1)])]);
    assert_eq!(why, Refusal::StaleDelivery { stale: 1, named: 1 });
}

#[test]
fn a_full_topic_refuses_all_and_one_that_drops_makes_room_in_the_same_frame() {
    let limit = |when_full| TopicLimit { messages: Some(1), bytes: None, when_full };
    let mut world = world_with(TopicConfig { limit: limit(WhenFull::Refuse), ..queue() });
    let mail = || vec![part(BILLS, "bill"), part(MAILS, "mail")];
    publish(&mut world, mail(), vec![]).unwrap();
    let (item, why) = refused(&mut world, mail(), vec![ack(vec![run(0, 1, 1)])]);
    let full = Refusal::TopicFull { limit: "limit.messages", value: 1, held: 1 };
    assert_eq!((item, why), (AtomicItem::Part { at: 1, partition: MAILS }, full));
    let mut world = world_with(TopicConfig { limit: limit(WhenFull::DropOldest), ..queue() });
    publish(&mut world, mail(), vec![]).unwrap();
    let answered = publish(&mut world, mail(), vec![ack(vec![run(0, 1, 1)])]).unwrap();
    assert_eq!(answered.iter().map(|part| part.dropped).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(world.journal.held_together.last(), Some(&4));
}

#[test]
fn a_fenced_producer_and_a_gap_refuse_all() {
    let mut world = world();
    let mail = |stamp| vec![part(BILLS, "bill"), stamped(MAILS, "mail", stamp)];
    publish(&mut world, mail(sent_by(3, 0)), vec![]).unwrap();
    let (item, why) = refused(&mut world, mail(sent_by(2, 0)), vec![ack(vec![run(0, 1, 1)])]);
    let fenced = Refusal::ProducerFenced { current: 3, received: 2 };
    assert_eq!((item, why), (AtomicItem::Part { at: 1, partition: MAILS }, fenced));
    let (_, why) = refused(&mut world, mail(sent_by(3, 5)), vec![]);
    assert_eq!(why, Refusal::SequenceGap { expected: 1, received: 5 });
}

#[test]
fn a_step_sent_again_is_a_duplicate_with_its_acks_and_changes_nothing() {
    let mut world = world();
    let parts = || vec![stamped(MAILS, "mail", sent_by(0, 0)), stamped(BILLS, "b", sent_by(0, 0))];
    let acks = || vec![ack(vec![run(0, 1, 1)])];
    publish(&mut world, parts(), acks()).unwrap();
    let before = state(&mut world);
    let again = publish(&mut world, parts(), acks()).unwrap();
    assert_eq!(state(&mut world), before);
    let runs: Vec<_> =
        again.iter().map(|part| (part.runs[0].first_offset.0, part.runs[0].duplicate)).collect();
    assert_eq!(runs, [(0, true), (0, true)]);
}

#[test]
fn a_step_that_was_done_in_part_is_refused_and_so_is_one_that_names_a_thing_twice() {
    let mut world = world();
    publish(&mut world, vec![stamped(MAILS, "mail", sent_by(0, 0))], vec![]).unwrap();
    let parts = vec![stamped(BILLS, "b", sent_by(0, 0)), stamped(MAILS, "mail", sent_by(0, 0))];
    let (item, why) = refused(&mut world, parts, vec![]);
    assert_eq!((item, why), (AtomicItem::Part { at: 1, partition: MAILS }, Refusal::AtomicPartly));
    let twice = vec![part(BILLS, "x"), part(BILLS, "y")];
    assert_eq!(refused(&mut world, twice, vec![]).1, Refusal::AtomicRepeated);
    let acks = vec![ack(vec![run(0, 1, 1)]), ack(vec![run(1, 1, 1)])];
    assert_eq!(refused(&mut world, vec![part(BILLS, "x")], acks).1, Refusal::AtomicRepeated);
}

#[test]
fn after_a_crash_before_the_commit_nothing_was_done_and_after_it_all_was() {
    for is_committed in [false, true] {
        let mut world = world();
        let before = world.journal.records.len();
        let parts = || vec![stamped(MAILS, "mail", sent_by(0, 0)), part(BILLS, "bill")];
        publish(&mut world, parts(), vec![ack(vec![run(0, 1, 1)])]).unwrap();
        let after = world.journal.records.len();
        // Its frame is there as a whole, or not at all.
        assert_eq!(world.journal.held_together, [after - before]);
        let mut world = world.crashed(if is_committed { after } else { before });
        let settled = world.group().settled_before;
        let end = |id| world.engine.end_of(id).map(|end| end.0);
        let count = u64::from(is_committed);
        assert_eq!((end(MAILS), end(BILLS), settled.0), (Some(count), Some(count), count));
        // The publisher does not know which, and sends it again: of the first life was the delivery.
        let parts = vec![stamped(MAILS, "mail", sent_by(0, 0))];
        let again = publish(&mut world, parts, vec![ack(vec![run(0, 1, 1)])]).unwrap();
        assert_eq!(again[0].runs[0].duplicate, is_committed);
        assert_eq!(world.group().settled_before, Offset(1));
    }
}

#[test]
fn a_replay_of_every_record_comes_to_the_same_state() {
    let mut world = world();
    publish(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(1, 1, 1)])]).unwrap();
    let replayed = world.replayed();
    assert_eq!(replayed.end_of(MAILS), world.engine.end_of(MAILS));
    let settled = world.journal.records.iter().filter(|(record, _)| {
        matches!(record, Record::Settled { partition: ORDERS, ranges, .. } if ranges.len() == 1)
    });
    assert_eq!(settled.count(), 1);
}

#[test]
fn a_message_acked_with_a_publish_is_not_delivered_again() {
    let mut world = world();
    publish(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![run(0, 2, 1)])]).unwrap();
    world.deliveries();
    world.pass(GroupConfig::default().lease * 3);
    let again = world.attempts();
    assert!(again.iter().all(|(offset, _)| *offset == 2), "{again:?}");
    let settled = world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    assert_eq!((settled.applied, settled.stale.len()), (0, 0));
}

#[test]
fn topics_that_are_not_durable_take_part_as_they_promise() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let mut world = world_with(TopicConfig { durability, ..queue() });
        let parts = vec![part(MAILS, "mail"), part(BILLS, "bill")];
        let answered = publish(&mut world, parts, vec![ack(vec![run(0, 1, 1)])]).unwrap();
        let in_memory = durability == Durability::Memory;
        let reached = if in_memory { Durability::Memory } else { Durability::Durable };
        assert_eq!(answered[0].durability, reached);
        assert_eq!(answered[1].durability, Durability::Durable);
        // What is kept in memory alone is in no frame.
        assert_eq!(world.journal.held_together, [if in_memory { 2 } else { 3 }]);
        world.subscribe_to(MAILS, BOB, sennit_engine::Credit { messages: 5, bytes: 1 << 20 });
        assert_eq!(world.delivered().last().map(|it| it.2.clone()), Some("mail".to_owned()));
    }
}

#[test]
fn a_delivery_of_an_earlier_life_is_acked_once() {
    let world = world();
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    let earlier = DeliveryRun { generation: Generation(1), ..run(0, 1, 1) };
    publish(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![earlier])]).unwrap();
    let (_, why) = refused(&mut world, vec![part(MAILS, "mail")], vec![ack(vec![earlier])]);
    assert_eq!(why, Refusal::StaleDelivery { stale: 1, named: 1 });
}

//! What readers get: everything that is kept, in order, however small their windows are and whatever
//! happens to the log; and what they are told of the rest.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GapReason, Origin, Outbox, PartitionCommand,
    Read, ReaderChange, Record, Refusal, SessionId,
};
use sennit_model::{
    GroupConfig, Message, Messages, Offset, OffsetRange, PartitionId, ReadFrom, Retention,
    Timestamp, TopicConfig, TopicKind, WhenSlow,
};

use crate::world::{self, ALICE, BOB, ORDERS, World, run, setting};

fn stream() -> TopicConfig {
    TopicConfig::of_kind(TopicKind::Stream)
}

fn keeping(bytes: u64) -> TopicConfig {
    TopicConfig { retention: Retention { bytes: Some(bytes), ..Retention::FOREVER }, ..stream() }
}

fn streaming(config: TopicConfig) -> World {
    let mut world = World::empty();
    world.open(ORDERS, config, vec![], DeadLetters::NotYet);
    world.effects.clear();
    world
}

const WIDE: Credit = Credit { messages: 1000, bytes: 1 << 20 };

/// What a reader came by: the payload of an offset, or why there is none.
#[derive(Clone, Debug, PartialEq)]
enum Came {
    Message(u64, String),
    Gap(u64, u64, GapReason),
}

fn message(offset: u64, text: &str) -> Came {
    Came::Message(offset, text.to_owned())
}

trait Reading {
    fn read(&mut self, session: SessionId, at: u64, credit: Credit);
    fn change(&mut self, session: SessionId, change: ReaderChange);
    fn came(&mut self, session: SessionId) -> Vec<Came>;
    fn locate(&mut self, from: ReadFrom) -> (u64, u64);
}

impl Reading for World {
    fn read(&mut self, session: SessionId, at: u64, credit: Credit) {
        let origin = self.origin(session);
        let at = Offset(at);
        let (subscription, partition, cursor) = (3, ORDERS, None);
        let (when_slow, filter) = (WhenSlow::Wait, None);
        let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
        self.do_now(Command::Read(read));
    }

    fn change(&mut self, session: SessionId, change: ReaderChange) {
        let (subscription, partition) = (3, ORDERS);
        self.do_now(Command::Reader { session, subscription, partition, change });
    }

    fn came(&mut self, of: SessionId) -> Vec<Came> {
        let mut came = Vec::new();
        self.effects.retain(|effect| match effect {
            Effect::Deliver(delivery) if delivery.session == of && delivery.subscription == 3 => {
                assert_eq!(delivery.attempt, 0);
                let texts = Messages::of_checked(&delivery.messages);
                let texts = texts.map(|m| String::from_utf8_lossy(m.payload()).into_owned());
                let before = came.len();
                came.extend(
                    (delivery.first.0..).zip(texts).map(|(at, text)| Came::Message(at, text)),
                );
                assert_eq!(came.len() - before, delivery.count as usize);
                false
            }
            Effect::Gap { session, subscription: 3, range, reason, .. } if *session == of => {
                came.push(Came::Gap(range.start.0, range.end.0, *reason));
                false
            }
            _ => true,
        });
        came
    }

    fn locate(&mut self, from: ReadFrom) -> (u64, u64) {
        let origin = self.origin(ALICE);
        self.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Locate(from, None)));
        match self.effects.pop() {
            Some(Effect::Located { first, end, .. }) => (first.0, end.0),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_reader_gets_every_message_from_where_it_began() {
    let mut world = streaming(stream());
    world.publish_texts(&["a", "b"]);
    world.read(ALICE, 0, WIDE);
    world.read(BOB, 1, WIDE);
    world.publish_texts(&["c"]);
    let (a, b, c) = (message(0, "a"), message(1, "b"), message(2, "c"));
    assert_eq!(world.came(ALICE), [a, b.clone(), c.clone()]);
    assert_eq!(world.came(BOB), [b, c]);
}

#[test]
fn readers_at_the_end_share_the_memory_of_a_batch() {
    let mut world = streaming(stream());
    world.read(ALICE, 0, WIDE);
    world.read(BOB, 0, WIDE);
    world.publish_texts(&["a", "b"]);
    let deliveries = world.deliveries();
    assert_eq!(deliveries.len(), 2);
    assert_eq!(deliveries[0].messages.as_ptr(), deliveries[1].messages.as_ptr());
}

#[test]
fn nothing_is_read_before_it_is_committed() {
    let mut world = streaming(stream());
    world.read(ALICE, 0, WIDE);
    let (origin, mut out) = (Origin::default(), Outbox::default());
    let (producer, batch) = (Default::default(), world::batch(&[Message::new("a")]));
    let publish = sennit_engine::Publish { origin, partition: ORDERS, producer, batch };
    world.engine.handle(Command::Publish(publish), world.now, &mut world.journal, &mut out);
    let mut payloads = world::Memory { absent: true, ..Default::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    assert!(out.now.is_empty() && payloads.asked.is_empty());
    world.finish(out);
    assert_eq!(world.came(ALICE), [message(0, "a")]);
}

#[test]
fn a_window_holds_messages_back_until_some_are_taken() {
    let mut world = streaming(stream());
    world.publish_texts(&["a", "b", "c", "d"]);
    world.read(ALICE, 0, Credit { messages: 2, bytes: 1 << 20 });
    assert_eq!(world.came(ALICE), [message(0, "a"), message(1, "b")]);
    world.publish_texts(&["e"]);
    assert_eq!(world.came(ALICE), []);
    world.change(ALICE, ReaderChange::Taken { messages: 1, bytes: 17 });
    assert_eq!(world.came(ALICE), [message(2, "c")]);
    world.change(ALICE, ReaderChange::Credit(WIDE));
    assert_eq!(world.came(ALICE), [message(3, "d"), message(4, "e")]);
}

#[test]
fn a_window_of_bytes_lets_one_message_through() {
    let mut world = streaming(stream());
    world.publish_texts(&["aaaaaaaaaaaaaaa", "b"]);
    world.read(ALICE, 0, Credit { messages: 9, bytes: 1 });
    assert_eq!(world.came(ALICE), [message(0, "aaaaaaaaaaaaaaa")]);
    world.change(ALICE, ReaderChange::Taken { messages: 1, bytes: 31 });
    assert_eq!(world.came(ALICE), [message(1, "b")]);
}

#[test]
fn a_reader_is_told_what_retention_has_freed_and_goes_on() {
    let mut world = streaming(keeping(40));
    world.read(BOB, 0, Credit { messages: 1, bytes: 1 << 20 });
    for text in ["a", "b", "c", "d", "e"] {
        world.publish_texts(&[text]);
    }
    world.read(ALICE, 1, WIDE);
    let gap = Came::Gap(1, 3, GapReason::Retention);
    let (d, e) = (message(3, "d"), message(4, "e"));
    assert_eq!(world.came(ALICE), [gap.clone(), d.clone(), e]);
    assert_eq!(world.came(BOB), [message(0, "a")]);
    world.change(BOB, ReaderChange::Taken { messages: 1, bytes: 17 });
    assert_eq!(world.came(BOB), [gap, d]);
}

#[test]
fn what_is_lost_is_told_from_what_is_kept_no_more() {
    let mut world = streaming(keeping(20));
    world.publish_texts(&["a"]);
    world.publish_texts(&["b"]);
    let lost = OffsetRange::new(Offset(2), 5);
    world.engine.apply(&Record::Lost { partition: ORDERS, range: lost }, world.journal.end);
    world.publish_texts(&["c"]);
    world.read(ALICE, 0, WIDE);
    let gaps = [Came::Gap(0, 2, GapReason::Retention), Came::Gap(2, 7, GapReason::Lost)];
    assert_eq!(world.came(ALICE), [&gaps[..], &[message(7, "c")]].concat());
}

#[test]
fn a_batch_that_cannot_be_read_is_passed_over_by_each_reader_once() {
    let mut world = streaming(stream());
    world.publish_texts(&["a", "b"]);
    world.publish_texts(&["c"]);
    let place = world.engine.batches().next().unwrap().place;
    world.journal.absent = true;
    let (origin, mut out) = (world.origin(ALICE), Outbox::default());
    for (session, at) in [(ALICE, 1), (BOB, 2)] {
        let (origin, at) = (Origin { session, ..origin }, Offset(at));
        let (subscription, partition, credit, cursor) = (3, ORDERS, WIDE, None);
        let (when_slow, filter) = (WhenSlow::Wait, None);
        let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
        world.engine.handle(Command::Read(read), world.now, &mut world.journal, &mut out);
    }
    assert!(world.engine.damaged(ORDERS, place, &mut out));
    world.journal.absent = false;
    world.finish(out);
    assert_eq!(world.came(ALICE), [Came::Gap(1, 2, GapReason::Damaged), message(2, "c")]);
    assert_eq!(world.came(BOB), [message(2, "c")]);
}

#[test]
fn a_batch_that_must_be_fetched_comes_once_it_is_there() {
    let mut world = streaming(stream());
    world.publish_texts(&["a"]);
    world.journal.absent = true;
    world.read(ALICE, 0, WIDE);
    assert_eq!(world.came(ALICE), []);
    world.journal.absent = false;
    world.engine.fetched(ORDERS);
    world.finish(Outbox::default());
    assert_eq!(world.came(ALICE), [message(0, "a")]);
}

#[test]
fn readers_and_a_group_get_all_of_it_each() {
    let mut world = World::with(stream(), GroupConfig::default());
    world.subscribe(BOB, 100);
    world.read(ALICE, 0, WIDE);
    world.publish_texts(&["a", "b"]);
    assert_eq!(world.came(ALICE), [message(0, "a"), message(1, "b")]);
    let held: Vec<_> = world.delivered().into_iter().map(|(offset, ..)| offset).collect();
    assert_eq!(held, [0, 1]);
    assert_eq!(world.settle_as(BOB, sennit_engine::Verdict::Ack, vec![run(0, 2, 1)]).applied, 2);
}

#[test]
fn a_reader_of_a_queue_is_told_what_its_groups_have_settled() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    world.publish_texts(&["b"]);
    world.subscribe(BOB, 100);
    let ack = |first| vec![DeliveryRun { ..run(first, 1, 1) }];
    world.settle_as(BOB, sennit_engine::Verdict::Ack, ack(0));
    world.read(ALICE, 0, WIDE);
    assert_eq!(world.came(ALICE), [Came::Gap(0, 1, GapReason::Retention), message(1, "b")]);
}

#[test]
fn a_reader_that_has_ended_gets_nothing_more() {
    let mut world = streaming(stream());
    world.read(ALICE, 0, WIDE);
    world.read(BOB, 0, WIDE);
    world.change(ALICE, ReaderChange::End);
    world.do_now(Command::EndSession { session: BOB, grace: Duration::from_secs(5) });
    world.publish_texts(&["a"]);
    assert_eq!((world.came(ALICE), world.came(BOB)), (vec![], vec![]));
}

#[test]
fn readers_hear_that_their_topic_is_gone() {
    let mut world = streaming(stream());
    world.read(ALICE, 0, WIDE);
    let origin = world.origin(BOB);
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Drop));
    world.read(BOB, 0, WIDE);
    let ended: Vec<_> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::SubscriptionEnded { session, subscription: 3, .. } => Some(*session),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [ALICE, BOB]);
}

#[test]
fn a_place_to_begin_is_found_by_offset_count_and_time() {
    let mut world = streaming(keeping(60));
    for (at, text) in [(10, "a"), (20, "b"), (30, "c"), (30, "d")] {
        world.now = Timestamp(2_000_000 + at);
        world.publish_texts(&[text]);
    }
    for (from, first) in [
        (ReadFrom::Earliest, 1),
        (ReadFrom::Latest, 4),
        (ReadFrom::Offset(Offset(0)), 0),
        (ReadFrom::Offset(Offset(3)), 3),
        (ReadFrom::Offset(Offset(9)), 4),
        (ReadFrom::Last(2), 2),
        (ReadFrom::Last(100), 1),
        (ReadFrom::Time(Timestamp(0)), 1),
        (ReadFrom::Time(Timestamp(2_000_021)), 2),
        (ReadFrom::Time(Timestamp(2_000_030)), 2),
        (ReadFrom::Time(Timestamp(2_000_031)), 4),
    ] {
        assert_eq!(world.locate(from), (first, 4), "{from:?}");
    }
    let origin = world.origin(ALICE);
    let nowhere = PartitionId { topic: sennit_model::TopicId(77), ..ORDERS };
    let command = PartitionCommand::Locate(ReadFrom::Latest, None);
    world.do_now(Command::Partition(origin, nowhere, command));
    assert_eq!(world.refusals(), [Refusal::UnknownTopic]);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8),
    Read { session: u64, at: u64, messages: u32, bytes: u64 },
    Taken { session: u64 },
    End { session: u64 },
    Move,
    Ack,
    Absent(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let read = (1..5u64, 0..60u64, 1..9u32, 1..200u64);
    prop_oneof![
        6 => (1..6u8).prop_map(Step::Publish),
        2 => read.prop_map(|(session, at, messages, bytes)| Step::Read { session, at, messages, bytes }),
        8 => (1..5u64).prop_map(|session| Step::Taken { session }),
        1 => (1..5u64).prop_map(|session| Step::End { session }),
        1 => Just(Step::Move),
        2 => Just(Step::Ack),
        1 => any::<bool>().prop_map(Step::Absent),
    ]
}

proptest! {
    /// From where it begins each reader gets all offsets, each once and in order: as the message that
    /// was published there, or within a gap of what is really kept no more.
    #[test]
    fn a_reader_gets_each_offset_once_and_in_order(
        steps in proptest::collection::vec(any_step(), 1..100),
        is_queue: bool,
    ) {
        let config = if is_queue { world::queue() } else { keeping(400) };
        let groups = if is_queue { vec![setting(GroupConfig::default())] } else { vec![] };
        let mut world = World::empty();
        world.open(ORDERS, config, groups, DeadLetters::Stay);
        if is_queue {
            world.subscribe(SessionId(99), 3);
        }
        let mut published = Vec::new();
        // Where each reader is, and what it holds: messages and bytes.
        let mut readers = BTreeMap::<u64, (u64, u32, u64)>::new();
        let last = (1..5).map(|session| Step::Taken { session }).collect::<Vec<_>>();
        let last = std::iter::repeat_n(last, 620).flatten();
        for step in steps.into_iter().chain([Step::Absent(false)]).chain(last) {
            match step {
                Step::Publish(count) => {
                    let texts: Vec<_> = (0..count).map(|n| format!("{}-{n}", published.len())).collect();
                    published.extend(texts.iter().cloned());
                    world.publish_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>());
                }
                Step::Read { session, at, messages, bytes } => {
                    let at = at.min(published.len() as u64);
                    readers.insert(session, (at, 0, 0));
                    world.read(SessionId(session), at, Credit { messages, bytes });
                }
                Step::Taken { session } => if let Some((_, held, bytes)) = readers.get_mut(&session) {
                    let (messages, bytes) = (std::mem::take(held), std::mem::take(bytes));
                    world.change(SessionId(session), ReaderChange::Taken { messages, bytes });
                },
                Step::End { session } => {
                    readers.remove(&session);
                    world.change(SessionId(session), ReaderChange::End);
                }
                Step::Move => {
                    let moves: Vec<_> = world.engine.batches().take(3).collect();
                    for sennit_engine::KeptBatch { first, place, .. } in moves {
                        world.journal.pack += 1;
                        let to = sennit_engine::Place { position: (1 << 50) + world.journal.pack, ..place };
                        let bytes = world.journal.batches[&place.position].clone();
                        world.journal.batches.insert(to.position, bytes);
                        world.engine.move_batches(ORDERS, &[(first, to)], &mut world.journal);
                    }
                    world.finish(Outbox::default());
                }
                Step::Ack if is_queue => {
                    for delivery in world.deliveries_of(99) {
                        let runs = vec![run(delivery.0, delivery.1, delivery.2)];
                        world.settle_as(SessionId(99), sennit_engine::Verdict::Ack, runs);
                    }
                }
                Step::Ack => {}
                Step::Absent(absent) => {
                    world.journal.absent = absent;
                    world.engine.fetched(ORDERS);
                    world.finish(Outbox::default());
                }
            }
            for (session, (at, held, bytes)) in &mut readers {
                for came in world.came(SessionId(*session)) {
                    match came {
                        Came::Message(offset, text) => {
                            prop_assert_eq!(offset, *at);
                            prop_assert_eq!(&text, &published[offset as usize]);
                            *at += 1;
                            *held += 1;
                            *bytes += 16 + text.len() as u64;
                        }
                        Came::Gap(from, to, reason) => {
                            prop_assert_eq!(from, *at);
                            prop_assert_eq!(reason, GapReason::Retention);
                            let kept = world.engine.batches().any(|kept| kept.first.0 >= from && kept.first.0 < to);
                            prop_assert!(!kept, "{}..{} is kept", from, to);
                            *at = to;
                        }
                    }
                }
            }
        }
        for (at, ..) in readers.values() {
            prop_assert_eq!(*at, published.len() as u64);
        }
    }
}

trait Consuming {
    fn deliveries_of(&mut self, session: u64) -> Vec<(u64, u32, u32)>;
}

impl Consuming for World {
    fn deliveries_of(&mut self, session: u64) -> Vec<(u64, u32, u32)> {
        let mut runs = Vec::new();
        self.effects.retain(|effect| match effect {
            Effect::Deliver(delivery) if delivery.session == SessionId(session) => {
                runs.push((delivery.first.0, delivery.count, delivery.attempt));
                false
            }
            _ => true,
        });
        runs
    }
}

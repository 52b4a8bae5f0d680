//! What becomes of readers that had come to the newest message and fall behind, as they wish.

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, DeadLetters, Effect, GapReason, Read, ReaderChange, SessionId,
};
use sennit_model::{Message, Offset, TopicConfig, TopicKind, WhenSlow, limits};

use crate::world::{ALICE, BOB, ORDERS, World};

const SUBSCRIPTION: u32 = 3;

/// Few messages are a window, so that one who takes nothing is soon behind.
const NARROW: Credit = Credit { messages: 2, bytes: 256 << 20 };

/// So many messages of [`big`] are more than a reader may be behind.
const TOO_MANY: u64 = limits::READER_BEHIND_BYTES_MAX / (1 << 20) + 1;

/// A little less than a MiB, with what is around it.
fn big() -> Message {
    Message::new(vec![b'x'; (1 << 20) - 1024])
}

fn streaming() -> World {
    let mut world = World::empty();
    world.open(ORDERS, TopicConfig::of_kind(TopicKind::Stream), vec![], DeadLetters::NotYet);
    world.effects.clear();
    world
}

fn read(world: &mut World, session: SessionId, at: u64, when_slow: WhenSlow) {
    let (subscription, partition, cursor) = (SUBSCRIPTION, ORDERS, None);
    let (origin, at, credit) = (world.origin(session), Offset(at), NARROW);
    let read =
        Read { origin, subscription, partition, at, credit, cursor, when_slow, filter: None };
    world.do_now(Command::Read(read));
}

fn take(world: &mut World, session: SessionId, messages: u32) {
    let change = ReaderChange::Taken { messages, bytes: u64::from(messages) << 20 };
    let (subscription, partition) = (SUBSCRIPTION, ORDERS);
    world.do_now(Command::Reader { session, subscription, partition, change });
}

fn publish(world: &mut World, count: u64) {
    for _ in 0..count {
        world.publish(&[big()]);
    }
}

/// What came to a session: `(first, end, why it did not come)`.
fn came(world: &mut World, of: SessionId) -> Vec<(u64, u64, Option<GapReason>)> {
    let mut came = Vec::new();
    world.effects.retain(|effect| match effect {
        Effect::Deliver(delivery) if delivery.session == of => {
            let first = delivery.first.0;
            came.push((first, first + u64::from(delivery.count), None));
            false
        }
        Effect::Gap { session, range, reason, .. } if *session == of => {
            came.push((range.start.0, range.end.0, Some(*reason)));
            false
        }
        _ => true,
    });
    came
}

fn has_ended(world: &mut World, of: SessionId) -> bool {
    let ended = |effect: &mut Effect| matches!(effect, Effect::ReaderTooSlow { session, .. } if *session == of);
    world.effects.extract_if(.., ended).count() == 1
}

#[test]
fn one_that_skips_goes_on_with_the_newest_and_is_told_what_it_was_spared() {
    let mut world = streaming();
    read(&mut world, ALICE, 0, WhenSlow::Skip);
    read(&mut world, BOB, 0, WhenSlow::Wait);
    publish(&mut world, 2 + TOO_MANY);
    let end = 2 + TOO_MANY;
    let spared = (2, end, Some(GapReason::Skipped));
    assert_eq!(came(&mut world, ALICE), [(0, 1, None), (1, 2, None), spared]);
    take(&mut world, ALICE, 2);
    publish(&mut world, 1);
    assert_eq!(came(&mut world, ALICE), [(end, end + 1, None)]);
    // The one beside it that waits has lost nothing by that.
    take(&mut world, BOB, 2);
    let waits = [(0, 1, None), (1, 2, None), (2, 3, None), (3, 4, None)];
    assert_eq!(came(&mut world, BOB), waits);
}

#[test]
fn one_that_would_not_wait_ends_and_gets_nothing_more() {
    let mut world = streaming();
    read(&mut world, ALICE, 0, WhenSlow::Disconnect);
    publish(&mut world, 2 + TOO_MANY - 1);
    assert!(!has_ended(&mut world, ALICE));
    publish(&mut world, 1);
    assert!(has_ended(&mut world, ALICE));
    came(&mut world, ALICE);
    take(&mut world, ALICE, 2);
    publish(&mut world, 1);
    assert_eq!(came(&mut world, ALICE), []);
}

#[test]
fn one_that_has_not_come_to_the_newest_yet_may_be_as_far_behind_as_it_is() {
    let mut world = streaming();
    publish(&mut world, 4 + TOO_MANY);
    read(&mut world, ALICE, 0, WhenSlow::Disconnect);
    publish(&mut world, 1);
    assert!(!has_ended(&mut world, ALICE));
    assert_eq!(came(&mut world, ALICE), [(0, 1, None), (1, 2, None)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is published and taken when, what comes and what is spared are one row.
    #[test]
    fn what_comes_and_what_is_told_are_contiguous(
        steps in proptest::collection::vec((0..TOO_MANY, 0..4u32), 1..12),
    ) {
        let mut world = streaming();
        read(&mut world, ALICE, 0, WhenSlow::Skip);
        let (mut at, mut held, mut published) = (0, 0, 0);
        for (count, taken) in steps {
            publish(&mut world, count);
            published += count;
            let taken = taken.min(held);
            take(&mut world, ALICE, taken);
            held -= taken;
            for (first, end, why) in came(&mut world, ALICE) {
                prop_assert_eq!(first, at);
                prop_assert!(end > first && end <= published);
                at = end;
                match why {
                    None => held += (end - first) as u32,
                    Some(reason) => prop_assert_eq!(reason, GapReason::Skipped),
                }
            }
            prop_assert!(published - at < 2 + TOO_MANY, "{} behind", published - at);
            prop_assert!(held <= NARROW.messages);
        }
    }
}

//! Messages that their publisher has delayed: listed by due time, cancelled and rescheduled for all groups, also
//! after a crash.

use std::time::Duration;

use sennit_engine::{
    Command, DeadLetters, DelayChange, DelayedRun, Effect, GroupSetting, PartitionCommand, Record,
    Refusal, WaitReason,
};
use sennit_model::{
    Durability, GroupConfig, GroupId, Message, Offset, OffsetRange, StartAt, Timestamp,
    TopicConfig, TopicKind, limits::DELAYED_CHANGED_MAX,
};

use crate::world::{self, ALICE, BOB, DEAD, ORDERS, World, queue, setting};

const SECOND: Duration = Duration::from_secs(1);

fn delayed(text: &str, seconds: u64) -> Message {
    Message { delay: Some(SECOND * seconds as u32), ..Message::new(text.to_owned()) }
}

/// Four messages: three are due after 10, 20 and 30 seconds, the second of them first; the last is not delayed.
fn world() -> World {
    let group = GroupConfig { lease: SECOND * 3600, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.publish(&[delayed("a", 20), delayed("b", 10), delayed("c", 30), Message::new("d")]);
    world
}

fn list(world: &mut World, after: Option<(Timestamp, Offset)>, most: usize) -> Vec<DelayedRun> {
    let origin = world.origin(ALICE);
    let command = PartitionCommand::ListDelayed(after, most);
    world.do_now(Command::Partition(origin, ORDERS, command));
    match world.effects.pop() {
        Some(Effect::Delayed { origin: asked, runs }) if asked == origin => runs,
        other => panic!("{other:?}"),
    }
}

/// The listed messages: their first offset, their number, and in how many seconds they are due.
fn listed(world: &mut World) -> Vec<(u64, u64, u64)> {
    let now = world.now;
    let run =
        |run: &DelayedRun| (run.range.start.0, run.range.count(), run.due.since(now).as_secs());
    list(world, None, 100).iter().map(run).collect()
}

fn change(world: &mut World, offsets: &[u64], change: DelayChange) -> Result<u64, Refusal> {
    let origin = world.origin(ALICE);
    let offsets = offsets.iter().map(|&offset| Offset(offset)).collect();
    let command = PartitionCommand::ChangeDelayed(offsets, change);
    world.do_now(Command::Partition(origin, ORDERS, command));
    let answer = world
        .effects
        .iter()
        .position(|effect| matches!(effect, Effect::DelaysChanged { .. } | Effect::Refused { .. }));
    match world.effects.remove(answer.expect("a change is answered")) {
        Effect::DelaysChanged { origin: asked, count } if asked == origin => Ok(count),
        Effect::Refused { origin: asked, refusal } if asked == origin => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn not_delayed(offset: u64, state: &'static str) -> Refusal {
    Refusal::NotDelayed { offset: Offset(offset), state }
}

#[test]
fn delayed_messages_are_listed_by_due_time_in_pages() {
    let mut world = world();
    world.publish(&[delayed("e", 10), delayed("f", 10)]);
    assert_eq!(listed(&mut world), [(1, 1, 10), (4, 2, 10), (0, 1, 20), (2, 1, 30)]);
    let first = list(&mut world, None, 2);
    let last = first[1];
    let second = list(&mut world, Some((last.due, Offset(last.range.end.0 - 1))), 2);
    assert_eq!(second.iter().map(|run| run.range.start.0).collect::<Vec<_>>(), [0, 2]);
    let inside = list(&mut world, Some((last.due, last.range.start)), 1);
    assert_eq!(inside[0].range, OffsetRange::new(Offset(5), 1));
    world.pass(SECOND * 10);
    assert_eq!(listed(&mut world), [(0, 1, 10), (2, 1, 20)]);
}

#[test]
fn a_cancelled_message_is_delivered_to_no_group_and_kept_no_more() {
    let mut world = world();
    let config = GroupConfig { lease: SECOND * 3600, ..GroupConfig::default() };
    let audit = |id| GroupSetting { id: GroupId(id), ..setting(config.clone()) };
    world.open(ORDERS, queue(), vec![audit(0), audit(1)], DeadLetters::To(DEAD.topic));
    world.publish(&[delayed("e", 5)]);
    let bytes = world.describe(ORDERS).bytes;
    assert_eq!(change(&mut world, &[1, 4], DelayChange::Cancel), Ok(2));
    assert_eq!(listed(&mut world), [(0, 1, 20), (2, 1, 30)]);
    // The batch of which nothing is wanted any more is gone.
    assert!(world.describe(ORDERS).bytes < bytes);
    assert_eq!(world.describe(ORDERS).groups[1].delayed, 2);
    world.subscribe(ALICE, 9);
    world.pass(SECOND * 60);
    let mut offsets: Vec<_> = world.attempts().into_iter().map(|(offset, _)| offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 2, 3]);
}

#[test]
fn a_group_that_comes_later_does_not_get_what_was_cancelled() {
    let mut world = world();
    assert_eq!(change(&mut world, &[1], DelayChange::Cancel), Ok(1));
    let late =
        GroupSetting { id: GroupId(7), config: GroupConfig::default(), start: StartAt::Earliest };
    let groups = vec![setting(GroupConfig::default()), late];
    world.open(ORDERS, queue(), groups, DeadLetters::To(DEAD.topic));
    let group = world.describe(ORDERS).groups[1];
    assert_eq!((group.ready, group.delayed), (1, 2));
    world.pass(SECOND * 60);
    let group = world.describe(ORDERS).groups[1];
    assert_eq!((group.ready, group.delayed), (3, 0));
}

#[test]
fn a_rescheduled_message_is_due_when_it_is_said() {
    let mut world = world();
    world.subscribe(ALICE, 9);
    world.delivered();
    assert_eq!(change(&mut world, &[0], DelayChange::DueAfter(SECOND * 40)), Ok(1));
    let at = world.now.plus(SECOND * 5);
    assert_eq!(change(&mut world, &[2], DelayChange::DueAt(at)), Ok(1));
    assert_eq!(listed(&mut world), [(2, 1, 5), (1, 1, 10), (0, 1, 40)]);
    world.pass(SECOND * 5);
    assert_eq!(world.attempts(), [(2, 1)]);
    world.pass(SECOND * 5);
    assert_eq!(world.attempts(), [(1, 1)]);
    world.pass(SECOND * 29);
    assert_eq!(world.attempts(), []);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(0, 1)]);
}

#[test]
fn a_message_may_be_rescheduled_to_now() {
    for now in [DelayChange::DueAfter(Duration::ZERO), DelayChange::DueAt(Timestamp(1))] {
        let mut world = world();
        world.subscribe(ALICE, 9);
        world.delivered();
        assert_eq!(change(&mut world, &[2], now), Ok(1));
        // The next turn of the clock delivers it.
        world.pass(Duration::from_millis(1));
        assert_eq!(world.attempts(), [(2, 1)]);
    }
}

#[test]
fn what_is_not_delayed_is_refused_with_its_state_and_nothing_is_changed() {
    let mut world = world();
    world.subscribe(BOB, 1);
    let written = world.journal.records.len();
    for (offsets, refusal) in [
        (vec![3], not_delayed(3, "a consumer holds it")),
        (vec![0, 3], not_delayed(3, "a consumer holds it")),
        (vec![0, 9], Refusal::UnknownMessage { offset: Offset(9) }),
        (vec![u64::MAX], Refusal::UnknownMessage { offset: Offset(u64::MAX) }),
    ] {
        for to in [DelayChange::Cancel, DelayChange::DueAfter(SECOND)] {
            assert_eq!(change(&mut world, &offsets, to), Err(refusal.clone()));
        }
    }
    assert_eq!(world.journal.records.len(), written);
    assert_eq!(listed(&mut world).len(), 3);
    world.pass(SECOND * 10);
    let over = "its delay is over, or it never had one";
    assert_eq!(change(&mut world, &[1], DelayChange::Cancel), Err(not_delayed(1, over)));
    assert_eq!(change(&mut world, &[0], DelayChange::Cancel), Ok(1));
    let cancelled = Err(not_delayed(0, "its delay was cancelled"));
    assert_eq!(change(&mut world, &[0], DelayChange::DueAfter(SECOND)), cancelled);
    let through = Err(not_delayed(3, "every group is through with it"));
    world.delivered();
    world.ack(world::run(3, 1, 1));
    assert_eq!(change(&mut world, &[3], DelayChange::Cancel), through);
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let mut world = world();
    let many = vec![0; DELAYED_CHANGED_MAX + 1];
    let refused = change(&mut world, &many, DelayChange::Cancel);
    assert!(matches!(refused, Err(Refusal::Limit { limit: "DELAYED_CHANGED_MAX", .. })));
    for late in [DelayChange::DueAt(Timestamp(u64::MAX)), DelayChange::DueAfter(Duration::MAX)] {
        let refused = change(&mut world, &[0], late);
        assert!(matches!(refused, Err(Refusal::Limit { .. })), "{refused:?}");
    }
    assert_eq!(change(&mut world, &many[1..], DelayChange::Cancel), Ok(1));
}

#[test]
fn a_change_outlives_a_crash() {
    let mut world = world();
    change(&mut world, &[1], DelayChange::Cancel).unwrap();
    change(&mut world, &[2], DelayChange::DueAfter(SECOND * 5)).unwrap();
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    assert_eq!(listed(&mut world), [(2, 1, 5), (0, 1, 20)]);
    world.subscribe(ALICE, 9);
    world.pass(SECOND * 60);
    let mut offsets: Vec<_> = world.attempts().into_iter().map(|(offset, _)| offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 2, 3]);
}

#[test]
fn a_topic_in_memory_journals_no_change_of_a_delay() {
    let config = TopicConfig { durability: Durability::Memory, ..queue() };
    let mut world = World::with(config, GroupConfig::default());
    world.publish(&[delayed("a", 20), delayed("b", 10)]);
    change(&mut world, &[0], DelayChange::Cancel).unwrap();
    change(&mut world, &[1], DelayChange::DueAfter(SECOND)).unwrap();
    let is_change = |record: &Record| {
        matches!(record, Record::DelaysCancelled { .. } | Record::DelaysChanged { .. })
    };
    assert!(!world.journal.records.iter().any(|(record, _)| is_change(record)));
    assert_eq!(listed(&mut world), [(1, 1, 1)]);
}

#[test]
fn a_topic_without_groups_lists_and_cancels_its_delayed_messages() {
    let mut world = World::empty();
    let config = TopicConfig::of_kind(TopicKind::Stream);
    world.open(ORDERS, config, Vec::new(), DeadLetters::NotYet);
    world.publish(&[delayed("a", 20), delayed("b", 10)]);
    assert_eq!(listed(&mut world), [(1, 1, 10), (0, 1, 20)]);
    assert_eq!(change(&mut world, &[1], DelayChange::Cancel), Ok(1));
    assert_eq!(listed(&mut world), [(0, 1, 20)]);
}

#[test]
fn a_message_that_expired_while_it_was_delayed_is_not_listed() {
    let mut world = World::new();
    let living = Message { time_to_live: Some(SECOND * 5), ..delayed("a", 20) };
    world.publish(&[living, delayed("b", 20)]);
    assert_eq!(listed(&mut world), [(0, 2, 20)]);
    world.pass(SECOND * 5);
    assert_eq!(listed(&mut world), [(1, 1, 15)]);
    let through = Err(not_delayed(0, "every group is through with it"));
    assert_eq!(change(&mut world, &[0], DelayChange::Cancel), through);
}

#[test]
fn explain_says_until_when_a_rescheduled_message_is_delayed() {
    let mut world = world();
    change(&mut world, &[2], DelayChange::DueAfter(SECOND * 5)).unwrap();
    let until = world.now.plus(SECOND * 5);
    let asked = world.explain(sennit_engine::ExplainSubject::Offset(Offset(2)));
    assert_eq!(asked.reason, WaitReason::Delayed { until });
    change(&mut world, &[2], DelayChange::Cancel).unwrap();
    let asked = world.explain(sennit_engine::ExplainSubject::Offset(Offset(2)));
    assert_eq!(asked.reason, WaitReason::Settled);
}

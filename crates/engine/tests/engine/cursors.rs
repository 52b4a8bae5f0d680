//! Named cursors: where they are, who has one, and who may set it.

use sennit_engine::{
    Command, Credit, CursorClaim, CursorSetter, DeadLetters, Effect, GapReason, PartitionCommand,
    Read, ReaderChange, Refusal, SessionId,
};
use sennit_model::{
    CursorName, Offset, ReadFrom, Retention, TopicConfig, TopicKind, WhenSlow,
    limits::CURSORS_PER_TOPIC_MAX,
};

use crate::world::{ALICE, BOB, ORDERS, World};

/// A session that does not read.
const CAROL: SessionId = SessionId(77);

const HAND: CursorSetter = CursorSetter { session: CAROL, subscription: None, take_over: false };

fn streaming(config: TopicConfig) -> World {
    let mut world = World::empty();
    world.open(ORDERS, config, vec![], DeadLetters::NotYet);
    world.effects.clear();
    world
}

fn claim(name: &CursorName, take_over: bool, number: u64) -> CursorClaim {
    CursorClaim { name: name.clone(), take_over, number }
}

fn read(world: &mut World, session: SessionId, at: u64, cursor: Option<CursorClaim>) {
    let origin = world.origin(session);
    let credit = Credit { messages: 1000, bytes: 1 << 20 };
    let (subscription, partition, at) = (3, ORDERS, Offset(at));
    let (when_slow, filter) = (WhenSlow::Wait, None);
    let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
    world.do_now(Command::Read(read));
}

fn end(world: &mut World, session: SessionId) {
    let (subscription, partition, change) = (3, ORDERS, ReaderChange::End);
    world.do_now(Command::Reader { session, subscription, partition, change });
}

/// Whose subscriptions have ended for the cursor since the last call.
fn taken(world: &mut World) -> Vec<SessionId> {
    let taken = world.effects.extract_if(.., |e| matches!(e, Effect::CursorTaken { .. }));
    let session = taken.map(|effect| match effect {
        Effect::CursorTaken { session, .. } => session,
        other => panic!("{other:?}"),
    });
    session.collect()
}

/// How many messages a session was given since the last call.
fn given(world: &mut World, of: SessionId) -> u32 {
    let is_its = |effect: &mut Effect| matches!(effect, Effect::Deliver(d) if d.session == of);
    let given = world.effects.extract_if(.., is_its);
    given
        .map(|effect| if let Effect::Deliver(delivery) = effect { delivery.count } else { 0 })
        .sum()
}

fn cursor(world: &mut World, command: PartitionCommand) {
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, command));
}

fn cursors(world: &mut World) -> Vec<(String, u64)> {
    cursor(world, PartitionCommand::ListCursors);
    match world.effects.pop() {
        Some(Effect::Cursors { cursors, .. }) => {
            cursors.into_iter().map(|(name, at)| (name.to_string(), at.0)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cursor_is_where_it_was_set_also_after_a_restart() {
    let mut world = streaming(TopicConfig {
        retention: Retention { bytes: Some(40), ..Retention::FOREVER },
        ..TopicConfig::of_kind(TopicKind::Stream)
    });
    world.publish_texts(&["a", "b"]);
    let (audit, other): (CursorName, CursorName) =
        ("audit".parse().unwrap(), "other".parse().unwrap());
    cursor(&mut world, PartitionCommand::SetCursor(audit.clone(), Offset(1), HAND));
    cursor(&mut world, PartitionCommand::SetCursor(other.clone(), Offset(99), HAND));
    assert_eq!(cursors(&mut world), [("audit".into(), 1), ("other".into(), 2)]);
    let records = world.journal.records.len();
    cursor(&mut world, PartitionCommand::SetCursor(audit.clone(), Offset(1), HAND));
    assert_eq!(world.journal.records.len(), records, "nothing has changed");
    world.engine = world.replayed();
    let at = |world: &mut World, name: &CursorName, from| {
        cursor(world, PartitionCommand::Locate(from, Some(claim(name, false, 0))));
        match world.effects.pop() {
            Some(Effect::Located { first, .. }) => first.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(at(&mut world, &audit, ReadFrom::Latest), 1);
    assert_eq!(at(&mut world, &"fresh".parse().unwrap(), ReadFrom::Earliest), 0);
    // One that retention has overtaken begins with a gap.
    for text in ["c", "d", "e"] {
        world.publish_texts(&[text]);
    }
    let begins = at(&mut world, &audit, ReadFrom::Earliest);
    read(&mut world, ALICE, begins, None);
    let gap = world.effects.iter().find_map(|effect| match effect {
        Effect::Gap { range, reason, .. } => Some((range.start.0, range.end.0, *reason)),
        _ => None,
    });
    assert_eq!(gap, Some((1, 3, GapReason::Retention)));
    world.effects.clear();
    cursor(&mut world, PartitionCommand::DeleteCursor(audit.clone()));
    assert_eq!(cursors(&mut world), [("other".into(), 2)]);
    assert_eq!(at(&mut world, &audit, ReadFrom::Earliest), 3);
    cursor(&mut world, PartitionCommand::Drop);
    world.open(ORDERS, TopicConfig::of_kind(TopicKind::Stream), vec![], DeadLetters::NotYet);
    assert_eq!(cursors(&mut world), []);
}

#[test]
fn a_cursor_that_is_set_often_in_one_turn_is_one_record() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    world.publish_texts(&["a", "b", "c"]);
    let records = world.journal.records.len();
    let [one, other, gone]: [CursorName; 3] =
        ["one", "other", "gone"].map(|name| name.parse().unwrap());
    let set = |name: &CursorName, at| PartitionCommand::SetCursor(name.clone(), Offset(at), HAND);
    let sets = [(&one, 1), (&gone, 1), (&one, 2), (&other, 3), (&one, 1)];
    let mut commands: Vec<_> = sets.iter().map(|&(name, at)| set(name, at)).collect();
    commands.push(PartitionCommand::DeleteCursor(gone));
    let commands: Vec<_> = commands
        .into_iter()
        .map(|command| Command::Partition(world.origin(ALICE), ORDERS, command))
        .collect();
    world.do_in_one_turn(commands);
    let answers = world.effects.drain(..);
    assert_eq!(answers.filter(|effect| matches!(effect, Effect::Done { .. })).count(), 6);
    assert_eq!(world.journal.records.len(), records + 3, "two are set, one was deleted");
    world.engine = world.replayed();
    assert_eq!(cursors(&mut world), [("one".into(), 1), ("other".into(), 3)]);
}

#[test]
fn a_topic_has_so_many_cursors_and_no_more() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    for n in 0..CURSORS_PER_TOPIC_MAX {
        let name = format!("c{n}").parse().unwrap();
        cursor(&mut world, PartitionCommand::SetCursor(name, Offset(0), HAND));
    }
    world.effects.clear();
    cursor(&mut world, PartitionCommand::SetCursor("c0".parse().unwrap(), Offset(0), HAND));
    cursor(&mut world, PartitionCommand::SetCursor("one-more".parse().unwrap(), Offset(0), HAND));
    assert_eq!(world.refusals(), [Refusal::cursors_max()]);
}

#[test]
fn a_cursor_has_one_reader_at_a_time() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    let name: CursorName = "audit".parse().unwrap();
    read(&mut world, ALICE, 0, Some(claim(&name, false, 1)));
    let locate = PartitionCommand::Locate(ReadFrom::Earliest, Some(claim(&name, false, 0)));
    cursor(&mut world, locate);
    assert_eq!(world.refusals(), [Refusal::CursorHeld { name: name.clone() }]);
    read(&mut world, BOB, 0, Some(claim(&name, false, 2)));
    assert_eq!(taken(&mut world), [BOB]);
    world.publish_texts(&["a"]);
    assert_eq!((given(&mut world, ALICE), given(&mut world, BOB)), (1, 0));
    read(&mut world, BOB, 0, Some(claim(&name, true, 3)));
    assert_eq!(taken(&mut world), [ALICE]);
    world.publish_texts(&["b"]);
    assert_eq!((given(&mut world, ALICE), given(&mut world, BOB)), (0, 2));
    // It is free again once its reader has ended.
    end(&mut world, BOB);
    read(&mut world, ALICE, 0, Some(claim(&name, false, 4)));
    assert_eq!(taken(&mut world), []);
}

#[test]
fn of_claims_that_meet_the_same_one_wins_in_whatever_order_a_partition_hears_of_them() {
    let name: CursorName = "audit".parse().unwrap();
    for (first, second, winner) in
        [(false, false, ALICE), (true, false, ALICE), (false, true, BOB), (true, true, BOB)]
    {
        for turned in [false, true] {
            let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
            let mut claims = [(ALICE, claim(&name, first, 1)), (BOB, claim(&name, second, 2))];
            if turned {
                claims.reverse();
            }
            for (session, claim) in claims {
                read(&mut world, session, 0, Some(claim));
            }
            let loser = if winner == ALICE { BOB } else { ALICE };
            assert_eq!(taken(&mut world), [loser], "{first} {second} {turned}");
            world.publish_texts(&["a"]);
            assert_eq!((given(&mut world, winner), given(&mut world, loser)), (1, 0));
        }
    }
}

#[test]
fn a_commit_counts_only_from_the_reader_that_has_the_cursor() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    world.publish_texts(&["a", "b", "c"]);
    let name: CursorName = "audit".parse().unwrap();
    let commit = |world: &mut World, session, subscription, offset| {
        world.effects.clear();
        let by = CursorSetter { session, subscription: Some(subscription), take_over: true };
        let origin = world.origin(session);
        let set = PartitionCommand::SetCursor(name.clone(), Offset(offset), by);
        world.do_now(Command::Partition(origin, ORDERS, set));
        world.refusals()
    };
    let lost = [Refusal::CursorLost { name: name.clone() }];
    read(&mut world, ALICE, 0, Some(claim(&name, false, 1)));
    assert_eq!(commit(&mut world, ALICE, 3, 1), []);
    assert_eq!(commit(&mut world, ALICE, 4, 2), lost);
    read(&mut world, BOB, 1, Some(claim(&name, true, 2)));
    assert_eq!(commit(&mut world, BOB, 3, 2), []);
    // What its predecessor had said before it heard of that comes to nothing, also later on.
    assert_eq!(commit(&mut world, ALICE, 3, 3), lost);
    end(&mut world, BOB);
    assert_eq!(commit(&mut world, ALICE, 3, 1), lost);
    assert_eq!(cursors(&mut world), [("audit".into(), 2)]);
}

#[test]
fn a_cursor_that_a_reader_has_is_set_by_hand_only_by_taking_it_over() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    world.publish_texts(&["a", "b", "c"]);
    let name: CursorName = "audit".parse().unwrap();
    let set = |offset, by| PartitionCommand::SetCursor(name.clone(), Offset(offset), by);
    read(&mut world, ALICE, 0, Some(claim(&name, false, 1)));
    cursor(&mut world, set(1, HAND));
    assert_eq!(world.refusals(), [Refusal::CursorHeld { name: name.clone() }]);
    // The reader's own session may.
    cursor(&mut world, set(2, CursorSetter { session: ALICE, ..HAND }));
    assert_eq!((taken(&mut world), world.refusals()), (vec![], vec![]));
    cursor(&mut world, set(1, CursorSetter { take_over: true, ..HAND }));
    assert_eq!((taken(&mut world), world.refusals()), (vec![ALICE], vec![]));
    assert_eq!(cursors(&mut world), [("audit".into(), 1)]);
}

#[test]
fn who_would_take_a_cursor_over_is_told_where_it_is_and_who_would_not_that_it_is_held() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    world.publish_texts(&["a", "b", "c"]);
    let name: CursorName = "audit".parse().unwrap();
    cursor(&mut world, PartitionCommand::SetCursor(name.clone(), Offset(2), HAND));
    read(&mut world, ALICE, 2, Some(claim(&name, false, 1)));
    for take_over in [false, true] {
        world.effects.clear();
        let claim = Some(claim(&name, take_over, 2));
        cursor(&mut world, PartitionCommand::Locate(ReadFrom::Earliest, claim));
        match &world.effects[..] {
            [Effect::Located { first: Offset(2), .. }] => assert!(take_over),
            [Effect::Refused { refusal: Refusal::CursorHeld { .. }, .. }] => assert!(!take_over),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_takes_a_cursor_over_that_is_one_too_many_ends_no_reader() {
    let mut world = streaming(TopicConfig::of_kind(TopicKind::Stream));
    let audit: CursorName = "audit".parse().unwrap();
    read(&mut world, ALICE, 0, Some(claim(&audit, false, 1)));
    for n in 0..CURSORS_PER_TOPIC_MAX {
        let name = format!("c{n}").parse().unwrap();
        cursor(&mut world, PartitionCommand::SetCursor(name, Offset(0), HAND));
    }
    world.effects.clear();
    let takes = CursorSetter { take_over: true, ..HAND };
    cursor(&mut world, PartitionCommand::SetCursor(audit, Offset(0), takes));
    assert_eq!(taken(&mut world), []);
    assert_eq!(world.refusals(), [Refusal::cursors_max()]);
}

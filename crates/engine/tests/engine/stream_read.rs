//! Where reads of a stream begin and end, and what they say of the rest: at what is visible, at a
//! bound, at what was lost, and while a batch has to be fetched.

use sennit_engine::{
    Command, Effect, ForkOf, OpenStream, Outbox, PartitionCommand, Place, Record, StreamAnswer,
    StreamAppend, StreamChunk, StreamCommand, StreamNote, StreamRead, StreamRefusal, StreamRest,
    StreamSettings,
};
use sennit_model::{Durability, Message, Offset, OffsetRange, ReadFrom};

use crate::world::{
    self, ALICE, DEAD, ORDERS, World, batch,
    streams::{
        answers, append, ask, closing, config, opened, plain, read, read_at, refused, settings,
        texts, with,
    },
};

fn append_of(texts: &[&str], note: StreamNote) -> StreamCommand {
    let messages: Vec<_> = texts.iter().map(|text| Message::new(text.to_string())).collect();
    let content = Some(batch(&messages).into());
    StreamCommand::Append(Box::new(StreamAppend { content, content_type: None, note }))
}

/// A stream whose messages lie in one batch each.
fn holding(messages: &[&str]) -> World {
    let mut world = opened(settings());
    for text in messages {
        append(&mut world, text, plain());
    }
    world
}

/// What a read is told that comes when `append` is decided, and not committed yet.
fn read_beside(world: &mut World, append: StreamCommand, read: StreamRead) -> StreamChunk {
    let mut out = Outbox::default();
    for command in [append, StreamCommand::Read(read)] {
        let origin = world.origin(ALICE);
        let command = Command::Stream(origin, ORDERS, command);
        world.engine.handle(command, world.now, &mut world.journal, &mut out);
    }
    let mut payloads =
        world::Memory { batches: world.journal.batches.clone(), ..Default::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    world.effects.clear();
    world.effects.append(&mut out.now);
    world.effects.append(&mut out.after_commit);
    let chunk = |answer| match answer {
        StreamAnswer::Chunk(chunk) => Some(chunk),
        _ => None,
    };
    answers(world).into_iter().find_map(chunk).expect("a read that does not wait is answered")
}

/// Whether a read that comes when `before` is decided and not committed is answered at once, and what it is
/// told.
fn answered_beside(
    world: &mut World,
    before: StreamCommand,
    read: StreamRead,
) -> (bool, StreamChunk) {
    let mut out = Outbox::default();
    for command in [before, StreamCommand::Read(read)] {
        let origin = world.origin(ALICE);
        let command = Command::Stream(origin, ORDERS, command);
        world.engine.handle(command, world.now, &mut world.journal, &mut out);
    }
    let batches = world.journal.batches.clone();
    let mut payloads = world::Memory { batches, ..Default::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    let mut chunk_in = |effects: &mut Vec<Effect>| {
        world.effects.clear();
        world.effects.append(effects);
        answers(world).into_iter().find_map(|answer| match answer {
            StreamAnswer::Chunk(chunk) => Some(chunk),
            _ => None,
        })
    };
    match (chunk_in(&mut out.now), chunk_in(&mut out.after_commit)) {
        (Some(chunk), None) => (true, chunk),
        (None, Some(chunk)) => (false, chunk),
        other => panic!("a read that does not wait is answered once: {other:?}"),
    }
}

#[test]
fn the_end_of_a_stream_is_told_when_it_is_committed_and_all_else_at_once() {
    let close = || {
        let (content, note) = (None, closing(plain()));
        StreamCommand::Append(Box::new(StreamAppend { content, content_type: None, note }))
    };
    // As it lies there, and as what is left.
    for bytes_max in [1 << 20, 1] {
        let read = StreamRead { bytes_max, ..read_at(0) };
        let mut world = holding(&["a", "b"]);
        let (is_at_once, chunk) = answered_beside(&mut world, append_of(&["c"], plain()), read);
        assert!(is_at_once && !chunk.is_closed);
        world.finish(Outbox::default());

        let mut world = holding(&["a", "b"]);
        let (is_at_once, chunk) = answered_beside(&mut world, close(), read);
        let tells_end = chunk.is_closed || chunk.rest.is_some_and(|rest| rest.is_closed);
        assert!(tells_end && !is_at_once, "{bytes_max}: {chunk:?}");
    }
}

#[test]
fn a_bound_beyond_the_end_gives_nothing_that_is_not_committed() {
    let mut world = holding(&["a"]);
    let read = StreamRead { before: Some(Offset(99)), ..read_at(0) };
    let chunk = read_beside(&mut world, append_of(&["b"], plain()), read);
    assert_eq!((texts(&chunk), chunk.next), (vec!["a".to_owned()], Offset(1)));
}

#[test]
fn a_stream_does_not_end_before_the_content_it_was_closed_with() {
    let mut world = holding(&["a"]);
    let chunk = read_beside(&mut world, append_of(&["last"], closing(plain())), read_at(0));
    assert_eq!((texts(&chunk), chunk.is_closed), (vec!["a".to_owned()], false));
    world.finish(Outbox::default());
    let chunk = read(&mut world, read_at(chunk.next.0));
    assert_eq!((texts(&chunk), chunk.is_closed), (vec!["last".to_owned()], true));
}

#[test]
fn who_begins_behind_the_end_is_told_so_and_who_begins_there_hears_of_what_comes() {
    let mut world = holding(&["a"]);
    for at in [2, 99] {
        for waits in [false, true] {
            let read = StreamRead { waits, ..read_at(at) };
            let beyond = refused(ask(&mut world, StreamCommand::Read(read)));
            assert_eq!(beyond, StreamRefusal::BeyondEnd { next: Offset(1) }, "{at}");
        }
    }
    let waits = StreamRead { waits: true, ..read_at(1) };
    assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None);
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, append_of(&["b"], plain())));
    let told = answers(&mut world).into_iter().find_map(|answer| match answer {
        StreamAnswer::Chunk(chunk) => Some((chunk.first, texts(&chunk))),
        _ => None,
    });
    assert_eq!(told, Some((Offset(1), vec!["b".to_owned()])));
}

#[test]
fn a_bound_inside_a_batch_gives_nothing_behind_it() {
    let mut world = opened(settings());
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, append_of(&["a", "b", "c"], plain())));
    let bounded = StreamRead { before: Some(Offset(2)), ..read_at(0) };
    let chunk = read(&mut world, bounded);
    assert_eq!((texts(&chunk), chunk.next), (vec!["a".to_owned(), "b".to_owned()], Offset(2)));
    assert!(!chunk.is_up_to_date);
    assert_eq!(read(&mut world, StreamRead { before: Some(Offset(1)), ..read_at(2) }).next.0, 1);
}

#[test]
fn a_window_that_is_just_full_takes_no_more() {
    let mut world = holding(&["a", "b"]);
    let whole = read(&mut world, StreamRead { bytes_max: 1, ..read_at(0) });
    let bytes_max = whole.messages[0].len() as u64;
    assert_eq!(texts(&read(&mut world, StreamRead { bytes_max, ..read_at(0) })), ["a"]);
    let bytes_max = bytes_max + 1;
    assert_eq!(texts(&read(&mut world, StreamRead { bytes_max, ..read_at(0) })), ["a", "b"]);
}

#[test]
fn what_is_left_is_said_up_to_the_bound_and_of_the_end_only_where_that_is() {
    let mut world = holding(&["a", "b"]);
    append(&mut world, "c", closing(plain()));
    for (before, is_end) in [(2, false), (3, true)] {
        let bounded = StreamRead { before: Some(Offset(before)), ..read_at(0) };
        let first = read(&mut world, StreamRead { bytes_max: 1, ..bounded });
        let until = Offset(before);
        let rest = StreamRest { until, is_up_to_date: is_end, is_closed: is_end };
        assert_eq!((first.rest, first.is_closed), (Some(rest), false), "before {before}");
        let all = read(&mut world, bounded);
        assert_eq!((all.rest, all.is_closed), (None, is_end), "before {before}");
    }
}

#[test]
fn a_fork_that_is_read_up_to_a_bound_inherits_no_more() {
    let mut world = holding(&["a", "b"]);
    let (source, home, at) = (ORDERS, ORDERS.topic, Offset(2));
    let fork = ForkOf { source, home, name: "orders".into(), at, requested: ("".into(), 0) };
    let fork = with(StreamSettings { fork: Some(fork), ..settings() });
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, DEAD, StreamCommand::Open(Box::new(fork))));
    for (at, bound, inherited) in [
        (ReadFrom::Offset(Offset(0)), Some(Offset(1)), Offset(1)),
        (ReadFrom::Earliest, None, Offset(2)),
    ] {
        world.effects.clear();
        let read = StreamRead { at, before: bound, ..read_at(0) };
        world.do_now(Command::Stream(origin, DEAD, StreamCommand::Read(read)));
        let answer = answers(&mut world).pop();
        assert!(
            matches!(answer, Some(StreamAnswer::Inherited { before, .. }) if before == inherited),
            "{bound:?}: {answer:?}"
        );
    }
}

#[test]
fn what_was_reserved_and_lost_is_passed_over_no_further_than_the_bound() {
    let mut world = World::empty();
    let open = OpenStream { config: config(Durability::Speculative), ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    append(&mut world, "a", plain());
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    assert!(world.engine.end_of(ORDERS) > Some(Offset(2)), "something was reserved");
    let chunk = read(&mut world, StreamRead { before: Some(Offset(2)), ..read_at(1) });
    assert_eq!((chunk.next, chunk.messages.len()), (Offset(2), 0));
}

/// Where the batches of the stream lie.
fn places(world: &World) -> Vec<Place> {
    world.engine.places().collect()
}

#[test]
fn who_waits_for_a_batch_is_answered_when_it_is_fetched_and_not_again() {
    let mut world = holding(&["a"]);
    world.journal.absent = true;
    assert_eq!(ask(&mut world, StreamCommand::Read(read_at(0))), None);
    world.journal.absent = false;
    world.engine.fetched(ORDERS);
    world.finish(Outbox::default());
    let told = answers(&mut world);
    assert!(matches!(&told[..], [StreamAnswer::Chunk(chunk)] if texts(chunk) == ["a"]), "{told:?}");
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, append_of(&["b"], plain())));
    let told = answers(&mut world);
    assert!(matches!(&told[..], [StreamAnswer::Appended(_)]), "{told:?}");
}

#[test]
fn who_wants_one_append_gets_one() {
    let mut world = holding(&["a", "b"]);
    let chunk = read(&mut world, StreamRead { one_append: true, ..read_at(0) });
    assert_eq!((texts(&chunk), chunk.next), (vec!["a".to_owned()], Offset(1)));
}

#[test]
fn of_a_batch_that_cannot_be_read_only_those_are_told_who_read_there() {
    let mut world = holding(&["a", "b"]);
    let damaged = places(&world)[0];
    world.journal.absent = true;
    for at in [0, 1] {
        assert_eq!(ask(&mut world, StreamCommand::Read(read_at(at))), None);
    }
    let mut out = Outbox::default();
    assert!(world.engine.damaged(ORDERS, damaged, &mut out));
    world.journal.absent = false;
    world.finish(out);
    let told = answers(&mut world);
    let [StreamAnswer::Refused(refusal), StreamAnswer::Chunk(chunk)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(*refusal, StreamRefusal::Damaged { next: Offset(1) });
    assert_eq!(texts(chunk), ["b"]);
}

#[test]
fn what_was_lost_long_before_the_beginning_is_not_told_of() {
    let mut world = holding(&["a", "b", "c"]);
    let range = OffsetRange::new(Offset(0), 1);
    world.engine.apply(&Record::Lost { partition: ORDERS, range }, world.journal.end);
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Trim(Offset(2))));
    let earliest = StreamRead { at: ReadFrom::Earliest, ..read_at(0) };
    assert_eq!(texts(&read(&mut world, earliest)), ["c"]);
    let before = refused(ask(&mut world, StreamCommand::Read(read_at(1))));
    assert_eq!(before, StreamRefusal::NotKept { start: Offset(2) });
}

//! HTTP streams as the engine has them: appends with their notes, closing, producers, reads that wait,
//! forks, and an end.

mod limits;

use std::time::Duration;

use sennit_engine::{
    Command, Content, Effect, ForkOf, OpenStream, Origin, Outbox, PartitionCommand, Record,
    Refusal, StreamAnswer, StreamAppend, StreamAppended, StreamCommand, StreamNote, StreamProducer,
    StreamRead, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Durability, Generation, Message, Offset, OffsetRange, PartitionId, ReadFrom, Retention,
    TopicConfig, TopicId,
    limits::{STREAM_FORKS_MAX, STREAM_PRODUCERS_MAX, STREAM_READS_WAITING_MAX},
};

use crate::world::{
    self, ALICE, DEAD, ORDERS, World, batch,
    streams::{
        answers, append, ask, by, closing, config, opened, plain, read, read_at, refused, replayed,
        settings, texts, with,
    },
};

#[test]
fn what_is_appended_is_read_from_any_offset_and_survives() {
    let mut world = opened(settings());
    append(&mut world, "a", plain());
    append(&mut world, "b", plain());
    for mut world in [replayed(&world), world] {
        let chunk = read(&mut world, read_at(0));
        assert_eq!(texts(&chunk), ["a", "b"]);
        assert_eq!((chunk.next, chunk.is_up_to_date, chunk.is_closed), (Offset(2), true, false));
        assert_eq!(texts(&read(&mut world, read_at(1))), ["b"]);
        assert!(texts(&read(&mut world, read_at(2))).is_empty());
        let small = StreamRead { bytes_max: 1, ..read_at(0) };
        assert!(!read(&mut world, small).is_up_to_date);
    }
}

#[test]
fn a_closed_stream_takes_nothing_more_whoever_asks() {
    let mut world = opened(settings());
    append(&mut world, "last", closing(plain()));
    for mut world in [replayed(&world), world] {
        let closed = StreamRefusal::Closed { next: Offset(1) };
        assert_eq!(refused(Some(append(&mut world, "more", plain()))), closed);
        let again = append(&mut world, "", closing(plain()));
        assert!(matches!(again, StreamAnswer::Appended(StreamAppended { is_closed: true, .. })));
        // A producer's close is a step of its own, and comes too late.
        assert_eq!(refused(Some(append(&mut world, "", closing(by(0, 0))))), closed);
        assert!(read(&mut world, read_at(1)).is_closed);
        world.publish_texts(&["natively"]);
        assert!(matches!(&world.effects[..], [Effect::Refused { .. }]), "{:?}", world.effects);
    }
}

#[test]
fn a_deleted_stream_takes_nothing_more_whether_it_has_forks_or_none() {
    for (has_fork, expected) in [(false, StreamRefusal::Unknown), (true, StreamRefusal::Deleted)] {
        let mut world = opened(settings());
        if has_fork {
            ask(&mut world, StreamCommand::AddFork(TopicId(9)));
        }
        ask(&mut world, StreamCommand::Delete);
        for mut world in [replayed(&world), world] {
            assert_eq!(refused(Some(append(&mut world, "more", plain()))), expected);
            assert_eq!(world.engine.end_of(ORDERS), Some(Offset(0)));
        }
    }
}

#[test]
fn an_append_of_a_producer_counts_once() {
    let mut world = opened(settings());
    append(&mut world, "a", by(1, 0));
    append(&mut world, "b", by(1, 1));
    for mut world in [replayed(&world), world] {
        let again = append(&mut world, "a", by(1, 0));
        let StreamAnswer::Appended(StreamAppended { is_duplicate, sequence, next, .. }) = again
        else {
            panic!("{again:?}")
        };
        assert_eq!((is_duplicate, sequence, next), (true, Some(1), Offset(2)));
        let gap = refused(Some(append(&mut world, "d", by(1, 3))));
        assert_eq!(gap, StreamRefusal::ProducerGap { expected: 2, received: 3 });
        let begins = refused(Some(append(&mut world, "x", by(2, 5))));
        assert_eq!(begins, StreamRefusal::ProducerBegins);
        append(&mut world, "c", by(2, 0));
        let fenced = refused(Some(append(&mut world, "x", by(1, 2))));
        assert_eq!(fenced, StreamRefusal::ProducerFenced { current: 2 });
        append(&mut world, "", closing(by(2, 1)));
        let again = append(&mut world, "", closing(by(2, 1)));
        assert!(matches!(again, StreamAnswer::Appended(StreamAppended { is_duplicate: true, .. })));
        assert_eq!(texts(&read(&mut world, read_at(0))), ["a", "b", "c"]);
    }
}

#[test]
fn a_sequence_has_to_grow_byte_by_byte() {
    let mut world = opened(settings());
    let sequence = |text: &str| StreamNote { sequence: Some(text.into()), ..plain() };
    append(&mut world, "a", sequence("2"));
    for mut world in [replayed(&world), world] {
        for no_greater in ["10", "2"] {
            let refusal = refused(Some(append(&mut world, "b", sequence(no_greater))));
            assert_eq!(refusal, StreamRefusal::Sequence { last: "2".into() });
        }
        append(&mut world, "b", sequence("21"));
    }
}

#[test]
fn another_content_type_is_refused() {
    let mut world = opened(settings());
    let content = Some(batch(&[Message::new("{}")]).into());
    let content_type = Some("application/json".into());
    let append = StreamAppend { content, content_type, note: plain() };
    let refusal = refused(ask(&mut world, StreamCommand::Append(Box::new(append))));
    assert_eq!(refusal, StreamRefusal::ContentType { content_type: "text/plain".into() });
}

#[test]
fn a_read_that_waits_is_answered_by_the_next_append_or_the_close() {
    let mut world = opened(settings());
    let waits = StreamRead { waits: true, ..read_at(0) };
    assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None);
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, StreamCommand::Read(waits)));
    world.do_now(Command::Stream(origin, ORDERS, StreamCommand::StopReading));
    let content = Some(batch(&[Message::new("a")]).into());
    let last = StreamAppend { content, content_type: None, note: closing(plain()) };
    let appender = world.origin(ALICE);
    world.effects.clear();
    world.do_now(Command::Stream(appender, ORDERS, StreamCommand::Append(Box::new(last))));
    let chunks: Vec<_> = answers(&mut world)
        .into_iter()
        .filter_map(|answer| match answer {
            StreamAnswer::Chunk(chunk) => Some((texts(&chunk), chunk.is_closed)),
            _ => None,
        })
        .collect();
    assert_eq!(chunks, [(vec!["a".to_owned()], true)]);
}

#[test]
fn what_is_not_committed_is_not_given_to_those_who_wait() {
    let mut world = opened(settings());
    let waits = StreamRead { waits: true, ..read_at(0) };
    assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None);
    let append = StreamAppend {
        content: Some(batch(&[Message::new("a")]).into()),
        content_type: None,
        note: plain(),
    };
    let origin = world.origin(ALICE);
    let mut out = Outbox::default();
    let command = Command::Stream(origin, ORDERS, StreamCommand::Append(Box::new(append)));
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    let mut batches =
        world::Memory { batches: world.journal.batches.clone(), ..Default::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut batches, &mut out);
    assert!(out.now.is_empty(), "{:?}", out.now);
    assert_eq!(out.after_commit.len(), 1);
    world.finish(out);
    assert_eq!(answers(&mut world).len(), 2);
}

#[test]
fn a_stream_ends_when_nobody_has_used_it_for_its_time_to_live() {
    let mut world = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    world.pass(Duration::from_secs(6));
    append(&mut world, "a", plain());
    world.pass(Duration::from_secs(6));
    read(&mut world, read_at(0));
    world.pass(Duration::from_secs(6));
    let asks = StreamCommand::Status { touches: false };
    assert!(matches!(ask(&mut world, asks.clone()), Some(StreamAnswer::Status(_))));
    world.effects.clear();
    world.pass(Duration::from_secs(5));
    assert!(
        world
            .effects
            .iter()
            .any(|e| matches!(e, Effect::StreamEnded { topic } if *topic == ORDERS.topic)),
        "{:?}",
        world.effects
    );
    assert_eq!(refused(ask(&mut world, asks)), StreamRefusal::Unknown);
}

#[test]
fn what_was_said_to_be_over_does_not_come_back_with_a_start() {
    let asks = StreamCommand::Status { touches: false };
    let mut asked = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    asked.now = asked.now.plus(Duration::from_secs(11));
    assert_eq!(refused(ask(&mut asked, asks.clone())), StreamRefusal::Unknown);
    let mut swept = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    swept.pass(Duration::from_secs(11));
    let mut deleted = opened(settings());
    let gone = ask(&mut deleted, StreamCommand::Delete);
    assert!(matches!(gone, Some(StreamAnswer::Deleted { is_unused: true, .. })), "{gone:?}");
    for world in [asked, swept, deleted] {
        let mut world = replayed(&world);
        let left: Vec<_> = world.engine.held_streams().collect();
        assert_eq!(left, [(ORDERS, None)]);
        assert_eq!(refused(ask(&mut world, asks.clone())), StreamRefusal::Unknown);
        let again = ask(&mut world, StreamCommand::Delete);
        assert!(matches!(again, Some(StreamAnswer::Deleted { is_unused: true, .. })), "{again:?}");
    }
}

/// What opens a stream as a fork of the orders, at their second message.
fn as_fork() -> StreamCommand {
    let of = ForkOf {
        source: ORDERS,
        home: ORDERS.topic,
        name: "orders".into(),
        at: Offset(1),
        requested: ("".into(), 0),
    };
    StreamCommand::Open(Box::new(with(StreamSettings { fork: Some(of), ..settings() })))
}

#[test]
fn what_a_fork_says_of_itself_is_committed_before() {
    let mut world = opened(settings());
    append(&mut world, "a", plain());
    let origin = world.origin(ALICE);
    let mut out = Outbox::default();
    // At what it inherits, and at its end.
    let reads = [0, 1].map(|at| StreamCommand::Read(read_at(at)));
    for (request, command) in (0..).zip([as_fork()].into_iter().chain(reads)) {
        let origin = Origin { request, ..origin };
        let command = Command::Stream(origin, DEAD, command);
        world.engine.handle(command, world.now, &mut world.journal, &mut out);
    }
    let mut payloads = world::Memory::default();
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    assert!(out.now.is_empty(), "{:?}", out.now);
    let is_inherited = |effect: &Effect| matches!(effect, Effect::Stream(_, answer) if matches!(**answer, StreamAnswer::Inherited { .. }));
    assert!(out.after_commit.iter().any(is_inherited), "{:?}", out.after_commit);
    assert_eq!(out.after_commit.len(), 3);
}

#[test]
fn that_an_empty_stream_is_there_is_said_once_that_is_committed() {
    let mut world = World::empty();
    let origin = world.origin(ALICE);
    let mut out = Outbox::default();
    let open = StreamCommand::Open(Box::new(with(settings())));
    for command in [open, StreamCommand::Read(read_at(0))] {
        let command = Command::Stream(origin, ORDERS, command);
        world.engine.handle(command, world.now, &mut world.journal, &mut out);
    }
    let mut payloads = world::Memory::default();
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    assert!(out.now.is_empty(), "{:?}", out.now);
    world.finish(out);
    assert_eq!(answers(&mut world).len(), 2);
    // One that has content has been committed: its end is told at once.
    append(&mut world, "a", plain());
    let mut out = Outbox::default();
    let command = Command::Stream(origin, ORDERS, StreamCommand::Read(read_at(1)));
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    assert_eq!((out.now.len(), out.after_commit.len()), (1, 0));
}

#[test]
fn a_fork_holds_its_source_and_reads_there() {
    let mut world = opened(settings());
    append(&mut world, "a", plain());
    append(&mut world, "b", plain());
    let fork = TopicId(2);
    ask(&mut world, StreamCommand::AddFork(fork));
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, DEAD, as_fork()));
    let content = Some(batch(&[Message::new("own")]).into());
    let own = StreamAppend { content, content_type: None, note: plain() };
    world.do_now(Command::Stream(origin, DEAD, StreamCommand::Append(Box::new(own))));
    for mut world in [replayed(&world), world] {
        let forks: Vec<_> = world.engine.forks_of_streams().collect();
        assert_eq!(forks, [(DEAD.topic, ORDERS)]);
        let origin = world.origin(ALICE);
        let of_fork = |world: &mut World, read: StreamRead| {
            world.effects.clear();
            world.do_now(Command::Stream(origin, DEAD, StreamCommand::Read(read)));
            answers(world).pop()
        };
        let inherited = of_fork(&mut world, read_at(0));
        assert!(
            matches!(&inherited, Some(StreamAnswer::Inherited { source, before, .. })
                if *source == ORDERS && *before == Offset(1)),
            "{inherited:?}"
        );
        let Some(StreamAnswer::Chunk(own)) = of_fork(&mut world, read_at(1)) else { panic!() };
        assert_eq!((texts(&own), own.next), (vec!["own".to_owned()], Offset(2)));

        let deleted = ask(&mut world, StreamCommand::Delete);
        assert!(matches!(deleted, Some(StreamAnswer::Deleted { is_unused: false, .. })));
        assert_eq!(
            refused(ask(&mut world, StreamCommand::Read(read_at(0)))),
            StreamRefusal::Deleted
        );
        let for_fork = StreamRead { for_fork: true, before: Some(Offset(1)), ..read_at(0) };
        assert_eq!(texts(&read(&mut world, for_fork)), ["a"]);
        let mut world = replayed(&world);
        let gone = ask(&mut world, StreamCommand::RemoveFork(fork));
        assert!(matches!(gone, Some(StreamAnswer::Deleted { is_unused: true, .. })), "{gone:?}");
    }
}

#[test]
fn a_checkpoint_keeps_all_that_a_stream_has_said() {
    let mut world = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    append(&mut world, "a", StreamNote { sequence: Some("7".into()), ..by(3, 0) });
    ask(&mut world, StreamCommand::AddFork(TopicId(9)));
    append(&mut world, "", closing(plain()));
    ask(&mut world, StreamCommand::Delete);
    let mut snapshot = Vec::new();
    world.engine.encode_snapshot(&mut snapshot);
    let after =
        sennit_engine::Engine::from_snapshot(snapshot.clone().into(), Generation(2), world.now);
    let mut again = Vec::new();
    after.unwrap().encode_snapshot(&mut again);
    assert_eq!(again, snapshot);
}

#[test]
fn who_reads_for_a_fork_does_not_prolong_the_life_of_its_source() {
    let mut world = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    append(&mut world, "a", plain());
    world.pass(Duration::from_secs(6));
    read(&mut world, StreamRead { for_fork: true, ..read_at(0) });
    world.pass(Duration::from_secs(6));
    let asks = StreamCommand::Status { touches: false };
    assert_eq!(refused(ask(&mut world, asks)), StreamRefusal::Unknown);
}

#[test]
fn who_closes_a_stream_that_is_closed_has_used_it() {
    let mut world = opened(StreamSettings { time_to_live: Some(10), ..settings() });
    append(&mut world, "", closing(plain()));
    world.pass(Duration::from_secs(6));
    append(&mut world, "", closing(plain()));
    world.pass(Duration::from_secs(6));
    let asks = StreamCommand::Status { touches: false };
    assert!(matches!(ask(&mut world, asks), Some(StreamAnswer::Status(_))));
}

#[test]
fn a_stream_in_memory_is_there_after_a_crash_and_its_content_is_not() {
    let mut world = World::empty();
    let open = OpenStream { config: config(Durability::Memory), ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    let answer = append(&mut world, "a", by(0, 0));
    assert!(
        matches!(answer, StreamAnswer::Appended(StreamAppended { next: Offset(1), .. })),
        "{answer:?}"
    );
    assert_eq!(texts(&read(&mut world, read_at(0))), ["a"]);
    let mut world = replayed(&world);
    let asks = StreamCommand::Status { touches: false };
    assert!(matches!(ask(&mut world, asks), Some(StreamAnswer::Status(_))));
    assert!(texts(&read(&mut world, read_at(0))).is_empty());
}

#[test]
fn a_stream_in_memory_that_began_closed_is_closed_after_a_start_and_one_closed_later_is_open() {
    for (begins_closed, text) in [(true, ""), (false, ""), (true, "a"), (false, "a")] {
        let mut world = World::empty();
        let content = (!text.is_empty()).then(|| batch(&[Message::new(text)]).into());
        let config = config(Durability::Memory);
        let open = OpenStream { config, content, closes: begins_closed, ..with(settings()) };
        ask(&mut world, StreamCommand::Open(Box::new(open)));
        if !begins_closed {
            append(&mut world, "", closing(plain()));
        }
        let is_closed = |engine: &sennit_engine::Engine| {
            engine.look_at_stream(ORDERS).expect("it is there").0.is_closed
        };
        assert!(is_closed(&world.engine));
        let by_records = replayed(&world).engine;
        // What it began with is closed together with that, or not at all.
        assert_eq!(is_closed(&by_records), begins_closed && text.is_empty());
        // Checkpoints say the same, of what was written and of what an earlier checkpoint has said.
        let by_checkpoint = kept(&world.engine, world.now);
        assert_eq!(is_closed(&by_checkpoint), is_closed(&by_records), "{text:?}");
        let by_another = kept(&by_checkpoint, world.now);
        assert_eq!(is_closed(&by_another), is_closed(&by_records), "{text:?}");
    }
}

/// What a start finds that begins with a checkpoint of this.
fn kept(engine: &sennit_engine::Engine, now: sennit_model::Timestamp) -> sennit_engine::Engine {
    let mut snapshot = Vec::new();
    engine.encode_snapshot(&mut snapshot);
    sennit_engine::Engine::from_snapshot(snapshot.into(), Generation(2), now).expect("it is whole")
}

#[test]
fn who_had_read_all_before_a_crash_goes_on_behind_what_was_reserved() {
    for durability in [Durability::Speculative, Durability::Ephemeral] {
        let mut world = World::empty();
        let open = OpenStream { config: config(durability), ..with(settings()) };
        ask(&mut world, StreamCommand::Open(Box::new(open)));
        append(&mut world, "before", plain());
        let count = world.journal.records.len();
        let mut world = world.crashed(count);
        let last = world.journal.records.last();
        assert!(matches!(last, Some((Record::Lost { .. }, _))), "{durability}: {last:?}");
        let waits = StreamRead { waits: true, ..read_at(1) };
        assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None, "{durability}");
        // Who had read what is not there any more is told so, and where to go on.
        for inside in [2, 1000] {
            let rolled_back = refused(ask(&mut world, StreamCommand::Read(read_at(inside))));
            let StreamRefusal::RolledBack { next } = rolled_back else { panic!("{rolled_back}") };
            assert_eq!(next, world.engine.end_of(ORDERS).expect("it is open"), "{durability}");
        }
        append(&mut world, "after", plain());
        assert_eq!(texts(&read(&mut world, read_at(1))), ["after"], "{durability}");
        assert_eq!(texts(&read(&mut world, read_at(0))), ["before", "after"], "{durability}");
    }
}

#[test]
fn more_than_a_batch_holds_is_appended_at_once_and_noted_with_the_last() {
    for durability in Durability::ALL {
        let mut world = World::empty();
        let several =
            |texts: [&'static str; 3]| Content::of(texts.map(|text| batch(&[Message::new(text)])));
        let open = OpenStream {
            config: config(durability),
            content: several(["a", "b", "c"]),
            ..with(settings())
        };
        let Some(StreamAnswer::Opened { created: true, status }) =
            ask(&mut world, StreamCommand::Open(Box::new(open)))
        else {
            panic!("{durability}")
        };
        assert_eq!((status.next, status.is_closed), (Offset(3), false), "{durability}");
        let append = StreamAppend {
            content: several(["d", "e", "f"]),
            content_type: None,
            note: closing(by(0, 0)),
        };
        let command = StreamCommand::Append(Box::new(append));
        for is_duplicate in [false, true] {
            let Some(StreamAnswer::Appended(appended)) = ask(&mut world, command.clone()) else {
                panic!("{durability}")
            };
            assert_eq!((appended.next, appended.is_closed), (Offset(6), true), "{durability}");
            assert_eq!(appended.is_duplicate, is_duplicate, "{durability}");
        }
        let chunk = read(&mut world, read_at(0));
        assert_eq!(texts(&chunk), ["a", "b", "c", "d", "e", "f"], "{durability}");
        assert!(chunk.is_closed, "{durability}");
    }
}

#[test]
fn nobody_makes_a_fork_of_a_stream_whose_topic_is_about_to_go() {
    let mut opened = opened(settings());
    append(&mut opened, "a", plain());
    let mut topic = World::with(config(Durability::Durable), Default::default());
    topic.publish_texts(&["a"]);
    for mut world in [opened, topic] {
        let deleted = ask(&mut world, StreamCommand::Delete);
        assert!(matches!(deleted, Some(StreamAnswer::Deleted { is_unused: true, .. })));
        for mut world in [replayed(&world), world] {
            let left: Vec<_> = world.engine.held_streams().collect();
            assert_eq!(left, [(ORDERS, None)], "a start finishes it");
            let fork = ask(&mut world, StreamCommand::AddFork(TopicId(9)));
            assert_eq!(refused(fork), StreamRefusal::Unknown);
        }
    }
}

#[test]
fn a_topic_that_keeps_the_latest_of_each_key_takes_no_append_without_one() {
    let mut world = World::empty();
    let config =
        TopicConfig { retention: Retention::LATEST_PER_KEY, ..config(Durability::Durable) };
    let open = OpenStream { config, ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    let content = Some(batch(&[Message::new("a")]).into());
    let append = StreamAppend { content, content_type: None, note: by(1, 0) };
    assert_eq!(ask(&mut world, StreamCommand::Append(Box::new(append.clone()))), None);
    world.effects.clear();
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, StreamCommand::Append(Box::new(append))));
    assert_eq!(world.refusals(), [Refusal::KeyMissing]);
    assert_eq!(world.describe(ORDERS).end, Offset(0));
}

#[test]
fn who_waits_at_the_end_is_told_of_a_close_that_appends_nothing() {
    let mut world = opened(settings());
    append(&mut world, "a", plain());
    let waits = StreamRead { waits: true, ..read_at(1) };
    assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None);
    let origin = world.origin(ALICE);
    let note = closing(plain());
    let close = StreamAppend { content: None, content_type: None, note };
    world.do_now(Command::Stream(origin, ORDERS, StreamCommand::Append(Box::new(close))));
    let told = answers(&mut world);
    let ends =
        |answer: &StreamAnswer| matches!(answer, StreamAnswer::Chunk(chunk) if chunk.is_closed);
    assert_eq!((told.len(), told.iter().filter(|answer| ends(answer)).count()), (2, 1), "{told:?}");
}

#[test]
fn who_waits_to_read_a_stream_is_told_that_it_is_deleted() {
    let mut world = opened(settings());
    ask(&mut world, StreamCommand::AddFork(TopicId(9)));
    let waits = StreamRead { waits: true, ..read_at(0) };
    assert_eq!(ask(&mut world, StreamCommand::Read(waits)), None);
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, ORDERS, StreamCommand::Delete));
    let told = answers(&mut world);
    assert!(told.contains(&StreamAnswer::Refused(StreamRefusal::Deleted)), "{told:?}");
}

#[test]
fn a_start_counts_as_a_use_and_the_time_to_live_runs_from_there() {
    for from_checkpoint in [false, true] {
        let mut world = opened(StreamSettings { time_to_live: Some(10), ..settings() });
        let mut snapshot = Vec::new();
        world.engine.encode_snapshot(&mut snapshot);
        world.now = world.now.plus(Duration::from_secs(100));
        let mut world = if from_checkpoint {
            let (now, second) = (world.now, Generation(2));
            let engine = sennit_engine::Engine::from_snapshot(snapshot.into(), second, now);
            world.engine = engine.expect("it is whole");
            world
        } else {
            let records = world.journal.records.len();
            world.crashed(records)
        };
        world.pass(Duration::from_secs(9));
        let asks = StreamCommand::Status { touches: false };
        assert!(matches!(ask(&mut world, asks), Some(StreamAnswer::Status(_))));
        world.effects.clear();
        world.pass(Duration::from_secs(1));
        let ended = |effect: &Effect| matches!(effect, Effect::StreamEnded { .. });
        assert!(world.effects.iter().any(ended), "{:?}", world.effects);
    }
}

//! How a stream begins: opened with and without content, once more, and on a topic that is there.

use std::time::Duration;

use sennit_engine::{
    Content, ForkOf, OpenStream, Record, StreamAnswer, StreamCommand, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Durability, GroupConfig, Message, Offset, Retention, Timestamp, TopicConfig, TopicId,
};

use crate::world::{
    BOB, DEAD, ORDERS, World, batch,
    streams::{
        append, ask, by, closing, config, opened, plain, read, read_at, refused, replayed,
        settings, texts, with,
    },
};

#[test]
fn a_stream_that_is_opened_again_has_to_be_the_same() {
    let mut world = opened(settings());
    let again = ask(&mut world, StreamCommand::Open(Box::new(with(settings()))));
    assert!(matches!(again, Some(StreamAnswer::Opened { created: false, .. })));
    let other = StreamSettings { content_type: "application/json".into(), ..settings() };
    let other = refused(ask(&mut world, StreamCommand::Open(Box::new(with(other)))));
    assert_eq!(other, StreamRefusal::SettingsDiffer { field: "content type" });
    let closed = OpenStream { closes: true, ..with(settings()) };
    let closed = refused(ask(&mut world, StreamCommand::Open(Box::new(closed))));
    assert_eq!(closed, StreamRefusal::SettingsDiffer { field: "closed state" });
}

#[test]
fn whatever_setting_of_a_stream_is_asked_for_otherwise_is_named() {
    let fork = |name: &str, token: &str, behind| {
        let (source, home, requested) = (DEAD, DEAD.topic, (token.into(), behind));
        let fork = ForkOf { source, home, name: name.into(), at: Offset(3), requested };
        StreamSettings { fork: Some(fork), ..settings() }
    };
    let lives = |seconds| StreamSettings { time_to_live: Some(seconds), ..settings() };
    let ends = |at| StreamSettings { expires_at: Some((at, "then".into())), ..settings() };
    let of_fork = "source, offset or sub-offset of the fork";
    for (held, asked, field) in [
        (lives(10), lives(11), "time to live"),
        (settings(), lives(11), "time to live"),
        (ends(Timestamp(1 << 40)), ends(Timestamp(1 << 41)), "expiry"),
        (ends(Timestamp(1 << 40)), settings(), "expiry"),
        (fork("a", "", 0), fork("b", "", 0), of_fork),
        (fork("a", "", 0), fork("a", "7", 0), of_fork),
        (fork("a", "", 0), fork("a", "", 1), of_fork),
        (fork("a", "", 0), settings(), of_fork),
    ] {
        let mut world = opened(held.clone());
        let differs = refused(ask(&mut world, StreamCommand::Open(Box::new(with(asked)))));
        assert_eq!(differs, StreamRefusal::SettingsDiffer { field });
        let same = ask(&mut world, StreamCommand::Open(Box::new(with(held))));
        assert!(matches!(same, Some(StreamAnswer::Opened { created: false, .. })), "{same:?}");
    }
}

#[test]
fn a_stream_that_is_opened_again_is_used() {
    let lives = StreamSettings { time_to_live: Some(10), ..settings() };
    let mut world = opened(lives.clone());
    for _ in 0..2 {
        world.pass(Duration::from_secs(6));
        let again = ask(&mut world, StreamCommand::Open(Box::new(with(lives.clone()))));
        assert!(matches!(again, Some(StreamAnswer::Opened { created: false, .. })), "{again:?}");
    }
}

#[test]
fn whatever_its_durability_a_stream_says_where_its_first_content_ends() {
    for durability in Durability::ALL {
        let mut world = World::empty();
        let content = Some(batch(&[Message::new("a"), Message::new("b")]).into());
        let open = OpenStream { config: config(durability), content, ..with(settings()) };
        let answer = ask(&mut world, StreamCommand::Open(Box::new(open)));
        let Some(StreamAnswer::Opened { created: true, status }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(status.next, Offset(2), "{durability}");
        assert_eq!(texts(&read(&mut world, read_at(0))), ["a", "b"], "{durability}");
    }
}

#[test]
fn what_begins_a_stream_whole_also_closes_it() {
    let content = Content::of(["a", "b"].map(|text| batch(&[Message::new(text)])));
    let mut world = World::empty();
    let open = OpenStream { content, closes: true, ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    for mut world in [replayed(&world), world] {
        let chunk = read(&mut world, read_at(0));
        assert_eq!((texts(&chunk), chunk.is_closed), (vec!["a".to_owned(), "b".to_owned()], true));
    }
}

#[test]
fn a_topic_without_a_message_becomes_the_stream_that_is_asked_for_and_any_other_stays_what_it_is() {
    for has_message in [false, true] {
        let mut world = World::with(config(Durability::Durable), Default::default());
        if has_message {
            world.publish_texts(&["a"]);
        }
        let answer = ask(&mut world, StreamCommand::Open(Box::new(with(settings()))));
        if has_message {
            assert_eq!(refused(answer), StreamRefusal::NativeTopic);
        } else {
            assert!(matches!(answer, Some(StreamAnswer::Opened { created: true, .. })));
        }
    }
}

#[test]
fn a_native_topic_is_read_and_not_changed_whatever_is_remembered_of_it() {
    let mut world = World::with(config(Durability::Durable), Default::default());
    world.publish_texts(&["a"]);
    for has_fork in [false, true] {
        if has_fork {
            let fork = ask(&mut world, StreamCommand::AddFork(TopicId(9)));
            assert!(matches!(fork, Some(StreamAnswer::Status(_))), "{fork:?}");
        }
        let mut world = replayed(&world);
        for note in [plain(), by(1, 0), closing(plain())] {
            let refusal = refused(Some(append(&mut world, "b", note)));
            assert_eq!(refusal, StreamRefusal::NativeTopic, "{has_fork}");
        }
        let open = StreamCommand::Open(Box::new(with(StreamSettings::of_topic())));
        assert_eq!(refused(ask(&mut world, open)), StreamRefusal::NativeTopic, "{has_fork}");
        let told = ask(&mut world, StreamCommand::Status { touches: false });
        let is_native =
            |told: &StreamAnswer| matches!(told, StreamAnswer::Status(it) if !it.is_opened);
        assert!(told.as_ref().is_some_and(is_native), "{told:?}");
        assert_eq!(texts(&read(&mut world, read_at(0))), ["a"]);
    }
}

#[test]
fn a_topic_without_a_message_that_becomes_a_fork_keeps_its_groups_and_who_takes_part() {
    let mut world = World::with(config(Durability::Durable), GroupConfig::default());
    world.subscribe(BOB, 5);
    let fork = ForkOf {
        source: DEAD,
        home: ORDERS.topic,
        name: "source".into(),
        at: Offset(3),
        requested: ("".into(), 0),
    };
    let open = with(StreamSettings { fork: Some(fork), ..settings() });
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    world.publish_texts(&["a"]);
    assert_eq!(world.delivered(), [(3, 1, "a".to_owned())]);
    for (mut world, consumers) in [(replayed(&world), 0), (world, 1)] {
        let told = world.describe(ORDERS);
        assert_eq!((told.start, told.end, told.groups.len()), (Offset(3), Offset(4), 1));
        let group = told.groups[0];
        assert_eq!((group.settled_before, group.consumers), (Offset(3), consumers));
        assert_eq!(group.ready + group.leased, 1);
    }
}

#[test]
fn what_begins_a_durable_stream_is_there_as_soon_as_the_stream_is() {
    let mut world = World::empty();
    let content = Some(batch(&[Message::new("a"), Message::new("b")]).into());
    let open = OpenStream { content, closes: true, ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    let is_opened = |(record, _): &(Record, u64)| matches!(record, Record::StreamOpened(_));
    let opened = world.journal.records.iter().position(is_opened).expect("it was opened");
    let chunk = read(&mut world.crashed(opened + 1), read_at(0));
    assert_eq!((texts(&chunk), chunk.is_closed), (vec!["a".to_owned(), "b".to_owned()], true));
}

#[test]
fn only_what_is_given_before_it_is_committed_has_offsets_reserved() {
    for durability in Durability::ALL {
        let mut world = World::empty();
        let open = OpenStream { config: config(durability), ..with(settings()) };
        ask(&mut world, StreamCommand::Open(Box::new(open)));
        append(&mut world, "a", plain());
        let is_reserved = |(record, _): &(Record, u64)| matches!(record, Record::Reserved { .. });
        let has_reserved = world.journal.records.iter().any(is_reserved);
        assert_eq!(has_reserved, durability != Durability::Durable, "{durability}");
    }
}

#[test]
fn a_stream_that_keeps_the_latest_of_each_key_does_not_begin_without_one() {
    let config =
        TopicConfig { retention: Retention::LATEST_PER_KEY, ..config(Durability::Durable) };
    for key in ["", "k"] {
        let mut world = World::empty();
        let content = Some(batch(&[Message { key: key.into(), ..Message::new("a") }]).into());
        let open = OpenStream { config: config.clone(), content, ..with(settings()) };
        let answer = ask(&mut world, StreamCommand::Open(Box::new(open)));
        let is_created = matches!(answer, Some(StreamAnswer::Opened { created: true, .. }));
        assert_eq!(is_created, !key.is_empty());
        let asks = StreamCommand::Status { touches: false };
        let is_there = matches!(ask(&mut world, asks), Some(StreamAnswer::Status(_)));
        assert_eq!(is_there, !key.is_empty());
    }
}

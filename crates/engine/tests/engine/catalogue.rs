//! Which topics there are, and under which names they are found.

use std::time::Duration;

use bytes::Bytes;
use sennit_engine::{
    CatalogueCommand, CatalogueNews, Command, GroupSetting, Place, Record, Replay, Replayed,
};
use sennit_model::{
    Generation, GroupConfig, GroupId, GroupName, Incarnation, Offset, StartAt, TopicConfig,
    TopicId, TopicKind,
};

use crate::world::{ALICE, ORDERS, World};

const INCARNATION: Incarnation = Incarnation(1);

fn change(world: &mut World, command: CatalogueCommand) {
    let origin = world.origin(ALICE);
    world.do_now(Command::Catalogue(origin, command));
    assert_eq!(world.refusals(), []);
}

fn named(world: &World, name: &str) -> Option<TopicId> {
    world
        .engine
        .catalogue()
        .topic_named(&name.parse().expect("it is a name"))
        .map(|topic| topic.id())
}

fn create(world: &mut World, name: &str) -> TopicId {
    let config = TopicConfig::of_kind(TopicKind::Queue);
    let (incarnation, name_of_it) = (INCARNATION, name.parse().expect("it is a name"));
    change(
        world,
        CatalogueCommand::CreateTopic {
            name: name_of_it,
            config,
            incarnation,
            placed: None,
            is_stream: false,
        },
    );
    named(world, name).expect("it was made")
}

/// Has the dead letters of a topic have a place, and says which.
fn bury(world: &mut World, source: TopicId) -> TopicId {
    let incarnation = INCARNATION;
    change(world, CatalogueCommand::CreateDeadLetterTopic { source, incarnation });
    world.engine.catalogue().topics().last().expect("it was made").id()
}

#[test]
fn news_are_kept_once_somebody_asks_for_them_and_changes_are_always_counted() {
    let mut world = World::empty();
    create(&mut world, "before");
    assert_eq!(world.engine.take_catalogue_news(), None);
    assert_eq!(world.engine.take_catalogue_news(), Some(Vec::new()));
    let counted = world.engine.catalogue().change_count();

    let topic = create(&mut world, "orders");
    let held = world.engine.catalogue().topic(topic).cloned().expect("it was made");
    let config = held.config().clone();
    change(&mut world, CatalogueCommand::AlterTopic { topic, config });
    let group = CatalogueCommand::CreateGroup {
        topic,
        name: "workers".parse().expect("it is a name"),
        config: GroupConfig::default(),
        start: StartAt::Earliest,
    };
    change(&mut world, group);
    let with_group = world.engine.catalogue().topic(topic).cloned().expect("it is there");
    change(&mut world, CatalogueCommand::DeleteTopic { topic });
    let news = world.engine.take_catalogue_news().expect("they are kept");
    let (made, gone) =
        (CatalogueNews::Created(topic), CatalogueNews::Deleted(Box::new(with_group)));
    assert_eq!((news.first(), news.last()), (Some(&made), Some(&gone)));
    assert!(!news.iter().any(|news| matches!(news, CatalogueNews::Altered(of) if *of != topic)));
    assert!(world.engine.catalogue().change_count() >= counted + 3);
    assert_eq!(world.engine.take_catalogue_news(), Some(Vec::new()));
}

#[test]
fn dead_letters_of_a_topic_that_is_gone_stay_where_they_are_found() {
    let mut world = World::empty();
    let first = create(&mut world, "orders");
    let old = bury(&mut world, first);
    change(&mut world, CatalogueCommand::DeleteTopic { topic: first });
    let second = create(&mut world, "orders");
    // Somebody was quick to take the name that comes next.
    let taken = create(&mut world, &format!("orders-{}.dead-letter", second.0));
    let new = bury(&mut world, second);
    let next = format!("orders-{}.dead-letter", second.0 + 1);
    assert_eq!(named(&world, "orders.dead-letter"), Some(old));
    assert_eq!(named(&world, &next), Some(new));
    change(&mut world, CatalogueCommand::DeleteTopic { topic: new });
    assert_eq!((named(&world, &next), named(&world, "orders.dead-letter")), (None, Some(old)));
    assert_eq!(taken.0 + 1, new.0);
}

#[test]
fn dead_letters_of_a_topic_with_a_long_name_have_a_topic_too() {
    let mut world = World::empty();
    let long = "x".repeat(200);
    let first = create(&mut world, &long);
    let old = bury(&mut world, first);
    change(&mut world, CatalogueCommand::DeleteTopic { topic: first });
    let second = create(&mut world, &long);
    let new = bury(&mut world, second);
    assert!(old != new && new != second);
    let kept = "x".repeat(171);
    for topic in [old, new] {
        let topic = world.engine.catalogue().topic(topic).expect("it was made");
        let name = topic.created.name.as_str();
        assert!(name.starts_with(&kept) && name.ends_with(".dead-letter"), "{name}");
    }
}

#[test]
fn an_altered_group_keeps_its_number_name_and_start_over_a_restart() {
    let mut world = World::empty();
    let topic = create(&mut world, "orders");
    let name: GroupName = "billing".parse().expect("it is a name");
    let (config, start) = (GroupConfig::default(), StartAt::Latest);
    change(
        &mut world,
        CatalogueCommand::CreateGroup { topic, name: name.clone(), config: config.clone(), start },
    );
    let group = |world: &World| {
        let topic = world.engine.catalogue().topic(topic).expect("it is there");
        topic.group(&name).expect("it is there").setting()
    };
    let before = group(&world);
    let config = GroupConfig { attempts_max: 3, ..config };
    let alter = CatalogueCommand::AlterGroup { topic, group: before.id, config: config.clone() };
    change(&mut world, alter.clone());
    assert_eq!(group(&world), GroupSetting { config: config.clone(), ..before });
    let records = world.journal.records.len();
    // What is as it should be is not written again.
    change(&mut world, alter);
    assert_eq!(world.journal.records.len(), records);
    world.engine = world.replayed();
    assert_eq!(group(&world), GroupSetting { config, ..before });
}

#[test]
fn an_altered_topic_is_a_stream_afterwards_only_if_it_was_created_as_one() {
    let mut world = World::empty();
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let altered = TopicConfig { time_to_live: Some(Duration::from_secs(60)), ..config.clone() };
    let kinds = [("events", true), ("prices", false)];
    for (name, is_stream) in kinds {
        let (incarnation, placed) = (INCARNATION, None);
        let name_of_it = name.parse().expect("it is a name");
        let create = CatalogueCommand::CreateTopic {
            name: name_of_it,
            config: config.clone(),
            incarnation,
            placed,
            is_stream,
        };
        change(&mut world, create);
        let topic = named(&world, name).expect("it was made");
        change(&mut world, CatalogueCommand::AlterTopic { topic, config: altered.clone() });
    }
    for engine in [&world.engine, &world.replayed()] {
        for (name, is_stream) in kinds {
            let name = name.parse().expect("it is a name");
            let topic = engine.catalogue().topic_named(&name).expect("it is there");
            assert_eq!((topic.config(), topic.created.is_stream()), (&altered, is_stream));
        }
    }
}

/// Creates a group, and says which.
fn create_group(world: &mut World, topic: TopicId, name: &str) -> GroupId {
    let (config, start) = (GroupConfig::default(), StartAt::Earliest);
    let name = name.parse().expect("it is a name");
    world.effects.clear();
    change(world, CatalogueCommand::CreateGroup { topic, name, config, start });
    let groups = |(record, _): &(Record, u64)| match record {
        Record::GroupCreated { setting, .. } => Some(setting.id),
        _ => None,
    };
    world.journal.records.iter().rev().find_map(groups).expect("it was made")
}

fn take(replay: &mut Replay, record: &Record, position: u64) -> Replayed {
    let mut body = Vec::new();
    record.encode_head(&mut body);
    body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
    replay.record(record.kind(), position, body.into()).expect("what a hole leaves is no error")
}

/// The world after a start that found a hole of so many bytes instead of the records `lost`.
fn behind_a_hole(mut world: World, lost: std::ops::Range<usize>, bytes: u64) -> World {
    let mut replay = Replay::new(world.now);
    for (at, (record, position)) in world.journal.records.iter().enumerate() {
        if at == lost.start {
            replay.damage(bytes);
        }
        if !lost.contains(&at) {
            take(&mut replay, record, *position);
        }
    }
    if lost.start == world.journal.records.len() {
        replay.damage(bytes);
    }
    world.engine = replay.finish(Generation(2), true).expect("nothing of a checkpoint").0;
    world
}

#[test]
fn numbers_of_topics_and_groups_that_a_hole_may_have_given_are_given_to_no_others() {
    // So many records a hole may hold at most.
    const BYTES: u64 = 4096;
    const MOST: u32 = BYTES as u32 / 16;
    let mut world = World::empty();
    let orders = create(&mut world, "orders");
    let workers = create_group(&mut world, orders, "workers");
    let records = world.journal.records.len();
    let mut world = behind_a_hole(world, records..records, BYTES);
    let may_be_lost = [1, MOST].map(|nth| TopicId(orders.0 + nth));
    assert!(may_be_lost.iter().all(|topic| world.engine.catalogue().may_have_lost(*topic)));
    let mails = create(&mut world, "mails");
    assert!(mails.0 > orders.0 + MOST, "{mails:?} behind {orders:?}");
    assert!(!world.engine.catalogue().may_have_lost(mails));
    let others = create_group(&mut world, mails, "others");
    assert!(others.0 > workers.0 + MOST, "{others:?} behind {workers:?}");
}

#[test]
fn topics_between_those_on_both_sides_of_a_hole_may_be_lost_and_no_others() {
    let mut world = World::empty();
    let first = create(&mut world, "first");
    let before = world.journal.records.len();
    let lost = ["second", "third"].map(|name| create(&mut world, name));
    let hole = before..world.journal.records.len();
    let last = create(&mut world, "last");
    let world = behind_a_hole(world, hole, 100);
    let catalogue = world.engine.catalogue();
    assert!(lost.iter().all(|topic| catalogue.may_have_lost(*topic)));
    assert!(![first, last].iter().any(|topic| catalogue.may_have_lost(*topic)));
}

#[test]
fn where_something_lies_counts_though_it_is_said_behind_a_checkpoint_that_is_not_whole() {
    let mut replay = Replay::new(World::empty().now);
    take(&mut replay, &Record::CheckpointBegan { next_topic: 3, next_group: 3 }, 0);
    replay.damage(100);
    let part = Record::CheckpointPart { ends: true, bytes: Bytes::from_static(b"no piece") };
    take(&mut replay, &part, 200);
    let place = Place { position: 1 << 63 | 9 << 32 | 4096, bytes: 10 };
    take(&mut replay, &Record::Moved { partition: ORDERS, moves: vec![(Offset(0), place)] }, 300);
    assert_eq!(replay.highest_place(), place.position);
    assert!(replay.finish(Generation(2), false).is_none(), "there is nothing to build on");
}

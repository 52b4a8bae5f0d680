//! Which topics there are, and under which names they are found.

mod world;

use sennit_engine::{CatalogueCommand, Command};
use sennit_model::{Incarnation, TopicConfig, TopicId, TopicKind};
use world::{ALICE, World};

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

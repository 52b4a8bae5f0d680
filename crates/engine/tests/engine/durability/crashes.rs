//! Any number of crashes at any moment: an offset that somebody has seen is never another message's.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Publish(u8),
    Burst,
    Commit(u8),
    Subscribe,
    Checkpoint,
    Stop,
    Crash(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..4u8).prop_map(Step::Publish),
        1 => Just(Step::Burst),
        4 => prop_oneof![Just(255), any::<u8>()].prop_map(Step::Commit),
        2 => Just(Step::Subscribe),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Stop),
        2 => any::<u8>().prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_offset_is_given_to_one_message_only_through_any_number_of_crashes(
        durability in proptest::sample::select(&Durability::ALL[..]),
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let mut world = World::with(of(durability), GroupConfig::default());
        // Committed: so many records, and what was confirmed by then.
        let mut committed = world.journal.records.len();
        let mut seen: BTreeMap<u64, String> = BTreeMap::new();
        let mut confirmed_later: BTreeMap<u64, String> = BTreeMap::new();
        let (mut number, mut waiting): (u64, Vec<(u64, String)>) = (0, Vec::new());
        let origin = world.origin(BOB);
        let follow = |world: &mut World| {
            let command = read(world, BOB, 0);
            turn(world, command).0
        };
        let group = Subscribe { origin, subscription: 5, partition: ORDERS, group: GROUP, credit: WIDE };
        let mut came = follow(&mut world);
        for step in steps {
            match step {
                Step::Publish(count) => {
                    let texts: Vec<_> = (0..count).map(|_| { number += 1; format!("{number}") }).collect();
                    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                    let command = publish(&mut world, ProducerStamp::default(), &texts);
                    let (now, later) = turn(&mut world, command);
                    for (first, _) in confirmed(&later) {
                        waiting.extend((first..).zip(texts.iter().map(|text| (*text).to_owned())));
                    }
                    came.extend(now);
                }
                Step::Burst => {
                    let texts: Vec<_> = (0..12_000).map(|_| { number += 1; format!("{number}") }).collect();
                    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                    let command = publish(&mut world, ProducerStamp::default(), &texts);
                    came.extend(turn(&mut world, command).0);
                }
                Step::Commit(part) if part < 255 => {
                    let some = world.journal.records.len() - committed;
                    committed += usize::from(part) % (some + 1);
                    let end = world.journal.records.get(committed).map(|(_, position)| *position);
                    let end = end.unwrap_or(world.journal.end);
                    world.engine.committed(end);
                    let nothing = Command::EndSession { session: SessionId(99), grace: Default::default() };
                    came.extend(turn(&mut world, nothing).0);
                }
                Step::Commit(_) => {
                    committed = world.journal.records.len();
                    world.finish(Outbox::default());
                    came.append(&mut world.effects);
                    confirmed_later.extend(waiting.drain(..));
                }
                Step::Subscribe => came.extend(turn(&mut world, Command::Subscribe(group)).0),
                Step::Checkpoint => {
                    let mut checkpoint = world.engine.begin_checkpoint(200);
                    while !world.engine.checkpoint_step(&mut checkpoint, &mut world.journal) {}
                }
                Step::Stop => world.engine.give_back_reserved(&mut world.journal),
                Step::Crash(more) => {
                    // Of what was not committed a part may have been written.
                    let unsure = world.journal.records.len() - committed;
                    let kept = committed + usize::from(more) % (unsure + 1);
                    world = world.crashed(kept);
                    committed = world.journal.records.len();
                    waiting.clear();
                    came.append(&mut world.effects);
                    came.extend(follow(&mut world));
                    check(&world.engine);
                }
            }
            for effect in came.drain(..) {
                let Effect::Deliver(given) = effect else { continue };
                let texts = Messages::of_checked(&given.messages);
                let texts = texts.map(|message| String::from_utf8_lossy(message.payload()).into_owned());
                for (offset, text) in (given.first.0..).zip(texts) {
                    let before = seen.entry(offset).or_insert_with(|| text.clone());
                    prop_assert_eq!(&*before, &text, "offset {} was given twice", offset);
                    if given.durability == Durability::Durable {
                        prop_assert!(durability != Durability::Memory);
                    }
                }
            }
        }
        // What was confirmed behind the commit is there, unless it is never written.
        let left = world.crashed(committed);
        if durability != Durability::Memory {
            let there = kept(&left.engine, &left);
            for (offset, text) in confirmed_later {
                prop_assert_eq!(there.get(&offset), Some(&text), "offset {} is lost", offset);
            }
        }
    }
}

/// Every message that is kept.
fn kept(engine: &Engine, world: &World) -> BTreeMap<u64, String> {
    let batches = engine.batches().filter(|held| held.partition == ORDERS).flat_map(|held| {
        let batch = &world.journal.batches[&held.place.position];
        let texts = Messages::of_checked(batch);
        let texts = texts.map(|message| String::from_utf8_lossy(message.payload()).into_owned());
        (held.first.0..).zip(texts).collect::<Vec<_>>()
    });
    batches.collect()
}

//! What a replay makes of a journal with a hole in it, told by hand.

use super::*;

/// A world with three messages published one by one, and which of its records is the second.
fn three_messages() -> (World, usize) {
    let mut world = World::with(queue(), GroupConfig::default());
    for text in ["a", "b", "c"] {
        world.publish_texts(&[text]);
    }
    let second = |(record, _): &(Record, u64)| {
        matches!(record, Record::Appended { partition: ORDERS, first: Offset(1), .. })
    };
    let at = world.journal.records.iter().position(second).expect("it was appended");
    (world, at)
}

fn lost_of(partition: PartitionId, lost: &[Record]) -> Vec<(u64, u64)> {
    let range = |record: &Record| match record {
        Record::Lost { partition: of, range } if *of == partition => {
            Some((range.start.0, range.end.0))
        }
        _ => None,
    };
    lost.iter().filter_map(range).collect()
}

#[test]
fn a_record_behind_a_hole_says_where_its_partition_ends_and_others_may_have_lost_messages() {
    let (mut world, second) = three_messages();
    let (engine, lost) = replay_past(&world, 0, second..second + 1).expect("nothing else is gone");
    assert_eq!(lost_of(ORDERS, &lost), []);
    assert!(matches!(lost_of(DEAD, &lost)[..], [(0, 1..)]), "{lost:?}");
    // Behind the last hole: an earlier record cannot say where the partition ends.
    let (last, lost) = replay_past(&world, 0, second + 1..second + 2).expect("the same");
    let [(2, end @ 3..)] = lost_of(ORDERS, &lost)[..] else { panic!("{lost:?}") };
    for (engine, end) in [(engine, 3), (last, end)] {
        world.engine = engine;
        assert_eq!(world.describe(ORDERS).end, Offset(end));
    }
}

#[test]
fn without_a_hole_nothing_is_lost_and_messages_that_do_not_follow_are_an_error() {
    let (world, second) = three_messages();
    let (_, lost) = replay_lossy(&world, 0);
    assert!(lost.is_empty(), "{lost:?}");
    let mut replay = Replay::new(world.now);
    let mut replayed = Ok(Replayed::Applied);
    for (at, (record, position)) in world.journal.records.iter().enumerate() {
        if at != second && replayed.is_ok() {
            let mut body = Vec::new();
            record.encode_head(&mut body);
            let begin = position - body.len() as u64;
            body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
            replayed = replay.record(record.kind(), begin, body.into());
        }
    }
    let error = replayed.expect_err("the third does not go where the first ends");
    assert!(error.to_string().contains("first offset"), "{error}");
}

#[test]
fn offsets_that_a_hole_may_have_reserved_are_given_to_nobody() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let config = TopicConfig { durability, ..queue() };
        let mut world = World::with(config, GroupConfig::default());
        world.publish_texts(&["a"]);
        let reserved = |(record, _): &(Record, u64)| matches!(record, Record::Reserved { .. });
        let at = world.journal.records.iter().position(reserved).expect("it was reserved");
        let records = world.journal.records.len();
        let (_, lost) = replay_past(&world, 0, at..records).expect("nothing of a checkpoint");
        let [(0, end)] = lost_of(ORDERS, &lost)[..] else { panic!("{lost:?}") };
        assert!(end > RESERVED_OFFSETS, "{durability}: {end}");
    }
}

#[test]
fn what_lies_behind_a_hole_that_took_the_opening_stays_whatever_the_durability_turns_out_to_be() {
    for durability in [Durability::Durable, Durability::Speculative, Durability::Ephemeral] {
        let config = TopicConfig { durability, ..queue() };
        let mut world = World::with(config.clone(), GroupConfig::default());
        world.publish_texts(&["a"]);
        world.publish_texts(&["b"]);
        let of_b = |(record, _): &(Record, u64)| {
            matches!(record, Record::Appended { partition: ORDERS, first: Offset(1), .. })
        };
        let at = world.journal.records.iter().position(of_b).expect("it was appended");
        let (engine, _) = replay_past(&world, 0, 0..at).expect("nothing of a checkpoint");
        world.engine = engine;
        let groups = vec![setting(GroupConfig::default())];
        world.open(ORDERS, config, groups, DeadLetters::NotYet);
        world.effects.clear();
        world.subscribe(SessionId(1), 5);
        let delivered = world.delivered();
        assert_eq!(delivered, [(1, 1, "b".to_owned())], "{durability}");
        // What the hole may have given is still not given again.
        let end = world.describe(ORDERS).end;
        assert_eq!(end > Offset(RESERVED_OFFSETS), durability != Durability::Durable, "{end:?}");
    }
}

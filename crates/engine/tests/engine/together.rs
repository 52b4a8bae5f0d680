//! Appends to several streams at once: to all of them or to none.

use std::time::Duration;

use sennit_engine::{
    CatalogueCommand, Command, Effect, OpenStream, Outbox, Placed, StreamAnswer, StreamAppend,
    StreamAppended, StreamCommand, StreamNote, StreamProducer, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Durability, Incarnation, Message, Offset, PartitionId, PartitionIndex, TopicConfig, TopicId,
    TopicKind,
};

use crate::world::{ALICE, DEAD, ORDERS, World, batch};

const THIRD: PartitionId = PartitionId { topic: TopicId(3), index: PartitionIndex(0) };
const ELSEWHERE: PartitionId = PartitionId { topic: TopicId(9), index: PartitionIndex(0) };
const ALL: [PartitionId; 3] = [ORDERS, DEAD, THIRD];

fn in_group(group: Option<&str>) -> StreamSettings {
    StreamSettings { group: group.map(Into::into), ..StreamSettings::of_topic() }
}

fn open(world: &mut World, id: PartitionId, settings: StreamSettings) -> StreamAnswer {
    open_as(world, id, settings, Durability::Durable)
}

fn open_as(
    world: &mut World,
    id: PartitionId,
    settings: StreamSettings,
    durability: Durability,
) -> StreamAnswer {
    let config = TopicConfig { durability, ..TopicConfig::of_kind(TopicKind::Stream) };
    let open = OpenStream { config, settings, content: None, closes: false };
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, id, StreamCommand::Open(Box::new(open))));
    answer(world)
}

fn answer(world: &mut World) -> StreamAnswer {
    let answer = |effect| match effect {
        Effect::Stream(_, answer) => Some(*answer),
        _ => None,
    };
    world.effects.drain(..).find_map(answer).expect("an answer")
}

/// Three streams of one group.
fn grouped() -> World {
    let mut world = World::empty();
    for id in ALL {
        open(&mut world, id, in_group(Some("accounts")));
    }
    world
}

fn append(text: &str, sequence: Option<u64>) -> StreamAppend {
    let producer = |sequence| StreamProducer { id: "writer".into(), epoch: 0, sequence };
    let note = StreamNote { producer: sequence.map(producer), ..StreamNote::default() };
    let content = (!text.is_empty()).then(|| batch(&[Message::new(text.to_owned())]).into());
    StreamAppend { content, content_type: None, note }
}

fn together(world: &mut World, appends: Vec<(PartitionId, StreamAppend)>) -> StreamAnswer {
    let origin = world.origin(ALICE);
    world.effects.clear();
    world.do_now(Command::AppendTogether(origin, appends));
    answer(world)
}

fn to_all(world: &mut World, sequences: [Option<u64>; 3]) -> StreamAnswer {
    let each = ALL.into_iter().zip(sequences).map(|(id, sequence)| (id, append("x", sequence)));
    let each = each.collect();
    together(world, each)
}

fn ends(world: &World) -> [u64; 3] {
    ALL.map(|id| world.engine.end_of(id).expect("it is open").0)
}

#[track_caller]
fn all_refused(
    world: &mut World,
    appends: Vec<(PartitionId, StreamAppend)>,
    at: usize,
) -> StreamRefusal {
    let (before, records) = (ends(world), world.journal.records.len());
    match together(world, appends) {
        StreamAnswer::RefusedTogether { which, refusal } => {
            assert_eq!(which, at, "{refusal}");
            assert_eq!((ends(world), world.journal.records.len()), (before, records));
            refusal
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_appended_together_is_in_all_streams_and_each_offset_is_told() {
    let mut world = grouped();
    together(&mut world, vec![(DEAD, append("before", None))]);
    let StreamAnswer::AppendedTogether(became) = to_all(&mut world, [None; 3]) else { panic!() };
    let nexts: Vec<_> = became.iter().map(|appended| appended.next).collect();
    assert_eq!(nexts, [Offset(1), Offset(2), Offset(1)]);
    assert_eq!(ends(&world), [1, 2, 1]);
    // One record is whole by itself.
    assert_eq!(world.journal.held_together, [3]);
}

#[test]
fn an_append_to_several_streams_is_answered_when_it_is_committed_and_not_before() {
    for is_refused in [false, true] {
        let mut world = grouped();
        let (mut out, origin) = (Outbox::default(), world.origin(ALICE));
        let mut appends: Vec<_> = ALL.into_iter().map(|id| (id, append("x", None))).collect();
        if is_refused {
            appends.push((ELSEWHERE, append("x", None)));
        }
        let command = Command::AppendTogether(origin, appends);
        world.engine.handle(command, world.now, &mut world.journal, &mut out);
        assert!(out.now.is_empty(), "{:?}", out.now);
        let answers = out.after_commit.iter().filter(|effect| matches!(effect, Effect::Stream(..)));
        assert_eq!(answers.count(), 1);
    }
}

#[test]
fn to_close_what_is_closed_goes_together_with_an_append_to_another() {
    let mut world = grouped();
    let closes = || StreamAppend {
        note: StreamNote { closes: true, ..StreamNote::default() },
        ..append("", None)
    };
    together(&mut world, vec![(DEAD, closes())]);
    let both = vec![(DEAD, closes()), (THIRD, append("x", Some(0)))];
    let StreamAnswer::AppendedTogether(became) = together(&mut world, both) else { panic!() };
    let became: Vec<_> = became.iter().map(|each| (each.is_closed, each.is_duplicate)).collect();
    assert_eq!(became, [(true, false), (false, false)]);
    assert_eq!(ends(&world), [0, 0, 1]);
}

#[test]
fn closing_is_done_together_with_the_others() {
    let mut world = grouped();
    let mut close = append("", None);
    close.note.closes = true;
    let appends = vec![(ORDERS, append("last", None)), (DEAD, close.clone()), (THIRD, close)];
    let StreamAnswer::AppendedTogether(became) = together(&mut world, appends) else { panic!() };
    assert_eq!(became.iter().map(|a| a.is_closed).collect::<Vec<_>>(), [false, true, true]);
    all_refused(&mut world, vec![(ORDERS, append("x", None)), (DEAD, append("x", None))], 1);
}

#[test]
fn a_refusal_of_one_refuses_all_and_says_which() {
    let mut world = grouped();
    let with = |last: (PartitionId, StreamAppend)| {
        vec![(ORDERS, append("a", Some(0))), (DEAD, append("b", Some(0))), last]
    };
    let unknown = all_refused(&mut world, with((ELSEWHERE, append("c", None))), 2);
    assert_eq!(unknown, StreamRefusal::Unknown);
    let gap = all_refused(&mut world, with((THIRD, append("c", Some(1)))), 2);
    assert_eq!(gap, StreamRefusal::ProducerGap { expected: 0, received: 1 });
    let mut other = append("c", None);
    other.content_type = Some("text/plain".into());
    let other = all_refused(&mut world, with((THIRD, other)), 2);
    assert!(matches!(other, StreamRefusal::ContentType { .. }));
    let twice = all_refused(&mut world, with((ORDERS, append("c", None))), 2);
    assert_eq!(twice, StreamRefusal::Repeated);
}

#[test]
fn streams_that_are_not_of_one_group_are_not_appended_to_together() {
    for group in [None, Some("others")] {
        let mut world = grouped();
        open(&mut world, ELSEWHERE, in_group(group));
        let appends = vec![(ORDERS, append("a", None)), (ELSEWHERE, append("b", None))];
        assert_eq!(all_refused(&mut world, appends, 1), StreamRefusal::OtherGroup);
    }
    let mut world = grouped();
    open(&mut world, ELSEWHERE, in_group(None));
    let alone = vec![(ELSEWHERE, append("b", None))];
    assert_eq!(all_refused(&mut world, alone, 0), StreamRefusal::OtherGroup);
}

#[test]
fn what_is_sent_again_whole_counts_once() {
    let mut world = grouped();
    to_all(&mut world, [Some(0); 3]);
    let StreamAnswer::AppendedTogether(again) = to_all(&mut world, [Some(0); 3]) else { panic!() };
    let duplicate =
        StreamAppended { next: Offset(1), is_closed: false, is_duplicate: true, sequence: Some(0) };
    assert_eq!(again, [duplicate; 3]);
    assert_eq!(ends(&world), [1, 1, 1]);
}

#[test]
fn what_was_appended_in_part_is_refused() {
    let mut world = grouped();
    to_all(&mut world, [Some(0); 3]);
    for sequences in [[Some(0), Some(0), Some(1)], [Some(0), Some(0), None]] {
        let each = ALL.into_iter().zip(sequences).map(|(id, seq)| (id, append("x", seq))).collect();
        assert_eq!(all_refused(&mut world, each, 2), StreamRefusal::PartlyAppended);
    }
}

#[test]
fn a_stream_stays_in_its_group_and_a_group_is_of_durable_streams() {
    let mut world = grouped();
    for group in [None, Some("others")] {
        let differs =
            StreamAnswer::Refused(StreamRefusal::SettingsDiffer { field: "stream group" });
        assert_eq!(open(&mut world, ORDERS, in_group(group)), differs);
    }
    let again = open(&mut world, ORDERS, in_group(Some("accounts")));
    assert!(matches!(again, StreamAnswer::Opened { created: false, .. }), "{again:?}");
    for durability in [Durability::Memory, Durability::Ephemeral, Durability::Speculative] {
        let refused = open_as(&mut world, ELSEWHERE, in_group(Some("accounts")), durability);
        let differs = StreamRefusal::SettingsDiffer { field: "durability" };
        assert_eq!(refused, StreamAnswer::Refused(differs), "{durability:?}");
    }
}

#[test]
fn a_stream_that_was_said_to_be_over_does_not_come_back_with_a_start() {
    let mut world = grouped();
    let ends = StreamSettings { time_to_live: Some(10), ..in_group(Some("accounts")) };
    open(&mut world, ELSEWHERE, ends);
    world.now = world.now.plus(Duration::from_secs(11));
    let appends = vec![(ORDERS, append("x", None)), (ELSEWHERE, append("x", None))];
    let refusal = StreamRefusal::Unknown;
    assert_eq!(together(&mut world, appends), StreamAnswer::RefusedTogether { which: 1, refusal });
    let mut started = World::empty();
    for (record, position) in &world.journal.records {
        started.engine.apply(record, *position);
    }
    let left: Vec<_> = started.engine.held_streams().collect();
    assert_eq!(left, [(ELSEWHERE, None)]);
}

#[test]
fn a_topic_that_is_placed_gets_a_number_that_lies_there_and_no_number_comes_twice() {
    let mut world = World::empty();
    let mut numbers = Vec::new();
    for (name, shard) in [("a", 2), ("b", 2), ("c", 0), ("d", 1), ("e", 1)] {
        let create = CatalogueCommand::CreateTopic {
            name: name.parse().unwrap(),
            config: TopicConfig::of_kind(TopicKind::Stream),
            incarnation: Incarnation(1),
            placed: Some(Placed { shard, shards: 3 }),
            is_stream: true,
        };
        let origin = world.origin(ALICE);
        world.effects.clear();
        world.do_now(Command::Catalogue(origin, create));
        let Some(Effect::Done { topic, .. }) = world.effects.pop() else { panic!() };
        assert_eq!(topic.0 % 3, shard);
        numbers.push(topic.0);
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

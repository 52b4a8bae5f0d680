//! The workbench: walks over what a group still has, and what they do to it.

use std::{sync::Arc, time::Duration};

use sennit_engine::{
    Command, CountBy, Credit, DeadLetters, Destination, Edit, Effect, GroupSetting, HEADER_REASON,
    HEADER_REDRIVE, HEADER_SOURCE_GROUP_ID, HEADER_SOURCE_OFFSET, Outbox, PartitionCommand, Record,
    Refusal, Requeue, Selection, Subscribe, Verdict, Walk, WalkPage, WalkVerb,
};
use sennit_model::{
    Durability, GroupConfig, GroupId, Header, Headers, Message, Messages, Offset, OffsetRange,
    PartitionId, PartitionIndex, StartAt, TopicConfig, TopicId, TopicLimit,
};

use crate::world::{ALICE, BOB, DEAD, GROUP, ORDERS, World, queue, run, setting};

/// A topic of its own.
const ELSEWHERE: PartitionId = PartitionId { topic: TopicId(5), index: PartitionIndex(0) };

const PEEK: WalkVerb = WalkVerb::Peek { payload_bytes_max: 99 };

fn redrive() -> WalkVerb {
    WalkVerb::Requeue(Requeue { redrive: 77, ..Requeue::default() })
}

fn move_to(partition: PartitionId) -> WalkVerb {
    let to = Destination::Topic { topic: partition.topic, partitions: 1 };
    WalkVerb::Requeue(Requeue { to, ..Requeue::default() })
}

fn undo() -> WalkVerb {
    WalkVerb::Requeue(Requeue { to: Destination::DeadLetters, ..Requeue::default() })
}

fn everything() -> Selection {
    Selection::default()
}

fn offsets(start: u64, end: u64) -> Selection {
    let range = OffsetRange { start: Offset(start), end: Offset(end) };
    Selection { offsets: vec![range], ..everything() }
}

fn walk(selection: Selection, verb: WalkVerb) -> Walk {
    Walk {
        group: GROUP,
        from: Offset(0),
        selection: Arc::new(selection),
        fair_key: None,
        examined_max: 4096,
        matched_max: 1000,
        verb,
        dry_run: false,
    }
}

fn ask(world: &mut World, partition: PartitionId, walk: Walk) -> Result<WalkPage, Refusal> {
    let origin = world.origin(ALICE);
    let command = PartitionCommand::Walk(Box::new(walk));
    world.do_now(Command::Partition(origin, partition, command));
    let is_answer = |effect: &Effect| match effect {
        Effect::Walked { origin: asked, .. } | Effect::Refused { origin: asked, .. } => {
            *asked == origin
        }
        _ => false,
    };
    let at = world.effects.iter().position(is_answer).expect("a walk is answered");
    match world.effects.remove(at) {
        Effect::Walked { page, .. } => Ok(*page),
        Effect::Refused { refusal, .. } => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn page(
    world: &mut World,
    partition: PartitionId,
    selection: Selection,
    verb: WalkVerb,
) -> WalkPage {
    ask(world, partition, walk(selection, verb)).expect("it is not refused")
}

fn peeked(world: &mut World, partition: PartitionId, selection: Selection) -> Vec<(u64, String)> {
    let page = page(world, partition, selection, PEEK);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    page.messages.iter().map(|found| (found.offset.0, text(&found.payload))).collect()
}

/// A topic with dead letters: `count` of them, `letter 0` and so on.
fn dead_letters(count: u32) -> World {
    let mut world = World::new();
    bury(&mut world, count);
    world
}

fn bury(world: &mut World, count: u32) {
    world.subscribe(ALICE, 99);
    let texts: Vec<_> = (0..count).map(|n| format!("letter {n}")).collect();
    world.publish_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    for n in 0..count {
        let reason = if n % 2 == 0 { "no such customer" } else { "timed out" };
        let verdict = Verdict::DeadLetter { reason: reason.into() };
        world.settle(verdict, vec![run(n.into(), 1, 1)]);
    }
    world.do_now(Command::EndSession { session: ALICE, grace: Duration::ZERO });
    world.effects.clear();
    assert_eq!(world.describe(DEAD).groups[0].ready, u64::from(count));
}

/// What comes to a consumer of a partition now.
fn delivered(world: &mut World, partition: PartitionId) -> Vec<(u64, u32, String)> {
    world.subscribe_to(partition, BOB, Credit { messages: 99, bytes: 1 << 20 });
    let delivered = world.delivered();
    world.do_now(Command::EndSession { session: BOB, grace: Duration::ZERO });
    delivered
}

#[test]
fn a_peek_shows_what_waits_with_its_state_and_takes_no_lease() {
    let mut world = World::new();
    world.publish_texts(&["ready", "held", "retried"]);
    let delayed = Message { delay: Some(Duration::from_secs(60)), ..Message::new("delayed") };
    world.publish(&[delayed]);
    world.subscribe(ALICE, 3);
    world.settle(Verdict::RetryAfter(Duration::from_secs(9)), vec![run(2, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.do_now(Command::SetCredit {
        session: ALICE,
        subscription: 7,
        partition: ORDERS,
        group: GROUP,
        credit: Credit { messages: 0, bytes: 0 },
    });
    world.effects.clear();
    let before = world.group();
    let page = page(&mut world, ORDERS, everything(), PEEK);
    let names: Vec<_> = page
        .messages
        .iter()
        .map(|found| (found.offset.0, found.state.name(), found.failed))
        .collect();
    assert_eq!(names, [(0, "leased", 1), (1, "leased", 0), (2, "retrying", 1), (3, "delayed", 0)]);
    assert_eq!((page.matched, page.leased, page.next), (4, 2, None));
    assert_eq!(world.group(), before);
    assert_eq!(world.deliveries(), []);
}

#[test]
fn what_is_settled_is_not_shown() {
    let mut world = World::new();
    world.publish_texts(&["a", "b", "c"]);
    world.subscribe(ALICE, 9);
    world.ack(run(1, 1, 1));
    assert_eq!(peeked(&mut world, ORDERS, everything()).len(), 2);
}

#[test]
fn one_filter_selects_by_offset_reason_header_text_time_and_key() {
    let mut world = World::new();
    let message = |text: &str, color: &str| Message {
        key: color.to_owned().into(),
        headers: vec![Header::text("color", color)],
        ..Message::new(text.to_owned())
    };
    world.publish(&[message("an apple", "red"), message("a pear", "green")]);
    world.pass(Duration::from_secs(60));
    let later = world.now;
    world.publish(&[message("a cherry", "red")]);
    let mut only = |selection: Selection| -> Vec<u64> {
        peeked(&mut world, ORDERS, selection).into_iter().map(|(offset, _)| offset).collect()
    };
    assert_eq!(only(offsets(1, 2)), [1]);
    let filter = r#"header.color = "red""#.parse().ok();
    assert_eq!(only(Selection { filter, ..everything() }), [0, 2]);
    assert_eq!(only(Selection { text: Some("pea".into()), ..everything() }), [1]);
    assert_eq!(only(Selection { since: Some(later), ..everything() }), [2]);
    assert_eq!(only(Selection { before: Some(later), ..everything() }), [0, 1]);
    assert_eq!(only(Selection { fair_key: Some("green".into()), ..everything() }), [1]);
    let text = Some("apple".into());
    assert_eq!(only(Selection { text, since: Some(later), ..everything() }), [0; 0]);
    let mut world = dead_letters(4);
    let reason = Some("timed".into());
    let late = peeked(&mut world, DEAD, Selection { reason, ..everything() });
    assert_eq!(late, [(1, "letter 1".into()), (3, "letter 3".into())]);
}

#[test]
fn the_reason_of_a_parked_message_is_that_of_its_last_failure() {
    let mut world = dead_letters(1);
    world.subscribe_to(DEAD, BOB, Credit { messages: 9, bytes: 9999 });
    let verdict = Verdict::DeadLetter { reason: "still not there".into() };
    let origin = world.origin(BOB);
    world.do_now(Command::Settle(sennit_engine::Settle {
        origin,
        partition: DEAD,
        group: GROUP,
        verdict,
        runs: vec![run(0, 1, 1)],
        confirm: true,
    }));
    let reason = Some("still not".into());
    assert_eq!(peeked(&mut world, DEAD, Selection { reason, ..everything() }).len(), 1);
    assert_eq!(page(&mut world, DEAD, everything(), redrive()).done, 1);
    assert_eq!(world.describe(DEAD).groups[0].parked, 0);
}

#[test]
fn a_page_ends_where_it_may_and_says_where_the_next_begins() {
    let mut world = World::new();
    for n in 0..10 {
        world.publish_texts(&[&format!("a{n}"), &format!("b{n}")]);
    }
    let mut seen = Vec::new();
    let mut from = Some(Offset(0));
    while let Some(at) = from {
        let walk = Walk { from: at, matched_max: 3, ..walk(everything(), PEEK) };
        let page = ask(&mut world, ORDERS, walk).unwrap();
        assert!(page.messages.len() <= 3);
        seen.extend(page.messages.iter().map(|found| found.offset.0));
        from = page.next;
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    let walk = Walk { examined_max: 5, ..walk(offsets(19, 20), PEEK) };
    let page = ask(&mut world, ORDERS, walk).unwrap();
    assert_eq!((page.examined, page.matched), (1, 1));
}

#[test]
fn a_long_payload_is_cut_and_its_length_told() {
    let mut world = World::new();
    world.publish_texts(&["0123456789"]);
    let page = page(&mut world, ORDERS, everything(), WalkVerb::Peek { payload_bytes_max: 4 });
    assert_eq!((&page.messages[0].payload[..], page.messages[0].payload_bytes), (&b"0123"[..], 10));
}

#[test]
fn a_walk_waits_for_messages_that_are_on_the_disk() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    world.journal.absent = true;
    let origin = world.origin(ALICE);
    let walk = PartitionCommand::Walk(Box::new(walk(everything(), PEEK)));
    world.do_now(Command::Partition(origin, ORDERS, walk));
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::Walked { .. })));
    world.journal.absent = false;
    world.engine.fetched(ORDERS);
    world.finish(Outbox::default());
    assert!(world.effects.iter().any(|effect| matches!(effect, Effect::Walked { .. })));
}

#[test]
fn a_walk_that_waits_is_refused_when_its_topic_goes() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    world.journal.absent = true;
    let origin = world.origin(ALICE);
    let walk = PartitionCommand::Walk(Box::new(walk(everything(), PEEK)));
    world.do_now(Command::Partition(origin, ORDERS, walk));
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Drop));
    assert!(world.refusals().contains(&Refusal::UnknownTopic));
}

#[test]
fn messages_that_cannot_be_read_are_counted_and_passed_over() {
    let mut world = World::new();
    world.publish_texts(&["a", "b"]);
    world.publish_texts(&["c"]);
    let place = world.engine.batches().next().unwrap().place;
    world.engine.damaged(ORDERS, place, &mut Outbox::default());
    world.finish(Outbox::default());
    let page = page(&mut world, ORDERS, everything(), PEEK);
    assert_eq!((page.damaged, page.matched), (2, 1));
    assert_eq!(page.messages[0].offset, Offset(2));
}

#[test]
fn messages_are_counted_by_key_reason_age_and_state() {
    let mut world = dead_letters(5);
    let mut rows = |by| -> Vec<(String, u64)> {
        let page = page(&mut world, DEAD, everything(), WalkVerb::Count(by));
        page.rows.into_iter().map(|row| (row.name, row.count)).collect()
    };
    assert_eq!(rows(CountBy::Reason), [("no such customer".into(), 3), ("timed out".into(), 2)]);
    assert_eq!(rows(CountBy::Age), [("under 1m".to_owned(), 5)]);
    assert_eq!(rows(CountBy::State), [("ready".to_owned(), 5)]);
    assert_eq!(rows(CountBy::Key), [(String::new(), 5)]);
    assert_eq!(rows(CountBy::Nothing), []);
}

#[test]
fn a_redrive_publishes_a_dead_letter_again_and_settles_it_in_one_record() {
    let mut world = dead_letters(3);
    let before = world.journal.records.len();
    let page = page(&mut world, DEAD, everything(), redrive());
    assert_eq!((page.matched, page.done, page.homeless), (3, 3, 0));
    let records: Vec<_> =
        world.journal.records[before..].iter().map(|(record, _)| record).collect();
    let [Record::Requeued { source, ranges, target, batch, .. }] = records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((*source, *target, batch.count()), (DEAD, ORDERS, 3));
    assert_eq!(ranges, &[OffsetRange::new(Offset(0), 3)]);
    assert_eq!((world.describe(DEAD).bytes, world.describe(DEAD).groups[0].ready), (0, 0));
    // Attempts begin at 1 again.
    let texts = ["letter 0", "letter 1", "letter 2"];
    let expected: Vec<_> = (3..).zip(texts).map(|(at, text)| (at, 1, text.to_owned())).collect();
    assert_eq!(delivered(&mut world, ORDERS), expected);
}

#[test]
fn a_replay_of_a_redrive_comes_to_the_same() {
    let mut world = dead_letters(3);
    page(&mut world, DEAD, offsets(1, 2), redrive());
    let mut replayed = World::empty();
    replayed.engine = world.replayed();
    replayed.journal.batches = world.journal.batches.clone();
    replayed.journal.end = world.journal.end;
    assert_eq!(replayed.describe(DEAD).groups[0].ready, 2);
    assert_eq!(delivered(&mut replayed, ORDERS), [(3, 1, "letter 1".to_owned())]);
}

#[test]
fn a_crash_shows_a_message_where_it_was_or_where_it_went_and_not_twice() {
    for keep in 0..2 {
        let mut world = dead_letters(2);
        let before = world.journal.records.len();
        page(&mut world, DEAD, everything(), redrive());
        let mut world = world.crashed(before + keep);
        let (letters, orders) = (peeked(&mut world, DEAD, everything()), world.group().ready);
        assert_eq!((letters.len(), orders), if keep == 0 { (2, 0) } else { (0, 2) });
    }
}

#[test]
fn a_redriven_message_keeps_what_it_was_told_of_its_failure_and_names_the_redrive() {
    let mut world = dead_letters(1);
    page(&mut world, DEAD, everything(), redrive());
    let page = page(&mut world, ORDERS, everything(), PEEK);
    let headers: Vec<_> =
        Headers::new(&page.messages[0].headers).map(|header| header.unwrap().0).collect();
    for name in [HEADER_REASON, HEADER_SOURCE_OFFSET, HEADER_REDRIVE] {
        assert!(headers.contains(&name), "{headers:?}");
    }
}

#[test]
fn a_redriven_message_that_fails_again_is_a_dead_letter_with_the_new_reason() {
    let mut world = dead_letters(1);
    page(&mut world, DEAD, everything(), redrive());
    world.subscribe(ALICE, 9);
    let verdict = Verdict::DeadLetter { reason: "again".into() };
    assert_eq!(world.settle(verdict, vec![run(1, 1, 1)]).applied, 1);
    // The letter is committed.
    world.finish(Outbox::default());
    let letters = page(&mut world, DEAD, everything(), PEEK);
    let headers: Vec<_> =
        Headers::new(&letters.messages[0].headers).map(|header| header.unwrap()).collect();
    let reasons: Vec<_> = headers.iter().filter(|(name, ..)| *name == HEADER_REASON).collect();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].2, b"again");
    assert!(!headers.iter().any(|(name, ..)| *name == HEADER_REDRIVE));
}

#[test]
fn a_redrive_is_for_the_group_that_failed_and_not_for_the_others() {
    let mut world = World::new();
    let audit =
        GroupSetting { id: GroupId(1), config: GroupConfig::default(), start: StartAt::Earliest };
    let groups = vec![setting(GroupConfig::default()), audit];
    world.open(ORDERS, queue(), groups, DeadLetters::To(DEAD.topic));
    bury(&mut world, 2);
    page(&mut world, DEAD, everything(), redrive());
    let ready: Vec<_> = world.describe(ORDERS).groups.iter().map(|group| group.ready).collect();
    assert_eq!(ready, [2, 2]);
    let of_audit = Walk { group: GroupId(1), ..walk(everything(), PEEK) };
    let offsets: Vec<_> = ask(&mut world, ORDERS, of_audit)
        .unwrap()
        .messages
        .iter()
        .map(|found| found.offset.0)
        .collect();
    assert_eq!(offsets, [0, 1]);
}

#[test]
fn a_leased_message_is_left_alone_by_every_verb() {
    for verb in [WalkVerb::Cancel, redrive(), move_to(ORDERS)] {
        let mut world = dead_letters(2);
        world.subscribe_to(DEAD, BOB, Credit { messages: 1, bytes: 9999 });
        let page = page(&mut world, DEAD, everything(), verb);
        assert_eq!((page.matched, page.leased, page.done), (2, 1, 1));
        let held = world.describe(DEAD).groups[0];
        assert_eq!((held.leased, held.ready), (1, 0));
    }
}

#[test]
fn what_is_cancelled_is_gone_whatever_it_waited_for() {
    let mut world = World::new();
    world.publish_texts(&["ready", "retried"]);
    let delayed = Message { delay: Some(Duration::from_secs(60)), ..Message::new("delayed") };
    world.publish(&[delayed]);
    world.subscribe(ALICE, 2);
    world.settle(Verdict::RetryAfter(Duration::from_secs(9)), vec![run(1, 1, 1)]);
    world.do_now(Command::EndSession { session: ALICE, grace: Duration::ZERO });
    world.effects.clear();
    let page = page(&mut world, ORDERS, everything(), WalkVerb::Cancel);
    assert_eq!((page.matched, page.done), (3, 3));
    world.pass(Duration::from_secs(100));
    assert_eq!(delivered(&mut world, ORDERS), []);
    assert_eq!(world.describe(ORDERS).bytes, 0);
}

#[test]
fn what_is_moved_is_in_the_other_topic_and_keeps_the_rest_of_its_delay() {
    let mut world = World::new();
    world.open(ELSEWHERE, queue(), vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    let delayed = Message { delay: Some(Duration::from_secs(60)), ..Message::new("later") };
    world.publish(&[Message::new("now"), delayed]);
    world.pass(Duration::from_secs(20));
    assert_eq!(page(&mut world, ORDERS, everything(), move_to(ELSEWHERE)).done, 2);
    assert_eq!(delivered(&mut world, ELSEWHERE), [(0, 1, "now".to_owned())]);
    world.pass(Duration::from_secs(39));
    assert_eq!(delivered(&mut world, ELSEWHERE), [(0, 2, "now".to_owned())]);
    world.pass(Duration::from_secs(2));
    let (at, attempt, text) = delivered(&mut world, ELSEWHERE).remove(1);
    assert_eq!((at, attempt, text.as_str()), (1, 1, "later"));
}

#[test]
fn a_topic_that_is_full_or_gone_leaves_the_dead_letters_where_they_are() {
    let mut world = dead_letters(3);
    let limit = TopicLimit { messages: Some(2), ..TopicLimit::default() };
    let groups = vec![setting(GroupConfig::default())];
    world.open(ORDERS, TopicConfig { limit, ..queue() }, groups, DeadLetters::To(DEAD.topic));
    let page_of = |world: &mut World, verb| page(world, DEAD, everything(), verb);
    let refused = page_of(&mut world, redrive());
    assert_eq!((refused.done, refused.next), (0, Some(Offset(0))));
    assert!(refused.refusal.is_some());
    assert_eq!(peeked(&mut world, DEAD, everything()).len(), 3);
    let gone = page_of(&mut world, move_to(ELSEWHERE));
    assert_eq!((gone.done, gone.homeless, gone.refusal), (0, 3, None));
    world.engine.set_storage_full(true);
    let full = page_of(&mut world, redrive());
    assert_eq!(full.refusal, Some(Refusal::StorageFull));
}

#[test]
fn letters_that_name_a_topic_whose_dead_letters_do_not_come_here_go_nowhere() {
    let mut world = World::new();
    world.open(ELSEWHERE, queue(), vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    world.open(ORDERS, queue(), vec![setting(GroupConfig::default())], DeadLetters::Stay);
    let number = |name: &str, value: &str| Header {
        name: name.into(),
        kind: sennit_model::HeaderKind::Number,
        value: value.to_owned().into(),
    };
    let forged = Message {
        headers: vec![number("sennit-source-topic-id", "5"), number(HEADER_SOURCE_GROUP_ID, "0")],
        ..Message::new("forged")
    };
    world.publish(&[forged, Message::new("bare")]);
    let page = page(&mut world, ORDERS, everything(), redrive());
    assert_eq!((page.done, page.homeless), (0, 2));
    assert_eq!(world.describe(ELSEWHERE).end.0, 0);
}

#[test]
fn a_redrive_goes_to_a_topic_that_is_not_durable_too() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let config = TopicConfig { durability, ..queue() };
        let mut world = World::with(config, GroupConfig::default());
        bury(&mut world, 2);
        assert_eq!(page(&mut world, DEAD, everything(), redrive()).done, 2, "{durability:?}");
        let texts: Vec<_> =
            delivered(&mut world, ORDERS).into_iter().map(|(.., text)| text).collect();
        assert_eq!(texts, ["letter 0", "letter 1"]);
    }
}

#[test]
fn an_edit_changes_payload_and_headers_of_what_is_published_again() {
    let mut world = dead_letters(2);
    let edit = Edit {
        payload: Some("mended".into()),
        set: vec![Header::text("by", "hand")],
        remove: vec![HEADER_REASON.into()],
    };
    let verb = WalkVerb::Requeue(Requeue { edit: Some(edit), ..Requeue::default() });
    assert_eq!(page(&mut world, DEAD, offsets(1, 2), verb).done, 1);
    let found = page(&mut world, ORDERS, everything(), PEEK).messages.remove(0);
    assert_eq!(&found.payload[..], b"mended");
    let headers: Vec<_> = Headers::new(&found.headers).map(|header| header.unwrap()).collect();
    assert!(headers.iter().any(|(name, _, value)| *name == "by" && *value == b"hand"));
    assert!(!headers.iter().any(|(name, ..)| *name == HEADER_REASON));
}

#[test]
fn an_undo_takes_back_what_nobody_has_consumed_yet() {
    let mut world = dead_letters(4);
    page(&mut world, DEAD, everything(), redrive());
    world.publish_texts(&["not of a redrive"]);
    let origin = world.origin(ALICE);
    let credit = Credit { messages: 2, bytes: 9999 };
    world.do_now(Command::Subscribe(Subscribe {
        origin,
        subscription: 7,
        partition: ORDERS,
        group: GROUP,
        credit,
    }));
    // One is consumed, and two are with the consumer.
    world.ack(run(4, 1, 1));
    let of_another = Selection { redrive: Some(5), ..everything() };
    assert_eq!(page(&mut world, ORDERS, of_another, undo()).matched, 0);
    let selection = Selection { redrive: Some(77), ..everything() };
    let page = page(&mut world, ORDERS, selection, undo());
    assert_eq!((page.matched, page.leased, page.done), (3, 2, 1));
    let letters = peeked(&mut world, DEAD, everything());
    assert_eq!(letters, [(4, "letter 3".to_owned())]);
    let found = letter_headers(&mut world);
    let names: Vec<_> = Headers::new(&found).map(|header| header.unwrap().0.to_owned()).collect();
    assert!(names.iter().any(|name| name == HEADER_REASON));
    assert!(!names.iter().any(|name| name == HEADER_REDRIVE));
}

fn letter_headers(world: &mut World) -> bytes::Bytes {
    page(world, DEAD, everything(), PEEK).messages.remove(0).headers
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    for verb in [WalkVerb::Cancel, redrive(), move_to(ORDERS), WalkVerb::Copy(Requeue::default())] {
        let mut world = dead_letters(3);
        let before = world.journal.records.len();
        let walk = Walk { dry_run: true, ..walk(offsets(1, 3), verb) };
        let page = ask(&mut world, DEAD, walk).unwrap();
        assert_eq!((page.done, page.copies), (2, None));
        assert_eq!(world.journal.records.len(), before);
    }
}

#[test]
fn a_copy_gives_the_messages_for_another_shard_and_leaves_them() {
    let mut world = dead_letters(3);
    let (batch, offsets) =
        page(&mut world, DEAD, offsets(1, 3), WalkVerb::Copy(Requeue::default()))
            .copies
            .expect("there are some");
    assert_eq!((batch.count(), offsets), (2, vec![Offset(1), Offset(2)]));
    assert_eq!(world.describe(DEAD).groups[0].ready, 3);
}

#[test]
fn groups_and_topics_that_are_not_there_are_refused() {
    let mut world = World::new();
    let of_nobody = Walk { group: GroupId(9), ..walk(everything(), PEEK) };
    assert_eq!(ask(&mut world, ORDERS, of_nobody), Err(Refusal::UnknownGroup));
    let nowhere = ask(&mut world, ELSEWHERE, walk(everything(), PEEK));
    assert_eq!(nowhere, Err(Refusal::UnknownTopic));
}

#[test]
fn many_messages_are_published_again_a_page_at_a_time_each_once() {
    let mut world = World::new();
    let messages: Vec<_> = (0..600).map(|n| Message::new(format!("{n}"))).collect();
    for few in messages.chunks(7) {
        world.publish(few);
    }
    world.open(ELSEWHERE, queue(), vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    let (mut done, mut from) = (0, Some(Offset(0)));
    while let Some(at) = from {
        let walk = Walk { from: at, matched_max: 301, ..walk(everything(), move_to(ELSEWHERE)) };
        let page = ask(&mut world, ORDERS, walk).unwrap();
        done += page.done;
        from = page.next;
    }
    assert_eq!(done, 600);
    world.subscribe_to(ELSEWHERE, BOB, Credit { messages: 999, bytes: 1 << 20 });
    let texts: Vec<_> = world.delivered().into_iter().map(|(.., text)| text).collect();
    let of_message =
        |delivery: &sennit_engine::Delivery| Messages::of_checked(&delivery.messages).count();
    assert_eq!(world.deliveries().iter().map(of_message).sum::<usize>(), 0);
    assert_eq!(texts, (0..600).map(|n| n.to_string()).collect::<Vec<_>>());
}

//! Groups: their settings, which change while they run, and the messages that a dead-letter topic parks.

use std::time::Instant;

use sennit_model::{GroupId, TopicId};
use sennit_protocol::{Deliver, ErrorCode, Reply, Request, Verdict, control};

use crate::world::{Broker, Peer, SOON, config, publish, texts_of};

fn describe(peer: &mut Peer, topic: &str) -> control::GroupDescription {
    let body = control::DescribeGroup { topic: topic.into(), name: "workers".into() };
    match peer.ask(&Request::DescribeGroup(body)) {
        Reply::GroupDescription(group) => group,
        other => panic!("{other:?}"),
    }
}

fn alter(peer: &mut Peer, topic: &str, config: control::GroupConfig) -> Reply {
    let (topic, name, config) = (topic.into(), "workers".into(), Some(config));
    peer.ask(&Request::AlterGroup(control::AlterGroup { topic, name, config }))
}

fn retry(peer: &mut Peer, topic: &str, offsets: &[(u64, u64)]) -> Reply {
    let offsets = offsets.iter().map(|&(start, end)| control::OffsetsOfPartition {
        partition: 0,
        start,
        end,
    });
    let (topic, name, offsets) = (topic.into(), "workers".into(), offsets.collect());
    peer.ask(&Request::RetryParked(control::RetryParked { topic, name, offsets }))
}

fn retried(reply: &Reply) -> u64 {
    let Reply::Done(done) = reply else { panic!("{reply:?}") };
    done.messages
}

fn dead(reason: &str) -> Verdict {
    Verdict::DeadLetter { reason: reason.into() }
}

/// A dead-letter topic with three messages, and a consumer that holds them.
fn letters(peer: &mut Peer) -> ((TopicId, GroupId), Vec<Deliver>) {
    let topic = peer.create_topic("orders.dead-letter", 1);
    let group = peer.subscribe("orders.dead-letter", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b", "c"])));
    ((topic, group), peer.deliveries(3).1)
}

#[test]
fn what_fails_for_good_in_a_dead_letter_topic_is_parked_until_somebody_asks() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let (part, held) = letters(&mut peer);
    assert_eq!(peer.settle(part, &held, dead("no such customer")).applied, 3);
    let group = describe(&mut peer, "orders.dead-letter");
    assert_eq!((group.parked, group.ready, group.leased, group.dying), (3, 0, 0, 0));
    let told = &group.parked_runs[0];
    assert_eq!((told.first, told.count, told.attempts), (0, 3, 1));
    assert_eq!(told.reason, "no such customer");

    assert_eq!(retried(&retry(&mut peer, "orders.dead-letter", &[(1, 2)])), 1);
    let again = peer.delivery();
    assert_eq!((texts_of(&again), again.head.first.0), (vec!["b".to_owned()], 1));
    assert_eq!(peer.settle(part, &[again], Verdict::Ack).applied, 1);
    assert_eq!(retried(&retry(&mut peer, "orders.dead-letter", &[])), 2);
    let mut again = peer.deliveries(2).0;
    again.sort();
    assert_eq!(again, ["a", "c"]);
    assert_eq!(describe(&mut peer, "orders.dead-letter").parked, 0);
    broker.stop();
}

#[test]
fn a_dead_letter_topic_counts_attempts_and_parks_after_the_last() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let (part, held) = letters(&mut peer);
    let attempts_max = Some(2);
    let config = control::GroupConfig { attempts_max, ..<_>::default() };
    assert!(matches!(alter(&mut peer, "orders.dead-letter", config), Reply::Done(_)));
    peer.settle(part, &held, Verdict::Retry);
    let again = peer.deliveries(3).1;
    assert!(again.iter().all(|delivery| delivery.head.attempt == 2), "{again:?}");
    peer.settle(part, &again, Verdict::Retry);
    let group = describe(&mut peer, "orders.dead-letter");
    assert_eq!((group.parked, group.ready, group.leased), (3, 0, 0));
    broker.stop();
}

#[test]
fn what_is_parked_stays_parked_over_a_restart() {
    let (broker, folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let (part, held) = letters(&mut peer);
    peer.settle(part, &held, dead("no such customer"));
    broker.stop();
    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    let group = describe(&mut peer, "orders.dead-letter");
    assert_eq!((group.parked, group.ready), (3, 0));
    assert_eq!(group.parked_runs[0].reason, "no such customer");
    broker.stop();
}

#[test]
fn only_offsets_that_there_can_be_are_asked_for() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    letters(&mut peer);
    let code = |reply: Reply| match reply {
        Reply::Error(error) => error.error_code(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        code(retry(&mut peer, "orders.dead-letter", &[(2, 2)])),
        Some(ErrorCode::InvalidConfig)
    );
    assert_eq!(code(retry(&mut peer, "orders", &[])), Some(ErrorCode::UnknownTopic));
    broker.stop();
}

#[test]
fn an_altered_lease_holds_for_deliveries_from_then_on_and_the_rest_stays() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["before"])));
    assert_eq!(peer.delivery().head.attempt, 1);
    let config = control::GroupConfig { lease_ms: Some(100), ..<_>::default() };
    assert!(matches!(alter(&mut peer, "orders", config), Reply::Done(_)));
    let said = describe(&mut peer, "orders").config.expect("it has one");
    assert_eq!((said.lease_ms, said.attempts_max), (Some(100), Some(20)));
    peer.send(&Request::Publish(publish(topic, 0, 1, &["after"])));
    let first = peer.delivery();
    let again = peer.delivery();
    assert_eq!(texts_of(&first), texts_of(&again));
    assert_eq!((texts_of(&again), again.head.attempt), (vec!["after".to_owned()], 2));
    broker.stop();
}

#[test]
fn an_altered_number_of_attempts_counts_for_the_next_that_fails() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let group = peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["poison"])));
    let held = peer.delivery();
    let config = control::GroupConfig { attempts_max: Some(1), ..<_>::default() };
    assert!(matches!(alter(&mut peer, "orders", config), Reply::Done(_)));
    peer.settle((topic, group), &[held], Verdict::Retry);
    let said = describe(&mut peer, "orders");
    assert_eq!((said.ready, said.leased), (0, 0));
    let lease = said.config.and_then(|config| config.lease_ms);
    assert_eq!(lease, Some(30_000));
    let invalid = control::GroupConfig { lease_ms: Some(1), ..<_>::default() };
    let Reply::Error(error) = alter(&mut peer, "orders", invalid) else { panic!("not refused") };
    assert_eq!(error.error_code(), Some(ErrorCode::InvalidConfig));
    broker.stop();
}

/// The headers of the two dead letters of `orders`, as text.
fn letter_headers(peer: &mut Peer, subscription: u32) -> Vec<Vec<(String, String)>> {
    peer.subscribe("orders.dead-letter", subscription, 100);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut letters = Vec::new();
    for delivery in peer.deliveries(2).1 {
        let batch = delivery.check_messages().unwrap();
        letters.extend(batch.messages().map(|letter| {
            let headers = letter.headers().map(Result::unwrap);
            headers.map(|(name, _, value)| (name.to_owned(), text(value))).collect()
        }));
    }
    letters
}

fn bury(peer: &mut Peer, part: (TopicId, GroupId), sequence: u64, text: &str) {
    peer.send(&Request::Publish(publish(part.0, 0, sequence, &[text])));
    let held = peer.delivery();
    assert_eq!(peer.settle(part, &[held], dead("no such customer")).applied, 1);
    let describe = control::DescribeTopic { name: "orders.dead-letter".into() };
    let end = |reply: Reply| match reply {
        Reply::TopicDescription(topic) => topic.partitions[0].end,
        _ => 0,
    };
    let deadline = Instant::now() + SOON;
    while end(peer.ask(&Request::DescribeTopic(describe.clone()))) <= sequence {
        assert!(Instant::now() < deadline, "the letter is not there");
    }
}

#[test]
fn a_dead_letter_says_the_names_of_its_topic_and_group_after_a_restart_too() {
    let (broker, folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let group = peer.subscribe("orders", 1, 100);
    bury(&mut peer, (topic, group), 0, "first");
    broker.stop();
    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    peer.subscribe("orders", 1, 100);
    bury(&mut peer, (topic, group), 1, "second");
    for headers in letter_headers(&mut peer, 2) {
        for (name, value) in [
            ("sennit-source-topic", "orders".to_owned()),
            ("sennit-source-topic-id", topic.0.to_string()),
            ("sennit-source-group", "workers".to_owned()),
            ("sennit-source-group-id", group.0.to_string()),
        ] {
            assert!(headers.contains(&(name.to_owned(), value)), "{name} of {headers:?}");
        }
    }
    broker.stop();
}

#[test]
fn the_group_that_nobody_uses_is_told_to_hold_what_others_are_through_with() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let group = peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    let held = peer.deliveries(2).1;
    peer.settle((topic, group), &held, Verdict::Ack);
    let describe = control::DescribeTopic { name: "orders".into() };
    let Reply::TopicDescription(said) = peer.ask(&Request::DescribeTopic(describe)) else {
        panic!("no description");
    };
    let since = |name: &str| {
        let group = said.groups.iter().find(|group| group.name == name);
        group.expect("it is there").holds_since_ms
    };
    assert_eq!(since("default"), said.partitions[0].oldest_ms);
    assert!(since("default").is_some());
    assert_eq!(since("workers"), None);
    broker.stop();
}

//! The live door over real sockets: what is published reaches all who are subscribed, in order and once; who was away
//! gets what was missed, or is told that it is gone; one client does not harm others.

use std::time::Duration;

use bytes::Bytes;
use sennit_centrifuge::{
    Answer, DisconnectCode, Encoding, ErrorCode, FromServer, HistoryRequest, HistoryResult,
    Position, PushKind, Request, SubscribeRequest, UnsubscribeCode,
};
use sennit_model::TopicId;
use sennit_protocol::{Reply, Request as NativeRequest, control};
use sennit_server::{BrokerCertificate, Config};
use sennit_websocket::{CloseCode, Opcode, client::UpgradeRequest};

use crate::{
    browser::Browser,
    http_parked::Dice,
    live_client::{LiveClient, ask_upgrade, recovering, text_of},
    reading::{begin, published, read, reader, stream},
    world::{Broker, Peer, config, texts_of, until},
};

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// Creates a topic in memory that keeps so many bytes.
fn memory_topic(peer: &mut Peer, name: &str, bytes: u64) -> TopicId {
    let retention = control::Retention { bytes: Some(bytes), ..<_>::default() };
    let config = control::TopicConfig {
        partitions: Some(1),
        durability: control::Durability::Memory.into(),
        retention: Some(retention),
        time_to_live_ms: None,
        ..<_>::default()
    };
    let create = control::CreateTopic { name: name.into(), config: Some(config), beside: None };
    match peer.ask(&NativeRequest::CreateTopic(create)) {
        Reply::Done(done) => TopicId(done.topic_id),
        other => panic!("{other:?}"),
    }
}

/// Publishes so many messages of `length` bytes, and waits for the confirm.
pub fn flood(peer: &mut Peer, topic: TopicId, first: u64, count: u64, length: usize) {
    let text = "x".repeat(length);
    let mut at = first;
    while at < first + count {
        let together = (first + count - at).min(32);
        published(peer, topic, 0, at, &vec![text.as_str(); together as usize]);
        at += together;
    }
}

#[test]
fn a_publication_reaches_all_who_are_subscribed_in_their_encoding() {
    let (broker, _folder) = Broker::fresh();
    let mut clients: Vec<_> = [Encoding::Json, Encoding::Protobuf, Encoding::Json]
        .map(|encoding| LiveClient::connect(&broker, encoding, ""))
        .into();
    for client in &mut clients {
        let result = client.subscribe("chat:index");
        assert!(result.recoverable && result.positioned && !result.recovered);
        assert_eq!(result.offset, 0);
    }
    for (index, text) in ["first", "größe \"2\"", "third\n"].into_iter().enumerate() {
        let by = index % clients.len();
        clients[by].publish("chat:index", text).unwrap();
        for client in &mut clients {
            let (channel, publication) = client.published();
            assert_eq!(channel, "chat:index");
            assert_eq!(publication.offset, index as u64 + 1, "offsets count from 1");
            let shown = String::from_utf8(publication.data.as_bytes().to_vec()).unwrap();
            // A payload that is JSON is JSON to all; other text is a string to those who speak JSON.
            let expected = match (clients_encoding(by), client.encoding) {
                (Encoding::Json, _) | (Encoding::Protobuf, Encoding::Json) => format!("{text:?}"),
                (Encoding::Protobuf, Encoding::Protobuf) => text.to_owned(),
            };
            assert_eq!(shown, expected, "{:?}", client.encoding);
        }
    }
    broker.stop();
}

fn clients_encoding(index: usize) -> Encoding {
    if index == 1 { Encoding::Protobuf } else { Encoding::Json }
}

#[test]
fn native_clients_and_live_ones_use_the_same_topic() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "chat%3Aindex", 1);
    let mut client = LiveClient::of(&broker);
    client.subscribe("chat:index");
    published(&mut peer, topic, 0, 0, &["{\"from\": \"native\"}"]);
    let (_, publication) = client.published();
    assert_eq!(publication.data.as_bytes(), b"{\"from\": \"native\"}");
    client.publish("chat:index", "from a browser").unwrap();
    begin(&mut peer, read("chat%3Aindex"));
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.extend(texts_of(&peer.delivery()));
    }
    assert_eq!(heard, ["{\"from\": \"native\"}", "\"from a browser\""]);
    broker.stop();
}

#[test]
fn publications_of_one_client_keep_their_order_however_many_are_sent_at_once() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    client.subscribe("news");
    let texts: Vec<String> = (0..700).map(|number| number.to_string()).collect();
    let publications: Vec<_> = texts.iter().map(|text| client.publication("news", text)).collect();
    let last = client.send_together(publications);
    assert_eq!(client.answer_to(last), Ok(Answer::Publish));
    let mut heard = Vec::new();
    while heard.len() < texts.len() {
        match client.next() {
            Some(FromServer::Push(push)) => match push.kind {
                PushKind::Publication(one) => heard.push(text_of(client.encoding, &one.data)),
                other => panic!("{other:?}"),
            },
            Some(FromServer::Reply(reply)) => assert_eq!(reply.result, Ok(Answer::Publish)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, texts);
    broker.stop();
}

#[test]
fn a_client_that_was_away_gets_what_it_missed_once_and_goes_on() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    for encoding in ENCODINGS {
        let mut client = LiveClient::connect(&broker, encoding, "");
        let begun = client.subscribe("news");
        published(&mut peer, topic, 0, begun.offset, &["one", "two"]);
        assert_eq!(client.offsets("news", 2), [begun.offset + 1, begun.offset + 2]);
        drop(client);
        // It was away: more than any ring holds is published.
        flood(&mut peer, topic, begun.offset + 2, 700, 16 << 10);
        let mut client = LiveClient::connect(&broker, encoding, "");
        let position = (begun.epoch.as_str(), begun.offset + 2);
        let result = client.subscribed(recovering("news", position)).unwrap();
        assert!(result.recovered && result.was_recovering);
        assert_eq!(result.offset, begun.offset + 2);
        published(&mut peer, topic, 0, begun.offset + 702, &["live"]);
        let expected: Vec<u64> = (begun.offset + 3..=begun.offset + 703).collect();
        assert_eq!(client.offsets("news", 701), expected);
    }
    broker.stop();
}

#[test]
fn a_client_that_was_away_goes_on_after_a_restart_of_the_broker() {
    let folder = tempfile::TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    let mut client = LiveClient::of(&broker);
    let begun = client.subscribe("news");
    published(&mut peer, topic, 0, 0, &["one", "two", "three"]);
    assert_eq!(client.offsets("news", 1), [1]);
    let stopping = broker.begin_to_stop();
    assert_eq!(client.close().code, CloseCode::of(DisconnectCode::Shutdown.code()));
    crate::world::ended(stopping);
    let broker = Broker::start(config(folder.path()));
    let mut client = LiveClient::of(&broker);
    let result = client.subscribed(recovering("news", (begun.epoch.as_str(), 1))).unwrap();
    assert!(result.recovered);
    assert_eq!(client.offsets("news", 2), [2, 3]);
    broker.stop();
}

#[test]
fn what_is_not_kept_any_more_is_not_said_to_be_recovered() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = memory_topic(&mut peer, "state", 64 << 10);
    let mut client = LiveClient::of(&broker);
    let begun = client.subscribe("state");
    client.unsubscribe("state");
    flood(&mut peer, topic, 0, 320, 1 << 10);
    let gone =
        client.subscribed(recovering("state", (begun.epoch.as_str(), begun.offset))).unwrap();
    assert!(!gone.recovered && gone.was_recovering);
    assert_eq!(gone.offset, 320, "it goes on with what comes");
    client.unsubscribe("state");
    for wrong in [("another", 320), (begun.epoch.as_str(), 321), (begun.epoch.as_str(), u64::MAX)] {
        let result = client.subscribed(recovering("state", wrong)).unwrap();
        assert!(!result.recovered, "{wrong:?}");
        assert_eq!(result.offset, 320);
        client.unsubscribe("state");
    }
    let result = client.subscribed(recovering("state", (begun.epoch.as_str(), 319))).unwrap();
    assert!(result.recovered);
    published(&mut peer, topic, 0, 320, &["live"]);
    assert_eq!(client.offsets("state", 2), [320, 321]);
    broker.stop();
}

/// The offsets that a client is told of a history, and where the channel is.
fn history(client: &mut LiveClient, request: HistoryRequest) -> (Vec<u64>, u64, String) {
    match client.ask(Request::History(request)).unwrap() {
        Answer::History(HistoryResult { publications, offset, epoch }) => {
            (publications.iter().map(|one| one.offset).collect(), offset, epoch)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_history_begins_and_ends_where_it_is_asked_to() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    published(&mut peer, topic, 0, 0, &["a", "b", "c", "d", "e"]);
    let mut client = LiveClient::of(&broker);
    let all = HistoryRequest { channel: "news".into(), limit: -1, ..HistoryRequest::default() };
    let (offsets, end, epoch) = history(&mut client, all.clone());
    assert_eq!((offsets.as_slice(), end), (&[1, 2, 3, 4, 5][..], 5));
    let since = |offset| Some(Position { offset, epoch: epoch.clone() });
    for (limit, since, reverse, expected) in [
        (0, None, false, &[][..]),
        (2, None, false, &[1, 2]),
        (2, since(2), false, &[3, 4]),
        (9, since(5), false, &[]),
        (9, since(77), false, &[]),
        (2, None, true, &[5, 4]),
        (-1, None, true, &[5, 4, 3, 2, 1]),
        (2, since(4), true, &[3, 2]),
        (2, since(1), true, &[]),
        (2, since(0), true, &[]),
    ] {
        let asked = HistoryRequest { limit, since, reverse, ..all.clone() };
        assert_eq!(history(&mut client, asked.clone()).0, expected, "{asked:?}");
    }
    let since = Some(Position { offset: 1, epoch: "another".into() });
    let refused = client.ask(Request::History(HistoryRequest { since, ..all.clone() }));
    assert_eq!(refused.unwrap_err().code, ErrorCode::UnrecoverablePosition.code());
    let absent = HistoryRequest { channel: "absent".into(), ..all.clone() };
    let refused = client.ask(Request::History(absent));
    assert_eq!(refused.unwrap_err().code, ErrorCode::UnknownChannel.code());
    // More than one answer holds.
    let texts: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    published(&mut peer, topic, 0, 5, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let (offsets, end, _) = history(&mut client, all);
    assert_eq!((offsets, end), ((1..=1000).collect(), 2005));
    broker.stop();
}

#[test]
fn a_history_of_what_was_freed_has_what_is_kept() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = memory_topic(&mut peer, "state", 64 << 10);
    flood(&mut peer, topic, 0, 320, 1 << 10);
    let mut client = LiveClient::of(&broker);
    let all = HistoryRequest { channel: "state".into(), limit: -1, ..HistoryRequest::default() };
    let (offsets, end, _) = history(&mut client, all);
    let first = offsets[0];
    assert!(first > 1, "the first are gone");
    assert_eq!((offsets, end), ((first..=320).collect(), 320));
    broker.stop();
}

#[test]
fn who_wants_no_subscription_without_what_was_missed_is_refused() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    client.publish("state", "first").unwrap();
    let begun = client.subscribe("state");
    client.unsubscribe("state");
    let rejecting = |epoch: &str, offset| SubscribeRequest {
        flag: SubscribeRequest::REJECT_UNRECOVERED,
        ..recovering("state", (epoch, offset))
    };
    for (epoch, offset) in [("another", 0), (begun.epoch.as_str(), 2)] {
        let error = client.subscribed(rejecting(epoch, offset)).unwrap_err();
        assert_eq!(error.code, ErrorCode::UnrecoverablePosition.code(), "{}", error.message);
    }
    // It is not subscribed. Without an epoch, any will do.
    for epoch in [begun.epoch.as_str(), ""] {
        assert!(client.subscribed(rejecting(epoch, 0)).unwrap().recovered);
        assert_eq!(client.offsets("state", 1), [1]);
        client.unsubscribe("state");
    }
    // Who comes for the first time has nothing to recover.
    let first = SubscribeRequest { recover: false, ..rejecting("", 0) };
    assert!(!client.subscribed(first).unwrap().was_recovering);
    broker.stop();
}

#[test]
fn a_client_that_does_not_read_harms_nobody_and_misses_nothing() {
    for tls in [None, Some(BrokerCertificate::Own)] {
        let folder = tempfile::TempDir::new().unwrap();
        // Nobody is asked whether it is there.
        let live_ping_interval = Duration::from_secs(3600);
        let broker = Broker::start(Config { tls, live_ping_interval, ..config(folder.path()) });
        let mut peer = reader(&broker);
        let topic = stream(&mut peer, "news", 1);
        let mut stalled = LiveClient::of(&broker);
        let mut others: Vec<_> = (0..3).map(|_| LiveClient::of(&broker)).collect();
        stalled.subscribe("news");
        others.iter_mut().for_each(|client| drop(client.subscribe("news")));
        // More than rings and sockets hold.
        for round in 0..12 {
            flood(&mut peer, topic, round * 100, 100, 16 << 10);
            let expected: Vec<u64> = (round * 100 + 1..=round * 100 + 100).collect();
            for client in &mut others {
                assert_eq!(client.offsets("news", 100), expected);
            }
        }
        assert_eq!(stalled.offsets("news", 1200), (1..=1200).collect::<Vec<_>>());
        flood(&mut peer, topic, 1200, 1, 10);
        assert_eq!(stalled.offsets("news", 1), [1201]);
        broker.stop();
    }
}

#[test]
fn readers_fast_and_slow_that_come_and_go_miss_nothing_and_get_nothing_twice() {
    let seed = std::env::var("SENNIT_SEED").map_or(0x11fe, |seed| seed.parse().unwrap());
    eprintln!("SENNIT_SEED={seed}");
    let mut dice = Dice(seed);
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topics = ["a", "b", "c"].map(|name| (name, stream(&mut peer, name, 1)));
    let mut ends = [0_u64; 3];
    // Each with the next offset that it expects of each topic that it is subscribed to.
    let mut clients: Vec<(LiveClient, [Option<u64>; 3])> = Vec::new();
    for _ in 0..6 {
        let encoding = ENCODINGS[dice.below(2) as usize];
        clients.push((LiveClient::connect(&broker, encoding, ""), [None; 3]));
    }
    let mut epochs: [Option<String>; 3] = Default::default();
    for _ in 0..150 {
        let which = dice.below(3) as usize;
        let (name, topic) = topics[which];
        let of = dice.below(clients.len() as u64) as usize;
        match dice.below(6) {
            0 | 1 => {
                let (count, length) = (dice.below(100), dice.below(8000));
                flood(&mut peer, topic, ends[which], count, length as usize);
                ends[which] += count;
            }
            2 => {
                let (client, expected) = &mut clients[of];
                let at = dice.below(ends[which] + 1);
                if expected[which].is_none() {
                    let result = match &epochs[which] {
                        Some(epoch) => client.subscribed(recovering(name, (epoch, at))).unwrap(),
                        None => client.subscribe(name),
                    };
                    assert_eq!(result.recovered, epochs[which].is_some());
                    assert_eq!(result.offset, if result.recovered { at } else { ends[which] });
                    expected[which] = Some(result.offset + 1);
                    epochs[which] = Some(result.epoch);
                }
            }
            3 => {
                let (client, expected) = &mut clients[of];
                if expected[which].is_some() {
                    client.unsubscribe(name);
                    // What came before the answer is part of it.
                    while let Some((channel, offset)) = client.heard_already() {
                        take(&topics.map(|(name, _)| name), expected, &channel, offset);
                    }
                    expected[which] = None;
                }
            }
            _ => {
                let (client, expected) = &mut clients[of];
                let behind = |expected: &[Option<u64>; 3]| {
                    (0..3).any(|at| expected[at].is_some_and(|next| next <= ends[at]))
                };
                for _ in 0..dice.below(200) {
                    if !behind(expected) {
                        break;
                    }
                    let (channel, publication) = client.published();
                    take(&topics.map(|(name, _)| name), expected, &channel, publication.offset);
                }
            }
        }
    }
    for (client, expected) in &mut clients {
        while (0..3).any(|at| expected[at].is_some_and(|next| next <= ends[at])) {
            let (channel, publication) = client.published();
            take(&topics.map(|(name, _)| name), expected, &channel, publication.offset);
        }
    }
    broker.stop();
}

/// The next publication of a topic is the one that is expected.
pub fn take(names: &[&str; 3], expected: &mut [Option<u64>; 3], channel: &str, offset: u64) {
    let at = names.iter().position(|name| *name == channel).unwrap();
    assert_eq!(expected[at], Some(offset), "of {channel}");
    expected[at] = Some(offset + 1);
}

#[test]
fn a_subscription_ends_with_its_topic() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    stream(&mut peer, "news", 1);
    let mut client = LiveClient::of(&broker);
    let begun = client.subscribe("news");
    let delete = control::DeleteTopic { name: "news".into() };
    assert!(matches!(peer.ask(&NativeRequest::DeleteTopic(delete)), Reply::Done(_)));
    match client.push() {
        (channel, PushKind::Unsubscribe(ended)) => {
            assert_eq!(channel, "news");
            assert_eq!(ended.code, UnsubscribeCode::InsufficientState.code());
        }
        other => panic!("{other:?}"),
    }
    // Another topic of the name is another history.
    let again = client.subscribed(recovering("news", (begun.epoch.as_str(), 0))).unwrap();
    assert!(!again.recovered);
    assert_ne!(again.epoch, begun.epoch);
    broker.stop();
}

#[test]
fn what_cannot_be_subscribed_to_is_refused_by_reason() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    stream(&mut peer, "wide", 2);
    let mut client = LiveClient::of(&broker);
    client.subscribe("news");
    for (channel, code) in [
        ("", ErrorCode::BadRequest),
        ("wide", ErrorCode::BadRequest),
        ("news", ErrorCode::AlreadySubscribed),
        ("__ds/audit", ErrorCode::UnknownChannel),
    ] {
        let error = client.subscribed(recovering(channel, ("", 0))).unwrap_err();
        assert_eq!(error.code, code.code(), "{channel}: {}", error.message);
        assert!(!error.message.is_empty());
    }
    assert_eq!(client.publish("wide", "x").unwrap_err().code, ErrorCode::BadRequest.code());
    client.publish("news", "it goes on").unwrap();
    assert_eq!(client.offsets("news", 1), [1]);
    broker.stop();
}

#[test]
fn what_is_no_command_ends_the_connection_with_a_code() {
    let (broker, _folder) = Broker::fresh();
    for message in
        ["{", "[]", "{\"id\":1,\"publish\":{}}", "{\"id\":1,\"nothing\":{}}", "{\"subscribe\":{}}"]
    {
        let mut client = LiveClient::open(&broker, Encoding::Json, &[]);
        client.say(Opcode::Text, message.as_bytes());
        let code = DisconnectCode::BadRequest.code();
        assert_eq!(client.close().code, CloseCode::of(code), "{message}");
    }
    let mut client = LiveClient::of(&broker);
    client.say_bytes(&[0xA1, 0x80, 0, 0, 0, 0]);
    assert_eq!(client.close().code, Some(CloseCode::PROTOCOL_ERROR), "a bit that nothing means");
    let mut client = LiveClient::of(&broker);
    client.say(Opcode::Close, &1000_u16.to_be_bytes());
    assert_eq!(client.close().code, Some(CloseCode::NORMAL));
    broker.stop();
}

#[test]
fn pings_of_the_websocket_and_of_the_protocol_are_answered() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    client.say(Opcode::Ping, b"there?");
    assert_eq!(client.ask(Request::Ping), Ok(Answer::Ping));
    broker.stop();
}

#[test]
fn a_client_that_is_not_there_is_ended() {
    let folder = tempfile::TempDir::new().unwrap();
    let soon = Duration::from_millis(10);
    let broker = Broker::start(Config { live_connect_timeout: soon, ..config(folder.path()) });
    let mut client = LiveClient::open(&broker, Encoding::Json, &[]);
    assert_eq!(client.close().code, CloseCode::of(DisconnectCode::Stale.code()));
    broker.stop();
    let broker = Broker::start(Config { live_ping_interval: soon, ..config(folder.path()) });
    let mut client = LiveClient::of(&broker);
    client.is_there = false;
    assert_eq!(client.close().code, CloseCode::of(DisconnectCode::NoPong.code()));
    broker.stop();
}

#[test]
fn a_request_that_is_for_no_websocket_is_told_so() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    let answer = browser.get("/connection/websocket");
    assert_eq!(answer.status, 426);
    assert!(answer.body.contains("no_websocket"), "{answer:?}");
    let request = |headers: &'static [(&str, &str)]| UpgradeRequest {
        host: "localhost",
        target: "/connection/websocket",
        key: [1; 16],
        subprotocols: &[],
        offers_deflate: false,
        headers,
    };
    let (_, answer) = ask_upgrade(&broker, &request(&[("Origin", "https://elsewhere.example")]));
    assert_eq!(answer.status, 403, "a page of another origin");
    assert!(answer.body.contains("--http-origin"), "{answer:?}");
    let (_, answer) = ask_upgrade(&broker, &request(&[("Authorization", "Bearer sennit_nothing")]));
    assert_eq!(answer.status, 101, "nobody is asked who they are");
    broker.stop();
}

#[test]
fn live_connections_are_counted() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    client.subscribe("news");
    client.publish("news", "x").unwrap();
    client.published();
    let sum = |name: &str| -> u64 {
        let metrics = Browser::of(&broker).get("/metrics").body;
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum("sennit_live_connections{"), 1);
    assert_eq!(sum("sennit_live_subscriptions{"), 1);
    until("the delivery is not counted", || sum("sennit_live_deliveries_total{") == 1);
    drop(client);
    until("a connection is counted", || sum("sennit_live_connections{") == 0);
    assert_eq!(sum("sennit_live_subscriptions{"), 0);
    broker.stop();
}

#[test]
fn a_payload_that_is_no_text_reaches_clients_of_json_in_base64() {
    let (broker, _folder) = Broker::fresh();
    let mut binary = LiveClient::connect(&broker, Encoding::Protobuf, "");
    let mut json = LiveClient::of(&broker);
    binary.subscribe("bytes");
    json.subscribe("bytes");
    let data = sennit_centrifuge::Data::of_payload(Bytes::from_static(&[0xFF, 0, 1]));
    let publish = sennit_centrifuge::PublishRequest { channel: "bytes".into(), data, kind: 0 };
    binary.ask(Request::Publish(publish)).unwrap();
    assert_eq!(binary.published().1.data.as_bytes(), [0xFF, 0, 1]);
    assert_eq!(json.published().1.data.as_bytes(), b"{\"b64data\":\"/wAB\"}");
    broker.stop();
}

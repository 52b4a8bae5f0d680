//! Groups over live connections: each message goes to one of their clients, and is settled at hand-over or by the client.

use std::{collections::BTreeSet, time::Instant};

use sennit_centrifuge::{
    Answer, Data, Encoding, ErrorCode, FromServer, Publication, Push, PushKind, ReplyError,
    Request, RpcRequest, SubscribeRequest, UnsubscribeCode,
};
use sennit_model::TopicId;
use sennit_protocol::{Reply, Request as NativeRequest, control};
use serde_json::{Value, json};

use crate::{
    access::{Guarded, logged_in},
    live_client::{LiveClient, text_of},
    live_targets::as_admin,
    world::{Broker, Peer, SOON, publish},
    wse_client::WseClient,
};

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// The texts that have come to a client.
fn heard_by(client: &mut LiveClient) -> Vec<String> {
    let asked = client.send(Request::Ping);
    let mut texts = Vec::new();
    loop {
        match client.next().unwrap() {
            FromServer::Push(Push { kind: PushKind::Publication(publication), .. }) => {
                texts.push(text_of(client.encoding, &publication.data));
            }
            FromServer::Reply(reply) if reply.id == asked => return texts,
            other => panic!("{other:?}"),
        }
    }
}

fn describe(peer: &mut Peer, group: &str) -> control::GroupDescription {
    let body = control::DescribeGroup { topic: "jobs".into(), name: group.into() };
    match peer.ask(&NativeRequest::DescribeGroup(body)) {
        Reply::GroupDescription(group) => group,
        other => panic!("{other:?}"),
    }
}

/// Waits until all of the group is settled.
fn until_settled(peer: &mut Peer, group: &str, settled_before: &[u64]) {
    let deadline = Instant::now() + SOON;
    loop {
        let described = describe(peer, group);
        if described.settled_before == settled_before {
            return assert_eq!((described.ready, described.leased), (0, 0));
        }
        assert!(Instant::now() < deadline, "not settled: {described:?}");
    }
}

/// Settles deliveries by one of the broker's methods; returns how many it applied to, and those to which it did not.
fn settle(
    client: &mut LiveClient,
    method: &str,
    channel: &str,
    deliveries: &[&Publication],
    more: Value,
) -> Result<(u64, Vec<String>), ReplyError> {
    let tags: Vec<_> = deliveries.iter().map(|of| &of.tags["delivery"]).collect();
    let mut data = json!({ "channel": channel, "deliveries": tags });
    data.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let data = Data::of_payload(data.to_string().into_bytes().into());
    match client.ask(Request::Rpc(RpcRequest { data, method: method.into() }))? {
        Answer::Rpc(result) => {
            let told: Value = serde_json::from_slice(result.data.as_bytes()).unwrap();
            let stale = told["stale"].as_array().unwrap().iter();
            let stale = stale.map(|tag| tag.as_str().unwrap().to_owned()).collect();
            Ok((told["applied"].as_u64().unwrap(), stale))
        }
        other => panic!("{other:?}"),
    }
}

/// The next publication, with its text and its attempt.
fn given(client: &mut LiveClient) -> (Publication, String, String) {
    let (_, publication) = client.published();
    let text = text_of(client.encoding, &publication.data);
    let attempt = publication.tags["attempt"].clone();
    (publication, text, attempt)
}

#[test]
fn each_message_goes_to_one_client_of_a_group_and_to_every_subscriber_without_one() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let channels =
        ["jobs?group=mailers", "jobs?group=mailers&window=2", "jobs?group=others", "jobs"];
    let mut clients = Vec::new();
    for channel in channels {
        for encoding in ENCODINGS {
            let mut client = LiveClient::connect(&broker, encoding, "");
            let result = client.subscribe(channel);
            assert_eq!(result.recoverable, channel == "jobs", "{channel}");
            clients.push((channel, client));
        }
    }
    const COUNT: u64 = 500;
    let mut publisher = LiveClient::connect(&broker, Encoding::Protobuf, "");
    for number in 0..COUNT {
        publisher.publish("jobs", &format!("m{number}")).unwrap();
    }
    for group in ["mailers", "others"] {
        until_settled(&mut peer, group, &[COUNT]);
    }
    let all: BTreeSet<String> = (0..COUNT).map(|number| format!("m{number}")).collect();
    let (mut of_mailers, mut of_others) = (BTreeSet::new(), BTreeSet::new());
    for (channel, client) in &mut clients {
        let texts = heard_by(client);
        let of_group = match *channel {
            "jobs" => {
                assert_eq!(texts.into_iter().collect::<BTreeSet<_>>(), all);
                continue;
            }
            "jobs?group=others" => &mut of_others,
            _ => &mut of_mailers,
        };
        for text in texts {
            assert!(of_group.insert(text.clone()), "{text} came twice");
        }
    }
    assert_eq!((&of_mailers, &of_others), (&all, &all));
    broker.stop();
}

#[test]
fn a_client_that_settles_itself_has_no_more_than_its_window_and_gets_failed_ones_again() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let channel = "jobs?group=mailers&ack=client&window=2";
    for (round, encoding) in ENCODINGS.into_iter().enumerate() {
        let mut client = LiveClient::connect(&broker, encoding, "");
        client.subscribe(channel);
        for text in ["a", "b", "c"] {
            client.publish("jobs", text).unwrap();
        }
        let (a, text, attempt) = given(&mut client);
        assert_eq!((&*text, &*attempt, a.offset), ("a", "1", 0));
        let (b, text, _) = given(&mut client);
        assert_eq!(text, "b");
        // Its window is full: the third comes once there is room.
        client.ask(Request::Ping).unwrap();
        assert_eq!(describe(&mut peer, "mailers").leased, 2);
        let settle = |client: &mut LiveClient, method, deliveries: &[&Publication], more| {
            settle(client, method, channel, deliveries, more).unwrap()
        };
        assert_eq!(settle(&mut client, "sennit.started", &[&a, &b], json!({})).0, 2);
        let lease = json!({ "lease_ms": 60_000 });
        assert_eq!(settle(&mut client, "sennit.extend", &[&a], lease), (1, vec![]));
        assert_eq!(settle(&mut client, "sennit.ack", &[&a], json!({})), (1, vec![]));
        let (c, text, _) = given(&mut client);
        assert_eq!(text, "c");
        assert_eq!(settle(&mut client, "sennit.retry", &[&b], json!({})), (1, vec![]));
        let (again, text, attempt) = given(&mut client);
        assert_eq!((&*text, &*attempt), ("b", "2"));
        // The first delivery of it is nobody's any more.
        let (applied, stale) = settle(&mut client, "sennit.ack", &[&b, &c], json!({}));
        assert_eq!((applied, stale), (1, vec![b.tags["delivery"].clone()]));
        let reason = json!({ "reason": "no such address" });
        assert_eq!(settle(&mut client, "sennit.reject", &[&again], reason), (1, vec![]));
        until_settled(&mut peer, "mailers", &[3 * (round as u64 + 1)]);
    }
    let mut letters = LiveClient::of(&broker);
    letters.subscribe("jobs.dead-letter?group=people");
    for _ in ENCODINGS {
        assert_eq!(given(&mut letters).1, "b");
    }
    broker.stop();
}

#[test]
fn what_a_client_has_not_settled_when_it_goes_goes_to_another() {
    let (broker, _folder) = Broker::fresh();
    let channel = "jobs?group=mailers&ack=client";
    let mut publisher = LiveClient::of(&broker);
    for ends in ["goes", "unsubscribes"] {
        let mut first = LiveClient::of(&broker);
        first.subscribe(channel);
        for text in ["a", "b"] {
            publisher.publish("jobs", text).unwrap();
        }
        let (a, ..) = given(&mut first);
        let (b, ..) = given(&mut first);
        settle(&mut first, "sennit.ack", channel, &[&a], json!({})).unwrap();
        let mut second = LiveClient::of(&broker);
        second.subscribe(channel);
        match ends {
            "goes" => drop(first),
            _ => first.unsubscribe(channel),
        }
        let (again, text, _) = given(&mut second);
        assert_eq!(text, "b", "{ends}");
        assert_ne!(again.tags["delivery"], b.tags["delivery"]);
        settle(&mut second, "sennit.ack", channel, &[&again], json!({})).unwrap();
    }
    broker.stop();
}

#[test]
fn what_a_socket_has_not_taken_is_not_settled_and_goes_to_another_client() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut idle = LiveClient::of(&broker);
    idle.subscribe("jobs?group=mailers&window=4096");
    // More than sockets hold, of messages that fill the window of bytes.
    let open = control::OpenTopic { name: "jobs".into(), create_if_missing: false };
    let Reply::TopicOpened(opened) = peer.ask(&NativeRequest::OpenTopic(open)) else { panic!() };
    let topic = TopicId(opened.topic_id);
    let text = "x".repeat(200 << 10);
    const COUNT: usize = 200;
    for number in 0..COUNT {
        peer.send(&NativeRequest::Publish(publish(topic, 0, number as u64, &[&text])));
    }
    let deadline = Instant::now() + SOON;
    // It has taken what its socket holds; the rest waits, some of it given to it and not settled.
    let taken = loop {
        let group = describe(&mut peer, "mailers");
        let is_all_published = group.settled_before[0] + group.ready + group.leased == COUNT as u64;
        if is_all_published && group.leased > 0 && group.ready > 0 {
            break group.settled_before[0];
        }
        assert!(Instant::now() < deadline, "{group:?}");
    };
    assert!(taken > 0 && taken < COUNT as u64, "{taken}");
    let mut other = LiveClient::of(&broker);
    drop(idle);
    other.subscribe("jobs?group=mailers&window=4096");
    for _ in taken..COUNT as u64 {
        other.published();
    }
    until_settled(&mut peer, "mailers", &[COUNT as u64]);
    broker.stop();
}

#[test]
fn a_group_of_a_topic_of_several_partitions_has_the_messages_of_all_and_one_call_settles_them() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("jobs", 4);
    let channel = "jobs?group=mailers&ack=client&window=100";
    let mut client = LiveClient::of(&broker);
    client.subscribe(channel);
    for partition in 0..4 {
        peer.send(&NativeRequest::Publish(publish(topic, partition, 0, &["a", "b"])));
    }
    let given: Vec<_> = (0..8).map(|_| client.published().1).collect();
    let given: Vec<_> = given.iter().collect();
    let tags: BTreeSet<_> = given.iter().map(|of| &of.tags["delivery"]).collect();
    assert_eq!(tags.len(), 8);
    assert_eq!(settle(&mut client, "sennit.ack", channel, &given, json!({})), Ok((8, vec![])));
    // An ack that is repeated changes nothing.
    assert_eq!(settle(&mut client, "sennit.ack", channel, &given, json!({})), Ok((0, vec![])));
    until_settled(&mut peer, "mailers", &[2; 4]);
    // Live subscribers without a group are for topics of one partition.
    let subscribe = SubscribeRequest { channel: "jobs".into(), ..<_>::default() };
    assert_eq!(client.subscribed(subscribe).unwrap_err().code, ErrorCode::BadRequest.code());
    broker.stop();
}

#[test]
fn a_channel_or_call_that_is_wrong_is_refused_with_what_would_be_right() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    let channel = "jobs?group=mailers";
    client.subscribe(channel);
    let subscribed = |client: &mut LiveClient, channel: &str| {
        let request = SubscribeRequest { channel: channel.into(), ..<_>::default() };
        client.subscribed(request).unwrap_err()
    };
    for (channel, code, told) in [
        (channel, ErrorCode::AlreadySubscribed, "already subscribed"),
        ("jobs?group=", ErrorCode::BadRequest, "at least 1 character"),
        ("jobs?group=a&ack=never", ErrorCode::BadRequest, "&ack=client"),
        ("jobs?group=a&window=0", ErrorCode::BadRequest, "1 to 4096"),
        ("jobs.*?group=a", ErrorCode::BadRequest, "'*'"),
    ] {
        let error = subscribed(&mut client, channel);
        assert_eq!(error.code, code.code(), "{channel}: {error:?}");
        assert!(error.message.contains(told), "{channel}: {error:?}");
    }
    let error = client.publish(channel, "a").unwrap_err();
    assert!(error.message.contains("'?' at byte 4"), "{error:?}");
    let call = |client: &mut LiveClient, method: &str, data: &str| {
        let data = Data::of_payload(data.to_owned().into_bytes().into());
        client.ask(Request::Rpc(RpcRequest { data, method: method.into() })).unwrap_err()
    };
    client.subscribe("jobs?group=a&ack=client");
    client.subscribe("jobs");
    for (method, channel, tag, told) in [
        ("sennit.forget", channel, "0.1.1.1", "sennit.ack"),
        ("sennit.ack", "other", "0.1.1.1", "no subscription to \"other\""),
        ("sennit.ack", "jobs", "0.1.1.1", "no channel of a group"),
        ("sennit.ack", channel, "0.1.1.1", "`ack=client`"),
        ("sennit.ack", "jobs?group=a&ack=client", "0.1.1", "the tag `delivery`"),
        ("sennit.ack", "jobs?group=a&ack=client", "9.1.1.1", "the tag `delivery`"),
    ] {
        let data = json!({ "channel": channel, "deliveries": [tag] }).to_string();
        let error = call(&mut client, method, &data);
        assert!(error.message.contains(told), "{method} {channel}: {error:?}");
    }
    let error = call(&mut client, "sennit.ack", "not json");
    assert!(error.message.contains("{\"channel\": ..., \"deliveries\": [...]}"), "{error:?}");
    // Of the others, a connection has so many.
    for number in 2..16 {
        client.subscribe(&format!("jobs?group=g{number}"));
    }
    assert!(subscribed(&mut client, "jobs?group=more").message.contains("GROUPS_MAX is 16"));
    broker.stop();
}

#[test]
fn a_group_is_for_those_who_may_consume_and_settling_for_those_who_may_settle() {
    let mut guarded = Guarded::start();
    let admin = guarded.admin_key.clone();
    LiveClient::connect(&guarded.broker, Encoding::Json, &admin).subscribe("jobs");
    let channel = "jobs?group=mailers&ack=client";
    let subscribe = |client: &mut LiveClient, channel: &str| {
        client.subscribed(SubscribeRequest { channel: channel.into(), ..<_>::default() })
    };
    let key = guarded.key("", &["subscribe,publish,settle >"]);
    let mut client = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    for channel in [channel, "jobs?group=mailers"] {
        let error = subscribe(&mut client, channel).unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied.code(), "{error:?}");
        assert!(error.message.contains("consume"), "{error:?}");
    }
    let key = guarded.key("", &["consume,publish jobs"]);
    let mut client = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    // The broker would settle on its behalf.
    let error = subscribe(&mut client, "jobs?group=mailers").unwrap_err();
    assert!(error.message.contains("settle"), "{error:?}");
    subscribe(&mut client, channel).unwrap();
    client.publish("jobs", "a").unwrap();
    let (a, ..) = given(&mut client);
    let error = settle(&mut client, "sennit.ack", channel, &[&a], json!({})).unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied.code(), "{error:?}");
    // A right that is taken away ends it.
    guarded.revoke(&key, "consume,publish jobs");
    match client.push() {
        (of, PushKind::Unsubscribe(told)) => {
            assert_eq!((&*of, told.code), (channel, UnsubscribeCode::Server.code()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_subscription_to_a_group_ends_with_its_topic_and_can_be_made_by_a_program() {
    let mut guarded = Guarded::start();
    let mut admin = logged_in(&guarded.broker, &guarded.admin_key);
    let key = guarded.key("", &["consume,settle,create,publish >"]);
    let mut client = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    let channel = "jobs?group=mailers";
    let wanted = json!({ "connection": client.id, "channel": channel });
    let (status, told) = as_admin(&guarded, "POST", "/api/v1/live/subscribe", &wanted);
    assert_eq!((status, &told["subscribed"]), (200, &json!(1)), "{told}");
    assert!(matches!(client.push(), (of, PushKind::Subscribe(_)) if of == channel));
    client.publish("jobs", "a").unwrap();
    assert_eq!(given(&mut client).1, "a");
    let mut other = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    other.subscribe("jobs?group=others");
    assert_eq!(given(&mut other).1, "a");
    let delete = control::DeleteTopic { name: "jobs".into() };
    let Reply::Done(_) = admin.ask(&NativeRequest::DeleteTopic(delete)) else { panic!() };
    match other.push() {
        (_, PushKind::Unsubscribe(told)) => {
            assert_eq!(told.code, UnsubscribeCode::InsufficientState.code());
        }
        other => panic!("{other:?}"),
    }
    // It has not subscribed itself, and cannot again: it comes back.
    assert_eq!(client.close().code.map(|code| code.number()), Some(3010));
}

#[test]
fn clients_of_wse_are_in_groups_whose_messages_are_settled_at_hand_over() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut client = WseClient::of(&broker);
    let channel = "jobs?group=mailers";
    client.ask_for(channel);
    client.event("subscription_update");
    LiveClient::of(&broker).publish("jobs", "a").unwrap();
    let told = client.next().unwrap();
    assert_eq!((&told["tp"], &told["p"]["data"]), (&json!(channel), &json!("a")), "{told}");
    until_settled(&mut peer, "mailers", &[1]);
    client.ask_for("jobs?group=mailers&ack=client");
    assert_eq!(client.event("subscription_update")["success"], json!(false));
    let error = client.event("error");
    assert!(error.to_string().contains("leave out `ack=client`"), "{error}");
    broker.stop();
}

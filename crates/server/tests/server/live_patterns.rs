//! Subscriptions to patterns of topics: what is published to any that match, also to those that come later, and to no other.

use sennit_centrifuge::{
    ChannelRequest, DisconnectCode, Encoding, ErrorCode, Publication, PushKind, Request,
    SubscribeRequest, UnsubscribeCode,
};
use sennit_protocol::{Reply, Request as NativeRequest, control};
use sennit_websocket::CloseCode;

use crate::{
    access::{Guarded, create_tenant},
    live_client::{LiveClient, recovering, text_of},
    reading::{published, reader, stream},
    world::{Broker, Peer},
};

/// The next publication in a pattern: its topic and its text.
pub fn next(client: &mut LiveClient, pattern: &str) -> (String, String) {
    let (channel, publication) = client.published();
    assert_eq!((channel.as_str(), publication.offset), (pattern, 0));
    let Publication { data, tags, .. } = publication;
    (tags["topic"].clone(), text_of(client.encoding, &data))
}

fn of(topic: &str, text: &str) -> (String, String) {
    (topic.to_owned(), text.to_owned())
}

fn unsubscribed(client: &mut LiveClient) -> (String, u32) {
    match client.push() {
        (channel, PushKind::Unsubscribe(ended)) => (channel, ended.code),
        other => panic!("{other:?}"),
    }
}

fn delete(peer: &mut Peer, name: &str) {
    let delete = control::DeleteTopic { name: name.into() };
    let Reply::Done(_) = peer.ask(&NativeRequest::DeleteTopic(delete)) else { panic!("{name}") };
}

#[test]
fn a_pattern_has_what_is_published_to_all_that_match_now_and_later() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    for name in ["chat.a", "chat.b", "chat.b.deep", "news"] {
        stream(&mut peer, name, 1);
    }
    let mut clients: Vec<LiveClient> = [Encoding::Json, Encoding::Protobuf, Encoding::Json]
        .map(|encoding| LiveClient::connect(&broker, encoding, ""))
        .into();
    let mut publisher = LiveClient::of(&broker);
    publisher.publish("chat.a", "before").unwrap();
    for client in &mut clients {
        let result = client.subscribe("chat.*");
        assert!(!result.recoverable && !result.positioned && !result.recovered, "{result:?}");
        assert_eq!((result.offset, result.epoch.as_str()), (0, ""));
    }
    for (topic, text) in
        [("chat.a", "one"), ("chat.b.deep", "no"), ("news", "no"), ("chat.b", "two")]
    {
        publisher.publish(topic, text).unwrap();
    }
    // These are not there yet.
    publisher.publish("chat.new", "three").unwrap();
    publisher.publish("chat.größe", "four").unwrap();
    for client in &mut clients {
        // What a client of JSON publishes is a text in quotes to one of Protobuf.
        let encoding = client.encoding;
        let text = |text: &str| match encoding {
            Encoding::Json => text.to_owned(),
            Encoding::Protobuf => format!("{text:?}"),
        };
        let expected =
            [("chat.a", "one"), ("chat.b", "two"), ("chat.new", "three"), ("chat.größe", "four")]
                .map(|(topic, said)| of(topic, &text(said)));
        let mut heard: Vec<_> = (0..4).map(|_| next(client, "chat.*")).collect();
        // Between topics there is no order.
        heard.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(heard, expected);
    }
    // A topic that is gone harms nobody, and one of the same name is another.
    delete(&mut peer, "chat.a");
    publisher.publish("chat.b", "five").unwrap();
    assert_eq!(next(&mut clients[0], "chat.*").0, "chat.b");
    stream(&mut peer, "chat.a", 1);
    publisher.publish("chat.a", "six").unwrap();
    assert_eq!(next(&mut clients[0], "chat.*"), of("chat.a", "six"));
    // Who leaves gets nothing more.
    clients[0].unsubscribe("chat.*");
    publisher.publish("chat.b", "seven").unwrap();
    clients[0].subscribe("news");
    publisher.publish("news", "eight").unwrap();
    assert_eq!(clients[0].published().0, "news");
    broker.stop();
}

#[test]
fn patterns_and_topics_do_not_disturb_each_other() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "chat.a", 1);
    let mut client = LiveClient::of(&broker);
    client.subscribe("chat.a");
    client.subscribe("chat.*");
    client.subscribe(">");
    let mut other = LiveClient::of(&broker);
    other.subscribe("chat.a");
    let texts: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    for (index, text) in texts.iter().enumerate() {
        published(&mut peer, topic, 0, index as u64, &[text]);
    }
    let (mut by_topic, mut by_star, mut by_all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..900 {
        let (channel, publication) = client.published();
        let text = String::from_utf8(publication.data.as_bytes().to_vec()).unwrap();
        match channel.as_str() {
            "chat.a" => by_topic.push((publication.offset, text)),
            "chat.*" => by_star.push((publication.offset, text)),
            ">" => by_all.push((publication.offset, text)),
            _ => panic!("{channel}"),
        }
    }
    let expected = |offset: fn(u64) -> u64| -> Vec<_> {
        texts.iter().enumerate().map(|(at, text)| (offset(at as u64), text.clone())).collect()
    };
    assert_eq!(by_topic, expected(|at| at + 1));
    assert_eq!(by_star, expected(|_| 0));
    assert_eq!(by_all, expected(|_| 0));
    assert_eq!(other.offsets("chat.a", 300), (1..=300).collect::<Vec<_>>());
    // The topic goes on for the pattern when nobody is subscribed to it alone.
    client.unsubscribe("chat.a");
    drop(other);
    published(&mut peer, topic, 0, 300, &["\"last\""]);
    let mut heard = [client.published().0, client.published().0];
    heard.sort();
    assert_eq!(heard, [">", "chat.*"]);
    broker.stop();
}

#[test]
fn a_pattern_has_the_topics_that_its_subscriber_may_have_and_no_others() {
    let mut guarded = Guarded::start();
    let admin_key = guarded.admin_key.clone();
    let mut admin = LiveClient::connect(&guarded.broker, Encoding::Json, &admin_key);
    for channel in ["chat.open", "chat.secret", "other"] {
        admin.subscribe(channel);
        admin.unsubscribe(channel);
    }
    let key = guarded.key("", &["subscribe chat.>", "deny subscribe chat.secret"]);
    let mut client = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    client.subscribe("chat.*");
    admin.subscribe("chat.*");
    for (channel, text) in [("chat.secret", "no"), ("chat.open", "yes"), ("chat.secret", "no")] {
        admin.publish(channel, text).unwrap();
        assert_eq!(next(&mut admin, "chat.*"), of(channel, text));
    }
    admin.publish("chat.open", "again").unwrap();
    assert_eq!(next(&mut client, "chat.*"), of("chat.open", "yes"));
    assert_eq!(next(&mut client, "chat.*"), of("chat.open", "again"));
    // Other rights: it subscribes anew, and has what they allow.
    guarded.revoke(&key, "deny subscribe chat.secret");
    assert_eq!(
        unsubscribed(&mut client),
        ("chat.*".into(), UnsubscribeCode::InsufficientState.code())
    );
    client.subscribe("chat.*");
    admin.publish("chat.secret", "now").unwrap();
    assert_eq!(next(&mut client, "chat.*"), of("chat.secret", "now"));
    // Rights of others are nothing to it.
    let stranger = guarded.key("", &["subscribe other"]);
    admin.publish("chat.open", "still").unwrap();
    assert_eq!(next(&mut client, "chat.*"), of("chat.open", "still"));
    guarded.revoke(&key, "subscribe chat.>");
    assert_eq!(unsubscribed(&mut client), ("chat.*".into(), UnsubscribeCode::Server.code()));
    let refused =
        client.subscribed(SubscribeRequest { channel: "chat.*".into(), ..<_>::default() });
    assert_eq!(refused.unwrap_err().code, ErrorCode::PermissionDenied.code());
    let mut stranger = LiveClient::connect(&guarded.broker, Encoding::Json, &stranger.text);
    let refused =
        stranger.subscribed(SubscribeRequest { channel: "chat.*".into(), ..<_>::default() });
    assert_eq!(refused.unwrap_err().code, ErrorCode::PermissionDenied.code());
    // Nothing of the broker's own, and nothing of other tenants.
    guarded.change(create_tenant("acme"));
    let of_acme = guarded.key("acme", &["* >"]);
    let mut tenant = LiveClient::connect(&guarded.broker, Encoding::Json, &of_acme.text);
    tenant.subscribe(">");
    admin.publish("other", "no").unwrap();
    admin.publish("acme.news", "yes").unwrap();
    assert_eq!(next(&mut tenant, ">"), of("acme.news", "yes"));
}

#[test]
fn who_falls_behind_a_pattern_is_told_and_subscribes_anew() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "chat.a", 1);
    let mut slow = LiveClient::of(&broker);
    slow.subscribe("chat.*");
    let mut quick = LiveClient::of(&broker);
    quick.subscribe("chat.*");
    // More than sockets and rings hold.
    let text = format!("\"{}\"", "x".repeat(64 << 10));
    let count = 400;
    for at in 0..count {
        published(&mut peer, topic, 0, at, &[&text]);
        assert_eq!(next(&mut quick, "chat.*").0, "chat.a");
    }
    let mut had = 0;
    let code = loop {
        match slow.push() {
            (_, PushKind::Publication(_)) => had += 1,
            (channel, PushKind::Unsubscribe(ended)) => {
                assert_eq!(channel, "chat.*");
                break ended.code;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, UnsubscribeCode::InsufficientState.code());
    assert!(had < count, "{had}");
    let result = slow.subscribed(recovering("chat.*", ("", 0))).unwrap();
    assert!(result.was_recovering && !result.recovered);
    published(&mut peer, topic, 0, count, &["1"]);
    let (_, publication) = slow.published();
    assert_eq!(publication.data.as_bytes(), b"1");
    broker.stop();
}

#[test]
fn a_pattern_is_for_subscriptions_and_has_limits() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    let refused = |client: &mut LiveClient, request| client.ask(request).unwrap_err();
    let channel = || "chat.*".to_owned();
    for request in [
        client.publication("chat.*", "x"),
        Request::History(sennit_centrifuge::HistoryRequest {
            channel: channel(),
            ..<_>::default()
        }),
        Request::Presence(ChannelRequest { channel: channel() }),
    ] {
        let error = refused(&mut client, request);
        assert_eq!(error.code, ErrorCode::BadRequest.code(), "{error:?}");
        assert!(error.message.contains("'*' at byte 5"), "{error:?}");
    }
    let subscribe = |channel: &str| {
        Request::Subscribe(SubscribeRequest { channel: channel.into(), ..<_>::default() })
    };
    let error = refused(&mut client, subscribe("a.>.b"));
    assert_eq!(error.code, ErrorCode::BadRequest.code(), "{error:?}");
    for number in 0..8 {
        client.subscribe(&format!("room{number}.*"));
    }
    assert_eq!(
        refused(&mut client, subscribe("room1.*")).code,
        ErrorCode::AlreadySubscribed.code()
    );
    let error = refused(&mut client, subscribe("room8.*"));
    assert_eq!(error.code, ErrorCode::LimitExceeded.code());
    assert_eq!(error.message, "PATTERNS_MAX is 8");
    client.unsubscribe("room7.*");
    client.subscribe("room8.*");
    let flag = SubscribeRequest::REJECT_UNRECOVERED;
    let request = SubscribeRequest { flag, ..recovering("room9.*", ("", 1)) };
    client.unsubscribe("room8.*");
    let error = client.subscribed(request).unwrap_err();
    assert_eq!(error.code, ErrorCode::UnrecoverablePosition.code());
    // Other clients share what it follows, and go on when it is gone.
    let mut other = LiveClient::of(&broker);
    other.subscribe("room1.*");
    drop(client);
    let mut publisher = LiveClient::of(&broker);
    publisher.publish("room1.x", "y").unwrap();
    assert_eq!(next(&mut other, "room1.*"), of("room1.x", "y"));
    let stopping = broker.begin_to_stop();
    assert_eq!(other.close().code, CloseCode::of(DisconnectCode::Shutdown.code()));
    crate::world::ended(stopping);
}

#[test]
fn more_topics_than_a_pattern_may_mean_are_told() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let mut client = LiveClient::of(&broker);
    client.subscribe("many.*");
    let create = |number: usize| {
        let config = control::TopicConfig {
            partitions: Some(1),
            durability: control::Durability::Memory.into(),
            time_to_live_ms: None,
            ..<_>::default()
        };
        let name = format!("many.{number}");
        NativeRequest::CreateTopic(control::CreateTopic {
            name,
            config: Some(config),
            beside: None,
        })
    };
    for number in 0..1000 {
        assert!(matches!(peer.ask(&create(number)), Reply::Done(_)), "{number}");
    }
    client.publish("many.7", "all").unwrap();
    assert_eq!(next(&mut client, "many.*"), of("many.7", "all"));
    assert!(matches!(peer.ask(&create(1000)), Reply::Done(_)));
    assert_eq!(
        unsubscribed(&mut client),
        ("many.*".into(), UnsubscribeCode::InsufficientState.code())
    );
    let request = SubscribeRequest { channel: "many.*".into(), ..<_>::default() };
    let error = client.subscribed(request).unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded.code());
    assert_eq!(error.message, "1001 topics match, and PATTERN_TOPICS_MAX is 1000");
    broker.stop();
}

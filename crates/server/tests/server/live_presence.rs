//! Presence over real sockets: clients learn who is subscribed to a topic, who comes and who goes, and which client has
//! published a message.

use std::collections::BTreeSet;

use sennit_centrifuge::{
    Answer, ChannelRequest, ClientInfo, Data, Encoding, ErrorCode, PresenceStatsResult, PushKind,
    Request, SubscribeRequest,
};
use sennit_model::Header;
use sennit_server::Config;

use crate::{
    live_client::LiveClient,
    reading::{begin, read, reader, stream},
    tokens,
    world::{Broker, config, until},
};

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// A subscription whose client is told who comes and goes.
fn told(channel: &str) -> SubscribeRequest {
    SubscribeRequest { channel: channel.into(), join_leave: true, ..<_>::default() }
}

fn presence(client: &mut LiveClient, channel: &str) -> Vec<ClientInfo> {
    match client.ask(Request::Presence(ChannelRequest { channel: channel.into() })) {
        Ok(Answer::Presence(result)) => {
            assert!(result.presence.iter().all(|(id, info)| *id == info.client));
            result.presence.into_values().collect()
        }
        other => panic!("{other:?}"),
    }
}

fn counts(client: &mut LiveClient, channel: &str) -> (u32, u32) {
    match client.ask(Request::PresenceStats(ChannelRequest { channel: channel.into() })) {
        Ok(Answer::PresenceStats(PresenceStatsResult { clients, users })) => (clients, users),
        other => panic!("{other:?}"),
    }
}

/// Waits until so many clients and users are there.
fn until_counts(client: &mut LiveClient, channel: &str, expected: (u32, u32)) {
    let client = std::cell::RefCell::new(client);
    until("they are there", || counts(&mut client.borrow_mut(), channel) == expected);
}

/// The next push, by which a client is told that another came (`true`), or went.
fn change(client: &mut LiveClient) -> (bool, ClientInfo) {
    match client.push() {
        (_, PushKind::Join(info)) => (true, info),
        (_, PushKind::Leave(info)) => (false, info),
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_are_told_who_comes_and_goes_and_may_ask_who_is_there() {
    let (broker, _folder) = Broker::fresh();
    for encoding in ENCODINGS {
        let channel = format!("room {encoding:?}");
        let mut watcher = LiveClient::connect(&broker, encoding, "");
        watcher.subscribed(told(&channel)).unwrap();
        let (came, itself) = change(&mut watcher);
        assert!(came, "the first of whom it is told is itself");
        assert_eq!(presence(&mut watcher, &channel), std::slice::from_ref(&itself));
        let mut other = LiveClient::of(&broker);
        other.subscribe(&channel);
        let (came, info) = change(&mut watcher);
        assert!(came && info.client != itself.client && info.user.is_empty(), "{info:?}");
        let there: BTreeSet<String> =
            presence(&mut other, &channel).into_iter().map(|info| info.client).collect();
        assert_eq!(there, BTreeSet::from([itself.client.clone(), info.client.clone()]));
        assert_eq!(counts(&mut watcher, &channel), (2, 1), "nobody has said who it is");
        other.unsubscribe(&channel);
        assert_eq!(change(&mut watcher), (false, info));
        // One whose connection is cut goes as well.
        other.subscribe(&channel);
        let (came, info) = change(&mut watcher);
        assert!(came);
        drop(other);
        assert_eq!(change(&mut watcher), (false, info));
        assert_eq!(counts(&mut watcher, &channel), (1, 1));
    }
    broker.stop();
}

#[test]
fn only_those_who_ask_are_told_unless_all_are_to_be() {
    for live_tells_all in [false, true] {
        let folder = tempfile::TempDir::new().unwrap();
        let broker = Broker::start(Config { live_tells_all, ..config(folder.path()) });
        let mut client = LiveClient::of(&broker);
        client.subscribe("room");
        let mut other = LiveClient::of(&broker);
        other.subscribed(told("room")).unwrap();
        assert!(change(&mut other).0);
        if live_tells_all {
            assert!(change(&mut client).0 && change(&mut client).0, "itself, and the other");
        } else {
            client.publish("room", "hello").unwrap();
            client.published();
        }
        drop((client, other));
        broker.stop();
    }
}

#[test]
fn what_a_client_says_of_its_subscription_is_shown_to_others() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    let data = |text: &str| Data::of_payload(text.to_owned().into_bytes().into());
    let request = SubscribeRequest { data: data(r#"{"name":"Ada"}"#), ..told("room") };
    client.subscribed(request).unwrap();
    let (_, info) = change(&mut client);
    assert_eq!(info.channel_data.as_bytes(), br#"{"name":"Ada"}"#);
    let long =
        SubscribeRequest { data: data(&format!("\"{}\"", "x".repeat(4096))), ..told("other") };
    let refused = client.subscribed(long).unwrap_err();
    assert_eq!(refused.code, ErrorCode::LimitExceeded.code(), "{refused:?}");
    assert!(refused.message.contains("PRESENCE_DATA_BYTES_MAX"), "{refused:?}");
    broker.stop();
}

#[test]
fn a_user_with_several_connections_is_one_user_and_its_token_says_what_others_see() {
    let (broker, _folder) = tokens::broker();
    let token = |subject: &str| {
        let mut token = tokens::token(subject, &[], &["subscribe,publish,create >"]);
        token.others.insert("info".into(), format!("the name of {subject}").into());
        tokens::mint(&token)
    };
    let mut clients: Vec<_> = ["ada", "bob", "ada"]
        .map(|user| LiveClient::connect(&broker, Encoding::Json, &token(user)))
        .into();
    for client in &mut clients {
        client.subscribe("room");
    }
    until_counts(&mut clients[1], "room", (3, 2));
    let there = presence(&mut clients[1], "room");
    assert_eq!(there.iter().filter(|info| info.user == "ada").count(), 2);
    let bob = there.iter().find(|info| info.user == "bob").unwrap();
    assert_eq!(bob.connection_data.as_bytes(), b"\"the name of bob\"");
    clients[1].publish("room", "hello").unwrap();
    let (_, publication) = clients[0].published();
    assert_eq!(publication.info.as_ref(), Some(bob), "a publication says who has published it");
    drop(clients);
    broker.stop();
}

#[test]
fn the_log_says_which_client_has_published_a_message() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    stream(&mut peer, "room", 1);
    let mut client = LiveClient::of(&broker);
    client.publish("room", "from a browser").unwrap();
    begin(&mut peer, read("room"));
    let delivery = peer.delivery();
    let batch = delivery.check_messages().unwrap();
    let message = batch.messages().next().unwrap();
    let headers: Vec<Header> = message
        .headers()
        .map(|header| {
            let (name, kind, value) = header.unwrap();
            Header { name: name.into(), kind, value: value.to_vec().into() }
        })
        .collect();
    assert_eq!(headers.len(), 1, "nobody has said who it is: {headers:?}");
    assert_eq!(headers[0].name, "sennit-client");
    // Recovery and history say it too.
    let result = client.subscribed(crate::live_client::recovering("room", ("", 0))).unwrap();
    assert!(result.recovered);
    let (_, publication) = client.published();
    let publisher = publication.info.unwrap();
    assert_eq!(publisher.client.as_bytes(), &headers[0].value[..]);
    broker.stop();
}

#[test]
fn presence_is_refused_without_the_right_and_where_a_topic_does_not_keep_it() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    stream(&mut peer, "orders", 1);
    let mut client = LiveClient::of(&broker);
    client.subscribed(told("orders")).unwrap();
    for request in [
        Request::Presence(ChannelRequest { channel: "orders".into() }),
        Request::PresenceStats(ChannelRequest { channel: "orders".into() }),
    ] {
        let refused = client.ask(request).unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotAvailable.code(), "{refused:?}");
        assert!(refused.message.contains("presence"), "{refused:?}");
    }
    let request = Request::Presence(ChannelRequest { channel: "absent".into() });
    assert_eq!(client.ask(request).unwrap_err().code, ErrorCode::UnknownChannel.code());
    broker.stop();
}

/// More clients are told than are told at once: then it is by and by, and leads to the same.
#[test]
fn many_clients_learn_in_the_end_who_is_there() {
    let (broker, _folder) = Broker::fresh();
    let mut clients: Vec<LiveClient> = (0..150)
        .map(|_| {
            let mut client = LiveClient::of(&broker);
            client.subscribed(told("crowd")).unwrap();
            client
        })
        .collect();
    let mut watcher = clients.remove(0);
    let mut leaving = clients.split_off(50);
    until_counts(&mut watcher, "crowd", (150, 1));
    leaving.iter_mut().for_each(|client| client.unsubscribe("crowd"));
    drop(leaving);
    until_counts(&mut watcher, "crowd", (51, 1));
    let expected: BTreeSet<String> =
        presence(&mut watcher, "crowd").into_iter().map(|info| info.client).collect();
    let mut known = BTreeSet::new();
    while known != expected {
        let (came, info) = change(&mut watcher);
        if came {
            known.insert(info.client);
        } else {
            known.remove(&info.client);
        }
    }
    drop((clients, watcher));
    broker.stop();
}

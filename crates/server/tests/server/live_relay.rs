//! Brokers that share a Redis: what is published at one reaches those who are subscribed at another, by name or by a pattern, each
//! message once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use sennit_centrifuge::{
    Answer, ChannelRequest, ClientInfo, Data, PushKind, Request, SubscribeRequest,
};
use sennit_server::{Config, LiveRedis};
use tempfile::TempDir;

use crate::{
    fake_redis::FakeRedis,
    live_client::{LiveClient, text_of},
    live_patterns::next,
    world::{Broker, config, until},
};

/// A broker that shares a Redis with others.
fn sharing(redis: &FakeRedis) -> (Broker, TempDir) {
    let folder = TempDir::new().unwrap();
    let live_redis = LiveRedis { url: Some(redis.url().parse().unwrap()), ..<_>::default() };
    let broker = Broker::start(Config { live_redis, ..config(folder.path()) });
    (broker, folder)
}

/// The clients that are subscribed to a channel, by their ids.
fn here(client: &mut LiveClient, channel: &str) -> BTreeMap<String, ClientInfo> {
    let asked = ChannelRequest { channel: channel.into() };
    match client.ask(Request::Presence(asked)) {
        Ok(Answer::Presence(presence)) => presence.presence,
        other => panic!("{other:?}"),
    }
}

/// The next publication of a channel.
fn text(client: &mut LiveClient, channel: &str) -> String {
    let (of, publication) = client.published();
    assert_eq!(of, channel);
    text_of(client.encoding, &publication.data)
}

#[test]
fn clients_of_several_brokers_have_ids_of_their_own() {
    let brokers = [Broker::fresh(), Broker::fresh()];
    let clients = brokers.iter().flat_map(|(broker, _)| (0..8).map(|_| LiveClient::of(broker)));
    let clients: Vec<LiveClient> = clients.collect();
    let ids: BTreeSet<&str> = clients.iter().map(|client| &*client.id).collect();
    assert_eq!(ids.len(), clients.len(), "{ids:?}");
    for (broker, _folder) in brokers {
        broker.stop();
    }
}

#[test]
fn redis_is_asked_for_a_topic_once_however_many_subscribe() {
    let redis = FakeRedis::start();
    let ((here, _folder), (elsewhere, _other_folder)) = (sharing(&redis), sharing(&redis));
    let mut clients: Vec<LiveClient> = (0..5).map(|_| LiveClient::of(&here)).collect();
    for client in &mut clients {
        client.subscribe("news");
    }
    clients[0].unsubscribe("news");
    clients[0].subscribe("news");
    assert_eq!(redis.times_asked("SUBSCRIBE sennit:topic:news"), 1);
    LiveClient::of(&elsewhere).publish("news", "hello").unwrap();
    for client in &mut clients {
        assert_eq!(text(client, "news"), "hello");
    }
    here.stop();
    elsewhere.stop();
}

#[test]
fn a_subscriber_of_a_pattern_alone_gets_what_another_broker_publishes_and_each_message_once() {
    let redis = FakeRedis::start();
    let ((here, _folder), (elsewhere, _other_folder)) = (sharing(&redis), sharing(&redis));
    let mut publisher = LiveClient::of(&elsewhere);
    publisher.publish("chat.a", "before").unwrap();
    // It is confirmed before Redis has it.
    until("Redis has it", || redis.has_published("before"));
    let mut client = LiveClient::of(&here);
    client.subscribe("chat.*");
    assert_eq!(redis.times_asked("PSUBSCRIBE sennit:topic:chat.*"), 1);
    let of = |topic: &str, said: &str| (topic.to_owned(), said.to_owned());
    // No broker here knows these topics.
    for (topic, said) in [("chat.a.b", "too deep"), ("chat.a", "one"), ("chat.b", "two")] {
        publisher.publish(topic, said).unwrap();
    }
    let mut heard = [next(&mut client, "chat.*"), next(&mut client, "chat.*")];
    heard.sort();
    assert_eq!(heard, [of("chat.a", "one"), of("chat.b", "two")]);
    // One who is subscribed by name as well gets it once, and so does the pattern.
    let mut named = LiveClient::of(&here);
    named.subscribe("chat.a");
    assert_eq!(redis.times_asked("SUBSCRIBE sennit:topic:chat.a"), 1);
    for said in ["three", "four"] {
        publisher.publish("chat.a", said).unwrap();
        assert_eq!(next(&mut client, "chat.*"), of("chat.a", said));
        assert_eq!(text(&mut named, "chat.a"), said);
    }
    // And what is published here reaches both once.
    LiveClient::of(&here).publish("chat.a", "five").unwrap();
    assert_eq!(next(&mut client, "chat.*"), of("chat.a", "five"));
    assert_eq!(text(&mut named, "chat.a"), "five");
    // The name is followed first, then the pattern comes.
    let mut named = LiveClient::of(&here);
    named.subscribe("room.1");
    client.subscribe("room.>");
    publisher.publish("room.1", "six").unwrap();
    assert_eq!(next(&mut client, "room.>"), of("room.1", "six"));
    assert_eq!(text(&mut named, "room.1"), "six");
    publisher.publish("room.1", "seven").unwrap();
    assert_eq!(next(&mut client, "room.>"), of("room.1", "seven"));
    assert_eq!(text(&mut named, "room.1"), "seven");
    // What is too deep for the pattern is no topic here.
    let history = LiveClient::of(&here).subscribe("chat.a.b");
    assert_eq!(history.offset, 0);
    here.stop();
    elsewhere.stop();
}

/// Passes over who comes and goes until it is this client; whether it comes.
fn comes(client: &mut LiveClient, id: &str) -> bool {
    loop {
        match client.push().1 {
            PushKind::Join(info) if info.client == id => return true,
            PushKind::Leave(info) if info.client == id => return false,
            PushKind::Join(_) | PushKind::Leave(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn clients_are_seen_at_all_brokers_until_they_go_or_their_broker_does() {
    let redis = FakeRedis::start();
    let ((here_broker, _folder), (elsewhere, _other_folder)) = (sharing(&redis), sharing(&redis));
    let told = || SubscribeRequest {
        channel: "room".into(),
        join_leave: true,
        data: Data::of_payload(b"{\"mood\":1}".to_vec().into()),
        ..SubscribeRequest::default()
    };
    // One who was there before the other broker follows the topic is asked for.
    let mut first = LiveClient::of(&elsewhere);
    first.subscribed(told()).unwrap();
    let ada = RefCell::new(LiveClient::of(&here_broker));
    ada.borrow_mut().subscribed(told()).unwrap();
    until("both are seen", || here(&mut ada.borrow_mut(), "room").len() == 2);
    let mut ada = ada.into_inner();
    let seen = here(&mut ada, "room");
    for id in [&ada.id, &first.id] {
        assert_eq!(seen[id].channel_data.as_bytes(), b"{\"mood\":1}", "{seen:?}");
    }
    assert!(comes(&mut first, &ada.id), "the other broker is told as well");
    // One comes, and goes.
    let mut second = LiveClient::of(&elsewhere);
    second.subscribe("room");
    assert!(comes(&mut ada, &second.id));
    let asked = ChannelRequest { channel: "room".into() };
    match ada.ask(Request::PresenceStats(asked)) {
        Ok(Answer::PresenceStats(counts)) => assert_eq!((counts.clients, counts.users), (3, 1)),
        other => panic!("{other:?}"),
    }
    second.unsubscribe("room");
    assert!(!comes(&mut ada, &second.id));
    // A broker that says nothing any more is gone, with all that are subscribed there.
    redis.silence(&first.id);
    assert!(!comes(&mut ada, &first.id));
    assert_eq!(here(&mut ada, "room").into_keys().collect::<Vec<_>>(), [ada.id.clone()]);
    here_broker.stop();
    elsewhere.stop();
}

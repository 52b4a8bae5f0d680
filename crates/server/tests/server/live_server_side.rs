//! Subscriptions that clients have not asked for: those of their tokens, and those that programs make.

use std::collections::BTreeMap;

use sennit_centrifuge::{
    ConnectRequest, ConnectResult, DisconnectCode, Encoding, ErrorCode, PushKind, ReplyError,
    SubscribeRequest, Token, UnsubscribeCode,
};
use sennit_identity::NewToken;
use sennit_protocol::{Reply, Request, control};
use sennit_websocket::CloseCode;
use serde_json::{Value, json};

use crate::{
    access::{Guarded, logged_in},
    live_client::LiveClient,
    live_targets::as_admin,
    tokens,
    world::{Broker, Peer},
};

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];
const SUBSCRIBE: &str = "/api/v1/live/subscribe";
const UNSUBSCRIBE: &str = "/api/v1/live/unsubscribe";

/// A token of ada with these channels and rights.
fn token(channels: &[&str], rights: &[&str]) -> String {
    let channels = channels.iter().map(|channel| (*channel).into()).collect();
    tokens::mint(&NewToken { channels, ..tokens::token("ada", &[], rights) })
}

/// A client that comes with this token, at these positions.
fn coming(
    broker: &Broker,
    encoding: Encoding,
    token: &str,
    positions: &[(&str, &str, u64)],
) -> (LiveClient, Result<ConnectResult, ReplyError>) {
    let mut client = LiveClient::open(broker, encoding, &[]);
    let recovering = |(channel, epoch, offset): &(&str, &str, u64)| {
        let request = SubscribeRequest {
            recover: true,
            epoch: (*epoch).into(),
            offset: *offset,
            ..<_>::default()
        };
        ((*channel).to_owned(), request)
    };
    let subs: BTreeMap<_, _> = positions.iter().map(recovering).collect();
    let token = Token(token.into());
    let result = client.log_in_with(ConnectRequest { token, subs, ..<_>::default() });
    (client, result)
}

fn delete(peer: &mut Peer, name: &str) {
    let delete = control::DeleteTopic { name: name.into() };
    let Reply::Done(_) = peer.ask(&Request::DeleteTopic(delete)) else { panic!("it is deleted") };
}

#[test]
fn channels_of_a_token_are_subscribed_to_before_the_connect_is_answered() {
    let (broker, _folder) = tokens::broker();
    let rights = ["subscribe,create,publish >"];
    let token = token(&["news", "chat:index"], &rights);
    let mut publisher = LiveClient::connect(
        &broker,
        Encoding::Json,
        &tokens::mint(&tokens::token("bob", &[], &rights)),
    );
    for (round, encoding) in ENCODINGS.into_iter().enumerate() {
        let (mut client, result) = coming(&broker, encoding, &token, &[]);
        let subs = result.unwrap().subs;
        assert_eq!(subs.keys().collect::<Vec<_>>(), ["chat:index", "news"]);
        let news = &subs["news"];
        assert!(news.recoverable && news.positioned && !news.was_recovering, "{news:?}");
        let offset = news.offset;
        assert_eq!(offset, 3 * round as u64);
        publisher.publish("news", "one").unwrap();
        assert_eq!(client.offsets("news", 1), [offset + 1]);
        let again =
            client.subscribed(SubscribeRequest { channel: "news".into(), ..<_>::default() });
        assert_eq!(again.unwrap_err().code, ErrorCode::AlreadySubscribed.code());
        // It is away, and comes back where it was.
        drop(client);
        publisher.publish("news", "two").unwrap();
        let position = ("news", news.epoch.as_str(), offset + 1);
        let (mut client, result) = coming(&broker, encoding, &token, &[position]);
        let subs = result.unwrap().subs;
        assert!(subs["news"].recovered && subs["news"].was_recovering);
        assert_eq!(subs["news"].offset, offset + 1);
        publisher.publish("news", "three").unwrap();
        assert_eq!(client.offsets("news", 2), [offset + 2, offset + 3]);
        // What its token does not name it does not get that way.
        let (_, result) = coming(&broker, encoding, &token, &[("other", "", 0)]);
        assert!(!result.unwrap().subs.contains_key("other"));
    }
    broker.stop();
}

#[test]
fn a_client_whose_token_names_what_it_may_not_have_is_told_so_and_goes() {
    let (broker, _folder) = tokens::broker();
    for encoding in ENCODINGS {
        let token = token(&["news", "secret"], &["subscribe,create news"]);
        let (mut client, result) = coming(&broker, encoding, &token, &[]);
        let error = result.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied.code());
        assert!(error.message.contains("subscribe \"secret\""), "{error:?}");
        let code = client.close().code;
        assert_eq!(code, CloseCode::of(DisconnectCode::PermissionDenied.code()));
    }
    let many: Vec<String> = (0..129).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (_, result) = coming(&broker, Encoding::Json, &token(&many, &["subscribe,create >"]), &[]);
    assert_eq!(result.unwrap_err().code, ErrorCode::LimitExceeded.code());
    broker.stop();
}

#[test]
fn a_program_subscribes_connections_and_ends_that() {
    let mut guarded = Guarded::start();
    let key = guarded.key("", &["subscribe,create,publish news"]);
    let mut clients: Vec<LiveClient> = [Encoding::Json, Encoding::Protobuf, Encoding::Json]
        .map(|encoding| LiveClient::connect(&guarded.broker, encoding, &key.text))
        .into();
    let body = json!({ "user": key.id, "channel": "news" });
    let told = as_admin(&guarded, "POST", SUBSCRIBE, &body);
    assert_eq!(told, (200, json!({ "subscribed": 3, "refused": 0, "refusals": [] })));
    for client in &mut clients {
        match client.push() {
            (channel, PushKind::Subscribe(push)) => {
                assert_eq!((channel.as_str(), push.offset, push.recoverable), ("news", 0, true));
                assert!(!push.epoch.is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(as_admin(&guarded, "POST", SUBSCRIBE, &body).1["subscribed"], 3, "as before");
    clients[0].publish("news", "x").unwrap();
    for client in &mut clients {
        assert_eq!(client.offsets("news", 1), [1], "once");
    }
    let one = json!({ "connection": clients[1].id, "channel": "news" });
    assert_eq!(as_admin(&guarded, "POST", UNSUBSCRIBE, &one), (200, json!({ "unsubscribed": 1 })));
    match clients[1].push() {
        (channel, PushKind::Unsubscribe(ended)) => {
            assert_eq!((channel.as_str(), ended.code), ("news", UnsubscribeCode::Server.code()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(as_admin(&guarded, "POST", UNSUBSCRIBE, &one).1["unsubscribed"], 0);
    // A right is needed as for others.
    let secret = json!({ "user": key.id, "channel": "secret" });
    let (status, told) = as_admin(&guarded, "POST", SUBSCRIBE, &secret);
    assert_eq!((status, &told["subscribed"], &told["refused"]), (200, &json!(0), &json!(3)));
    let detail = &told["refusals"][0]["detail"];
    assert_eq!(detail, "missing right: subscribe \"secret\"", "{told}");
    // It is lost with the right.
    guarded.revoke(&key, "subscribe,create,publish news");
    let (_, lost) = clients[0].push();
    assert!(matches!(lost, PushKind::Unsubscribe(ended) if ended.code == 2000));
}

#[test]
fn a_connection_that_loses_a_position_it_did_not_ask_for_comes_back_anew() {
    let mut guarded = Guarded::start();
    let key = guarded.key("", &["subscribe,create,publish news"]);
    let mut client = LiveClient::connect(&guarded.broker, Encoding::Json, &key.text);
    let body = json!({ "connection": client.id, "channel": "news" });
    assert_eq!(as_admin(&guarded, "POST", SUBSCRIBE, &body).1["subscribed"], 1);
    delete(&mut logged_in(&guarded.broker, &guarded.admin_key), "news");
    let code = DisconnectCode::InsufficientState;
    assert_eq!(client.close().code, CloseCode::of(code.code()));
    assert!(code.reconnects());
}

#[test]
fn a_body_about_subscriptions_that_is_wrong_says_what_would_be_right() {
    let guarded = Guarded::start();
    for (body, said) in [
        (Value::Null, "the body is {"),
        (json!({ "user": "ada" }), "missing field `channel`"),
        (json!({ "all": true, "channel": "a" }), "unknown field `all`"),
        (json!({ "user": "ada", "channel": "" }), "a name has at least 1 character"),
    ] {
        for path in [SUBSCRIBE, UNSUBSCRIBE] {
            let (status, refused) = as_admin(&guarded, "POST", path, &body);
            assert_eq!(status, 400);
            assert!(refused["detail"].as_str().unwrap().contains(said), "{body} {refused}");
        }
    }
}

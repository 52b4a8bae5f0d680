//! Who may do what over live connections: each request of the protocol with its right and without it, credentials that are
//! wrong, gone, expired or taken away while the connection is open.

use std::time::Duration;

use sennit_centrifuge::{
    Answer, ChannelRequest, ConnectRequest, Data, DisconnectCode, Encoding, ErrorCode,
    HistoryRequest, PublishRequest, PushKind, RefreshRequest, Request, RpcRequest, SendRequest,
    SubRefreshRequest, SubscribeRequest, Token, UnsubscribeCode,
};
use sennit_identity::{NewToken, Verb};
use sennit_protocol::control::change_access::Change;
use sennit_server::{Config, TokenConfig};
use sennit_websocket::{CloseCode, client::UpgradeRequest};

use crate::{
    access::{Guarded, create_tenant},
    access_certificates::Certified,
    access_matrix::{all_but, now_ms},
    live_client::{LiveClient, ask_upgrade},
    log_lines, tokens,
    world::{Broker, config, until},
};

/// A request of each kind about a channel.
fn requests(channel: &str) -> Vec<Request> {
    let channel = || channel.to_owned();
    let data = || Data::of_payload(b"1".to_vec().into());
    vec![
        Request::Connect(ConnectRequest::default()),
        Request::Subscribe(SubscribeRequest { channel: channel(), ..<_>::default() }),
        Request::Unsubscribe(ChannelRequest { channel: channel() }),
        Request::Publish(PublishRequest { channel: channel(), data: data(), kind: 0 }),
        Request::Presence(ChannelRequest { channel: channel() }),
        Request::PresenceStats(ChannelRequest { channel: channel() }),
        Request::History(HistoryRequest { channel: channel(), ..<_>::default() }),
        Request::Ping,
        Request::Send(SendRequest { data: data() }),
        Request::Rpc(RpcRequest { data: data(), method: "m".into() }),
        Request::Refresh(RefreshRequest::default()),
        Request::SubRefresh(SubRefreshRequest { channel: channel(), ..<_>::default() }),
    ]
}

/// The right that a request needs. A new request fails to compile without its row.
fn need(request: &Request) -> Option<Verb> {
    match request {
        Request::Subscribe(_) => Some(Verb::Subscribe),
        Request::Publish(_) => Some(Verb::Publish),
        Request::History(_) | Request::Presence(_) | Request::PresenceStats(_) => {
            Some(Verb::Subscribe)
        }
        Request::Connect(_)
        | Request::Unsubscribe(_)
        | Request::Ping
        | Request::Send(_)
        | Request::Refresh(_) => None,
        // The first goes to the application, the other needs a token of its own.
        Request::Rpc(_) | Request::SubRefresh(_) => None,
    }
}

fn connect(guarded: &Guarded, key: &str) -> LiveClient {
    LiveClient::connect(&guarded.broker, Encoding::Json, key)
}

/// Creates a topic.
fn create(guarded: &mut Guarded, name: &str) {
    connect(guarded, &guarded.admin_key.clone()).subscribe(name);
}

#[test]
fn each_request_is_refused_without_its_right_and_alike_whether_the_topic_is_there() {
    let mut guarded = Guarded::start();
    create(&mut guarded, "there");
    for (there, absent) in requests("there").into_iter().zip(requests("absent")) {
        let Some(verb) = need(&there) else { continue };
        let all = all_but(verb);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let key = guarded.key("", &all);
        let mut client = connect(&guarded, &key.text);
        let refused = [there.clone(), absent].map(|request| client.ask(request).unwrap_err());
        for error in &refused {
            assert_eq!(error.code, ErrorCode::PermissionDenied.code(), "{there:?}: {error:?}");
            assert!(!error.temporary && error.message.contains(&verb.to_string()), "{error:?}");
        }
        assert_eq!(
            refused[0].message.replace("there", "S"),
            refused[1].message.replace("absent", "S")
        );
        let key = guarded.key("", &[&format!("{verb} there")]);
        connect(&guarded, &key.text).ask(there).unwrap();
    }
}

#[test]
fn one_who_may_not_create_learns_of_a_channel_that_is_not_there_only_with_a_right_to_it() {
    let mut guarded = Guarded::start();
    let key = guarded.key("", &["subscribe >", "publish >"]);
    let mut client = connect(&guarded, &key.text);
    for request in requests("absent") {
        if need(&request).is_some() {
            let error = client.ask(request).unwrap_err();
            assert_eq!(error.code, ErrorCode::UnknownChannel.code(), "{error:?}");
        }
    }
    let key = guarded.key("", &["subscribe >", "create room.>"]);
    connect(&guarded, &key.text).subscribe("room.1");
}

#[test]
fn nothing_is_served_to_one_whose_credentials_are_missing_wrong_expired_or_gone() {
    let mut guarded = Guarded::start();
    create(&mut guarded, "there");
    let gone = guarded.key("", &["subscribe >"]);
    guarded.change(Change::DeleteKey(gone.id.clone()));
    let mistyped = gone.text.replace('_', "-");
    for token in ["", "sennit_x", &gone.text, &mistyped] {
        let mut client = LiveClient::open(&guarded.broker, Encoding::Json, &[]);
        client.send(Request::Connect(ConnectRequest {
            token: Token(token.into()),
            ..ConnectRequest::default()
        }));
        let close = client.close();
        assert_eq!(close.code, CloseCode::of(DisconnectCode::InvalidToken.code()), "{token:?}");
        assert_eq!(close.reason, DisconnectCode::InvalidToken.reason(), "{token:?}");
    }
    for request in requests("there") {
        if !matches!(request, Request::Connect(_)) {
            let mut client = LiveClient::open(&guarded.broker, Encoding::Json, &[]);
            client.send(request.clone());
            let code = CloseCode::of(DisconnectCode::BadRequest.code());
            assert_eq!(client.close().code, code, "{request:?} before a connect");
        }
    }
}

#[test]
fn a_connection_ends_when_its_key_expires_and_the_key_opens_no_other() {
    let mut guarded = Guarded::start();
    create(&mut guarded, "news");
    let key = guarded.expiring_key("", &["subscribe news"], Some(now_ms() + 2000));
    let mut client = connect(&guarded, &key.text);
    client.subscribe("news");
    let code = client.close().code;
    assert_eq!(code, CloseCode::of(DisconnectCode::Expired.code()));
    let mut client = LiveClient::open(&guarded.broker, Encoding::Json, &[]);
    let token = Token(key.text.clone());
    client.send(Request::Connect(ConnectRequest { token, ..ConnectRequest::default() }));
    assert_eq!(client.close().code, CloseCode::of(DisconnectCode::InvalidToken.code()));
}

#[test]
fn a_client_goes_on_with_a_new_token_of_its_own_and_with_nobody_elses() {
    let (broker, _folder) = tokens::broker();
    let token = |subject: &str, seconds| {
        let lifetime = Duration::from_secs(seconds);
        tokens::mint(&NewToken { lifetime, ..tokens::token(subject, &[], &["subscribe,create >"]) })
    };
    let mut client = LiveClient::connect(&broker, Encoding::Json, &token("ada", 60));
    client.subscribe("news");
    let refresh = |token: String| Request::Refresh(RefreshRequest { token: Token(token) });
    match client.ask(refresh(token("ada", 600))) {
        Ok(Answer::Refresh(result)) => assert!(result.expires && result.ttl_s > 500, "{result:?}"),
        other => panic!("{other:?}"),
    }
    let refused = client.ask(refresh(String::new())).unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadRequest.code());
    client.unsubscribe("news");
    client.send(refresh(token("bob", 600)));
    assert_eq!(client.close().code, CloseCode::of(DisconnectCode::InvalidToken.code()));
    broker.stop();
}

#[test]
fn a_token_for_a_subscription_allows_that_and_nothing_else() {
    let folder = tempfile::TempDir::new().unwrap();
    let tokens = TokenConfig { leeway: Duration::ZERO, ..tokens::settings() };
    let broker = Broker::start(Config { tokens, ..config(folder.path()) });
    let token = |subject: &str, right: &str, seconds| {
        let lifetime = Duration::from_secs(seconds);
        Token(tokens::mint(&NewToken { lifetime, ..tokens::token(subject, &[], &[right]) }))
    };
    let mut other = LiveClient::connect(
        &broker,
        Encoding::Json,
        token("bob", "create,subscribe,publish >", 60).as_str(),
    );
    other.subscribe("private");
    let mut client =
        LiveClient::connect(&broker, Encoding::Json, token("ada", "read news", 60).as_str());
    let subscribe = |token: Token| SubscribeRequest {
        channel: "private".into(),
        token,
        ..SubscribeRequest::default()
    };
    for (wrong, code) in [
        (Token::default(), ErrorCode::PermissionDenied),
        (Token("no token".into()), ErrorCode::PermissionDenied),
        (token("bob", "subscribe private", 60), ErrorCode::PermissionDenied),
        (token("ada", "subscribe other", 60), ErrorCode::PermissionDenied),
        (token("ada", "publish private", 60), ErrorCode::PermissionDenied),
    ] {
        let refused = client.subscribed(subscribe(wrong)).unwrap_err();
        assert_eq!(refused.code, code.code(), "{refused:?}");
    }
    let result = client.subscribed(subscribe(token("ada", "subscribe private", 3))).unwrap();
    assert!(result.expires && result.ttl_s <= 3, "{result:?}");
    // With the subscription go its history, and who is there.
    let history = HistoryRequest { channel: "private".into(), limit: -1, ..<_>::default() };
    client.ask(Request::History(history)).unwrap();
    client.ask(Request::Presence(ChannelRequest { channel: "private".into() })).unwrap();
    assert!(client.publish("private", "x").is_err(), "it may not publish");
    let refresh = |token: Token| SubRefreshRequest { channel: "private".into(), token, kind: 0 };
    let refused = client.ask(Request::SubRefresh(refresh(token("ada", "subscribe other", 60))));
    assert_eq!(refused.unwrap_err().code, ErrorCode::PermissionDenied.code());
    let refreshed = client.ask(Request::SubRefresh(refresh(token("ada", "subscribe private", 4))));
    assert!(matches!(refreshed, Ok(Answer::SubRefresh(result)) if result.expires));
    other.publish("private", "hello").unwrap();
    client.published();
    // A subscription that nobody refreshes ends by itself; the connection stays.
    match client.push() {
        (_, PushKind::Unsubscribe(told)) => {
            assert_eq!(told.code, UnsubscribeCode::Expired.code());
        }
        other => panic!("{other:?}"),
    }
    client.ask(Request::Ping).unwrap();
    broker.stop();
}

#[test]
fn credentials_that_are_refused_on_an_open_connection_are_logged_with_the_address_of_their_client()
{
    log_lines::keep();
    let mut guarded = Guarded::start();
    create(&mut guarded, "there");
    let good = guarded.key("", &["subscribe there"]);
    let mut client = connect(&guarded, &good.text);
    let refused = |guarded: &mut Guarded, show: &mut dyn FnMut(Token)| {
        let key = guarded.key("", &["subscribe >"]);
        guarded.change(Change::DeleteKey(key.id.clone()));
        show(Token(key.text));
        until("a line of the log", || !log_lines::with(&key.id).is_empty());
        let lines = log_lines::with(&key.id);
        assert!(lines[0].contains("address=127.0.0.1 "), "{lines:?}");
    };
    let channel = || "there".to_owned();
    let subscribe =
        |token| SubscribeRequest { channel: channel(), token, ..SubscribeRequest::default() };
    refused(&mut guarded, &mut |token| drop(client.subscribed(subscribe(token)).unwrap_err()));
    client.subscribed(subscribe(Token(good.text.clone()))).unwrap();
    refused(&mut guarded, &mut |token| {
        let refresh = SubRefreshRequest { channel: channel(), token, kind: 0 };
        client.ask(Request::SubRefresh(refresh)).unwrap_err();
    });
    refused(&mut guarded, &mut |token| {
        client.send(Request::Refresh(RefreshRequest { token }));
        let code = CloseCode::of(DisconnectCode::InvalidToken.code());
        assert_eq!(client.close().code, code);
    });
}

#[test]
fn a_program_may_show_its_credentials_with_the_request() {
    let mut guarded = Guarded::start();
    let key = guarded.key("", &["subscribe >", "create >"]);
    let bearer = format!("Bearer {}", key.text);
    let headers = [("Authorization", bearer.as_str())];
    let mut client = LiveClient::open(&guarded.broker, Encoding::Json, &headers);
    client.log_in("").unwrap();
    client.subscribe("news");
    let request = UpgradeRequest {
        host: "localhost",
        target: "/connection/websocket",
        key: [3; 16],
        subprotocols: &[],
        offers_deflate: false,
        headers: &[("Authorization", "Bearer sennit_x")],
    };
    assert_eq!(ask_upgrade(&guarded.broker, &request).1.status, 401);
}

#[test]
fn a_right_that_is_taken_away_ends_subscriptions_before_anything_more_is_delivered() {
    let mut guarded = Guarded::start();
    create(&mut guarded, "news");
    let key = guarded.key("", &["subscribe news", "publish news"]);
    let admin_key = guarded.admin_key.clone();
    let mut admin = connect(&guarded, &admin_key);
    let mut client = connect(&guarded, &key.text);
    client.subscribe("news");
    admin.publish("news", "before").unwrap();
    assert_eq!(client.offsets("news", 1), [1]);
    guarded.revoke(&key, "subscribe news");
    admin.publish("news", "behind").unwrap();
    match client.push() {
        (channel, PushKind::Unsubscribe(ended)) => {
            assert_eq!((channel.as_str(), ended.code), ("news", UnsubscribeCode::Server.code()));
        }
        other => panic!("{other:?}"),
    }
    guarded.revoke(&key, "publish news");
    let error = client.publish("news", "no").unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied.code());
    guarded.grant(&key, "subscribe news");
    assert_eq!(client.subscribe("news").offset, 2);
    admin.publish("news", "again").unwrap();
    assert_eq!(client.offsets("news", 1), [3]);
    guarded.change(Change::DeleteKey(key.id.clone()));
    admin.publish("news", "last").unwrap();
    assert!(client.next().is_none(), "nothing more is delivered");
    let code = client.closed.and_then(|close| close.code);
    assert_eq!(code, CloseCode::of(DisconnectCode::InvalidToken.code()));
}

#[test]
fn a_tenant_is_among_its_own_channels() {
    let mut guarded = Guarded::start();
    guarded.change(create_tenant("acme"));
    create(&mut guarded, "other.room");
    let key = guarded.key("acme", &["subscribe >", "publish >", "create >"]);
    let mut client = connect(&guarded, &key.text);
    for request in requests("other.room") {
        if need(&request).is_some() {
            let error = client.ask(request).unwrap_err();
            assert_eq!(error.code, ErrorCode::PermissionDenied.code(), "{error:?}");
        }
    }
    client.subscribe("acme.room");
    client.publish("acme.room", "x").unwrap();
    assert_eq!(client.offsets("acme.room", 1), [1]);
}

#[test]
fn a_live_connection_without_a_token_is_on_behalf_of_the_user_of_its_certificate() {
    let mut certified = Certified::start();
    certified.user("ada", "cn:ada", "", &["subscribe news", "create news"]);
    let connect = |name: &str| {
        let dialing = certified.dialing(name);
        LiveClient::open_by(&certified.guarded.broker, &dialing, Encoding::Json, &[])
    };
    let mut ada = connect("ada");
    ada.log_in("").unwrap();
    ada.subscribe("news");
    let refused = ada.publish("news", "x").unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied.code());
    let mut other = connect("other");
    other.send(Request::Connect(ConnectRequest::default()));
    let code = other.close().code;
    assert_eq!(code, CloseCode::of(DisconnectCode::InvalidToken.code()), "nobody accepts it");
}

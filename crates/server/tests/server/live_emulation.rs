//! Live connections without a WebSocket, by either HTTP: what reaches those with one reaches these, from memory and from the
//! log; their commands come in requests of their own, which nobody else can send; they end as others do.

use std::time::Duration;

use sennit_centrifuge::{
    Answer, ConnectRequest, DisconnectCode, Encoding, ErrorCode, PushKind, Request,
    SubscribeRequest, Token, UnsubscribeCode,
};
use sennit_protocol::control::change_access::Change;
use sennit_server::{BrokerCertificate, Config};
use sennit_websocket::CloseCode;
use tempfile::TempDir;

use crate::{
    access::Guarded,
    access_certificates::Certified,
    browser::Browser,
    emulated::{Form, Http},
    http_parked::Dice,
    live::{flood, take},
    live_client::{LiveClient, recovering, text_of},
    reading::{published, reader, stream},
    world::{Broker, config, ended, until},
};

/// Each form by each HTTP.
const ALL: [(Form, Http); 6] = [
    (Form::Events, Http::One),
    (Form::Lines, Http::One),
    (Form::Delimited, Http::One),
    (Form::Events, Http::Two),
    (Form::Lines, Http::Two),
    (Form::Delimited, Http::Two),
];

fn connect(broker: &Broker, (form, http): (Form, Http), token: &str) -> LiveClient {
    let mut client = LiveClient::emulated(broker, form, http);
    client.log_in(token).unwrap();
    client
}

fn code(code: DisconnectCode) -> Option<CloseCode> {
    CloseCode::of(code.code())
}

#[test]
fn a_publication_reaches_all_whatever_carries_it() {
    let (broker, _folder) = Broker::fresh();
    let mut clients: Vec<LiveClient> = ALL.map(|way| connect(&broker, way, "")).into();
    clients.push(LiveClient::of(&broker));
    clients.push(LiveClient::connect(&broker, Encoding::Protobuf, ""));
    for client in &mut clients {
        assert_eq!(client.subscribe("chat:index").offset, 0);
    }
    for by in 0..clients.len() {
        let (encoding, text) = (clients[by].encoding, format!("größe \"{by}\"\n"));
        clients[by].publish("chat:index", &text).unwrap();
        for client in &mut clients {
            let (channel, publication) = client.published();
            assert_eq!((channel.as_str(), publication.offset), ("chat:index", by as u64 + 1));
            let shown = match (encoding, client.encoding) {
                // To those who speak Protobuf it is the text of the JSON that was published.
                (Encoding::Json, Encoding::Protobuf) => text_of(Encoding::Json, &publication.data),
                (_, own) => text_of(own, &publication.data),
            };
            assert_eq!(shown, text);
        }
    }
    for client in &mut clients {
        client.unsubscribe("chat:index");
        assert_eq!(client.ask(Request::Ping), Ok(Answer::Ping));
    }
    broker.stop();
}

#[test]
fn a_client_that_was_away_gets_what_it_missed_once_and_goes_on() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    let begun = LiveClient::of(&broker).subscribe("news");
    // More than any ring holds.
    flood(&mut peer, topic, 0, 700, 16 << 10);
    for (round, way) in (0_u64..).zip(ALL) {
        let mut client = connect(&broker, way, "");
        let result = client.subscribed(recovering("news", (begun.epoch.as_str(), 2))).unwrap();
        assert!(result.recovered && result.was_recovering);
        published(&mut peer, topic, 0, 700 + round, &["live"]);
        let expected: Vec<u64> = (3..=701 + round).collect();
        assert_eq!(client.offsets("news", expected.len()), expected, "{way:?}");
    }
    broker.stop();
}

#[test]
fn an_answer_that_nobody_reads_falls_behind_to_the_log_and_harms_nobody() {
    for (tls, http) in
        [(None, Http::One), (None, Http::Two), (Some(BrokerCertificate::Own), Http::One)]
    {
        let folder = TempDir::new().unwrap();
        // Nobody is asked whether it is there.
        let live_ping_interval = Duration::from_secs(3600);
        let broker = Broker::start(Config { tls, live_ping_interval, ..config(folder.path()) });
        let mut peer = reader(&broker);
        let topic = stream(&mut peer, "news", 1);
        let mut stalled = connect(&broker, (Form::Events, http), "");
        let mut others: Vec<_> =
            Form::ALL.map(|form| connect(&broker, (form, Http::One), "")).into();
        stalled.subscribe("news");
        others.iter_mut().for_each(|client| drop(client.subscribe("news")));
        // More than rings, pipes and sockets hold.
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
fn readers_fast_and_slow_miss_nothing_and_get_nothing_twice() {
    let seed = std::env::var("SENNIT_SEED").map_or(0x55e, |seed| seed.parse().unwrap());
    eprintln!("SENNIT_SEED={seed}");
    let mut dice = Dice(seed);
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let names = ["a", "b", "c"];
    let topics = names.map(|name| stream(&mut peer, name, 1));
    let mut ends = [0_u64; 3];
    let mut clients: Vec<(LiveClient, [Option<u64>; 3])> = Vec::new();
    for way in ALL {
        let mut client = connect(&broker, way, "");
        names.iter().for_each(|name| drop(client.subscribe(name)));
        clients.push((client, [Some(1); 3]));
    }
    for _ in 0..60 {
        let which = dice.below(3) as usize;
        if dice.below(2) == 0 {
            let (count, length) = (dice.below(100), dice.below(8000));
            flood(&mut peer, topics[which], ends[which], count, length as usize);
            ends[which] += count;
        }
        let of = dice.below(clients.len() as u64) as usize;
        let (client, expected) = &mut clients[of];
        for _ in 0..dice.below(200) {
            if (0..3).all(|at| expected[at] > Some(ends[at])) {
                break;
            }
            let (channel, publication) = client.published();
            take(&names, expected, &channel, publication.offset);
        }
    }
    for (client, expected) in &mut clients {
        while (0..3).any(|at| expected[at] <= Some(ends[at])) {
            let (channel, publication) = client.published();
            take(&names, expected, &channel, publication.offset);
        }
    }
    broker.stop();
}

#[test]
fn clients_are_told_who_comes_and_goes() {
    let (broker, _folder) = Broker::fresh();
    for form in Form::ALL {
        let channel = format!("room {form:?}");
        let mut watcher = connect(&broker, (form, Http::One), "");
        let request =
            SubscribeRequest { channel: channel.clone(), join_leave: true, ..<_>::default() };
        watcher.subscribed(request).unwrap();
        assert!(matches!(watcher.push().1, PushKind::Join(_)), "itself");
        let mut others = [LiveClient::of(&broker), LiveClient::of(&broker)];
        others.iter_mut().for_each(|other| drop(other.subscribe(&channel)));
        for _ in &others {
            assert!(matches!(watcher.push().1, PushKind::Join(_)));
        }
        drop(others);
        for _ in 0..2 {
            assert!(matches!(watcher.push().1, PushKind::Leave(_)));
        }
    }
    broker.stop();
}

#[test]
fn commands_are_taken_for_the_session_that_was_told_and_for_no_other() {
    let (broker, _folder) = Broker::fresh();
    let ping = br#"{"id":9,"ping":{}}"#;
    let mut client = connect(&broker, (Form::Lines, Http::One), "");
    let mut other = connect(&broker, (Form::Lines, Http::One), "");
    let (session, node) = (client.emulation().session.clone(), client.emulation().node.clone());
    assert!(session.len() >= 32 && session != other.emulation().session, "{session}");
    let guessed = match session.strip_suffix('0') {
        Some(rest) => format!("{rest}1"),
        None => format!("{}0", &session[..session.len() - 1]),
    };
    // A WebSocket has none.
    let _websocket = LiveClient::of(&broker);
    for (session, node) in [
        (guessed.as_str(), node.as_str()),
        ("", node.as_str()),
        (&session[1..], node.as_str()),
        (session.as_str(), ""),
        (session.as_str(), "ffffffff"),
        (session.as_str(), "another"),
        (&"0".repeat(48), node.as_str()),
    ] {
        let emulated = other.emulation();
        assert_eq!(emulated.send_to(session, node, ping), 404, "{session} {node}");
    }
    // Whoever has it may use it, by whatever connection.
    assert_eq!(other.emulation().send_to(&session, &node, ping), 204);
    assert_eq!(client.answer_to(9), Ok(Answer::Ping));
    drop(client);
    until("the session outlives its connection", || {
        let http = &mut Browser::of(&broker);
        let body = format!(r#"{{"session":"{session}","node":"{node}","data":"{{}}"}}"#);
        ask(http, "POST", "/emulation", "", &body).0 == 404
    });
    broker.stop();
}

/// The status and the body of the answer to a request with JSON.
fn ask(http: &mut Browser, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    http.say(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let answer = http.hear(true);
    (answer.status, answer.head + &answer.body)
}

#[test]
fn what_begins_no_connection_and_what_is_no_command_is_refused_by_reason() {
    let (broker, _folder) = Broker::fresh();
    let long = format!(r#"{{"id":1,"connect":{{"name":"{}"}}}}"#, "x".repeat(1 << 20));
    let connect = r#"{"id":1,"connect":{}}"#;
    let much = serde_json::json!({ "session": "", "node": "", "data": "x".repeat((1 << 20) + 1) });
    let http = &mut Browser::of(&broker);
    for (method, path, body, status, says) in [
        ("GET", "/connection/sse", "", 400, "cf_connect"),
        ("GET", "/connection/sse?cf_connect=%7B", "", 400, "bad_commands"),
        ("GET", "/connection/sse?cf_connect=%7B%7D", "", 400, "no_connect"),
        ("GET", "/connection/sse?cf_connect=%FF", "", 400, "bad_commands"),
        ("POST", "/connection/sse", "", 400, "no_connect"),
        ("POST", "/connection/http_stream", "{", 400, "bad_commands"),
        ("POST", "/connection/http_stream", r#"{"id":1,"ping":{}}"#, 400, "no_connect"),
        ("POST", "/connection/http_stream", &long, 413, "MESSAGE_BYTES_MAX"),
        ("GET", "/connection/http_stream", "", 405, "POST"),
        ("GET", "/emulation", "", 405, "POST"),
        ("POST", "/emulation", "{", 400, "bad_commands"),
        ("POST", "/emulation", &much.to_string(), 413, "MESSAGE_BYTES_MAX"),
    ] {
        let (told, text) = ask(http, method, path, "", body);
        assert_eq!(told, status, "{method} {path}: {text}");
        assert!(text.contains(says), "{method} {path}: {text}");
    }
    // Behind the connect what is no command ends the connection, which says why.
    let mut client = LiveClient::emulated(&broker, Form::Lines, Http::One);
    assert_eq!(client.emulation().begin(format!("{connect}\n{connect}").as_bytes()), 200);
    assert_eq!(client.close().code, code(DisconnectCode::BadRequest));
    let mut client = self::connect(&broker, (Form::Lines, Http::One), "");
    assert_eq!(client.emulation().send(b"{"), 204);
    assert_eq!(client.close().code, code(DisconnectCode::BadRequest));
    assert_eq!(client.emulation().hear(), None, "nothing follows");
    broker.stop();
}

#[test]
fn a_plain_event_source_subscribes_by_its_address_alone() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::emulated(&broker, Form::Events, Http::One);
    let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}";
    assert_eq!(client.emulation().begin(commands.as_bytes()), 200);
    assert!(matches!(client.answer_to(2), Ok(Answer::Subscribe(_))));
    LiveClient::of(&broker).publish("news", "x").unwrap();
    assert!(client.next().is_some(), "the reply to connect");
    assert_eq!(client.offsets("news", 1), [1]);
    broker.stop();
}

#[test]
fn connections_end_with_a_code_and_behind_it_the_answer() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let mut clients = ALL.map(|way| connect(&broker, way, ""));
    let stopping = broker.begin_to_stop();
    for client in &mut clients {
        let close = client.close();
        assert_eq!(close.code, code(DisconnectCode::Shutdown));
        assert_eq!(close.reason, DisconnectCode::Shutdown.reason());
        assert_eq!(client.emulation().hear(), None);
    }
    ended(stopping);
    let soon = Duration::from_millis(10);
    let broker = Broker::start(Config { live_ping_interval: soon, ..config(folder.path()) });
    for way in ALL {
        let mut client = connect(&broker, way, "");
        // Pings are answered by requests of their own.
        client.subscribe("news");
        client.is_there = false;
        assert_eq!(client.close().code, code(DisconnectCode::NoPong), "{way:?}");
    }
    broker.stop();
}

#[test]
fn the_connection_of_a_client_that_has_gone_ends() {
    let (broker, _folder) = Broker::fresh();
    let mut clients = ALL.map(|way| connect(&broker, way, ""));
    clients.iter_mut().for_each(|client| drop(client.subscribe("news")));
    let sum = |name: &str| -> u64 {
        let metrics = Browser::of(&broker).get("/metrics").body;
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum("sennit_live_connections{"), ALL.len() as u64);
    drop(clients);
    until("a connection is counted", || sum("sennit_live_connections{") == 0);
    assert_eq!(sum("sennit_live_subscriptions{"), 0);
    broker.stop();
}

#[test]
fn who_a_client_is_says_its_token_or_its_request_and_what_it_may_is_the_same() {
    let mut guarded = Guarded::start();
    let admin_key = guarded.admin_key.clone();
    let mut admin = LiveClient::connect(&guarded.broker, Encoding::Json, &admin_key);
    admin.subscribe("news");
    for way in ALL {
        for wrong in ["", "sennit_x", "wrong"] {
            let mut client = LiveClient::emulated(&guarded.broker, way.0, way.1);
            let token = Token(wrong.into());
            client.send(Request::Connect(ConnectRequest { token, ..<_>::default() }));
            assert_eq!(client.close().code, code(DisconnectCode::InvalidToken), "{wrong}");
        }
        let key = guarded.key("", &["subscribe news"]);
        // With the request, and not in the command.
        let mut client = LiveClient::emulated(&guarded.broker, way.0, way.1);
        client.emulation().header = Some(("authorization", format!("Bearer {}", key.text)));
        client.log_in("").unwrap();
        let mut client = connect(&guarded.broker, way, &key.text);
        client.subscribe("news");
        for refused in
            [client.publish("news", "x"), client.subscribed(recovering("other", ("", 0))).map(drop)]
        {
            let error = refused.unwrap_err();
            let may = [ErrorCode::PermissionDenied.code(), ErrorCode::UnknownChannel.code()];
            assert!(may.contains(&error.code), "{error:?}");
        }
        admin.publish("news", "before").unwrap();
        client.published();
        guarded.revoke(&key, "subscribe news");
        admin.publish("news", "behind").unwrap();
        match client.push() {
            (channel, PushKind::Unsubscribe(ended)) => {
                assert_eq!(
                    (channel.as_str(), ended.code),
                    ("news", UnsubscribeCode::Server.code())
                );
            }
            other => panic!("{other:?}"),
        }
        guarded.change(Change::DeleteKey(key.id.clone()));
        assert_eq!(client.close().code, code(DisconnectCode::InvalidToken), "{way:?}");
    }
    let header = "Authorization: Bearer sennit_x\r\n";
    let http = &mut Browser::of(&guarded.broker);
    let body = r#"{"id":1,"connect":{}}"#;
    assert_eq!(ask(http, "POST", "/connection/http_stream", header, body).0, 401);
}

#[test]
fn a_connection_without_a_token_is_on_behalf_of_the_user_of_its_certificate() {
    let mut certified = Certified::start();
    certified.user("ada", "cn:ada", "", &["subscribe news", "create news"]);
    let dialing = certified.dialing("ada");
    let broker = &certified.guarded.broker;
    let mut ada = LiveClient::emulated_by(broker, &dialing, Form::Events, Http::One);
    ada.log_in("").unwrap();
    ada.subscribe("news");
    let refused = ada.publish("news", "x").unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied.code());
}

#[test]
fn pages_of_allowed_origins_and_no_others_may_connect_and_ask() {
    let folder = TempDir::new().unwrap();
    let http_origins = vec!["https://app.example.com".parse().unwrap()];
    let broker = Broker::start(Config { http_origins, ..config(folder.path()) });
    let allowed = "Origin: https://app.example.com\r\n";
    let foreign = "Origin: https://elsewhere.example\r\n";
    let preflight =
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n";
    let says_yes = |text: &str| text.contains("access-control-allow-origin: *\r\n");
    for path in ["/connection/http_stream", "/connection/sse", "/emulation"] {
        let http = &mut Browser::of(&broker);
        let (status, text) = ask(http, "OPTIONS", path, &format!("{allowed}{preflight}"), "");
        assert_eq!(status, 204, "{path}");
        assert!(says_yes(&text) && text.contains("content-type"), "{path}: {text}");
        let (status, text) = ask(http, "POST", path, allowed, "{");
        assert!(status == 400 && says_yes(&text), "its page may read why: {text}");
        for method in ["POST", "OPTIONS"] {
            let (status, text) = ask(http, method, path, foreign, "{");
            assert!(status == 403 && !says_yes(&text), "{path}: {text}");
        }
    }
    broker.stop();
}

#[test]
fn a_client_that_sends_without_end_is_told_to_wait() {
    let (broker, _folder) = Broker::fresh();
    let mut client = connect(&broker, (Form::Lines, Http::One), "");
    client.subscribe("news");
    // Nothing of what it is answered is read, so that nothing more that it asks is done.
    let history = r#"{"id":77,"history":{"channel":"news","limit":-1}}"#;
    let mut admin = LiveClient::of(&broker);
    let text = "x".repeat(1 << 10);
    (0..1000).for_each(|_| admin.publish("news", &text).unwrap());
    let commands = vec![history; 100].join("\n");
    let mut told = (0..1000).map(|_| client.emulation().send(commands.as_bytes()));
    let refused = told.find(|status| *status != 204);
    assert_eq!(refused, Some(429));
    broker.stop();
}

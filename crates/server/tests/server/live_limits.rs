//! Limits of live connections, and of the connections of an address: who reaches one is told so, and keeps nobody else out.

use std::time::{Duration, Instant};

use sennit_centrifuge::{Answer, DisconnectCode, Encoding, Request};
use sennit_server::Config;
use sennit_websocket::{CloseCode, client::UpgradeRequest};

use crate::{
    browser::Browser,
    live_client::{LiveClient, ask_upgrade},
    live_policies::metric,
    stream::Dialing,
    world::{Broker, SOON, config, until},
};

const GREEDY: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

fn with(change: impl FnOnce(&mut Config)) -> (Broker, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (Broker::start(config), folder)
}

/// A connection is counted behind its handshake.
fn until_counted(broker: &Broker, connections: u64) {
    until("all are counted", || metric(broker, "sennit_live_connections{") == connections);
}

#[test]
fn an_address_with_as_many_connections_as_it_may_have_is_told_so_and_others_connect() {
    let (broker, _folder) = with(|config| config.http_connections_per_address = 3);
    let by = |address| Browser::by(&broker, &Dialing::from(address));
    let mut held: Vec<_> = (0..3).map(|_| by(GREEDY)).collect();
    held.iter_mut().for_each(|browser| assert_eq!(browser.get("/healthz").status, 200));
    let answer = by(GREEDY).hear(true);
    assert_eq!(answer.status, 429);
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    assert!(answer.body.contains("CONNECTIONS_PER_ADDRESS_MAX"), "{}", answer.body);
    held.pop();
    until("a place is free", || by(GREEDY).get("/healthz").status == 200);
    while held.len() < 3 {
        let mut again = by(GREEDY);
        if again.get("/healthz").status == 200 {
            held.push(again);
        }
    }
    // However often it comes, others find a place, as many as they may have.
    let more: Vec<_> = (0..100).map(|_| by(GREEDY)).collect();
    let mut others: Vec<_> = (0..3).map(|_| by(OTHER)).collect();
    others.iter_mut().for_each(|browser| assert_eq!(browser.get("/healthz").status, 200));
    drop(more);
    // Behind a proxy on this machine all have one address: that is not counted.
    let mut of_proxy: Vec<_> = (0..9).map(|_| Browser::of(&broker)).collect();
    of_proxy.iter_mut().for_each(|browser| assert_eq!(browser.get("/healthz").status, 200));
    assert!(metric(&broker, "sennit_http_refused_of_address_total") >= 101);
    drop(held);
    broker.stop();
}

#[test]
fn beyond_their_number_live_connections_are_refused_with_a_time_to_retry() {
    let (broker, _folder) = with(|config| config.live_connections = 2);
    let mut first = LiveClient::of(&broker);
    let second = LiveClient::of(&broker);
    until_counted(&broker, 2);
    let upgrade = UpgradeRequest {
        host: "localhost",
        target: "/connection/websocket",
        key: [7; 16],
        subprotocols: &[],
        offers_deflate: false,
        headers: &[],
    };
    let (_, answer) = ask_upgrade(&broker, &upgrade);
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    assert!(answer.body.contains("live.connections sets it"), "{}", answer.body);
    assert_eq!(metric(&broker, "sennit_live_refused_total"), 1);
    // Those that are there go on, and so do other requests.
    first.subscribe("news");
    assert_eq!(Browser::of(&broker).get("/healthz").status, 200);
    drop(second);
    until("a place is free", || ask_upgrade(&broker, &upgrade).1.status == 101);
    broker.stop();
}

#[test]
fn those_of_an_address_that_do_not_say_who_they_are_keep_nobody_else_out() {
    // However long it takes to open them: they are there together.
    let (broker, _folder) = with(|config| config.live_connect_timeout = Duration::from_secs(3600));
    let by = |address| LiveClient::open_by(&broker, &Dialing::from(address), Encoding::Json, &[]);
    let mut known = by(GREEDY);
    known.log_in("").unwrap();
    let silent: Vec<_> = (0..512).map(|_| by(GREEDY)).collect();
    until_counted(&broker, 513);
    let mut more = by(GREEDY);
    assert_eq!(more.close().code, CloseCode::of(DisconnectCode::TooManyRequests.code()));
    assert_eq!(metric(&broker, "sennit_live_refused_greeting_total"), 1);
    known.subscribe("news");
    let mut other = by(OTHER);
    other.log_in("").unwrap();
    drop(silent);
    until("it may greet again", || by(GREEDY).try_log_in("").is_some());
    broker.stop();
}

#[test]
fn a_client_that_asks_faster_than_it_may_waits_and_is_answered() {
    let (broker, _folder) = with(|_| {});
    let mut client = LiveClient::of(&broker);
    let mut other = LiveClient::of(&broker);
    // A broker that is slow for another reason has no need to delay anything.
    let deadline = Instant::now() + SOON;
    while metric(&broker, "sennit_live_commands_delayed_total") == 0 {
        assert!(Instant::now() < deadline, "nothing was delayed");
        let mut last = 0;
        for _ in 0..12 {
            last = client.send_together((0..1000).map(|_| Request::Ping));
        }
        assert_eq!(other.ask(Request::Ping), Ok(Answer::Ping));
        assert_eq!(client.answer_to(last), Ok(Answer::Ping));
    }
    broker.stop();
}

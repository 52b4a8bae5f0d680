//! The HTTP port, and the page that lists what it counts.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use sennit_protocol::Request;

use crate::world::{Broker, SOON, publish};

/// Asks for a path; returns the status and the body.
pub fn get(broker: &Broker, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(broker.addresses.http).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn a_broker_that_serves_is_healthy_and_ready() {
    let (broker, _folder) = Broker::fresh();
    assert_eq!(get(&broker, "/healthz").0, 200);
    let (status, body) = get(&broker, "/readyz");
    assert_eq!((status, body.trim()), (200, r#"{"ready":true,"reasons":[]}"#));
    assert_eq!(get(&broker, "/nothing").0, 404);
    broker.stop();
}

#[test]
fn the_page_of_metrics_lists_what_is_counted_and_nothing_else() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    peer.confirmed_up_to(2);
    // A core counts at the end of its turn, when the confirm may be here already.
    let text = loop {
        let (status, text) = get(&broker, "/metrics");
        assert_eq!(status, 200);
        let is_confirmed = |line: &&str| line.starts_with("sennit_confirmed_messages_total");
        let values = text.lines().filter(is_confirmed).map(|line| line.rsplit(' ').next().unwrap());
        match values.map(|value| value.parse::<u64>().unwrap()).sum() {
            0 => {}
            2 => break text,
            other => panic!("{other} confirmed: {text}"),
        }
    };

    let counted = text.lines().filter_map(|line| {
        let name = line.split(['{', ' ']).next().unwrap();
        let is_of_first = ["{shard=\"0\"", "{core=\"0\""].iter().any(|label| line.contains(label));
        let is_of_group = name.starts_with("sennit_group_");
        (name.starts_with("sennit_") && is_of_first && !is_of_group).then_some(name)
    });
    let mut counted: Vec<&str> = counted.collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `sennit_"));
    let listed: Vec<String> =
        listed.map(|row| format!("sennit_{}", row.split('`').next().unwrap())).collect();
    // Groups are counted once a survey has found them, hooks by topic once they have run, peers and replicas where there are some.
    let is_always_there = |name: &&str| {
        !["group_", "hook_topic_", "peer_", "replica_"]
            .iter()
            .any(|some| name.strip_prefix("sennit_").is_some_and(|name| name.starts_with(some)))
    };
    let mut listed: Vec<&str> = listed.iter().map(String::as_str).filter(is_always_there).collect();
    counted.sort_unstable();
    listed.sort_unstable();
    assert_eq!(counted, listed);
    broker.stop();
}

//! Three nodes with static peers: each hears the others, says so, and says why if it does not. By hidden flags, until the
//! cluster serves clients.

use crate::{
    backup::get,
    bounds::until,
    broker::{Broker, run, sennit},
    cluster_nodes::{CLUSTER, flags, own_address, start, status, three},
};

/// The peers that a node hears.
fn heard(broker: &Broker) -> Vec<u64> {
    let (status, code) = status(broker);
    let peers = status["peers"].as_array().unwrap();
    let heard = peers.iter().filter(|peer| peer["heard"] == true);
    let heard: Vec<_> = heard.map(|peer| peer["node"].as_u64().unwrap()).collect();
    let groups = status["groups"].as_array().unwrap();
    let is_whole =
        heard.len() == peers.len() && groups.iter().all(|group| !group["leader"].is_null());
    assert_eq!(code, Some(i32::from(!is_whole)), "{status}");
    heard
}

/// Waits until a node hears these peers and no others.
pub fn until_heard(broker: &Broker, peers: &[u64]) {
    until(&format!("{peers:?} are heard"), || heard(broker) == peers);
}

#[test]
fn three_nodes_hear_each_other_and_notice_a_kill_and_a_return() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let [one, mut two, three] = three(folder.path(), &addresses);
    until_heard(&one, &[2, 3]);
    until_heard(&two, &[1, 3]);
    until_heard(&three, &[1, 2]);

    two.kill();
    until_heard(&one, &[3]);
    until_heard(&three, &[1]);

    two.start_again();
    until_heard(&one, &[2, 3]);
    until_heard(&two, &[1, 3]);
    until_heard(&three, &[1, 2]);
    let (status, _) = status(&three);
    let of_two = &status["peers"][1];
    assert_eq!(of_two["start_epoch"], 2, "{status}");
    assert_eq!((&of_two["links"], &of_two["links_up"]), (&2.into(), &2.into()), "{status}");
    assert!(of_two["breaks"].as_u64().unwrap() >= 2, "both links broke: {status}");
}

#[test]
fn round_trips_are_measured_and_told_as_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (own_address(), own_address());
    let of_two = flags("2", &other, &format!("1={own}"), CLUSTER);
    let two = start(&folder.path().join("2"), &of_two);
    let of_one = flags("1", &own, &format!("2={other}"), CLUSTER);
    let one = start(&folder.path().join("1"), &of_one);
    for broker in [&one, &two] {
        until("a pong has come", || {
            status(broker).0["peers"][0]["round_trip_us"].as_u64().unwrap() > 0
        });
    }
    let metrics = get(&one.http, "/metrics");
    for name in ["links{peer=\"2\"} 2", "clock_skew_ms{peer=\"2\"} ", "unsent_bytes{peer=\"2\"} "] {
        assert!(metrics.contains(&format!("sennit_peer_{name}")), "{name}: {metrics}");
    }
}

#[test]
fn a_node_with_a_directory_of_another_cluster_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (own_address(), own_address());
    let of_two = flags("2", &other, &format!("1={own}"), CLUSTER);
    let two = start(&folder.path().join("2"), &of_two);
    let of_one = flags("1", &own, &format!("2={other}"), "5151");
    let one = start(&folder.path().join("1"), &of_one);
    let reason = format!("node 1 belongs to cluster 5151, node 2 to cluster {CLUSTER}");
    for broker in [&one, &two] {
        until("the refusal is told", || status(broker).0["peers"][0]["refusal"] == reason.as_str());
        assert!(heard(broker).is_empty());
    }
    let output = one.run(&["cluster", "status"], b"");
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("silent") && table.contains(&reason), "{table}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim(), "sennit: node 1 does not hear 2");
}

#[test]
fn a_broker_without_peers_says_that_it_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let output = broker.run(&["cluster", "status"], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no peers"), "{said}");
}

#[test]
fn peers_on_other_machines_are_refused_as_long_as_links_have_no_tls() {
    let folder = tempfile::tempdir().unwrap();
    let flags = flags("1", "127.0.0.1:0", "2=10.0.0.2:4439", CLUSTER);
    let mut serve = sennit(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    serve.arg("--data").arg(folder.path()).args(flags);
    let output = run(serve, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("10.0.0.2:4439") && said.contains("no TLS yet"), "{said}");
}

//! Three nodes that hold all shards: they elect leaders, any of them serves any client, and what was confirmed stays when
//! a node is killed.

use std::collections::BTreeSet;

use crate::{
    backup::get,
    bounds::until,
    broker::Broker,
    cluster_nodes::{leaders, own_address, status, three, until_led},
};

/// The node with this id.
fn node(brokers: &mut [Broker; 3], id: u64) -> &mut Broker {
    &mut brokers[id as usize - 1]
}

/// Publishes these messages through a node.
fn publish(broker: &Broker, messages: &[String]) {
    let mut arguments = vec!["publish", "t"];
    arguments.extend(messages.iter().map(String::as_str));
    broker.ok(&arguments, b"");
}

/// All messages that a group which nobody had before gets from a node; there are so many.
fn consumed(broker: &Broker, group: &str, count: usize) -> BTreeSet<String> {
    broker.ok(&["group", "create", "t", group], b"");
    let arguments = ["consume", "t", "--group", group, "--count", &count.to_string()];
    let printed = broker.ok(&arguments, b"");
    String::from_utf8(printed).unwrap().lines().map(str::to_owned).collect()
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Creates a topic with a partition in each group, and waits until each node knows it.
fn create_topic(brokers: &mut [Broker; 3]) {
    let led = until_led(&brokers.each_ref());
    node(brokers, led[0]).ok(&["topic", "create", "t", "--partitions", "2"], b"");
    for broker in brokers {
        until("a node knows the topic", || {
            broker.run(&["topic", "describe", "t"], b"").status.success()
        });
    }
}

#[test]
fn leaders_are_spread_over_the_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let brokers = three(folder.path(), &addresses);
    for broker in &brokers {
        until("each group is led by its node", || leaders(broker) == Some(vec![1, 2]));
    }
    let table = String::from_utf8(brokers[0].ok(&["cluster", "status"], b"")).unwrap();
    assert!(table.contains("leader") && table.contains("follower"), "{table}");
}

#[test]
fn what_was_confirmed_through_any_node_is_there_when_a_leader_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let mut brokers = three(folder.path(), &addresses);
    create_topic(&mut brokers);
    let mut expected = BTreeSet::new();
    for (broker, name) in brokers.iter().zip(["one", "two", "three"]) {
        let messages = numbered(name, 20);
        publish(broker, &messages);
        expected.extend(messages);
    }

    let killed = until_led(&brokers.each_ref())[0];
    node(&mut brokers, killed).kill();
    let living: Vec<_> =
        (1..).zip(&brokers).filter(|(id, _)| *id != killed).map(|(_, one)| one).collect();
    let led = until_led(&living);
    assert!(!led.contains(&killed), "{led:?}");
    for (broker, name) in living.iter().zip(["four", "five"]) {
        let messages = numbered(name, 20);
        publish(broker, &messages);
        expected.extend(messages);
    }
    let leader = &brokers[led[0] as usize - 1];
    assert_eq!(consumed(leader, "after", expected.len()), expected);

    node(&mut brokers, killed).start_again();
    let led = until_led(&brokers.each_ref());
    publish(&brokers[killed as usize - 1], &["last".to_owned()]);
    expected.insert("last".to_owned());
    assert_eq!(consumed(&brokers[led[0] as usize - 1], "again", expected.len()), expected);
}

#[test]
fn without_a_quorum_publishes_are_refused_until_there_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let mut brokers = three(folder.path(), &addresses);
    create_topic(&mut brokers);
    publish(&brokers[0], &["before".to_owned()]);
    let [one, two, three] = &mut brokers;
    two.kill();
    three.kill();
    // A leader that hears nobody steps down, and what it has taken by then has no known outcome.
    until("nobody is known to lead", || {
        let (status, _) = status(one);
        status["groups"].as_array().unwrap().iter().all(|group| group["leader"].is_null())
    });
    let refused = one.run(&["publish", "t", "alone", "--patience", "0s"], b"");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("no-leader"), "{said}");
    let ready = get(&one.http, "/readyz");
    assert!(ready.contains("no leader"), "{ready}");

    two.start_again();
    let led = until_led(&[one, two]);
    publish(two, &["after".to_owned()]);
    let expected = ["before", "after"].map(str::to_owned).into();
    assert_eq!(consumed(&brokers[led[0] as usize - 1], "all", 2), expected);
}

#[test]
fn a_node_that_is_asked_to_end_ends_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let mut brokers = three(folder.path(), &addresses);
    create_topic(&mut brokers);
    let asked = until_led(&brokers.each_ref())[0];
    assert_eq!(node(&mut brokers, asked).terminate(), Some(0));
    let others: Vec<_> =
        (1..).zip(&brokers).filter(|(id, _)| *id != asked).map(|(_, one)| one).collect();
    publish(others[0], &["one".to_owned(), "two".to_owned()]);
    publish(others[1], &["three".to_owned()]);
    let led = until_led(&others);
    let expected = ["one", "two", "three"].map(str::to_owned).into();
    assert_eq!(consumed(&brokers[led[0] as usize - 1], "all", 3), expected);
}

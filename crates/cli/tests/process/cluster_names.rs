//! Names, settings and credentials on three nodes: what was changed through one of them holds at once at that one, and at all others
//! as soon as somebody asks there; the leader of the catalogue may be killed.

use sennit_client::{Client, ConfigurationKey};
use serde_json::{Value, json};

use crate::{
    asking,
    auth::{text, with_key},
    bounds::{until, within},
    broker::Broker,
    cluster_nodes::{cluster, leader_of_catalogue, living},
};

/// The words of a node about an unknown name.
fn is_unknown(broker: &Broker, topic: &str) -> bool {
    let output = broker.run(&["topic", "describe", topic], b"");
    !output.status.success() && text(&output.stderr).contains("there is no topic")
}

#[test]
fn a_topic_that_was_created_through_any_node_is_used_through_any_other_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    for (creator, one) in brokers.iter().enumerate() {
        let topic = format!("of-{creator}");
        one.ok(&["topic", "create", &topic, "--partitions", "2"], b"");
        for (user, other) in brokers.iter().enumerate() {
            other.ok(&["topic", "describe", &topic], b"");
            other.ok(&["publish", &topic, "hello"], b"");
            let group = format!("group-{user}");
            other.ok(&["group", "create", &topic, &group], b"");
        }
        let consumer = &brokers[(creator + 1) % 3];
        let consumed = consumer.ok(&["consume", &topic, "--group", "group-0", "-n", "3"], b"");
        assert_eq!(text(&consumed), "hello\nhello\nhello");
        brokers[(creator + 2) % 3].ok(&["topic", "delete", &topic], b"");
        for broker in &brokers {
            until("it is gone everywhere", || is_unknown(broker, &topic));
        }
    }
}

#[test]
fn names_change_again_when_the_leader_of_the_catalogue_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster(folder.path(), &[]);
    brokers[0].ok(&["topic", "create", "before"], b"");
    let killed = leader_of_catalogue(&brokers);
    brokers[killed].kill();
    let living = living(&brokers, killed);
    for (at, broker) in living.iter().enumerate() {
        let topic = format!("after-{at}");
        until("a topic can be created again", || {
            broker.run(&["topic", "create", &topic], b"").status.success()
        });
        for other in &living {
            other.ok(&["publish", &topic, "hello"], b"");
            other.ok(&["publish", "before", "hello"], b"");
        }
    }
    brokers[killed].start_again();
    let returned = &brokers[killed];
    until("the node lets callers in", || returned.run(&["topic", "list"], b"").status.success());
    for topic in ["before", "after-0", "after-1"] {
        until("the node knows the topic", || {
            returned.run(&["publish", topic, "hello"], b"").status.success()
        });
    }
}

#[test]
fn a_stream_that_was_created_through_one_node_is_written_through_another_and_read_through_a_third()
{
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    let plain = [("content-type", "text/plain")];
    for creator in 0..3 {
        let path = format!("stream-{creator}");
        let at = |offset: usize| brokers[(creator + offset) % 3].http.as_str();
        let ask = |offset, method, headers: &[(&str, &str)], body| {
            let answer = asking::ask(at(offset), method, &path, headers, body);
            answer.expect("it is answered")
        };
        assert_eq!(ask(0, "PUT", &plain, "one ").status, 201);
        assert_eq!(ask(1, "POST", &plain, "two").status, 204);
        let read = ask(2, "GET", &[], "");
        assert_eq!((read.status, &*read.body), (200, &b"one two"[..]));
        assert_eq!(ask(1, "DELETE", &[], "").status, 204);
        assert_eq!(ask(2, "GET", &[], "").status, 404);
        assert_eq!(ask(0, "PUT", &plain, "new").status, 201);
        let read = ask(1, "GET", &[], "");
        assert_eq!((read.status, &*read.body), (200, &b"new"[..]));
    }
}

#[test]
fn a_channel_that_was_created_through_one_node_has_subscribers_at_another() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    for (at, publisher) in brokers.iter().enumerate() {
        let channel = format!("news-{at}");
        publisher.ok(&["live", "publish", &channel, "hello"], b"");
        let subscriber = &brokers[(at + 1) % 3];
        let arguments = ["live", "subscribe", &channel, "--from", "earliest", "-n", "1", "--json"];
        let heard: Value =
            serde_json::from_slice(&subscriber.ok(&arguments, b"")).expect("a line is JSON");
        assert_eq!(heard["payload"], json!("hello"));
    }
}

#[test]
fn settings_and_keys_that_were_changed_through_one_node_hold_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    for (at, writer) in brokers.iter().enumerate() {
        let (key, value) = (format!("color-{at}"), format!("green-{at}"));
        writer.ok(&["kv", "set", &key, &value], b"");
        assert_eq!(text(&writer.ok(&["kv", "get", &key], b"")), value);
        for broker in &brokers {
            until("the entry is there", || {
                let output = broker.run(&["kv", "get", &key], b"");
                output.status.success() && text(&output.stdout) == value
            });
        }
    }
    let mut key = String::new();
    until("the nodes have their keys", || {
        let output = brokers[1].run(&["auth", "key", "create", "first", "--role", "admin"], b"");
        key = text(&output.stdout);
        output.status.success()
    });
    for broker in &brokers {
        until("nobody is let in without a key", || {
            !broker.run(&["topic", "list"], b"").status.success()
        });
        let output = with_key(broker, &key, &["topic", "create", "guarded"], "");
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn a_key_that_is_set_through_followers_does_not_grow_the_stream_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    let leader = leader_of_catalogue(&brokers);
    let key: ConfigurationKey = "color".parse().unwrap();
    let value = vec![b'x'; 60_000];
    // Some 3 MB: the stream has to be written again, though the leader sets nothing.
    for follower in (0..3).filter(|node| *node != leader) {
        let address = brokers[follower].listen.clone();
        within("it is set often", async {
            let client = Client::connect(&address).await.unwrap();
            for _ in 0..25 {
                client.configuration().set(&key, value.clone(), None).await.unwrap();
            }
        });
    }
    until("the stream is written again and trimmed", || {
        let described =
            brokers[leader].ok(&["topic", "describe", "__ds/configuration", "--json"], b"");
        let described: Value = serde_json::from_slice(&described).unwrap();
        described["partition"][0]["start"].as_u64() > Some(0)
    });
    // The revisions go on, and each node has the entry.
    for (at, broker) in brokers.iter().enumerate() {
        let set = broker.ok(&["kv", "set", "color", "green", "--json"], b"");
        let set: Value = serde_json::from_slice(&set).unwrap();
        assert_eq!(set["revision"].as_u64(), Some(51 + at as u64));
        assert_eq!(text(&broker.ok(&["kv", "get", "color"], b"")), "green");
    }
}

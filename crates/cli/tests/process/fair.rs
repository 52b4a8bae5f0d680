//! Each feature of Fila's scheduler by a test that is named after it: fair scheduling, weights, priorities, throttles,
//! concurrency limits, pauses.

use sennit_client::{Client, Delivery, GroupName, TopicName};

use crate::{bounds::within, broker::Broker};

fn lines(tag: &str, count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| format!("{tag}{number}\n").into_bytes()).collect()
}

/// Publishes `count` messages of a key, `KEY0` and so on.
fn publish(broker: &Broker, key: &str, count: usize, headers: &[&str]) {
    let tenant = format!("tenant={key}");
    let mut arguments = vec!["publish", "jobs", "--header", tenant.as_str()];
    headers.iter().for_each(|header| arguments.extend(["--header", *header]));
    broker.ok(&arguments, &lines(key, count));
}

fn consumed(broker: &Broker, count: usize) -> Vec<String> {
    let count = count.to_string();
    let out = broker.ok(&["consume", "jobs", "--count", &count], b"");
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

fn of_key(consumed: &[String], key: &str) -> usize {
    consumed.iter().filter(|line| line.starts_with(key)).count()
}

/// The counts of group `default`: ready and leased.
fn counts(broker: &Broker) -> (u64, u64) {
    let out = broker.ok(&["group", "describe", "jobs", "default", "--json"], b"");
    let told: serde_json::Value = serde_json::from_slice(&out).unwrap();
    (told["ready"].as_u64().unwrap(), told["leased"].as_u64().unwrap())
}

fn key(broker: &Broker, arguments: &[&str]) {
    broker.ok(&[&["group", "key", "set", "jobs", "default"], arguments].concat(), b"");
}

#[test]
fn fair_scheduling_lets_a_quiet_tenant_pass_the_backlog_of_a_noisy_one() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    publish(&broker, "noisy", 1000, &[]);
    publish(&broker, "quiet", 10, &[]);
    let consumed = consumed(&broker, 20);
    assert!(of_key(&consumed, "quiet") >= 9, "{consumed:?}");
    let quiet: Vec<_> = consumed.iter().filter(|line| line.starts_with("quiet")).collect();
    assert!(quiet.is_sorted(), "messages of a key keep their order: {quiet:?}");
}

#[test]
fn weights_divide_deliveries_in_their_proportion() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--weight", "w"], b"");
    let tenants = ["a", "b", "c", "d", "e"];
    for (weight, tenant) in (1..).zip(tenants) {
        publish(&broker, tenant, 1000, &[&format!("w={weight}")]);
    }
    let consumed = consumed(&broker, 1500);
    for (weight, tenant) in (1..).zip(tenants) {
        let (count, share) = (of_key(&consumed, tenant), weight * 100);
        assert!(count.abs_diff(share) <= 15, "{tenant}: {count} of {share}");
    }
}

#[test]
fn a_weight_of_the_group_has_precedence_over_that_of_messages() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--weight", "w"], b"");
    key(&broker, &["b", "--weight", "4"]);
    publish(&broker, "a", 500, &["w=1"]);
    publish(&broker, "b", 500, &["w=1"]);
    let consumed = consumed(&broker, 500);
    assert!(of_key(&consumed, "b").abs_diff(400) <= 10, "{}", of_key(&consumed, "b"));
}

#[test]
fn priorities_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--priority", "p"], b"");
    publish(&broker, "slow", 5, &[]);
    publish(&broker, "urgent", 5, &["p=9"]);
    assert_eq!(of_key(&consumed(&broker, 5), "urgent"), 5);
}

#[test]
fn a_throttle_lets_its_burst_pass_and_holds_the_rest_back() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    key(&broker, &["noisy", "--throttle", "1/h", "--burst", "3"]);
    publish(&broker, "noisy", 10, &[]);
    publish(&broker, "quiet", 10, &[]);
    // The rest of the noisy tenant is not due for an hour: 3 and 10 are all that can come.
    let consumed = consumed(&broker, 13);
    assert_eq!((of_key(&consumed, "noisy"), of_key(&consumed, "quiet")), (3, 10));
}

#[test]
fn a_concurrency_limit_bounds_what_consumers_hold_of_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    key(&broker, &["noisy", "--concurrency", "2"]);
    publish(&broker, "noisy", 10, &[]);
    publish(&broker, "quiet", 5, &[]);
    within("a key has two messages under way", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let topic: TopicName = "jobs".parse().unwrap();
        let group = GroupName::default_group();
        let mut consumer = client.consumer(&topic, &group).subscribe().await.unwrap();
        let mut held: Vec<Delivery> = Vec::new();
        for _ in 0..7 {
            held.push(consumer.next().await.unwrap().unwrap());
        }
        let is_noisy = |delivery: &Delivery| delivery.payload().starts_with(b"noisy");
        assert_eq!(held.iter().filter(|held| is_noisy(held)).count(), 2);
        assert_eq!(counts(&broker).1, 7);
        // One that is settled makes room for the next.
        let at = held.iter().position(is_noisy).unwrap();
        held.swap_remove(at).ack();
        assert!(is_noisy(&consumer.next().await.unwrap().unwrap()));
        client.close().await;
    });
}

#[test]
fn a_paused_topic_group_or_key_gets_nothing_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    key(&broker, &["noisy", "--pause"]);
    publish(&broker, "noisy", 2, &[]);
    publish(&broker, "quiet", 2, &[]);
    assert_eq!(consumed(&broker, 2), ["quiet0", "quiet1"]);
    for (pause, resume) in [
        (&["topic", "pause", "jobs"][..], &["topic", "resume", "jobs"][..]),
        (&["group", "pause", "jobs", "default"], &["group", "resume", "jobs", "default"]),
    ] {
        broker.ok(pause, b"");
        within("a consumer gets a message after a pause", async {
            let client = Client::connect(broker.listen.clone()).await.unwrap();
            let (topic, group): (TopicName, _) =
                ("jobs".parse().unwrap(), GroupName::default_group());
            let mut consumer = client.consumer(&topic, &group).subscribe().await.unwrap();
            publish(&broker, "quiet", 1, &[]);
            assert_eq!(counts(&broker).1, 0);
            broker.ok(resume, b"");
            consumer.next().await.unwrap().unwrap().ack();
            client.close().await;
        });
    }
    key(&broker, &["noisy", "--resume"]);
    assert_eq!(consumed(&broker, 2), ["noisy0", "noisy1"]);
}

#[test]
fn publish_takes_the_fields_by_name_and_writes_the_headers_that_the_topic_names() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let names = ["--fair-key", "tenant", "--weight", "share", "--throttle-keys", "limits"];
    broker.ok(&[&["topic", "create", "jobs"], &names[..]].concat(), b"");
    let fields = ["--fair-key", "acme", "--weight", "3"];
    let throttled = ["--throttle-key", "smtp", "--throttle-key", "acme"];
    broker.ok(&[&["publish", "jobs", "a"], &fields[..], &throttled].concat(), b"");
    let read = broker.ok(&["read", "jobs", "--from", "earliest", "--count", "1", "--json"], b"");
    let read: serde_json::Value = serde_json::from_slice(&read).unwrap();
    let header = |name: &str, value: &str| serde_json::json!({ "name": name, "kind": "text", "value": value });
    let expected = [header("tenant", "acme"), header("share", "3"), header("limits", "smtp,acme")];
    assert_eq!(read["headers"], serde_json::json!(expected));
    let refused = broker.run(&["publish", "jobs", "b", "--priority", "7"], b"");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("names no header for priority"), "{said}");
    let nine = ["--throttle-key", "x"].repeat(9);
    let refused = broker.run(&[&["publish", "jobs", "b"], &nine[..]].concat(), b"");
    assert_eq!(refused.status.code(), Some(2));
}

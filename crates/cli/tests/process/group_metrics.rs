//! The metrics name groups, with what they have to do and what went wrong, and their busiest fair keys.

use std::time::Duration;

use sennit_client::{Client, GroupName, TopicName};

use crate::{
    bounds::{until, within},
    broker::Broker,
};

/// The value of a group's series, summed over the shards; `None` without it.
fn value(text: &str, name: &str, labels: &str) -> Option<f64> {
    let of_series = |line: &&str| {
        line.starts_with(&format!("sennit_{name}{{")) && line.contains(&format!("{labels}}}"))
    };
    let values = text.lines().filter(of_series).map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<f64>().unwrap()).reduce(|sum, value| sum + value)
}

#[test]
fn groups_and_their_busiest_keys_have_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    for (tenant, payloads) in [("acme", &["a", "b", "c"][..]), ("say \"hi\"", &["d"])] {
        let tenant = format!("tenant={tenant}");
        broker.ok(&[&["publish", "jobs", "--header", &tenant][..], payloads].concat(), b"");
    }
    within("a consumer acks, retries, dead-letters and holds", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let (topic, group): (TopicName, _) = ("jobs".parse().unwrap(), GroupName::default_group());
        let consumer = client.consumer(&topic, &group).credit_messages(1).subscribe();
        let mut consumer = consumer.await.unwrap();
        let first = consumer.next().await.unwrap().unwrap();
        first.retry_after_confirmed(Duration::ZERO).await.unwrap();
        let mut seen = 0;
        while seen < 3 {
            let delivery = consumer.next().await.unwrap().unwrap();
            seen += 1;
            if delivery.message().payload() == b"b" {
                delivery.dead_letter_confirmed("no").await.unwrap();
            } else {
                delivery.ack_confirmed().await.unwrap();
            }
        }
        let held = consumer.next().await.unwrap().unwrap();
        let of_group = |name: &str| {
            let text = broker.metrics();
            value(&text, name, r#"topic="jobs",group="default""#)
        };
        // A survey takes ten seconds, and an earlier one may have seen another message leased.
        until("the group is named with the last message", || {
            of_group("group_leased_messages") == Some(1.0)
                && ["ready", "retrying"]
                    .iter()
                    .all(|state| of_group(&format!("group_{state}_messages")) == Some(0.0))
        });
        until("the dead letter is in its topic", || of_group("group_dead_messages") == Some(0.0));
        assert!(of_group("group_oldest_age_seconds").is_some());
        assert_eq!(of_group("group_redelivered_messages_total"), Some(1.0));
        assert_eq!(of_group("group_dead_lettered_messages_total"), Some(1.0));
        assert_eq!(of_group("group_throttle_waits_total"), Some(0.0));
        let of_key = |name: &str, key: &str| {
            let text = broker.metrics();
            let labels = format!(r#"topic="jobs",group="default",key="{key}""#);
            value(&text, name, &labels)
        };
        assert_eq!(of_key("group_key_delivered_messages_total", "acme"), Some(4.0));
        assert_eq!(of_key("group_key_delivered_messages_total", r#"say \"hi\""#), Some(1.0));
        assert_eq!(of_key("group_key_first_deliveries_total", "acme"), Some(3.0));
        assert!(of_key("group_key_wait_seconds_total", "acme").is_some());
        held.ack_confirmed().await.unwrap();
        client.close().await;
    });
    let text = broker.metrics();
    for (name, count) in [("redelivered", 1.0), ("dead_lettered", 1.0)] {
        let lines =
            text.lines().filter(|line| line.starts_with(&format!("sennit_{name}_messages_total")));
        let sum: f64 =
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
        assert_eq!(sum.to_bits(), f64::to_bits(count), "{name}");
    }
}

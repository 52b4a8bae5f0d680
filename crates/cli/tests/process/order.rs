//! Groups that keep an order: a key or a partition has one active consumer at a time, also over kill -9.

use std::collections::{BTreeMap, BTreeSet};

use sennit_client::{Client, Consumer, Delivery, GroupName, TopicName};

use crate::{bounds::within, broker::Broker};

const KEYS: usize = 12;
const MESSAGES: usize = 240;

fn topic() -> TopicName {
    "jobs".parse().unwrap()
}

/// Publishes `MESSAGES` messages of `KEYS` keys in turn; the payload is the number.
fn publish(broker: &Broker) {
    for key in 0..KEYS {
        let lines: String =
            (0..MESSAGES / KEYS).map(|number| format!("k{key} {number}\n")).collect();
        let header = format!("tenant=k{key}");
        broker.ok(&["publish", "jobs", "--header", &header], lines.as_bytes());
    }
}

async fn consumer(broker: &Broker, credit: u32) -> (Client, Consumer) {
    let client = Client::connect(broker.listen.clone()).await.unwrap();
    let group = GroupName::default_group();
    let consumer =
        client.consumer(&topic(), &group).credit_messages(credit).subscribe().await.unwrap();
    (client, consumer)
}

fn parsed(delivery: &Delivery) -> (String, usize) {
    let text = String::from_utf8(delivery.payload().to_vec()).unwrap();
    let (key, number) = text.split_once(' ').unwrap();
    (key.into(), number.parse().unwrap())
}

fn described(broker: &Broker) -> serde_json::Value {
    let out = broker.ok(&["group", "describe", "jobs", "default", "--json"], b"");
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn keys_are_processed_in_order_by_one_consumer_at_a_time_also_over_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--order", "key"], b"");
    publish(&broker);
    // The next message of each key that was not processed.
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    let mut processed = 0;
    while processed < MESSAGES {
        let lived_to = (processed + 70).min(MESSAGES);
        within("messages are processed in order", async {
            let (first, mut one) = consumer(&broker, 7).await;
            let (second, mut other) = consumer(&broker, 7).await;
            let mut held: [Vec<Delivery>; 2] = [Vec::new(), Vec::new()];
            while processed < lived_to {
                let (who, delivery) = tokio::select! {
                    delivery = one.next() => (0, delivery),
                    delivery = other.next() => (1, delivery),
                };
                let delivery = delivery.unwrap().unwrap();
                let (key, number) = parsed(&delivery);
                let is_of_key = |held: &Delivery| parsed(held).0 == key;
                assert!(!held[1 - who].iter().any(is_of_key), "{key} is with both");
                held[who].push(delivery);
                if held[who].len() >= 5 || number + 1 == MESSAGES / KEYS {
                    for delivery in held[who].drain(..) {
                        let (key, number) = parsed(&delivery);
                        let due = next.entry(key.clone()).or_default();
                        // A message acked while the broker was killed may come once more.
                        assert!(number <= *due, "{key}: {number} comes before {due}");
                        *due = (number + 1).max(*due);
                        delivery.ack_confirmed().await.unwrap();
                        processed += 1;
                    }
                }
            }
            drop((one, other));
            first.close().await;
            second.close().await;
        });
        broker.kill();
        broker.start_again();
        let counts = described(&broker);
        let left = counts["ready"].as_u64().unwrap() + counts["leased"].as_u64().unwrap();
        processed = MESSAGES - usize::try_from(left).unwrap();
    }
    assert!(next.values().all(|next| *next == MESSAGES / KEYS), "{next:?}");
}

#[test]
fn each_partition_has_one_consumer_and_the_description_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let create = ["topic", "create", "jobs", "--partitions", "6", "--order", "partition"];
    broker.ok(&create, b"");
    let lines: String = (0..600).map(|number| format!("k{number} {number}\n")).collect();
    broker.ok(&["publish", "jobs", "--key-before", " "], lines.as_bytes());
    within("each partition is with one consumer", async {
        let (first, mut one) = consumer(&broker, 1000).await;
        let (second, mut other) = consumer(&broker, 1000).await;
        let mut of = [BTreeSet::new(), BTreeSet::new()];
        let mut held = Vec::new();
        while of[0].len() + of[1].len() < 6 {
            let (who, delivery) = tokio::select! {
                delivery = one.next() => (0_usize, delivery),
                delivery = other.next() => (1, delivery),
            };
            let delivery = delivery.unwrap().unwrap();
            of[who].insert(delivery.partition());
            held.push(delivery);
        }
        assert!(of[0].is_disjoint(&of[1]), "{of:?}");
        let told = described(&broker);
        assert_eq!(told["order"], "partition");
        let active = told["active_sessions"].as_array().unwrap();
        assert_eq!(active.iter().filter(|session| session.is_u64()).count(), 6, "{told}");
        // One leaves; the other goes on with its partitions.
        drop(one);
        first.close().await;
        let mut seen = BTreeSet::new();
        while seen.len() < 6 {
            let delivery = other.next().await.unwrap().unwrap();
            seen.insert(delivery.partition());
            delivery.ack();
            held.retain(|held| {
                let is_its_own = of[1].contains(&held.partition());
                if is_its_own {
                    held.ack();
                }
                !is_its_own
            });
        }
        second.close().await;
    });
}

#[test]
fn a_message_that_is_retried_later_holds_its_key_and_explain_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", ":key"], b"");
    broker.ok(&["group", "alter", "jobs", "default", "--order", "key"], b"");
    broker.ok(&["publish", "jobs", "--key", "acme"], b"a 0\na 1\n");
    broker.ok(&["publish", "jobs", "--key", "other"], b"b 0\n");
    within("the failed message holds back the next", async {
        let (client, mut consumer) = consumer(&broker, 1).await;
        let delivery = consumer.next().await.unwrap().unwrap();
        assert_eq!(delivery.offset().0, 0);
        delivery.retry_after_confirmed(std::time::Duration::from_secs(3600)).await.unwrap();
        let delivery = consumer.next().await.unwrap().unwrap();
        assert_eq!(delivery.offset().0, 2, "the other key goes on");
        let told = broker.ok(&["explain", "jobs", "1"], b"");
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("waits in order behind offset 0"), "{told}");
        delivery.ack();
        client.close().await;
    });
}

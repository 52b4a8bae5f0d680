//! A kill changes nothing of delayed messages, messages that consumers hold, and dead letters: due times, failed attempts
//! and reasons are as before. `SENNIT_KEPT_MESSAGES` says how many of each: a million in the long runs.

use std::time::Duration;

use sennit_client::{
    Client, GroupChange, GroupName, InspectVerb, Message, MessagePage, MessageSelection, Offset,
    PartitionIndex, TopicConfig, TopicKind, TopicName,
};
use sennit_model::limits::CREDIT_BYTES_MAX;

use crate::{
    bounds::{BOUND, until_async, within_bound},
    broker::Broker,
    torture::number,
};

/// Messages of each kind in an ordinary run.
const MESSAGES: u64 = 2000;

/// How long a thousand messages may take on a machine that does other work.
const THOUSAND: Duration = Duration::from_secs(2);

/// Reasons of dead letters.
const REASONS: u64 = 7;

/// What a group still has: the offset, the failed attempts, and what the message waits for.
type Kept = Vec<(u64, u32, String)>;

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

/// How many attempts fail before the one that lasts.
fn failing(offset: u64) -> u32 {
    u32::try_from(offset % 3).unwrap()
}

/// Creates a queue with so many messages.
async fn filled(client: &Client, topic: &str, count: u64, delay: impl Fn(u64) -> Option<Duration>) {
    client.create_topic(&name(topic), TopicConfig::of_kind(TopicKind::Queue)).await.unwrap();
    // No lease ends while the test runs.
    let change = GroupChange { lease: Some(Duration::from_hours(10)), ..GroupChange::default() };
    client.alter_group(&name(topic), &GroupName::default_group(), change).await.unwrap();
    let publisher = client.publisher(&name(topic)).open().await.unwrap();
    for number in 0..count {
        let message = Message { delay: delay(number), ..Message::new(format!("{number}")) };
        drop(publisher.publish(message).await.unwrap());
    }
    publisher.flush().await.unwrap();
}

/// Takes every message, fails some of the attempts, and does `settle` with the last attempt of each.
async fn taken(
    client: &Client,
    topic: &str,
    count: u64,
    mut settle: impl FnMut(u64, &sennit_client::Delivery),
) -> sennit_client::Consumer {
    let consumer = client.consumer(&name(topic), &GroupName::default_group());
    let credit = u32::try_from(count).unwrap();
    let consumer = consumer.credit_messages(credit).credit_bytes(CREDIT_BYTES_MAX);
    let mut consumer = consumer.subscribe().await.unwrap();
    let mut left = count;
    while left > 0 {
        let delivery = consumer.next().await.unwrap().unwrap();
        let offset = delivery.offset().0;
        if delivery.attempt() <= failing(offset) {
            delivery.retry();
        } else {
            settle(offset, &delivery);
            left -= 1;
        }
    }
    consumer
}

/// Everything that the group of a topic still has, page by page. `told` says what counts of a message's state.
async fn kept(
    client: &Client,
    topic: &str,
    told: impl Fn(&sennit_client::InspectedMessage) -> String,
) -> Kept {
    let (topic, group, partition) = (name(topic), GroupName::default_group(), PartitionIndex(0));
    let mut page = MessagePage {
        topic,
        group,
        partition,
        from: Offset(0),
        selection: MessageSelection::default(),
        matched_max: 1000,
    };
    let mut kept = Kept::new();
    loop {
        let peek = InspectVerb::Peek { payload_bytes_max: 16 };
        let found = client.inspect(&page, peek).await.unwrap();
        for message in &found.messages {
            kept.push((message.offset.0, message.failed, told(message)));
        }
        match found.next {
            Some(next) => page.from = next,
            None => return kept,
        }
    }
}

async fn all_kept(client: &Client) -> [Kept; 3] {
    let state = |message: &sennit_client::InspectedMessage| format!("{:?}", message.state);
    let text = |message: &sennit_client::InspectedMessage| {
        String::from_utf8_lossy(&message.payload).into_owned()
    };
    // The reason and the number of attempts are among a dead letter's headers.
    let headers = |message: &sennit_client::InspectedMessage| {
        format!("{:?} {}", message.headers, text(message))
    };
    [
        kept(client, "later", state).await,
        kept(client, "held", text).await,
        kept(client, "dead.dead-letter", headers).await,
    ]
}

#[test]
fn a_kill_changes_no_due_time_no_failed_attempt_and_no_reason() {
    let count = number("SENNIT_KEPT_MESSAGES").unwrap_or(MESSAGES);
    let bound = BOUND + THOUSAND * u32::try_from(count / 1000).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    within_bound(bound, "everything is as before the kill", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        // Due in one to two hours, in no order.
        let due = |number: u64| Some(Duration::from_secs(3600 + number * 7919 % 3600));
        filled(&client, "later", count, due).await;
        filled(&client, "held", count, |_| None).await;
        filled(&client, "dead", count, |_| None).await;
        let held = taken(&client, "held", count, |_, _| {}).await;
        let dead = taken(&client, "dead", count, |offset, delivery| {
            delivery.dead_letter(format!("reason {}", offset % REASONS));
        });
        let dead = dead.await;
        until_async("all are dead letters", async || {
            let page = MessagePage {
                topic: name("dead"),
                group: GroupName::default_group(),
                partition: PartitionIndex(0),
                from: Offset(0),
                selection: MessageSelection::default(),
                matched_max: 1,
            };
            let found = client.inspect(&page, InspectVerb::Count).await.unwrap();
            found.next.is_none() && found.matched == 0
        })
        .await;
        let before = all_kept(&client).await;
        for kept in &before {
            assert_eq!(kept.len() as u64, count);
        }
        assert!(before[1].iter().all(|(offset, failed, _)| *failed == failing(*offset)));
        broker.kill();
        drop((held, dead, client));
        broker.start_again();
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let after = all_kept(&client).await;
        for (topic, (before, after)) in
            ["later", "held", "dead"].iter().zip(before.iter().zip(&after))
        {
            let differing = before.iter().zip(after).find(|(before, after)| before != after);
            assert_eq!(differing, None, "{topic}");
            assert_eq!(before.len(), after.len(), "{topic}");
        }
        // Each held message is delivered once more, and its attempts go on where they were.
        let again = taken(&client, "held", count, |_, delivery| delivery.ack()).await;
        again.close().await.unwrap();
        client.close().await;
    });
}

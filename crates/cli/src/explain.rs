//! `sennit explain`: why a message or a fair key waits, in one sentence. Other verbs take its words for reasons.

use std::io::{self, Write};

use sennit_client::{ExplainSubject, Explanation, WaitReason};
use sennit_model::{GroupName, Offset, PartitionIndex, TopicName};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    output::{ignore_broken_pipe, print_json},
    time_argument::show,
};

const EXAMPLES: &str = "\
Examples:
  sennit explain jobs 4
  sennit explain jobs 4 --group audit --partition 2
  sennit explain jobs --key acme

The answer is the first reason that applies. Without --partition, each partition that has the
message gives one. sennit group keys lists the keys of a group with their reasons.";

/// The arguments of `sennit explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("subject").required(true).args(["offset", "key"]))]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name
    topic: TopicName,
    /// The offset of the message
    offset: Option<u64>,
    /// Instead of an offset: the oldest ready message of this fair key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The group in which it waits
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    group: GroupName,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Print JSON, one object for each partition
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or there is no such message.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, topic, offset, key, group, partition, json } = args;
    let subject = match (offset, key) {
        (Some(offset), _) => ExplainSubject::Offset(Offset(offset)),
        (None, key) => ExplainSubject::FairKey(key.unwrap_or_default()),
    };
    block_on(async {
        let client = connect.client().await?;
        let partition = partition.map(PartitionIndex);
        let explained = client.explain(&topic, &group, partition, &subject).await;
        let about = |error| Failure::from(error).about(format!("{topic} {group}"));
        let explained = explained.map_err(about)?;
        if let ExplainSubject::Offset(offset) = &subject
            && explained.iter().all(|one| one.reason == WaitReason::NoMessage)
        {
            let text = format!("there is no message {offset}: not published, or not kept any more");
            return Err(Failure::new(Exit::NotFound, text).about(&topic));
        }
        let names_partition = explained.len() > 1;
        for one in &explained {
            if json {
                print_json(&explanation_json(one))?;
                continue;
            }
            let line = sentence(one, &subject, names_partition);
            ignore_broken_pipe(writeln!(io::stdout(), "{line}"))?;
        }
        Ok(())
    })
}

fn sentence(one: &Explanation, subject: &ExplainSubject, names_partition: bool) -> String {
    let place = match one.partition.0 {
        0 if !names_partition => String::new(),
        partition => format!("partition {partition}, "),
    };
    let said = predicate(&one.reason);
    match (subject, one.offset) {
        (ExplainSubject::FairKey(key), None) => format!("{place}{}: {said}", key_name(key)),
        (ExplainSubject::FairKey(key), Some(offset)) => {
            format!("{place}{}: offset {offset} {said}", key_name(key))
        }
        (ExplainSubject::Offset(offset), _) if one.fair_key.is_empty() => {
            format!("{place}offset {offset} {said}")
        }
        (ExplainSubject::Offset(offset), _) => {
            format!("{place}offset {offset} (key {}) {said}", one.fair_key)
        }
    }
}

fn key_name(key: &str) -> String {
    if key.is_empty() { "messages without a key".into() } else { format!("key {key}") }
}

/// A reason as the end of a sentence that begins with the message.
pub fn predicate(reason: &WaitReason) -> String {
    match reason {
        WaitReason::NoMessage => "no message of it is ready".into(),
        WaitReason::NotCommitted => "is not committed yet".into(),
        WaitReason::Settled => "is settled: the group is done with it".into(),
        WaitReason::Leased { session, attempt, until } => format!(
            "is held by a consumer until {} (session {session}, attempt {attempt})",
            show(until.0)
        ),
        WaitReason::Delayed { until } => {
            format!("is delayed by its publisher until {}", show(until.0))
        }
        WaitReason::Retrying { until, failed } => {
            format!("waits for its next attempt until {}, after {failed} failed", show(until.0))
        }
        WaitReason::Dead { reason } if reason.is_empty() => "failed for good".into(),
        WaitReason::Dead { reason } => format!("failed for good: {reason}"),
        WaitReason::Damaged => "cannot be read because of damage on the disk".into(),
        WaitReason::TopicPaused => "waits because the topic is paused".into(),
        WaitReason::GroupPaused => "waits because the group is paused".into(),
        WaitReason::NoConsumer => "waits because the group has no consumer".into(),
        WaitReason::KeyPaused => "waits because a rule pauses its key".into(),
        WaitReason::Concurrency { in_flight, limit } => format!(
            "waits because consumers hold {in_flight} messages of its key, and its rule allows {limit}"
        ),
        WaitReason::GroupThrottled { until } => {
            format!("waits for the group's throttle until {}", show(until.0))
        }
        WaitReason::Throttled { until } => format!("waits for a throttle until {}", show(until.0)),
        WaitReason::BehindFailed { offset, until } => format!(
            "waits in order behind offset {offset}, which has its next attempt at {}",
            show(until.0)
        ),
        WaitReason::HeldBy { session } => format!(
            "waits in order for the consumer of session {session}, which holds earlier messages"
        ),
        WaitReason::NoCredit => {
            "waits because each consumer holds as many messages as it takes at once".into()
        }
        WaitReason::Behind { messages: 0, keys } if *keys > 1 => {
            format!("is the next of its key, and {keys} keys take turns")
        }
        WaitReason::Behind { messages: 0, .. } => "is the next".into(),
        WaitReason::Behind { messages, keys: 0 } => format!("is ready, behind {messages} others"),
        WaitReason::Behind { messages, keys } => {
            format!("is ready, behind {messages} others of its key, and {keys} keys take turns")
        }
        WaitReason::Unknown(number) => unknown(*number),
        _ => unknown(0),
    }
}

/// A reason as a cell of a table with the head WAITS FOR.
pub fn cell(reason: Option<&WaitReason>) -> String {
    let Some(reason) = reason else { return "-".into() };
    match reason {
        WaitReason::NoConsumer => "a consumer".into(),
        WaitReason::TopicPaused => "topic is paused".into(),
        WaitReason::GroupPaused => "group is paused".into(),
        WaitReason::KeyPaused => "key is paused".into(),
        WaitReason::Concurrency { in_flight, limit } => {
            format!("concurrency {in_flight} of {limit}")
        }
        WaitReason::GroupThrottled { until } => format!("group's throttle until {}", show(until.0)),
        WaitReason::Throttled { until } => format!("throttle until {}", show(until.0)),
        WaitReason::BehindFailed { offset, until } => {
            format!("offset {offset} until {}", show(until.0))
        }
        WaitReason::HeldBy { session } => format!("consumer {session}"),
        WaitReason::NoCredit => "room of a consumer".into(),
        WaitReason::Behind { .. } => "its turn".into(),
        other => other.name().into(),
    }
}

fn unknown(number: i32) -> String {
    format!("waits for a reason that this version does not know, number {number}")
}

fn explanation_json(one: &Explanation) -> Value {
    json!({
        "partition": one.partition.0,
        "offset": one.offset.map(|offset| offset.0),
        "fair_key": one.fair_key,
        "reason": reason_json(&one.reason),
    })
}

/// A reason as JSON: its name, and what it knows.
pub fn reason_json(reason: &WaitReason) -> Value {
    let mut value = match reason {
        WaitReason::Leased { session, attempt, until } => {
            json!({ "session": session, "attempt": attempt, "until_ms": until.0 })
        }
        WaitReason::Retrying { until, failed } => json!({ "until_ms": until.0, "failed": failed }),
        WaitReason::Dead { reason } => json!({ "text": reason }),
        WaitReason::Concurrency { in_flight, limit } => {
            json!({ "in_flight": in_flight, "limit": limit })
        }
        WaitReason::Delayed { until }
        | WaitReason::GroupThrottled { until }
        | WaitReason::Throttled { until } => json!({ "until_ms": until.0 }),
        WaitReason::BehindFailed { offset, until } => {
            json!({ "offset": offset.0, "until_ms": until.0 })
        }
        WaitReason::HeldBy { session } => json!({ "session": session }),
        WaitReason::Behind { messages, keys } => json!({ "messages": messages, "keys": keys }),
        WaitReason::Unknown(number) => json!({ "number": number }),
        _ => json!({}),
    };
    value["name"] = reason.name().into();
    value
}

#[cfg(test)]
mod tests {
    use sennit_model::Timestamp;

    use super::*;

    fn one(offset: Option<u64>, fair_key: &str, reason: WaitReason) -> Explanation {
        let (partition, fair_key) = (PartitionIndex(0), fair_key.into());
        Explanation { partition, offset: offset.map(Offset), fair_key, reason }
    }

    #[test]
    fn a_sentence_names_the_message_or_the_key_and_the_partition_where_it_is_not_the_only_one() {
        let until = Timestamp(1_764_158_401_250);
        let throttled = one(Some(4), "slow", WaitReason::Throttled { until });
        let at = ExplainSubject::Offset(Offset(4));
        let said = "offset 4 (key slow) waits for a throttle until 2025-11-26T12:00:01.25Z";
        assert_eq!(sentence(&throttled, &at, false), said);
        assert_eq!(sentence(&throttled, &at, true), format!("partition 0, {said}"));
        let key = ExplainSubject::FairKey("acme".into());
        let held = WaitReason::Concurrency { in_flight: 3, limit: 3 };
        assert_eq!(
            sentence(&one(Some(7), "acme", held), &key, false),
            "key acme: offset 7 waits because consumers hold 3 messages of its key, and its rule allows 3"
        );
        assert_eq!(
            sentence(&one(None, "acme", WaitReason::NoMessage), &key, false),
            "key acme: no message of it is ready"
        );
    }
}

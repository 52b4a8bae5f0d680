//! `sennit group`: create, list, describe, alter, pause, resume, retry, delete. Its rules for keys are in `key`, the
//! listing of its keys in `keys`.

mod key;
mod keys;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sennit_client::{Client, FairKey, GroupChange, GroupDescription, ParkedRun};
use sennit_model::{
    GroupConfig, GroupName, Offset, OffsetRange, Order, PartitionIndex, StartAt, Timestamp,
    TopicName,
};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    offsets_argument::offsets,
    output::{print_json, print_table, print_to_stderr},
    quantity::{duration, show_duration},
    retry_options::{RetryOptions, policy_json, show_policy},
    throttle_options::{ThrottleOptions, show_throttle, throttle_json},
};

const EXAMPLES: &str = "\
Examples:
  sennit group create orders billing --lease 2m --attempts 5
  sennit group create orders audit --start latest
  sennit group alter orders billing --attempts 8
  sennit group alter orders billing --retry-backoff 1s..5m --retry-jitter 20%
  sennit group alter orders billing --throttle 50/s
  sennit group key set orders billing noisy-tenant --concurrency 2
  sennit group keys orders billing --top 5
  sennit group retry orders.dead-letter default --offsets 5..9
  sennit group describe orders billing";

/// The arguments of `sennit group`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each group
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a group; an existing group with the same settings is left as it is
    Create {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
        /// How long a consumer may hold a message before it returns to the others [default: 30s]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        lease: Option<Duration>,
        /// After this many failed attempts a message goes to the dead-letter topic [default: 20]
        #[arg(long, value_name = "N")]
        attempts: Option<u32>,
        #[command(flatten)]
        retry: RetryOptions,
        #[command(flatten)]
        throttle: ThrottleOptions,
        /// Keep the messages of each fair key, or of each partition, in order: one consumer at a time has
        /// them. none: any consumer, in any order
        #[arg(long, value_name = "none|key|partition", default_value = "none")]
        order: Order,
        /// The start of the group: earliest, latest or an offset
        #[arg(long, value_name = "WHERE", default_value = "earliest", value_parser = start_at)]
        start: StartAt,
    },
    /// Print the groups of a topic by name
    List {
        /// The topic's name
        topic: TopicName,
    },
    /// Print the description of a group, with its parked messages and their reasons
    Describe {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
    },
    /// Change settings of a group; the others stay as they are
    ///
    /// New leases have the new length. The next failed attempt at a message is compared with the
    /// new limit and waits for the new delay; messages that wait already keep theirs.
    #[command(group = clap::ArgGroup::new("setting").required(true).multiple(true).args([
        "lease", "attempts", "retry_backoff", "retry_jitter", "retry_age", "throttle", "order",
    ]))]
    Alter {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
        /// How long a consumer may hold a message before it returns to the others
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        lease: Option<Duration>,
        /// After this many attempts a message goes to the dead-letter topic
        #[arg(long, value_name = "N")]
        attempts: Option<u32>,
        #[command(flatten)]
        retry: RetryOptions,
        #[command(flatten)]
        throttle: ThrottleOptions,
        /// Keep the messages of each fair key, or of each partition, in order
        #[arg(long, value_name = "none|key|partition")]
        order: Option<Order>,
    },
    /// Give a group no messages until it is resumed; what its consumers hold they may settle
    Pause {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
    },
    /// Give a group that was paused messages again
    Resume {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
    },
    /// Rules for the fair keys of a group: weight, limits, pause
    #[command(subcommand)]
    Key(key::Verb),
    /// Print the fair keys with the most ready messages, and why they wait
    ///
    /// A key is the sum over all partitions; the reason is that of its oldest ready message. A topic
    /// that names no fair key has one key, `-`.
    Keys(keys::Args),
    /// Deliver parked messages of a dead-letter topic again, with all their attempts
    ///
    /// A message that fails for good in a dead-letter topic is parked: it stays there and is not
    /// delivered until it is requested with this verb. `describe` prints the parked messages.
    Retry {
        /// The name of the dead-letter topic
        topic: TopicName,
        /// The group's name
        name: GroupName,
        /// Only these: one offset, or the first and the one behind the last, as in 5..9
        #[arg(long, value_name = "A..B", value_parser = offsets)]
        offsets: Option<OffsetRange>,
        /// The partition of the offsets
        #[arg(long, value_name = "N", default_value_t = 0, requires = "offsets")]
        partition: u32,
    },
    /// Delete a group
    Delete {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
    },
}

fn start_at(text: &str) -> Result<StartAt, String> {
    match text {
        "earliest" => Ok(StartAt::Earliest),
        "latest" => Ok(StartAt::Latest),
        _ => text
            .parse()
            .map(|offset| StartAt::Offset(Offset(offset)))
            .map_err(|_| format!("{text:?} is no start: earliest, latest or an offset")),
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        // What is wrong with the command line is said before a broker is asked for.
        let throttle = match &args.verb {
            Verb::Create { throttle, .. } | Verb::Alter { throttle, .. } => throttle.rate()?,
            Verb::Key(verb) => verb.check().map(|()| None)?,
            _ => None,
        };
        let throttle = throttle.map(|rate| rate.0);
        let client = args.connect.client().await?;
        match args.verb {
            Verb::Create { topic, name, lease, attempts, retry, throttle: _, order, start } => {
                let (attempts_max, order) = (attempts, Some(order));
                let change = GroupChange { lease, attempts_max, throttle, order, ..retry.change() };
                let config = change.applied_to(&GroupConfig::default());
                let created = client.create_group(&topic, &name, config, start).await;
                let created = created.map_err(|error| about(error, &topic, &name))?;
                let outcome = if created { "created" } else { "exists" };
                say_done(args.json, &topic, &name, outcome)
            }
            Verb::List { topic } => {
                let groups = client.list_groups(&topic).await;
                let groups = groups.map_err(|error| Failure::from(error).about(&topic))?;
                print(&groups, args.json)
            }
            Verb::Describe { topic, name } => {
                let group = client.describe_group(&topic, &name).await;
                let group = group.map_err(|error| about(error, &topic, &name))?;
                let keys = match group.config.order {
                    Order::Key => client.list_fair_keys(&topic, &name, 0).await?,
                    _ => Vec::new(),
                };
                describe(&group, &keys, args.json)
            }
            Verb::Alter { topic, name, lease, attempts, retry, throttle: _, order } => {
                let attempts_max = attempts;
                let change = GroupChange { lease, attempts_max, throttle, order, ..retry.change() };
                let altered = client.alter_group(&topic, &name, change).await;
                altered.map_err(|error| about(error, &topic, &name))?;
                say_done(args.json, &topic, &name, "altered")
            }
            Verb::Pause { topic, name } => {
                set_paused(&client, &topic, &name, true).await?;
                say_done(args.json, &topic, &name, "paused")
            }
            Verb::Resume { topic, name } => {
                set_paused(&client, &topic, &name, false).await?;
                say_done(args.json, &topic, &name, "resumed")
            }
            Verb::Key(verb) => verb.run(&client, args.json).await,
            Verb::Keys(keys) => keys.run(&client, args.json).await,
            Verb::Retry { topic, name, offsets, partition } => {
                let offsets: Vec<_> =
                    offsets.map(|range| (PartitionIndex(partition), range)).into_iter().collect();
                let retried = client.retry_parked(&topic, &name, &offsets).await;
                let messages = retried.map_err(|error| about(error, &topic, &name))?;
                if args.json {
                    let (topic, group) = (topic.as_str(), name.as_str());
                    return print_json(&json!({
                        "topic": topic, "group": group, "outcome": "retried", "messages": messages,
                    }));
                }
                print_to_stderr(&format!(
                    "{topic} {name}: {messages} parked messages are ready again"
                ));
                Ok(())
            }
            Verb::Delete { topic, name } => {
                let deleted = client.delete_group(&topic, &name).await;
                deleted.map_err(|error| about(error, &topic, &name))?;
                say_done(args.json, &topic, &name, "deleted")
            }
        }
    })
}

async fn set_paused(
    client: &Client,
    topic: &TopicName,
    name: &GroupName,
    is_paused: bool,
) -> Result<(), Failure> {
    let change = GroupChange { is_paused: Some(is_paused), ..GroupChange::default() };
    client.alter_group(topic, name, change).await.map_err(|error| about(error, topic, name))
}

fn about(error: sennit_client::Error, topic: &TopicName, name: &GroupName) -> Failure {
    Failure::from(error).about(format!("{topic} {name}"))
}

fn say_done(
    as_json: bool,
    topic: &TopicName,
    name: &GroupName,
    outcome: &str,
) -> Result<(), Failure> {
    if as_json {
        let (topic, group) = (topic.as_str(), name.as_str());
        return print_json(&json!({ "topic": topic, "group": group, "outcome": outcome }));
    }
    print_to_stderr(&format!("{topic} {name}: {outcome}"));
    Ok(())
}

fn print(groups: &[GroupDescription], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return groups.iter().try_for_each(|group| print_json(&description_json(group)));
    }
    let rows: Vec<_> = groups
        .iter()
        .map(|group| {
            let mut row = vec![group.name.to_string()];
            row.extend([group.ready, group.leased, group.delayed].map(|count| count.to_string()));
            row.push(group.consumers.to_string());
            row.push(show_duration(group.config.lease));
            row.push(group.config.attempts_max.to_string());
            row.push(group.parked.to_string());
            row.push(holds(group).unwrap_or_else(|| "-".into()));
            row.push(show_policy(&group.config.retry));
            row.push(show_throttle(group.config.throttle));
            row.push(if group.config.is_paused { "paused" } else { "-" }.into());
            row.push(match group.config.order {
                Order::None => "-".into(),
                order => order.to_string(),
            });
            row
        })
        .collect();
    let heads = [
        "GROUP",
        "READY",
        "LEASED",
        "DELAYED",
        "CONSUMERS",
        "LEASE",
        "ATTEMPTS",
        "PARKED",
        "HOLDS",
        "RETRY",
        "THROTTLE",
        "PAUSED",
        "ORDER",
    ];
    print_table(&heads, &rows)
}

/// The age of the oldest message that only this group, of several, has not settled.
pub(crate) fn holds(group: &GroupDescription) -> Option<String> {
    group.holds_since.map(age)
}

/// The age of what happened at this time, in whole seconds.
fn age(since: Timestamp) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_millis(since.0));
    show_duration(Duration::from_secs(age.as_secs()))
}

/// Prints a group with what only its own description has: parked messages and rules for keys.
fn describe(group: &GroupDescription, keys: &[FairKey], as_json: bool) -> Result<(), Failure> {
    let rules = &group.config.key_rules;
    if as_json {
        let mut value = description_json(group);
        value["key_rules"] = rules.iter().map(key::rule_json).collect();
        if group.config.order == Order::Key {
            value["keys"] = keys.iter().map(keys::key_json).collect();
        }
        return print_json(&value);
    }
    print(std::slice::from_ref(group), false)?;
    key::print_rules(rules)?;
    keys::print_holders(keys)?;
    print_active(group)?;
    print_parked(group)
}

/// Prints which consumer each partition is with, where the group keeps the order of partitions.
fn print_active(group: &GroupDescription) -> Result<(), Failure> {
    if group.active_sessions.is_empty() {
        return Ok(());
    }
    let row = |(partition, session): (usize, &Option<u64>)| {
        let session = session.map_or_else(|| "-".into(), |session| session.to_string());
        vec![partition.to_string(), session]
    };
    let rows: Vec<_> = group.active_sessions.iter().enumerate().map(row).collect();
    print_table(&["PARTITION", "CONSUMER"], &rows)
}

fn print_parked(group: &GroupDescription) -> Result<(), Failure> {
    if group.parked_runs.is_empty() {
        return Ok(());
    }
    let row = |run: &ParkedRun| {
        let OffsetRange { start, end } = run.offsets;
        let (partition, attempts) = (run.partition.0.to_string(), run.attempts.to_string());
        vec![partition, format!("{start}..{end}"), attempts, run.reason.clone()]
    };
    let rows: Vec<_> = group.parked_runs.iter().map(row).collect();
    print_table(&["PARTITION", "PARKED", "ATTEMPTS", "REASON"], &rows)?;
    let shown_count: u64 = group.parked_runs.iter().map(|run| run.offsets.count()).sum();
    if shown_count < group.parked {
        print_to_stderr(&format!(
            "{} more parked messages are not shown",
            group.parked - shown_count
        ));
    }
    Ok(())
}

fn parked_json(run: &ParkedRun) -> Value {
    json!({
        "partition": run.partition.0,
        "first_offset": run.offsets.start.0,
        "count": run.offsets.count(),
        "attempts": run.attempts,
        "failed_at_ms": run.failed_at.0,
        "reason": run.reason,
    })
}

/// A group as JSON.
pub(crate) fn description_json(group: &GroupDescription) -> Value {
    json!({
        "group": group.name.as_str(),
        "topic": group.topic.as_str(),
        "id": group.id.0,
        "ready": group.ready,
        "leased": group.leased,
        "delayed": group.delayed,
        "dying": group.dying,
        "parked": group.parked,
        "parked_runs": group.parked_runs.iter().map(parked_json).collect::<Vec<_>>(),
        "holds_since_ms": group.holds_since.map(|since| since.0),
        "consumers": group.consumers,
        "settled_before": group.settled_before.iter().map(|offset| offset.0).collect::<Vec<_>>(),
        "lease_ms": u64::try_from(group.config.lease.as_millis()).unwrap_or(u64::MAX),
        "attempts_max": group.config.attempts_max,
        "retry": policy_json(&group.config.retry),
        "throttle": throttle_json(group.config.throttle),
        "paused": group.config.is_paused,
        "order": group.config.order.to_string(),
        "active_sessions": group.active_sessions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_word_or_an_offset() {
        assert_eq!(start_at("latest"), Ok(StartAt::Latest));
        assert_eq!(start_at("17"), Ok(StartAt::Offset(Offset(17))));
        assert!(start_at("-1").is_err() && start_at("now").is_err());
    }
}

//! `sennit group`: create, list, describe, delete.

use std::time::Duration;

use sennit_client::GroupDescription;
use sennit_model::{GroupConfig, GroupName, Offset, StartAt, TopicName};
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    output::{print_json, print_table, talk},
    quantity::{duration, show_duration},
    reach::{Reach, block_on},
};

const EXAMPLES: &str = "\
Examples:
  sennit group create orders billing --lease 2m --attempts 5
  sennit group create orders audit --start latest
  sennit group describe orders billing";

/// The arguments of `sennit group`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON, one object for each group
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a group, or find it if it has the same settings
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
        /// Where it begins: earliest, latest or an offset
        #[arg(long, value_name = "WHERE", default_value = "earliest", value_parser = start_at)]
        start: StartAt,
    },
    /// Print the groups of a topic by name
    List {
        /// The topic's name
        topic: TopicName,
    },
    /// Print how a group is
    Describe {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        name: GroupName,
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
/// What the broker refuses, or that it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.reach.client().await?;
        match args.verb {
            Verb::Create { topic, name, lease, attempts, start } => {
                let default = GroupConfig::default();
                let config = GroupConfig {
                    lease: lease.unwrap_or(default.lease),
                    attempts_max: attempts.unwrap_or(default.attempts_max),
                };
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
                print(&[group.map_err(|error| about(error, &topic, &name))?], args.json)
            }
            Verb::Delete { topic, name } => {
                let deleted = client.delete_group(&topic, &name).await;
                deleted.map_err(|error| about(error, &topic, &name))?;
                say_done(args.json, &topic, &name, "deleted")
            }
        }
    })
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
    talk(&format!("{topic} {name}: {outcome}"));
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
            row
        })
        .collect();
    print_table(&["GROUP", "READY", "LEASED", "DELAYED", "CONSUMERS", "LEASE", "ATTEMPTS"], &rows)
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
        "consumers": group.consumers,
        "settled_before": group.settled_before.iter().map(|offset| offset.0).collect::<Vec<_>>(),
        "lease_ms": u64::try_from(group.config.lease.as_millis()).unwrap_or(u64::MAX),
        "attempts_max": group.config.attempts_max,
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

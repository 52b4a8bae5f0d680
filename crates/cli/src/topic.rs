//! `sennit topic`: create, list, describe, alter, pause, resume, trim, delete.

use std::{str::FromStr, time::Duration};

use sennit_client::{Client, GroupDescription, PartitionDescription, TopicDescription};
use sennit_model::{
    Durability, Offset, PartitionIndex, Retention, TopicConfig, TopicKind, TopicName,
    limits::TOMBSTONE_AGE_DEFAULT,
};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    field_options::{self, FieldOptions},
    group,
    group_options::GroupOptions,
    limit_options::{DedupOptions, LimitOptions, show_dedup, show_limit},
    live_options::{LiveOptions, show_live},
    output::{print_json, print_table, print_to_stderr},
    quantity::{duration, names_a_size, names_a_time, show_duration, size},
    topic_settings::{kind_name, show_retention, topic_json},
};

const EXAMPLES: &str = "\
Examples:
  sennit topic create orders
  sennit topic create events --kind stream --partitions 4 --retain 7d --retain 10GiB
  sennit topic create jobs --limit-messages 100000 --when-full drop-oldest
  sennit topic create payments --dedup-header order-id --dedup-window 1h
  sennit topic create lobby --durability memory --presence on
  sennit topic create mail --attempts 5 --retry-backoff 1s..5m
  sennit topic create prices --kind stream --durability ephemeral
  sennit topic list --json
  sennit topic create rates --retain latest-per-key --tombstone-age 1h
  sennit topic alter events --retain forever
  sennit topic create jobs --fair-key tenant --weight plan-weight
  sennit topic pause jobs
  sennit topic trim events --before 100000";

/// The arguments of `sennit topic`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each topic
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a topic; an existing topic with the same settings is left as it is
    Create {
        /// Its name: 1 to 200 of a-z A-Z 0-9 _ - . / ~ and %XX, with no part between dots empty
        name: TopicName,
        #[command(flatten)]
        settings: Settings,
        /// The number of partitions; cannot be changed
        #[arg(long, value_name = "N", default_value_t = 1)]
        partitions: u32,
        /// When messages are delivered and confirmed: durable (both after the sync), speculative
        /// (delivered before it), ephemeral (both before it), memory (never written); cannot be
        /// changed
        #[arg(long, value_name = "TIER", default_value_t)]
        durability: Durability,
        /// Place its partitions where those of this topic lie, so that one atomic step may use both
        #[arg(long, value_name = "TOPIC")]
        beside: Option<TopicName>,
        #[command(flatten)]
        group: Box<GroupOptions>,
    },
    /// Print all topics by name
    List,
    /// Print a topic with its partitions and groups
    Describe {
        /// Its name
        name: TopicName,
    },
    /// Free the oldest messages of a partition: every batch that lies wholly before the offset
    Trim {
        /// The topic's name
        name: TopicName,
        /// The first offset to keep; beyond the end, the end
        #[arg(long, value_name = "OFFSET")]
        before: u64,
        /// The partition
        #[arg(long, short, value_name = "N", default_value_t = 0)]
        partition: u32,
    },
    /// Change settings of a topic; the others stay as they are
    Alter {
        /// Its name
        name: TopicName,
        #[command(flatten)]
        settings: Settings,
    },
    /// Give no group of a topic messages until it is resumed; it can be published to and read
    Pause {
        /// Its name
        name: TopicName,
    },
    /// Give the groups of a topic that was paused messages again
    Resume {
        /// Its name
        name: TopicName,
    },
    /// Delete a topic with its messages and groups
    Delete {
        /// Its name
        name: TopicName,
    },
}

#[derive(Debug, Default, clap::Args)]
struct Settings {
    /// Short for a retention: a queue keeps messages until they are settled, a stream for ever
    /// [default: queue, unless --retain is given]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The retention: until-settled, forever, an age (7d), bytes (10GiB) or a number of messages
    /// (1000000messages) per partition; may be given several times, and the rule that frees most
    /// applies. latest-per-key keeps the latest message of each key, within the other limits; every
    /// message then needs a key, and one without a payload (a tombstone) ends its key
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    retain: Vec<Rule>,
    /// With latest-per-key: the shortest time for which a tombstone is kept, so that readers see
    /// it; 24h by default
    #[arg(long, value_name = "AGE", value_parser = duration)]
    tombstone_age: Option<Duration>,
    /// The age after which a message that was never leased expires, unless it has its own; none for
    /// no such age
    #[arg(long, value_name = "AGE", value_parser = age_or_none)]
    ttl: Option<Age>,
    #[command(flatten)]
    fields: FieldOptions,
    #[command(flatten)]
    limit: LimitOptions,
    #[command(flatten)]
    dedup: DedupOptions,
    #[command(flatten)]
    live: LiveOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Kind {
    Queue,
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    UntilSettled,
    Forever,
    Age(Duration),
    Bytes(u64),
    Count(u64),
    LatestPerKey,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no retention: until-settled, forever, latest-per-key, an age (7d), bytes \
                 (10GiB), or a number of messages (1000000messages)"
            )
        };
        match text {
            "until-settled" => Ok(Self::UntilSettled),
            "forever" => Ok(Self::Forever),
            "latest-per-key" => Ok(Self::LatestPerKey),
            // It could be either, and what is freed is gone.
            number if number.parse::<u64>().is_ok() => {
                Err(format!("{number} of what? Write {number}B or {number}messages"))
            }
            _ => match text.strip_suffix("messages").map(|count| count.trim().parse()) {
                Some(Ok(count)) => Ok(Self::Count(count)),
                Some(Err(_)) => Err(wrong()),
                None if names_a_time(text) => duration(text).map(Self::Age),
                None if names_a_size(text) => size(text).map(Self::Bytes),
                None => Err(wrong()),
            },
        }
    }
}

/// An age, or `none`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Age(Option<Duration>);

fn age_or_none(text: &str) -> Result<Age, String> {
    if text == "none" { Ok(Age(None)) } else { duration(text).map(|age| Age(Some(age))) }
}

impl Settings {
    fn retention(&self) -> Result<Option<Retention>, Failure> {
        let usage = |text: &str| Err(Failure::new(Exit::Usage, text));
        if self.retain.is_empty() && self.tombstone_age.is_some() {
            return usage("--tombstone-age goes with --retain latest-per-key");
        }
        if self.retain.is_empty() {
            return Ok(self.kind.map(|kind| match kind {
                Kind::Queue => Retention::UNTIL_SETTLED,
                Kind::Stream => Retention::FOREVER,
            }));
        }
        let mut retention = Retention::FOREVER;
        for rule in &self.retain {
            match rule {
                Rule::Forever if self.retain.len() > 1 => {
                    return usage("--retain forever stands alone: it names no limit");
                }
                Rule::Forever => {}
                Rule::Age(_) if retention.age.is_some() => {
                    return usage("--retain names two ages: give one");
                }
                Rule::Bytes(_) if retention.bytes.is_some() => {
                    return usage("--retain names two sizes: give one");
                }
                Rule::Count(_) if retention.count.is_some() => {
                    return usage("--retain names two numbers of messages: give one");
                }
                Rule::UntilSettled => retention.until_settled = true,
                Rule::Age(age) => retention.age = Some(*age),
                Rule::Bytes(bytes) => retention.bytes = Some(*bytes),
                Rule::Count(count) => retention.count = Some(*count),
                Rule::LatestPerKey => {
                    let age = self.tombstone_age.unwrap_or(TOMBSTONE_AGE_DEFAULT);
                    retention.latest_per_key = Some(age);
                }
            }
        }
        if self.tombstone_age.is_some() && retention.latest_per_key.is_none() {
            return usage("--tombstone-age is for --retain latest-per-key");
        }
        if retention.latest_per_key.is_some()
            && (retention.until_settled || self.kind == Some(Kind::Queue))
        {
            return usage("a queue keeps until settled, not the latest of each key: choose one");
        }
        match self.kind {
            Some(Kind::Stream) if retention.until_settled => {
                usage("a stream does not retain until-settled: leave out --kind, or say queue")
            }
            Some(Kind::Queue) if self.retain == [Rule::Forever] => {
                usage("a queue does not retain forever: leave out --kind, or say stream")
            }
            Some(Kind::Queue) => Ok(Some(Retention { until_settled: true, ..retention })),
            _ => Ok(Some(retention)),
        }
    }

    /// `config` with the settings of the command line.
    fn apply_to(&self, config: TopicConfig) -> Result<TopicConfig, Failure> {
        Ok(TopicConfig {
            retention: self.retention()?.unwrap_or(config.retention),
            time_to_live: self.ttl.map_or(config.time_to_live, |age| age.0),
            fields: self.fields.apply_to(config.fields.as_deref()),
            limit: self.limit.apply_to(config.limit),
            dedup: self.dedup.apply_to(config.dedup)?,
            live: self.live.apply_to(config.live),
            ..config
        })
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = match &args.verb {
            // What is wrong with the command line is said before a broker is asked for.
            Verb::Create { settings, .. } | Verb::Alter { settings, .. } => {
                settings.retention()?;
                args.connect.client().await?
            }
            _ => args.connect.client().await?,
        };
        match args.verb {
            Verb::Create { name, settings, partitions, durability, beside, group } => {
                let queue = TopicConfig::of_kind(TopicKind::Queue);
                let queue = TopicConfig { partitions, durability, ..queue };
                let config = settings.apply_to(queue)?;
                if group.is_given() && config.kind() != TopicKind::Queue {
                    let text =
                        "--lease, --attempts, --retry-... and --order are for the group of a queue";
                    return Err(Failure::new(Exit::Usage, text));
                }
                let created = client.create_topic_beside(&name, config, beside.as_ref()).await;
                let created = created.map_err(|error| Failure::from(error).about(&name))?;
                group.set(&client, &name, created).await.map_err(|error| error.about(&name))?;
                say_done(args.json, &name, if created { "created" } else { "exists" })
            }
            Verb::List => list(&client, args.json).await,
            Verb::Describe { name } => {
                let topic = client.describe_topic(&name).await;
                describe(&topic.map_err(|error| Failure::from(error).about(&name))?, args.json)
            }
            Verb::Alter { name, settings } => {
                alter(&client, &name, &settings).await.map_err(|failure| failure.about(&name))?;
                say_done(args.json, &name, "altered")
            }
            Verb::Trim { name, before, partition } => {
                let start = trim(&client, &name, (PartitionIndex(partition), Offset(before))).await;
                let start = start.map_err(|failure| failure.about(&name))?;
                if args.json {
                    let topic = name.as_str();
                    return print_json(&json!({
                        "topic": topic, "partition": partition, "start": start.0,
                    }));
                }
                print_to_stderr(&format!("{name}: partition {partition} starts at offset {start}"));
                Ok(())
            }
            Verb::Pause { name } => {
                set_paused(&client, &name, true).await?;
                say_done(args.json, &name, "paused")
            }
            Verb::Resume { name } => {
                set_paused(&client, &name, false).await?;
                say_done(args.json, &name, "resumed")
            }
            Verb::Delete { name } => {
                let deleted = client.delete_topic(&name).await;
                deleted.map_err(|error| Failure::from(error).about(&name))?;
                say_done(args.json, &name, "deleted")
            }
        }
    })
}

async fn alter(client: &Client, name: &TopicName, settings: &Settings) -> Result<(), Failure> {
    let config = client.describe_topic(name).await?.config;
    client.alter_topic(name, settings.apply_to(config)?).await?;
    Ok(())
}

async fn set_paused(client: &Client, name: &TopicName, is_paused: bool) -> Result<(), Failure> {
    let about = |error: sennit_client::Error| Failure::from(error).about(name);
    let config = client.describe_topic(name).await.map_err(about)?.config;
    client.alter_topic(name, TopicConfig { is_paused, ..config }).await.map_err(about)
}

/// Trims a partition, and prints its new start.
async fn trim(
    client: &Client,
    name: &TopicName,
    position: (PartitionIndex, Offset),
) -> Result<Offset, Failure> {
    client.trim_topic(name, &[position]).await?;
    let partitions = client.describe_topic(name).await?.partitions;
    let held = partitions.iter().find(|held| held.index == position.0);
    Ok(held.map_or(Offset(0), |held| held.start))
}

async fn list(client: &Client, as_json: bool) -> Result<(), Failure> {
    let topics = client.list_topics().await?;
    if as_json {
        return topics.iter().try_for_each(|topic| {
            print_json(&topic_json(topic.name.as_str(), topic.id.0, &topic.config))
        });
    }
    let rows: Vec<_> = topics
        .iter()
        .map(|topic| {
            let config = &topic.config;
            let (kind, kept) = (kind_name(config), show_retention(&config.retention));
            vec![topic.name.to_string(), kind.into(), config.partitions.to_string(), kept]
        })
        .collect();
    print_table(&["TOPIC", "KIND", "PARTITIONS", "RETAINS"], &rows)
}

fn description_json(topic: &TopicDescription) -> Value {
    let mut value = topic_json(topic.name.as_str(), topic.id.0, &topic.config);
    let partition = |partition: &PartitionDescription| {
        json!({
            "partition": partition.index.0,
            "start": partition.start.0,
            "end": partition.end.0,
            "bytes": partition.bytes,
            "live_bytes": partition.bytes - partition.dead_bytes.min(partition.bytes),
            "dead_bytes": partition.dead_bytes,
            "damaged": partition.damaged,
            "lost": partition.lost,
            "oldest_ms": partition.oldest_at.map(|at| at.0),
        })
    };
    value["partition"] = topic.partitions.iter().map(partition).collect();
    value["group"] = topic.groups.iter().map(group::description_json).collect();
    value
}

fn describe(topic: &TopicDescription, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&description_json(topic));
    }
    let mut rows = vec![
        vec!["topic".into(), topic.name.to_string()],
        vec!["kind".into(), kind_name(&topic.config).into()],
        vec!["durability".into(), topic.config.durability.to_string()],
        vec!["retains".into(), show_retention(&topic.config.retention)],
    ];
    if let Some(age) = topic.config.time_to_live {
        rows.push(vec!["ttl".into(), show_duration(age)]);
    }
    if topic.config.limit.is_set() {
        rows.push(vec!["limit".into(), show_limit(&topic.config.limit)]);
    }
    if let Some(dedup) = &topic.config.dedup {
        rows.push(vec!["dedup".into(), show_dedup(dedup)]);
    }
    if let Some(live) = show_live(topic.config.live) {
        rows.push(vec!["live".into(), live]);
    }
    if let Some(age) = topic.config.retention.latest_per_key {
        rows.push(vec!["tombstone age".into(), show_duration(age)]);
    }
    rows.extend(topic.config.fields.iter().flat_map(|fields| field_options::rows(fields)));
    if topic.config.is_paused {
        rows.push(vec!["paused".into(), "yes".into()]);
    }
    for partition in &topic.partitions {
        rows.push(vec![format!("partition {}", partition.index.0), partition_text(partition)]);
    }
    for group in &topic.groups {
        rows.push(vec![format!("group {}", group.name), group_text(group)]);
    }
    for group in &topic.groups {
        let Some(age) = group::holds(group) else { continue };
        let behind = format!("messages that other groups are through with, for {age}");
        let unused = if group.consumers == 0 { ", and has no consumer" } else { "" };
        rows.push(vec![format!("held by {}", group.name), behind + unused]);
    }
    print_table(&["", ""], &rows)
}

fn partition_text(partition: &PartitionDescription) -> String {
    let mut text = format!(
        "offsets {}..{}, {} bytes live, {} dead",
        partition.start,
        partition.end,
        partition.bytes - partition.dead_bytes.min(partition.bytes),
        partition.dead_bytes
    );
    if partition.damaged > 0 {
        text += &format!(", {} messages damaged", partition.damaged);
    }
    if partition.lost > 0 {
        text += &format!(", {} offsets lost", partition.lost);
    }
    text
}

fn group_text(group: &GroupDescription) -> String {
    let mut text = format!(
        "{} ready, {} leased, {} delayed, {} consumers",
        group.ready, group.leased, group.delayed, group.consumers
    );
    if group.parked > 0 {
        text += &format!(", {} parked", group.parked);
    }
    text
}

/// Prints the result for `name`: a note for people, data for programs.
pub(crate) fn say_done(as_json: bool, name: &TopicName, outcome: &str) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "topic": name.as_str(), "outcome": outcome }));
    }
    print_to_stderr(&format!("{name}: {outcome}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use sennit_client::{Cost, MessageFields};
    use sennit_model::{LiveSettings, TopicLimit, WhenBehind};

    use super::*;

    fn retention(kind: Option<Kind>, rules: &[&str]) -> Result<Option<Retention>, Failure> {
        let retain = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Settings { kind, retain, ..Settings::default() }.retention()
    }

    #[test]
    fn rules_add_up_and_a_queue_stays_one() {
        let week = Some(Duration::from_secs(7 * 24 * 3600));
        let bounded = Retention {
            until_settled: false,
            age: week,
            bytes: Some(10 << 30),
            count: None,
            latest_per_key: None,
        };
        assert_eq!(retention(None, &["7d", "10GiB"]).unwrap(), Some(bounded));
        assert_eq!(
            retention(Some(Kind::Queue), &["7d"]).unwrap(),
            Some(Retention { until_settled: true, age: week, ..Retention::FOREVER })
        );
        assert_eq!(retention(None, &["forever"]).unwrap(), Some(Retention::FOREVER));
        assert_eq!(retention(Some(Kind::Stream), &[]).unwrap(), Some(Retention::FOREVER));
        assert_eq!(retention(None, &[]).unwrap(), None);
    }

    #[test]
    fn rules_that_contradict_are_a_wrong_command_line() {
        for (kind, rules) in [
            (Some(Kind::Stream), &["until-settled"][..]),
            (Some(Kind::Queue), &["forever"]),
            (None, &["forever", "7d"]),
            (None, &["1d", "7d"]),
            (None, &["1GiB", "7d", "2GiB"]),
        ] {
            assert_eq!(retention(kind, rules).unwrap_err().exit, Exit::Usage, "{rules:?}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_neither_bytes_nor_messages() {
        let error = "10".parse::<Rule>().unwrap_err();
        assert_eq!(error, "10 of what? Write 10B or 10messages");
    }

    #[test]
    fn an_age_or_a_size_that_is_too_large_is_not_called_bad_spelling() {
        assert!("40000d".parse::<Rule>().unwrap_err().contains("at most 100 years"));
        assert!("99999999TiB".parse::<Rule>().unwrap_err().contains("too large"));
        assert!("sometimes".parse::<Rule>().unwrap_err().contains("is no retention"));
        assert_eq!("1.5 h".parse(), Ok(Rule::Age(Duration::from_secs(5400))));
    }

    #[test]
    fn what_a_listing_shows_can_be_typed_again() {
        for rules in [&["until-settled", "7d", "1GiB"][..], &["1001B", "7messages"]] {
            assert_eq!(show_retention(&retention(None, rules).unwrap().unwrap()), rules.join(","));
        }
    }

    #[test]
    fn alter_changes_what_is_named_and_nothing_else() {
        let before = TopicConfig {
            partitions: 3,
            retention: Retention::UNTIL_SETTLED,
            time_to_live: Some(Duration::from_secs(9)),
            durability: Durability::Ephemeral,
            fields: MessageFields { cost: Cost::Bytes, ..MessageFields::default() }.if_any(),
            is_paused: true,
            limit: TopicLimit { messages: Some(9), ..TopicLimit::default() },
            dedup: None,
            live: LiveSettings { presence: true, when_behind: WhenBehind::Conflate },
        };
        let settings = |ttl| Settings { ttl, ..Settings::default() };
        assert_eq!(settings(None).apply_to(before.clone()).unwrap(), before);
        let none = settings(Some(Age(None))).apply_to(before.clone()).unwrap();
        assert_eq!(none, TopicConfig { time_to_live: None, ..before });
    }
}

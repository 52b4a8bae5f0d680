//! `sennit delayed`: list, cancel and reschedule messages that their publisher has delayed.

use std::time::Duration;

use sennit_client::{DelayedPage, DelayedRun, DueTime};
use sennit_model::{Offset, PartitionIndex, Timestamp, TopicName, limits::DELAYED_LISTED_MAX};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    output::{print_json, print_table, print_to_stderr},
    quantity, time_argument,
};

const EXAMPLES: &str = "\
Examples:
  sennit delayed list jobs
  sennit delayed list jobs --limit 1000 --json
  sennit delayed cancel jobs 4 7
  sennit delayed reschedule jobs 4 --in 15m
  sennit delayed reschedule jobs 4 7 --at 2026-12-24T18:00:00+01:00
  sennit delayed reschedule jobs 4 --now

A message that is due, with a consumer or settled cannot be changed any more. Of several messages
all are changed or none. sennit publish --delay says how a message is delayed.";

/// The arguments of `sennit delayed`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the delayed messages of a topic by due time
    List {
        /// The topic's name
        topic: TopicName,
        /// Only this partition
        #[arg(long, short, value_name = "N")]
        partition: Option<u32>,
        /// How many lines; neighbours that are due at the same time are one
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Cancel delayed messages: no group gets them
    Cancel {
        #[command(flatten)]
        messages: Messages,
    },
    /// Give delayed messages another due time
    Reschedule {
        #[command(flatten)]
        messages: Messages,
        #[command(flatten)]
        due: Due,
    },
}

#[derive(Debug, clap::Args)]
struct Messages {
    /// The topic's name
    topic: TopicName,
    /// The offsets of the messages
    #[arg(required = true, value_name = "OFFSET")]
    offsets: Vec<u64>,
    /// The partition
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    partition: u32,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Due {
    /// At this time: a date, or a date with a time, in UTC unless it has an offset
    #[arg(long, value_name = "TIME", value_parser = time_argument::calendar)]
    at: Option<u64>,
    /// So long from now
    #[arg(long = "in", value_name = "DURATION", value_parser = quantity::duration)]
    after: Option<Duration>,
    /// Now
    #[arg(long)]
    now: bool,
}

impl Due {
    fn time(&self) -> DueTime {
        match (self.at, self.after) {
            (Some(at), _) => DueTime::At(Timestamp(at)),
            (None, after) => DueTime::After(after.unwrap_or_default()),
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.connect.client().await?;
        match args.verb {
            Verb::List { topic, partition, limit } => {
                let partition = partition.map(PartitionIndex);
                let (mut runs, mut page, mut left) = (Vec::new(), String::new(), limit as usize);
                loop {
                    let most = left.min(DELAYED_LISTED_MAX) as u32;
                    let listed = client.list_delayed(&topic, partition, &page, most).await;
                    let listed = listed.map_err(|error| Failure::from(error).about(&topic))?;
                    let DelayedPage { runs: some, next_page } = listed;
                    left = left.saturating_sub(some.len());
                    runs.extend(some);
                    if left == 0 || next_page.is_empty() {
                        return print(&topic, &runs, !next_page.is_empty(), args.json);
                    }
                    page = next_page;
                }
            }
            Verb::Cancel { messages: Messages { topic, offsets, partition } } => {
                let (partition, offsets) = (PartitionIndex(partition), named(&offsets));
                let cancelled = client.cancel_delayed(&topic, partition, &offsets).await;
                let count = cancelled.map_err(|error| Failure::from(error).about(&topic))?;
                say_done(args.json, &topic, count, "cancelled")
            }
            Verb::Reschedule { messages: Messages { topic, offsets, partition }, due } => {
                let (partition, offsets) = (PartitionIndex(partition), named(&offsets));
                let changed =
                    client.reschedule_delayed(&topic, partition, &offsets, due.time()).await;
                let count = changed.map_err(|error| Failure::from(error).about(&topic))?;
                say_done(args.json, &topic, count, "rescheduled")
            }
        }
    })
}

fn named(offsets: &[u64]) -> Vec<Offset> {
    offsets.iter().copied().map(Offset).collect()
}

fn say_done(as_json: bool, topic: &TopicName, count: u64, outcome: &str) -> Result<(), Failure> {
    if as_json {
        let topic = topic.as_str();
        return print_json(&json!({ "topic": topic, "messages": count, "outcome": outcome }));
    }
    print_to_stderr(&format!("{topic}: {count} {outcome}"));
    Ok(())
}

fn print(
    topic: &TopicName,
    runs: &[DelayedRun],
    others_follow: bool,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json {
        return runs.iter().try_for_each(|run| print_json(&run_json(run)));
    }
    let rows: Vec<_> = runs.iter().map(row).collect();
    print_table(&["DUE", "PARTITION", "OFFSET", "MESSAGES"], &rows)?;
    if others_follow {
        print_to_stderr(&format!("{topic}: others follow; --limit shows more"));
    }
    Ok(())
}

fn row(run: &DelayedRun) -> Vec<String> {
    vec![
        time_argument::show(run.due.0),
        run.partition.0.to_string(),
        run.offsets.start.to_string(),
        run.offsets.count().to_string(),
    ]
}

fn run_json(run: &DelayedRun) -> Value {
    json!({
        "due_ms": run.due.0,
        "partition": run.partition.0,
        "offset": run.offsets.start.0,
        "messages": run.offsets.count(),
    })
}

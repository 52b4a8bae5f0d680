//! `sennit cursor`: list, set, delete.

use sennit_client::Cursor;
use sennit_model::{CursorName, Offset, PartitionIndex, TopicName};
use serde_json::json;

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    output::{print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit cursor list orders
  sennit cursor set orders audit 1000          in partition 0
  sennit cursor set orders audit 1000 --partition 2
  sennit cursor delete orders audit";

/// The arguments of `sennit cursor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each cursor
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the cursors of a topic by name
    List {
        /// The topic's name
        topic: TopicName,
    },
    /// Set a cursor to an offset, and create it if it does not exist
    Set {
        /// The topic's name
        topic: TopicName,
        /// The cursor's name
        name: CursorName,
        /// The first offset that is not processed; beyond the end, the end
        offset: u64,
        /// The partition
        #[arg(long, short, value_name = "N", default_value_t = 0)]
        partition: u32,
        /// End a reader that holds the cursor; without this option the request is then refused
        #[arg(long)]
        take_over: bool,
    },
    /// Delete a cursor
    Delete {
        /// The topic's name
        topic: TopicName,
        /// The cursor's name
        name: CursorName,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.connect.client().await?;
        match args.verb {
            Verb::List { topic } => {
                let cursors = client.list_cursors(&topic).await;
                let cursors = cursors.map_err(|error| Failure::from(error).about(&topic))?;
                print(&topic, &cursors, args.json)
            }
            Verb::Set { topic, name, offset, partition, take_over } => {
                let positions = [(PartitionIndex(partition), Offset(offset))];
                let set = client.set_cursor(&topic, &name, &positions, take_over).await;
                set.map_err(|error| about(error, &topic, &name))?;
                say_done(args.json, &topic, &name, "set")
            }
            Verb::Delete { topic, name } => {
                let deleted = client.delete_cursor(&topic, &name).await;
                deleted.map_err(|error| about(error, &topic, &name))?;
                say_done(args.json, &topic, &name, "deleted")
            }
        }
    })
}

fn about(error: sennit_client::Error, topic: &TopicName, name: &CursorName) -> Failure {
    Failure::from(error).about(format!("{topic} {name}"))
}

fn say_done(
    as_json: bool,
    topic: &TopicName,
    name: &CursorName,
    outcome: &str,
) -> Result<(), Failure> {
    if as_json {
        let (topic, cursor) = (topic.as_str(), name.as_str());
        return print_json(&json!({ "topic": topic, "cursor": cursor, "outcome": outcome }));
    }
    print_to_stderr(&format!("{topic} {name}: {outcome}"));
    Ok(())
}

fn print(topic: &TopicName, cursors: &[Cursor], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return cursors.iter().try_for_each(|cursor| {
            let positions = cursor
                .positions
                .iter()
                .map(|(partition, offset)| json!({ "partition": partition.0, "offset": offset.0 }));
            print_json(&json!({
                "topic": topic.as_str(),
                "cursor": cursor.name.as_str(),
                "positions": positions.collect::<Vec<_>>(),
            }))
        });
    }
    let rows: Vec<_> = cursors
        .iter()
        .flat_map(|cursor| {
            let row = |(partition, offset): &(PartitionIndex, Offset)| {
                vec![cursor.name.to_string(), partition.0.to_string(), offset.to_string()]
            };
            cursor.positions.iter().map(row)
        })
        .collect();
    print_table(&["CURSOR", "PARTITION", "OFFSET"], &rows)
}

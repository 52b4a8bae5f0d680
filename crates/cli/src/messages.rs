//! `sennit messages`: what a group still has of a topic: peek, search, count, purge, cancel, move.

use sennit_client::ReworkVerb;
use sennit_model::TopicName;

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    selection_options::SelectionOptions,
    workbench::{CountBy, PeekOptions, ReworkOptions, Work, count, peek, rework},
};

const EXAMPLES: &str = "\
Examples:
  sennit messages orders peek
  sennit messages orders search --header region=eu --before 1h --json
  sennit messages orders count --by key
  sennit messages orders cancel --offsets 120..140
  sennit messages orders move --key acme --to orders-slow --dry-run
  sennit messages orders purge --group audit

No verb takes a lease or touches a message that a consumer has.";

/// The arguments of `sennit messages`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name
    topic: TopicName,
    /// Print JSON: an object for each message, or one for the result
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the oldest messages
    Peek {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: PeekOptions,
    },
    /// Show the messages for which something holds
    Search {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: PeekOptions,
    },
    /// Count messages
    Count {
        #[command(flatten)]
        selection: SelectionOptions,
        /// By what
        #[arg(long, value_enum, default_value_t)]
        by: CountBy,
    },
    /// Have the group be through with all messages, or with those for which something holds
    Purge {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
    },
    /// Have the group be through with the messages for which something holds
    Cancel {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
    },
    /// Publish messages in another topic, and have the group be through with them
    Move {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
        /// The other topic
        #[arg(long, value_name = "TOPIC")]
        to: TopicName,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or nothing says which messages are meant.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, topic, json, verb } = args;
    block_on(async {
        let (selection, options, verb, done) = match verb {
            Verb::Peek { selection, options } => {
                return peek(&connect.client().await?, &topic, &selection, options, json).await;
            }
            Verb::Search { selection, options } => {
                some_selected(&selection)?;
                return peek(&connect.client().await?, &topic, &selection, options, json).await;
            }
            Verb::Count { selection, by } => {
                return count(&connect.client().await?, &topic, &selection, by, json).await;
            }
            Verb::Purge { selection, options } => {
                (selection, options, ReworkVerb::Cancel, "purged")
            }
            Verb::Cancel { selection, options } => {
                some_selected(&selection)?;
                (selection, options, ReworkVerb::Cancel, "cancelled")
            }
            Verb::Move { selection, options, to } => {
                (selection, options, ReworkVerb::Move { to, edit: None }, "moved")
            }
        };
        let (topic, selection, redrive) = (&topic, &selection, None);
        let work = Work { topic, selection, redrive, verb, options, done, json };
        rework(&connect.client().await?, &work).await
    })
}

fn some_selected(selection: &SelectionOptions) -> Result<(), Failure> {
    if selection.select_some() {
        return Ok(());
    }
    let text = "nothing says which messages are meant: name --offsets, --filter, --header, --reason, --text, --key, \
                --since or --before";
    Err(Failure::new(Exit::Usage, text))
}

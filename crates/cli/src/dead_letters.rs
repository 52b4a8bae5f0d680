//! `sennit dead-letters`: the dead letters of a topic: peek, search, count, redrive, undo, purge, edit.

use std::{io::Read as _, path::PathBuf};

use bytes::Bytes;
use sennit_client::{MessageEdit, ReworkVerb};
use sennit_model::{DEAD_LETTER_SUFFIX, GroupName, Header, TopicName};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    header_argument::header,
    selection_options::SelectionOptions,
    workbench::{CountBy, PeekOptions, ReworkOptions, Work, count, new_redrive, peek, rework},
};

const EXAMPLES: &str = "\
Examples:
  sennit dead-letters orders count --by reason
  sennit dead-letters orders peek --json
  sennit dead-letters orders search --text 'customer 17' --since 1d
  sennit dead-letters orders redrive --reason 'timed out' --rate 50/s
  sennit dead-letters orders redrive --to orders-repair --limit 10 --dry-run
  sennit dead-letters orders edit 7 --payload '{\"customer\": 17}'
  sennit dead-letters orders undo --redrive 1764158401250000

No verb takes a lease or touches a message that a consumer has. A redriven message has all its
attempts again.";

/// The arguments of `sennit dead-letters`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The name of the topic, or of its dead-letter topic
    topic: TopicName,
    /// Print JSON: an object for each message, or one for the result
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the oldest dead letters
    Peek {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: PeekOptions,
    },
    /// Show the dead letters for which something holds
    Search {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: PeekOptions,
    },
    /// Count dead letters
    Count {
        #[command(flatten)]
        selection: SelectionOptions,
        /// By what
        #[arg(long, value_enum, default_value = "reason")]
        by: CountBy,
    },
    /// Publish dead letters again, for the group in which they failed
    Redrive {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
        /// Publish them in this topic instead of where they come from
        #[arg(long, value_name = "TOPIC")]
        to: Option<TopicName>,
    },
    /// Take back what a redrive has published and nobody has consumed
    Undo {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
        /// Only that of this redrive; its number is in the redrive's result
        #[arg(long, value_name = "NUMBER")]
        redrive: Option<u64>,
    },
    /// Remove dead letters
    Purge {
        #[command(flatten)]
        selection: SelectionOptions,
        #[command(flatten)]
        options: ReworkOptions,
    },
    /// Publish one dead letter again with another payload or other headers
    Edit(EditArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args([
    "payload", "payload_file", "set_header", "remove_header",
]))]
struct EditArgs {
    /// The offset of the dead letter
    offset: u64,
    /// Its partition
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u32,
    /// The group of the dead-letter topic [default: default]
    #[arg(long, short, value_name = "NAME")]
    group: Option<GroupName>,
    /// The new payload
    #[arg(long, value_name = "TEXT")]
    payload: Option<String>,
    /// The new payload is what this file has; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,
    /// A header in place of those of its name; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    set_header: Vec<Header>,
    /// The name of headers that go; may be given several times
    #[arg(long, value_name = "NAME")]
    remove_header: Vec<String>,
    /// Publish it in this topic instead of where it comes from
    #[arg(long, value_name = "TOPIC")]
    to: Option<TopicName>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl EditArgs {
    fn edit(&self) -> Result<MessageEdit, Failure> {
        let payload = match (&self.payload, &self.payload_file) {
            (Some(text), _) => Some(Bytes::from(text.clone())),
            (None, Some(file)) if file.as_os_str() == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes)?;
                Some(Bytes::from(bytes))
            }
            (None, Some(file)) => {
                let read = std::fs::read(file);
                Some(Bytes::from(read.map_err(|error| Failure::from(error).about(file.display()))?))
            }
            (None, None) => None,
        };
        let (set_headers, remove_headers) = (self.set_header.clone(), self.remove_header.clone());
        Ok(MessageEdit { payload, set_headers, remove_headers })
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or there is no such dead letter.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, topic, json, verb } = args;
    let letters =
        if topic.is_dead_letter_topic() { topic.clone() } else { topic.dead_letter_topic(None) };
    block_on(async {
        let one = ReworkOptions::one;
        let (topic, selection, options, number, verb, done) = match verb {
            Verb::Peek { selection, options } | Verb::Search { selection, options } => {
                return peek(&connect.client().await?, &letters, &selection, options, json).await;
            }
            Verb::Count { selection, by } => {
                return count(&connect.client().await?, &letters, &selection, by, json).await;
            }
            Verb::Redrive { selection, options, to } => {
                let verb = ReworkVerb::Redrive { to, redrive: new_redrive(), edit: None };
                (letters, selection, options, None, verb, "redriven")
            }
            Verb::Undo { selection, options, redrive } => {
                let source = source_of(&topic)?;
                (source, selection, options, redrive, ReworkVerb::Undo, "taken back")
            }
            Verb::Purge { selection, options } => {
                (letters, selection, options, None, ReworkVerb::Cancel, "purged")
            }
            Verb::Edit(edit) => {
                let selection =
                    SelectionOptions::one(edit.group.clone(), edit.partition, edit.offset);
                let (options, changes) = (one(edit.dry_run), Some(edit.edit()?));
                let verb =
                    ReworkVerb::Redrive { to: edit.to, redrive: new_redrive(), edit: changes };
                (letters, selection, options, None, verb, "changed and redriven")
            }
        };
        let (topic, selection, redrive) = (&topic, &selection, number);
        let work = Work { topic, selection, redrive, verb, options, done, json };
        rework(&connect.client().await?, &work).await
    })
}

/// The topic whose dead letters these are.
fn source_of(topic: &TopicName) -> Result<TopicName, Failure> {
    let Some(source) = topic.as_str().strip_suffix(DEAD_LETTER_SUFFIX) else {
        return Ok(topic.clone());
    };
    source.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("{topic}: name the topic that it has the letters of"))
    })
}

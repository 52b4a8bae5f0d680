//! `sennit reply`: runs a command for each request of a topic, and replies with what the command prints.

use sennit_model::{GroupName, TopicName};

use crate::{connect_options::ConnectOptions, consume, exit::Failure};

const EXAMPLES: &str = "\
Examples:
  sennit reply upper --exec 'tr a-z A-Z'
  sennit reply prices --exec './price \"$SENNIT_KEY\"' --jobs 8

The command gets what that of `sennit consume --exec` gets. Its output is the reply, which is published
in the step that acks the request, where the requester's inbox lies beside the topic. If the command
fails nothing is replied, and the request comes again. A message that asks for no reply is acked.";

/// The arguments of `sennit reply`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name
    topic: TopicName,
    /// The group to take part in
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    group: GroupName,
    /// Run this shell command for each request: its standard output is the reply
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// The number of commands that run at once
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<std::num::NonZeroU64>,
}

/// Runs the verb, until it is stopped.
///
/// # Errors
/// The broker's refusal, or commands failed.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, topic, group, exec, jobs, count } = args;
    consume::run(consume::Args::replying(connect, (topic, group), (exec, jobs), count))
}

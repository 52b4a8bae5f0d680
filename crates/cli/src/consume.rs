//! `sennit consume`: takes messages as a member of a group, and prints each or passes each to a command. The files
//! of `consume/` settle them.

mod exec;
mod group_consumer;
mod held_back;
mod print;
mod settlements;
mod verdict;

use std::num::NonZeroU64;

use sennit_model::{GroupName, TopicName};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    format::Format,
    unseal_options::UnsealOptions,
};

use group_consumer::GroupConsumer;
use settlements::Settlements;

const EXAMPLES: &str = "\
Examples:
  sennit consume orders                      all that is ready, then end
  sennit consume orders --follow             for ever
  sennit consume orders | head -1            take one: what head does not read is not taken
  sennit consume orders --count 1 --no-ack   look at one; it returns to the group
  sennit consume orders --group audit --json
  sennit consume images --count 1 --raw > image.png
  sennit consume orders --count 1 --verdict dead-letter --reason 'no such customer'
  sennit consume orders --follow --exec './work \"$SENNIT_KEY\"' --jobs 4
  sennit consume orders --exec 'timeout 1m ./work' --on-failure dead-letter
  sennit consume orders --unseal ada.keys    what was sealed; it stops before what it cannot open

Without --follow it ends when nothing is ready, and also when a pause of the topic, the group or the
keys holds back all that is ready: standard error says which. It waits for throttles and limits.

A message is acked when it was printed, and what is printed into a pipe when its reader has taken
it; until then its lease is prolonged. When the reader leaves, or at the first Ctrl-C, SIGTERM or
SIGHUP, everything else is handed back. A broker that is lost is tried again for about a minute,
then the exit code is 6.

--exec runs a shell command for each message. The payload is on its standard input, and its
environment has SENNIT_TOPIC, SENNIT_GROUP, SENNIT_PARTITION, SENNIT_OFFSET, SENNIT_ATTEMPT,
SENNIT_APPENDED_AT_MS, SENNIT_KEY, and SENNIT_HEADER_NAME for each header (letters in upper case,
everything else but digits as _). What is no text is base64, under the name with _BASE64 behind it.
Exit code 0 acks the message, every other end is what --on-failure says. While the command runs the
lease is prolonged. Ctrl-C ends the command, and the message is handed back. If commands failed the
exit code is 7, or 1 if all of them did.";

/// The arguments of `sennit consume`.
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
    /// End after this many messages
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,
    /// Settle nothing: printed messages return to the group at the end
    #[arg(long)]
    no_ack: bool,
    /// Wait for more instead of ending when nothing is ready
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    verdict: verdict::VerdictArgs,
    #[command(flatten)]
    exec: exec::ExecArgs,
    #[command(flatten)]
    unseal: UnsealOptions,
}

impl Args {
    /// The arguments with which a command replies to the requests of a topic, until it is stopped.
    pub fn replying(
        connect: ConnectOptions,
        (topic, group): (TopicName, GroupName),
        (command, jobs): (String, u32),
        count: Option<NonZeroU64>,
    ) -> Self {
        Self {
            connect,
            topic,
            group,
            count,
            no_ack: false,
            follow: true,
            format: Format::default(),
            verdict: verdict::VerdictArgs::default(),
            exec: exec::ExecArgs::replying(command, jobs),
            unseal: UnsealOptions::default(),
        }
    }

    /// The number of messages after which the verb ends.
    fn count(&self) -> u64 {
        self.count.map_or(u64::MAX, NonZeroU64::get)
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or messages could not be printed, or commands failed.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut verdicts = args.verdict.verdicts(args.exec.is_wanted(), args.no_ack)?;
    block_on(async {
        let client = args.connect.client().await?;
        let credit = match args.exec.is_wanted() {
            true => args.exec.credit(&args),
            false => print::credit_at_first(&args, &verdicts),
        };
        let mut group_consumer =
            GroupConsumer::begin(&client, &args.topic, &args.group, credit).await?;
        if group_consumer.has_backoff {
            args.verdict.leave_delay_to_group(&mut verdicts);
        }
        let mut settlements = Settlements::default();
        let done = match args.exec.is_wanted() {
            true => exec::run(&args, &mut group_consumer, &verdicts, &mut settlements).await,
            false => print::run(&args, &mut group_consumer, &verdicts, &mut settlements).await,
        };
        let confirmed = settlements.all_confirmed().await;
        let closed = group_consumer.close().await;
        client.close().await;
        // What ended the work says more than what could not be said after it.
        done.and(confirmed).and(closed)
    })
}

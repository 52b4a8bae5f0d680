//! `sennit consume`: takes messages as a member of a group, prints each on a line, and settles
//! what was printed. Messages that do not come are said.

use std::{
    io::{self, BufWriter, Write},
    num::NonZeroU64,
    pin::pin,
    time::Duration,
};

use sennit_client::{Client, Consumer, DeliveryRun, Received, Settled};
use sennit_model::{GroupName, TopicName, limits::CREDIT_MESSAGES_MAX};
use tokio::task::{JoinError, JoinSet};

use crate::{
    exit::{Exit, Failure},
    interrupt::interrupted,
    output::{talk, unless_reader_left},
    reach::{Reach, block_on},
    shown::{message_json, say_gap},
};

const EXAMPLES: &str = "\
Examples:
  sennit consume orders                      all that is ready, then end
  sennit consume orders --follow             for ever
  sennit consume orders --group audit --json
  sennit consume orders --count 1 --no-ack   look at one; it returns to the group";

/// How long nothing has to come before the broker is asked whether anything is ready.
const QUIET: Duration = Duration::from_millis(500);

/// How many messages are held unsettled unless fewer are asked for.
const CREDIT_MESSAGES: u32 = 4096;

/// How many bytes of messages are held unsettled.
const CREDIT_BYTES: u64 = 32 << 20;

/// The arguments of `sennit consume`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The topic's name
    topic: TopicName,
    /// The group to take part in
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    group: GroupName,
    /// End after this many messages
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,
    /// Settle nothing: what was printed returns to the group in the end
    #[arg(long)]
    no_ack: bool,
    /// Wait for more instead of ending when nothing is ready
    #[arg(long, short)]
    follow: bool,
    /// Print each message and each gap as a JSON object with all that is known of it
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// What the broker refuses, or that messages could not be printed; those are not settled.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.reach.client().await?;
        let most = if args.no_ack { CREDIT_MESSAGES_MAX } else { CREDIT_MESSAGES };
        let count = args.count.map_or(u64::MAX, NonZeroU64::get);
        let credit = u32::try_from(count).unwrap_or(u32::MAX).min(most);
        let consumer = client
            .consumer(&args.topic, &args.group)
            .credit_messages(credit)
            .credit_bytes(CREDIT_BYTES)
            .subscribe();
        let mut consumer = consumer.await.map_err(|error| {
            Failure::from(error).about(format!("{} {}", args.topic, args.group))
        })?;
        let mut acks = Acks::default();
        let taken = take(&args, &client, &mut consumer, credit, &mut acks).await;
        let confirmed = acks.all_confirmed().await;
        let closed = consumer.close().await.map_err(Failure::from);
        client.close().await;
        // What ended the taking says more than what could not be said after it.
        taken.and(confirmed).and(closed)
    })
}

async fn take(
    args: &Args,
    client: &Client,
    consumer: &mut Consumer,
    credit: u32,
    acks: &mut Acks,
) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(256 << 10, io::stdout().lock());
    let mut interrupted = pin!(interrupted());
    let mut left = args.count.map_or(u64::MAX, NonZeroU64::get);
    // Without a count it has all there is from the beginning.
    let mut is_wide = args.count.is_none();
    while left > 0 {
        let next = tokio::select! {
            next = tokio::time::timeout(QUIET, consumer.receive_run()) => next,
            _ = &mut interrupted => break,
        };
        let run = match next {
            Ok(Some(received)) => match received? {
                Received::Delivered(run) => run,
                Received::Gap(gap) => {
                    let written =
                        say_gap(args.json, &args.topic, &gap, &mut out).and_then(|()| out.flush());
                    if written.is_err() {
                        return unless_reader_left(written);
                    }
                    continue;
                }
            },
            Ok(None) => break,
            // Nothing makes room, and the window is shared out among the partitions: one may have all
            // that is ready.
            Err(_quiet) if args.no_ack && !is_wide => {
                let (_, partitions) = ready(args, client).await?;
                let wide = u64::from(credit).saturating_mul(partitions);
                consumer.set_credit(u32::try_from(wide).unwrap_or(u32::MAX), CREDIT_BYTES);
                is_wide = true;
                continue;
            }
            Err(_quiet) if args.follow => continue,
            Err(_quiet) if !args.no_ack && ready(args, client).await?.0 > 0 => continue,
            Err(_quiet) => break,
        };
        let count = u32::try_from(left).unwrap_or(u32::MAX).min(run.count());
        let written = print(args, &run, count, &mut out).and_then(|()| out.flush());
        if written.is_err() {
            return unless_reader_left(written);
        }
        left -= u64::from(count);
        if args.no_ack {
            continue;
        }
        if left < u64::from(credit) {
            // Before the ack, which would make room for more than is wanted.
            consumer.set_credit(u32::try_from(left).unwrap_or(u32::MAX), CREDIT_BYTES);
        }
        if count < run.count() {
            run.ack_up_to(count);
        } else {
            acks.ack(run)?;
        }
    }
    Ok(())
}

/// Acks on their way to being confirmed.
#[derive(Default)]
struct Acks {
    waiting: JoinSet<Result<Settled, sennit_client::Error>>,
    stale: u64,
}

impl Acks {
    fn ack(&mut self, run: DeliveryRun) -> Result<(), Failure> {
        self.waiting.spawn(async move { run.ack_confirmed().await });
        while let Some(answer) = self.waiting.try_join_next() {
            self.count(answer)?;
        }
        Ok(())
    }

    fn count(
        &mut self,
        answer: Result<Result<Settled, sennit_client::Error>, JoinError>,
    ) -> Result<(), Failure> {
        let answer = answer.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        self.stale += answer?.stale;
        Ok(())
    }

    /// Waits until the broker has committed all of them; says how many came too late.
    async fn all_confirmed(mut self) -> Result<(), Failure> {
        while let Some(answer) = self.waiting.join_next().await {
            self.count(answer)?;
        }
        if self.stale > 0 {
            let stale = self.stale;
            talk(&format!("{stale} acks came after the lease had ended: these come again"));
        }
        Ok(())
    }
}

/// How many messages the group has ready, and how many partitions there are.
async fn ready(args: &Args, client: &Client) -> Result<(u64, u64), Failure> {
    let group = client.describe_group(&args.topic, &args.group).await?;
    Ok((group.ready, group.settled_before.len() as u64))
}

fn print(args: &Args, run: &DeliveryRun, count: u32, out: &mut impl Write) -> io::Result<()> {
    for (index, message) in run.messages().take(count as usize).enumerate() {
        if args.json {
            let mut value = message_json(&message);
            value["topic"] = args.topic.as_str().into();
            value["partition"] = run.partition().0.into();
            value["offset"] = (run.first_offset().0 + index as u64).into();
            value["attempt"] = run.attempt().into();
            value["appended_at_ms"] = run.appended_at().0.into();
            value["durability"] = run.durability().name().into();
            writeln!(out, "{value}")?;
        } else {
            out.write_all(message.payload())?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

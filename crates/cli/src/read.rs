//! `sennit read`: prints the messages of a topic, or of all topics that match a pattern, in the order of their
//! offsets. It settles nothing and does not affect others. It reports gaps.

use std::{num::NonZeroU64, pin::pin};

use sennit_client::{ReadFrom, ReadRun, Received};
use sennit_model::{CursorName, Filter, FilterError, Offset, Timestamp, WhenSlow};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    format::Format,
    interrupt::interrupted,
    printer::{Printer, WINDOW_BYTES},
    read_source::{NextOffset, ReadOptions, ReadTarget, Source},
    stdout_closed::stdout_closed,
    time_argument,
    unseal_options::{UnsealOptions, Unsealer},
};

const EXAMPLES: &str = "\
Examples:
  sennit read orders                         all that is kept, then end
  sennit read orders --from latest --follow  what is published from now on
  sennit read 'orders.>' --follow            of all topics below orders, those made later too
  sennit read orders --from -10              the last ten of each partition
  sennit read orders --from 15m --json       what was appended in the last 15 minutes
  sennit read orders --cursor audit          what came since the last time under this name
  sennit read orders --json | sennit publish copy --json-lines --create
  sennit read images --count 1 --raw > image.png
  sennit read orders --filter 'header.region = \"eu\" and not exists header.test'
  sennit read orders --from 2026-11-25 --count 1   the first since midnight in UTC
  sennit read news --unseal news.keys        what was sealed; exit code 7 if some is not opened

With --cursor, what is printed into a pipe counts once its reader has taken it: `| head -1` moves
the cursor by one. A broker that is lost is tried again for about a minute, then the exit code is 6;
reading goes on where it was.";

/// The arguments of `sennit read`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name, or a pattern: `orders.*` for one part more, `orders.>` for one or more
    #[arg(value_parser = ReadTarget::parse)]
    topic: ReadTarget,
    /// Where to begin in each partition: `earliest`, `latest`, an offset, -N for N offsets before
    /// the end, a time (2026-11-25 or 2026-11-25T17:00, both UTC, or 2026-11-25T17:00:00+01:00), or
    /// a time ago (15m)
    #[arg(long, value_name = "WHERE", default_value = "earliest", allow_hyphen_values = true)]
    #[arg(value_parser = read_from)]
    from: ReadFrom,
    /// Begin at this named cursor, and move it behind the printed messages, every second and at the
    /// end; --from is the start for a new cursor
    #[arg(long, value_name = "NAME")]
    cursor: Option<CursorName>,
    /// Only messages that match, by key and headers (docs/reference/filters.md); the broker skips
    /// the others
    #[arg(long, value_name = "EXPR", value_parser = filter)]
    filter: Option<Filter>,
    /// With --cursor: end the reader that holds the cursor
    #[arg(long, requires = "cursor")]
    take_over: bool,
    /// What to do when more is published than this command can print: wait for everything, skip to
    /// the newest and report the skipped messages, or disconnect
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    when_slow: WhenSlowOption,
    /// End after this many messages
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,
    /// Wait for more instead of stopping at the end that the topic has now
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    unseal: UnsealOptions,
}

/// The behaviour of a reader that falls behind.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum WhenSlowOption {
    /// Print everything, however late
    Wait,
    /// Skip to the newest, and report the skipped messages
    Skip,
    /// End
    Disconnect,
}

impl From<WhenSlowOption> for WhenSlow {
    fn from(when_slow: WhenSlowOption) -> Self {
        match when_slow {
            WhenSlowOption::Wait => Self::Wait,
            WhenSlowOption::Skip => Self::Skip,
            WhenSlowOption::Disconnect => Self::Disconnect,
        }
    }
}

/// Parses a filter; the error marks the position.
fn filter(text: &str) -> Result<Filter, String> {
    text.parse().map_err(|error: FilterError| format!("\n{}", error.show_in(text)))
}

/// Parses a start.
fn read_from(text: &str) -> Result<ReadFrom, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("{text} is out of range: an offset is at most {}", u64::MAX))
    };
    match text.trim() {
        "earliest" => Ok(ReadFrom::Earliest),
        "latest" | "now" => Ok(ReadFrom::Latest),
        text if is_number(text) => number(text).map(|offset| ReadFrom::Offset(Offset(offset))),
        text => match text.strip_prefix('-') {
            Some(count) if is_number(count) => number(count).map(ReadFrom::Last),
            _ => time_argument::past(text).map(|ms| ReadFrom::Time(Timestamp(ms))).map_err(|said| {
                format!(
                    "{said}; other places are earliest, latest, 42 (an offset), -10 and 15m (ago)"
                )
            }),
        },
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or messages could not be printed.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let mut unsealer = args.unseal.unsealer(true)?;
        let client = args.connect.client().await?;
        let options = ReadOptions {
            from: args.from,
            filter: args.filter.as_ref(),
            cursor: args.cursor.as_ref().map(|cursor| (cursor, args.take_over)),
            when_slow: args.when_slow.into(),
            until_end: !args.follow,
        };
        let begun = Source::begin(&client, &args.topic, options).await;
        let mut source = begun.map_err(|error| Failure::from(error).about(args.topic.as_str()))?;
        let mut unprinted = None;
        let read = read(&args, &mut source, unsealer.as_mut(), &mut unprinted).await;
        let ended = source.end(unprinted).await.map_err(Failure::from);
        client.close().await;
        // What ended the reading says more than what could not be said after it.
        read.and(ended).and(unsealer.map_or(Ok(()), |unsealer| unsealer.all_opened()))
    })
}

/// Prints messages. Sets `unprinted` to the first message that was received and not taken by
/// standard output.
async fn read(
    args: &Args,
    source: &mut Source,
    mut unsealer: Option<&mut Unsealer>,
    unprinted: &mut Option<NextOffset>,
) -> Result<(), Failure> {
    let message_format = args.format.message_format();
    let mut printer = Printer::standard(args.cursor.is_some())?;
    let (mut interrupted, mut stdout_closed) = (pin!(interrupted()), pin!(stdout_closed()));
    let mut left = args.count.map_or(u64::MAX, NonZeroU64::get);
    while left > 0 {
        let next = tokio::select! {
            next = source.next() => next,
            () = &mut interrupted => break,
            () = &mut stdout_closed => break,
        };
        let (topic, run) = match next {
            None => break,
            Some(received) => match received? {
                (topic, Received::Delivered(run)) => (topic, run),
                (topic, Received::Gap(gap)) => {
                    if let Some(line) = message_format.gap(&topic, &gap) {
                        printer.push(|out| out.extend_from_slice(line.as_bytes()));
                        if let (_, Some(end)) = printer.deliver_unless(&mut interrupted).await {
                            return end;
                        }
                    }
                    continue;
                }
            },
        };
        let count = u64::from(run.count()).min(left);
        let mut messages =
            (run.first_offset().0..).zip(run.messages()).take(count as usize).peekable();
        let mut end_of_taken = run.first_offset();
        while messages.peek().is_some() {
            *unprinted = Some((topic.clone(), run.partition(), end_of_taken));
            while printer.count() < printer.window()
                && printer.byte_count() < WINDOW_BYTES
                && let Some((offset, message)) = messages.next()
            {
                let (topic, unsealer) = (run.topic().as_str(), unsealer.as_deref_mut());
                let place = || place(&run, offset);
                printer.push(|out| message_format.unsealed(&message, topic, unsealer, place, out));
            }
            let (taken, end) = printer.deliver_unless(&mut interrupted).await;
            end_of_taken = end_of_taken.plus(taken as u64);
            *unprinted = Some((topic.clone(), run.partition(), end_of_taken));
            if let Some(end) = end {
                return end;
            }
        }
        left -= count;
        if count == u64::from(run.count()) {
            *unprinted = None;
        }
    }
    Ok(())
}

/// The location of a message for JSON.
fn place(run: &ReadRun, offset: u64) -> Value {
    json!({
        "topic": run.topic().as_str(),
        "partition": run.partition().0,
        "offset": offset,
        "appended_at_ms": run.appended_at().0,
        "durability": run.durability().name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_begin_is_read_in_each_of_its_forms() {
        let time = |ms| ReadFrom::Time(Timestamp(ms));
        for (text, from) in [
            ("earliest", ReadFrom::Earliest),
            ("latest", ReadFrom::Latest),
            ("42", ReadFrom::Offset(Offset(42))),
            ("-10", ReadFrom::Last(10)),
            ("2026-11-21", time(1_795_219_200_000)),
            ("2026-11-21T17:00:00Z", time(1_795_280_400_000)),
            ("9999-12-31T23:59:59Z", time(253_402_300_799_000)),
        ] {
            assert_eq!(read_from(text), Ok(from), "{text}");
        }
        for text in ["1h30m", "1.5h", "-1h"] {
            let from = read_from(text);
            assert!(matches!(from, Ok(ReadFrom::Time(ms)) if ms.0 > 1_700_000_000_000), "{text}");
        }
        for text in ["", "yesterday", "-", "--1", "1.5"] {
            assert!(read_from(text).is_err(), "{text}");
        }
        for text in ["18446744073709551616", "-18446744073709551616", "10000-01-01"] {
            assert!(read_from(text).unwrap_err().contains("out of range"), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_filter_is_pointed_out() {
        assert!(filter("header.n >= 2").is_ok());
        let said = "\nheader.region = eu\n                ^ found `eu`\n\
            wanted: a text in quotes, a number, true or false";
        assert_eq!(filter("header.region = eu").unwrap_err(), said);
    }
}

//! `sennit read`: prints the messages of a topic, or of all that a pattern means, in the order of their offsets, from wherever one
//! likes. Nothing is settled, and others lose nothing by it. Messages that do not come are said.

use std::{
    num::NonZeroU64,
    pin::{Pin, pin},
};

use sennit_client::{ReadFrom, ReadRun, Received};
use sennit_model::{CursorName, Filter, FilterError, Offset, Timestamp, WhenSlow};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    exit::Failure,
    format::Format,
    interrupt::interrupted,
    moment,
    output::unless_reader_left,
    printer::{GRACE, Printer, WINDOW_BYTES},
    reach::{Reach, block_on},
    reader_left::reader_left,
    source::{Manner, Place, Source, Wanted},
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

With --cursor, what is printed into a pipe counts once its reader has taken it: `| head -1` moves
the cursor by one. A broker that is lost is tried again for about a minute, then the exit code is 6;
reading goes on where it was.";

/// The arguments of `sennit read`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The topic's name, or a pattern: `orders.*` for one part more, `orders.>` for one or more
    #[arg(value_parser = Wanted::parse)]
    topic: Wanted,
    /// Where to begin in each partition: `earliest`, `latest`, an offset, -N for N offsets before
    /// the end, a time (2026-11-25 or 2026-11-25T17:00, both UTC, or 2026-11-25T17:00:00+01:00), or
    /// how long ago (15m)
    #[arg(long, value_name = "WHERE", default_value = "earliest", allow_hyphen_values = true)]
    #[arg(value_parser = read_from)]
    from: ReadFrom,
    /// Begin where this named cursor is, and move it behind what was printed, every second and at the
    /// end; --from says where a fresh one begins
    #[arg(long, value_name = "NAME")]
    cursor: Option<CursorName>,
    /// Only messages that this lets through, by key and headers (docs/reference/filters.md); the broker
    /// passes over the others
    #[arg(long, value_name = "EXPR", value_parser = filter)]
    filter: Option<Filter>,
    /// With --cursor: end whoever reads under its name now
    #[arg(long, requires = "cursor")]
    take_over: bool,
    /// What to do once so much is published that this falls behind: wait for everything, skip to the
    /// newest and say what was skipped, or disconnect
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    when_slow: Pace,
    /// End after this many messages
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,
    /// Wait for more instead of ending where the topic ended when this began
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    format: Format,
}

/// What becomes of a reader that falls behind.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Pace {
    /// Everything, as late as it comes
    Wait,
    /// The newest; what is skipped is said
    Skip,
    /// The end
    Disconnect,
}

impl From<Pace> for WhenSlow {
    fn from(pace: Pace) -> Self {
        match pace {
            Pace::Wait => Self::Wait,
            Pace::Skip => Self::Skip,
            Pace::Disconnect => Self::Disconnect,
        }
    }
}

/// `text` as a filter, or what is wrong with it, pointed out.
fn filter(text: &str) -> Result<Filter, String> {
    text.parse().map_err(|error: FilterError| format!("\n{}", error.show_in(text)))
}

/// `text` as a place to begin.
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
            _ => moment::past(text).map(|ms| ReadFrom::Time(Timestamp(ms))).map_err(|said| {
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
/// What the broker refuses, or that messages could not be printed.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.reach.client().await?;
        let manner = Manner {
            from: args.from,
            filter: args.filter.as_ref(),
            cursor: args.cursor.as_ref().map(|cursor| (cursor, args.take_over)),
            when_slow: args.when_slow.into(),
            until_end: !args.follow,
        };
        let begun = Source::begin(&client, &args.topic, manner).await;
        let mut source = begun.map_err(|error| Failure::from(error).about(args.topic.as_str()))?;
        let mut unprinted = None;
        let read = read(&args, &mut source, &mut unprinted).await;
        let ended = source.end(unprinted).await.map_err(Failure::from);
        client.close().await;
        // What ended the reading says more than what could not be said after it.
        read.and(ended)
    })
}

/// Prints what comes. Notes in `unprinted` where that begins which nobody has taken of what came.
async fn read(
    args: &Args,
    source: &mut Source,
    unprinted: &mut Option<Place>,
) -> Result<(), Failure> {
    let shown = args.format.shown();
    let mut printer = Printer::standard(args.cursor.is_some())?;
    let (mut interrupted, mut reader_left) = (pin!(interrupted()), pin!(reader_left()));
    let mut left = args.count.map_or(u64::MAX, NonZeroU64::get);
    while left > 0 {
        let next = tokio::select! {
            next = source.next() => next,
            () = &mut interrupted => break,
            () = &mut reader_left => break,
        };
        let (topic, run) = match next {
            None => break,
            Some(received) => match received? {
                (topic, Received::Delivered(run)) => (topic, run),
                (topic, Received::Gap(gap)) => {
                    if let Some(line) = shown.gap(&topic, &gap) {
                        printer.push(|out| out.extend_from_slice(line.as_bytes()));
                        if let (_, Some(end)) = deliver(&mut printer, &mut interrupted).await {
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
                printer.push(|out| shown.message(&message, || place(&run, offset), out));
            }
            let (taken, end) = deliver(&mut printer, &mut interrupted).await;
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

/// Prints what was pushed; says how much of it was taken, and why that was the last.
async fn deliver(
    printer: &mut Printer,
    interrupted: &mut Pin<&mut impl Future<Output = ()>>,
) -> (usize, Option<Result<(), Failure>>) {
    let end = {
        let mut delivering = pin!(printer.deliver());
        tokio::select! {
            delivered = &mut delivering => match delivered {
                Ok(()) => None,
                failed => Some(unless_reader_left(failed)),
            },
            // What was printed before may still be taken.
            () = interrupted => Some(unless_reader_left(
                timeout(GRACE, &mut delivering).await.unwrap_or(Ok(())),
            )),
        }
    };
    (printer.settle(), end)
}

/// What JSON says of a message beside what it carries.
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

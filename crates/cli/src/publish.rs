//! `sennit publish`: publishes messages from the command line, a file or standard input, pipelined, and ends when
//! all are confirmed.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use sennit_client::{Confirm, Pending, Publisher};
use sennit_model::{
    BatchBuilder, Header, Message, Offset, PartitionIndex, TopicName, limits::MESSAGE_BYTES_MAX,
};
use serde_json::json;

use crate::{
    connect_options::{ConnectOptions, block_on},
    delimiter::Delimiter,
    exit::{Exit, Failure},
    field_values::FieldValueOptions,
    header_argument::header,
    json_line::{self, Line},
    line_reader::{self, LineError},
    output::{may_show_progress, print_json, print_to_stderr},
    quantity::{duration, show_size},
    seal_options::{PayloadSealer, SealOptions},
};

const EXAMPLES: &str = "\
Examples:
  sennit publish orders 'first message' 'second message'
  sennit publish orders --file messages.ndjson --create
  seq 1000000 | sennit publish numbers
  sennit publish orders '{\"id\":7}' --key 7 --header type=created --delay 5m
  sennit publish images --file cat.png --whole                    the file is one message
  find . -name '*.csv' -print0 | sennit publish files -0
  sennit publish orders --json-lines --file orders.ndjson
  sennit read orders --json | sennit publish copy --json-lines --create
  sennit publish jobs 'report' --fair-key acme --priority 7
  sennit publish ledger 'debit 7' 'credit 7' --expect-offset 41   both there, or neither
  sennit publish news 'for us only' --seal news.keys              the broker cannot read it

A line of --json-lines is an object of key, headers, payload, delay and ttl; each may be left out:
  {\"key\": \"7\", \"headers\": {\"type\": \"created\"}, \"payload\": \"text\", \"delay\": \"5m\"}
Bytes that are no text are base64, in key_base64 and payload_base64. A payload that is no text in
quotes is published as the JSON that it is. What a line leaves out is as the options say.";

/// Time between two updates of the progress line, and before it first appears.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Messages between two checks of the answers.
const LOOK_EVERY: usize = 1024;

/// The arguments of `sennit publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name
    topic: TopicName,
    /// The messages; without any, one is read from each line of standard input
    #[arg(conflicts_with = "file")]
    body: Vec<String>,
    /// Publish each line of this file as a message; - is standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Publish the whole file, or all of standard input, as one message
    #[arg(long, conflicts_with_all = ["body", "json_lines", "delimiter", "null", "key_before"])]
    whole: bool,
    /// Each line is a JSON object that describes a message (see below)
    #[arg(long, conflicts_with_all = ["body", "delimiter", "null", "key_before"])]
    json_lines: bool,
    /// Messages end with this instead of a newline; \n, \t, \0 and \x1e are single bytes
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "body")]
    delimiter: Option<Delimiter>,
    /// Messages end with a zero byte, as those of `find -print0`: --delimiter '\0'
    #[arg(long, short = '0', conflicts_with_all = ["body", "delimiter"])]
    null: bool,
    /// The messages' key: the same key, the same partition
    #[arg(long, short, value_name = "KEY")]
    key: Option<String>,
    /// The part of each message before this text is its key; a message without the text has no key
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["key", "expect_offset"])]
    key_before: Option<String>,
    /// A header of the messages, name=value; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<Header>,
    /// Wait this long before the messages are ready
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Duration>,
    /// Let the messages expire if nobody has leased them by this age
    #[arg(long, value_name = "AGE", value_parser = duration)]
    ttl: Option<Duration>,
    /// Append the messages as one batch if the partition's next offset is this one; otherwise exit
    /// with code 4
    #[arg(long, value_name = "OFFSET", requires = "body", conflicts_with = "file")]
    expect_offset: Option<u64>,
    /// The partition of --expect-offset
    #[arg(long, short, value_name = "N", default_value_t = 0, requires = "expect_offset")]
    partition: u32,
    /// Create a missing topic, as a queue of one partition
    #[arg(long)]
    create: bool,
    /// Give up after this time if the broker has no room, for example because its disk is full;
    /// messages with --expect-offset are not tried again
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration,
        default_value = "10s",
        conflicts_with = "expect_offset"
    )]
    patience: Duration,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fields: FieldValueOptions,
    #[command(flatten)]
    seal: SealOptions,
}

impl Args {
    /// A message without its payload.
    fn message(&self) -> Message {
        Message {
            key: self.key.clone().map(Bytes::from).unwrap_or_default(),
            headers: self.header.clone(),
            payload: Bytes::new(),
            delay: self.delay,
            time_to_live: self.ttl,
        }
    }

    /// The name of a part of the input.
    fn unit(&self) -> &'static str {
        match (self.body.is_empty(), self.whole, self.null || self.delimiter.is_some()) {
            (true, false, false) => "line",
            _ => "message",
        }
    }

    /// The delimiter of the input.
    fn input_delimiter(&self) -> Delimiter {
        match &self.delimiter {
            _ if self.whole => Delimiter::none(),
            _ if self.null => Delimiter::null(),
            Some(delimiter) => delimiter.clone(),
            None => Delimiter::default(),
        }
    }
}

/// The key and the rest of a line that contains a separator; otherwise no key.
fn split_key(mut line: Bytes, separator: &[u8]) -> (Bytes, Bytes) {
    let at = match separator {
        [] => None,
        _ => line.windows(separator.len()).position(|bytes| bytes == separator),
    };
    let Some(at) = at else { return (Bytes::new(), line) };
    let key = line.split_to(at);
    (key, line.split_off(separator.len()))
}

/// Runs the verb.
///
/// # Errors
/// [`Exit::Partial`] if some messages were confirmed and one was not; the text names the first.
pub fn run(mut args: Args) -> Result<(), Failure> {
    block_on(async {
        let source = match (&args.file, args.body.is_empty()) {
            (Some(path), _) => Some(open(&args, path)?),
            (None, true) => Some(open(&args, Path::new("-"))?),
            (None, false) => None,
        };
        let sealer = args.seal.sealer(args.topic.as_str())?;
        let client = args.connect.client().await?;
        let publisher = client
            .publisher(&args.topic)
            .create_if_missing(args.create)
            .give_up_after(args.patience)
            .open()
            .await;
        let publisher = publisher.map_err(|error| Failure::from(error).about(&args.topic))?;
        args.header.extend(args.fields.headers(&client, &args.topic).await?);
        if let Some(expected) = args.expect_offset {
            let published = publish_at(&args, &publisher, Offset(expected), sealer.as_ref()).await;
            client.close().await;
            return published.map_err(|failure| failure.about(&args.topic));
        }
        let mut run = Run::new(&args, &publisher, sealer);
        let published = match source {
            Some(source) => run.publish_lines(source).await,
            None => run.publish_arguments().await,
        };
        let ended = match published {
            Ok(()) => run.settle_all().await,
            // What was sent before the failure is still waited for, so that the count is right.
            Err(failure) => Err(run.settle_all().await.err().unwrap_or(failure)),
        };
        run.progress.finish_and_clear();
        run.summary.print(&args)?;
        client.close().await;
        ended.map_err(|failure| match run.summary.confirmed {
            0 => failure,
            _ => failure.in_part(),
        })
    })
}

/// Publishes all messages of the command line as one conditional batch.
async fn publish_at(
    args: &Args,
    publisher: &Publisher,
    expected: Offset,
    sealer: Option<&PayloadSealer>,
) -> Result<(), Failure> {
    let template = args.message();
    let mut builder = BatchBuilder::new();
    for body in &args.body {
        let payload = Bytes::from(body.clone());
        let payload = sealer.map_or(Ok(payload.clone()), |sealer| sealer.seal(&payload))?;
        let message = Message { payload, ..template.clone() };
        builder.push(&message).map_err(sennit_client::Error::from)?;
    }
    let Some(batch) = builder.take() else { return Ok(()) };
    publisher.publish_at(PartitionIndex(args.partition), expected, &batch).await?;
    let mut summary = Summary::default();
    for offset in expected.0..expected.0 + u64::from(batch.count()) {
        summary.add(&Confirm {
            partition: PartitionIndex(args.partition),
            offset: Some(Offset(offset)),
            duplicate: false,
            durability: sennit_client::Durability::Durable,
            dropped: 0,
        });
    }
    summary.print(args)
}

fn open(
    args: &Args,
    path: &Path,
) -> Result<tokio::sync::mpsc::Receiver<line_reader::Block>, Failure> {
    line_reader::read(path, &args.input_delimiter())
        .map_err(|error| Failure::from(error).about(path.display()))
}

/// A publish under way.
struct Run<'a> {
    message: Message,
    args: &'a Args,
    publisher: &'a Publisher,
    sealer: Option<PayloadSealer>,
    /// The unanswered messages, oldest first.
    waiting: VecDeque<Pending>,
    /// The number of published messages.
    sent: u64,
    /// The number of input lines without a message.
    gaps: u64,
    summary: Summary,
    progress: ProgressBar,
    begun: Instant,
}

impl<'a> Run<'a> {
    fn new(args: &'a Args, publisher: &'a Publisher, sealer: Option<PayloadSealer>) -> Self {
        Self {
            message: args.message(),
            args,
            publisher,
            sealer,
            waiting: VecDeque::new(),
            sent: 0,
            gaps: 0,
            summary: Summary::default(),
            progress: ProgressBar::hidden(),
            begun: Instant::now(),
        }
    }

    async fn publish_arguments(&mut self) -> Result<(), Failure> {
        for body in &self.args.body {
            self.publish(Bytes::from(body.clone())).await?;
        }
        Ok(())
    }

    async fn publish_lines(
        &mut self,
        mut source: tokio::sync::mpsc::Receiver<line_reader::Block>,
    ) -> Result<(), Failure> {
        while let Some(block) = source.recv().await {
            let next = self.sent + 1;
            let next = next + self.gaps;
            let block = block.map_err(|broken| match broken {
                LineError::TooLong => {
                    let (unit, most) = (self.args.unit(), show_size(MESSAGE_BYTES_MAX as u64));
                    let text = format!("{unit} {next} was not published: it is longer than {most}");
                    Failure::new(Exit::Failed, text)
                }
                LineError::Source(error) => {
                    Failure::from(error).about(format!("{} {next}", self.args.unit()))
                }
            })?;
            for line in block {
                match self.args.json_lines {
                    true => self.publish_json(&line).await?,
                    false => self.publish(line).await?,
                }
            }
            self.show_progress();
        }
        Ok(())
    }

    /// Publishes the message that a line of JSON describes; ignores an empty line.
    async fn publish_json(&mut self, line: &[u8]) -> Result<(), Failure> {
        let number = self.sent + self.gaps + 1;
        if line.trim_ascii().is_empty() {
            self.gaps += 1;
            return Ok(());
        }
        match json_line::read(line, &self.message) {
            Ok(Line::Message(message)) => self.send_message(message).await,
            Ok(Line::Gap) => {
                print_to_stderr(&format!("line {number} is a gap: there is nothing to publish"));
                self.gaps += 1;
                Ok(())
            }
            Err(error) => {
                let text = format!("line {number} was not published: {error}");
                Err(Failure::new(Exit::Failed, text))
            }
        }
    }

    /// Publishes a payload with the settings of the command line.
    async fn publish(&mut self, payload: Bytes) -> Result<(), Failure> {
        let (key, payload) = match self.args.key_before.as_deref().map(str::as_bytes) {
            Some(separator) => split_key(payload, separator),
            None => (self.message.key.clone(), payload),
        };
        self.send_message(Message { key, payload, ..self.message.clone() }).await
    }

    /// Publishes one message, and checks the answers now and then.
    async fn send_message(&mut self, mut message: Message) -> Result<(), Failure> {
        let number = self.sent + 1;
        if let Some(sealer) = &self.sealer {
            message.payload = sealer.seal(&message.payload)?;
        }
        let pending = self.publisher.publish(message).await;
        let pending = pending.map_err(|error| not_confirmed(self.args, number, error))?;
        self.sent = number;
        self.waiting.push_back(pending);
        if self.waiting.len().is_multiple_of(LOOK_EVERY) {
            self.settle_answered()?;
        }
        Ok(())
    }

    /// Takes the answers that have come.
    fn settle_answered(&mut self) -> Result<(), Failure> {
        while let Some(answer) = self.waiting.front().and_then(Pending::try_get) {
            self.waiting.pop_front();
            self.take(answer)?;
        }
        Ok(())
    }

    /// Waits for all answers; the first error is the failure, and the others are counted.
    async fn settle_all(&mut self) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(oldest) = self.waiting.pop_front() {
            let answer = oldest.await;
            if let Err(failure) = self.take(answer) {
                ended = ended.and(Err(failure));
            }
            if self.summary.confirmed.is_multiple_of(LOOK_EVERY as u64) {
                self.show_progress();
            }
        }
        ended
    }

    fn take(&mut self, answer: Result<Confirm, sennit_client::Error>) -> Result<(), Failure> {
        let number = self.summary.answered + 1;
        self.summary.answered = number;
        match answer {
            Ok(confirm) => {
                self.summary.add(&confirm);
                Ok(())
            }
            Err(error) => Err(not_confirmed(self.args, number, error)),
        }
    }

    fn show_progress(&mut self) {
        if !may_show_progress() || self.begun.elapsed() < PROGRESS_EVERY {
            return;
        }
        if self.progress.is_hidden() {
            self.progress = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {human_pos} confirmed, {per_sec}")
            {
                self.progress.set_style(style);
            }
        }
        self.progress.set_position(self.summary.confirmed);
    }
}

fn not_confirmed(args: &Args, number: u64, error: sennit_client::Error) -> Failure {
    // Lines that were no messages are not counted.
    let unit = if args.json_lines { "message" } else { args.unit() };
    Failure::from(error).about(format!("{unit} {number} was not confirmed"))
}

/// The confirmed messages.
#[derive(Default)]
struct Summary {
    answered: u64,
    confirmed: u64,
    duplicates: u64,
    /// Older messages that were dropped, because the topic was full.
    dropped: u64,
    /// The first and last offset of each partition, and the number of messages.
    partitions: BTreeMap<u32, (Option<Offset>, Option<Offset>, u64)>,
}

impl Summary {
    fn add(&mut self, confirm: &Confirm) {
        self.confirmed += 1;
        self.duplicates += u64::from(confirm.duplicate);
        self.dropped += confirm.dropped;
        let (first, last, count) = self.partitions.entry(confirm.partition.0).or_default();
        *first = first.or(confirm.offset);
        *last = confirm.offset.or(*last);
        *count += 1;
    }

    fn print(&self, args: &Args) -> Result<(), Failure> {
        if !args.json {
            let dropped = match self.dropped {
                0 => String::new(),
                dropped => format!(", {dropped} older ones dropped: the topic is full"),
            };
            print_to_stderr(&format!("{}: {} confirmed{dropped}", args.topic, self.confirmed));
            return Ok(());
        }
        let partitions = self.partitions.iter().map(|(partition, (first, last, count))| {
            json!({
                "partition": partition,
                "first_offset": first.map(|offset| offset.0),
                "last_offset": last.map(|offset| offset.0),
                "confirmed": count,
            })
        });
        print_json(&json!({
            "topic": args.topic.as_str(),
            "confirmed": self.confirmed,
            "duplicates": self.duplicates,
            "dropped": self.dropped,
            "partitions": partitions.collect::<Vec<_>>(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_knows_where_each_partition_begins_and_ends() {
        let mut summary = Summary::default();
        for (partition, offset) in [(0, 5), (1, 0), (0, 6)] {
            summary.add(&Confirm {
                partition: PartitionIndex(partition),
                offset: Some(Offset(offset)),
                duplicate: false,
                durability: sennit_client::Durability::Durable,
                dropped: 0,
            });
        }
        assert_eq!(summary.confirmed, 3);
        assert_eq!(summary.partitions[&0], (Some(Offset(5)), Some(Offset(6)), 2));
    }
}

//! What `sennit messages` and `sennit dead-letters` do: they go through the pages of a topic's messages, print what
//! they find, and say what became of them.

use std::{
    io::{self, Write as _},
    pin::pin,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sennit_client::{
    Client, CountRow, Error, InspectVerb, InspectedMessage, MessagePage, MessageState, ReworkVerb,
};
use sennit_model::{Message, Offset, ThrottleRate, TopicName};
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    interrupt::interrupted,
    json_line::message_json,
    output::{ignore_broken_pipe, print_json, print_table, print_to_stderr, progress_of_messages},
    selection_options::SelectionOptions,
    time_argument::show,
};

/// Most messages of one request, where no rate says less.
const PAGE: u32 = 1000;

/// Bytes of a payload in a table.
const CELL_BYTES: u32 = 60;

/// By what messages are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CountBy {
    /// Their fair key; where the topic has no fair keys, their key
    Key,
    /// The reason of their last failure
    Reason,
    /// The time since they were appended
    Age,
    /// What they wait for
    #[default]
    State,
}

/// How messages are shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PeekOptions {
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,
    /// Show at most so many bytes of each payload [default: 60 in a table, 1048576 in JSON]
    #[arg(long, value_name = "BYTES")]
    payload_bytes: Option<u32>,
}

/// How much is done, and how fast.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ReworkOptions {
    /// Do it to at most so many messages
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Do it to at most so many messages a second, minute or hour, as 50/s
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<ThrottleRate>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl ReworkOptions {
    /// For one message.
    pub fn one(dry_run: bool) -> Self {
        Self { limit: None, rate: None, dry_run }
    }
}

fn rate(text: &str) -> Result<ThrottleRate, String> {
    ThrottleRate::parse(text).map_err(|error| error.to_string())
}

/// The outcome for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    matched: u64,
    done: u64,
    leased: u64,
    damaged: u64,
    homeless: u64,
}

/// The work of a verb that changes something.
pub struct Work<'a> {
    /// Where.
    pub topic: &'a TopicName,
    /// To which messages.
    pub selection: &'a SelectionOptions,
    /// Of this redrive only.
    pub redrive: Option<u64>,
    /// What.
    pub verb: ReworkVerb,
    /// How much.
    pub options: ReworkOptions,
    /// As in `12 messages redriven`.
    pub done: &'a str,
    /// Whether the result is printed as JSON.
    pub json: bool,
}

fn about(topic: &TopicName) -> impl Fn(Error) -> Failure {
    move |error| Failure::from(error).about(topic)
}

/// The page behind this one, in the same partition or the next.
fn advance(
    page: &mut MessagePage,
    selection: &SelectionOptions,
    next: Option<Offset>,
    partitions: u32,
) -> bool {
    if let Some(next) = next {
        page.from = next;
        return true;
    }
    let Some(partition) = selection.partition_after(page.partition, partitions) else {
        return false;
    };
    (page.partition, page.from) = (partition, Offset(0));
    true
}

/// Prints the messages that are selected.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or standard output fails.
pub async fn peek(
    client: &Client,
    topic: &TopicName,
    selection: &SelectionOptions,
    options: PeekOptions,
    json: bool,
) -> Result<(), Failure> {
    let mut page = selection.page(topic)?;
    let most = if json { 1 << 20 } else { CELL_BYTES };
    let payload_bytes_max = options.payload_bytes.unwrap_or(most);
    let (mut left, mut rows, mut damaged) = (options.limit, Vec::new(), 0);
    while left > 0 {
        page.matched_max = u32::try_from(left.min(PAGE.into())).unwrap_or(PAGE);
        let verb = InspectVerb::Peek { payload_bytes_max };
        let found = client.inspect(&page, verb).await.map_err(about(topic))?;
        left = left.saturating_sub(found.matched);
        damaged += found.damaged;
        for message in &found.messages {
            if json {
                print_json(&found_json(message))?;
            } else {
                rows.push(row(message));
            }
        }
        if !advance(&mut page, selection, found.next, found.partitions) {
            break;
        }
    }
    if damaged > 0 {
        print_to_stderr(&format!(
            "{damaged} messages cannot be read because of damage on the disk"
        ));
    }
    if json {
        return Ok(());
    }
    print_table(
        &["PARTITION", "OFFSET", "APPENDED", "STATE", "FAILED", "KEY", "REASON", "PAYLOAD"],
        &rows,
    )
}

fn row(found: &InspectedMessage) -> Vec<String> {
    let state = match &found.state {
        MessageState::Delayed(until) => format!("delayed until {}", show(until.0)),
        MessageState::Retrying(until) => format!("retrying at {}", show(until.0)),
        MessageState::Leased(until) => format!("leased until {}", show(until.0)),
        state => state.name().into(),
    };
    let cut = if found.payload_bytes > found.payload.len() as u64 { "..." } else { "" };
    vec![
        found.partition.0.to_string(),
        found.offset.0.to_string(),
        show(found.appended_at.0),
        state,
        failed(found).to_string(),
        cell(&found.key),
        reason(found),
        format!("{}{cut}", cell(&found.payload)),
    ]
}

/// One line of text, whatever the bytes.
fn cell(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn header<'a>(found: &'a InspectedMessage, name: &str) -> Option<&'a [u8]> {
    found.headers.iter().find(|header| header.name == name).map(|header| &header.value[..])
}

/// Failed attempts: here, or where a dead letter comes from.
fn failed(found: &InspectedMessage) -> u64 {
    let before = header(found, "sennit-attempts").and_then(|value| std::str::from_utf8(value).ok());
    match found.failed {
        0 => before.and_then(|text| text.parse().ok()).unwrap_or(0),
        failed => failed.into(),
    }
}

fn reason(found: &InspectedMessage) -> String {
    match &found.state {
        MessageState::Dead { reason, .. } => cell(reason.as_bytes()),
        _ => header(found, "sennit-reason").map_or_else(String::new, cell),
    }
}

fn found_json(found: &InspectedMessage) -> Value {
    let message = Message {
        key: found.key.clone(),
        headers: found.headers.clone(),
        payload: found.payload.clone(),
        delay: None,
        time_to_live: None,
    };
    let mut builder = sennit_model::BatchBuilder::for_broker();
    let pushed = builder.push(&message).is_ok();
    let batch = builder.take().filter(|_| pushed);
    let shown = batch.as_ref().and_then(|batch| batch.messages().next());
    let mut value = shown.map_or_else(|| json!({}), |message| message_json(&message));
    value["partition"] = found.partition.0.into();
    value["offset"] = found.offset.0.into();
    value["appended_at_ms"] = found.appended_at.0.into();
    value["state"] = found.state.name().into();
    value["failed_attempts"] = failed(found).into();
    value["payload_bytes"] = found.payload_bytes.into();
    if let MessageState::Delayed(at) | MessageState::Retrying(at) | MessageState::Leased(at) =
        &found.state
    {
        value["until_ms"] = at.0.into();
    }
    let reason = reason(found);
    if !reason.is_empty() {
        value["reason"] = reason.into();
    }
    value
}

/// Counts the messages that are selected.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or standard output fails.
pub async fn count(
    client: &Client,
    topic: &TopicName,
    selection: &SelectionOptions,
    by: CountBy,
    json: bool,
) -> Result<(), Failure> {
    let verb = match by {
        CountBy::Key => InspectVerb::CountByKey,
        CountBy::Reason => InspectVerb::CountByReason,
        CountBy::Age => InspectVerb::CountByAge,
        CountBy::State => InspectVerb::CountByState,
    };
    let mut page = selection.page(topic)?;
    let (mut rows, mut other): (Vec<CountRow>, u64) = (Vec::new(), 0);
    loop {
        let counted = client.inspect(&page, verb).await.map_err(about(topic))?;
        other += counted.other + merge(&mut rows, counted.rows);
        if !advance(&mut page, selection, counted.next, counted.partitions) {
            break;
        }
    }
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    if json {
        let row = |row: &CountRow| json!({ "name": row.name, "count": row.count, "oldest_at_ms": row.oldest_at.0 });
        let rows: Vec<_> = rows.iter().map(row).collect();
        return print_json(&json!({ "rows": rows, "other": other }));
    }
    let cells = |row: &CountRow| {
        vec![row.count.to_string(), show(row.oldest_at.0), cell(row.name.as_bytes())]
    };
    let mut cells: Vec<_> = rows.iter().map(cells).collect();
    if other > 0 {
        cells.push(vec![other.to_string(), "-".into(), "(others)".into()]);
    }
    print_table(&["MESSAGES", "OLDEST", "NAME"], &cells)
}

/// Most rows that a count gathers from all pages.
const ROWS_MAX: usize = 10_000;

/// Adds the rows of a page; returns how many messages there is no room for.
fn merge(rows: &mut Vec<CountRow>, page: Vec<CountRow>) -> u64 {
    let mut other = 0;
    for row in page {
        match rows.binary_search_by(|held| held.name.cmp(&row.name)) {
            Ok(at) => {
                rows[at].count += row.count;
                rows[at].oldest_at = rows[at].oldest_at.min(row.oldest_at);
            }
            Err(_) if rows.len() >= ROWS_MAX => other += row.count,
            Err(at) => rows.insert(at, row),
        }
    }
    other
}

/// Does a verb to the messages that are selected, and says what became of them.
///
/// # Errors
/// The broker's refusal, it cannot be reached, or standard output fails. The outcome until then is told.
pub async fn rework(client: &Client, work: &Work<'_>) -> Result<(), Failure> {
    let mut sum = Sum::default();
    let worked = go_through(client, work, &mut sum).await;
    report(work, sum)?;
    worked.map_err(|failure| if sum.done > 0 { failure.in_part() } else { failure })
}

async fn go_through(client: &Client, work: &Work<'_>, sum: &mut Sum) -> Result<(), Failure> {
    let ReworkOptions { limit, rate, dry_run } = work.options;
    let mut page = work.selection.page(work.topic)?;
    page.selection.redrive = work.redrive;
    let progress = progress_of_messages();
    let mut stop = pin!(interrupted());
    let began = Instant::now();
    loop {
        let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(sum.done));
        let at_once = rate.filter(|_| !dry_run).map_or(PAGE, at_once);
        page.matched_max = u32::try_from(left.min(at_once.into())).unwrap_or(PAGE);
        if page.matched_max == 0 {
            return Ok(());
        }
        let done = client.rework(&page, &work.verb, dry_run).await.map_err(about(work.topic))?;
        sum.matched += done.matched;
        sum.done += done.done;
        sum.leased += done.leased;
        sum.damaged += done.damaged;
        sum.homeless += done.homeless;
        progress.set_message(format!("{} messages {}", sum.done, work.done));
        progress.tick();
        if let Some(refusal) = done.refusal {
            return Err(about(work.topic)(refusal));
        }
        if !advance(&mut page, work.selection, done.next, done.partitions) {
            return Ok(());
        }
        let due = rate.filter(|_| !dry_run).map_or(began, |rate| {
            began + Duration::from_nanos(rate.interval_ns.saturating_mul(sum.done))
        });
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            () = tokio::time::sleep_until(due.into()) => {}
        }
    }
}

/// How many messages go at once at a rate: those of a tenth of a second.
fn at_once(rate: ThrottleRate) -> u32 {
    let in_a_tenth = 100_000_000 / rate.interval_ns.max(1);
    u32::try_from(in_a_tenth).unwrap_or(PAGE).clamp(1, PAGE)
}

fn report(work: &Work<'_>, sum: Sum) -> Result<(), Failure> {
    let Sum { matched, done, leased, damaged, homeless } = sum;
    let dry_run = work.options.dry_run;
    let redrive = match work.verb {
        ReworkVerb::Redrive { to: None, redrive, .. } if redrive > 0 && !dry_run => Some(redrive),
        _ => None,
    };
    if work.json {
        let mut value = json!({
            "matched": matched, "done": done, "leased": leased, "damaged": damaged, "homeless": homeless,
            "dry_run": dry_run,
        });
        if let Some(redrive) = redrive {
            value["redrive"] = redrive.into();
        }
        return print_json(&value);
    }
    let would = if dry_run { " would be" } else { "" };
    let messages = if done == 1 { "message" } else { "messages" };
    let mut said = format!("{done} {messages}{would} {}", work.done);
    for (count, why) in [
        (leased, "leased, left alone"),
        (damaged, "cannot be read, left alone"),
        (homeless, "left alone: where they came from is gone; --to names another topic"),
    ] {
        if count > 0 {
            said = format!("{said}; {count} {why}");
        }
    }
    if let Some(redrive) = redrive.filter(|_| done > 0) {
        said = format!("{said}; redrive {redrive}");
    }
    ignore_broken_pipe(writeln!(io::stdout(), "{said}"))
}

/// A number for a redrive that no other has, as far as that can be told: the time in microseconds.
pub fn new_redrive() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use sennit_model::Timestamp;

    use super::*;

    fn row(name: &str, count: u64, oldest: u64) -> CountRow {
        CountRow { name: name.into(), count, oldest_at: Timestamp(oldest) }
    }

    #[test]
    fn rows_of_several_pages_are_added_up_by_name() {
        let mut rows = Vec::new();
        assert_eq!(merge(&mut rows, vec![row("b", 3, 7), row("a", 1, 9)]), 0);
        assert_eq!(merge(&mut rows, vec![row("b", 2, 5)]), 0);
        assert_eq!(rows, [row("a", 1, 9), row("b", 5, 5)]);
    }

    #[test]
    fn a_rate_is_kept_in_steps_of_a_tenth_of_a_second() {
        let of = |text| at_once(ThrottleRate::parse(text).unwrap());
        assert_eq!(of("50/s"), 5);
        assert_eq!(of("1/h"), 1);
        assert_eq!(of("1000000/s"), PAGE);
    }
}

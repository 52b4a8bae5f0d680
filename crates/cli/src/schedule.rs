//! `sennit schedule`: create, list, show, delete, pause, resume, run-now.

use std::{fs, path::PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::builder::PossibleValue;
use sennit_client::{Client, Error, Schedule, ScheduleConfig};
use sennit_model::{CatchUp, Header, Overlap, ScheduleName, Timestamp, TopicName};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    header_argument::header,
    output::{print_json, print_table, print_to_stderr},
    time_argument::show,
};

const EXAMPLES: &str = "\
Examples:
  sennit schedule create report --topic jobs --cron \"0 9 * * MON-FRI\" --zone Europe/Berlin --payload '{}'
  sennit schedule create poll --topic jobs --cron \"*/10 * * * * *\" --overlap skip
  sennit schedule list
  sennit schedule show report
  sennit schedule pause report
  sennit schedule resume report
  sennit schedule run-now report
  sennit schedule delete report

A pattern has five fields: minute, hour, day of the month, month, day of the week; with six the
first is the second. Each message has the headers sennit-schedule and sennit-tick-ms.";

/// The arguments of `sennit schedule`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each schedule
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a schedule; does nothing if it exists with the same settings
    Create(Box<Create>),
    /// Print the schedules by name
    List,
    /// Print one schedule with its message
    Show {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Delete a schedule; its messages stay
    Delete {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Pause a schedule: it does not tick
    Pause {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Resume a schedule; the ticks of its pause are left out
    Resume {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Publish the message of a schedule now, also while it is paused
    RunNow {
        /// The schedule's name
        name: ScheduleName,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The schedule's name
    name: ScheduleName,
    /// The topic to which its messages are published
    #[arg(long, short, value_name = "TOPIC")]
    topic: TopicName,
    /// The cron pattern
    #[arg(long, short, value_name = "PATTERN")]
    cron: String,
    /// The time zone of the pattern, by its IANA name
    #[arg(long, short, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// The payload of the messages
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    payload: String,
    /// A file with the payload instead
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    payload_file: Option<PathBuf>,
    /// The key of the messages
    #[arg(long, short, value_name = "KEY", default_value = "", hide_default_value = true)]
    key: String,
    /// A header of the messages, name=value; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<Header>,
    /// The ticks to publish for which the broker was down; all are the last 1000 at most
    #[arg(long, value_name = "WHICH", default_value = "one")]
    catch_up: CatchUpArgument,
    /// What to do while the default group has not settled an earlier message
    #[arg(long, value_name = "WHAT", default_value = "allow")]
    overlap: OverlapArgument,
}

#[derive(Clone, Copy, Debug)]
struct CatchUpArgument(CatchUp);

impl clap::ValueEnum for CatchUpArgument {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(CatchUp::Skip), Self(CatchUp::One), Self(CatchUp::All)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

#[derive(Clone, Copy, Debug)]
struct OverlapArgument(Overlap);

impl clap::ValueEnum for OverlapArgument {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(Overlap::Allow), Self(Overlap::Skip)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or it cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.connect.client().await?;
        let as_json = args.json;
        match args.verb {
            Verb::Create(create) => create.run(&client, as_json).await,
            Verb::List => list(&client, as_json).await,
            Verb::Show { name } => {
                let shown = client.schedule(&name).await.map_err(|error| about(error, &name))?;
                if as_json { print_json(&schedule_json(&shown)) } else { print_one(&shown) }
            }
            Verb::Delete { name } => {
                client.delete_schedule(&name).await.map_err(|error| about(error, &name))?;
                say_done(as_json, &name, "deleted", None)
            }
            Verb::Pause { name } => {
                let paused = client.pause_schedule(&name).await;
                paused.map_err(|error| about(error, &name))?;
                say_done(as_json, &name, "paused", None)
            }
            Verb::Resume { name } => {
                let resumed = client.resume_schedule(&name).await;
                let resumed = resumed.map_err(|error| about(error, &name))?;
                say_done(as_json, &name, "resumed", resumed.next)
            }
            Verb::RunNow { name } => {
                let run = client.run_schedule(&name).await.map_err(|error| about(error, &name))?;
                say_done(as_json, &name, "published", run.next)
            }
        }
    })
}

impl Create {
    async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let payload = match &self.payload_file {
            None => self.payload.into_bytes(),
            Some(path) => fs::read(path).map_err(|error| {
                Failure::new(Exit::Failed, error.to_string()).about(path.display())
            })?,
        };
        let config = ScheduleConfig {
            zone: self.zone,
            key: self.key.into_bytes().into(),
            headers: self.header,
            payload: payload.into(),
            catch_up: self.catch_up.0,
            overlap: self.overlap.0,
            ..ScheduleConfig::new(self.topic, self.cron)
        };
        let created = client.create_schedule(&self.name, &config).await;
        let (schedule, created) = created.map_err(|error| about(error, &self.name))?;
        let outcome = if created { "created" } else { "exists" };
        say_done(as_json, &self.name, outcome, schedule.next)
    }
}

fn about(error: Error, name: &ScheduleName) -> Failure {
    Failure::from(error).about(name)
}

async fn list(client: &Client, as_json: bool) -> Result<(), Failure> {
    let (mut schedules, mut page) = (Vec::new(), String::new());
    loop {
        let listed = client.list_schedules(&page).await?;
        schedules.extend(listed.schedules);
        page = listed.next_page;
        if page.is_empty() {
            break;
        }
    }
    if as_json {
        return schedules.iter().try_for_each(|schedule| print_json(&schedule_json(schedule)));
    }
    let rows: Vec<_> = schedules.iter().map(row).collect();
    print_table(&["NAME", "TOPIC", "CRON", "ZONE", "NEXT", "LAST", "PUBLISHED", "LEFT OUT"], &rows)
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".into(), |at| show(at.0))
}

fn row(schedule: &Schedule) -> Vec<String> {
    let config = &schedule.config;
    vec![
        schedule.name.to_string(),
        config.topic.to_string(),
        config.cron.clone(),
        config.zone.clone(),
        if schedule.is_paused { "paused".into() } else { time(schedule.next) },
        time(schedule.last.map(|last| last.at)),
        schedule.published.to_string(),
        schedule.left_out.to_string(),
    ]
}

fn print_one(schedule: &Schedule) -> Result<(), Failure> {
    let config = &schedule.config;
    let mut rows = vec![
        ("topic", config.topic.to_string()),
        ("cron", config.cron.clone()),
        ("zone", config.zone.clone()),
        ("catch-up", config.catch_up.name().into()),
        ("overlap", config.overlap.name().into()),
        ("paused", if schedule.is_paused { "yes" } else { "no" }.into()),
        ("next", time(schedule.next)),
        ("last", time(schedule.last.map(|last| last.at))),
        ("published", schedule.published.to_string()),
        ("left out", schedule.left_out.to_string()),
        ("key", String::from_utf8_lossy(&config.key).into_owned()),
    ];
    for header in &config.headers {
        let value = String::from_utf8_lossy(&header.value);
        rows.push(("header", format!("{}={value}", header.name)));
    }
    rows.push(("payload", String::from_utf8_lossy(&config.payload).into_owned()));
    if !schedule.failure.is_empty() {
        rows.push(("failure", schedule.failure.clone()));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    print_table(&["SETTING", "VALUE"], &rows)
}

fn say_done(
    as_json: bool,
    name: &ScheduleName,
    outcome: &str,
    next: Option<Timestamp>,
) -> Result<(), Failure> {
    if as_json {
        let (name, next) = (name.as_str(), next.map(|at| at.0));
        return print_json(&json!({ "schedule": name, "outcome": outcome, "next_ms": next }));
    }
    let next = next.map(|at| format!("; ticks next at {}", show(at.0))).unwrap_or_default();
    print_to_stderr(&format!("{name}: {outcome}{next}"));
    Ok(())
}

fn schedule_json(schedule: &Schedule) -> Value {
    let config = &schedule.config;
    let header = |header: &Header| json!({ "name": header.name, "value": String::from_utf8_lossy(&header.value) });
    let last = |last: sennit_client::LastTick| json!({ "tick_ms": last.at.0, "partition": last.partition.0, "offset": last.offset.0 });
    json!({
        "name": schedule.name.as_str(),
        "topic": config.topic.as_str(),
        "cron": config.cron,
        "zone": config.zone,
        "catch_up": config.catch_up.name(),
        "overlap": config.overlap.name(),
        "key": String::from_utf8_lossy(&config.key),
        "headers": config.headers.iter().map(header).collect::<Vec<_>>(),
        "payload_base64": BASE64_STANDARD.encode(&config.payload),
        "paused": schedule.is_paused,
        "next_ms": schedule.next.map(|at| at.0),
        "last": schedule.last.map(last),
        "published": schedule.published,
        "left_out": schedule.left_out,
        "failure": schedule.failure,
    })
}

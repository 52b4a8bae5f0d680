//! `sennit hook`: scripts of topics that decide about messages: set, try, go back to a version, look at.

use std::path::PathBuf;

use sennit_client::{Client, HookCore, HookOnError, HookState, HookVersion, TopicName};
use serde_json::{Value, json};

use self::{check::Check, script_file::script_of};
use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    kv::shown,
    output::{print_json, print_table, print_text, print_to_stderr},
    time_argument,
};

mod check;
mod script_file;

const EXAMPLES: &str = "\
Examples:
  sennit hook check tenants.lua
  sennit hook check tenants.lua --against jobs --last 100
  sennit hook check tenants.lua --against jobs --failure --attempts 3
  sennit hook set jobs tenants.lua --note 'weights by plan'
  sennit hook status jobs
  sennit hook versions jobs
  sennit hook rollback jobs 3
  sennit hook delete jobs

A script is Lua and defines on_publish(msg), on_failure(msg), or both. What on_publish returns
becomes a part of the message: fair_key, weight, priority, cost, throttle_keys, delay_ms,
time_to_live_ms, headers; or refuse, with a reason. on_failure decides about a failed attempt:
retry_after_ms, dead_letter with a reason, or route to a topic. docs/reference/hooks.md has
the whole of it.";

/// The arguments of `sennit hook`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// What becomes of messages that the script has not decided about.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnErrorOption {
    /// They are accepted as they are
    Accept,
    /// They are refused
    Refuse,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Give a topic's hook a new version of its script, and run that
    Set {
        /// The topic
        topic: TopicName,
        /// The script; - for standard input
        file: PathBuf,
        /// What happens to messages when the script fails or rests
        #[arg(long, value_enum, value_name = "WHAT", default_value = "accept")]
        on_error: OnErrorOption,
        /// A note about this version, for people
        #[arg(long, default_value = "", hide_default_value = true)]
        note: String,
    },
    /// Print the script in use
    Get {
        /// The topic
        topic: TopicName,
        /// Print this version instead
        #[arg(value_name = "VERSION")]
        number: Option<u64>,
    },
    /// List the topics with a hook
    List,
    /// List the versions of a topic's hook
    Versions {
        /// The topic
        topic: TopicName,
    },
    /// Run an earlier version again
    Rollback {
        /// The topic
        topic: TopicName,
        /// The version
        #[arg(value_name = "VERSION", value_parser = clap::value_parser!(u64).range(1..))]
        number: u64,
    },
    /// Run no script for a topic any more; its versions stay
    Delete {
        /// The topic
        topic: TopicName,
    },
    /// Print whether the script runs or rests, and what it has done, for each core
    Status {
        /// The topic
        topic: TopicName,
    },
    /// Compile a script, and with --against print what it would do with stored messages; changes
    /// nothing
    Check(Check),
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, the script is none, or the broker cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    let (connect, as_json) = (args.connect, args.json);
    block_on(async {
        let client = || connect.client();
        match args.verb {
            Verb::Check(check) => check.run(&connect, as_json).await,
            Verb::Set { topic, file, on_error, note } => {
                let script = script_of(&file)?;
                let on_error = match on_error {
                    OnErrorOption::Accept => HookOnError::Accept,
                    OnErrorOption::Refuse => HookOnError::Refuse,
                };
                let set = client().await?.set_hook(&topic, &script, on_error, &note).await;
                let changed = set.map_err(|error| Failure::from(error).about(&topic))?;
                say_version(as_json, &topic, changed.version)
            }
            Verb::Rollback { topic, number } => {
                use_version(&client().await?, as_json, &topic, Some(number)).await
            }
            Verb::Delete { topic } => use_version(&client().await?, as_json, &topic, None).await,
            Verb::List => list(&client().await?, as_json).await,
            Verb::Get { topic, number } => {
                let described = client().await?.describe_hook(&topic, number).await;
                let hook = described.map_err(|error| Failure::from(error).about(&topic))?;
                let version = number.or(hook.version).ok_or_else(|| no_hook(&topic))?;
                if as_json {
                    let (topic, script) = (topic.as_str(), hook.script);
                    return print_json(&json!({
                        "topic": topic, "version": version, "script": script,
                    }));
                }
                print_text(&hook.script)
            }
            Verb::Versions { topic } => {
                let described = client().await?.describe_hook(&topic, None).await;
                let hook = described.map_err(|error| Failure::from(error).about(&topic))?;
                versions(&hook.versions, hook.version, as_json)
            }
            Verb::Status { topic } => {
                let described = client().await?.describe_hook(&topic, None).await;
                let hook = described.map_err(|error| Failure::from(error).about(&topic))?;
                let version = hook.version.ok_or_else(|| no_hook(&topic))?;
                status(&topic, version, &hook.cores, as_json)
            }
        }
    })
}

fn no_hook(topic: &TopicName) -> Failure {
    Failure::new(Exit::NotFound, "the topic has no hook").about(topic)
}

async fn use_version(
    client: &Client,
    as_json: bool,
    topic: &TopicName,
    version: Option<u64>,
) -> Result<(), Failure> {
    let used = client.use_hook_version(topic, version).await;
    let changed = used.map_err(|error| Failure::from(error).about(topic))?;
    say_version(as_json, topic, changed.version)
}

fn say_version(as_json: bool, topic: &TopicName, version: Option<u64>) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "topic": topic.as_str(), "version": version }));
    }
    print_to_stderr(&match version {
        Some(version) => format!("{topic}: the hook runs version {version}"),
        None => format!("{topic}: no hook runs any more"),
    });
    Ok(())
}

fn on_error(version: &HookVersion) -> &'static str {
    match version.on_error {
        HookOnError::Accept => "accept",
        HookOnError::Refuse => "refuse",
    }
}

fn version_json(version: &HookVersion) -> Value {
    json!({
        "version": version.version,
        "set_at_ms": version.set_at.0,
        "script_bytes": version.script_bytes,
        "on_error": on_error(version),
        "note": version.note,
    })
}

fn version_cells(version: &HookVersion) -> Vec<String> {
    vec![
        version.version.to_string(),
        time_argument::show(version.set_at.0),
        version.script_bytes.to_string(),
        on_error(version).to_owned(),
        shown(version.note.as_bytes()),
    ]
}

async fn list(client: &Client, as_json: bool) -> Result<(), Failure> {
    let hooks = client.list_hooks().await?;
    if as_json {
        return hooks.iter().try_for_each(|hook| {
            let mut json = version_json(&hook.version);
            json["topic"] = hook.topic.as_str().into();
            print_json(&json)
        });
    }
    let rows = hooks.iter().map(|hook| {
        let mut cells = vec![hook.topic.to_string()];
        cells.extend(version_cells(&hook.version));
        cells
    });
    let heads = ["TOPIC", "VERSION", "SET AT", "BYTES", "ON ERROR", "NOTE"];
    print_table(&heads, &rows.collect::<Vec<_>>())
}

fn versions(versions: &[HookVersion], in_use: Option<u64>, as_json: bool) -> Result<(), Failure> {
    let is_in_use = |version: &HookVersion| Some(version.version) == in_use;
    if as_json {
        return versions.iter().try_for_each(|version| {
            let mut json = version_json(version);
            json["in_use"] = is_in_use(version).into();
            print_json(&json)
        });
    }
    let rows = versions.iter().map(|version| {
        let mut cells = version_cells(version);
        cells.insert(1, if is_in_use(version) { "yes" } else { "" }.to_owned());
        cells
    });
    let heads = ["VERSION", "IN USE", "SET AT", "BYTES", "ON ERROR", "NOTE"];
    print_table(&heads, &rows.collect::<Vec<_>>())
}

fn status(
    topic: &TopicName,
    version: u64,
    cores: &[HookCore],
    as_json: bool,
) -> Result<(), Failure> {
    let name = |state: HookState| match state {
        HookState::Closed => "closed",
        HookState::Open { .. } => "open",
        HookState::HalfOpen => "half-open",
        _ => "unknown",
    };
    let ns_per_message = |core: &HookCore| {
        let runs = u128::from(core.messages + core.attempts + core.failures).max(1);
        u64::try_from(core.time.as_nanos() / runs).unwrap_or(u64::MAX)
    };
    if as_json {
        return cores.iter().try_for_each(|core| {
            let rests_until_ms = match core.state {
                HookState::Open { until } => Some(until.0),
                _ => None,
            };
            print_json(&json!({
                "topic": topic.as_str(), "version": version, "core": core.core,
                "state": name(core.state), "rests_until_ms": rests_until_ms,
                "messages": core.messages, "attempts": core.attempts, "refused": core.refused,
                "failures": core.failures,
                "ns_per_message": ns_per_message(core), "last_failure": core.last_failure,
            }))
        });
    }
    let rows = cores.iter().map(|core| {
        let state = match core.state {
            HookState::Open { until } => format!("open until {}", time_argument::show(until.0)),
            state => name(state).to_owned(),
        };
        vec![
            core.core.to_string(),
            version.to_string(),
            state,
            core.messages.to_string(),
            core.attempts.to_string(),
            core.refused.to_string(),
            core.failures.to_string(),
            ns_per_message(core).to_string(),
            shown(core.last_failure.as_bytes()),
        ]
    });
    let heads = [
        "CORE",
        "VERSION",
        "BREAKER",
        "MESSAGES",
        "ATTEMPTS",
        "REFUSED",
        "FAILURES",
        "NS EACH",
        "LAST FAILURE",
    ];
    print_table(&heads, &rows.collect::<Vec<_>>())
}

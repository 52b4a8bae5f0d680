//! `sennit kv`: the configuration of the broker: get, set, delete, list, watch.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    pin::pin,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sennit_client::{
    Configuration, ConfigurationChange, ConfigurationEntry, ConfigurationEvent, Error,
};
use sennit_model::{ConfigurationKey, limits::CONFIGURATION_VALUE_BYTES_MAX};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    interrupt::interrupted,
    output::{ignore_broken_pipe, print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit kv set limits.page 100
  sennit kv get limits.page
  sennit kv set limits.page 200 --if-revision 1     only if nobody has changed it
  sennit kv set leader me --if-revision 0           only if there is none
  sennit kv list limits.
  sennit kv watch limits. --json
  sennit kv delete limits.page

A key is 1 to 256 visible ASCII characters. Keys that begin with throttle. are throttle rules:
see `sennit throttle`. If --if-revision is not met, the exit code is 4.";

/// The arguments of `sennit kv`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each entry or change
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the value of a key
    Get {
        /// The key
        key: ConfigurationKey,
        /// Print the value without a newline behind it
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Set the value of a key, and wait until that is durable
    Set {
        /// The key
        key: ConfigurationKey,
        /// The value; - for all of standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Set it only if the entry has this revision; 0 if there is no entry
        #[arg(long, value_name = "N")]
        if_revision: Option<u64>,
    },
    /// Delete a key
    Delete {
        /// The key
        key: ConfigurationKey,
        /// Delete it only if the entry has this revision
        #[arg(long, value_name = "N")]
        if_revision: Option<u64>,
    },
    /// Print the entries by key
    List {
        /// What their keys begin with [default: all]
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// Print the entries, and then each change in order, until stopped
    Watch {
        /// What their keys begin with [default: all]
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// Print only the changes after this revision
        #[arg(long, value_name = "REVISION")]
        after: Option<u64>,
        /// Stop after this many lines
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, there is no such key, or the broker cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    block_on(async {
        let configuration = args.connect.client().await?.configuration();
        match args.verb {
            Verb::Get { key, raw } => {
                let found = configuration.get(&key).await;
                let found = found.map_err(|error| about(error, &key))?.ok_or_else(|| no(&key))?;
                if args.json {
                    return print_json(&entry_json(&found));
                }
                let end: &[u8] = if raw { b"" } else { b"\n" };
                print_bytes(&[&found.value, end].concat())
            }
            Verb::Set { key, value, if_revision } => {
                let value = if value == "-" { standard_input()? } else { value.into_bytes() };
                let changed = configuration.set(&key, value, if_revision).await;
                let changed = changed.map_err(|error| about(error, &key))?;
                say_done(args.json, &key, changed.revision, "set")
            }
            Verb::Delete { key, if_revision } => {
                let changed = configuration.delete(&key, if_revision).await;
                let changed = changed.map_err(|error| about(error, &key))?;
                if !changed.existed {
                    return Err(no(&key));
                }
                say_done(args.json, &key, changed.revision, "deleted")
            }
            Verb::List { prefix } => list(&configuration, &prefix, args.json).await,
            Verb::Watch { prefix, after, count } => {
                watch(&configuration, &prefix, after, count, args.json).await
            }
        }
    })
}

fn about(error: Error, key: &ConfigurationKey) -> Failure {
    Failure::from(error).about(key)
}

fn no(key: &ConfigurationKey) -> Failure {
    Failure::new(Exit::NotFound, "there is no such key").about(key)
}

/// All of standard input, as far as it may be a value.
fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    // One byte more is enough for the refusal.
    let most = CONFIGURATION_VALUE_BYTES_MAX as u64 + 1;
    let read = io::stdin().lock().take(most).read_to_end(&mut value);
    read.map_err(|error| Failure::from(error).about("standard input"))?;
    Ok(value)
}

fn say_done(
    as_json: bool,
    key: &ConfigurationKey,
    revision: u64,
    outcome: &str,
) -> Result<(), Failure> {
    if as_json {
        let key = key.as_str();
        return print_json(&json!({ "key": key, "revision": revision, "outcome": outcome }));
    }
    print_to_stderr(&format!("{key}: {outcome}, revision {revision}"));
    Ok(())
}

fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    ignore_broken_pipe(out.write_all(bytes).and_then(|()| out.flush()))
}

async fn list(configuration: &Configuration, prefix: &str, as_json: bool) -> Result<(), Failure> {
    // A terminal gets one table; others get each page as it comes.
    let in_pages = as_json || !io::stdout().is_terminal();
    let (mut page_token, mut entries) = (String::new(), Vec::new());
    loop {
        let page = configuration.list_page(prefix, &page_token, 0).await?;
        let is_empty = page.entries.is_empty();
        entries.extend(page.entries);
        page_token = page.next_page_token;
        let is_last = page_token.is_empty() || is_empty;
        if in_pages || is_last {
            print_entries(&std::mem::take(&mut entries), as_json)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

fn print_entries(entries: &[ConfigurationEntry], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return entries.iter().try_for_each(|entry| print_json(&entry_json(entry)));
    }
    let row = |entry: &ConfigurationEntry| {
        vec![entry.key.to_string(), entry.revision.to_string(), shown(&entry.value)]
    };
    print_table(&["KEY", "REVISION", "VALUE"], &entries.iter().map(row).collect::<Vec<_>>())
}

/// A value in one cell: text as it is, unless it has control characters, and other bytes escaped.
pub fn shown(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        Ok(text) => text.escape_default().to_string(),
        Err(_) => value.escape_ascii().to_string(),
    }
}

fn entry_json(entry: &ConfigurationEntry) -> Value {
    json_of(&entry.key, entry.revision, Some(&entry.value))
}

/// Bytes that are text are text; others are base64 under a name that says so.
fn json_of(key: &ConfigurationKey, revision: u64, value: Option<&[u8]>) -> Value {
    let mut json = json!({ "key": key.as_str(), "revision": revision });
    match value.map(|value| (value, std::str::from_utf8(value))) {
        Some((_, Ok(text))) => json["value"] = text.into(),
        Some((bytes, Err(_))) => json["value_base64"] = BASE64_STANDARD.encode(bytes).into(),
        None => json["deleted"] = true.into(),
    }
    json
}

async fn watch(
    configuration: &Configuration,
    prefix: &str,
    after: Option<u64>,
    count: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    let mut stop = pin!(interrupted());
    let mut watch = configuration.watch(prefix, after).await?;
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = tokio::select! {
            () = &mut stop => return Ok(()),
            event = watch.next() => event,
        };
        let changes = match event.transpose()? {
            None => return Ok(()),
            Some(ConfigurationEvent::Changes { changes, .. }) => changes,
            Some(ConfigurationEvent::All { mut entries, revision }) => {
                say_all(as_json, entries.len(), revision)?;
                entries.sort_by(|one, other| one.key.cmp(&other.key));
                let change = |entry: ConfigurationEntry| {
                    let ConfigurationEntry { key, revision, value } = entry;
                    ConfigurationChange { key, revision, value: Some(value) }
                };
                entries.into_iter().map(change).collect()
            }
        };
        for change in changes.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            print_change(change, as_json)?;
            left -= 1;
        }
    }
    Ok(())
}

/// Says that all entries follow.
fn say_all(as_json: bool, entries: usize, revision: u64) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "all": entries, "revision": revision }));
    }
    print_to_stderr(&format!("all entries of revision {revision}: {entries}"));
    Ok(())
}

fn print_change(change: &ConfigurationChange, as_json: bool) -> Result<(), Failure> {
    let ConfigurationChange { key, revision, value } = change;
    if as_json {
        return print_json(&json_of(key, *revision, value.as_deref()));
    }
    let line = match value {
        Some(value) => format!("{key}\t{revision}\t{}\n", shown(value)),
        None => format!("{key}\t{revision}\n"),
    };
    print_bytes(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_in_one_cell() {
        for (value, cell) in [
            (&b"10/s burst 20"[..], "10/s burst 20"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"a\tb\nc", "a\\tb\\nc"),
            (b"\xff\x00", "\\xff\\x00"),
            (b"", ""),
        ] {
            assert_eq!(shown(value), cell);
        }
    }

    #[test]
    fn json_says_whether_a_value_is_text() {
        let key: ConfigurationKey = "k".parse().unwrap();
        let json = |value| json_of(&key, 7, value).to_string();
        assert_eq!(json(Some(&b"x"[..])), r#"{"key":"k","revision":7,"value":"x"}"#);
        assert_eq!(json(Some(&b"\xff"[..])), r#"{"key":"k","revision":7,"value_base64":"/w=="}"#);
        assert_eq!(json(None), r#"{"deleted":true,"key":"k","revision":7}"#);
    }
}

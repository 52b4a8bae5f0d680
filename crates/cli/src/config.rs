//! `sennit config`: the settings of `sennit serve`, read as it would read them. It asks no broker.

use sennit_settings::{Setting, Source, Value, write_defaults};
use serde_json::{Value as Json, json};

use crate::{
    exit::Failure,
    output::{print_json, print_table, print_text, print_to_stderr},
    settings::{HiddenSettingFlags, SETTINGS, SettingFlags, SettingSources, Start, failure_of},
};

const EXAMPLES: &str = "\
Examples:
  sennit config defaults >sennit.toml
  sennit config check --config sennit.toml
  SENNIT_HTTP__LISTEN=:8080 sennit config show --config sennit.toml

A setting's value comes from its flag, or else from its environment variable, or else from the file
that --config or SENNIT_CONFIG names, or else it is the default. `sennit kv` has the configuration
that a running broker keeps, which is another thing.";

/// The arguments of `sennit config`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check the settings file and the environment; print every problem. Takes the flags of `sennit
    /// serve` too
    Check {
        #[command(flatten)]
        flags: HiddenSettingFlags,
    },
    /// Print the values in force, and the source of each. Takes the flags of `sennit serve` too
    Show {
        #[command(flatten)]
        flags: HiddenSettingFlags,
        /// Print one JSON object for each setting
        #[arg(long)]
        json: bool,
    },
    /// Print a settings file with every setting, its help and its default
    Defaults,
}

/// Runs the verb.
///
/// # Errors
/// The settings have problems.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.verb {
        Verb::Check { flags } => check(flags.0),
        Verb::Show { flags, json } => show(flags.0, json),
        Verb::Defaults => print_text(&write_defaults(&SETTINGS, &Start::default())),
    }
}

fn check(flags: SettingFlags) -> Result<(), Failure> {
    let file = flags.config.clone();
    let loaded = SettingSources::new(flags, Start::default()).load();
    let resolved = loaded.map_err(|problems| failure_of(&problems))?;
    for warning in &resolved.warnings {
        print_to_stderr(&format!("warning: {warning}"));
    }
    let set = resolved.sources.iter().filter(|source| **source != Source::Default).count();
    let of = file.map_or_else(|| "no settings file".to_owned(), |path| path.display().to_string());
    print_to_stderr(&format!("{of}: the settings are right; {set} are not the default"));
    Ok(())
}

fn show(flags: SettingFlags, as_json: bool) -> Result<(), Failure> {
    let loaded = SettingSources::new(flags, Start::default()).load();
    let resolved = loaded.map_err(|problems| failure_of(&problems))?;
    let rows = SETTINGS.iter().zip(&resolved.sources);
    if as_json {
        for (row, source) in rows {
            print_json(&as_object(row, &row.shown(&resolved.values), source))?;
        }
        return Ok(());
    }
    let cells = |(row, source): (&Setting<Start>, &Source)| {
        let shown = match row.shown(&resolved.values) {
            Value::Unset if !row.unset.is_empty() => format!("({})", row.unset),
            value => value.to_string(),
        };
        vec![row.name(), shown, source.to_string()]
    };
    print_table(&["SETTING", "VALUE", "SOURCE"], &rows.map(cells).collect::<Vec<_>>())
}

/// A setting for programs.
fn as_object(row: &Setting<Start>, value: &Value, source: &Source) -> Json {
    let source = match source {
        Source::Default => json!({ "kind": "default" }),
        Source::File { path, line } => json!({ "kind": "file", "path": &**path, "line": line }),
        Source::Variable(name) => json!({ "kind": "environment", "variable": name }),
        Source::Flag(name) => json!({ "kind": "flag", "flag": name }),
    };
    json!({ "setting": row.name(), "value": json_of(value), "source": source })
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Unset => Json::Null,
        Value::Text(text) => json!(text),
        Value::Number(number) => json!(number),
        Value::Switch(switch) => json!(switch),
        Value::List(texts) => json!(texts),
    }
}

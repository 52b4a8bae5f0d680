//! Settings of the section `log`: what the broker logs.

use sennit_settings::{Assignment, Flag, Kind, Reload, Setting, Value};
use tracing_subscriber::EnvFilter;

use super::{LogFormat, ROW, Start, word};

const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

fn filter(assignment: &Assignment) -> Result<String, String> {
    let text = assignment.text()?;
    let parsed = EnvFilter::builder().parse(text);
    parsed.map_err(|error| {
        format!("{text:?} is no filter: {error}; write info or sennit_server=debug")
    })?;
    Ok(text.to_owned())
}

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "log",
        field: "format",
        flag: Flag::Switch("log-json", "json"),
        kind: Kind::OneOf(&[("text", "Lines for people"), ("json", "A JSON object on each line")]),
        shape: "FORMAT",
        help: "The format of the log: text, or json with --log-json",
        get: |start| word(&LOG_FORMATS, start.log_format),
        set: |start, given| {
            start.log_format = given.one_of(&LOG_FORMATS)?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "log",
        field: "filter",
        flag: Flag::Value("log-filter"),
        variable: Some("RUST_LOG"),
        kind: Kind::Text,
        shape: "FILTER",
        help: "What is logged: a level, or levels of modules, as `warn,sennit_server=debug`",
        reload: Reload::Applied,
        get: |start| Value::text(&start.log_filter),
        set: |start, given| {
            start.log_filter = filter(given)?;
            Ok(())
        },
        ..ROW
    },
];

//! The table of settings: one row for each, from which come its flag, its variable, its field in the settings file, its
//! line in `config defaults` and docs/reference/settings.md, and its place in what the broker is started with.
//!
//! To add a setting, add its field to `sennit_server::Config` with a default, and one row to the file of its section in
//! `table` (a new section: one more file, named in [`SETTINGS`]). A setting that a reload applies has one line in
//! `server/reload` too.

mod auth;
mod http;
mod journal;
mod live;
mod log;
mod native;
mod server;
mod streams;
mod tls;

use std::sync::LazyLock;

use sennit_server::Config;
use sennit_settings::{Flag, Kind, Reload, Setting, Value};

/// All settings of `sennit serve`.
#[derive(Clone, Debug)]
pub struct Start {
    /// The broker.
    pub broker: Config,
    /// Whether an admin key is created if nobody has credentials; if nobody says so, a container decides it.
    pub init_admin: Option<bool>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// The log filter: directives of `tracing`.
    pub log_filter: String,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            broker: Config::default(),
            init_admin: None,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
        }
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object on each line.
    Json,
}

/// Every setting, by section.
pub static SETTINGS: LazyLock<Vec<Setting<Start>>> = LazyLock::new(|| {
    [
        server::SETTINGS,
        native::SETTINGS,
        http::SETTINGS,
        journal::SETTINGS,
        streams::SETTINGS,
        live::SETTINGS,
        tls::SETTINGS,
        auth::SETTINGS,
        log::SETTINGS,
    ]
    .concat()
});

/// The parts that most rows have alike: no flag, no other variable, a default, and a restart for another value.
const ROW: Setting<Start> = Setting {
    section: "",
    field: "",
    flag: Flag::None,
    variable: None,
    kind: Kind::Text,
    shape: "TEXT",
    help: "",
    unset: "",
    reload: Reload::Restart,
    get: |_| Value::Unset,
    set: |_, _| Ok(()),
};

/// The word for `value`.
fn word<V: Copy + PartialEq>(words: &[(&'static str, V)], value: V) -> Value {
    let found = words.iter().find(|(_, other)| *other == value);
    found.map_or(Value::Unset, |(word, _)| Value::text(word))
}

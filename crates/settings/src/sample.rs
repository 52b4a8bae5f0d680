//! A small table with a row of each kind, for tests and for fuzzing.

use std::time::Duration;

use crate::{
    assignment::Assignment,
    setting::{Flag, Kind, Reload, Setting},
    value::Value,
};

/// The values of the sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// A text.
    pub name: String,
    /// A number with a default.
    pub connections: u64,
    /// A number without one.
    pub shards: Option<u32>,
    /// A size.
    pub cache: u64,
    /// A duration, or off.
    pub scrub: Option<Duration>,
    /// Yes or no.
    pub open: bool,
    /// One of two words.
    pub is_json: bool,
    /// Texts.
    pub hosts: Vec<String>,
    /// A secret.
    pub token: Option<String>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            name: "127.0.0.1:80".to_owned(),
            connections: 10,
            shards: None,
            cache: 32 << 20,
            scrub: Some(Duration::from_secs(604_800)),
            open: false,
            is_json: false,
            hosts: Vec::new(),
            token: None,
        }
    }
}

const FORMATS: [(&str, bool); 2] = [("text", false), ("json", true)];

/// What the rows have alike.
const ROW: Setting<Sample> = Setting {
    section: "http",
    field: "",
    flag: Flag::None,
    variable: None,
    kind: Kind::Text,
    shape: "TEXT",
    help: "A setting",
    unset: "",
    reload: Reload::Restart,
    get: |_| Value::Unset,
    set: |_, _| Ok(()),
};

/// The table.
pub const SAMPLE: &[Setting<Sample>] = &[
    Setting {
        field: "listen",
        flag: Flag::Value("http"),
        get: |sample| Value::text(&sample.name),
        set: |sample, given| given.parse_to(&mut sample.name),
        ..ROW
    },
    Setting {
        field: "connections",
        kind: Kind::Number,
        reload: Reload::Applied,
        get: |sample| Value::number(sample.connections),
        set: |sample, given| {
            sample.connections = given.number()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        field: "hosts",
        kind: Kind::List,
        reload: Reload::Applied,
        get: |sample| Value::list(&sample.hosts),
        set: |sample, given| given.list_to(&mut sample.hosts),
        ..ROW
    },
    Setting {
        field: "open",
        flag: Flag::Switch("open", "true"),
        kind: Kind::Switch,
        get: |sample| Value::Switch(sample.open),
        set: |sample, given| {
            sample.open = given.switch()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "shards",
        kind: Kind::Number,
        shape: "N",
        unset: "one per core",
        reload: Reload::Applied,
        get: |sample| Value::optional(sample.shards, Value::number),
        set: |sample, given| given.optional_to(&mut sample.shards, Assignment::number),
        ..ROW
    },
    Setting {
        section: "journal",
        field: "cache_size",
        kind: Kind::Size,
        get: |sample| Value::size(sample.cache),
        set: |sample, given| {
            sample.cache = given.size()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "scrub_every",
        kind: Kind::Duration,
        get: |sample| sample.scrub.map_or(Value::text("off"), Value::duration),
        set: |sample, given| {
            let is_off = given.text()? == "off";
            sample.scrub = if is_off { None } else { Some(given.duration()?) };
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "log",
        field: "format",
        variable: Some("OTHER_LOG"),
        kind: Kind::OneOf(&[("text", "For people"), ("json", "For programs")]),
        get: |sample| Value::text(if sample.is_json { "json" } else { "text" }),
        set: |sample, given| {
            sample.is_json = given.one_of(&FORMATS)?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token",
        kind: Kind::Secret,
        shape: "token of letters",
        reload: Reload::Applied,
        get: |sample| Value::optional(sample.token.as_ref(), Value::text),
        set: |sample, given| {
            given.optional_to(&mut sample.token, |given| {
                let text = given.text()?;
                let is_token = text.bytes().all(|byte| byte.is_ascii_alphabetic());
                if is_token { Ok(text.to_owned()) } else { Err(format!("{text:?} is none")) }
            })
        },
        ..ROW
    },
];

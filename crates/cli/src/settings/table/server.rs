//! Settings of the section `server`: where the broker keeps its data, and on how many cores it runs.

use sennit_settings::{Assignment, Flag, Kind, Setting, Value};

use super::{ROW, Start};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "server",
        field: "data",
        flag: Flag::Value("data"),
        kind: Kind::Text,
        shape: "DIR",
        help: "The folder of all data; created if it does not exist",
        get: |start| Value::text(start.broker.data.display()),
        set: |start, given| given.parse_to(&mut start.broker.data),
        ..ROW
    },
    Setting {
        section: "server",
        field: "shards",
        flag: Flag::Value("shards"),
        kind: Kind::Number,
        shape: "N",
        help: "The number of shards of a new data directory, 1 to 1024; a directory keeps its number",
        unset: "one per core",
        get: |start| Value::optional(start.broker.shards, Value::number),
        set: |start, given| given.optional_to(&mut start.broker.shards, Assignment::number),
        ..ROW
    },
    Setting {
        section: "server",
        field: "cores",
        flag: Flag::Value("cores"),
        kind: Kind::Number,
        shape: "N",
        help: "The number of cores, each with a thread, that run the shards and serve connections, 1 to 1024; a \
               core may run several shards, or none",
        unset: "one per shard",
        get: |start| Value::optional(start.broker.cores, Value::number),
        set: |start, given| given.optional_to(&mut start.broker.cores, Assignment::number),
        ..ROW
    },
];

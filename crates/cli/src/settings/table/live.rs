//! Settings of the section `live`: live connections.

use sennit_settings::{Kind, Setting, Value};

use super::{ROW, Start, word};

/// The words for the clients that are told who comes and goes.
const TOLD: [(&str, bool); 2] = [("asked", false), ("all", true)];

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "live",
        field: "ping_interval",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time between two pings of a live connection; a client that does not answer within 10 s is ended",
        get: |start| Value::duration(start.broker.live_ping_interval),
        set: |start, given| {
            start.broker.live_ping_interval = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "live",
        field: "connect_timeout",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time within which the client of a live connection says who it is",
        get: |start| Value::duration(start.broker.live_connect_timeout),
        set: |start, given| {
            start.broker.live_connect_timeout = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "live",
        field: "join_leave",
        kind: Kind::OneOf(&[
            ("asked", "Clients that ask for it"),
            ("all", "All who are subscribed"),
        ]),
        shape: "CLIENTS",
        help: "The clients that are told who comes and goes, in channels that keep presence",
        get: |start| word(&TOLD, start.broker.live_tells_all),
        set: |start, given| {
            start.broker.live_tells_all = given.one_of(&TOLD)?;
            Ok(())
        },
        ..ROW
    },
];

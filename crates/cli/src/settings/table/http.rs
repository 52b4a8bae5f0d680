//! Settings of the section `http`: where clients of HTTP connect, and which browsers may.

use sennit_settings::{Flag, Kind, Reload, Setting, Value};

use super::{ROW, Start};
use crate::address::{self, HTTP_PORT};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "http",
        field: "listen",
        flag: Flag::Value("http"),
        kind: Kind::Text,
        shape: "ADDRESS",
        help: "The address of HTTP: streams, /healthz, /readyz, /metrics and backups",
        get: |start| Value::text(start.broker.http),
        set: |start, given| {
            start.broker.http = address::listen(given.text()?, HTTP_PORT)?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "http",
        field: "connections",
        flag: Flag::Value("http-connections"),
        kind: Kind::Number,
        shape: "N",
        help: "The number of HTTP connections that are served at once; more of them wait",
        get: |start| Value::number(start.broker.http_connections),
        set: |start, given| {
            start.broker.http_connections = given.number()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "http",
        field: "connections_per_address",
        flag: Flag::Value("http-connections-per-address"),
        kind: Kind::Number,
        shape: "N",
        help: "Of them, the number of those from one address (of IPv6: from one /64); more of them are refused. \
               127.0.0.1 and ::1 are not counted",
        get: |start| Value::number(start.broker.http_connections_per_address),
        set: |start, given| {
            start.broker.http_connections_per_address = given.number()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "http",
        field: "hosts",
        flag: Flag::Value("http-host"),
        kind: Kind::List,
        shape: "NAME",
        help: "A host that HTTP requests may name in Host, besides localhost, this machine's addresses and the \
               host of the public URL; may be given often. If HTTP does not listen on this machine alone, any IP \
               address is allowed too",
        reload: Reload::Applied,
        get: |start| Value::list(&start.broker.http_hosts),
        set: |start, given| given.list_to(&mut start.broker.http_hosts),
        ..ROW
    },
    Setting {
        section: "http",
        field: "origins",
        flag: Flag::Value("http-origin"),
        kind: Kind::List,
        shape: "ORIGIN",
        help: "An origin whose pages in browsers may read and change HTTP streams, as `https://app.example.com`, \
               or * to let all pages read; may be given often. Pages of this machine are allowed if they name it \
               as this machine",
        reload: Reload::Applied,
        get: |start| Value::list(&start.broker.http_origins),
        set: |start, given| given.list_to(&mut start.broker.http_origins),
        ..ROW
    },
];

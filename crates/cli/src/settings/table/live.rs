//! Settings of the section `live`: live connections.

use sennit_identity::RightPattern;
use sennit_server::Zeroizing;
use sennit_settings::{Assignment, Flag, Kind, Setting, Value};

use super::{ROW, Start, word};

/// The words for the clients that are told who comes and goes.
const TOLD: [(&str, bool); 2] = [("asked", false), ("all", true)];

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "live",
        field: "connections",
        flag: Flag::Value("live-connections"),
        kind: Kind::Number,
        shape: "N",
        help: "The number of live connections that are served at once; more of them are refused, so that others find \
               a place among those of HTTP",
        get: |start| Value::number(start.broker.live_connections),
        set: |start, given| {
            start.broker.live_connections = given.number()?;
            Ok(())
        },
        ..ROW
    },
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
        field: "channels_keep",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "How long channels that live connections create keep messages",
        unset: "as long as the broker runs",
        get: |start| Value::optional(start.broker.live_channels_keep, Value::duration),
        set: |start, given| {
            given.optional_to(&mut start.broker.live_channels_keep, Assignment::duration)
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
    Setting {
        section: "live",
        field: "backend",
        shape: "URL",
        help: "The application that is asked about live connections, at paths below this URL",
        unset: "nobody is asked",
        get: |start| Value::optional(start.broker.live_backend.url.as_ref(), Value::text),
        set: |start, given| {
            given.optional_to(&mut start.broker.live_backend.url, Assignment::parsed)
        },
        ..ROW
    },
    Setting {
        section: "live",
        field: "backend_asks",
        kind: Kind::List,
        shape: "connect,refresh,rpc",
        help: "What the application is asked of all clients: who one is (connect), whether it may stay (refresh), to answer calls (rpc)",
        get: |start| Value::list(&start.broker.live_backend.asks),
        set: |start, given| given.list_to(&mut start.broker.live_backend.asks),
        ..ROW
    },
    Setting {
        section: "live",
        field: "backend_subscribe",
        kind: Kind::List,
        shape: "PATTERN,...",
        help: "The topics of which the application is asked whether a client may subscribe: patterns as in rights",
        get: |start| {
            Value::list(start.broker.live_backend.subscribe.iter().map(RightPattern::as_str))
        },
        set: |start, given| given.list_to(&mut start.broker.live_backend.subscribe),
        ..ROW
    },
    Setting {
        section: "live",
        field: "backend_publish",
        kind: Kind::List,
        shape: "PATTERN,...",
        help: "The topics of which the application is asked whether a client may publish, and what",
        get: |start| {
            Value::list(start.broker.live_backend.publish.iter().map(RightPattern::as_str))
        },
        set: |start, given| given.list_to(&mut start.broker.live_backend.publish),
        ..ROW
    },
    Setting {
        section: "live",
        field: "backend_timeout",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time within which the application answers",
        get: |start| Value::duration(start.broker.live_backend.timeout),
        set: |start, given| {
            start.broker.live_backend.timeout = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "live",
        field: "redis",
        flag: Flag::Value("live-redis"),
        shape: "URL",
        help: "The Redis by which brokers send one another the messages of live topics: redis://HOST:PORT",
        unset: "this broker is alone",
        get: |start| Value::optional(start.broker.live_redis.url.as_ref(), Value::text),
        set: |start, given| given.optional_to(&mut start.broker.live_redis.url, Assignment::parsed),
        ..ROW
    },
    Setting {
        section: "live",
        field: "redis_password",
        flag: Flag::Value("live-redis-password-file"),
        kind: Kind::Secret,
        shape: "text",
        help: "The password of that Redis",
        unset: "none",
        get: |start| {
            let password = start.broker.live_redis.password.as_ref();
            Value::optional(password, |_| Value::text("(secret)"))
        },
        set: |start, given| given.optional_to(&mut start.broker.live_redis.password, password),
        ..ROW
    },
    Setting {
        section: "live",
        field: "redis_topics",
        kind: Kind::List,
        shape: "PATTERN,...",
        help: "The topics whose messages go to other brokers and come from them: patterns as in rights",
        get: |start| Value::list(start.broker.live_redis.topics.iter().map(RightPattern::as_str)),
        set: |start, given| given.list_to(&mut start.broker.live_redis.topics),
        ..ROW
    },
    Setting {
        section: "live",
        field: "redis_prefix",
        shape: "TEXT",
        help: "The first part of the names of the channels in that Redis",
        get: |start| Value::text(&start.broker.live_redis.prefix),
        set: |start, given| given.parse_to(&mut start.broker.live_redis.prefix),
        ..ROW
    },
];

fn password(given: &Assignment) -> Result<Zeroizing<String>, String> {
    Ok(Zeroizing::new(given.text()?.to_owned()))
}

//! Settings of the section `streams`: HTTP streams.

use sennit_settings::{Assignment, Flag, Kind, Reload, Setting, Value};

use super::{ROW, Start};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "streams",
        field: "storage",
        flag: Flag::Value("streams-storage"),
        kind: Kind::Text,
        shape: "MODE",
        help: "The storage of HTTP streams whose creator names none: memory, file-fast, file-durable, acid",
        reload: Reload::Applied,
        get: |start| Value::text(start.broker.streams_storage),
        set: |start, given| given.parse_to(&mut start.broker.streams_storage),
        ..ROW
    },
    Setting {
        section: "streams",
        field: "storage_rules",
        flag: Flag::Value("streams-storage-rule"),
        kind: Kind::List,
        shape: "PREFIX=MODE",
        help: "The storage of HTTP streams whose names begin with PREFIX, if their creators name none; may be \
               given often, the longest prefix counts",
        reload: Reload::Applied,
        get: |start| Value::list(&start.broker.streams_storage_rules),
        set: |start, given| given.list_to(&mut start.broker.streams_storage_rules),
        ..ROW
    },
    Setting {
        section: "streams",
        field: "public_url",
        flag: Flag::Value("streams-public-url"),
        kind: Kind::Text,
        shape: "URL",
        help: "The public URL of the HTTP port, for example of a TLS proxy: the beginning of Location and of the \
               callback addresses of webhooks",
        unset: "http:// and the Host of the request",
        reload: Reload::Applied,
        get: |start| Value::optional(start.broker.streams_public_url.as_ref(), Value::text),
        set: |start, given| {
            given.optional_to(&mut start.broker.streams_public_url, Assignment::parsed)
        },
        ..ROW
    },
    Setting {
        section: "streams",
        field: "long_poll_timeout",
        flag: Flag::Value("streams-long-poll-timeout"),
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time that a read of an HTTP stream waits for new content",
        reload: Reload::Applied,
        get: |start| Value::duration(start.broker.streams_long_poll_timeout),
        set: |start, given| {
            start.broker.streams_long_poll_timeout = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "streams",
        field: "events_span",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time that a connection with server-sent events lasts; its client connects again",
        reload: Reload::Applied,
        get: |start| Value::duration(start.broker.streams_events_span),
        set: |start, given| {
            start.broker.streams_events_span = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "streams",
        field: "events_silence",
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time without server-sent events after which a comment shows that the connection still stands",
        get: |start| Value::duration(start.broker.streams_events_silence),
        set: |start, given| {
            start.broker.streams_events_silence = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "streams",
        field: "allow_private_webhooks",
        flag: Flag::Switch("streams-allow-private-webhooks", "true"),
        kind: Kind::Switch,
        shape: "true|false",
        help: "For development: allow webhooks on this machine, and without TLS",
        reload: Reload::Applied,
        get: |start| Value::Switch(start.broker.streams_allow_private_webhooks),
        set: |start, given| {
            start.broker.streams_allow_private_webhooks = given.switch()?;
            Ok(())
        },
        ..ROW
    },
];

//! Settings of the section `journal`: how the journal is written, read and checked.

use sennit_server::Access;
use sennit_settings::{Assignment, Flag, Kind, Reload, Setting, Value};

use super::{ROW, Start, word};

const ACCESS: [(&str, Access); 3] =
    [("auto", Access::Auto), ("direct", Access::Direct), ("buffered", Access::Buffered)];

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "journal",
        field: "segment_size",
        flag: Flag::Value("segment-size"),
        kind: Kind::Size,
        shape: "SIZE",
        help: "The length of a segment of a new data directory's journals, at least 20MiB",
        unset: "64MiB, less on a small disk",
        get: |start| Value::optional(start.broker.segment_bytes, Value::size),
        set: |start, given| given.optional_to(&mut start.broker.segment_bytes, Assignment::size),
        ..ROW
    },
    Setting {
        section: "journal",
        field: "segments",
        flag: Flag::Value("journal-segments"),
        kind: Kind::Number,
        shape: "N",
        help: "Segments of each shard's journal beyond which the oldest is emptied into packs",
        get: |start| Value::number(start.broker.journal_segments),
        set: |start, given| {
            start.broker.journal_segments = given.number()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "io",
        flag: Flag::Value("io"),
        kind: Kind::OneOf(&[
            ("auto", "Direct where the file system allows"),
            ("direct", "Around the page cache"),
            ("buffered", "Through the page cache"),
        ]),
        shape: "IO",
        help: "How the journal is written: around the page cache or through it",
        get: |start| word(&ACCESS, start.broker.access),
        set: |start, given| {
            start.broker.access = given.one_of(&ACCESS)?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "scrub_every",
        flag: Flag::Value("scrub-every"),
        kind: Kind::Duration,
        shape: "DURATION|off",
        help: "The time for one scrub of everything at rest, which looks for damage; off: no scrub",
        reload: Reload::Applied,
        get: |start| start.broker.scrub_every.map_or(Value::text("off"), Value::duration),
        set: |start, given| {
            let is_off = given.text()? == "off";
            start.broker.scrub_every = if is_off { None } else { Some(given.duration()?) };
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "cache_size",
        kind: Kind::Size,
        shape: "SIZE",
        help: "How much of the newest frames each shard keeps in memory",
        get: |start| Value::size(start.broker.cache_bytes as u64),
        set: |start, given| {
            start.broker.cache_bytes = given.size()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "journal",
        field: "uncommitted_size",
        kind: Kind::Size,
        shape: "SIZE",
        help: "How much may be published to a shard and not yet committed before publishers wait; at most half a \
               segment counts",
        reload: Reload::Applied,
        get: |start| Value::size(start.broker.ingest_bytes),
        set: |start, given| {
            start.broker.ingest_bytes = given.size()?;
            Ok(())
        },
        ..ROW
    },
];

//! Settings of the section `auth`: who may do what.

use sennit_settings::{Assignment, Flag, Kind, Setting, Value};

use super::{ROW, Start};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "auth",
        field: "init_admin",
        flag: Flag::Switch("init-admin", "true"),
        variable: Some("SENNIT_INIT_ADMIN"),
        kind: Kind::Switch,
        shape: "true|false",
        help: "Create an admin API key at the start, if there is no key and no user yet, and print it once",
        unset: "false; true in a container, if an address can be reached from outside of it",
        get: |start| Value::optional(start.init_admin, Value::Switch),
        set: |start, given| given.optional_to(&mut start.init_admin, Assignment::switch),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "insecure_no_auth",
        flag: Flag::Switch("insecure-no-auth", "true"),
        kind: Kind::Switch,
        shape: "true|false",
        help: "Listen on non-loopback addresses though nobody is asked for credentials",
        get: |start| Value::Switch(start.broker.insecure_no_auth),
        set: |start, given| {
            start.broker.insecure_no_auth = given.switch()?;
            Ok(())
        },
        ..ROW
    },
];

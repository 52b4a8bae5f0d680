//! Settings of the section `auth`: who may do what.

use sennit_settings::{Flag, Kind, Setting, Value};

use super::{ROW, Start};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[Setting {
    section: "auth",
    field: "insecure_no_auth",
    flag: Flag::Switch("insecure-no-auth", "true"),
    kind: Kind::Switch,
    shape: "BOOL",
    help: "Listen on non-loopback addresses without authentication",
    get: |start| Value::Switch(start.broker.insecure_no_auth),
    set: |start, given| {
        start.broker.insecure_no_auth = given.switch()?;
        Ok(())
    },
    ..ROW
}];

//! Settings of the section `native`: where clients of the native protocol connect.

use sennit_settings::{Flag, Kind, Setting, Value};

use super::{ROW, Start};
use crate::address::{self, NATIVE_PORT};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[Setting {
    section: "native",
    field: "listen",
    flag: Flag::Value("listen"),
    kind: Kind::Text,
    shape: "ADDRESS",
    help: "The address of the native protocol",
    get: |start| Value::text(start.broker.listen),
    set: |start, given| {
        start.broker.listen = address::listen(given.text()?, NATIVE_PORT)?;
        Ok(())
    },
    ..ROW
}];

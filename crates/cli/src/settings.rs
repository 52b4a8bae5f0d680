//! The settings of `sennit serve`, from all their sources. `table` has one row for each; `flags` makes the flags of the
//! command line of it, `load` reads the settings file, the environment and secrets.

mod flags;
mod load;
#[cfg(test)]
mod page;
mod table;

pub use flags::{HiddenSettingFlags, SettingFlags};
pub use load::{SettingSources, failure_of};
pub use table::{LogFormat, SETTINGS, Start};

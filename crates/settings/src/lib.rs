//! The settings of a broker's start: one table of rows, and the sources that give them values: flags over environment
//! over a settings file over defaults. It knows no sockets, opens no file and reads no environment, which are
//! arguments, and does not know what a setting does.
//!
//! In reading order: a [`Setting`] is a row of the table; `settings_file` and `environment` turn a text and variables
//! into [`Assignments`], and name every [`Problem`]; [`resolve`] applies them to the values of a start, lowest first,
//! and remembers each [`Source`]; `defaults` writes the table as a settings file; `reload` compares two starts.

mod assignment;
mod defaults;
mod environment;
mod limits;
mod problem;
pub mod quantity;
mod reload;
mod resolve;
mod secret;
mod setting;
mod settings_file;
mod suggestion;
mod value;

#[doc(hidden)]
pub mod sample;

pub use assignment::{Assignment, Assignments};
pub use defaults::write_defaults;
pub use environment::{assignments_of_environment, is_setting_variable};
pub use limits::{FILE_BYTES_MAX, PROBLEMS_MAX};
pub use problem::{Problem, Problems, Source};
pub use reload::{SettingChange, changes, take_over};
pub use resolve::{Resolved, resolve};
pub use secret::{ReadSecret, SecretText};
pub use setting::{Flag, Kind, Reload, Setting};
pub use settings_file::assignments_of_file;
pub use value::Value;

//! A row of the table of settings: how a setting is named in each source, what its values are, and what a reload does
//! with it.

use crate::{assignment::Assignment, value::Value};

/// The prefix of all variables of settings.
pub(crate) const PREFIX: &str = "SENNIT_";

/// A setting of a start whose values are a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T: 'static> {
    /// The section of the settings file: one word in lower case.
    pub section: &'static str,
    /// The field in its section: words in lower case with underscores.
    pub field: &'static str,
    /// The flag, if it has one.
    pub flag: Flag,
    /// A variable beside `SENNIT_SECTION__FIELD` that others know, such as `RUST_LOG`; the former counts.
    pub variable: Option<&'static str>,
    /// The kind of its values.
    pub kind: Kind,
    /// The shape of a value in the help: `ADDRESS`, `DURATION|off`.
    pub shape: &'static str,
    /// One sentence for people, without a full stop.
    pub help: &'static str,
    /// What the broker does if there is no value, for a setting whose default is [`Value::Unset`].
    pub unset: &'static str,
    /// What a reload does with it.
    pub reload: Reload,
    /// The value in a start.
    pub get: fn(&T) -> Value,
    /// Puts an assignment into a start. No texts mean no value.
    ///
    /// # Errors
    /// What is wrong with it and what would be right.
    pub set: fn(&mut T, &Assignment) -> Result<(), String>,
}

/// How the command line gives a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// It cannot.
    None,
    /// `--name VALUE`; may be given often for a list.
    Value(&'static str),
    /// `--name`, which means this value; where the values are `true` and `false`, also `--name=false`.
    Switch(&'static str, &'static str),
}

impl Flag {
    /// The name without its hyphens.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Value(name) | Self::Switch(name, _) => Some(name),
        }
    }
}

/// The kind of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that nobody is to see. The file may give `FIELD_file`, the path of a file with the secret, and the
    /// environment `..._FILE`; a flag gives only such a path.
    Secret,
    /// A whole number.
    Number,
    /// A size in bytes: `64MiB`, or a number in the file.
    Size,
    /// A duration: `30s`.
    Duration,
    /// `true` or `false`.
    Switch,
    /// One of these words, each with its meaning.
    OneOf(&'static [(&'static str, &'static str)]),
    /// Texts: an array in the file, separated by commas in the environment.
    List,
}

/// What a reload does with a setting that has another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It is in force at once.
    Applied,
    /// It is in force after the next start.
    Restart,
}

impl<T> Setting<T> {
    /// The name: `section.field`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.field)
    }

    /// The variable: `SENNIT_SECTION__FIELD`.
    #[must_use]
    pub fn variable_name(&self) -> String {
        format!("{PREFIX}{}__{}", self.section, self.field).to_ascii_uppercase()
    }

    /// The flag with its hyphens. A secret's flag names a file.
    #[must_use]
    pub fn flag_name(&self) -> Option<String> {
        self.flag.name().map(|name| format!("--{name}"))
    }

    /// The value in a start, for people and programs: not that of a secret.
    #[must_use]
    pub fn shown(&self, values: &T) -> Value {
        match (self.get)(values) {
            Value::Unset => Value::Unset,
            _ if self.kind == Kind::Secret => Value::text("(secret)"),
            value => value,
        }
    }

    /// The field that names a secret's file.
    pub(crate) fn file_field(&self) -> Option<String> {
        (self.kind == Kind::Secret).then(|| format!("{}_file", self.field))
    }
}

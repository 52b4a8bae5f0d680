//! A setting's value as people and programs see it: for the settings file, for tables, and to compare two starts.

use std::{fmt, time::Duration};

use crate::quantity::{show_duration, show_size};

/// A setting's value, in its one spelling: two values that mean the same are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value; the broker chooses one, as the row's help says.
    Unset,
    /// A text: an address, a path, a duration, a size, one of some words.
    Text(String),
    /// A number.
    Number(u64),
    /// Yes or no.
    Switch(bool),
    /// Texts, in their order.
    List(Vec<String>),
}

impl Value {
    /// The text of `value`.
    pub fn text(value: impl fmt::Display) -> Self {
        Self::Text(value.to_string())
    }

    /// A duration, in the largest units that say it exactly.
    #[must_use]
    pub fn duration(value: Duration) -> Self {
        Self::Text(show_duration(value))
    }

    /// A size in bytes, in the largest unit that says it exactly.
    #[must_use]
    pub fn size(bytes: u64) -> Self {
        Self::Text(show_size(bytes))
    }

    /// A number.
    pub fn number(value: impl TryInto<u64>) -> Self {
        Self::Number(value.try_into().unwrap_or(u64::MAX))
    }

    /// The texts of `values`.
    pub fn list<V: fmt::Display>(values: impl IntoIterator<Item = V>) -> Self {
        Self::List(values.into_iter().map(|value| value.to_string()).collect())
    }

    /// The value, if there is one.
    pub fn optional<V>(value: Option<V>, show: impl FnOnce(V) -> Self) -> Self {
        value.map_or(Self::Unset, show)
    }

    /// The texts by which flags and variables give this value; none for no value.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Unset => Vec::new(),
            Self::Text(text) => vec![text.clone()],
            Self::Number(number) => vec![number.to_string()],
            Self::Switch(switch) => vec![switch.to_string()],
            Self::List(texts) => texts.clone(),
        }
    }

    /// The value as TOML; `None` for no value, which TOML cannot say.
    #[must_use]
    pub fn to_toml(&self) -> Option<String> {
        match self {
            Self::Unset => None,
            Self::Text(text) => Some(quoted(text)),
            Self::Number(number) => Some(number.to_string()),
            Self::Switch(switch) => Some(switch.to_string()),
            Self::List(texts) => {
                let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
                Some(format!("[{}]", texts.join(", ")))
            }
        }
    }
}

/// For a cell of a table: texts as they are, `-` for no value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("-"),
            Self::List(texts) if texts.is_empty() => f.write_str("-"),
            other => f.write_str(&other.texts().join(",")),
        }
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

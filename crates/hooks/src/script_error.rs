//! Why a script is refused, and why a run of one has failed. Messages name the line of the script.

use sennit_model::limits::{HOOK_MEMORY_BYTES_MAX, HOOK_SCRIPT_BYTES_MAX};

use crate::budget::Exceeded;

/// Longest reason of a failure, in bytes; a longer one is cut.
const REASON_BYTES_MAX: usize = 512;

/// The name of a script in Lua's own messages.
pub(crate) const CHUNK_NAME: &str = "script";

/// Why a text is no script of a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScript {
    /// It is too long.
    #[error("HOOK_SCRIPT_BYTES_MAX is {HOOK_SCRIPT_BYTES_MAX}: the script has {0} bytes")]
    TooLong(usize),
    /// It does not compile, or fails when it is run without a message.
    #[error("{}", in_line(.line, .reason))]
    Line {
        /// The line, from 1, if that is known.
        line: Option<u32>,
        /// What is wrong there.
        reason: String,
    },
    /// It defines none of the functions that a hook calls.
    #[error("the script defines neither on_publish nor on_failure")]
    NoFunction,
}

fn in_line(line: &Option<u32>, reason: &str) -> String {
    match line {
        Some(line) => format!("line {line}: {reason}"),
        None => reason.to_owned(),
    }
}

/// Why a run of a script has failed. Nothing has come of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It takes more than its budget.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// It needs too much memory.
    #[error("HOOK_MEMORY_BYTES_MAX is {HOOK_MEMORY_BYTES_MAX}: the script needs more")]
    Memory,
    /// An error of the script, or what it has returned is wrong.
    #[error("{}", in_line(.line, .reason))]
    Line {
        /// The line, from 1, if that is known.
        line: Option<u32>,
        /// What is wrong there.
        reason: String,
    },
}

impl ScriptError {
    /// What the script has returned is wrong.
    pub(crate) fn returned(reason: impl Into<String>) -> Self {
        Self::Line { line: None, reason: reason.into() }
    }

    /// The error that Lua has reported.
    pub(crate) fn of_lua(error: &mlua::Error) -> Self {
        match error {
            mlua::Error::MemoryError(_) => Self::Memory,
            mlua::Error::CallbackError { cause, traceback } => {
                match (Self::of_lua(cause), traceback) {
                    (Self::Line { line: None, reason }, traceback) => {
                        Self::Line { line: line_of_traceback(traceback), reason }
                    }
                    (other, _) => other,
                }
            }
            mlua::Error::RuntimeError(message) | mlua::Error::SyntaxError { message, .. } => {
                let (line, reason) = line_and_reason(message);
                Self::Line { line, reason }
            }
            other => Self::returned(first_line(&other.to_string())),
        }
    }
}

impl From<ScriptError> for InvalidScript {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::Line { line, reason } => Self::Line { line, reason },
            other => Self::Line { line: None, reason: other.to_string() },
        }
    }
}

/// The line that a message names, and the message without it.
fn line_and_reason(message: &str) -> (Option<u32>, String) {
    let message = first_line(message);
    let prefix = format!("{CHUNK_NAME}:");
    let named = message.strip_prefix(&prefix).and_then(|rest| rest.split_once(": "));
    match named.and_then(|(line, reason)| Some((line.parse().ok()?, reason))) {
        Some((line, reason)) => (Some(line), reason.to_owned()),
        None => (None, message.to_owned()),
    }
}

/// The line of the script that is named first in a traceback.
fn line_of_traceback(traceback: &str) -> Option<u32> {
    let prefix = format!("{CHUNK_NAME}:");
    let named = traceback.lines().find_map(|line| line.trim_start().strip_prefix(&prefix))?;
    named.split(':').next()?.parse().ok()
}

/// A message without a traceback, and not too long.
fn first_line(message: &str) -> String {
    let message = message.split("\nstack traceback:").next().unwrap_or_default();
    let end =
        (0..=REASON_BYTES_MAX.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
    message[..end.unwrap_or(0)].to_owned()
}

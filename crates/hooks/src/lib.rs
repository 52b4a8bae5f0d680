//! Scripts in a sandbox: what becomes of a message that is published, or that has failed. A [`Script`] is compiled once
//! and runs one message after the other; it keeps nothing between two of them, reads no clock, no file and no random
//! number, and is ended when it exceeds its budget of instructions, time or memory.
//!
//! This crate knows messages, and no topic, socket or engine. What a script returns is checked here
//! (`decision`) and becomes a change of the message (`rewrite`); the broker writes that into its log, so that
//! nobody has to run the script again.
//!
//! In reading order: the `script`, the `sandbox` that it runs in with its `prelude.lua`, the `budget`, the `pattern`
//! functions, the `decision`, the `rewrite`.

mod budget;
mod decision;
mod pattern;
mod rewrite;
mod sandbox;
mod script;
mod script_error;
mod subject;

pub use decision::{FailureDecision, PublishDecision};
pub use rewrite::{RewriteError, TopicHeaders, rewrite};
pub use script::Script;
pub use script_error::{InvalidScript, ScriptError};
pub use subject::{Failure, Settings};

//! How far a schedule has come: which ticks are done with, and the message of the last. It decides nothing.

use serde::{Deserialize, Serialize};

/// How far a schedule has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleState {
    /// The producer under which its ticks are published: a random number, given when it is made.
    pub(crate) producer: u64,
    /// All ticks up to this time are done with.
    pub(crate) handled_ms: u64,
    pub(crate) is_paused: bool,
    /// The last message that was published for it.
    pub(crate) last: Option<LastMessage>,
    pub(crate) published: u64,
    /// Ticks that were left out while an earlier message was at work, or because they could not be published.
    pub(crate) left_out: u64,
    /// Why the last tick could not be published.
    pub(crate) failure: Option<String>,
}

/// A message that was published for a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastMessage {
    pub(crate) tick_ms: u64,
    pub(crate) topic: u32,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

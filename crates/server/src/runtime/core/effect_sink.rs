//! The way from a core to a session that lives on it, whatever protocol the session speaks.

use std::fmt;

use sennit_engine::{Command, Effect};

use crate::runtime::{
    index::ShardIndex,
    placement::Placement,
    session_takeover::{Ended, SessionToken},
};

/// Where the effects for a session go: its door makes answers of them.
pub(crate) trait EffectSink: fmt::Debug {
    /// Takes an effect that is for the session. Returns what the session asks of shards because of it: each
    /// command with its shard.
    fn take(&self, effect: Effect, placement: &Placement) -> Vec<(ShardIndex, Command)>;

    /// The token by which its client may replace it on another connection; none before it is greeted.
    fn token(&self) -> Option<SessionToken>;

    /// From now on that is its token.
    fn set_token(&self, token: SessionToken);

    /// Its client is here on another connection: the session is to end, and to say so.
    fn replaced(&self, ended: Ended);

    /// The broker stops: the client is told.
    fn say_goodbye(&self);

    /// Whether the client has taken all that is for it.
    fn has_sent_all(&self) -> bool;
}

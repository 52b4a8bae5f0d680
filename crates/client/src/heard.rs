//! What the connection task tells one who watches for topics. It knows neither.

use sennit_protocol::control::WatchedTopic;

/// What a watch hears.
pub(crate) enum Heard {
    /// All topics there are: at the beginning, and on every later connection.
    All(Vec<WatchedTopic>),
    /// One more.
    Appeared(WatchedTopic),
    /// One less.
    Gone(WatchedTopic),
}

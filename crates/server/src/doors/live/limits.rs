//! The limits and times of live connections. docs/reference/live.md describes each of them; a refusal names the limit
//! that was reached.

use std::time::Duration;

/// Longest message of a client, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Commands that one message may hold.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// Subscriptions of one connection.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 128;

/// Frames that wait in the ring of a topic, in bytes. Readers that fall behind them go on from the log.
pub(crate) const RING_BYTES_MAX: usize = 4 << 20;

/// The same of all topics of a core together; then each ring keeps [`RING_SHARE_BYTES`] only.
pub(crate) const RINGS_BYTES_MAX: usize = 256 << 20;

/// Bytes that a ring may always hold.
pub(crate) const RING_SHARE_BYTES: usize = 64 << 10;

/// Replies and catching up that wait for the socket of one connection, in bytes. Beyond, its commands are not read.
pub(crate) const UNSENT_BYTES_MAX: usize = 256 << 10;

/// Publications of a client that are not confirmed. Beyond, its commands are not read.
pub(crate) const PUBLISHES_MAX: usize = 256;

/// How long a client may take to say who it is.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a client is asked whether it is there, and how long it may take to say so.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(25);
pub(crate) const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take nothing of what waits for it.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

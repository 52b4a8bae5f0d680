//! The limits and times of live connections. docs/reference/live.md describes each of them; a refusal names the limit
//! that was reached.

use std::time::Duration;

/// Longest message of a client, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Commands that one message may hold.
pub(crate) const COMMANDS_MAX: usize = 1024;

/// Commands of one client in a second. Beyond, they wait.
pub(crate) const COMMANDS_A_SECOND_MAX: u32 = 10_000;

/// Live connections of one address that have not said who they are.
pub(crate) const GREETINGS_PER_ADDRESS_MAX: usize = 512;

/// Subscriptions of one connection.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 128;

/// Frames that wait in the ring of a topic, in bytes. Readers that fall behind them go on from the log.
pub(crate) const RING_BYTES_MAX: usize = 4 << 20;

/// The same of all topics of a core together; then each ring keeps [`RING_SHARE_BYTES`] only.
pub(crate) const RINGS_BYTES_MAX: usize = 256 << 20;

/// Bytes that a ring may always hold.
pub(crate) const RING_SHARE_BYTES: usize = 64 << 10;

/// The ring of a topic that conflates, in bytes, while somebody is behind. Those that fall behind it get the newest message of each key.
pub(crate) const CONFLATED_RING_BYTES: usize = 256 << 10;

/// Keys of a topic whose newest message is held for those who are behind, and their bytes. Who needs more reads the log.
pub(crate) const CONFLATED_KEYS_MAX: usize = 64 << 10;
pub(crate) const CONFLATED_BYTES_MAX: usize = 16 << 20;

/// Replies and catching up that wait for the socket of one connection, in bytes. Beyond, its commands are not read.
pub(crate) const UNSENT_BYTES_MAX: usize = 256 << 10;

/// Publications of a client that are not confirmed. Beyond, its commands are not read.
pub(crate) const PUBLISHES_MAX: usize = 256;

/// Publications of a history, and their bytes in memory.
pub(crate) const HISTORY_MAX: usize = 1000;
pub(crate) const HISTORY_BYTES_MAX: usize = 1 << 20;

/// Data that a client says of its subscription, in bytes.
pub(crate) const PRESENCE_DATA_BYTES_MAX: usize = 4 << 10;

/// Clients that an answer names.
pub(crate) const PRESENCE_MAX: usize = 5000;

/// Clients of a topic who are told at once who comes and goes. Where more are told, it is every half second.
pub(crate) const TOLD_AT_ONCE_MAX: usize = 64;

/// Pushes of a topic about who comes and goes, at once or in half a second. The rest is told later.
pub(crate) const PRESENCE_PUSHES_MAX: usize = 50_000;

/// Of those, for each client.
pub(crate) const PRESENCE_CHANGES_MAX: usize = 256;

/// An answer of the application, in bytes.
pub(crate) const BACKEND_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Requests of a core to the application at once. The others wait.
pub(crate) const BACKEND_REQUESTS_MAX: usize = 64;

/// How long after it has not answered an application is asked again whether a client may stay.
pub(crate) const BACKEND_ASKED_AGAIN: Duration = Duration::from_secs(2);

/// Clients of all brokers that a topic's presence knows; those of others beyond are left out.
pub(crate) const RELAY_MEMBERS_MAX: usize = 1 << 20;

/// Messages about presence that wait until Redis takes them. Beyond, all is told anew.
pub(crate) const RELAY_UNTOLD_MAX: usize = 1 << 17;

/// News of another broker that wait for what is missing before them, in bytes of each topic. Beyond, they are sent again.
pub(crate) const RELAY_HELD_BYTES_MAX: usize = 4 << 20;

/// Topics of other brokers of which this one knows how far it has them.
pub(crate) const RELAY_ORIGINS_MAX: usize = 1 << 17;

/// Readers that send other brokers again what they have missed. Beyond, a broker asks again.
pub(crate) const RELAY_REPEATS_MAX: usize = 256;

/// Messages that are published to Redis in one go.
pub(crate) const RELAY_TOGETHER_MAX: usize = 64;

/// Messages that wait for Redis, and that have come from it and are not taken.
pub(crate) const RELAY_UNSENT_MAX: usize = 256;
pub(crate) const RELAY_UNREAD_MAX: usize = 4096;

/// The window of the reader of a topic whose messages go to other brokers.
pub(crate) const RELAY_MESSAGES: u32 = 1024;
pub(crate) const RELAY_BYTES: u64 = 256 << 10;

/// How long a topic is followed for others to come back, once nobody is subscribed any more.
pub(crate) const RELAY_LINGER: Duration = Duration::from_secs(300);

/// How long a subscription waits for Redis to say that its topic is followed.
pub(crate) const RELAY_PATIENCE: Duration = Duration::from_secs(2);

/// Messages that a subscription to a group may have which are not settled, unless its client says how many; and the most that it may
/// say.
pub(crate) const GROUP_WINDOW: u32 = 16;
pub(crate) const GROUP_WINDOW_MAX: u32 = 4096;

/// Bytes of the same, of all partitions. One message may be larger.
pub(crate) const GROUP_WINDOW_BYTES: u64 = 256 << 10;

/// The same of all subscriptions to groups of a core, in bytes: where they are many, a window is smaller.
pub(crate) const GROUP_WINDOWS_BYTES_MAX: u64 = 64 << 20;

/// The smallest such window.
pub(crate) const GROUP_WINDOW_SHARE_BYTES: u64 = 4 << 10;

/// Subscriptions of one connection to groups.
pub(crate) const GROUPS_MAX: usize = 16;

/// Deliveries that are settled by one call.
pub(crate) const SETTLED_AT_ONCE_MAX: usize = 1024;

/// Subscriptions of one connection to patterns.
pub(crate) const PATTERNS_MAX: usize = 8;

/// Topics that a pattern may mean.
pub(crate) const PATTERN_TOPICS_MAX: usize = 1000;

/// Refused subscriptions of which a program is told the reason.
pub(crate) const REFUSALS_TOLD_MAX: usize = 16;

/// Messages to connections that a core has to send yet.
pub(crate) const SENDS_WAITING_MAX: usize = 256;

/// Bytes of the names of channels of a page of connections; the connection beyond them is the last.
pub(crate) const PAGE_CHANNELS_BYTES_MAX: usize = 256 << 10;

/// How long before its credentials expire a client is asked for others.
pub(crate) const REFRESH_BEFORE: Duration = Duration::from_secs(10);

/// How long a client may take to answer a ping.
pub(crate) const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// Topics of which a core remembers that messages are missing.
pub(crate) const GAPS_MAX: usize = 1 << 12;

/// How long a client may take to close its end, once the broker has closed the other.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections of a core that are told in a second that the broker stops, and how long that may take: their clients come back
/// as they are told.
pub(crate) const GOODBYES_A_SECOND: u64 = 2000;
pub(crate) const GOODBYES_MAX: Duration = Duration::from_secs(3);

/// Connections that are served, or written to, before other tasks on the core run.
pub(crate) const CONNECTIONS_AT_ONCE_MAX: usize = 512;

/// The window of the reader of a topic.
pub(crate) const BROADCAST_MESSAGES: u32 = 16 << 10;
pub(crate) const BROADCAST_BYTES: u64 = 1 << 20;

/// The window of a reader that catches up for one subscription.
pub(crate) const CATCH_UP_MESSAGES: u32 = 1024;
pub(crate) const CATCH_UP_BYTES: u64 = 64 << 10;

/// The windows of those that catch up on a core together, in bytes: where they are many, a window is smaller.
pub(crate) const CATCH_UPS_BYTES_MAX: u64 = 64 << 20;

/// The smallest such window.
pub(crate) const CATCH_UP_SHARE_BYTES: u64 = 4 << 10;

/// Bytes that wait in the answer of a connection without a WebSocket, beside those that its socket has not taken.
pub(crate) const PIPE_BYTES_MAX: usize = 64 << 10;

/// Messages of such a client that wait until what it asked before is done, in bytes. Beyond, they are refused.
pub(crate) const WAITING_BYTES_MAX: usize = 1 << 20;

/// What each of them counts besides.
pub(crate) const WAITING_MESSAGE_BYTES: usize = 64;

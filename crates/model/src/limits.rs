//! Every limit a user can run into, with its reason. A refusal that a limit causes names it.

use std::time::Duration;

/// Longest name of a topic or group, in bytes. Names appear in paths, metrics and URLs.
pub const NAME_BYTES_MAX: usize = 200;

/// Longest key, in bytes. A key routes; it is not a payload.
pub const KEY_BYTES_MAX: usize = 4096;

/// Longest encoded headers of one message as published, in bytes: the field that holds the length
/// has 16 bits, and the broker may add its own.
pub const HEADERS_BYTES_MAX: usize = 65_535 - BROKER_HEADERS_BYTES_MAX;

/// Longest headers that the broker adds to a message, in bytes: those of a dead letter. A message
/// and a batch may be longer by this when they are delivered than when they were published.
pub const BROKER_HEADERS_BYTES_MAX: usize = 2048;

/// Longest message, encoded, in bytes. Larger things belong in an object store.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Longest batch of messages, encoded, in bytes. A batch is one journal record.
pub const BATCH_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Most messages in a batch.
pub const BATCH_MESSAGES_MAX: usize = 16_384;

/// Longest append to a stream over HTTP, encoded, in bytes: a body of 16 MiB, and a little. It is one journal
/// record, or, of more than [`BATCH_MESSAGES_MAX`] messages, several in one frame.
pub const APPEND_BYTES_MAX: usize = 18 << 20;

/// Most appends that are done together. All of them, encoded, are at most [`APPEND_BYTES_MAX`]: they
/// lie in one frame of the journal.
pub const ATOMIC_APPENDS_MAX: usize = 64;

/// Longest content type of a stream, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Longest id of a producer of a stream, in bytes.
pub const STREAM_PRODUCER_BYTES_MAX: usize = 256;

/// Longest sequence that an append to a stream may carry, in bytes.
pub const STREAM_SEQUENCE_BYTES_MAX: usize = 256;

/// Most producers that a stream remembers; the one that was silent longest is forgotten first.
pub const STREAM_PRODUCERS_MAX: usize = 1024;

/// Most forks of one stream.
pub const STREAM_FORKS_MAX: usize = 4096;

/// Largest number that a producer of a stream may give, as JavaScript counts exactly.
pub const STREAM_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Most reads of the streams of one shard that wait for what comes: some 25 MiB of them.
pub const STREAM_READS_WAITING_MAX: usize = 262_144;

/// Largest body of a frame on the wire, in bytes: a full batch and its header.
pub const FRAME_BYTES_MAX: usize = BATCH_BYTES_MAX + 4096;

/// Largest body of a frame before the greeting was accepted, in bytes.
pub const GREETING_BYTES_MAX: usize = 16 << 10;

/// A message without key, headers and payload, in bytes: none is shorter.
pub const MESSAGE_BYTES_MIN: usize = 16;

/// Most ranges of lost messages that a partition tells of; the newest count.
pub const LOST_RANGES_MAX: usize = 64;

/// How many offsets a partition that is not durable reserves ahead: a crash leaves a hole of as many
/// at most, and a batch more.
pub const RESERVED_OFFSETS: u64 = 65_536;

/// Bytes per partition that a topic kept in memory alone keeps, unless its retention says otherwise.
pub const MEMORY_TOPIC_BYTES: u64 = 16 << 20;

/// Bytes that all topics kept in memory alone keep in one shard. Beyond it a publish frees the oldest
/// messages of its own partition, and is refused if that is not enough.
pub const MEMORY_SHARD_BYTES: u64 = 256 << 20;

/// How long records that nobody waits for, acks and ephemeral messages above all, wait for others to
/// share a sync with: what a crash may cost of them.
pub const LAZY_SPAN: Duration = Duration::from_millis(10);

/// Bytes of such records that are worth a sync of their own.
pub const LAZY_BYTES: u64 = 1 << 20;

/// Most partitions of a topic.
pub const PARTITIONS_MAX: u32 = 1024;

/// Most groups of a topic. Each publish is accounted for in each of them.
pub const GROUPS_PER_TOPIC_MAX: usize = 256;

/// Most named cursors of a topic: a checkpoint writes those of a partition in one piece.
pub const CURSORS_PER_TOPIC_MAX: usize = 1024;

/// Most topics of a broker.
pub const TOPICS_MAX: usize = 1_000_000;

/// Most producers a partition remembers; the one that was silent longest is forgotten first.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 4096;

/// Batches per producer and partition whose offsets are remembered, so that a resent batch is
/// answered with its first offset. Also the most batches a client may have unconfirmed there.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 64;

/// Most runs of messages that one settle frame may name.
pub const SETTLE_RUNS_MAX: usize = 8192;

/// Longest reason given with a dead letter, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// Most runs of parked messages that the description of a group shows, with their reasons.
pub const PARKED_SHOWN_MAX: usize = 64;

/// Most groups of a shard that a metric names because they hold messages which other groups are through
/// with.
pub const HOLDING_GROUPS_MAX: usize = 16;

/// Most messages a subscription may hold unsettled.
pub const CREDIT_MESSAGES_MAX: u32 = 1_000_000;

/// Most bytes a subscription may hold unsettled.
pub const CREDIT_BYTES_MAX: u64 = 256 << 20;

/// How far a reader that will not wait may fall behind the newest message, in bytes, once it has come
/// to it: twice the largest window that clients open by themselves.
pub const READER_BEHIND_BYTES_MAX: u64 = 16 << 20;

/// Bytes of messages that may wait until the socket of a connection takes them, whatever its windows are.
/// Beyond that its subscriptions pause, until half of it is gone.
pub const DELIVERIES_WAITING_BYTES_MAX: usize = 64 << 20;

/// Bytes of replies and confirms that may wait until the socket of a connection takes them. Beyond that it is
/// not read.
pub const REPLIES_WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes that may wait for the sockets of all connections of a core together: deliveries, each counted as if it
/// were the connection's own, replies and confirms. Beyond that a connection's subscriptions pause, and it
/// is not read, as soon as more waits for it than its share: this limit divided by the connections, and no
/// more than one write takes.
pub const WAITING_CORE_BYTES_MAX: usize = 1 << 30;

/// Beyond so many bytes no connection of the core is given a delivery, whatever waits for it: shares do not
/// help where each message is as long as many shares.
pub const WAITING_CORE_BYTES_LAST: usize = 2 * WAITING_CORE_BYTES_MAX;

/// Most subscriptions of one connection: whoever reads many topics by pattern has one for each.
pub const SUBSCRIPTIONS_PER_CONNECTION_MAX: usize = 65_536;

/// Most partitions that all subscriptions of one connection take part in: each costs some memory in its
/// shard.
pub const SUBSCRIBED_PARTITIONS_MAX: u64 = 1 << 20;

/// Longest filter, as text in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;

/// Most tests in a filter: each walks a message's headers.
pub const FILTER_TESTS_MAX: usize = 64;

/// Most parentheses and `not` within each other in a filter.
pub const FILTER_DEPTH_MAX: usize = 32;

/// Longest glob pattern in a filter, in bytes: what a byte of a value may cost grows with it.
pub const FILTER_GLOB_BYTES_MAX: usize = 256;

/// Most topics that a pattern may mean for one who watches: each is read with a subscription of its own.
pub const WATCH_TOPICS_MAX: usize = SUBSCRIPTIONS_PER_CONNECTION_MAX;

/// Most watches of one connection.
pub const WATCHES_PER_CONNECTION_MAX: usize = 16;

/// Shortest time that a tombstone is kept: a reader that is right behind still learns of it.
pub const TOMBSTONE_AGE_MIN: Duration = Duration::from_secs(1);

/// How long after what it ended a tombstone goes at the earliest, unless the topic says otherwise.
pub const TOMBSTONE_AGE_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Keys that a pass of compaction has in its table at once, in one shard: 50 MiB of memory while the
/// pass lasts. More keys take several passes.
pub const COMPACTION_KEYS_MAX: usize = 1_800_000;

/// Longest delay, time to live, lease or retention age: a hundred years of milliseconds fit every field.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Shortest lease. A shorter one would expire on the way to the consumer.
pub const LEASE_MIN: Duration = Duration::from_millis(100);

/// Longest lease: after this a message returns whatever its consumer says.
pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);

/// Lease of a group that names none.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Attempts after which a group that names no number gives a message to the dead-letter topic.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 20;

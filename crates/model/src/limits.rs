//! All limits that a user can reach, with their reasons. A refusal names its limit.

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

/// Most appends in one atomic request. All of them together are at most [`APPEND_BYTES_MAX`],
/// because they share one frame of the journal.
pub const ATOMIC_APPENDS_MAX: usize = 64;

/// Longest content type of a stream, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Longest id of a producer of a stream, in bytes.
pub const STREAM_PRODUCER_BYTES_MAX: usize = 256;

/// Longest sequence that an append to a stream may carry, in bytes.
pub const STREAM_SEQUENCE_BYTES_MAX: usize = 256;

/// Most producers that a stream remembers. The producer that was silent for longest is forgotten
/// first.
pub const STREAM_PRODUCERS_MAX: usize = 1024;

/// Most forks of one stream.
pub const STREAM_FORKS_MAX: usize = 4096;

/// Largest number of a stream's producer: the largest integer that JavaScript represents exactly.
pub const STREAM_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Most waiting reads of the streams of one shard: some 25 MiB.
pub const STREAM_READS_WAITING_MAX: usize = 262_144;

/// Largest body of a frame on the wire, in bytes: a full batch and its header.
pub const FRAME_BYTES_MAX: usize = BATCH_BYTES_MAX + 4096;

/// Largest body of a frame before the greeting was accepted, in bytes.
pub const GREETING_BYTES_MAX: usize = 16 << 10;

/// Size of a message without key, headers and payload, in bytes.
pub const MESSAGE_BYTES_MIN: usize = 16;

/// Most ranges of lost messages that a partition remembers; it forgets the oldest first.
pub const LOST_RANGES_MAX: usize = 64;

/// Offsets that a partition which is not durable reserves ahead. A crash skips at most as many, and
/// those of one batch.
pub const RESERVED_OFFSETS: u64 = 65_536;

/// Bytes that a partition of a memory topic keeps, unless its retention says otherwise.
pub const MEMORY_TOPIC_BYTES: u64 = 16 << 20;

/// Bytes that all memory topics of one shard keep together. Beyond it a publish frees the oldest
/// messages of its own partition, and is refused if that does not suffice.
pub const MEMORY_SHARD_BYTES: u64 = 256 << 20;

/// Time for which records without a waiter, mostly acks and ephemeral messages, wait for others to
/// share a sync with. A crash loses at most this much of them.
pub const LAZY_SPAN: Duration = Duration::from_millis(10);

/// Bytes of such records that cause a sync of their own.
pub const LAZY_BYTES: u64 = 1 << 20;

/// Most partitions of a topic.
pub const PARTITIONS_MAX: u32 = 1024;

/// Most groups of a topic. Each publish is accounted for in each of them.
pub const GROUPS_PER_TOPIC_MAX: usize = 256;

/// Most named cursors of a topic: a checkpoint writes those of a partition in one piece.
pub const CURSORS_PER_TOPIC_MAX: usize = 1024;

/// Most topics of a broker.
pub const TOPICS_MAX: usize = 1_000_000;

/// Most producers that a partition remembers. The producer that was silent for longest is forgotten
/// first.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 4096;

/// Batches per producer and partition whose offsets are remembered, so that the broker answers a
/// resent batch with its first offset. It is also the maximum of a client's unconfirmed batches
/// there.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 64;

/// Longest name of the header by which a topic finds duplicates, in bytes.
pub const DEDUP_HEADER_BYTES_MAX: usize = 64;

/// Longest time for which a partition remembers a deduplication value.
pub const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Most deduplication values that a partition remembers: some 75 MiB. A publish that needs more is
/// refused until the oldest leave the window, so that no duplicate slips through.
pub const DEDUP_VALUES_MAX: usize = 1 << 20;

/// Most runs of messages that one settle frame may name.
pub const SETTLE_RUNS_MAX: usize = 8192;

/// Most batches in an atomic publish.
pub const ATOMIC_PARTS_MAX: usize = 64;

/// Most pairs of a topic and a group whose deliveries an atomic publish acks.
pub const ATOMIC_ACKS_MAX: usize = 64;

/// Longest reason given with a dead letter, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// Most runs of parked messages in the description of a group, with their reasons.
pub const PARKED_SHOWN_MAX: usize = 64;

/// Most groups of a shard that a metric names because they hold messages which other groups have
/// settled.
pub const HOLDING_GROUPS_MAX: usize = 16;

/// Most groups of a shard that metrics name: those with the most messages.
pub const GROUPS_NAMED_MAX: usize = 1000;

/// Most of these of which metrics name fair keys, and how many keys of each partition of one.
pub const GROUPS_WITH_NAMED_KEYS_MAX: usize = 100;

/// Most fair keys that metrics name of a group in a partition.
pub const KEYS_NAMED_MAX: usize = 10;

/// Most messages that one request of the workbench examines: a core does a page at a time.
pub const WORKBENCH_EXAMINED_MAX: u64 = 4096;

/// Most messages that one request of the workbench shows.
pub const WORKBENCH_SHOWN_MAX: u64 = 1000;

/// Bytes of messages after which a page of the workbench ends, and a record that publishes messages again.
pub const WORKBENCH_PAGE_BYTES: usize = 1 << 20;

/// Most bytes of each payload that a page of the workbench shows.
pub const WORKBENCH_PAYLOAD_BYTES_MAX: u32 = 1 << 20;

/// Most ranges of offsets in one request of the workbench.
pub const WORKBENCH_RANGES_MAX: usize = 256;

/// Longest text that the workbench looks for in a payload, a reason or a fair key, in bytes.
pub const WORKBENCH_TEXT_BYTES_MAX: usize = 1024;

/// Most rows of a count of one page; the messages of the others are counted together.
pub const WORKBENCH_ROWS_MAX: usize = 1024;

/// Most requests of the workbench that wait in one shard for messages on the disk.
pub const WORKBENCH_WALKS_WAITING_MAX: usize = 256;

/// Most messages a subscription may hold unsettled.
pub const CREDIT_MESSAGES_MAX: u32 = 1_000_000;

/// Most bytes a subscription may hold unsettled.
pub const CREDIT_BYTES_MAX: u64 = 256 << 20;

/// Bytes by which a reader with `skip` or `disconnect` may fall behind the newest message once it
/// has reached it: twice the largest default window of a client.
pub const READER_BEHIND_BYTES_MAX: u64 = 16 << 20;

/// Bytes of deliveries that may wait for the socket of a connection, whatever its windows are.
/// Beyond that its subscriptions pause until half of them are sent.
pub const DELIVERIES_WAITING_BYTES_MAX: usize = 64 << 20;

/// Bytes of replies and confirms that may wait for the socket of a connection. Beyond that the
/// broker stops reading from it.
pub const REPLIES_WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes that may wait for the sockets of all connections of a core: deliveries, replies and
/// confirms; shared deliveries count for each connection. Beyond that the core pauses the
/// subscriptions of a connection and stops reading from it as soon as more waits for it than its
/// share: this limit divided by the number of connections, and at most the size of one write.
pub const WAITING_CORE_BYTES_MAX: usize = 1 << 30;

/// Bytes beyond which no connection of the core gets a delivery at all. Shares do not help if each
/// message is as long as many shares.
pub const WAITING_CORE_BYTES_LAST: usize = 2 * WAITING_CORE_BYTES_MAX;

/// Most subscriptions of one connection. A pattern reader has one for each topic.
pub const SUBSCRIPTIONS_PER_CONNECTION_MAX: usize = 65_536;

/// Most partitions of all subscriptions of one connection. Each costs some memory in its shard.
pub const SUBSCRIBED_PARTITIONS_MAX: u64 = 1 << 20;

/// Longest filter, as text in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;

/// Most tests in a filter. Each of them iterates over a message's headers.
pub const FILTER_TESTS_MAX: usize = 64;

/// Deepest nesting of parentheses and `not` in a filter.
pub const FILTER_DEPTH_MAX: usize = 32;

/// Longest glob pattern in a filter, in bytes. The cost for each byte of a value grows with it.
pub const FILTER_GLOB_BYTES_MAX: usize = 256;

/// Most topics that may match the pattern of a watch. Each is read with a subscription of its own.
pub const WATCH_TOPICS_MAX: usize = SUBSCRIPTIONS_PER_CONNECTION_MAX;

/// Most watches of one connection.
pub const WATCHES_PER_CONNECTION_MAX: usize = 16;

/// Shortest time for which a tombstone is kept, so that a reader close to the end still sees it.
pub const TOMBSTONE_AGE_MIN: Duration = Duration::from_secs(1);

/// Default for the shortest time between the messages that a tombstone ended and its removal.
pub const TOMBSTONE_AGE_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Keys in the table of a compaction pass, in one shard: 50 MiB of memory during the pass. More
/// keys take several passes.
pub const COMPACTION_KEYS_MAX: usize = 1_800_000;

/// Longest delay, time to live, lease or retention age: a hundred years of milliseconds fit every field.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Shortest lease. A shorter one would expire on the way to the consumer.
pub const LEASE_MIN: Duration = Duration::from_millis(100);

/// Longest lease. After this time a message returns to its group in any case.
pub const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);

/// Default lease of a group.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Shortest delay of a retry policy: the unit of all times.
pub const RETRY_DELAY_MIN: Duration = Duration::from_millis(1);

/// Most delays in the list of a retry policy; the last one repeats.
pub const RETRY_DELAYS_MAX: usize = 16;

/// Most jitter of a retry policy, in percent of the delay. More would make delays negative.
pub const JITTER_PERCENT_MAX: u8 = 100;

/// Default for the number of failed attempts after which a message goes to the dead-letter topic.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 20;

/// Longest pattern of a throttle rule, in bytes: as long as a key of the configuration leaves it.
pub const THROTTLE_PATTERN_BYTES_MAX: usize = 247;

/// Longest time that the bucket of a throttle may take to fill. Its burst times its interval fits every field.
pub const THROTTLE_FILL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Longest name of a header that a topic's configuration names, in bytes.
pub const FIELD_NAME_BYTES_MAX: usize = 64;

/// Longest fair key, in bytes. A longer value is cut to it.
pub const FAIR_KEY_BYTES_MAX: usize = 256;

/// Fair keys that a listing has unless it asks for another number.
pub const FAIR_KEYS_LISTED_DEFAULT: usize = 20;

/// Most fair keys that a listing may have. One with many reasons fits a frame.
pub const FAIR_KEYS_LISTED_MAX: usize = 1000;

/// Most fair keys of all partitions of a topic together that are looked at for a listing: of more than 65 partitions
/// each tells fewer than a listing may have.
pub const FAIR_KEYS_GATHERED_MAX: usize = 65_536;

/// Most throttle keys of a message; the others of a header that names more are ignored.
pub const THROTTLE_KEYS_MAX: usize = 8;

/// Highest weight of a fair key. A lower share than 1 in this many is a limit, not a weight.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// Most rules for keys in a group. A pattern covers any number of keys with one.
pub const KEY_RULES_MAX: usize = 256;

/// Most messages of a fair key that consumers may be allowed to hold at once.
pub const KEY_CONCURRENCY_MAX: u32 = 1_000_000;

/// Highest cost of a message, in messages of cost 1.
pub const COST_MAX: u32 = 1_000_000;

/// Runs of delayed messages that a page of a listing has unless it asks for another number.
pub const DELAYED_LISTED_DEFAULT: usize = 100;

/// Most runs of delayed messages on a page of a listing.
pub const DELAYED_LISTED_MAX: usize = 1000;

/// Most messages whose delay one request may cancel or change.
pub const DELAYED_CHANGED_MAX: usize = 1000;

/// Most recurring schedules of a broker. All of them are in memory of the first core.
pub const SCHEDULES_MAX: usize = 10_000;

/// Longest settings of a schedule, in bytes: payload, headers and the rest.
pub const SCHEDULE_BYTES_MAX: usize = 64 << 10;

/// Bytes of the settings of all schedules together.
pub const SCHEDULES_BYTES_MAX: usize = 64 << 20;

/// Most schedules on a page of a listing.
pub const SCHEDULES_LISTED_MAX: usize = 100;

/// Most ticks that a schedule publishes which it has missed: the last of them.
pub const CATCH_UP_TICKS_MAX: usize = 1000;

/// Longest cron pattern, in bytes.
pub const CRON_BYTES_MAX: usize = 256;

/// Most throttle rules of a broker. Each shard has all of them.
pub const THROTTLE_RULES_MAX: usize = 10_000;

/// Throttle keys, of all topics together, that have a bucket each. Of those beyond them, which are new or were long
/// without a message, the keys of one rule share one.
pub const THROTTLE_BUCKETS_MAX: usize = 1_000_000;

/// Most ready messages of a partition's group that are counted by key for a listing, or searched for a key: the
/// oldest ones.
pub const READY_COUNTED_MAX: u64 = 250_000;

/// Longest key of the configuration, in bytes.
pub const CONFIGURATION_KEY_BYTES_MAX: usize = 256;

/// Longest value of the configuration, in bytes. Larger things belong in an object store.
pub const CONFIGURATION_VALUE_BYTES_MAX: usize = 64 << 10;

/// Most entries of the configuration. All of it is in memory.
pub const CONFIGURATION_ENTRIES_MAX: usize = 100_000;

/// Bytes of all keys and values of the configuration together.
pub const CONFIGURATION_BYTES_MAX: usize = 64 << 20;

/// Bytes of keys and values of changes of the configuration that may wait for the disk. Beyond that they are
/// refused.
pub const CONFIGURATION_WAITING_BYTES_MAX: usize = 16 << 20;

/// Changes of the configuration that each core remembers for those who watch it. A watch that is further behind
/// is told all entries anew.
pub const CONFIGURATION_HISTORY_CHANGES: usize = 4096;

/// Bytes of keys and values that these changes may have.
pub const CONFIGURATION_HISTORY_BYTES: usize = 8 << 20;

/// Longest script of a hook, in bytes.
pub const HOOK_SCRIPT_BYTES_MAX: usize = 32 << 10;

/// Most instructions of the script of a hook for one message. Steps of patterns and of functions that go over long
/// texts count too.
pub const HOOK_INSTRUCTIONS_MAX: u64 = 100_000;

/// Longest time that the script of a hook computes for one message.
pub const HOOK_TIME_MAX: Duration = Duration::from_millis(10);

/// Memory of a hook on one core, in bytes: its script, its library, and what it makes for a message.
pub const HOOK_MEMORY_BYTES_MAX: usize = 512 << 10;

/// Most bytes of a payload that the script of a hook gets at once.
pub const HOOK_PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Longest pattern of a string function in the script of a hook, in bytes.
pub const HOOK_PATTERN_BYTES_MAX: usize = 256;

/// Most headers that a hook may set or remove in one message.
pub const HOOK_HEADERS_MAX: usize = 64;

/// Longest note with a version of a hook, in bytes.
pub const HOOK_NOTE_BYTES_MAX: usize = 256;

/// Most topics with a hook. Each core keeps the script of each.
pub const HOOKS_MAX: usize = 1000;

/// Versions of a hook's script that are kept; the oldest that is not in use goes first.
pub const HOOK_VERSIONS_MAX: usize = 16;

/// Failures of a hook's script, one after the other, after which it is not run for a while.
pub const HOOK_FAILURES_MAX: u32 = 5;

/// Time for which a hook is not run after too many failures.
pub const HOOK_REST: Duration = Duration::from_secs(10);

/// Longest time for which a failed message waits for its hook's decision. Then the retry policy decides.
pub const FAILURE_DECISION_MAX: Duration = Duration::from_secs(5);

/// Most failed messages of a group that a hook is asked about at once; others wait for their turn.
pub const FAILURES_ASKED_MAX: usize = 64;

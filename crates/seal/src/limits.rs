//! The limits of sealed messages and of files of keys. docs/reference/sealed-messages.md describes each of them.

/// Most recipients of a message.
pub const RECIPIENTS_MAX: usize = 64;

/// Most keys of a ring.
pub const KEYS_MAX: usize = 1024;

/// The longest file of keys, in bytes.
pub const KEY_FILE_BYTES_MAX: usize = 1 << 20;

/// The longest name of a topic that a message can be bound to, in bytes.
pub const TOPIC_BYTES_MAX: usize = u16::MAX as usize;

/// How far the clock of a sender may be ahead of a receiver's, in milliseconds.
pub const CLOCK_SKEW_MAX_MS: u64 = 60_000;

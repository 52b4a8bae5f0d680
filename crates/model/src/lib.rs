//! The terms of the glossary as types: names, offsets, times, limits and messages.
//!
//! This crate knows no socket, no file and no queue. It owns one byte layout, the [`Batch`]: messages keep this
//! form on their way from the publisher's socket through the journal to the consumer
//! (docs/decisions/0002-one-batch-layout.md).

mod batch;
mod config;
mod config_error;
mod configuration_key;
mod dedup;
mod durability;
mod field_values;
mod filter;
mod header;
mod id;
mod key_rule;
pub mod limits;
mod live_settings;
mod message;
mod message_change;
mod message_fields;
mod name;
mod offset;
mod order;
mod pattern;
mod read_from;
mod retry_policy;
mod schedule;
mod throttle_rule;
mod time;
mod topic_limit;
mod when_slow;

pub use batch::{Batch, BatchBuilder, BatchError, Messages};
pub use config::{GroupChange, GroupConfig, Retention, StartAt, TopicConfig, TopicKind};
pub use config_error::ConfigError;
pub use configuration_key::{
    ConfigurationKey, ConfigurationKeyError, HOOK_KEY_PREFIX, IDENTITY_KEY_PREFIX,
    THROTTLE_KEY_PREFIX,
};
pub use dedup::{Dedup, DedupHeader, DedupMode};
pub use durability::{Durability, DurabilityError};
pub use field_values::{FieldValues, MissingHeader};
pub use filter::{Filter, FilterError};
pub use header::{Header, HeaderError, HeaderKind, Headers, encode_headers};
pub use id::{
    Generation, GroupId, Incarnation, PartitionId, PartitionIndex, ProducerId, ProducerStamp,
    TopicId,
};
pub use key_rule::{KeyRule, KeyRules};
pub use live_settings::{LiveSettings, WhenBehind};
pub use message::{Message, MessageView};
pub use message_change::{HeaderChange, MessageChange};
pub use message_fields::{Class, ClassRef, Cost, HeaderName, MESSAGE_KEY, MessageFields, Priority};
pub use name::{
    CursorName, DEAD_LETTER_SHARED_BYTES, DEAD_LETTER_SUFFIX, GroupName, NameError, ScheduleName,
    TopicName,
};
pub use offset::{Offset, OffsetRange};
pub use order::Order;
pub use pattern::{PatternError, TopicPattern};
pub use read_from::ReadFrom;
pub use retry_policy::{Backoff, RetryDelays, RetryPolicy};
pub use schedule::{CatchUp, Overlap};
pub use throttle_rule::{ThrottleError, ThrottlePattern, ThrottleRate, ThrottleRule};
pub use time::Timestamp;
pub use topic_limit::{TopicLimit, WhenFull};
pub use when_slow::WhenSlow;

//! Settings as the schema spells them, to and from settings as the model trusts them: parsed and
//! checked here, at the rim, and nowhere after.

use std::time::Duration;

use sennit_model::{
    ConfigError, Durability, GroupConfig, Offset, ReadFrom, Retention, StartAt, Timestamp,
    TopicConfig, TopicKind, WhenSlow,
    limits::{
        BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, FRAME_BYTES_MAX, GREETING_BYTES_MAX,
        MESSAGE_BYTES_MAX, TOMBSTONE_AGE_DEFAULT,
    },
};

use crate::control::{self, read_from, start_at::At};

/// The largest frame body of a connection, in bytes, where the client `wanted` that much: 0 stands
/// for the most there is, and less than the greeting's limit is not granted.
#[must_use]
pub fn negotiated_frame_bytes_max(wanted: u32) -> usize {
    match wanted as usize {
        0 => FRAME_BYTES_MAX,
        wanted => wanted.clamp(GREETING_BYTES_MAX, FRAME_BYTES_MAX),
    }
}

/// The short name of a topic's settings, as descriptions carry it.
#[must_use]
pub fn topic_kind(config: &TopicConfig) -> control::TopicKind {
    match config.kind() {
        TopicKind::Queue => control::TopicKind::Queue,
        TopicKind::Stream => control::TopicKind::Stream,
    }
}

impl control::Limits {
    /// The limits of this version, with the largest frame body that was negotiated, in bytes.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        let field = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            frame_bytes_max: field(frame_bytes_max),
            batch_messages_max: field(BATCH_MESSAGES_MAX),
            batch_bytes_max: field(BATCH_BYTES_MAX),
            message_bytes_max: field(MESSAGE_BYTES_MAX),
        }
    }
}

impl TryFrom<&control::TopicConfig> for TopicConfig {
    type Error = ConfigError;

    fn try_from(given: &control::TopicConfig) -> Result<Self, ConfigError> {
        let retention =
            given.retention.as_ref().map_or(Retention::UNTIL_SETTLED, |given| Retention {
                until_settled: given.until_settled,
                age: given.age_ms.map(Duration::from_millis),
                bytes: given.bytes,
                count: given.count,
                latest_per_key: given.latest_per_key.then(|| {
                    given.tombstone_age_ms.map_or(TOMBSTONE_AGE_DEFAULT, Duration::from_millis)
                }),
            });
        let config = Self {
            partitions: given.partitions.unwrap_or(1),
            retention,
            time_to_live: given.time_to_live_ms.map(Duration::from_millis),
            durability: durability(given.durability)?,
        };
        config.check()?;
        Ok(config)
    }
}

impl From<&TopicConfig> for control::TopicConfig {
    fn from(config: &TopicConfig) -> Self {
        Self {
            partitions: Some(config.partitions),
            retention: Some(control::Retention {
                until_settled: config.retention.until_settled,
                age_ms: config.retention.age.map(ms),
                bytes: config.retention.bytes,
                count: config.retention.count,
                latest_per_key: config.retention.latest_per_key.is_some(),
                tombstone_age_ms: config.retention.latest_per_key.map(ms),
            }),
            time_to_live_ms: config.time_to_live.map(ms),
            durability: config.durability.number().into(),
        }
    }
}

impl TryFrom<&control::GroupConfig> for GroupConfig {
    type Error = ConfigError;

    fn try_from(given: &control::GroupConfig) -> Result<Self, ConfigError> {
        let default = Self::default();
        let config = Self {
            lease: given.lease_ms.map_or(default.lease, Duration::from_millis),
            attempts_max: given.attempts_max.unwrap_or(default.attempts_max),
        };
        config.check()?;
        Ok(config)
    }
}

impl From<&GroupConfig> for control::GroupConfig {
    fn from(config: &GroupConfig) -> Self {
        Self { lease_ms: Some(ms(config.lease)), attempts_max: Some(config.attempts_max) }
    }
}

impl From<&control::StartAt> for StartAt {
    fn from(given: &control::StartAt) -> Self {
        match given.at {
            None | Some(At::Earliest(_)) => Self::Earliest,
            Some(At::Latest(_)) => Self::Latest,
            Some(At::Offset(offset)) => Self::Offset(Offset(offset)),
        }
    }
}

impl From<StartAt> for control::StartAt {
    fn from(start: StartAt) -> Self {
        let at = match start {
            StartAt::Earliest => At::Earliest(true),
            StartAt::Latest => At::Latest(true),
            StartAt::Offset(offset) => At::Offset(offset.0),
        };
        Self { at: Some(at) }
    }
}

impl control::CreateTopic {
    /// Its settings, checked; those of a queue where it names none.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn topic_config(&self) -> Result<TopicConfig, ConfigError> {
        TopicConfig::try_from(&self.config.unwrap_or_default())
    }
}

impl control::AlterTopic {
    /// Its settings, checked; those of a queue where it names none.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn topic_config(&self) -> Result<TopicConfig, ConfigError> {
        TopicConfig::try_from(&self.config.unwrap_or_default())
    }
}

impl control::CreateGroup {
    /// Its settings, checked; the defaults where it names none.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn group_config(&self) -> Result<GroupConfig, ConfigError> {
        GroupConfig::try_from(&self.config.unwrap_or_default())
    }

    /// Where the group begins; at the earliest where it does not say.
    #[must_use]
    pub fn start_at(&self) -> StartAt {
        self.start.as_ref().map(StartAt::from).unwrap_or_default()
    }
}

impl control::AlterGroup {
    /// The settings of the group with those that it names replaced, checked.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn over(&self, held: GroupConfig) -> Result<GroupConfig, ConfigError> {
        let given = self.config.unwrap_or_default();
        let config = GroupConfig {
            lease: given.lease_ms.map_or(held.lease, Duration::from_millis),
            attempts_max: given.attempts_max.unwrap_or(held.attempts_max),
        };
        config.check()?;
        Ok(config)
    }
}

impl control::Read {
    /// Where the reader begins, in partitions of which it says nothing else; at the earliest where
    /// it does not say.
    #[must_use]
    pub fn read_from(&self) -> ReadFrom {
        match self.from.and_then(|from| from.at) {
            None | Some(read_from::At::Earliest(_)) => ReadFrom::Earliest,
            Some(read_from::At::Latest(_)) => ReadFrom::Latest,
            Some(read_from::At::Offset(offset)) => ReadFrom::Offset(Offset(offset)),
            Some(read_from::At::Back(count)) => ReadFrom::Back(count),
            Some(read_from::At::TimeMs(ms)) => ReadFrom::Time(Timestamp(ms)),
        }
    }
}

impl control::Read {
    /// What becomes of the reader if it falls behind; it waits where it says what this version does
    /// not know.
    #[must_use]
    pub fn when_it_is_slow(&self) -> WhenSlow {
        match self.when_slow() {
            control::WhenSlow::Wait => WhenSlow::Wait,
            control::WhenSlow::Skip => WhenSlow::Skip,
            control::WhenSlow::Disconnect => WhenSlow::Disconnect,
        }
    }
}

impl From<WhenSlow> for control::WhenSlow {
    fn from(when_slow: WhenSlow) -> Self {
        match when_slow {
            WhenSlow::Wait => Self::Wait,
            WhenSlow::Skip => Self::Skip,
            WhenSlow::Disconnect => Self::Disconnect,
        }
    }
}

impl From<ReadFrom> for control::ReadFrom {
    fn from(from: ReadFrom) -> Self {
        let at = match from {
            ReadFrom::Earliest => read_from::At::Earliest(true),
            ReadFrom::Latest => read_from::At::Latest(true),
            ReadFrom::Offset(offset) => read_from::At::Offset(offset.0),
            ReadFrom::Back(count) => read_from::At::Back(count),
            ReadFrom::Time(time) => read_from::At::TimeMs(time.0),
        };
        Self { at: Some(at) }
    }
}

/// The durability of this number; durable where none is named.
fn durability(number: i32) -> Result<Durability, ConfigError> {
    let named = u8::try_from(number.max(1)).ok().and_then(Durability::of_number);
    named.ok_or_else(|| ConfigError {
        field: "durability",
        value: number.to_string(),
        allowed: "durable, speculative, ephemeral or memory".to_owned(),
    })
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

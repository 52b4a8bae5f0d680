//! Converts settings between the schema and the model, and checks them. Nothing checks them later.

use std::time::Duration;

use sennit_model::{
    Backoff, ConfigError, Dedup, DedupMode, Durability, GroupChange, GroupConfig, LiveSettings,
    Offset, Order, ReadFrom, Retention, RetryDelays, StartAt, Timestamp, TopicConfig, TopicKind,
    TopicLimit, WhenBehind, WhenFull, WhenSlow,
    limits::{
        BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, FRAME_BYTES_MAX, GREETING_BYTES_MAX,
        MESSAGE_BYTES_MAX, TOMBSTONE_AGE_DEFAULT,
    },
};

use crate::{
    control::{self, read_from, start_at::At},
    scheduling_config::{key_rules, message_fields, throttle_change},
};

/// The largest frame body of a connection in bytes, for a client that asked for `wanted`: 0 asks
/// for the maximum, and the result is at least the greeting's limit.
#[must_use]
pub fn negotiated_frame_bytes_max(wanted: u32) -> usize {
    match wanted as usize {
        0 => FRAME_BYTES_MAX,
        wanted => wanted.clamp(GREETING_BYTES_MAX, FRAME_BYTES_MAX),
    }
}

/// The short name of a topic's settings, for descriptions.
#[must_use]
pub fn topic_kind(config: &TopicConfig) -> control::TopicKind {
    match config.kind() {
        TopicKind::Queue => control::TopicKind::Queue,
        TopicKind::Stream => control::TopicKind::Stream,
    }
}

impl control::Limits {
    /// The limits of this version, with the negotiated maximum of a frame body in bytes.
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

    fn try_from(message: &control::TopicConfig) -> Result<Self, ConfigError> {
        let retention =
            message.retention.as_ref().map_or(Retention::UNTIL_SETTLED, |message| Retention {
                until_settled: message.until_settled,
                age: message.age_ms.map(Duration::from_millis),
                bytes: message.bytes,
                count: message.count,
                latest_per_key: message.latest_per_key.then(|| {
                    message.tombstone_age_ms.map_or(TOMBSTONE_AGE_DEFAULT, Duration::from_millis)
                }),
            });
        let config = Self {
            partitions: message.partitions.unwrap_or(1),
            retention,
            time_to_live: message.time_to_live_ms.map(Duration::from_millis),
            durability: durability(message.durability)?,
            fields: message_fields(message.fields.as_ref())?,
            is_paused: message.paused,
            limit: message.limit.as_ref().map_or(Ok(TopicLimit::default()), topic_limit)?,
            dedup: message.dedup.as_ref().map(dedup).transpose()?,
            live: message.live.as_ref().map_or(Ok(LiveSettings::default()), live_settings)?,
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
            fields: config.fields.as_deref().map(control::MessageFields::from),
            paused: config.is_paused,
            limit: config.limit.is_set().then(|| limit_message(&config.limit)),
            dedup: config.dedup.as_ref().map(dedup_message),
            live: (config.live != LiveSettings::default()).then(|| live_message(config.live)),
        }
    }
}

fn dedup(message: &control::Dedup) -> Result<Dedup, ConfigError> {
    let mode = match message.mode {
        0 | 1 => DedupMode::Refuse,
        2 => DedupMode::Replace,
        other => {
            let (value, allowed) = (other.to_string(), "refuse or replace".to_owned());
            return Err(ConfigError { field: "dedup.mode", value, allowed });
        }
    };
    let window = Duration::from_millis(message.window_ms);
    Ok(Dedup { header: message.header.parse()?, window, mode })
}

fn dedup_message(dedup: &Dedup) -> control::Dedup {
    let mode = match dedup.mode {
        DedupMode::Refuse => control::DedupMode::Refuse,
        DedupMode::Replace => control::DedupMode::Replace,
    };
    control::Dedup {
        header: dedup.header.as_str().to_owned(),
        window_ms: ms(dedup.window),
        mode: mode.into(),
    }
}

fn live_settings(message: &control::LiveSettings) -> Result<LiveSettings, ConfigError> {
    let when_behind = match message.when_behind {
        0 => Some(WhenBehind::Recover),
        number => u8::try_from(number).ok().and_then(WhenBehind::of_number),
    };
    let when_behind = when_behind.ok_or_else(|| ConfigError {
        field: "live.when_behind",
        value: message.when_behind.to_string(),
        allowed: "recover, conflate or disconnect".into(),
    })?;
    Ok(LiveSettings { presence: message.presence, when_behind })
}

fn live_message(live: LiveSettings) -> control::LiveSettings {
    let LiveSettings { presence, when_behind } = live;
    control::LiveSettings { presence, when_behind: when_behind.number().into() }
}

fn topic_limit(message: &control::TopicLimit) -> Result<TopicLimit, ConfigError> {
    let when_full = match message.when_full {
        0 | 1 => WhenFull::Refuse,
        2 => WhenFull::DropOldest,
        other => {
            let (value, allowed) = (other.to_string(), "refuse or drop-oldest".to_owned());
            return Err(ConfigError { field: "limit.when_full", value, allowed });
        }
    };
    Ok(TopicLimit { messages: message.messages, bytes: message.bytes, when_full })
}

fn limit_message(limit: &TopicLimit) -> control::TopicLimit {
    let when_full = match limit.when_full {
        WhenFull::Refuse => control::WhenFull::Refuse,
        WhenFull::DropOldest => control::WhenFull::DropOldest,
    };
    control::TopicLimit {
        messages: limit.messages,
        bytes: limit.bytes,
        when_full: when_full.into(),
    }
}

impl TryFrom<&control::GroupConfig> for GroupConfig {
    type Error = ConfigError;

    fn try_from(message: &control::GroupConfig) -> Result<Self, ConfigError> {
        let config = GroupChange::try_from(message)?.applied_to(&Self::default());
        config.check()?;
        Ok(config)
    }
}

impl TryFrom<&control::GroupConfig> for GroupChange {
    type Error = ConfigError;

    fn try_from(message: &control::GroupConfig) -> Result<Self, ConfigError> {
        let jitter = |percent| u8::try_from(percent).unwrap_or(u8::MAX);
        let age = |ms| (ms != 0).then(|| Duration::from_millis(ms));
        Ok(Self {
            lease: message.lease_ms.map(Duration::from_millis),
            attempts_max: message.attempts_max,
            backoff: backoff(message)?,
            jitter_percent: message.retry_jitter_percent.map(jitter),
            age_max: message.retry_age_max_ms.map(age),
            is_paused: message.paused,
            throttle: throttle_change(message.throttle.as_ref())?,
            key_rules: key_rules(&message.key_rules)?,
            order: message.order.map(order).transpose()?,
        })
    }
}

fn order(number: u32) -> Result<Order, ConfigError> {
    let order = u8::try_from(number).ok().and_then(Order::of_number);
    order.ok_or_else(|| ConfigError {
        field: "order",
        value: number.to_string(),
        allowed: "0 for none, 1 for key, 2 for partition".into(),
    })
}

fn backoff(message: &control::GroupConfig) -> Result<Option<Backoff>, ConfigError> {
    let delays: Vec<_> =
        message.retry_delays_ms.iter().copied().map(Duration::from_millis).collect();
    match (message.retry_first_ms, message.retry_max_ms) {
        (None, None) if delays.is_empty() => Ok(None),
        (None, None) => Ok(Some(Backoff::List(RetryDelays::new(&delays)?))),
        (first, max) if delays.is_empty() => Ok(Some(match (first.unwrap_or(0), max) {
            (0, None | Some(0)) => Backoff::None,
            (first, max) => Backoff::Exponential {
                first: Duration::from_millis(first),
                max: Duration::from_millis(max.unwrap_or(0)),
            },
        })),
        _ => {
            let (value, allowed) = ("a first delay and a list".into(), "one of the two".into());
            Err(ConfigError { field: "retry.backoff", value, allowed })
        }
    }
}

impl From<&GroupConfig> for control::GroupConfig {
    fn from(config: &GroupConfig) -> Self {
        let retry = &config.retry;
        Self::from(&GroupChange {
            lease: Some(config.lease),
            attempts_max: Some(config.attempts_max),
            backoff: Some(retry.backoff).filter(|backoff| *backoff != Backoff::None),
            jitter_percent: Some(retry.jitter_percent).filter(|percent| *percent != 0),
            age_max: retry.age_max.map(Some),
            is_paused: Some(config.is_paused).filter(|is_paused| *is_paused),
            throttle: config.throttle.map(Some),
            key_rules: config.key_rules.iter().cloned().collect(),
            order: Some(config.order).filter(|order| *order != Order::None),
        })
    }
}

impl From<&GroupChange> for control::GroupConfig {
    fn from(change: &GroupChange) -> Self {
        let (first, max, delays) = match change.backoff {
            None => (None, None, Vec::new()),
            Some(Backoff::None) => (Some(0), None, Vec::new()),
            Some(Backoff::Exponential { first, max }) => (Some(ms(first)), Some(ms(max)), vec![]),
            Some(Backoff::List(delays)) => (None, None, delays.iter().map(ms).collect()),
        };
        Self {
            lease_ms: change.lease.map(ms),
            attempts_max: change.attempts_max,
            retry_first_ms: first,
            retry_max_ms: max,
            retry_delays_ms: delays,
            retry_jitter_percent: change.jitter_percent.map(u32::from),
            retry_age_max_ms: change.age_max.map(|age| age.map_or(0, ms)),
            paused: change.is_paused,
            throttle: change.throttle.map(control::Throttle::from),
            key_rules: change.key_rules.iter().map(control::KeyRule::from).collect(),
            order: change.order.map(|order| order.number().into()),
        }
    }
}

impl From<&control::StartAt> for StartAt {
    fn from(message: &control::StartAt) -> Self {
        match message.at {
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

/// The settings of a topic without any.
fn queue() -> TopicConfig {
    TopicConfig::of_kind(TopicKind::Queue)
}

impl control::CreateTopic {
    /// The checked settings; by default those of a queue.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn topic_config(&self) -> Result<TopicConfig, ConfigError> {
        self.config.as_ref().map_or(Ok(queue()), TopicConfig::try_from)
    }
}

impl control::AlterTopic {
    /// The checked settings; by default those of a queue.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn topic_config(&self) -> Result<TopicConfig, ConfigError> {
        self.config.as_ref().map_or(Ok(queue()), TopicConfig::try_from)
    }
}

impl control::CreateGroup {
    /// The checked settings; by default those of a group without any.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn group_config(&self) -> Result<GroupConfig, ConfigError> {
        self.config.as_ref().map_or(Ok(GroupConfig::default()), GroupConfig::try_from)
    }

    /// The position at which the group begins; by default the earliest.
    #[must_use]
    pub fn start_at(&self) -> StartAt {
        self.start.as_ref().map(StartAt::from).unwrap_or_default()
    }
}

impl control::Read {
    /// The position at which the reader begins in partitions without a position of their own; by
    /// default the earliest.
    #[must_use]
    pub fn read_from(&self) -> ReadFrom {
        match self.from.and_then(|from| from.at) {
            None | Some(read_from::At::Earliest(_)) => ReadFrom::Earliest,
            Some(read_from::At::Latest(_)) => ReadFrom::Latest,
            Some(read_from::At::Offset(offset)) => ReadFrom::Offset(Offset(offset)),
            Some(read_from::At::Back(count)) => ReadFrom::Last(count),
            Some(read_from::At::TimeMs(ms)) => ReadFrom::Time(Timestamp(ms)),
        }
    }
}

impl control::Read {
    /// The behaviour of the reader when it falls behind. It waits if this version does not know the
    /// value.
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
            ReadFrom::Last(count) => read_from::At::Back(count),
            ReadFrom::Time(time) => read_from::At::TimeMs(time.0),
        };
        Self { at: Some(at) }
    }
}

/// The durability with this number; `durable` by default.
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

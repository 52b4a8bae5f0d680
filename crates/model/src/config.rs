//! The settings of topics and groups. They are checked when they are parsed, and trusted afterwards.

use std::{sync::Arc, time::Duration};

use crate::{
    config_error::{ConfigError, check_duration},
    dedup::{Dedup, DedupMode},
    durability::Durability,
    key_rule::{KeyRule, KeyRules},
    limits::{
        ATTEMPTS_MAX_DEFAULT, LEASE_DEFAULT, LEASE_MAX, LEASE_MIN, MEMORY_TOPIC_BYTES,
        PARTITIONS_MAX, TOMBSTONE_AGE_DEFAULT, TOMBSTONE_AGE_MIN,
    },
    live_settings::LiveSettings,
    message_fields::MessageFields,
    offset::Offset,
    order::Order,
    retry_policy::{Backoff, RetryPolicy},
    throttle_rule::ThrottleRate,
    topic_limit::TopicLimit,
};

/// The two common settings of a topic, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// Messages are kept until settled; the topic has a group named `default`.
    Queue,
    /// Messages are kept by age, bytes or for ever, and read by offset. Groups are created
    /// explicitly.
    Stream,
}

/// The rules that free old messages. Of age, bytes and count, the rule that frees most applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Retention {
    /// A message is freed once every group has settled it. Without a group no message is freed.
    pub until_settled: bool,
    /// Messages older than this are freed, settled or not.
    pub age: Option<Duration>,
    /// The oldest messages beyond this many bytes per partition are freed, settled or not.
    pub bytes: Option<u64>,
    /// Only this many messages before a partition's end are kept, settled or not. Batches are freed
    /// whole, so a few more may be kept.
    pub count: Option<u64>,
    /// Only the latest message of each key is kept for good; compaction frees older ones in the
    /// background. Messages without a key are refused. A message with an empty payload is a
    /// tombstone: it ends its key. Compaction frees a tombstone this long after the messages that
    /// it ended, and at most as long again later, so that readers of those messages see it.
    pub latest_per_key: Option<Duration>,
}

impl Retention {
    /// Keep each message until every group has settled it.
    pub const UNTIL_SETTLED: Self = Self { until_settled: true, ..Self::FOREVER };
    /// Keep everything.
    pub const FOREVER: Self =
        Self { until_settled: false, age: None, bytes: None, count: None, latest_per_key: None };
    /// Keep the latest message of each key, and tombstones for the default time.
    pub const LATEST_PER_KEY: Self =
        Self { latest_per_key: Some(TOMBSTONE_AGE_DEFAULT), ..Self::FOREVER };
}

/// The settings of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicConfig {
    /// The number of partitions, 1 to [`PARTITIONS_MAX`]; fixed at creation.
    pub partitions: u32,
    /// The rules that free old messages.
    pub retention: Retention,
    /// The time to live of messages that have none of their own.
    pub time_to_live: Option<Duration>,
    /// The durability of messages; fixed at creation.
    pub durability: Durability,
    /// The headers from which the broker takes a message's fair key, weight and so on; `None` where it reads no
    /// header. A topic that has them is scheduled fairly in each of its groups.
    pub fields: Option<Arc<MessageFields>>,
    /// Whether no group of the topic is given messages.
    pub is_paused: bool,
    /// How much each partition may hold.
    pub limit: TopicLimit,
    /// How messages are found that were published before; `None` where they are not looked for.
    pub dedup: Option<Dedup>,
    /// How live connections follow it.
    pub live: LiveSettings,
}

impl TopicConfig {
    /// The settings that a short name stands for.
    #[must_use]
    pub fn of_kind(kind: TopicKind) -> Self {
        let retention = match kind {
            TopicKind::Queue => Retention::UNTIL_SETTLED,
            TopicKind::Stream => Retention::FOREVER,
        };
        Self {
            partitions: 1,
            retention,
            time_to_live: None,
            durability: Durability::Durable,
            fields: None,
            is_paused: false,
            limit: TopicLimit::default(),
            dedup: None,
            live: LiveSettings::default(),
        }
    }

    /// The short name for these settings.
    #[must_use]
    pub fn kind(&self) -> TopicKind {
        if self.retention.until_settled { TopicKind::Queue } else { TopicKind::Stream }
    }

    /// The limit for a partition in bytes, beyond which the oldest messages are freed; `None` for
    /// no limit. Topics that are kept in memory alone always have one.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        let of_memory = (self.durability == Durability::Memory).then_some(MEMORY_TOPIC_BYTES);
        self.retention.bytes.or(of_memory)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            return Err(ConfigError {
                field: "partitions",
                value: self.partitions.to_string(),
                allowed: format!("1 to {PARTITIONS_MAX}"),
            });
        }
        let Retention { bytes, count, .. } = self.retention;
        for (field, limit) in [("retention.bytes", bytes), ("retention.count", count)] {
            if limit == Some(0) {
                let (value, allowed) = ("0".into(), "1 or more, or none at all".into());
                return Err(ConfigError { field, value, allowed });
            }
        }
        check_duration("retention.age", self.retention.age, Duration::from_millis(1))?;
        let tombstone_age = self.retention.latest_per_key;
        check_duration("retention.tombstone_age", tombstone_age, TOMBSTONE_AGE_MIN)?;
        if tombstone_age.is_some() && self.retention.until_settled {
            // A group that is through with the latest would bring the one before it back.
            let (field, value) = ("retention.latest_per_key", "on, with until_settled".into());
            let allowed = "one of the two".into();
            return Err(ConfigError { field, value, allowed });
        }
        if tombstone_age.is_some() && self.durability == Durability::Memory {
            let (field, value) = ("retention.latest_per_key", "on, in memory".into());
            let allowed = "on in topics that are durable, speculative or ephemeral".into();
            return Err(ConfigError { field, value, allowed });
        }
        if let Some(fields) = &self.fields {
            fields.check()?;
        }
        check_duration("time_to_live", self.time_to_live, Duration::from_millis(1))?;
        if tombstone_age.is_some() && self.limit.is_set() {
            let (field, value) = ("limit", "set, with retention.latest_per_key".into());
            let allowed = "one of the two".into();
            return Err(ConfigError { field, value, allowed });
        }
        if self.dedup.is_some_and(|dedup| dedup.mode == DedupMode::Replace)
            && !self.retention.until_settled
        {
            let (field, value) = ("dedup.mode", "replace, without until_settled".into());
            let allowed = "refuse, or replace in a queue".into();
            return Err(ConfigError { field, value, allowed });
        }
        self.dedup.map_or(Ok(()), |dedup| dedup.check())?;
        self.limit.check()
    }

    /// The first field in which `other` differs, with both values: `(field, own, other's)`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let fields = self.fields().into_iter().zip(other.fields());
        let mut fields = fields.map(|((field, own), (_, others))| (field, own, others));
        fields.find(|(_, own, others)| own != others)
    }

    /// Each field and its value as text.
    fn fields(&self) -> [(&'static str, String); 16] {
        let Self {
            partitions,
            retention,
            time_to_live,
            durability,
            fields,
            is_paused,
            limit,
            dedup,
            live,
        } = self;
        let Retention { until_settled, age, bytes, count, latest_per_key } = retention;
        let until_settled = if *until_settled { "on" } else { "off" };
        let tombstones = |age| format!("on, with tombstones for {age:?}");
        [
            ("partitions", partitions.to_string()),
            ("retention.until_settled", until_settled.into()),
            ("retention.age", or_none(*age)),
            ("retention.bytes", or_none(*bytes)),
            ("retention.count", or_none(*count)),
            ("retention.latest_per_key", latest_per_key.map_or("off".into(), tombstones)),
            ("time_to_live", or_none(*time_to_live)),
            ("durability", durability.to_string()),
            ("fields", fields.as_ref().map_or("none".into(), |fields| fields.to_string())),
            ("paused", yes_or_no(*is_paused)),
            ("limit.messages", or_none(limit.messages)),
            ("limit.bytes", or_none(limit.bytes)),
            ("limit.when_full", limit.when_full.to_string()),
            ("dedup", dedup.map_or("none".into(), |dedup| dedup.to_string())),
            ("live.presence", yes_or_no(live.presence)),
            ("live.when_behind", live.when_behind.to_string()),
        ]
    }
}

/// The position in each partition at which a new group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartAt {
    /// At the oldest message that is kept.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
    /// At this offset, or at the oldest message that is kept if that is later.
    Offset(Offset),
}

/// The settings of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupConfig {
    /// The time for which a consumer may hold a message before it returns to the group.
    pub lease: Duration,
    /// The number of failed attempts after which a message goes to the dead-letter topic; at least
    /// 1.
    pub attempts_max: u32,
    /// What becomes of a message that failed until then.
    pub retry: RetryPolicy,
    /// Whether the group is given no messages.
    pub is_paused: bool,
    /// The rate at which the group is given messages, over all fair keys.
    pub throttle: Option<ThrottleRate>,
    /// The limits of fair keys. Of use where the topic has `fields`.
    pub key_rules: KeyRules,
    /// The unit that has one active consumer at a time, so that its messages keep their order.
    pub order: Order,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            lease: LEASE_DEFAULT,
            attempts_max: ATTEMPTS_MAX_DEFAULT,
            retry: RetryPolicy::default(),
            is_paused: false,
            throttle: None,
            key_rules: KeyRules::default(),
            order: Order::None,
        }
    }
}

/// New values for some settings of a group; `None` keeps a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// For [`GroupConfig::lease`].
    pub lease: Option<Duration>,
    /// For [`GroupConfig::attempts_max`].
    pub attempts_max: Option<u32>,
    /// For [`RetryPolicy::backoff`].
    pub backoff: Option<Backoff>,
    /// For [`RetryPolicy::jitter_percent`].
    pub jitter_percent: Option<u8>,
    /// For [`RetryPolicy::age_max`]; `Some(None)` removes it.
    pub age_max: Option<Option<Duration>>,
    /// For [`GroupConfig::is_paused`].
    pub is_paused: Option<bool>,
    /// For [`GroupConfig::throttle`]; `Some(None)` removes it.
    pub throttle: Option<Option<ThrottleRate>>,
    /// Rules of [`GroupConfig::key_rules`] that are added, or take the place of those with the same pattern.
    /// One that says nothing removes it.
    pub key_rules: Vec<KeyRule>,
    /// For [`GroupConfig::order`].
    pub order: Option<Order>,
}

impl GroupChange {
    /// The settings `held` with the new values. They are not checked.
    #[must_use]
    pub fn applied_to(self, held: &GroupConfig) -> GroupConfig {
        GroupConfig {
            lease: self.lease.unwrap_or(held.lease),
            attempts_max: self.attempts_max.unwrap_or(held.attempts_max),
            retry: RetryPolicy {
                backoff: self.backoff.unwrap_or(held.retry.backoff),
                jitter_percent: self.jitter_percent.unwrap_or(held.retry.jitter_percent),
                age_max: self.age_max.unwrap_or(held.retry.age_max),
            },
            is_paused: self.is_paused.unwrap_or(held.is_paused),
            throttle: self.throttle.unwrap_or(held.throttle),
            key_rules: held.key_rules.with(&self.key_rules),
            order: self.order.unwrap_or(held.order),
        }
    }
}

impl GroupConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return Err(ConfigError {
                field: "lease",
                value: format!("{:?}", self.lease),
                allowed: format!("{LEASE_MIN:?} to {LEASE_MAX:?}"),
            });
        }
        if self.attempts_max == 0 {
            return Err(ConfigError {
                field: "attempts_max",
                value: "0".into(),
                allowed: "1 or more".into(),
            });
        }
        self.retry.check()?;
        self.key_rules.check()
    }

    /// The first field in which `other` differs, with both values: `(field, own, other's)`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let fields = self.fields().into_iter().zip(other.fields());
        let mut fields = fields.map(|((field, own), (_, others))| (field, own, others));
        fields.find(|(_, own, others)| own != others)
    }

    /// Each field and its value as text.
    fn fields(&self) -> [(&'static str, String); 9] {
        let Self { lease, attempts_max, retry, is_paused, throttle, key_rules, order } = self;
        let RetryPolicy { backoff, jitter_percent, age_max } = retry;
        [
            ("lease", format!("{lease:?}")),
            ("attempts_max", attempts_max.to_string()),
            ("retry.backoff", backoff.to_string()),
            ("retry.jitter_percent", jitter_percent.to_string()),
            ("retry.age_max", or_none(*age_max)),
            ("paused", yes_or_no(*is_paused)),
            ("throttle", throttle.map_or("none".into(), |rate| rate.to_string())),
            ("key_rules", key_rules.to_string()),
            ("order", order.to_string()),
        ]
    }
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}

fn or_none(value: Option<impl std::fmt::Debug>) -> String {
    value.map_or("none".into(), |value| format!("{value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_that_differs_is_named_with_both_values() {
        let queue = TopicConfig::of_kind(TopicKind::Queue);
        let difference = |other: &TopicConfig| {
            let (field, own, others) = queue.difference(other)?;
            Some(format!("{field} {own}, not {others}"))
        };
        let retention = queue.retention;
        let day = Some(Duration::from_secs(86_400));
        for (other, text) in [
            (TopicConfig { partitions: 3, ..queue.clone() }, "partitions 1, not 3"),
            (TopicConfig::of_kind(TopicKind::Stream), "retention.until_settled on, not off"),
            (
                TopicConfig { retention: Retention { age: day, ..retention }, ..queue.clone() },
                "retention.age none, not 86400s",
            ),
            (
                TopicConfig {
                    retention: Retention { count: Some(5), ..retention },
                    ..queue.clone()
                },
                "retention.count none, not 5",
            ),
            (TopicConfig { time_to_live: day, ..queue.clone() }, "time_to_live none, not 86400s"),
            (
                TopicConfig {
                    limit: TopicLimit { messages: Some(5), ..queue.limit },
                    ..queue.clone()
                },
                "limit.messages none, not 5",
            ),
        ] {
            assert_eq!(difference(&other).as_deref(), Some(text));
        }
        assert_eq!(difference(&queue), None);
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name_and_the_difference_names_what_it_changed() {
        let held = GroupConfig { attempts_max: 7, ..GroupConfig::default() };
        assert_eq!(GroupChange::default().applied_to(&held), held);
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let backoff = Backoff::Exponential { first, max };
        let change = GroupChange { backoff: Some(backoff), ..GroupChange::default() };
        let changed = change.applied_to(&held);
        let difference = held.difference(&changed);
        assert_eq!(difference, Some(("retry.backoff", "none".into(), "1s..60s".into())));
        let age = Some(Some(max));
        let aged = GroupChange { age_max: age, ..GroupChange::default() }.applied_to(&changed);
        assert_eq!((aged.attempts_max, aged.retry.backoff), (7, backoff));
        let difference = changed.difference(&aged);
        assert_eq!(difference, Some(("retry.age_max", "none".into(), "60s".into())));
        let removed = GroupChange { age_max: Some(None), ..GroupChange::default() };
        assert_eq!(removed.applied_to(&aged), changed);
    }
}

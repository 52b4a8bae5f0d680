//! The metrics of groups by name: a shard counts, the first core adds the names, and at most a fixed number is named.

use std::{
    fmt::Error,
    sync::{Mutex, PoisonError},
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use sennit_engine::{GroupBacklog, KeyDeliveries};
use sennit_model::Timestamp;

use super::clock::now;

/// A group with its name.
#[derive(Debug)]
pub(crate) struct Named<T> {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) of_group: T,
}

/// What the last survey of a shard has found of groups.
#[derive(Debug, Default)]
pub(crate) struct NamedGroups {
    /// Groups that hold messages which others are through with, and when the oldest of these was appended.
    pub(crate) holding: Vec<Named<Timestamp>>,
    pub(crate) backlogs: Vec<Named<GroupBacklog>>,
}

/// The groups of a shard that metrics name.
#[derive(Debug, Default)]
pub(crate) struct GroupMetrics(Mutex<NamedGroups>);

impl GroupMetrics {
    pub(crate) fn set(&self, groups: NamedGroups) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    fn look<T>(&self, look: impl FnOnce(&NamedGroups) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a series says of a group.
struct GroupSeries {
    name: &'static str,
    text: &'static str,
    is_counter: bool,
    value: fn(&GroupBacklog) -> u64,
}

const OF_GROUPS: [GroupSeries; 7] = [
    GroupSeries {
        name: "group_ready_messages",
        text: "Messages of the group that wait for a consumer",
        is_counter: false,
        value: |group| group.ready,
    },
    GroupSeries {
        name: "group_leased_messages",
        text: "Messages of the group that consumers hold",
        is_counter: false,
        value: |group| group.leased,
    },
    GroupSeries {
        name: "group_retrying_messages",
        text: "Failed messages of the group that wait for another attempt",
        is_counter: false,
        value: |group| group.retrying,
    },
    GroupSeries {
        name: "group_dead_messages",
        text: "Messages of the group that failed for good, and are parked or on their way to the dead-letter topic",
        is_counter: false,
        value: |group| group.dead,
    },
    GroupSeries {
        name: "group_redelivered_messages",
        text: "Deliveries of messages that had been delivered to the group before",
        is_counter: true,
        value: |group| group.counts.redelivered,
    },
    GroupSeries {
        name: "group_dead_lettered_messages",
        text: "Messages of the group that were moved to a dead-letter topic",
        is_counter: true,
        value: |group| group.counts.dead_lettered,
    },
    GroupSeries {
        name: "group_throttle_waits",
        text: "How often a throttle had no token for a message whose turn it was",
        is_counter: true,
        value: |group| group.counts.throttle_waits,
    },
];

/// What a series says of a fair key.
struct KeySeries {
    name: &'static str,
    text: &'static str,
    unit: Option<Unit>,
    value: fn(&KeyDeliveries) -> f64,
}

const OF_KEYS: [KeySeries; 4] = [
    KeySeries {
        name: "group_key_delivered_messages",
        text: "Deliveries of messages of the fair key",
        unit: None,
        value: |key| key.delivered as f64,
    },
    KeySeries {
        name: "group_key_overcounted_messages",
        text: "How many of these may have been of other keys",
        unit: None,
        value: |key| key.at_most_over as f64,
    },
    KeySeries {
        name: "group_key_first_deliveries",
        text: "First deliveries of messages of the fair key whose wait was measured",
        unit: None,
        value: |key| key.first_deliveries as f64,
    },
    KeySeries {
        name: "group_key_wait",
        text: "How long the messages of these waited for them, in all",
        unit: Some(Unit::Seconds),
        value: |key| key.waited.as_secs_f64(),
    },
];

/// Encodes the series of all groups that are named.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    shards: &[(u32, &GroupMetrics)],
) -> Result<(), Error> {
    let now = now();
    let age = |since: Timestamp| i64::try_from(now.since(since).as_secs()).unwrap_or(i64::MAX);
    let gauge = ConstGauge::new(0i64).metric_type();
    let text =
        "Age of the oldest message that this group holds and others of the topic are through with";
    let seconds = Unit::Seconds;
    let mut held =
        encoder.encode_descriptor("group_holds_oldest_age", text, Some(&seconds), gauge)?;
    for (shard, groups) in shards {
        groups.look(|groups| {
            groups.holding.iter().try_for_each(|group| {
                let family = labels(*shard, group);
                ConstGauge::new(age(group.of_group)).encode(held.encode_family(&family)?)
            })
        })?;
    }
    let text = "Age of the oldest message that the group has not settled";
    let mut oldest = encoder.encode_descriptor("group_oldest_age", text, Some(&seconds), gauge)?;
    for (shard, groups) in shards {
        groups.look(|groups| {
            groups.backlogs.iter().try_for_each(|group| {
                let age = group.of_group.oldest.map_or(0, age);
                ConstGauge::new(age).encode(oldest.encode_family(&labels(*shard, group))?)
            })
        })?;
    }
    for series in OF_GROUPS {
        let counter = ConstCounter::new(0u64).metric_type();
        let kind = if series.is_counter { counter } else { gauge };
        let mut encoded = encoder.encode_descriptor(series.name, series.text, None, kind)?;
        for (shard, groups) in shards {
            groups.look(|groups| {
                groups.backlogs.iter().try_for_each(|group| {
                    let value = (series.value)(&group.of_group);
                    let labels = labels(*shard, group);
                    let family = encoded.encode_family(&labels)?;
                    if series.is_counter {
                        ConstCounter::new(value).encode(family)
                    } else {
                        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)
                    }
                })
            })?;
        }
    }
    for series in OF_KEYS {
        let kind = ConstCounter::new(0u64).metric_type();
        let unit = series.unit.as_ref();
        let mut encoded = encoder.encode_descriptor(series.name, series.text, unit, kind)?;
        for (shard, groups) in shards {
            groups.look(|groups| {
                groups.backlogs.iter().try_for_each(|group| {
                    group.of_group.keys.iter().try_for_each(|key| {
                        let [shard, topic, of_group] = labels(*shard, group);
                        let labels = [shard, topic, of_group, ("key", key.fair_key.clone())];
                        let value = (series.value)(key);
                        ConstCounter::new(value).encode(encoded.encode_family(&labels)?)
                    })
                })
            })?;
        }
    }
    Ok(())
}

fn labels<T>(shard: u32, group: &Named<T>) -> [(&'static str, String); 3] {
    [("shard", shard.to_string()), ("topic", group.topic.clone()), ("group", group.group.clone())]
}

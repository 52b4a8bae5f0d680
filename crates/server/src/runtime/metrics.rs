//! Counters of each core and of each shard, written with relaxed stores on the data path. docs/reference/metrics.md
//! lists them.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{
    count::Count,
    group_metrics::{self, GroupMetrics},
    hook_metrics::{self, HookMetrics},
    index::{CoreIndex, IndexVec, ShardIndex},
};

macro_rules! counts {
    ($(#[$doc:meta])* $counts:ident; $([$more:ident: $type:ty])? $($kind:ident $name:ident $unit:ident $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $counts {
            $(#[doc = $text] pub(crate) $name: Count,)*
            $(#[doc = "By name."] pub(crate) $more: $type,)?
        }

        impl Counts for $counts {
            fn each(&self, tell: &mut dyn FnMut(Metric, u64)) {
                $(
                    let metric = Metric {
                        name: stringify!($name),
                        text: $text,
                        unit: unit!($unit),
                        is_counter: is_counter!($kind),
                    };
                    tell(metric, self.$name.value());
                )*
            }
        }
    };
}

/// What a number counts.
struct Metric {
    name: &'static str,
    text: &'static str,
    unit: Option<Unit>,
    /// Whether it only grows.
    is_counter: bool,
}

/// Numbers of one core, or of one shard.
trait Counts {
    /// Shows each of them, in the same order every time.
    fn each(&self, tell: &mut dyn FnMut(Metric, u64));
}

/// What one shard counts.
#[derive(Debug, Default)]
pub(crate) struct ShardMetrics {
    pub(crate) counts: ShardCounts,
    /// The groups that are named.
    pub(crate) groups: GroupMetrics,
}

macro_rules! unit {
    (bytes) => {
        Some(Unit::Bytes)
    };
    (none) => {
        None
    };
}

macro_rules! is_counter {
    (counter) => {
        true
    };
    (gauge) => {
        false
    };
}

counts! {
    /// What is counted of one shard.
    ShardCounts;
    counter confirmed_messages none "Messages confirmed to publishers, duplicates included";
    counter confirmed_early_messages none "Messages confirmed before they were committed, as their topic has it";
    counter duplicate_batches none "Batches that had been appended before";
    counter deduplicated_messages none "Messages of partly new batches that were published before and not appended";
    counter replaced_messages none "Messages that later ones of the same deduplication value have replaced";
    counter dropped_messages none "Messages dropped because their partition was full and later ones came";
    counter delivered_messages none "Messages handed to consumers";
    counter delivered_bytes bytes "Bytes of messages handed to consumers";
    counter redelivered_messages none "Messages handed to consumers that had been handed to one of their group before";
    counter dead_lettered_messages none "Messages moved to dead-letter topics";
    counter throttle_waits none "How often a throttle had no token for a message whose turn it was";
    counter delivered_early_messages none "Messages handed out before they were committed, as their topic has it";
    gauge parked_messages none "Messages of dead-letter topics that failed there for good, and wait until somebody asks for them";
    counter refusals none "Commands refused";
    counter damaged_batches none "Batches read back damaged, or not at all";
    counter checkpoints none "Checkpoints of the state written to the journal";
    counter journal_syncs none "Syncs of the journal";
    counter journal_bytes bytes "Bytes written to the journal";
    counter moved_bytes bytes "Bytes of batches copied to packs";
    counter scrubbed_bytes bytes "Bytes at rest that the scrub has held against their checksums";
    gauge scrub_damage none "Places at rest that the scrub found damaged";
    gauge packs none "Packs in use";
    gauge pack_bytes bytes "Bytes of packs in use";
    gauge pack_live_bytes bytes "Bytes of live batches in packs";
    gauge journal_damage none "Places of the journal that were found damaged when the broker started";
    gauge doubtful_partitions none "Partitions that may have lost messages with them";
    gauge lost_files none "Packs and segments that hold wanted messages and are gone";
    gauge journal_segments none "Segments of the journal in use";
    gauge storage_full none "Whether publishes are refused because the disk has no room: 1 or 0";
    gauge storage_free_bytes bytes "Bytes that are free on the disk that holds the data";
    gauge storage_needed_bytes bytes "Bytes that have to come free before publishes are accepted again";
    gauge ingest_bytes bytes "Bytes published and not yet committed";
    gauge cache_bytes bytes "Bytes of frames kept in memory";
    gauge memory_topic_bytes bytes "Bytes of messages that are kept in memory alone";
}

counts! {
    /// What one core counts, whatever shards it runs.
    CoreMetrics;
    [hooks_by_topic: HookMetrics]
    counter connections_opened none "Connections accepted";
    counter connections_moved none "Connections that came from another core, to be where their partition is";
    counter broken_frames none "Frames that could not be decoded";
    counter tls_handshakes none "TLS handshakes that succeeded";
    counter tls_handshakes_failed none "Connections to a port with TLS that ended before the handshake was done";
    counter logins_refused none "Logins refused because their credentials were not valid";
    counter logins_locked_out none "Logins with a password refused because too many from their address had failed";
    gauge connections none "Connections open now";
    gauge http_connections none "Connections of the HTTP port open now";
    gauge http_parked none "Connections of the HTTP port that wait without a task";
    counter http_connections_opened none "Connections of the HTTP port accepted";
    counter http_refused_of_address none "Connections of the HTTP port that were refused because their address has as many as it may";
    counter http_connections_moved none "Connections of the HTTP port that came from another core, to be where their streams are";
    counter http_answers_2xx none "HTTP requests answered with success";
    counter http_answers_3xx none "HTTP requests answered with another place, or with nothing new";
    counter http_answers_4xx none "HTTP requests answered with a fault of the client's";
    counter http_answers_5xx none "HTTP requests answered with a fault of the broker's, or not now";
    gauge live_connections none "Live connections open now";
    gauge live_subscriptions none "Subscriptions of live connections";
    counter live_refused none "Live connections that were refused because there are as many as may be";
    counter live_refused_greeting none "Live connections that were ended because too many of their address have not said who they are";
    counter live_commands_delayed none "Times that a live client asked more in half a second than it may, and its commands waited";
    counter live_behind_recovered none "Times that a live subscriber fell behind and went on from the log";
    counter live_behind_conflated none "Times that a live subscriber fell behind and was given the newest message of each key";
    counter live_behind_disconnected none "Live connections that were ended because they fell behind";
    counter live_deliveries none "Messages written to live connections, counted for each of them";
    gauge subscriptions none "Subscriptions over HTTP";
    gauge subscription_links none "Streams that subscriptions are linked to, counted for each of them";
    gauge subscriptions_woken none "Subscriptions that wait for somebody to take their work";
    gauge subscriptions_held none "Subscriptions whose work somebody has";
    counter subscription_wakes none "Wakes of subscriptions";
    counter subscription_wakes_failed none "Tries to tell of a wake that failed";
    gauge configuration_entries none "Entries of the configuration";
    gauge configuration_bytes bytes "Bytes of the keys and values of the configuration";
    counter configuration_changes none "Changes of the configuration";
    gauge throttle_rules none "Throttle rules of the configuration";
    gauge schedules none "Schedules";
    counter schedule_ticks_published none "Ticks of schedules that were published";
    counter schedule_ticks_left_out none "Ticks of schedules left out because the message before was not settled";
    counter schedule_ticks_failed none "Ticks of schedules left out because their message was refused for good";
    gauge hooks none "Hooks that the core knows";
    gauge hooks_resting none "Hooks that rest on the core after failures, or have failed since";
    counter hook_messages none "Messages that hooks have decided about";
    counter hook_attempts none "Failed attempts that hooks have decided about";
    counter hook_refused_messages none "Messages that hooks have refused";
    counter hook_failures none "Messages on which hooks have failed";
    counter hook_time_ns none "Nanoseconds that hooks have computed";
}

/// A metric, and its value for each core or shard.
type Series = (Metric, Vec<u64>);

#[derive(Debug)]
struct All {
    shards: IndexVec<ShardIndex, Arc<ShardMetrics>>,
    cores: IndexVec<CoreIndex, Arc<CoreMetrics>>,
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        encode_all(&mut encoder, "shard", self.shards.iter().map(|shard| &shard.counts))?;
        encode_all(&mut encoder, "core", self.cores.iter().map(AsRef::as_ref))?;
        let shards = self.shards.iter_indexed().map(|(shard, all)| (shard.0, &all.groups));
        group_metrics::encode(&mut encoder, &shards.collect::<Vec<_>>())?;
        let cores = self.cores.iter_indexed().map(|(core, all)| (core.0, &all.hooks_by_topic));
        hook_metrics::encode(&mut encoder, &cores.collect::<Vec<_>>())
    }
}

/// One series for each metric of each of `all`, which differ by `label`: their index.
fn encode_all<'a, C: Counts + 'a>(
    encoder: &mut DescriptorEncoder<'_>,
    label: &str,
    all: impl Iterator<Item = &'a C>,
) -> Result<(), std::fmt::Error> {
    // The format wants all series of a metric together, so the outer walk is over metrics.
    let mut series: Vec<Series> = Vec::new();
    for (index, counts) in all.enumerate() {
        let mut at = 0;
        counts.each(&mut |metric, value| {
            if index == 0 {
                series.push((metric, Vec::new()));
            }
            series[at].1.push(value);
            at += 1;
        });
    }
    for (Metric { name, text, unit, is_counter }, values) in series {
        let name = unit.as_ref().map_or(name, |unit| {
            name.strip_suffix(unit.as_str()).and_then(|n| n.strip_suffix('_')).unwrap_or(name)
        });
        let counter = ConstCounter::new(0u64);
        let gauge = ConstGauge::new(0i64);
        let kind = if is_counter { counter.metric_type() } else { gauge.metric_type() };
        let mut descriptor = encoder.encode_descriptor(name, text, unit.as_ref(), kind)?;
        for (index, value) in values.into_iter().enumerate() {
            let labels = [(label, index.to_string())];
            let family = descriptor.encode_family(&labels)?;
            if is_counter {
                ConstCounter::new(value).encode(family)?;
            } else {
                ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)?;
            }
        }
    }
    Ok(())
}

/// The text of all metrics of all shards and cores.
pub(crate) fn registry(
    shards: IndexVec<ShardIndex, Arc<ShardMetrics>>,
    cores: IndexVec<CoreIndex, Arc<CoreMetrics>>,
) -> Registry {
    let mut registry = Registry::with_prefix("sennit");
    registry.register_collector(Box::new(All { shards, cores }));
    registry
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use sennit_model::{Timestamp, TopicId};

    use super::*;
    use crate::runtime::{
        clock::now,
        group_metrics::{Named, NamedGroups},
    };

    #[test]
    fn a_group_that_holds_old_messages_is_named_with_the_age_of_the_oldest() {
        let shards = IndexVec::of(2, |_| Arc::<ShardMetrics>::default());
        let since = Timestamp(now().0 - 3_600_000);
        let (topic, group) = ("orders".to_owned(), "default".to_owned());
        let holding = vec![Named { topic, group, of_group: since }];
        shards[ShardIndex(1)].groups.set(NamedGroups { holding, backlogs: Vec::new() });
        let mut text = String::new();
        encode(&mut text, &registry(shards, IndexVec::of(1, |_| Arc::default())))
            .expect("it is text");
        let name = "sennit_group_holds_oldest_age_seconds";
        let line = text.lines().find(|line| line.starts_with(name)).expect("it is there");
        let labels = r#"{shard="1",topic="orders",group="default"}"#;
        let age = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(labels));
        let age: u64 = age.and_then(|age| age.trim().parse().ok()).expect(line);
        assert!((3600..3700).contains(&age), "{line}");
    }

    #[test]
    fn a_hook_is_named_by_its_topic_on_each_core_as_long_as_it_is_there() {
        let cores = IndexVec::of(2, |_| Arc::<CoreMetrics>::default());
        let series = cores[CoreIndex(1)].hooks_by_topic.begin(TopicId(7), "jobs");
        series.messages.add(3);
        let shards = IndexVec::of(1, |_| Arc::default());
        let registry = registry(shards, cores.clone());
        let told = || {
            let mut text = String::new();
            encode(&mut text, &registry).expect("it is text");
            text.contains(r#"sennit_hook_topic_messages_total{core="1",topic="jobs"} 3"#)
        };
        assert!(told());
        cores[CoreIndex(1)].hooks_by_topic.retain(|topic| topic != TopicId(7));
        assert!(!told());
    }
}

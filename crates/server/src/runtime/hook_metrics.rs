//! The metrics of hooks by topic: each core counts for the hooks that have run there. There are as many as hooks at
//! most.

use std::{
    fmt::Error,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::counter::ConstCounter,
};
use sennit_model::TopicId;

use super::count::Count;

/// What the hook of a topic has done on a core, whatever its versions.
#[derive(Debug)]
pub(crate) struct HookSeries {
    id: TopicId,
    topic: String,
    pub(crate) messages: Count,
    pub(crate) attempts: Count,
    pub(crate) refused: Count,
    pub(crate) failures: Count,
    pub(crate) time_ns: Count,
}

/// The hooks that have run on a core.
#[derive(Debug, Default)]
pub(crate) struct HookMetrics(Mutex<Vec<Arc<HookSeries>>>);

impl HookMetrics {
    /// The series of a topic, which begins now.
    pub(crate) fn begin(&self, id: TopicId, topic: &str) -> Arc<HookSeries> {
        let series = Arc::new(HookSeries {
            id,
            topic: topic.to_owned(),
            messages: Count::default(),
            attempts: Count::default(),
            refused: Count::default(),
            failures: Count::default(),
            time_ns: Count::default(),
        });
        self.with(|all| all.push(series.clone()));
        series
    }

    /// Ends the series of the topics that have no hook any more.
    pub(crate) fn retain(&self, has_hook: impl Fn(TopicId) -> bool) {
        self.with(|all| all.retain(|series| has_hook(series.id)));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<Arc<HookSeries>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A series of each hook: its name, what it counts, and its value.
type OfHooks = (&'static str, &'static str, fn(&HookSeries) -> u64);

const OF_HOOKS: [OfHooks; 5] = [
    ("hook_topic_messages", "Messages that the hook of the topic has decided about", |hook| {
        hook.messages.value()
    }),
    (
        "hook_topic_attempts",
        "Failed attempts that the hook of the topic has decided about",
        |hook| hook.attempts.value(),
    ),
    ("hook_topic_refused_messages", "Messages that the hook of the topic has refused", |hook| {
        hook.refused.value()
    }),
    ("hook_topic_failures", "Messages on which the hook of the topic has failed", |hook| {
        hook.failures.value()
    }),
    ("hook_topic_time_ns", "Nanoseconds that the hook of the topic has computed", |hook| {
        hook.time_ns.value()
    }),
];

/// Encodes the series of the hooks of all cores.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    cores: &[(u32, &HookMetrics)],
) -> Result<(), Error> {
    let kind = ConstCounter::new(0u64).metric_type();
    for (name, text, value) in OF_HOOKS {
        let mut encoded = encoder.encode_descriptor(name, text, None, kind)?;
        for (core, hooks) in cores {
            hooks.with(|all| {
                all.iter().try_for_each(|hook| {
                    let labels = [("core", core.to_string()), ("topic", hook.topic.clone())];
                    ConstCounter::new(value(hook)).encode(encoded.encode_family(&labels)?)
                })
            })?;
        }
    }
    Ok(())
}

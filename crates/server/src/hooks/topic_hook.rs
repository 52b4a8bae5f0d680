//! The hook of one topic on one core: its script, its breaker, and what it has done so far.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_hooks::{Failure, FailureDecision, PublishDecision, Script, ScriptError, Settings};
use sennit_model::{Timestamp, TopicId};

use super::{
    breaker::{Breaker, BreakerState},
    entries::OnError,
    topic_settings::{self, TopicSettings, Topics},
};
use crate::{
    broker::control_request::ControlRefusal,
    runtime::{clock::now, core::Cores, hook_metrics::HookSeries, metrics::CoreMetrics},
};

/// A hook of a topic, on one core.
#[derive(Debug)]
pub(crate) struct TopicHook {
    pub(crate) topic: TopicId,
    pub(crate) version: u64,
    pub(crate) on_error: OnError,
    source: String,
    names_on_publish: bool,
    names_on_failure: bool,
    metrics: Arc<CoreMetrics>,
    compiled: OnceCell<Result<Script, String>>,
    breaker: RefCell<Breaker>,
    counts: RefCell<HookCounts>,
    /// What is known of the topic, and after which change of topics.
    settings: RefCell<Option<(u64, Rc<TopicSettings>)>>,
    is_resting: Cell<bool>,
    /// Its metrics, once its topic has a name.
    series: OnceCell<Arc<HookSeries>>,
}

/// What a hook has done on one core.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookCounts {
    /// Messages that the script has decided about.
    pub(crate) messages: u64,
    /// Failed attempts that it has decided about.
    pub(crate) attempts: u64,
    /// Messages that it has refused.
    pub(crate) refused: u64,
    /// Messages on which it has failed.
    pub(crate) failures: u64,
    /// How long it has computed.
    pub(crate) time: Duration,
    pub(crate) last_failure: String,
}

impl TopicHook {
    pub(crate) fn new(
        topic: TopicId,
        version: u64,
        on_error: OnError,
        source: String,
        metrics: Arc<CoreMetrics>,
    ) -> Self {
        Self {
            topic,
            version,
            on_error,
            names_on_publish: source.contains("on_publish"),
            names_on_failure: source.contains("on_failure"),
            source,
            metrics,
            compiled: OnceCell::new(),
            breaker: RefCell::default(),
            counts: RefCell::default(),
            settings: RefCell::default(),
            is_resting: Cell::new(false),
            series: OnceCell::new(),
        }
    }

    /// Its metrics go on from those of the version before.
    pub(crate) fn goes_on(&self, before: &Self) {
        if let Some(series) = before.series.get() {
            let _ = self.series.set(series.clone());
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.breaker.borrow().state(now())
    }

    pub(crate) fn counts(&self) -> HookCounts {
        self.counts.borrow().clone()
    }

    /// The name and fields of the topic, as they are now, or were when that could be said; `None` if it is gone.
    ///
    /// # Errors
    /// It cannot be said now, or the broker stops.
    pub(crate) async fn settings(
        &self,
        cores: &Cores,
    ) -> Result<Option<Rc<TopicSettings>>, ControlRefusal> {
        let change = cores.topic_changes.load(Relaxed);
        if let Some((seen, settings)) = &*self.settings.borrow()
            && *seen == change
        {
            return Ok(Some(settings.clone()));
        }
        let found = match topic_settings::ask(cores, Topics::Numbered(vec![self.topic])).await {
            Ok(found) => found,
            Err(refusal) => match &*self.settings.borrow() {
                Some((_, settings)) => return Ok(Some(settings.clone())),
                None => return Err(refusal),
            },
        };
        let Some(settings) = found.into_iter().next().map(Rc::new) else { return Ok(None) };
        self.settings.replace(Some((change, settings.clone())));
        Ok(Some(settings))
    }

    /// Whether the script may decide about messages that are published: whether it has the function's name.
    pub(crate) fn names_on_publish(&self) -> bool {
        self.names_on_publish
    }

    /// The same for failed attempts.
    pub(crate) fn names_on_failure(&self) -> bool {
        self.names_on_failure
    }

    /// Runs the script for a message, an encoded one of a checked batch.
    pub(crate) fn on_publish(
        &self,
        topic: &TopicSettings,
        configuration: &Rc<dyn Settings>,
        encoded: Bytes,
        producer: u64,
    ) -> Result<PublishDecision, String> {
        self.run(topic, configuration, |script| script.on_publish(encoded, producer))
    }

    /// Runs the script for a failed attempt at a message.
    pub(crate) fn on_failure(
        &self,
        topic: &TopicSettings,
        configuration: &Rc<dyn Settings>,
        encoded: Bytes,
        failure: Failure,
    ) -> Result<FailureDecision, String> {
        self.run(topic, configuration, |script| script.on_failure(encoded, failure))
    }

    fn run<D>(
        &self,
        topic: &TopicSettings,
        configuration: &Rc<dyn Settings>,
        decide: impl FnOnce(&Script) -> Result<D, ScriptError>,
    ) -> Result<D, String> {
        let begun = Instant::now();
        let script = self.compiled.get_or_init(|| {
            Script::compile(&self.source, topic.name.as_str(), configuration)
                .map_err(|error| error.to_string())
        });
        let decision = match script {
            Ok(script) => decide(script).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        let took = begun.elapsed();
        self.counts.borrow_mut().time += took;
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.metrics.hook_time_ns.add(took_ns);
        let begin = || self.metrics.hooks_by_topic.begin(self.topic, topic.name.as_str());
        self.series.get_or_init(begin).time_ns.add(took_ns);
        decision
    }

    /// The script has decided about a message, and its decision stands.
    pub(crate) fn succeeded(&self, is_refusal: bool) {
        let mut counts = self.counts.borrow_mut();
        counts.messages += 1;
        counts.refused += u64::from(is_refusal);
        self.metrics.hook_messages.add(1);
        self.metrics.hook_refused_messages.add(u64::from(is_refusal));
        drop(counts);
        self.count(|series| {
            series.messages.add(1);
            series.refused.add(u64::from(is_refusal));
        });
        self.breaker_closes();
    }

    /// The script has decided about a failed attempt, and its decision stands.
    pub(crate) fn decided_failure(&self) {
        self.counts.borrow_mut().attempts += 1;
        self.metrics.hook_attempts.add(1);
        self.count(|series| series.attempts.add(1));
        self.breaker_closes();
    }

    fn count(&self, count: impl FnOnce(&HookSeries)) {
        if let Some(series) = self.series.get() {
            count(series);
        }
    }

    fn breaker_closes(&self) {
        self.breaker.borrow_mut().succeeded();
        if self.is_resting.replace(false) {
            self.metrics.hooks_resting.less(1);
        }
    }

    /// The script has failed on a message.
    pub(crate) fn failed(&self, reason: &str, now: Timestamp) {
        let mut counts = self.counts.borrow_mut();
        counts.failures += 1;
        reason.clone_into(&mut counts.last_failure);
        self.metrics.hook_failures.add(1);
        self.count(|series| series.failures.add(1));
        if self.breaker.borrow_mut().failed(now) {
            self.is_resting.set(true);
            self.metrics.hooks_resting.add(1);
            let (topic, version) = (self.topic.0, self.version);
            tracing::warn!(topic, version, reason, "the hook of a topic rests after failures");
        }
    }

    /// Whether it rests, or has not gone well since.
    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.get()
    }
}

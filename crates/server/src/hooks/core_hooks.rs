//! The hooks of all topics on one core. They follow the configuration of the core: what has changed since the last look
//! is looked at when a message comes.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sennit_hooks::Settings;
use sennit_model::{HOOK_KEY_PREFIX, TopicId};

use super::{
    entries::{HookKey, HookVersion, version_in_use},
    topic_hook::TopicHook,
};
use crate::{
    broker::configuration::{ConfigurationSnapshot, CurrentConfiguration},
    runtime::metrics::CoreMetrics,
};

/// The hooks on one core: a service that each core has.
#[derive(Debug)]
pub(crate) struct CoreHooks {
    configuration: Rc<CurrentConfiguration>,
    metrics: Arc<CoreMetrics>,
    /// The change of hooks in the configuration that was looked at last.
    seen: Cell<Option<u64>>,
    by_topic: RefCell<HashMap<TopicId, Rc<TopicHook>, RandomState>>,
}

/// The configuration of a core, as scripts read it.
struct OfCore(Rc<CurrentConfiguration>);

impl Settings for OfCore {
    fn get(&self, key: &str) -> Option<Bytes> {
        self.0.value(key)
    }
}

impl CoreHooks {
    /// The hooks of the core that has this configuration.
    pub(crate) fn new(configuration: Rc<CurrentConfiguration>, metrics: Arc<CoreMetrics>) -> Self {
        Self { configuration, metrics, seen: Cell::default(), by_topic: RefCell::default() }
    }

    /// The hook of a topic, if it has one. Costs a comparison if no topic has.
    pub(crate) fn find(&self, topic: TopicId) -> Option<Rc<TopicHook>> {
        self.follow();
        let hooks = self.by_topic.borrow();
        if hooks.is_empty() { None } else { hooks.get(&topic).cloned() }
    }

    /// Looks at the configuration, if hooks have changed since the last look.
    fn follow(&self) {
        let changed = self.configuration.hooks_changed();
        if self.seen.get() != Some(changed) {
            self.look();
            self.seen.set(Some(changed));
        }
    }

    /// The topics whose hooks may decide about failed attempts.
    pub(crate) fn topics_with_on_failure(&self) -> Arc<[TopicId]> {
        self.follow();
        let hooks = self.by_topic.borrow();
        let mut topics: Vec<_> =
            hooks.values().filter(|hook| hook.names_on_failure()).map(|hook| hook.topic).collect();
        topics.sort_unstable();
        topics.into()
    }

    /// The configuration, as the scripts of this core read it.
    pub(crate) fn settings(&self) -> Rc<dyn Settings> {
        Rc::new(OfCore(self.configuration.clone()))
    }

    /// All entries of the configuration.
    pub(crate) fn snapshot(&self) -> ConfigurationSnapshot {
        self.configuration.snapshot()
    }

    /// Takes the hooks from the configuration. One whose version is the same goes on as it was.
    fn look(&self) {
        let snapshot = self.configuration.snapshot();
        let before = self.by_topic.take();
        let hooks = snapshot.entries(HOOK_KEY_PREFIX).filter_map(|entry| {
            let HookKey::InUse(topic) = HookKey::of_key(&entry.key)? else { return None };
            let version = version_in_use(&entry.value)?;
            if let Some(held) = before.get(&topic).filter(|held| held.version == version) {
                return Some((topic, held.clone()));
            }
            let key = HookKey::Version(topic, version).key();
            let kept = snapshot.get(key.as_str()).and_then(HookVersion::of_value);
            let Some(HookVersion { head, script }) = kept else {
                tracing::error!(topic = topic.0, version, "a hook has no script, and is not run");
                return None;
            };
            let hook = TopicHook::new(topic, version, head.on_error, script, self.metrics.clone());
            if let Some(held) = before.get(&topic) {
                hook.goes_on(held);
            }
            Some((topic, Rc::new(hook)))
        });
        let hooks: HashMap<_, Rc<TopicHook>, _> = hooks.collect();
        self.metrics.hooks.set(hooks.len() as u64);
        self.metrics.hooks_by_topic.retain(|topic| hooks.contains_key(&topic));
        let resting = hooks.values().filter(|hook| hook.is_resting()).count();
        self.metrics.hooks_resting.set(resting as u64);
        self.by_topic.replace(hooks);
    }
}

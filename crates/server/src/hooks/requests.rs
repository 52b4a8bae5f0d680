//! Requests about hooks: set a script, go back to a version, describe, list. They are changes of the configuration, which
//! every core has before they are answered. It knows no protocol.

use std::{pin::Pin, rc::Rc, sync::atomic::Ordering::Relaxed};

use sennit_hooks::{InvalidScript, Script};
use sennit_identity::Verb;
use sennit_model::{
    ConfigurationKey, HOOK_KEY_PREFIX, Offset, TopicId, TopicName,
    limits::{HOOK_NOTE_BYTES_MAX, HOOK_VERSIONS_MAX, HOOKS_MAX},
};
use tokio::sync::oneshot;

use super::{
    breaker::BreakerState,
    core_hooks::CoreHooks,
    entries::{HookKey, HookVersion, OnError, VersionHead, version_in_use, versions_prefix},
    topic_hook::HookCounts,
    topic_settings::{self, TopicSettings, Topics},
};
use crate::{
    broker::{
        audit,
        configuration::{
            self, ConfigurationRefusal, ConfigurationRequest, ConfigurationSnapshot, Write,
        },
        control_request::{ControlRefusal, check_topic},
        topic_listener::TopicListener,
    },
    identity::principal::Principal,
    runtime::{
        clock::now,
        core::{CoreHandle, Cores},
        inbox::Message,
    },
};

/// How often the next number of a version is tried if others take it.
const TRIES_MAX: usize = 16;

/// A script to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetHook {
    pub(crate) topic: TopicName,
    pub(crate) script: String,
    pub(crate) on_error: OnError,
    pub(crate) note: String,
}

/// A hook as it is described.
#[derive(Clone, Debug)]
pub(crate) struct HookDescription {
    pub(crate) topic: TopicName,
    /// The version in use.
    pub(crate) version: Option<u64>,
    /// The script that was asked for.
    pub(crate) script: String,
    pub(crate) versions: Vec<DescribedVersion>,
    /// How it is on each core that has it.
    pub(crate) cores: Vec<HookOnCore>,
}

/// A version of a hook, without its script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescribedVersion {
    pub(crate) version: u64,
    pub(crate) head: VersionHead,
    pub(crate) script_bytes: usize,
}

/// A hook on one core.
#[derive(Clone, Debug)]
pub(crate) struct HookOnCore {
    pub(crate) core: u32,
    pub(crate) state: BreakerState,
    pub(crate) counts: HookCounts,
}

/// A change of a hook that every core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HookChanged {
    pub(crate) version: Option<u64>,
    pub(crate) before: Option<u64>,
}

/// Why a request about hooks is refused; nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum HookRequestRefusal {
    #[error(transparent)]
    Control(#[from] ControlRefusal),
    #[error(transparent)]
    Configuration(#[from] ConfigurationRefusal),
    #[error(transparent)]
    Script(#[from] InvalidScript),
    #[error("the hook of the topic has no version {0}")]
    NoVersion(u64),
    #[error("the topic has no hook")]
    NoHook,
    #[error("HOOKS_MAX is {HOOKS_MAX}: delete one first")]
    TooMany,
    #[error("HOOK_NOTE_BYTES_MAX is {HOOK_NOTE_BYTES_MAX}: the note has {0} bytes")]
    NoteTooLong(usize),
}

/// One who asks about hooks, on any core.
#[derive(Debug)]
pub(crate) struct HookRequests<'a> {
    pub(crate) core: &'a CoreHandle,
    pub(crate) hooks: &'a CoreHooks,
    pub(crate) principal: &'a Principal,
}

impl HookRequests<'_> {
    /// Gives a topic's hook a new version, and has it run that.
    pub(crate) async fn set(&self, set: SetHook) -> Result<HookChanged, HookRequestRefusal> {
        let topic = set.topic.to_string();
        let changed = self.set_version(set).await;
        audit::note(&self.core.cores, self.principal, "hook set", topic, &changed);
        changed
    }

    async fn set_version(&self, set: SetHook) -> Result<HookChanged, HookRequestRefusal> {
        let SetHook { topic, script, on_error, note } = set;
        self.check_right(&topic)?;
        if note.len() > HOOK_NOTE_BYTES_MAX {
            return Err(HookRequestRefusal::NoteTooLong(note.len()));
        }
        let topic = self.topic(topic).await?;
        Script::compile(&script, topic.name.as_str(), &self.hooks.settings())?;
        let version = HookVersion::new(script, on_error, note, now());
        for _ in 0..TRIES_MAX {
            let snapshot = self.hooks.snapshot();
            let before = in_use(&snapshot, topic.id);
            if before.is_none() && count(&snapshot) >= HOOKS_MAX {
                return Err(HookRequestRefusal::TooMany);
            }
            let kept = versions(&snapshot, topic.id);
            let last = kept.last().map(|kept| kept.version).into_iter().chain(before).max();
            let number = last.unwrap_or(0) + 1;
            let key = HookKey::Version(topic.id, number).key();
            match self.write(key, Some(version.value()), Some(0)).await {
                // Somebody else was first.
                Err(ConfigurationRefusal::Revision { .. }) => continue,
                written => written?,
            }
            let in_use = number.to_string();
            self.write(HookKey::InUse(topic.id).key(), Some(in_use.into()), None).await?;
            let stay = HOOK_VERSIONS_MAX.saturating_sub(1);
            for old in &kept[..kept.len().saturating_sub(stay)] {
                let key = HookKey::Version(topic.id, old.version).key();
                self.write(key, None, None).await?;
            }
            return Ok(HookChanged { version: Some(number), before });
        }
        Err(ConfigurationRefusal::Busy.into())
    }

    /// Has a topic's hook run a version that it has, or none.
    pub(crate) async fn use_version(
        &self,
        topic: TopicName,
        version: Option<u64>,
    ) -> Result<HookChanged, HookRequestRefusal> {
        let name = topic.to_string();
        let changed = self.switch_version(topic, version).await;
        audit::note(&self.core.cores, self.principal, "hook use", name, &changed);
        changed
    }

    async fn switch_version(
        &self,
        topic: TopicName,
        version: Option<u64>,
    ) -> Result<HookChanged, HookRequestRefusal> {
        self.check_right(&topic)?;
        let topic = self.topic(topic).await?;
        let snapshot = self.hooks.snapshot();
        let before = in_use(&snapshot, topic.id);
        match version {
            None if before.is_none() => return Err(HookRequestRefusal::NoHook),
            Some(number) => {
                let kept = script_of(&snapshot, topic.id, number);
                let kept = kept.ok_or(HookRequestRefusal::NoVersion(number))?;
                Script::compile(&kept.script, topic.name.as_str(), &self.hooks.settings())?;
                if before.is_none() && count(&snapshot) >= HOOKS_MAX {
                    return Err(HookRequestRefusal::TooMany);
                }
            }
            None => {}
        }
        let value = version.map(|version| version.to_string().into());
        self.write(HookKey::InUse(topic.id).key(), value, None).await?;
        Ok(HookChanged { version, before })
    }

    /// Describes a topic's hook, with the script of a version, or of the one in use.
    pub(crate) async fn describe(
        &self,
        topic: TopicName,
        version: Option<u64>,
    ) -> Result<HookDescription, HookRequestRefusal> {
        self.check_right(&topic)?;
        let found = topic_settings::ask(&self.core.cores, Topics::Named(topic.clone())).await;
        let found = found?.into_iter().next();
        let TopicSettings { id, name, .. } = found.ok_or(ControlRefusal::UnknownTopic(topic))?;
        let snapshot = self.hooks.snapshot();
        let in_use = in_use(&snapshot, id);
        let script = match version.or(in_use) {
            None => String::new(),
            Some(number) => match script_of(&snapshot, id, number) {
                Some(kept) => kept.script,
                None => return Err(HookRequestRefusal::NoVersion(number)),
            },
        };
        let cores = on_cores(&self.core.cores, id).await;
        let versions = versions(&snapshot, id);
        Ok(HookDescription { topic: name, version: in_use, script, versions, cores })
    }

    /// The hooks in use of topics with a number behind `after`, by the number, at most so many; and where the next page
    /// begins, if there is one.
    pub(crate) async fn list(
        &self,
        after: Option<TopicId>,
        most: usize,
    ) -> Result<(Vec<(TopicName, DescribedVersion)>, Option<TopicId>), HookRequestRefusal> {
        let snapshot = self.hooks.snapshot();
        let mut topics: Vec<_> = in_use_of_all(&snapshot)
            .map(|(topic, _)| topic)
            .filter(|topic| after.is_none_or(|after| *topic > after))
            .collect();
        topics.sort_unstable();
        let more = topics.len() > most;
        topics.truncate(most);
        let last = topics.last().copied().filter(|_| more);
        let found = topic_settings::ask(&self.core.cores, Topics::Numbered(topics)).await;
        let found = found?;
        let may_know = |topic: &TopicSettings| self.check_right(&topic.name).is_ok();
        let hooks = found.into_iter().filter(may_know).filter_map(|topic| {
            let number = in_use(&snapshot, topic.id)?;
            let kept = versions(&snapshot, topic.id);
            let version = kept.into_iter().find(|kept| kept.version == number)?;
            Some((topic.name, version))
        });
        Ok((hooks.collect(), last))
    }

    /// Checks that the principal may read and change the hook of a topic.
    fn check_right(&self, topic: &TopicName) -> Result<(), ControlRefusal> {
        Ok(self.principal.may(Verb::Hook, topic.as_str())?)
    }

    /// A topic that may have a hook.
    async fn topic(&self, name: TopicName) -> Result<TopicSettings, HookRequestRefusal> {
        check_topic(&name)?;
        let found = topic_settings::ask(&self.core.cores, Topics::Named(name.clone())).await;
        let found = found?;
        found.into_iter().next().ok_or_else(|| ControlRefusal::UnknownTopic(name).into())
    }

    async fn write(
        &self,
        key: ConfigurationKey,
        value: Option<bytes::Bytes>,
        if_revision: Option<u64>,
    ) -> Result<(), ConfigurationRefusal> {
        write(&self.core.cores, Write { key, value, if_revision, if_authority: None }).await
    }
}

async fn write(cores: &Cores, write: Write) -> Result<(), ConfigurationRefusal> {
    let write = ConfigurationRequest::Write(write);
    let answer = configuration::ask(cores, Principal::broker(), write).await;
    let stopping = || ConfigurationRefusal::Broker(Box::new(ControlRefusal::ShuttingDown));
    answer.unwrap_or_else(|_| Err(stopping())).map(drop)
}

fn in_use(snapshot: &ConfigurationSnapshot, topic: TopicId) -> Option<u64> {
    snapshot.get(HookKey::InUse(topic).key().as_str()).and_then(version_in_use)
}

fn in_use_of_all(
    snapshot: &ConfigurationSnapshot,
) -> impl Iterator<Item = (TopicId, u64)> + use<'_> {
    snapshot.entries(HOOK_KEY_PREFIX).filter_map(|entry| match HookKey::of_key(&entry.key)? {
        HookKey::InUse(topic) => Some((topic, version_in_use(&entry.value)?)),
        HookKey::Version(..) => None,
    })
}

fn count(snapshot: &ConfigurationSnapshot) -> usize {
    in_use_of_all(snapshot).count()
}

fn script_of(
    snapshot: &ConfigurationSnapshot,
    topic: TopicId,
    version: u64,
) -> Option<HookVersion> {
    let key = HookKey::Version(topic, version).key();
    snapshot.get(key.as_str()).and_then(HookVersion::of_value)
}

/// The versions of a topic's hook, by number.
fn versions(snapshot: &ConfigurationSnapshot, topic: TopicId) -> Vec<DescribedVersion> {
    let prefix = versions_prefix(topic);
    let kept = snapshot.entries(&prefix).filter_map(|entry| {
        let HookKey::Version(_, version) = HookKey::of_key(&entry.key)? else { return None };
        let HookVersion { head, script } = HookVersion::of_value(&entry.value)?;
        Some(DescribedVersion { version, head, script_bytes: script.len() })
    });
    let mut kept: Vec<_> = kept.collect();
    kept.sort_by_key(|kept| kept.version);
    kept
}

/// How a topic's hook is on each core that has it.
async fn on_cores(cores: &Cores, topic: TopicId) -> Vec<HookOnCore> {
    let mut told = Vec::new();
    for (core, inbox) in (0..).zip(cores.inboxes.iter()) {
        let (sender, answer) = oneshot::channel();
        let _ = inbox.send(Message::call(move |hooks: &Rc<CoreHooks>| {
            let on_core = hooks.find(topic).map(|hook| {
                let (state, counts) = (hook.state(), hook.counts());
                HookOnCore { core, state, counts }
            });
            let _ = sender.send(on_core);
        }));
        told.push(answer);
    }
    let mut on_cores = Vec::new();
    for answer in told {
        // A core that has ended runs none.
        on_cores.extend(answer.await.ok().flatten());
    }
    on_cores
}

/// Deletes the hooks of topics that are deleted.
#[derive(Debug)]
pub(crate) struct HookCleaner(pub(crate) CoreHandle);

impl TopicListener for HookCleaner {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(std::future::ready(()))
    }

    fn appeared(self: Rc<Self>, _name: &TopicName, _topic: TopicId, _from: Offset) {}

    fn gone(self: Rc<Self>, _name: &TopicName, topic: TopicId) {
        self.0.cores.topic_changes.fetch_add(1, Relaxed);
        if !self.0.cores.leads_catalogue() {
            return;
        }
        let Some(hooks) = self.0.services.find::<CoreHooks>() else { return };
        let snapshot = hooks.snapshot();
        let prefix = versions_prefix(topic);
        let of_versions = snapshot.entries(&prefix).map(|entry| entry.key);
        let in_use = in_use(&snapshot, topic).map(|_| HookKey::InUse(topic).key());
        let keys: Vec<_> = in_use.into_iter().chain(of_versions).collect();
        if keys.is_empty() {
            return;
        }
        tokio::task::spawn_local(async move {
            for key in keys {
                let delete = Write { key, value: None, if_revision: None, if_authority: None };
                if let Err(refusal) = write(&self.0.cores, delete).await {
                    tracing::warn!(%refusal, topic = topic.0, "parts of a deleted topic's hook stay");
                }
            }
        });
    }
}

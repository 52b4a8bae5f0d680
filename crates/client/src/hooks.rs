//! Hooks of topics: set a script, go back to a version, describe, list.

use sennit_model::{Timestamp, TopicName};
use sennit_protocol::{
    Reply, Request,
    control::{self, HookOnError as Wire, HookState as WireState},
};

use crate::{client::Client, error::Error};

/// What becomes of messages that a hook's script has not decided about, because it failed or rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookOnError {
    /// They are accepted as they are.
    #[default]
    Accept,
    /// They are refused.
    Refuse,
}

/// A change of a hook that is durable, and that every core of the broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookChanged {
    /// The version in use from now on.
    pub version: Option<u64>,
    /// The version in use before.
    pub before: Option<u64>,
}

/// A version of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookVersion {
    /// Its number, from 1.
    pub version: u64,
    /// When it was set.
    pub set_at: Timestamp,
    /// The length of its script in bytes.
    pub script_bytes: u64,
    /// What becomes of messages that it has not decided about.
    pub on_error: HookOnError,
    /// What people want to remember of it.
    pub note: String,
}

/// Whether the script of a hook is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookState {
    /// It is.
    Closed,
    /// It has failed too often, and rests until then.
    Open {
        /// Until when.
        until: Timestamp,
    },
    /// It has rested: the next message decides whether it goes on.
    HalfOpen,
    /// A state that this version does not know.
    Unknown,
}

/// How a hook is on one core of the broker, since that began to run its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCore {
    /// The core's number, from 0.
    pub core: u32,
    /// The state of its breaker.
    pub state: HookState,
    /// Messages that the script has decided about.
    pub messages: u64,
    /// Failed attempts that it has decided about.
    pub attempts: u64,
    /// Messages that it has refused.
    pub refused: u64,
    /// Messages on which it has failed.
    pub failures: u64,
    /// How long it has computed.
    pub time: std::time::Duration,
    /// Why it failed last; empty if it never has.
    pub last_failure: String,
}

/// A hook of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookDescription {
    /// The topic.
    pub topic: TopicName,
    /// The version in use.
    pub version: Option<u64>,
    /// The script that was asked for; empty if there is none.
    pub script: String,
    /// The versions that are kept, by number.
    pub versions: Vec<HookVersion>,
    /// How it is on each core.
    pub cores: Vec<HookCore>,
}

/// A topic with a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSummary {
    /// The topic.
    pub topic: TopicName,
    /// The version in use.
    pub version: HookVersion,
}

/// All requests fail with `unknown-kind` by a broker that has no hooks, and as others about names and settings do.
impl Client {
    /// Gives a topic's hook a new version of its script, and has it run that. `note` is for people, and has at most 256
    /// bytes.
    ///
    /// # Errors
    /// `hook-invalid`, with the line, for a script that is none; `unknown-topic`; `limit-reached`.
    pub async fn set_hook(
        &self,
        topic: &TopicName,
        script: &str,
        on_error: HookOnError,
        note: &str,
    ) -> Result<HookChanged, Error> {
        let on_error = match on_error {
            HookOnError::Accept => Wire::Accept,
            HookOnError::Refuse => Wire::Refuse,
        };
        let (topic, script, note) = (topic.to_string(), script.to_owned(), note.to_owned());
        let body = control::SetHook { topic, script, on_error: on_error.into(), note };
        changed(self.connection.ask(Request::SetHook(body), false).await?)
    }

    /// Has a topic's hook run a version that it has, or none. Its versions stay.
    ///
    /// # Errors
    /// `hook-invalid`, if the hook has no such version; `unknown-topic`.
    pub async fn use_hook_version(
        &self,
        topic: &TopicName,
        version: Option<u64>,
    ) -> Result<HookChanged, Error> {
        let (topic, version) = (topic.to_string(), version.unwrap_or(0));
        let body = control::UseHook { topic, version };
        changed(self.connection.ask(Request::UseHook(body), false).await?)
    }

    /// Describes a topic's hook, with the script of a version, or of the one in use.
    ///
    /// # Errors
    /// `hook-invalid`, if the hook has no such version; `unknown-topic`.
    pub async fn describe_hook(
        &self,
        topic: &TopicName,
        version: Option<u64>,
    ) -> Result<HookDescription, Error> {
        let (topic, version) = (topic.to_string(), version.unwrap_or(0));
        let body = control::DescribeHook { topic, version };
        match self.connection.ask(Request::DescribeHook(body), true).await? {
            Reply::HookDescription(body) => Ok(HookDescription {
                topic: topic_of(&body.topic)?,
                version: Some(body.version).filter(|version| *version > 0),
                script: body.script,
                versions: body.versions.into_iter().map(version_of).collect(),
                cores: body.cores.into_iter().map(core_of).collect(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Lists the hooks in use, with as many requests as there are pages.
    ///
    /// # Errors
    /// See above.
    pub async fn list_hooks(&self) -> Result<Vec<HookSummary>, Error> {
        let (mut hooks, mut page_token) = (Vec::new(), String::new());
        loop {
            let body = control::ListHooks { page_token, page_size: 0 };
            let Reply::HookList(page) = self.connection.ask(Request::ListHooks(body), true).await?
            else {
                return Err(Error::Unexpected("a list of hooks was expected".to_owned()));
            };
            for hook in page.hooks {
                let version = version_of(hook.version.unwrap_or_default());
                hooks.push(HookSummary { topic: topic_of(&hook.topic)?, version });
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(hooks);
            }
        }
    }
}

fn changed(reply: Reply) -> Result<HookChanged, Error> {
    let version = |version: u64| Some(version).filter(|version| *version > 0);
    match reply {
        Reply::HookChanged(body) => {
            let (version, before) = (version(body.version), version(body.version_before));
            Ok(HookChanged { version, before })
        }
        other => Err(unexpected(&other)),
    }
}

fn version_of(body: control::HookVersion) -> HookVersion {
    let on_error = match body.on_error() {
        Wire::Refuse => HookOnError::Refuse,
        Wire::Accept | Wire::Unspecified => HookOnError::Accept,
    };
    HookVersion {
        version: body.version,
        set_at: Timestamp(body.set_at_ms),
        script_bytes: body.script_bytes,
        on_error,
        note: body.note,
    }
}

fn core_of(body: control::HookCore) -> HookCore {
    let state = match body.state() {
        WireState::Closed => HookState::Closed,
        WireState::Open => HookState::Open { until: Timestamp(body.rests_until_ms) },
        WireState::HalfOpen => HookState::HalfOpen,
        WireState::Unspecified => HookState::Unknown,
    };
    HookCore {
        core: body.core,
        state,
        messages: body.messages,
        attempts: body.attempts,
        refused: body.refused,
        failures: body.failures,
        time: std::time::Duration::from_nanos(body.time_ns),
        last_failure: body.last_failure,
    }
}

fn topic_of(name: &str) -> Result<TopicName, Error> {
    name.parse().map_err(|error| Error::Unexpected(format!("{error}")))
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} is not the answer to this request", reply.kind()))
}

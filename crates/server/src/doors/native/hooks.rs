//! Requests of a session about hooks: bodies are checked and passed on, answers and refusals become replies. The batches
//! that the session publishes go through the hooks of their topics. It does not know how hooks run.

use std::rc::Rc;

use sennit_model::{Batch, NameError, TopicId, TopicName};
use sennit_protocol::{ErrorCode, PublishHead, Reply, Request, control};

use super::{
    configuration, pending_request::PendingRequest, refusal_reply::control_reply,
    reply_size::fitting,
};
use crate::{
    broker::control_request::ControlRefusal,
    hooks::{
        breaker::BreakerState,
        core_hooks::CoreHooks,
        entries::OnError,
        publishes::HookRefusal,
        requests::{
            DescribedVersion, HookDescription, HookOnCore, HookRequestRefusal, HookRequests,
            SetHook,
        },
    },
    runtime::{clock::now, core::CoreHandle},
};

/// Most hooks on a page.
const PAGE_HOOKS_MAX: usize = 100;

/// How long a publisher waits before it sends a batch again on which a hook has failed, in milliseconds.
const FAILED_RETRY_MS: u64 = 1000;

/// The hooks of a core. One without, as it is in tests, has none.
pub(crate) fn of_core(core: &CoreHandle) -> Rc<CoreHooks> {
    core.services.find().unwrap_or_else(|| {
        Rc::new(CoreHooks::new(Rc::default(), core.cores.metrics[core.index].clone()))
    })
}

/// Has the hook of a topic, if it has one, decide about a batch.
///
/// # Errors
/// The error that tells the publisher why nothing of it is appended.
pub(crate) async fn on_publish(
    hooks: &CoreHooks,
    core: &CoreHandle,
    head: &PublishHead,
    batch: Batch,
) -> Result<Batch, control::Error> {
    let Some(hook) = hooks.find(head.partition.topic) else { return Ok(batch) };
    let decided = hooks.on_publish(&hook, core, head.producer.id.0, batch).await;
    decided.map_err(|refusal| {
        let code = match refusal {
            HookRefusal::Refused { .. } => ErrorCode::HookRefused,
            HookRefusal::Failed { .. } | HookRefusal::Rests { .. } => ErrorCode::HookFailed,
        };
        let mut error = control::Error::new(code, refusal.to_string());
        error.retry_after_ms = match refusal {
            HookRefusal::Refused { .. } => 0,
            HookRefusal::Failed { .. } => FAILED_RETRY_MS,
            HookRefusal::Rests { until, .. } => {
                u64::try_from(until.since(now()).as_millis()).unwrap_or(u64::MAX).max(1)
            }
        };
        error
    })
}

/// Why a request is refused before anybody is asked.
enum Fault {
    Name(NameError),
    Token,
    Request(HookRequestRefusal),
}

impl From<HookRequestRefusal> for Fault {
    fn from(refusal: HookRequestRefusal) -> Self {
        Self::Request(refusal)
    }
}

impl PendingRequest {
    /// Does a request about hooks, and tells the client what came of it.
    pub(crate) async fn hooks(self, request: Request) {
        let reply = match self.hook_request(request).await {
            Ok(reply) => reply,
            Err(fault) => Reply::Error(refusal_reply(&fault)),
        };
        self.controls.add_permits(self.permits);
        self.outbox.reply(&fitting(reply, self.outbox.frame_bytes_max()), self.number);
    }

    async fn hook_request(&self, request: Request) -> Result<Reply, Fault> {
        let hooks = self.core.services.find::<CoreHooks>();
        let hooks = hooks.ok_or(HookRequestRefusal::from(ControlRefusal::ShuttingDown))?;
        let (core, principal) = (&self.core, &self.principal);
        let requests = HookRequests { core, hooks: &hooks, principal };
        let name = |text: &str| text.parse::<TopicName>().map_err(Fault::Name);
        let changed = match request {
            Request::SetHook(body) => {
                let on_error = match body.on_error() {
                    control::HookOnError::Refuse => OnError::Refuse,
                    control::HookOnError::Accept | control::HookOnError::Unspecified => {
                        OnError::Accept
                    }
                };
                let (topic, script, note) = (name(&body.topic)?, body.script, body.note);
                requests.set(SetHook { topic, script, on_error, note }).await?
            }
            Request::UseHook(body) => {
                let version = Some(body.version).filter(|version| *version > 0);
                requests.use_version(name(&body.topic)?, version).await?
            }
            Request::DescribeHook(body) => {
                let version = Some(body.version).filter(|version| *version > 0);
                let description = requests.describe(name(&body.topic)?, version).await?;
                return Ok(Reply::HookDescription(described(description)));
            }
            Request::ListHooks(body) => {
                let after = match &*body.page_token {
                    "" => None,
                    token => Some(TopicId(token.parse().map_err(|_| Fault::Token)?)),
                };
                let most = match body.page_size as usize {
                    0 => PAGE_HOOKS_MAX,
                    wanted => wanted.min(PAGE_HOOKS_MAX),
                };
                let (hooks, next) = requests.list(after, most).await?;
                let summary = |(topic, version): (TopicName, DescribedVersion)| {
                    let (topic, version) = (topic.to_string(), Some(described_version(version)));
                    control::HookSummary { topic, version }
                };
                let hooks = hooks.into_iter().map(summary).collect();
                let next_page_token = next.map(|next| next.0.to_string()).unwrap_or_default();
                return Ok(Reply::HookList(control::HookList { hooks, next_page_token }));
            }
            _ => return Err(HookRequestRefusal::from(ControlRefusal::WrongAnswer).into()),
        };
        let version = changed.version.unwrap_or(0);
        let version_before = changed.before.unwrap_or(0);
        Ok(Reply::HookChanged(control::HookChanged { version, version_before }))
    }
}

fn described(description: HookDescription) -> control::HookDescription {
    let HookDescription { topic, version, script, versions, cores } = description;
    control::HookDescription {
        topic: topic.to_string(),
        version: version.unwrap_or(0),
        script,
        versions: versions.into_iter().map(described_version).collect(),
        cores: cores.into_iter().map(described_core).collect(),
    }
}

fn described_version(version: DescribedVersion) -> control::HookVersion {
    let DescribedVersion { version, head, script_bytes } = version;
    let on_error = match head.on_error {
        OnError::Accept => control::HookOnError::Accept,
        OnError::Refuse => control::HookOnError::Refuse,
    };
    control::HookVersion {
        version,
        set_at_ms: head.set_at_ms,
        script_bytes: script_bytes as u64,
        on_error: on_error.into(),
        note: head.note,
    }
}

fn described_core(on_core: HookOnCore) -> control::HookCore {
    let HookOnCore { core, state, counts } = on_core;
    let (state, rests_until_ms) = match state {
        BreakerState::Closed => (control::HookState::Closed, 0),
        BreakerState::Open(until) => (control::HookState::Open, until.0),
        BreakerState::HalfOpen => (control::HookState::HalfOpen, 0),
    };
    control::HookCore {
        core,
        state: state.into(),
        messages: counts.messages,
        refused: counts.refused,
        failures: counts.failures,
        time_ns: u64::try_from(counts.time.as_nanos()).unwrap_or(u64::MAX),
        last_failure: counts.last_failure,
        rests_until_ms,
        attempts: counts.attempts,
    }
}

fn refusal_reply(fault: &Fault) -> control::Error {
    let refusal = match fault {
        Fault::Name(error) => {
            return control::Error::new(ErrorCode::InvalidName, error.to_string());
        }
        Fault::Token => {
            let message = "page_token is none that a page of hooks has";
            return control::Error::new(ErrorCode::InvalidConfig, message);
        }
        Fault::Request(refusal) => refusal,
    };
    let code = match refusal {
        HookRequestRefusal::Control(refusal) => return control_reply(refusal),
        HookRequestRefusal::Configuration(refusal) => {
            return configuration::refusal_reply(refusal);
        }
        HookRequestRefusal::Script(_)
        | HookRequestRefusal::NoVersion(_)
        | HookRequestRefusal::NoHook => ErrorCode::HookInvalid,
        HookRequestRefusal::TooMany | HookRequestRefusal::NoteTooLong(_) => ErrorCode::LimitReached,
    };
    control::Error::new(code, refusal.to_string())
}

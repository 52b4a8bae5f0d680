//! What the broker publishes by itself goes through the hooks of its topics too.

use super::{core_hooks::CoreHooks, publishes::HookRefusal};
use crate::{
    broker::{
        control_request::ControlRefusal,
        publish_hook::{Decided, PublishHook},
    },
    runtime::core::CoreHandle,
};
use sennit_model::{Batch, TopicId};

/// The hooks of this core.
#[derive(Debug)]
pub(crate) struct BrokerPublishes(pub(crate) CoreHandle);

impl PublishHook for BrokerPublishes {
    fn on_publish(&self, topic: TopicId, producer: u64, batch: Batch) -> Decided<'_> {
        Box::pin(async move {
            let Some(hooks) = self.0.services.find::<CoreHooks>() else { return Ok(batch) };
            let Some(hook) = hooks.find(topic) else { return Ok(batch) };
            let decided = hooks.on_publish(&hook, &self.0, producer, batch).await;
            decided.map_err(|refusal| match refusal {
                HookRefusal::Refused { .. } => ControlRefusal::HookRefused(refusal.to_string()),
                HookRefusal::Failed { .. } | HookRefusal::Rests { .. } => {
                    ControlRefusal::HookFailed(refusal.to_string())
                }
            })
        })
    }
}

//! What a hook makes of a batch that is published. Each message is decided about in its order; between two of them
//! others have their turn, so that a slow script delays its own topic alone.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_hooks::rewrite;
use sennit_model::{Batch, BatchBuilder, MessageView, Timestamp};

use super::{
    breaker::BreakerState, core_hooks::CoreHooks, entries::OnError, topic_hook::TopicHook,
    topic_settings::TopicSettings,
};
use crate::runtime::{clock::now, core::CoreHandle};

/// How long a hook may compute before others have their turn.
const TURN: Duration = Duration::from_millis(1);

/// Why nothing of a batch is appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HookRefusal {
    /// The script has refused a message.
    #[error("message {index}: {reason}")]
    Refused { index: usize, reason: String },
    /// The script has failed on a message, and the hook accepts none that it has not seen.
    #[error("message {index}: the hook has failed: {reason}")]
    Failed { index: usize, reason: String },
    /// The script rests after failures, and the hook accepts no message that it has not seen.
    #[error("the hook rests after failures; the last one: {reason}")]
    Rests { until: Timestamp, reason: String },
}

impl CoreHooks {
    /// Has a hook decide about a batch; returns the batch as the hook wants it.
    pub(crate) async fn on_publish(
        &self,
        hook: &Rc<TopicHook>,
        core: &CoreHandle,
        producer: u64,
        batch: Batch,
    ) -> Result<Batch, HookRefusal> {
        if !hook.names_on_publish() {
            return Ok(batch);
        }
        // Of a topic that is gone the engine tells.
        let settings = hook.settings(&core.cores).await;
        let settings = settings.map_err(|refusal| {
            let reason = refusal.to_string();
            HookRefusal::Failed { index: 0, reason }
        });
        let Some(topic) = settings? else { return Ok(batch) };
        let decided = self.decide(hook, &topic, producer, &batch).await;
        Ok(decided?.unwrap_or(batch))
    }

    /// The batch as the hook wants it; `None` if nothing of it changes.
    async fn decide(
        &self,
        hook: &Rc<TopicHook>,
        topic: &TopicSettings,
        producer: u64,
        batch: &Batch,
    ) -> Result<Option<Batch>, HookRefusal> {
        let configuration = self.settings();
        let mut builder = None;
        let (mut at, mut turn) = (0, Instant::now());
        for (index, message) in batch.messages().enumerate() {
            let end = at + message.encoded().len();
            let encoded = batch.bytes().slice(at..end);
            at = end;
            let decision = match hook.state() {
                BreakerState::Closed | BreakerState::HalfOpen => {
                    hook.on_publish(topic, &configuration, encoded, producer)
                }
                BreakerState::Open(until) if hook.on_error == OnError::Refuse => {
                    return Err(HookRefusal::Rests { until, reason: hook.counts().last_failure });
                }
                BreakerState::Open(_) => {
                    copy(builder.as_mut(), &message, index)?;
                    continue;
                }
            };
            let written = decision.and_then(|decision| {
                if let Some(reason) = decision.refuse {
                    return Ok(Some(reason));
                }
                if decision.is_unchanged() && builder.is_none() {
                    return Ok(None);
                }
                let builder = match &mut builder {
                    Some(builder) => builder,
                    none => none.insert(copies(batch, index)?),
                };
                rewrite(&message, &decision, topic.fields.as_deref(), builder)
                    .map_err(|error| error.to_string())?;
                Ok(None)
            });
            match written {
                Ok(refused) => {
                    hook.succeeded(refused.is_some());
                    if let Some(reason) = refused {
                        return Err(HookRefusal::Refused { index, reason });
                    }
                }
                Err(reason) => {
                    hook.failed(&reason, now());
                    if hook.on_error == OnError::Refuse {
                        return Err(HookRefusal::Failed { index, reason });
                    }
                    copy(builder.as_mut(), &message, index)?;
                }
            }
            if turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        Ok(builder.as_mut().and_then(BatchBuilder::take))
    }
}

/// A builder with the first messages of a batch as they are.
fn copies(batch: &Batch, count: usize) -> Result<BatchBuilder, String> {
    let mut builder = BatchBuilder::for_broker();
    for message in batch.messages().take(count) {
        builder.push_copy(&message).map_err(|error| error.to_string())?;
    }
    Ok(builder)
}

/// Adds a message as it is, if there is a builder.
fn copy(
    builder: Option<&mut BatchBuilder>,
    message: &MessageView<'_>,
    index: usize,
) -> Result<(), HookRefusal> {
    let Some(builder) = builder else { return Ok(()) };
    let failed =
        |error: sennit_model::BatchError| HookRefusal::Failed { index, reason: error.to_string() };
    builder.push_copy(message).map_err(failed)
}

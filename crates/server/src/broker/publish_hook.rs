//! Somebody who decides about what the broker publishes by itself, before it is published. It knows no script.

use std::{fmt, pin::Pin};

use sennit_model::{Batch, TopicId};

use super::control_request::ControlRefusal;

/// The batch as it is published, or why it is not.
pub(crate) type Decided<'a> = Pin<Box<dyn Future<Output = Result<Batch, ControlRefusal>> + 'a>>;

/// See the file's page.
pub(crate) trait PublishHook: fmt::Debug {
    /// Decides about a batch for a topic. A refusal is [`ControlRefusal::HookRefused`] or
    /// [`ControlRefusal::HookFailed`].
    fn on_publish(&self, topic: TopicId, producer: u64, batch: Batch) -> Decided<'_>;
}

//! A decision becomes a part of the message: fields are written as the headers that the topic names for them, so that
//! the engine finds them there. It knows no script.

use sennit_model::{
    BatchBuilder, BatchError, FieldValues, HeaderChange, HeaderKind, MessageChange, MessageFields,
    MessageView, MissingHeader,
};

use crate::decision::PublishDecision;

/// The headers that a topic names for the fields of its messages; `None` if it names none.
pub type TopicHeaders<'a> = Option<&'a MessageFields>;

/// Why a decision cannot become a part of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The topic names no header for a field that the hook sets.
    #[error(transparent)]
    MissingHeader(#[from] MissingHeader),
    /// The message would exceed a limit, or its own headers are wrong.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Adds the message to a batch, as the decision has it. A reason to refuse it is not looked at.
///
/// # Errors
/// [`RewriteError`]; the builder is then unchanged.
pub fn rewrite(
    message: &MessageView<'_>,
    decision: &PublishDecision,
    headers: TopicHeaders<'_>,
    builder: &mut BatchBuilder,
) -> Result<(), RewriteError> {
    if decision.is_unchanged() {
        return Ok(builder.push_copy(message)?);
    }
    let values = FieldValues {
        fair_key: decision.fair_key.as_deref(),
        weight: decision.weight,
        priority: decision.priority,
        cost: decision.cost,
        throttle_keys: decision.throttle_keys.as_deref(),
    };
    let fields = values.named(headers)?;
    let mut changes = Vec::with_capacity(decision.headers.len() + fields.len());
    for (name, value) in &decision.headers {
        let value = value.as_ref().map(|value| (HeaderKind::Text, &value[..]));
        changes.push(HeaderChange { name, value });
    }
    for (header, value) in &fields {
        let value = Some((HeaderKind::Text, value.as_bytes()));
        changes.push(HeaderChange { name: header.as_str(), value });
    }
    let (delay, time_to_live) = (decision.delay, decision.time_to_live);
    let change = MessageChange { headers: &changes, delay, time_to_live };
    Ok(builder.push_changed(message, &change)?)
}

//! A decision becomes a part of the message: fields are written as the headers that the topic names for them, so that
//! the engine finds them there. It knows no script.

use sennit_model::{
    BatchBuilder, BatchError, Cost, HeaderChange, HeaderKind, HeaderName, MESSAGE_KEY,
    MessageChange, MessageFields, MessageView,
};

use crate::decision::PublishDecision;

/// The headers that a topic names for the fields of its messages; `None` if it names none.
pub type TopicHeaders<'a> = Option<&'a MessageFields>;

/// Why a decision cannot become a part of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The topic names no header for the field.
    #[error(
        "the hook sets {field}, and the topic names no header for it: see `sennit topic alter {option}`"
    )]
    NoHeader {
        /// The field.
        field: &'static str,
        /// The option that names a header.
        option: &'static str,
    },
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
    let nothing = MessageFields::default();
    let named = headers.unwrap_or(&nothing);
    let cost_header = match &named.cost {
        Cost::Header(name) => Some(name),
        Cost::Message | Cost::Bytes => None,
    };
    // The message's own key is no header that could be set.
    let fair_key_header = named.fair_key.as_ref().filter(|name| name.as_str() != MESSAGE_KEY);
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let (weight, priority, cost) =
        (number(decision.weight), number(decision.priority), number(decision.cost));
    let fields: [(&'static str, &'static str, Option<&HeaderName>, Option<&String>); 5] = [
        ("fair_key", "--fair-key", fair_key_header, decision.fair_key.as_ref()),
        ("weight", "--weight", named.weight.as_ref(), weight.as_ref()),
        ("priority", "--priority", named.priority.as_ref(), priority.as_ref()),
        ("cost", "--cost", cost_header, cost.as_ref()),
        (
            "throttle_keys",
            "--throttle-keys",
            named.throttle_keys.as_ref(),
            decision.throttle_keys.as_ref(),
        ),
    ];
    let mut changes = Vec::with_capacity(decision.headers.len() + fields.len());
    for (name, value) in &decision.headers {
        let value = value.as_ref().map(|value| (HeaderKind::Text, &value[..]));
        changes.push(HeaderChange { name, value });
    }
    for (field, option, header, value) in fields {
        let Some(value) = value else { continue };
        let Some(header) = header else { return Err(RewriteError::NoHeader { field, option }) };
        let value = Some((HeaderKind::Text, value.as_bytes()));
        changes.push(HeaderChange { name: header.as_str(), value });
    }
    let (delay, time_to_live) = (decision.delay, decision.time_to_live);
    let change = MessageChange { headers: &changes, delay, time_to_live };
    Ok(builder.push_changed(message, &change)?)
}

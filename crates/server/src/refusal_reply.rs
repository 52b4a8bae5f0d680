//! Refusals as replies: each reason has one code, and the context that a client needs to mend it.

use sennit_engine::Refusal;
use sennit_protocol::{ErrorCode, control};

/// The reply that tells a client of a refusal.
pub(crate) fn reply(refusal: &Refusal) -> control::Error {
    let code = match refusal {
        Refusal::UnknownTopic => ErrorCode::UnknownTopic,
        Refusal::StreamClosed => ErrorCode::StreamClosed,
        Refusal::UnknownGroup => ErrorCode::UnknownGroup,
        Refusal::SettingsDiffer { .. } => ErrorCode::TopicExists,
        Refusal::SettingFixed { .. } => ErrorCode::SettingFixed,
        Refusal::Config(_) => ErrorCode::InvalidConfig,
        Refusal::Name(_) => ErrorCode::InvalidName,
        Refusal::SequenceGap { .. } => ErrorCode::SequenceGap,
        Refusal::ProducerFenced { .. } => ErrorCode::ProducerFenced,
        Refusal::SequenceOverlap { .. } => ErrorCode::SequenceOverlap,
        Refusal::OffsetMismatch { .. } => ErrorCode::OffsetMismatch,
        Refusal::KeyMissing => ErrorCode::KeyMissing,
        Refusal::Limit { .. } => ErrorCode::LimitReached,
        Refusal::CursorHeld { .. } | Refusal::CursorLost { .. } => ErrorCode::CursorHeld,
        Refusal::StorageFull => ErrorCode::StorageFull,
        Refusal::OutcomeUnknown => ErrorCode::OutcomeUnknown,
    };
    let mut error = control::Error::new(code, refusal.to_string());
    match refusal {
        Refusal::SequenceGap { expected, .. } | Refusal::SequenceOverlap { expected, .. } => {
            error.expected_sequence = Some(*expected);
        }
        Refusal::OffsetMismatch { next, .. } => error.next_offset = Some(next.0),
        Refusal::StorageFull => error.retry_after_ms = 500,
        _ => {}
    }
    error
}

/// A shard has answered otherwise than it was asked: the broker's own fault.
pub(crate) fn wrong_answer() -> control::Error {
    control::Error::new(ErrorCode::Internal, "a shard gave another answer than it was asked for")
}

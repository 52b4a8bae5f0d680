//! Refusals as errors of the native protocol: each has one code, and the context that helps the client to correct
//! the request. It does not know where a refusal comes from.

use sennit_engine::Refusal;
use sennit_protocol::{ErrorCode, control};

use crate::broker::control_request::{ControlRefusal, STORAGE_FULL_RETRY_MS, TOPIC_FULL_RETRY_MS};

/// The error that tells a client of a refusal of the engine.
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
        Refusal::TopicFull { .. } | Refusal::DedupFull => ErrorCode::TopicFull,
        Refusal::UnknownMessage { .. } => ErrorCode::UnknownMessage,
        Refusal::NotDelayed { .. } => ErrorCode::NotDelayed,
        Refusal::Limit { .. } => ErrorCode::LimitReached,
        Refusal::CursorHeld { .. } | Refusal::CursorLost { .. } => ErrorCode::CursorHeld,
        Refusal::NotDeadLetters => ErrorCode::NotDeadLetters,
        Refusal::MessageLeased => ErrorCode::MessageLeased,
        Refusal::StaleDelivery { .. } => ErrorCode::StaleDelivery,
        Refusal::AtomicRepeated | Refusal::AtomicPartly => ErrorCode::AtomicInvalid,
        Refusal::Atomic { item, why } => {
            return control::Error {
                message: refusal.to_string(),
                topic_id: Some(item.partition().topic.0),
                partition: Some(item.partition().index.0),
                ..reply(why)
            };
        }
        Refusal::StorageFull => ErrorCode::StorageFull,
        Refusal::NotLeader { .. } | Refusal::NoLeader => ErrorCode::NoLeader,
        Refusal::OutcomeUnknown => ErrorCode::OutcomeUnknown,
    };
    let mut error = control::Error::new(code, refusal.to_string());
    match refusal {
        Refusal::SequenceGap { expected, .. } | Refusal::SequenceOverlap { expected, .. } => {
            error.expected_sequence = Some(*expected);
        }
        Refusal::OffsetMismatch { next, .. } => error.next_offset = Some(next.0),
        Refusal::StorageFull => error.retry_after_ms = STORAGE_FULL_RETRY_MS,
        Refusal::TopicFull { .. } | Refusal::DedupFull => {
            error.retry_after_ms = TOPIC_FULL_RETRY_MS
        }
        _ => {}
    }
    error
}

/// The error that tells a client of a refusal of the control of names and settings.
pub(crate) fn control_reply(refusal: &ControlRefusal) -> control::Error {
    let code = match refusal {
        ControlRefusal::Engine(refusal) => return reply(refusal),
        ControlRefusal::UnknownTopic(_) | ControlRefusal::UnknownPartition { .. } => {
            ErrorCode::UnknownTopic
        }
        ControlRefusal::UnknownGroup { .. } => ErrorCode::UnknownGroup,
        ControlRefusal::UnknownCursor { .. } => ErrorCode::UnknownCursor,
        ControlRefusal::NoOffsets { .. }
        | ControlRefusal::SameTopic(_)
        | ControlRefusal::NoChannel { .. } => ErrorCode::InvalidConfig,
        ControlRefusal::Batch(_) => ErrorCode::LimitReached,
        ControlRefusal::Missing(_) => ErrorCode::Forbidden,
        ControlRefusal::OverQuota(_) => ErrorCode::QuotaExceeded,
        ControlRefusal::Reserved => ErrorCode::TopicReserved,
        ControlRefusal::HookRefused(_) => ErrorCode::HookRefused,
        ControlRefusal::HookFailed(_) => ErrorCode::HookFailed,
        ControlRefusal::TopicsApart { .. } => ErrorCode::TopicsApart,
        ControlRefusal::TooManyWatched(_) => ErrorCode::LimitReached,
        ControlRefusal::Busy(_) => ErrorCode::Busy,
        ControlRefusal::ShuttingDown => ErrorCode::ShuttingDown,
        ControlRefusal::WrongAnswer | ControlRefusal::NoRandomNumbers(_) => ErrorCode::Internal,
    };
    let mut error = control::Error::new(code, refusal.to_string());
    error.topic = refusal.topic().map(ToString::to_string);
    error.retry_after_ms = refusal.retry_after_ms();
    if let ControlRefusal::OverQuota(_) = refusal {
        // Room for stored bytes may come from nobody but the tenant itself.
        error.retryable = refusal.is_retryable();
    }
    error
}

#[cfg(test)]
mod tests {
    use sennit_model::{Offset, PartitionIndex};

    use super::*;
    use crate::runtime::publish_gauge::NoRoom;

    fn refusals() -> Vec<(ControlRefusal, ErrorCode, &'static str)> {
        let topic: sennit_model::TopicName = "orders".parse().expect("it is a name");
        let group: sennit_model::GroupName = "mail".parse().expect("it is a name");
        let cursor: sennit_model::CursorName = "nightly".parse().expect("it is a name");
        let partition = PartitionIndex(3);
        vec![
            (
                ControlRefusal::UnknownTopic(topic.clone()),
                ErrorCode::UnknownTopic,
                "there is no topic \"orders\"",
            ),
            (
                ControlRefusal::UnknownPartition { topic: topic.clone(), partitions: 2, partition },
                ErrorCode::UnknownTopic,
                "topic \"orders\" has 2 partitions, none is 3",
            ),
            (
                ControlRefusal::UnknownGroup { topic: topic.clone(), group },
                ErrorCode::UnknownGroup,
                "topic \"orders\" has no group \"mail\"",
            ),
            (
                ControlRefusal::UnknownCursor { topic: topic.clone(), cursor },
                ErrorCode::UnknownCursor,
                "topic \"orders\" has no cursor \"nightly\"",
            ),
            (
                ControlRefusal::NoOffsets { topic, start: Offset(7), end: Offset(5) },
                ErrorCode::InvalidConfig,
                "offsets 7..5 are none: the end is behind the start",
            ),
            (
                ControlRefusal::SameTopic("orders".parse().expect("it is a name")),
                ErrorCode::InvalidConfig,
                "topic \"orders\" has the messages already: name another",
            ),
            (
                ControlRefusal::HookRefused("message 0: no tenant".into()),
                ErrorCode::HookRefused,
                "the topic's hook: message 0: no tenant",
            ),
            (
                ControlRefusal::HookFailed("message 0: line 1: broken".into()),
                ErrorCode::HookFailed,
                "the topic's hook: message 0: line 1: broken",
            ),
            (
                ControlRefusal::Reserved,
                ErrorCode::TopicReserved,
                "what is below __ds/ is the broker's own: it can only be read",
            ),
            (
                ControlRefusal::TooManyWatched("orders.*".parse().expect("it is a pattern")),
                ErrorCode::LimitReached,
                "orders.* means more than WATCH_TOPICS_MAX topics, 65536",
            ),
            (
                ControlRefusal::Busy(NoRoom::TooLong),
                ErrorCode::Busy,
                "the disk is slower than what is appended",
            ),
            (ControlRefusal::ShuttingDown, ErrorCode::ShuttingDown, "the broker stops"),
            (
                ControlRefusal::WrongAnswer,
                ErrorCode::Internal,
                "a shard gave another answer than it was asked for",
            ),
        ]
    }

    #[test]
    fn each_refusal_has_its_code_its_message_and_the_topic_that_it_is_about() {
        for (refusal, code, message) in refusals() {
            let error = control_reply(&refusal);
            assert_eq!(error.error_code(), Some(code), "{refusal:?}");
            assert_eq!(error.message, message);
            let named = message.contains("\"orders\"") || code == ErrorCode::InvalidConfig;
            assert_eq!(error.topic.is_some(), named, "{refusal:?}");
        }
    }

    #[test]
    fn a_refusal_says_as_its_code_does_whether_to_try_again() {
        let engine = [
            Refusal::UnknownTopic,
            Refusal::StorageFull,
            Refusal::OutcomeUnknown,
            Refusal::NoLeader,
            Refusal::NotLeader { leader: 2 },
            Refusal::SequenceGap { expected: 1, received: 2 },
            Refusal::KeyMissing,
            Refusal::NotDeadLetters,
            Refusal::MessageLeased,
            Refusal::TopicFull { limit: "limit.messages", value: 5, held: 5 },
            Refusal::DedupFull,
            Refusal::topics_max(),
        ];
        let engine = engine.into_iter().map(ControlRefusal::Engine);
        for refusal in refusals().into_iter().map(|(refusal, ..)| refusal).chain(engine) {
            let error = control_reply(&refusal);
            assert_eq!(error.retryable, refusal.is_retryable(), "{refusal:?}");
            assert_eq!(error.retry_after_ms, refusal.retry_after_ms(), "{refusal:?}");
        }
    }
}

//! The generators have every variant: the compiler names a new one that they lack first, and a test then.

use std::collections::BTreeSet;

use super::{
    commands::{commands, decisions, delay_changes, reader_changes, verbs, verdicts},
    effects::{
        GAP_REASONS, effects, message_states, name_errors, refusals, stream_answers,
        stream_refusals, wait_reasons,
    },
    random::Random,
};
use crate::{
    attempts::FailureDecision as Decision,
    command::{
        CatalogueCommand as Of, Command, DelayChange, PartitionCommand as Part, ReaderChange,
        Verdict,
    },
    effect::{Effect, GapReason},
    explanation::WaitReason,
    refusal::Refusal,
    stream::{StreamAnswer, StreamCommand, StreamRefusal},
    walk::{MessageState, WalkVerb},
};

/// Checks that for each pattern there is a value. The match is exhaustive, so no variant is without a pattern.
macro_rules! assert_every {
    ($values:expr; $($pattern:pat),+ $(,)?) => {{
        let mut missing = BTreeSet::from([$(stringify!($pattern)),+]);
        for value in $values {
            let found = match value {
                $($pattern => stringify!($pattern)),+
            };
            missing.remove(found);
        }
        assert!(missing.is_empty(), "not generated: {missing:?}");
    }};
}

#[test]
fn every_command_is_generated() {
    assert_every!(commands(&mut Random(1));
        Command::Publish(_), Command::PublishAt(..), Command::Settle(_), Command::Subscribe(_),
        Command::Read(_), Command::Reader { .. }, Command::SetCredit { .. },
        Command::Unsubscribe { .. }, Command::EndSession { .. }, Command::SetThrottles(_),
        Command::WatchFailures(_), Command::DecideFailures(_), Command::AppendTogether(..),
        Command::PublishAtomic(_),
        Command::Catalogue(_, Of::CreateTopic { .. }),
        Command::Catalogue(_, Of::CreateDeadLetterTopic { .. }),
        Command::Catalogue(_, Of::AdoptTopic { .. }),
        Command::Catalogue(_, Of::AlterTopic { .. }),
        Command::Catalogue(_, Of::DeleteTopic { .. }),
        Command::Catalogue(_, Of::CreateGroup { .. }),
        Command::Catalogue(_, Of::AlterGroup { .. }),
        Command::Catalogue(_, Of::DeleteGroup { .. }),
        Command::Partition(.., Part::Open { .. }), Command::Partition(.., Part::Drop),
        Command::Partition(.., Part::Describe), Command::Partition(.., Part::Locate(..)),
        Command::Partition(.., Part::SetCursor(..)), Command::Partition(.., Part::DeleteCursor(_)),
        Command::Partition(.., Part::ListCursors), Command::Partition(.., Part::Trim(_)),
        Command::Partition(.., Part::Name(_)), Command::Partition(.., Part::RetryParked(..)),
        Command::Partition(.., Part::Explain(..)), Command::Partition(.., Part::ListKeys(..)),
        Command::Partition(.., Part::ListDelayed(..)),
        Command::Partition(.., Part::ChangeDelayed(..)), Command::Partition(.., Part::Walk(_)),
        Command::Stream(.., StreamCommand::Open(_)), Command::Stream(.., StreamCommand::Append(_)),
        Command::Stream(.., StreamCommand::Read(_)), Command::Stream(.., StreamCommand::StopReading),
        Command::Stream(.., StreamCommand::Status { .. }),
        Command::Stream(.., StreamCommand::AddFork(_)),
        Command::Stream(.., StreamCommand::RemoveFork(_)),
        Command::Stream(.., StreamCommand::Delete),
    );
}

#[test]
fn every_choice_within_a_command_is_generated() {
    let r = &mut Random(1);
    assert_every!(verdicts(r); Verdict::Ack, Verdict::Retry, Verdict::RetryAfter(_),
        Verdict::DeadLetter { .. }, Verdict::Extend(_), Verdict::Started);
    assert_every!(reader_changes(r); ReaderChange::Credit(_), ReaderChange::Taken { .. },
        ReaderChange::End);
    assert_every!(decisions(r); Decision::Policy, Decision::RetryAfter(_),
        Decision::DeadLetter { .. }, Decision::Route { .. });
    assert_every!(delay_changes(r); DelayChange::Cancel, DelayChange::DueAt(_),
        DelayChange::DueAfter(_));
    assert_every!(verbs(r); WalkVerb::Peek { .. }, WalkVerb::Count(_), WalkVerb::Cancel,
        WalkVerb::Requeue(_), WalkVerb::Copy(_));
}

#[test]
fn every_effect_is_generated() {
    assert_every!(effects(&mut Random(1));
        Effect::Confirmed(_), Effect::PublishNoted(_), Effect::Settled(_),
        Effect::Subscribed { .. }, Effect::Deliver(_), Effect::SubscriptionEnded { .. },
        Effect::SubscriptionInterrupted { .. }, Effect::CursorTaken { .. },
        Effect::ReaderTooSlow { .. }, Effect::Gap { .. }, Effect::Done { .. },
        Effect::PublishedAt { .. }, Effect::PublishedAtomic { .. }, Effect::Described { .. },
        Effect::Explained { .. }, Effect::Keys { .. }, Effect::Delayed { .. },
        Effect::DelaysChanged { .. }, Effect::Located { .. }, Effect::Stream(..),
        Effect::StreamEnded { .. }, Effect::Unparked { .. }, Effect::Walked { .. },
        Effect::Cursors { .. }, Effect::Refused { .. }, Effect::AttemptsFailed(_),
        Effect::DeadLetterTopicNeeded { .. },
    );
}

#[test]
fn every_refusal_is_generated() {
    let r = &mut Random(1);
    assert_every!(refusals(r);
        Refusal::UnknownTopic, Refusal::StreamClosed, Refusal::UnknownGroup,
        Refusal::SettingsDiffer { .. }, Refusal::SettingFixed { .. }, Refusal::Config(_),
        Refusal::Name(_), Refusal::SequenceGap { .. }, Refusal::ProducerFenced { .. },
        Refusal::SequenceOverlap { .. }, Refusal::OffsetMismatch { .. }, Refusal::KeyMissing,
        Refusal::TopicFull { .. }, Refusal::DedupFull, Refusal::UnknownMessage { .. },
        Refusal::NotDelayed { .. }, Refusal::StaleDelivery { .. }, Refusal::AtomicRepeated,
        Refusal::AtomicPartly, Refusal::Atomic { .. }, Refusal::Limit { .. },
        Refusal::CursorHeld { .. }, Refusal::CursorLost { .. }, Refusal::NotDeadLetters,
        Refusal::MessageLeased, Refusal::StorageFull, Refusal::OutcomeUnknown, Refusal::NotLeader { .. },
        Refusal::NoLeader,
    );
    use sennit_model::NameError;
    assert_every!(name_errors(r); NameError::Empty, NameError::TooLong { .. },
        NameError::Character { .. }, NameError::EmptyPart { .. });
}

#[test]
fn every_choice_within_an_effect_is_generated() {
    let r = &mut Random(1);
    assert_every!(GAP_REASONS; GapReason::Damaged, GapReason::Lost, GapReason::Retention,
        GapReason::RolledBack, GapReason::Skipped, GapReason::Filtered, GapReason::Compacted);
    assert_every!(message_states(r); MessageState::Ready, MessageState::Delayed { .. },
        MessageState::Retrying { .. }, MessageState::Dead { .. }, MessageState::Leased { .. });
    assert_every!(wait_reasons(r);
        WaitReason::NoMessage, WaitReason::NotCommitted, WaitReason::Settled,
        WaitReason::Leased { .. }, WaitReason::Delayed { .. }, WaitReason::Retrying { .. },
        WaitReason::Dead { .. }, WaitReason::Damaged, WaitReason::TopicPaused,
        WaitReason::GroupPaused, WaitReason::NoConsumer, WaitReason::KeyPaused,
        WaitReason::Concurrency { .. }, WaitReason::GroupThrottled { .. },
        WaitReason::Throttled { .. }, WaitReason::BehindFailed { .. }, WaitReason::HeldBy { .. },
        WaitReason::NoCredit, WaitReason::Behind { .. },
    );
}

#[test]
fn every_answer_of_a_stream_is_generated() {
    let r = &mut Random(1);
    assert_every!(stream_answers(r);
        StreamAnswer::Opened { .. }, StreamAnswer::Appended(_), StreamAnswer::AppendedTogether(_),
        StreamAnswer::RefusedTogether { .. }, StreamAnswer::Chunk(_),
        StreamAnswer::Inherited { .. }, StreamAnswer::Status(_), StreamAnswer::Deleted { .. },
        StreamAnswer::Refused(_),
    );
    assert_every!(stream_refusals(r);
        StreamRefusal::Unknown, StreamRefusal::Deleted, StreamRefusal::NotKept { .. },
        StreamRefusal::BeyondEnd { .. }, StreamRefusal::NativeTopic, StreamRefusal::Damaged { .. },
        StreamRefusal::RolledBack { .. }, StreamRefusal::SettingsDiffer { .. },
        StreamRefusal::Closed { .. }, StreamRefusal::ContentType { .. },
        StreamRefusal::Sequence { .. }, StreamRefusal::ProducerFenced { .. },
        StreamRefusal::ProducerBegins, StreamRefusal::ProducerGap { .. },
        StreamRefusal::OtherGroup, StreamRefusal::Repeated, StreamRefusal::PartlyAppended,
        StreamRefusal::Limit { .. },
    );
}

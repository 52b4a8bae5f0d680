//! Effects of every kind.

use std::sync::Arc;

use sennit_model::{ConfigError, Generation, NameError, ProducerId};

use super::random::Random;
use crate::{
    attempts::{FailedAttempt, FailedAttempts},
    effect::{
        AtomicPart, Confirmed, ConfirmedPart, DelayedRun, Delivery, Effect, GapReason,
        GroupDescription, Holding, ParkedRun, PartitionDescription, PublishNote, Settled,
    },
    explanation::{Explanation, KeyDeliveries, KeyDescription, WaitReason},
    refusal::{AtomicItem, Refusal},
    stream::{StreamAnswer, StreamAppended, StreamChunk, StreamRefusal, StreamRest, StreamStatus},
    walk::{CountRow, FoundMessage, MessageState, WalkPage},
};

pub(super) const GAP_REASONS: [GapReason; 7] = [
    GapReason::Damaged,
    GapReason::Lost,
    GapReason::Retention,
    GapReason::RolledBack,
    GapReason::Skipped,
    GapReason::Filtered,
    GapReason::Compacted,
];

pub(super) fn wait_reasons(r: &mut Random) -> Vec<WaitReason> {
    let (until, session) = (r.time(), r.session());
    vec![
        WaitReason::NoMessage,
        WaitReason::NotCommitted,
        WaitReason::Settled,
        WaitReason::Leased { session, attempt: r.u32(), until },
        WaitReason::Delayed { until },
        WaitReason::Retrying { until, failed: r.u32() },
        WaitReason::Dead { reason: r.text() },
        WaitReason::Damaged,
        WaitReason::TopicPaused,
        WaitReason::GroupPaused,
        WaitReason::NoConsumer,
        WaitReason::KeyPaused,
        WaitReason::Concurrency { in_flight: r.u64(), limit: r.u64() },
        WaitReason::GroupThrottled { until },
        WaitReason::Throttled { until },
        WaitReason::BehindFailed { offset: r.offset(), until },
        WaitReason::HeldBy { session },
        WaitReason::NoCredit,
        WaitReason::Behind { messages: r.u64(), keys: r.u64() },
    ]
}

pub(super) fn message_states(r: &mut Random) -> Vec<MessageState> {
    let until = r.time();
    vec![
        MessageState::Ready,
        MessageState::Delayed { until },
        MessageState::Retrying { until },
        MessageState::Dead { failed_at: until, reason: r.text().into() },
        MessageState::Leased { until },
    ]
}

pub(super) fn name_errors(r: &mut Random) -> Vec<NameError> {
    let character = r.one_of(&['\0', 'ß', char::MAX]);
    vec![
        NameError::Empty,
        NameError::TooLong { length: r.number() },
        NameError::Character { name: r.text(), character, position: r.number() },
        NameError::EmptyPart { name: r.text() },
    ]
}

pub(super) fn stream_refusals(r: &mut Random) -> Vec<StreamRefusal> {
    let next = r.offset();
    vec![
        StreamRefusal::Unknown,
        StreamRefusal::Deleted,
        StreamRefusal::NotKept { start: next },
        StreamRefusal::BeyondEnd { next },
        StreamRefusal::NativeTopic,
        StreamRefusal::Damaged { next },
        StreamRefusal::RolledBack { next },
        StreamRefusal::SettingsDiffer { field: "content type" },
        StreamRefusal::Closed { next },
        StreamRefusal::ContentType { content_type: r.text().into() },
        StreamRefusal::Sequence { last: r.text().into() },
        StreamRefusal::ProducerFenced { current: r.u64() },
        StreamRefusal::ProducerBegins,
        StreamRefusal::ProducerGap { expected: r.u64(), received: r.u64() },
        StreamRefusal::OtherGroup,
        StreamRefusal::Repeated,
        StreamRefusal::PartlyAppended,
        StreamRefusal::Limit { name: "STREAM_FORKS_MAX", limit: r.u64() },
    ]
}

/// All that a part of an atomic publish may be refused for.
fn plain_refusals(r: &mut Random) -> Vec<Refusal> {
    let config = ConfigError { field: "retention.age", value: r.text(), allowed: r.text() };
    let mut refusals = vec![
        Refusal::UnknownTopic,
        Refusal::StreamClosed,
        Refusal::UnknownGroup,
        Refusal::SettingsDiffer {
            name: r.text(),
            field: "time_to_live",
            existing: r.text(),
            requested: r.text(),
        },
        Refusal::SettingFixed { field: "durability" },
        Refusal::Config(config),
        Refusal::SequenceGap { expected: r.u64(), received: r.u64() },
        Refusal::ProducerFenced { current: r.u32(), received: r.u32() },
        Refusal::SequenceOverlap { expected: r.u64(), received: r.u64(), count: r.u32() },
        Refusal::OffsetMismatch { expected: r.offset(), next: r.offset() },
        Refusal::KeyMissing,
        Refusal::TopicFull { limit: "limit.bytes", value: r.u64(), held: r.u64() },
        Refusal::DedupFull,
        Refusal::UnknownMessage { offset: r.offset() },
        Refusal::NotDelayed { offset: r.offset(), state: "a consumer holds it" },
        Refusal::StaleDelivery { stale: r.u64(), named: r.u64() },
        Refusal::AtomicRepeated,
        Refusal::AtomicPartly,
        Refusal::Limit { limit: "TOPICS_MAX", value: r.u64() },
        Refusal::CursorHeld { name: r.name() },
        Refusal::CursorLost { name: r.name() },
        Refusal::NotDeadLetters,
        Refusal::MessageLeased,
        Refusal::StorageFull,
        Refusal::OutcomeUnknown,
        Refusal::NotLeader { leader: r.u64() },
        Refusal::NoLeader,
    ];
    refusals.extend(name_errors(r).into_iter().map(Refusal::Name));
    refusals
}

pub(super) fn refusals(r: &mut Random) -> Vec<Refusal> {
    let mut refusals = plain_refusals(r);
    let (at, partition) = (r.number(), r.partition());
    for item in [AtomicItem::Part { at, partition }, AtomicItem::Ack { at, partition }] {
        let reasons = plain_refusals(r);
        let why = Box::new(r.one_of(&reasons));
        refusals.push(Refusal::Atomic { item, why });
    }
    refusals
}

fn status(r: &mut Random) -> StreamStatus {
    StreamStatus {
        settings: Arc::new(r.stream_settings()),
        start: r.offset(),
        next: r.offset(),
        is_closed: r.bool(),
        durability: r.durability(),
        is_opened: r.bool(),
    }
}

fn appended(r: &mut Random) -> StreamAppended {
    StreamAppended {
        next: r.offset(),
        is_closed: r.bool(),
        is_duplicate: r.bool(),
        sequence: r.optional(Random::u64),
    }
}

pub(super) fn stream_answers(r: &mut Random) -> Vec<StreamAnswer> {
    let rest = |r: &mut Random| StreamRest {
        until: r.offset(),
        is_up_to_date: r.bool(),
        is_closed: r.bool(),
    };
    let mut answers = vec![
        StreamAnswer::Opened { created: r.bool(), status: status(r) },
        StreamAnswer::Appended(appended(r)),
        StreamAnswer::AppendedTogether(r.list(appended)),
        StreamAnswer::Chunk(StreamChunk {
            topic: r.topic(),
            first: r.offset(),
            next: r.offset(),
            is_up_to_date: r.bool(),
            is_closed: r.bool(),
            rest: r.optional(rest),
            messages: r.list(Random::bytes),
            settings: Arc::new(r.stream_settings()),
        }),
        StreamAnswer::Inherited {
            source: r.partition(),
            home: r.topic(),
            before: r.offset(),
            status: status(r),
        },
        StreamAnswer::Status(status(r)),
        StreamAnswer::Deleted { is_unused: r.bool(), fork_of: r.optional(Random::fork) },
    ];
    for refusal in stream_refusals(r) {
        answers.push(StreamAnswer::RefusedTogether { which: r.number(), refusal: refusal.clone() });
        answers.push(StreamAnswer::Refused(refusal));
    }
    answers
}

fn parts(r: &mut Random) -> Box<[ConfirmedPart]> {
    let part = |r: &mut Random| ConfirmedPart {
        count: r.u32(),
        first_offset: r.offset(),
        duplicate: r.bool(),
    };
    r.list(part).into()
}

fn description(r: &mut Random) -> PartitionDescription {
    PartitionDescription {
        start: r.offset(),
        end: r.offset(),
        bytes: r.u64(),
        live_bytes: r.u64(),
        dead_bytes: r.u64(),
        damaged: r.u64(),
        lost: r.u64(),
        oldest_appended_at: r.optional(Random::time),
        groups: r.list(|r| GroupDescription {
            group: r.group(),
            ready: r.u64(),
            leased: r.u64(),
            delayed: r.u64(),
            dying: r.u64(),
            parked: r.u64(),
            damaged: r.u64(),
            settled_before: r.offset(),
            consumers: r.u32(),
            active: r.optional(Random::session),
        }),
        holding: r.optional(|r| Holding { groups: r.list(Random::group), since: r.time() }),
        parked: r.list(|r| ParkedRun {
            group: r.group(),
            range: r.range(),
            attempts: r.u32(),
            failed_at: r.time(),
            reason: r.text().into(),
        }),
    }
}

fn page(r: &mut Random) -> WalkPage {
    let states = message_states(r).into_iter();
    let messages = states.map(|state| FoundMessage {
        offset: r.offset(),
        appended_at: r.time(),
        state,
        failed: r.u32(),
        key: r.bytes(),
        headers: r.bytes(),
        payload: r.bytes(),
        payload_bytes: r.u64(),
    });
    let messages = messages.collect();
    let reasons = refusals(r);
    WalkPage {
        next: r.optional(Random::offset),
        examined: r.u64(),
        matched: r.u64(),
        leased: r.u64(),
        damaged: r.u64(),
        homeless: r.u64(),
        done: r.u64(),
        bytes: r.u64(),
        messages,
        rows: r.list(|r| CountRow { name: r.text(), count: r.u64(), oldest: r.time() }),
        other: r.u64(),
        copies: r.optional(|r| (r.batch(), r.list(Random::offset))),
        refusal: r.optional(|r| r.one_of(&reasons)),
    }
}

fn keys(r: &mut Random) -> Vec<KeyDescription> {
    let reasons = wait_reasons(r);
    r.list(|r| KeyDescription {
        fair_key: r.text(),
        ready: r.u64(),
        in_flight: r.u64(),
        oldest_appended_at: r.optional(Random::time),
        reason: r.optional(|r| r.one_of(&reasons)),
        session: r.optional(Random::session),
        served: r.optional(|r| KeyDeliveries {
            fair_key: r.text(),
            delivered: r.u64(),
            at_most_over: r.u64(),
            first_deliveries: r.u64(),
            waited: r.span(),
        }),
    })
}

fn of_subscriptions(r: &mut Random) -> Vec<Effect> {
    let (session, subscription, partition) = (r.session(), r.u32(), r.partition());
    let mut effects = vec![
        Effect::Subscribed { origin: r.origin(), subscription, partition },
        Effect::Deliver(Delivery {
            session,
            subscription,
            partition,
            first: r.offset(),
            count: r.u32(),
            attempt: r.u32(),
            generation: Generation(r.u32()),
            appended_at: r.time(),
            durability: r.durability(),
            messages: r.bytes(),
        }),
        Effect::SubscriptionEnded { session, subscription, partition },
        Effect::SubscriptionInterrupted { session, subscription, partition },
        Effect::CursorTaken { session, subscription, partition },
        Effect::ReaderTooSlow { session, subscription, partition },
    ];
    effects.extend(GAP_REASONS.map(|reason| {
        let range = r.range();
        Effect::Gap { session, subscription, partition, range, reason }
    }));
    effects
}

fn of_publishes(r: &mut Random) -> Vec<Effect> {
    vec![
        Effect::Confirmed(Confirmed {
            origin: r.origin(),
            partition: r.partition(),
            producer: ProducerId(r.u64()),
            first_sequence: r.u64(),
            count: r.u32(),
            first_offset: r.optional(Random::offset),
            duplicate: r.bool(),
            durability: r.durability(),
            parts: parts(r),
        }),
        Effect::PublishNoted(PublishNote {
            origin: r.origin(),
            partition: r.partition(),
            producer: ProducerId(r.u64()),
            first_sequence: r.u64(),
            dropped: r.u64(),
            replaced: r.u64(),
        }),
        Effect::PublishedAt { origin: r.origin(), first: r.offset(), count: r.u32() },
        Effect::PublishedAtomic {
            origin: r.origin(),
            parts: r
                .list(|r| AtomicPart {
                    partition: r.partition(),
                    count: r.u32(),
                    durability: r.durability(),
                    runs: parts(r),
                    dropped: r.u64(),
                    replaced: r.u64(),
                })
                .into(),
        },
    ]
}

fn of_requests(r: &mut Random) -> Vec<Effect> {
    let origin = r.origin();
    let mut effects = vec![
        Effect::Settled(Settled {
            origin,
            partition: r.partition(),
            applied: r.u64(),
            stale: r.runs(),
        }),
        Effect::Done {
            origin,
            topic: r.topic(),
            group: r.optional(Random::group),
            created: r.bool(),
        },
        Effect::Described { origin, description: description(r) },
        Effect::Keys { origin, keys: keys(r) },
        Effect::Delayed {
            origin,
            runs: r.list(|r| DelayedRun { range: r.range(), due: r.time() }),
        },
        Effect::DelaysChanged { origin, count: r.u64() },
        Effect::Located { origin, first: r.offset(), end: r.offset() },
        Effect::Unparked { origin, count: r.u64() },
        Effect::Walked { origin, page: Box::new(page(r)) },
        Effect::Cursors { origin, cursors: r.list(|r| (r.name(), r.offset())) },
    ];
    let explanations = wait_reasons(r).into_iter().map(|reason| Explanation {
        offset: r.optional(Random::offset),
        fair_key: r.text(),
        reason,
    });
    effects.extend(explanations.map(|explanation| Effect::Explained { origin, explanation }));
    let refusals = refusals(r).into_iter();
    effects.extend(refusals.map(|refusal| Effect::Refused { origin, refusal }));
    let answers = stream_answers(r).into_iter();
    effects.extend(answers.map(|answer| Effect::Stream(origin, Box::new(answer))));
    effects
}

/// At least one of each kind.
pub(super) fn effects(r: &mut Random) -> Vec<Effect> {
    let mut effects = [of_subscriptions(r), of_publishes(r), of_requests(r)].concat();
    let attempts = r.list(|r| FailedAttempt {
        offset: r.offset(),
        attempts: r.u32(),
        appended_at: r.time(),
        failed_at: r.time(),
        reason: r.text().into(),
        message: r.bytes(),
    });
    let (partition, group) = (r.partition(), r.group());
    let failed = FailedAttempts { partition, group, attempts };
    effects.extend([
        Effect::StreamEnded { topic: r.topic() },
        Effect::AttemptsFailed(Box::new(failed)),
        Effect::DeadLetterTopicNeeded { source: r.topic() },
    ]);
    effects
}

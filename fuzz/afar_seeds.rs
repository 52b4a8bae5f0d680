//! Seeds of the target `afar`: commands behind a 0 and effects behind a 1, one for each shape of fields.

use std::{sync::Arc, time::Duration};

use sennit_engine::{
    AtomicAck, CatalogueCommand, Command, Credit, DeadLetters, DeliveryRun, Effect, Encoded,
    FailureAnswer, FailureAnswers, FailureDecision, GroupSetting, Origin, PartitionCommand,
    Publish, PublishAtomic, Read, Refusal, Selection, SessionId, Settle, StreamAnswer,
    StreamAppend, StreamCommand, StreamNote, StreamRefusal, Subscribe, Verdict, Walk, WalkVerb,
};
use sennit_model::{
    Batch, Generation, GroupConfig, GroupId, Incarnation, Offset, OffsetRange, PartitionId,
    PartitionIndex, ProducerId, ProducerStamp, ReadFrom, StartAt, ThrottleRule, Timestamp,
    TopicConfig, TopicId, TopicKind, WhenSlow,
};

use crate::{batch, messages, write};

const PARTITION: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const GROUP: GroupId = GroupId(0);

pub fn write_all() {
    let batch = batch(&messages());
    let mut encoded = Encoded::default();
    for (index, command) in commands(&batch).iter().enumerate() {
        command.encode(&mut encoded).expect("within the limits");
        write_one(&format!("command-{index:02}"), 0, &mut encoded);
    }
    for (index, effect) in effects(&batch).iter().enumerate() {
        effect.encode(&mut encoded).expect("within the limits");
        write_one(&format!("effect-{index:02}"), 1, &mut encoded);
    }
}

fn write_one(name: &str, which: u8, encoded: &mut Encoded) {
    write("afar", name, &[&[which], &encoded.to_bytes()[..]].concat());
    encoded.clear();
}

fn publish(batch: &Batch) -> Publish {
    let origin = Origin { session: SessionId(1), request: 1 };
    let producer = ProducerStamp { id: ProducerId(9), epoch: 1, first_sequence: 0 };
    Publish { origin, partition: PARTITION, producer, batch: batch.clone() }
}

fn commands(batch: &Batch) -> Vec<Command> {
    let origin = Origin { session: SessionId(1), request: 1 };
    let (partition, group, subscription) = (PARTITION, GROUP, 1);
    let credit = Credit { messages: 10, bytes: 1 << 20 };
    let run = DeliveryRun { first: Offset(0), count: 1, attempt: 1, generation: Generation(1) };
    let settle = |verdict| {
        let (runs, confirm) = (vec![run], true);
        Command::Settle(Settle { origin, partition, group, verdict, runs, confirm })
    };
    let of_partition = |command| Command::Partition(origin, partition, command);
    let setting =
        GroupSetting { id: group, config: GroupConfig::default(), start: StartAt::Latest };
    let append = StreamAppend {
        content: Some(batch.clone().into()),
        content_type: Some("text/plain".into()),
        note: StreamNote { sequence: Some("7".into()), ..StreamNote::default() },
    };
    let rule = ThrottleRule::parse("tenant:*".parse().expect("a pattern"), "10/s burst 20");
    let reason = "no such order".to_owned();
    let decision = FailureDecision::RetryAfter(Duration::from_secs(1));
    let answer = FailureAnswer { offset: Offset(0), attempts: 1, decision };
    let config = TopicConfig::of_kind(TopicKind::Queue);
    let range = OffsetRange::new(Offset(0), 9);
    vec![
        Command::Publish(publish(batch)),
        settle(Verdict::Ack),
        settle(Verdict::DeadLetter { reason }),
        Command::Subscribe(Subscribe { origin, subscription, partition, group, credit }),
        Command::Read(Read {
            origin,
            subscription,
            partition,
            at: Offset(0),
            credit,
            cursor: None,
            when_slow: WhenSlow::Skip,
            filter: Some("exists header.x".parse().expect("a filter")),
        }),
        Command::SetThrottles(Arc::from([rule.expect("a rule")])),
        Command::DecideFailures(FailureAnswers { partition, group, answers: vec![answer] }),
        Command::AppendTogether(origin, vec![(partition, append.clone())]),
        Command::PublishAtomic(PublishAtomic {
            origin,
            parts: vec![publish(batch)],
            acks: vec![AtomicAck { partition, group, runs: vec![run] }],
        }),
        Command::Catalogue(
            origin,
            CatalogueCommand::CreateTopic {
                name: "orders".parse().expect("a name"),
                config: config.clone(),
                incarnation: Incarnation(77),
                placed: None,
                is_stream: false,
            },
        ),
        of_partition(PartitionCommand::Open {
            config,
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        }),
        of_partition(PartitionCommand::Locate(ReadFrom::Last(3), None)),
        of_partition(PartitionCommand::RetryParked(group, Some(range))),
        of_partition(PartitionCommand::Walk(Box::new(Walk {
            group,
            from: Offset(0),
            selection: Arc::new(Selection { offsets: vec![range], ..Selection::default() }),
            fair_key: None,
            examined_max: 100,
            matched_max: 100,
            verb: WalkVerb::Cancel,
            dry_run: false,
        }))),
        Command::Stream(origin, partition, StreamCommand::Append(Box::new(append))),
    ]
}

fn effects(batch: &Batch) -> Vec<Effect> {
    let origin = Origin { session: SessionId(1), request: 1 };
    let (session, subscription, partition) = (SessionId(1), 1, PARTITION);
    let refusal = Refusal::OffsetMismatch { expected: Offset(9), next: Offset(8) };
    let refused = StreamRefusal::Closed { next: Offset(3) };
    vec![
        Effect::Deliver(sennit_engine::Delivery {
            session,
            subscription,
            partition,
            first: Offset(0),
            count: batch.count(),
            attempt: 1,
            generation: Generation(1),
            appended_at: Timestamp(7),
            durability: sennit_model::Durability::Durable,
            messages: batch.bytes().clone(),
        }),
        Effect::Subscribed { origin, subscription, partition },
        Effect::Refused { origin, refusal },
        Effect::Stream(origin, Box::new(StreamAnswer::Refused(refused))),
        Effect::Described { origin, description: Default::default() },
        Effect::Walked { origin, page: Default::default() },
    ]
}

//! Commands of every kind.

use std::sync::Arc;

use sennit_model::{Header, HeaderKind, Incarnation, OffsetRange, ThrottleRule, WhenSlow};

use super::random::Random;
use crate::{
    attempts::{FailureAnswer, FailureAnswers, FailureDecision},
    command::{
        AtomicAck, CatalogueCommand, Command, CursorSetter, DeadLetters, DelayChange,
        ExplainSubject, PartitionCommand, Placed, Publish, PublishAtomic, Read, ReaderChange,
        Settle, Subscribe, Verdict,
    },
    names::SourceNames,
    stream::{OpenStream, StreamAppend, StreamCommand, StreamRead},
    walk::{CountBy, Destination, Edit, Requeue, Selection, Walk, WalkVerb},
};

pub(super) fn verdicts(r: &mut Random) -> Vec<Verdict> {
    vec![
        Verdict::Ack,
        Verdict::Retry,
        Verdict::RetryAfter(r.span()),
        Verdict::DeadLetter { reason: r.text() },
        Verdict::Extend(r.span()),
        Verdict::Started,
    ]
}

pub(super) fn reader_changes(r: &mut Random) -> Vec<ReaderChange> {
    vec![
        ReaderChange::Credit(r.credit()),
        ReaderChange::Taken { messages: r.u32(), bytes: r.u64() },
        ReaderChange::End,
    ]
}

pub(super) fn decisions(r: &mut Random) -> Vec<FailureDecision> {
    vec![
        FailureDecision::Policy,
        FailureDecision::RetryAfter(r.span()),
        FailureDecision::DeadLetter { reason: r.text() },
        FailureDecision::Route { topic: r.topic(), partitions: r.u32(), message: r.bytes() },
    ]
}

pub(super) fn delay_changes(r: &mut Random) -> Vec<DelayChange> {
    vec![DelayChange::Cancel, DelayChange::DueAt(r.time()), DelayChange::DueAfter(r.span())]
}

pub(super) fn verbs(r: &mut Random) -> Vec<WalkVerb> {
    let by = [CountBy::Nothing, CountBy::Key, CountBy::Reason, CountBy::Age, CountBy::State];
    let mut verbs: Vec<_> = by.into_iter().map(WalkVerb::Count).collect();
    verbs.extend([WalkVerb::Peek { payload_bytes_max: r.number() }, WalkVerb::Cancel]);
    let topic = Destination::Topic { topic: r.topic(), partitions: r.u32() };
    for to in [Destination::Source, Destination::DeadLetters, topic] {
        verbs.push(WalkVerb::Requeue(Requeue { to, redrive: r.u64(), edit: None }));
        verbs.push(WalkVerb::Copy(Requeue { to, redrive: r.u64(), edit: r.optional(edit) }));
    }
    verbs
}

fn edit(r: &mut Random) -> Edit {
    let kinds = [HeaderKind::Text, HeaderKind::Binary, HeaderKind::Number, HeaderKind::Boolean];
    let set = r.list(|r| Header { name: r.text(), kind: r.one_of(&kinds), value: r.bytes() });
    Edit { payload: r.optional(Random::bytes), set, remove: r.list(Random::text) }
}

fn publish(r: &mut Random) -> Publish {
    let (origin, partition) = (r.origin(), r.partition());
    Publish { origin, partition, producer: r.producer(), batch: r.batch() }
}

fn append(r: &mut Random) -> StreamAppend {
    let (content, content_type) = (r.content(), r.optional(|r| r.text().into()));
    StreamAppend { content, content_type, note: r.note() }
}

fn selection(r: &mut Random) -> Selection {
    let ranges = [(3, 9), (20, 21), (u64::MAX - 1, u64::MAX)].map(|(start, end)| OffsetRange {
        start: sennit_model::Offset(start),
        end: sennit_model::Offset(end),
    });
    Selection {
        offsets: ranges[..r.below(4) as usize].to_vec(),
        filter: r.filter(),
        reason: r.optional(Random::text),
        text: r.optional(Random::text),
        since: r.optional(Random::time),
        before: r.optional(Random::time),
        fair_key: r.optional(Random::text),
        redrive: r.optional(Random::u64),
    }
}

fn catalogue_commands(r: &mut Random) -> Vec<CatalogueCommand> {
    let shards = 1 + r.u32() % 9;
    let placed = Placed { shard: r.u32() % shards, shards };
    vec![
        CatalogueCommand::CreateTopic {
            name: r.name(),
            config: r.topic_config(),
            incarnation: Incarnation(r.u64()),
            placed: r.optional(|_| placed),
            is_stream: r.bool(),
        },
        CatalogueCommand::CreateDeadLetterTopic {
            source: r.topic(),
            incarnation: Incarnation(r.u64()),
        },
        CatalogueCommand::AdoptTopic {
            topic: sennit_model::TopicId(r.u32() >> 1),
            partitions: r.u32(),
            home: r.topic(),
            incarnation: Incarnation(r.u64()),
        },
        CatalogueCommand::AlterTopic { topic: r.topic(), config: r.topic_config() },
        CatalogueCommand::DeleteTopic { topic: r.topic() },
        CatalogueCommand::CreateGroup {
            topic: r.topic(),
            name: r.name(),
            config: r.group_config(),
            start: r.start(),
        },
        CatalogueCommand::AlterGroup {
            topic: r.topic(),
            group: r.group(),
            config: r.group_config(),
        },
        CatalogueCommand::DeleteGroup { topic: r.topic(), group: r.group() },
    ]
}

fn partition_commands(r: &mut Random) -> Vec<PartitionCommand> {
    let by = CursorSetter {
        session: r.session(),
        subscription: r.optional(Random::u32),
        take_over: r.bool(),
    };
    let names = SourceNames { topic: r.name(), groups: r.list(|r| (r.group(), r.name())) };
    let mut commands = vec![
        PartitionCommand::Drop,
        PartitionCommand::Describe,
        PartitionCommand::Locate(r.read_from(), r.claim()),
        PartitionCommand::SetCursor(r.name(), r.offset(), by),
        PartitionCommand::DeleteCursor(r.name()),
        PartitionCommand::ListCursors,
        PartitionCommand::Trim(r.offset()),
        PartitionCommand::Name(Arc::new(names)),
        PartitionCommand::RetryParked(r.group(), r.optional(Random::range)),
        PartitionCommand::Explain(r.group(), ExplainSubject::Offset(r.offset())),
        PartitionCommand::Explain(r.group(), ExplainSubject::FairKey(r.text())),
        PartitionCommand::ListKeys(r.group(), r.number()),
        PartitionCommand::ListDelayed(r.optional(|r| (r.time(), r.offset())), r.number()),
    ];
    let dead_letters = [DeadLetters::NotYet, DeadLetters::To(r.topic()), DeadLetters::Stay];
    commands.extend(dead_letters.map(|dead_letters| PartitionCommand::Open {
        config: r.topic_config(),
        groups: r.list(Random::group_setting),
        dead_letters,
    }));
    for change in delay_changes(r) {
        commands.push(PartitionCommand::ChangeDelayed(r.list(Random::offset), change));
    }
    for verb in verbs(r) {
        commands.push(PartitionCommand::Walk(Box::new(Walk {
            group: r.group(),
            from: r.offset(),
            selection: Arc::new(selection(r)),
            fair_key: r.optional(|_| "tenant".parse().unwrap()),
            examined_max: r.u64(),
            matched_max: r.u64(),
            verb,
            dry_run: r.bool(),
        })));
    }
    commands
}

fn stream_commands(r: &mut Random) -> Vec<StreamCommand> {
    vec![
        StreamCommand::Open(Box::new(OpenStream {
            config: r.topic_config(),
            settings: r.stream_settings(),
            content: r.content(),
            closes: r.bool(),
        })),
        StreamCommand::Append(Box::new(append(r))),
        StreamCommand::Read(StreamRead {
            at: r.read_from(),
            before: r.optional(Random::offset),
            bytes_max: r.u64(),
            waits: r.bool(),
            one_append: r.bool(),
            for_fork: r.bool(),
        }),
        StreamCommand::StopReading,
        StreamCommand::Status { touches: r.bool() },
        StreamCommand::AddFork(r.topic()),
        StreamCommand::RemoveFork(r.topic()),
        StreamCommand::Delete,
    ]
}

/// At least one of each kind.
pub(super) fn commands(r: &mut Random) -> Vec<Command> {
    let (session, subscription, partition, group) =
        (r.session(), r.u32(), r.partition(), r.group());
    let rules = r.list(|r| ThrottleRule { pattern: "tenant:*".parse().unwrap(), rate: r.rate() });
    let mut commands = vec![
        Command::Publish(publish(r)),
        Command::PublishAt(publish(r), r.offset()),
        Command::Subscribe(Subscribe {
            origin: r.origin(),
            subscription,
            partition,
            group,
            credit: r.credit(),
        }),
        Command::SetCredit { session, subscription, partition, group, credit: r.credit() },
        Command::Unsubscribe { session, subscription, partition, group },
        Command::EndSession { session, grace: r.span() },
        Command::SetThrottles(rules.into()),
        Command::WatchFailures(r.list(Random::topic).into()),
        Command::AppendTogether(r.origin(), r.list(|r| (r.partition(), append(r)))),
        Command::PublishAtomic(PublishAtomic {
            origin: r.origin(),
            parts: r.list(publish),
            acks: r.list(|r| AtomicAck {
                partition: r.partition(),
                group: r.group(),
                runs: r.runs(),
            }),
        }),
    ];
    for verdict in verdicts(r) {
        let (origin, runs, confirm) = (r.origin(), r.runs(), r.bool());
        commands.push(Command::Settle(Settle { origin, partition, group, verdict, runs, confirm }));
    }
    for when_slow in [WhenSlow::Wait, WhenSlow::Skip, WhenSlow::Disconnect] {
        commands.push(Command::Read(Read {
            origin: r.origin(),
            subscription,
            partition,
            at: r.offset(),
            credit: r.credit(),
            cursor: r.claim(),
            when_slow,
            filter: r.filter(),
        }));
    }
    for change in reader_changes(r) {
        commands.push(Command::Reader { session, subscription, partition, change });
    }
    let answers = decisions(r).into_iter();
    let answers = answers.map(|decision| {
        let (offset, attempts) = (r.offset(), r.u32());
        FailureAnswer { offset, attempts, decision }
    });
    let answers = FailureAnswers { partition, group, answers: answers.collect() };
    commands.push(Command::DecideFailures(answers));
    let catalogue = catalogue_commands(r).into_iter();
    commands.extend(catalogue.map(|command| Command::Catalogue(r.origin(), command)));
    let of_partition = partition_commands(r).into_iter();
    commands.extend(of_partition.map(|one| Command::Partition(r.origin(), partition, one)));
    let of_stream = stream_commands(r).into_iter();
    commands.extend(of_stream.map(|one| Command::Stream(r.origin(), partition, one)));
    commands
}

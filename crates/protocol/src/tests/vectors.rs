//! Runs vectors.json as every client does: fields to bytes and bytes to fields. Another program made the file from
//! the page and the schema, so that it does not repeat the faults of this crate.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sennit_model::{
    BatchBuilder, Generation, GroupId, Header, HeaderKind, Message, Offset, OffsetRange,
    PartitionId, PartitionIndex, ProducerId, ProducerStamp, Timestamp, TopicId,
};
use serde_json::Value;

use crate::*;

fn file() -> Value {
    serde_json::from_str(include_str!("../../vectors.json")).unwrap()
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[derive(Debug, PartialEq)]
enum Frame {
    Request(Request),
    Reply(Reply),
}

impl Frame {
    fn encode(&self, request: u64) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Request(frame) => frame.encode(request, &mut out),
            Self::Reply(frame) => frame.encode(request, &mut out),
        }
        out
    }

    fn decode(bytes: &[u8]) -> (u64, Vec<Self>) {
        let mut reader = FrameReader::before_greeting();
        let mut input = BytesMut::from(bytes);
        let (header, body) = reader.next_frame(&mut input).unwrap().unwrap();
        assert!(input.is_empty());
        let kind = header.known_kind().unwrap();
        let mut frames = Vec::new();
        if kind.is_request() {
            frames.push(Self::Request(Request::decode(&header, body.clone()).unwrap()));
        }
        if kind.is_reply() {
            frames.push(Self::Reply(Reply::decode(&header, body).unwrap()));
        }
        (header.request, frames)
    }

    /// The frame that the fields of a vector describe, once for each side that may send it.
    fn of_fields(kind: Kind, fields: &Value) -> Vec<Self> {
        macro_rules! body {
            ($side:ident :: $name:ident) => {
                Self::$side($side::$name(control_body(fields)))
            };
        }
        let frame = match kind {
            Kind::Ping => return vec![Self::Request(Request::Ping), Self::Reply(Reply::Ping)],
            Kind::Pong => return vec![Self::Request(Request::Pong), Self::Reply(Reply::Pong)],
            Kind::Goodbye => Self::Request(Request::Goodbye),
            Kind::Hello => body!(Request::Hello),
            Kind::CreateTopic => body!(Request::CreateTopic),
            Kind::AlterTopic => body!(Request::AlterTopic),
            Kind::DeleteTopic => body!(Request::DeleteTopic),
            Kind::DescribeTopic => body!(Request::DescribeTopic),
            Kind::ListTopics => body!(Request::ListTopics),
            Kind::CreateGroup => body!(Request::CreateGroup),
            Kind::DeleteGroup => body!(Request::DeleteGroup),
            Kind::ListGroups => body!(Request::ListGroups),
            Kind::DescribeGroup => body!(Request::DescribeGroup),
            Kind::SetCursor => body!(Request::SetCursor),
            Kind::DeleteCursor => body!(Request::DeleteCursor),
            Kind::ListCursors => body!(Request::ListCursors),
            Kind::TrimTopic => body!(Request::TrimTopic),
            Kind::AlterGroup => body!(Request::AlterGroup),
            Kind::RetryParked => body!(Request::RetryParked),
            Kind::OpenTopic => body!(Request::OpenTopic),
            Kind::Subscribe => body!(Request::Subscribe),
            Kind::Read => body!(Request::Read),
            Kind::Watch => body!(Request::Watch),
            Kind::Watching => body!(Reply::Watching),
            Kind::TopicAppeared => body!(Reply::TopicAppeared),
            Kind::TopicGone => body!(Reply::TopicGone),
            Kind::Unsubscribe => body!(Request::Unsubscribe),
            Kind::HelloOk => body!(Reply::HelloOk),
            Kind::Error => body!(Reply::Error),
            Kind::GoAway => body!(Reply::GoAway),
            Kind::Done => body!(Reply::Done),
            Kind::TopicDescription => body!(Reply::TopicDescription),
            Kind::TopicList => body!(Reply::TopicList),
            Kind::GroupDescription => body!(Reply::GroupDescription),
            Kind::GroupList => body!(Reply::GroupList),
            Kind::CursorList => body!(Reply::CursorList),
            Kind::TopicOpened => body!(Reply::TopicOpened),
            Kind::Subscribed => body!(Reply::Subscribed),
            Kind::SubscriptionEnded => body!(Reply::SubscriptionEnded),
            Kind::Publish => Self::Request(Request::Publish(publish(fields))),
            Kind::Settle => Self::Request(Request::Settle(settle(fields))),
            Kind::SetCredit => Self::Request(Request::SetCredit(set_credit(fields))),
            Kind::Taken => Self::Request(Request::Taken(taken(fields))),
            Kind::Confirm => Self::Reply(Reply::Confirm(confirm(fields))),
            Kind::Deliver => Self::Reply(Reply::Deliver(deliver(fields))),
            Kind::Settled => Self::Reply(Reply::Settled(settled(fields))),
            Kind::Gap => Self::Reply(Reply::Gap(gap(fields))),
            Kind::PublishAt => Self::Request(Request::PublishAt(publish_at(fields))),
            Kind::PublishedAt => Self::Reply(Reply::PublishedAt(published_at(fields))),
            Kind::PublishAtomic => Self::Request(Request::PublishAtomic(publish_atomic(fields))),
            Kind::PublishedAtomic => body!(Reply::PublishedAtomic),
            Kind::GetConfiguration => body!(Request::GetConfiguration),
            Kind::SetConfiguration => body!(Request::SetConfiguration),
            Kind::DeleteConfiguration => body!(Request::DeleteConfiguration),
            Kind::ListConfiguration => body!(Request::ListConfiguration),
            Kind::WatchConfiguration => body!(Request::WatchConfiguration),
            Kind::ConfigurationValue => body!(Reply::ConfigurationValue),
            Kind::ConfigurationChanged => body!(Reply::ConfigurationChanged),
            Kind::ConfigurationList => body!(Reply::ConfigurationList),
            Kind::WatchingConfiguration => body!(Reply::WatchingConfiguration),
            Kind::ConfigurationChanges => body!(Reply::ConfigurationChanges),
            Kind::SetHook => body!(Request::SetHook),
            Kind::UseHook => body!(Request::UseHook),
            Kind::DescribeHook => body!(Request::DescribeHook),
            Kind::ListHooks => body!(Request::ListHooks),
            Kind::HookChanged => body!(Reply::HookChanged),
            Kind::HookDescription => body!(Reply::HookDescription),
            Kind::HookList => body!(Reply::HookList),
            Kind::PublishNote => Self::Reply(Reply::PublishNote(publish_note(fields))),
            Kind::ListDelayed => body!(Request::ListDelayed),
            Kind::DelayedList => body!(Reply::DelayedList),
            Kind::ChangeDelayed => body!(Request::ChangeDelayed),
            Kind::ChangeSchedule => body!(Request::ChangeSchedule),
            Kind::ListSchedules => body!(Request::ListSchedules),
            Kind::ScheduleList => body!(Reply::ScheduleList),
            Kind::ScheduleChanged => body!(Reply::ScheduleChanged),
            Kind::Inspect => body!(Request::Inspect),
            Kind::Inspected => body!(Reply::Inspected),
            Kind::Rework => body!(Request::Rework),
            Kind::Reworked => body!(Reply::Reworked),
            Kind::Explain => body!(Request::Explain),
            Kind::Explanations => body!(Reply::Explanations),
            Kind::ListFairKeys => body!(Request::ListFairKeys),
            Kind::FairKeyList => body!(Reply::FairKeyList),
            Kind::ChangeAccess => body!(Request::ChangeAccess),
            Kind::AccessChanged => body!(Reply::AccessChanged),
            Kind::ListAccess => body!(Request::ListAccess),
            Kind::AccessList => body!(Reply::AccessList),
            Kind::DecideRight => body!(Request::DecideRight),
            Kind::RightDecision => body!(Reply::RightDecision),
        };
        vec![frame]
    }
}

/// Reads a control body and sees to it that each field of the vector was one of the schema's.
fn control_body<T: serde::Serialize + serde::de::DeserializeOwned>(fields: &Value) -> T {
    fn assert_within(part: &Value, whole: &Value) {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => {
                for (name, value) in part {
                    let known = whole.get(name).unwrap_or_else(|| panic!("no field {name}"));
                    assert_within(value, known);
                }
            }
            (Value::Array(part), Value::Array(whole)) => {
                assert_eq!(part.len(), whole.len());
                part.iter().zip(whole).for_each(|(part, whole)| assert_within(part, whole));
            }
            _ => assert_eq!(part, whole),
        }
    }
    let mut fields = fields.clone();
    // In protobuf JSON a oneof leaves no trace; serde spells the field that holds it.
    for name in ["start", "from"] {
        if let Some(place) = fields.get_mut(name).filter(|place| place.is_object()) {
            *place = serde_json::json!({ "at": place.take() });
        }
    }
    // The subject of Explain; in other bodies these fields are deeper.
    for name in ["offset", "fair_key"] {
        if let Some(value) = fields.as_object_mut().and_then(|fields| fields.remove(name)) {
            fields["subject"] = serde_json::json!({ name: value });
        }
    }
    // The change of ChangeDelayed or of ChangeSchedule.
    let changes =
        ["cancel", "due_ms", "delay_ms", "create", "delete", "pause", "resume", "run_now"];
    for name in changes {
        if let Some(value) = fields.as_object_mut().and_then(|fields| fields.remove(name)) {
            fields["change"] = serde_json::json!({ name: value });
        }
    }
    if let Some(message_fields) = fields.pointer_mut("/config/fields") {
        for name in ["cost_in_bytes", "cost_header"] {
            let value = message_fields.as_object_mut().and_then(|fields| fields.remove(name));
            if let Some(value) = value {
                message_fields["cost"] = serde_json::json!({ name: value });
            }
        }
    }
    let body = serde_json::from_value(fields.clone()).unwrap();
    assert_within(&fields, &serde_json::to_value(&body).unwrap());
    body
}

fn short(fields: &Value, name: &str) -> u32 {
    u32::try_from(fields[name].as_u64().unwrap()).unwrap()
}

fn long(fields: &Value, name: &str) -> u64 {
    fields[name].as_str().unwrap().parse().unwrap()
}

fn text(fields: &Value, name: &str) -> String {
    fields[name].as_str().unwrap_or_default().into()
}

fn list<'a>(fields: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    fields[name].as_array().unwrap().iter()
}

fn partition_of(fields: &Value) -> PartitionId {
    PartitionId {
        topic: TopicId(short(fields, "topic")),
        index: PartitionIndex(short(fields, "partition")),
    }
}

fn durability(fields: &Value) -> Durability {
    Durability::ALL[fields["durability"].as_u64().unwrap() as usize - 1]
}

fn header(fields: &Value) -> Header {
    let kinds = [HeaderKind::Text, HeaderKind::Binary, HeaderKind::Number, HeaderKind::Boolean];
    Header {
        name: text(fields, "name"),
        kind: kinds[fields["kind"].as_u64().unwrap() as usize],
        value: text(fields, "value").into(),
    }
}

fn batch(fields: &Value) -> Bytes {
    let mut builder = BatchBuilder::new();
    for fields in list(fields, "messages") {
        let duration = |name: &str| fields[name].as_u64().map(Duration::from_millis);
        let message = Message {
            key: text(fields, "key").into(),
            headers: fields["headers"].as_array().into_iter().flatten().map(header).collect(),
            payload: text(fields, "payload").into(),
            delay: duration("delay_ms"),
            time_to_live: duration("time_to_live_ms"),
        };
        builder.push(&message).unwrap();
    }
    builder.take().unwrap().bytes().clone()
}

fn publish(fields: &Value) -> Publish {
    let producer = ProducerStamp {
        id: ProducerId(long(fields, "producer_id")),
        epoch: short(fields, "epoch"),
        first_sequence: long(fields, "first_sequence"),
    };
    let head =
        PublishHead { partition: partition_of(fields), producer, count: short(fields, "count") };
    let publish = Publish { head, batch: batch(fields) };
    publish.check_batch().unwrap();
    publish
}

fn publish_at(fields: &Value) -> PublishAt {
    PublishAt { expected: Offset(long(fields, "expected_offset")), publish: publish(fields) }
}

fn publish_atomic(fields: &Value) -> PublishAtomic {
    let acks = list(fields, "acks").map(|ack| {
        let (topic, group) = (TopicId(short(ack, "topic")), GroupId(short(ack, "group")));
        AtomicAck { topic, group, runs: list(ack, "runs").map(settle_run).collect() }
    });
    PublishAtomic { parts: list(fields, "parts").map(publish).collect(), acks: acks.collect() }
}

fn published_at(fields: &Value) -> PublishedAt {
    PublishedAt { first: Offset(long(fields, "first_offset")), count: short(fields, "count") }
}

fn publish_note(fields: &Value) -> PublishNote {
    PublishNote {
        partition: partition_of(fields),
        producer: ProducerId(long(fields, "producer_id")),
        first_sequence: long(fields, "first_sequence"),
        dropped: long(fields, "dropped"),
        replaced: long(fields, "replaced"),
    }
}

fn confirm(fields: &Value) -> Confirm {
    let head = ConfirmHead {
        partition: partition_of(fields),
        producer: ProducerId(long(fields, "producer_id")),
        up_to_sequence: long(fields, "up_to_sequence"),
        durability: durability(fields),
    };
    let run = |run: &Value| ConfirmRun {
        first_sequence: long(run, "first_sequence"),
        first_offset: run["first_offset"].as_str().map(|offset| Offset(offset.parse().unwrap())),
        count: short(run, "count"),
        duplicate: run["duplicate"].as_bool().unwrap(),
    };
    Confirm { head, runs: list(fields, "runs").map(run).collect() }
}

fn deliver(fields: &Value) -> Deliver {
    let head = DeliverHead {
        subscription: short(fields, "subscription"),
        partition: PartitionIndex(short(fields, "partition")),
        first: Offset(long(fields, "first_offset")),
        appended_at: Timestamp(long(fields, "appended_at_ms")),
        attempt: short(fields, "attempt"),
        generation: Generation(short(fields, "generation")),
        count: short(fields, "count"),
        durability: durability(fields),
    };
    let deliver = Deliver { head, messages: batch(fields) };
    deliver.check_messages().unwrap();
    deliver
}

fn settle_run(fields: &Value) -> SettleRun {
    SettleRun {
        partition: PartitionIndex(short(fields, "partition")),
        first: Offset(long(fields, "first_offset")),
        count: short(fields, "count"),
        attempt: short(fields, "attempt"),
        generation: Generation(short(fields, "generation")),
    }
}

fn settle(fields: &Value) -> Settle {
    let duration = Duration::from_millis(long(fields, "duration_ms"));
    let verdict = match short(fields, "verdict") {
        1 => Verdict::Ack,
        2 => Verdict::Retry,
        3 => Verdict::RetryAfter(duration),
        4 => Verdict::DeadLetter { reason: text(fields, "reason") },
        5 => Verdict::Extend(duration),
        _ => Verdict::Started,
    };
    let head = SettleHead {
        topic: TopicId(short(fields, "topic")),
        group: GroupId(short(fields, "group")),
        verdict,
        confirm: fields["confirm"].as_bool().unwrap(),
    };
    Settle { head, runs: list(fields, "runs").map(settle_run).collect() }
}

fn settled(fields: &Value) -> Settled {
    Settled {
        applied: long(fields, "applied"),
        stale: list(fields, "stale").map(settle_run).collect(),
    }
}

fn set_credit(fields: &Value) -> SetCredit {
    SetCredit {
        subscription: short(fields, "subscription"),
        messages: short(fields, "messages"),
        bytes: long(fields, "bytes"),
    }
}

fn taken(fields: &Value) -> Taken {
    Taken {
        subscription: short(fields, "subscription"),
        partition: PartitionIndex(short(fields, "partition")),
        messages: short(fields, "messages"),
        bytes: long(fields, "bytes"),
    }
}

fn gap(fields: &Value) -> Gap {
    let number = short(fields, "reason") as u8;
    let reason = match number {
        1 => GapReason::Damaged,
        2 => GapReason::Lost,
        3 => GapReason::Retention,
        4 => GapReason::RolledBack,
        5 => GapReason::Filtered,
        6 => GapReason::Skipped,
        7 => GapReason::Compacted,
        other => GapReason::Unknown(other),
    };
    Gap {
        subscription: short(fields, "subscription"),
        partition: PartitionIndex(short(fields, "partition")),
        offsets: OffsetRange::new(Offset(long(fields, "first_offset")), long(fields, "count")),
        reason,
    }
}

#[test]
fn every_vector_decodes_to_its_fields_and_encodes_to_its_bytes() {
    for vector in list(&file(), "vectors") {
        let (name, bytes) = (text(vector, "name"), bytes_of(&vector["hex"]));
        let kind = Kind::of_number(u8::try_from(short(vector, "kind")).unwrap()).unwrap();
        assert_eq!(kind.name(), text(vector, "frame"), "{name}");
        let expected = Frame::of_fields(kind, &vector["fields"]);
        let (request, decoded) = Frame::decode(&bytes);
        assert_eq!(Some(request), vector["request"].as_u64(), "{name}");
        assert_eq!(decoded, expected, "{name}");
        if vector["decode_only"] != Value::Bool(true) {
            for frame in expected {
                assert_eq!(frame.encode(request), bytes, "{name}");
            }
        }
    }
}

#[test]
fn every_kind_has_a_vector() {
    let file = file();
    for kind in Kind::ALL {
        let named = |vector: &Value| vector["frame"] == kind.name();
        assert!(list(&file, "vectors").any(named), "{kind}");
    }
}

#[test]
fn the_preface_is_that_of_the_vectors() {
    assert_eq!(bytes_of(&file()["preface"]), Preface::BYTES);
}

/// What the rim of a server does with one frame of a client that was not greeted.
fn receive(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut input = BytesMut::from(bytes);
    let (header, body) = FrameReader::before_greeting().next_frame(&mut input)?.unwrap();
    if let Request::Publish(publish) = Request::decode(&header, body)? {
        publish.check_batch()?;
    }
    Ok(())
}

#[test]
fn every_refused_vector_is_refused_with_its_code() {
    for vector in list(&file(), "refused") {
        let error = receive(&bytes_of(&vector["hex"])).unwrap_err();
        assert_eq!(error.code().number(), short(vector, "code"), "{}: {error}", vector["name"]);
    }
}

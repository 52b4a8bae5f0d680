//! Every command and every effect comes back as it was sent; other bytes are refused with a reason.

mod commands;
mod effects;
mod random;
mod variants;

use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;
use sennit_model::{
    Batch, BatchBuilder, GroupId, Incarnation, Message, Offset, PartitionId, PartitionIndex,
    ProducerId, ProducerStamp, TopicConfig, TopicId, TopicKind,
};

use self::{commands::commands, effects::effects, random::Random};
use super::*;
use crate::command::{CatalogueCommand, Origin, Placed, Publish, SessionId};

/// Bytes of the kind and the lengths.
const FRONT: usize = 9;

const PARTITION: PartitionId = PartitionId { topic: TopicId(3), index: PartitionIndex(4) };

fn of_command(command: &Command) -> Bytes {
    let mut encoded = Encoded::default();
    command.encode(&mut encoded).unwrap();
    encoded.to_bytes()
}

fn of_effect(effect: &Effect) -> Bytes {
    let mut encoded = Encoded::default();
    effect.encode(&mut encoded).unwrap();
    encoded.to_bytes()
}

fn hello() -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("hello")).unwrap();
    builder.take().unwrap()
}

fn publish() -> Command {
    let origin = Origin { session: SessionId(1), request: 2 };
    let producer = ProducerStamp { id: ProducerId(5), epoch: 6, first_sequence: 7 };
    Command::Publish(Publish { origin, partition: PARTITION, producer, batch: hello() })
}

/// Where the length of the fields lies, and that of the payloads.
const HEAD_LENGTH: Range<usize> = 1..5;
const PAYLOAD_LENGTH: Range<usize> = 5..9;

fn with_length(bytes: &Bytes, at: Range<usize>, length: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at].copy_from_slice(&(length as u32).to_le_bytes());
    bytes.into()
}

proptest! {
    #[test]
    fn every_command_comes_back_as_it_was_sent(seed: u64) {
        let mut encoded = Encoded::default();
        let sent = commands(&mut Random(seed));
        for command in &sent {
            command.encode(&mut encoded).unwrap();
        }
        let mut bytes = encoded.to_bytes();
        prop_assert_eq!(bytes.len(), encoded.byte_count());
        for command in sent {
            prop_assert_eq!(Command::decode(&mut bytes), Ok(command));
        }
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn every_effect_comes_back_as_it_was_sent(seed: u64) {
        let mut encoded = Encoded::default();
        let sent = effects(&mut Random(seed));
        for effect in &sent {
            effect.encode(&mut encoded).unwrap();
        }
        let mut bytes = encoded.to_bytes();
        prop_assert_eq!(bytes.len(), encoded.byte_count());
        for effect in sent {
            prop_assert_eq!(Effect::decode(&mut bytes), Ok(effect));
        }
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn fields_that_a_newer_version_adds_are_skipped(seed: u64) {
        let lengthen = |bytes: Bytes| {
            let head = u32::from_le_bytes(bytes[HEAD_LENGTH].try_into().unwrap()) as usize;
            let (front, payloads) = (&bytes[..FRONT + head], &bytes[FRONT + head..]);
            let longer = [front, b"new", payloads, b"newer"].concat();
            let longer = with_length(&longer.into(), HEAD_LENGTH, head + 3);
            with_length(&longer, PAYLOAD_LENGTH, payloads.len() + 5)
        };
        for command in commands(&mut Random(seed)) {
            let mut longer = lengthen(of_command(&command));
            prop_assert_eq!(Command::decode(&mut longer), Ok(command));
            prop_assert!(longer.is_empty());
        }
        for effect in effects(&mut Random(seed)) {
            let mut longer = lengthen(of_effect(&effect));
            prop_assert_eq!(Effect::decode(&mut longer), Ok(effect));
            prop_assert!(longer.is_empty());
        }
    }

    #[test]
    fn fields_that_end_early_are_refused(seed: u64, cut: u32) {
        let shorten = |bytes: Bytes| {
            let head = u32::from_le_bytes(bytes[HEAD_LENGTH].try_into().unwrap()) as usize;
            let left = cut as usize % head.max(1);
            let shorter = [&bytes[..FRONT + left], &bytes[FRONT + head..]].concat();
            (head > 0).then(|| with_length(&shorter.into(), HEAD_LENGTH, left))
        };
        for command in commands(&mut Random(seed)) {
            if let Some(mut shorter) = shorten(of_command(&command)) {
                prop_assert!(Command::decode(&mut shorter).is_err(), "{:?}", command);
            }
        }
        for effect in effects(&mut Random(seed)) {
            if let Some(mut shorter) = shorten(of_effect(&effect)) {
                prop_assert!(Effect::decode(&mut shorter).is_err(), "{:?}", effect);
            }
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_decoded_to_what_can_be_sent(
        seed: u64,
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..4),
    ) {
        let change = |bytes: Bytes| {
            let mut bytes = bytes.to_vec();
            for (at, value) in &changes {
                let at = *at as usize % bytes.len();
                bytes[at] = *value;
            }
            Bytes::from(bytes)
        };
        for command in commands(&mut Random(seed)) {
            if let Ok(read) = Command::decode(&mut change(of_command(&command))) {
                prop_assert_eq!(Command::decode(&mut of_command(&read)), Ok(read));
            }
        }
        for effect in effects(&mut Random(seed)) {
            if let Ok(read) = Effect::decode(&mut change(of_effect(&effect))) {
                prop_assert_eq!(Effect::decode(&mut of_effect(&read)), Ok(read));
            }
        }
    }
}

#[test]
fn the_bytes_of_a_command_stay_as_they_are() {
    let session = SessionId(1);
    let group = GroupId(5);
    let command = Command::Unsubscribe { session, subscription: 2, partition: PARTITION, group };
    let mut expected = vec![8, 24, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0]); // session
    expected.extend([2, 0, 0, 0]); // subscription
    expected.extend([3, 0, 0, 0, 4, 0, 0, 0]); // partition
    expected.extend([5, 0, 0, 0]); // group
    assert_eq!(of_command(&command), expected);
}

#[test]
fn the_bytes_of_a_publish_end_with_its_batch() {
    let batch = hello();
    let length = batch.bytes().len() as u8;
    let mut expected = vec![1, 48, 0, 0, 0, length, 0, 0, 0];
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]); // origin
    expected.extend([3, 0, 0, 0, 4, 0, 0, 0]); // partition
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]); // producer
    expected.extend([length, 0, 0, 0]);
    expected.extend_from_slice(batch.bytes());
    assert_eq!(of_command(&publish()), expected);
}

#[test]
fn the_bytes_of_effects_stay_as_they_are() {
    let origin = Origin { session: SessionId(1), request: 2 };
    let of_origin = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    let (topic, group, created) = (TopicId(3), Some(GroupId(4)), true);
    let done = Effect::Done { origin, topic, group, created };
    let mut expected = vec![11, 26, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(of_origin);
    expected.extend([3, 0, 0, 0, 1, 4, 0, 0, 0, 1]); // topic, group, created
    assert_eq!(of_effect(&done), expected);

    let refusal = Refusal::OffsetMismatch { expected: Offset(9), next: Offset(8) };
    let mut expected = vec![24, 33, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(of_origin);
    expected.extend([10, 9, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of_effect(&Effect::Refused { origin, refusal }), expected);
}

#[test]
fn a_batch_is_neither_copied_by_the_sender_nor_by_the_receiver() {
    let Command::Publish(sent) = publish() else { panic!("it is a publish") };
    let mut encoded = Encoded::default();
    Command::Publish(sent.clone()).encode(&mut encoded).unwrap();
    let pieces: Vec<_> = encoded.pieces().collect();
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[1].as_ptr(), sent.batch.bytes().as_ptr());
    let bytes = encoded.to_bytes();
    let Ok(Command::Publish(read)) = Command::decode(&mut bytes.clone()) else {
        panic!("it is a publish");
    };
    assert!(bytes.as_ptr_range().contains(&read.batch.bytes().as_ptr()));
}

#[test]
fn what_is_encoded_later_lies_behind_what_was_encoded_earlier() {
    let mut encoded = Encoded::default();
    publish().encode(&mut encoded).unwrap();
    publish().encode(&mut encoded).unwrap();
    assert_eq!(encoded.to_bytes(), [of_command(&publish()), of_command(&publish())].concat());
    encoded.clear();
    assert_eq!((encoded.byte_count(), encoded.pieces().count()), (0, 0));
}

#[test]
fn an_unknown_kind_is_named_and_skipped() {
    let mut unknown = of_command(&publish()).to_vec();
    unknown[0] = 255;
    let mut bytes = Bytes::from([&unknown[..], &of_command(&publish())].concat());
    let mut of_effects = bytes.clone();
    assert_eq!(Command::decode(&mut bytes), Err(DecodeError::Kind { kind: 255 }));
    assert_eq!(Command::decode(&mut bytes), Ok(publish()));
    assert_eq!(Effect::decode(&mut of_effects), Err(DecodeError::Kind { kind: 255 }));
}

#[test]
fn bytes_that_end_before_they_announced_are_refused() {
    let whole = of_command(&publish());
    for length in 0..whole.len() {
        let mut bytes = whole.slice(..length);
        let error = Command::decode(&mut bytes).unwrap_err();
        assert!(matches!(error, DecodeError::Short { .. }), "{error}");
        assert!(bytes.is_empty());
    }
}

#[test]
fn a_command_that_is_longer_than_allowed_is_refused_by_both_sides() {
    let most = AFAR_HEAD_BYTES_MAX;
    let topics = vec![TopicId(1); most / 4];
    let mut encoded = Encoded::default();
    publish().encode(&mut encoded).unwrap();
    let refused = Command::WatchFailures(topics.into()).encode(&mut encoded);
    let value = most as u64;
    assert_eq!(refused, Err(Refusal::Limit { limit: "AFAR_HEAD_BYTES_MAX", value }));
    assert_eq!(encoded.to_bytes(), of_command(&publish()));

    let mut long = vec![0; FRONT + most + 1];
    long[0] = 11;
    let long = with_length(&long.into(), HEAD_LENGTH, most + 1);
    let (limit, found) = ("AFAR_HEAD_BYTES_MAX", value + 1);
    let error = DecodeError::TooLong { kind: 11, limit, value, found };
    assert_eq!(Command::decode(&mut long.clone()), Err(error));
}

#[test]
fn a_list_that_cannot_be_there_takes_no_memory() {
    let watch = of_command(&Command::WatchFailures([TopicId(1)].into()));
    let mut bytes = watch.to_vec();
    bytes[FRONT..FRONT + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = Command::decode(&mut bytes.into()).unwrap_err();
    assert_eq!(error, DecodeError::Length { kind: 11 });
}

#[test]
fn settings_out_of_bounds_are_refused_by_the_sender_as_the_leader_would() {
    let config = TopicConfig { partitions: 0, ..TopicConfig::of_kind(TopicKind::Queue) };
    let wrong = config.check().unwrap_err();
    let alter = CatalogueCommand::AlterTopic { topic: TopicId(1), config };
    let mut encoded = Encoded::default();
    let refused = Command::Catalogue(Origin::default(), alter).encode(&mut encoded);
    assert_eq!(refused, Err(Refusal::Config(wrong)));
    assert_eq!(encoded.byte_count(), 0);
}

#[test]
fn a_topic_is_placed_on_one_of_so_many_shards_and_no_more() {
    let decoded = |shard, shards| {
        let created = CatalogueCommand::CreateTopic {
            name: "orders".parse().unwrap(),
            config: TopicConfig::of_kind(TopicKind::Queue),
            incarnation: Incarnation(1),
            placed: Some(Placed { shard, shards }),
            is_stream: false,
        };
        let mut bytes = of_command(&Command::Catalogue(Origin::default(), created));
        Command::decode(&mut bytes).map_err(|error| error.to_string())
    };
    assert!(decoded(1023, 1024).is_ok());
    assert!(decoded(7, 7).unwrap_err().contains("shard of a new topic"));
    assert!(decoded(7, u32::MAX).unwrap_err().contains("number of shards"));
}

#[test]
fn a_batch_with_a_wrong_checksum_is_refused() {
    let mut bytes = of_command(&publish()).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let error = Command::decode(&mut bytes.into()).unwrap_err();
    assert!(matches!(error, DecodeError::Batch { kind: 1, .. }), "{error}");
}

#[test]
fn a_text_of_a_newer_version_becomes_a_general_one() {
    let origin = Origin::default();
    let refusal = Refusal::SettingFixed { field: "a setting that is not there yet" };
    let mut bytes = of_effect(&Effect::Refused { origin, refusal });
    let Ok(Effect::Refused { refusal, .. }) = Effect::decode(&mut bytes) else {
        panic!("it is a refusal");
    };
    let field = "a setting, limit or state of a newer version";
    assert_eq!(refusal, Refusal::SettingFixed { field });
}

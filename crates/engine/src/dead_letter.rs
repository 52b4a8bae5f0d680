//! A dead letter is a copy of the failed message with headers that name its source and the reason.

use bytes::Bytes;
use sennit_model::{
    BatchBuilder, GroupId, Header, HeaderKind, Message, MessageView, Messages, Offset, PartitionId,
    Timestamp,
};

use crate::{
    engine::{Engine, Payloads},
    gather::byte_of,
    group::Dying,
    names::Source,
    record::Record,
};

/// The name of the topic that a dead letter comes from.
pub const HEADER_SOURCE_TOPIC: &str = "sennit-source-topic";
/// The number of that topic, which no topic of the same name had before or gets later.
pub const HEADER_SOURCE_TOPIC_ID: &str = "sennit-source-topic-id";
/// The partition it comes from.
pub const HEADER_SOURCE_PARTITION: &str = "sennit-source-partition";
/// The offset it had there.
pub const HEADER_SOURCE_OFFSET: &str = "sennit-source-offset";
/// The name of the group that failed at it.
pub const HEADER_SOURCE_GROUP: &str = "sennit-source-group";
/// The number of that group.
pub const HEADER_SOURCE_GROUP_ID: &str = "sennit-source-group-id";
/// When it was first appended, in milliseconds since the Unix epoch.
pub const HEADER_APPENDED_AT_MS: &str = "sennit-appended-at-ms";
/// When the last attempt failed, in milliseconds since the Unix epoch.
pub const HEADER_FAILED_AT_MS: &str = "sennit-failed-at-ms";
/// How many attempts failed.
pub const HEADER_ATTEMPTS: &str = "sennit-attempts";
/// Why the last attempt failed.
pub const HEADER_REASON: &str = "sennit-reason";
/// The number of the redrive that has published it again.
pub const HEADER_REDRIVE: &str = "sennit-redrive";

impl Engine {
    /// The move of the oldest dying message of a group; `None` without one, or while its batch or
    /// the target's partition is not there yet. `hint` says where in its batch the next one lies.
    pub(crate) fn next_burial(
        &mut self,
        ((id, group), source): ((PartitionId, GroupId), Source<'_>),
        target: PartitionId,
        hint: &mut Option<(u64, usize)>,
        now: Timestamp,
        payloads: &mut impl Payloads,
    ) -> Option<Record> {
        let first = Offset(self.partitions.get(&target)?.log.end());
        let partition = self.partitions.get_mut(&id)?;
        let held = partition.group(group)?;
        let (offset, dying) = held.first_to_bury()?;
        let entry = partition.log.find(offset).expect("dying messages are kept");
        let batch = payloads.batch(id, entry.place)?;
        let from = byte_of(*hint, entry, &batch, offset);
        let message = Messages::of_checked(&batch[from..]).next().expect("within the batch");
        *hint = Some((offset + 1, from + message.encoded().len()));
        let mut builder = BatchBuilder::for_broker();
        let letter = dead_letter(message, source, (id, group, offset), (&dying, entry.appended_at));
        builder.push(&letter).expect("the broker's headers have room of their own");
        let batch = builder.take().expect("one message was pushed");
        let offset = Offset(offset);
        Some(Record::Buried { source: id, group, offset, target, first, appended_at: now, batch })
    }
}

fn dead_letter(
    message: MessageView<'_>,
    source: Source<'_>,
    (partition, group, offset): (PartitionId, GroupId, u64),
    (dying, appended_at): (&Dying, Timestamp),
) -> Message {
    let mut headers: Vec<Header> = message
        .headers()
        // Headers that do not parse were never readable; what can be read is kept.
        .filter_map(Result::ok)
        // A letter that dies twice says where it died last.
        .filter(|(name, _, _)| !BROKER_HEADERS.contains(name))
        .map(|(name, kind, value)| Header {
            name: name.to_owned(),
            kind,
            value: Bytes::copy_from_slice(value),
        })
        .collect();
    let number = |name: &str, value: u64| Header {
        name: name.to_owned(),
        kind: HeaderKind::Number,
        value: Bytes::from(value.to_string()),
    };
    headers.extend([
        Header::text(HEADER_SOURCE_TOPIC, source.topic.as_str()),
        number(HEADER_SOURCE_TOPIC_ID, u64::from(partition.topic.0)),
        number(HEADER_SOURCE_PARTITION, u64::from(partition.index.0)),
        number(HEADER_SOURCE_OFFSET, offset),
        Header::text(HEADER_SOURCE_GROUP, source.group.as_str()),
        number(HEADER_SOURCE_GROUP_ID, u64::from(group.0)),
        number(HEADER_APPENDED_AT_MS, appended_at.0),
        number(HEADER_FAILED_AT_MS, dying.failed_at.0),
        number(HEADER_ATTEMPTS, u64::from(dying.tries.failed)),
        Header::text(HEADER_REASON, &*dying.reason),
    ]);
    Message {
        key: Bytes::copy_from_slice(message.key()),
        headers,
        payload: Bytes::copy_from_slice(message.payload()),
        delay: None,
        time_to_live: None,
    }
}

const BROKER_HEADERS: [&str; 11] = [
    HEADER_SOURCE_TOPIC,
    HEADER_SOURCE_TOPIC_ID,
    HEADER_SOURCE_PARTITION,
    HEADER_SOURCE_OFFSET,
    HEADER_SOURCE_GROUP,
    HEADER_SOURCE_GROUP_ID,
    HEADER_APPENDED_AT_MS,
    HEADER_FAILED_AT_MS,
    HEADER_ATTEMPTS,
    HEADER_REASON,
    HEADER_REDRIVE,
];

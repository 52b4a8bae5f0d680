//! The oracle's checks of a delivery: its subscription has credit, its bytes were published at these offsets or are
//! dead letters, and it is due.

use sennit_engine::{
    DeadLetters, Delivery, HEADER_ATTEMPTS, HEADER_SOURCE_GROUP, HEADER_SOURCE_GROUP_ID,
    HEADER_SOURCE_OFFSET, HEADER_SOURCE_PARTITION, HEADER_SOURCE_TOPIC, HEADER_SOURCE_TOPIC_ID,
};
use sennit_model::{
    GroupId, MessageView, Messages, PartitionId, PartitionIndex, Timestamp, TopicId,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Oracle, Violation,
    group::DeliveredMessage,
    partition::{DeadLetter, Entry, PartitionModel},
};
use crate::numbered_messages;

impl Oracle {
    pub(super) fn delivered(
        &mut self,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let key = (delivery.session, delivery.subscription);
        let nobody = || {
            Violation::new("every delivery goes to a live subscription", format!("{delivery:?}"))
        };
        let subscription = *self.subscriptions.get(&key).ok_or_else(nobody)?;
        let id = delivery.partition;
        if subscription.partition != id || delivery.generation != self.generation {
            return Err(nobody());
        }
        let partition = self.partitions.get(&id).filter(|held| held.is_open());
        let group = partition.and_then(|held| held.groups.get(&subscription.group));
        let group = group.ok_or_else(nobody)?;
        let held = group.held_by(delivery.session, delivery.subscription, now);
        // Where age or bytes free messages, leases may end with them.
        let is_clear = partition.is_some_and(PartitionModel::is_clear);
        if is_clear && held + u64::from(delivery.count) > subscription.messages {
            return Err(Violation::new(
                "I8 credit is never exceeded",
                format!("{held} held of {}, and {} more", subscription.messages, delivery.count),
            ));
        }
        let messages: Vec<MessageView<'_>> = Messages::of_checked(&delivery.messages).collect();
        if messages.len() != delivery.count as usize {
            return Err(Violation::new(
                "I1 a delivered batch decodes to its stated message count",
                format!("{delivery:?}"),
            ));
        }
        for (offset, message) in (delivery.first.0..).zip(messages) {
            self.delivered_one(delivery, subscription.group, offset, message, now)?;
        }
        Ok(())
    }

    fn delivered_one(
        &mut self,
        delivery: &Delivery,
        group: GroupId,
        offset: u64,
        message: MessageView<'_>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.deliveries += 1;
        self.delivering_generation = self.generation;
        let id = delivery.partition;
        let place = (id, group, offset);
        if let Some((dead_letters_by_offset, at)) = self.dead_letters_by_offset.get(&place) {
            return Err(Violation::new(
                "I7 a dead-lettered message is not delivered from its source again",
                format!("offset {offset} of {id} is at {at} of {dead_letters_by_offset}"),
            ));
        }
        self.content(delivery, offset, message, now)?;
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        partition.seen_end = partition.seen_end.max(offset + 1);
        let is_delayed =
            partition.entries.get(offset as usize).is_some_and(|entry| entry.due.is_some());
        let parks = partition.dead_letters == DeadLetters::Stay;
        let Some(group) = partition.groups.get_mut(&group) else { return Ok(()) };
        let is_delayed = is_delayed || partition.gaps.contains(&offset);
        let given = DeliveredMessage { offset, number: self.deliveries, is_delayed, parks };
        group.delivered(delivery, given, now)
    }

    /// The bytes are those that were published at this offset, and their time has come.
    fn content(
        &mut self,
        delivery: &Delivery,
        offset: u64,
        message: MessageView<'_>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(entry) = self.bytes(delivery, offset, message)? else { return Ok(()) };
        let wrong = |rule| {
            let number = numbered_messages::number(&message);
            let id = delivery.partition;
            let detail = format!("offset {offset} of {id} at {now:?}: {number:?}, {entry:?}");
            Err(Violation::new(rule, detail))
        };
        if entry.due.is_some_and(|due| now < due) {
            return wrong("I7 a delayed message is not delivered before its due time");
        }
        if entry.expiry.is_some_and(|expiry| expiry <= now) {
            return wrong("I7 an expired message is not delivered");
        }
        Ok(())
    }

    /// The bytes are those that were published at this offset, or a dead letter.
    pub(super) fn bytes(
        &mut self,
        delivery: &Delivery,
        offset: u64,
        message: MessageView<'_>,
    ) -> Result<Option<Entry>, Violation> {
        let id = delivery.partition;
        let entry = self.partitions.get(&id).and_then(|held| held.entries.get(offset as usize));
        let Some(entry) = entry.copied() else {
            return self.letter(id, offset, message).map(|()| None);
        };
        let hash = xxh3_64(message.encoded());
        if entry.hash != hash || entry.appended_at != delivery.appended_at {
            let number = numbered_messages::number(&message);
            let detail = format!("offset {offset} of {id}: {number:?}, {entry:?}");
            let rule = "I1 each offset holds the bytes that were published there";
            return Err(Violation::new(rule, detail));
        }
        self.must_be_durable(entry.turn, &(id, offset))?;
        Ok(Some(entry))
    }

    /// A message that no publisher put there has to be a dead letter, whole and for the first time.
    fn letter(
        &mut self,
        id: PartitionId,
        offset: u64,
        message: MessageView<'_>,
    ) -> Result<(), Violation> {
        let invented = || {
            let number = numbered_messages::number(&message);
            Violation::new(
                "I2 nothing appears that was never sent",
                format!("{number:?} at {offset} of {id}"),
            )
        };
        let header = |name: &str| {
            let found = message.headers().filter_map(Result::ok).find(|held| held.0 == name);
            let value = found.and_then(|(_, _, value)| std::str::from_utf8(value).ok());
            value.and_then(|text| text.parse::<u64>().ok()).ok_or_else(invented)
        };
        let source = PartitionId {
            topic: TopicId(header(HEADER_SOURCE_TOPIC_ID)? as u32),
            index: PartitionIndex(header(HEADER_SOURCE_PARTITION)? as u32),
        };
        let group = GroupId(header(HEADER_SOURCE_GROUP_ID)? as u32);
        let source_offset = header(HEADER_SOURCE_OFFSET)?;
        let says = |name: &str, what: &str| {
            let held = message.headers().filter_map(Result::ok).find(|held| held.0 == name);
            held.is_some_and(|(_, _, value)| value == what.as_bytes())
        };
        let topic = format!("topic-{}", source.topic.0);
        if !says(HEADER_SOURCE_TOPIC, &topic)
            || !says(HEADER_SOURCE_GROUP, &format!("group-{}", group.0))
        {
            return Err(Violation::new(
                "I1 a dead letter names its source topic and group",
                format!("{source_offset} of {source}, at {offset} of {id}"),
            ));
        }
        let held = self.partitions.get(&source).ok_or_else(invented)?;
        let entry = held.entries.get(source_offset as usize).ok_or_else(invented)?;
        if entry.content != numbered_messages::content_hash(&message) {
            return Err(Violation::new(
                "I1 a dead letter carries the key and payload of its source",
                format!("{source_offset} of {source}, at {offset} of {id}"),
            ));
        }
        if let Some(group) = held.groups.get(&group)
            && !group.states.contains_key(&source_offset)
        {
            return Err(Violation::new(
                "I7 only a delivered message becomes a dead letter",
                format!("{source_offset} of {source}, at {offset} of {id}"),
            ));
        }
        let failed = header(HEADER_ATTEMPTS)?;
        if let Some(group) = held.groups.get(&group) {
            let most = group.may_have_failed(source_offset);
            let least = if group.is_asked(source_offset) { 0 } else { group.attempts_least() };
            if failed > u64::from(most) || failed < u64::from(least) {
                return Err(Violation::new(
                    "I7 a message becomes a dead letter only after enough failed attempts",
                    format!(
                        "{source_offset} of {source}: {failed} attempts failed, at least {least} of \
                         at most {most} were needed"
                    ),
                ));
            }
        }
        let hash = xxh3_64(message.encoded());
        let letter = DeadLetter { source, group, offset: source_offset, hash };
        let place = *self
            .dead_letters_by_offset
            .entry((source, group, source_offset))
            .or_insert((id, offset));
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        let here = *partition.dead_letters_by_offset.entry(offset).or_insert(letter);
        if place != (id, offset) || here != letter {
            return Err(Violation::new(
                "I7 a message becomes a dead letter once",
                format!("{letter:?} at {offset} of {id}, and {here:?} at {place:?}"),
            ));
        }
        Ok(())
    }
}

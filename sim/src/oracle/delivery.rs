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
    /// Checks a delivery to a consumer.
    pub(super) fn check_delivery(
        &mut self,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let key = (delivery.session, delivery.subscription);
        let unknown = || {
            Violation::new("every delivery goes to a live subscription", format!("{delivery:?}"))
        };
        let subscription = *self.subscriptions.get(&key).ok_or_else(unknown)?;
        let id = delivery.partition;
        if subscription.partition != id || delivery.generation != self.generation {
            return Err(unknown());
        }
        let partition = self.partitions.get(&id).filter(|partition| partition.is_open());
        let group = partition.and_then(|partition| partition.groups.get(&subscription.group));
        let group = group.ok_or_else(unknown)?;
        let held = group.held_by(delivery.session, delivery.subscription, now);
        // Where age or bytes free messages, leases may end with them.
        let keeps_unsettled = partition.is_some_and(PartitionModel::keeps_unsettled);
        if keeps_unsettled && held + u64::from(delivery.count) > subscription.messages {
            return Err(Violation::new(
                "I8 credit is never exceeded",
                format!("{held} held of {}, and {} more", subscription.messages, delivery.count),
            ));
        }
        let messages: Vec<MessageView<'_>> = Messages::of_checked(&delivery.messages).collect();
        if messages.len() != delivery.count as usize {
            let rule = "I1 a delivered batch decodes to its stated message count";
            return Err(Violation::new(rule, format!("{delivery:?}")));
        }
        for (offset, message) in (delivery.first.0..).zip(messages) {
            self.check_delivered_message(delivery, subscription.group, offset, message, now)?;
        }
        Ok(())
    }

    fn check_delivered_message(
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
        if let Some((topic, at)) = self.dead_letters_by_source.get(&(id, group, offset)) {
            return Err(Violation::new(
                "I7 a dead-lettered message is not delivered from its source again",
                format!("offset {offset} of {id} is at {at} of {topic}"),
            ));
        }
        self.check_content(delivery, offset, message, now)?;
        self.check_scheduling(id, group, offset, now)?;
        let consumer = (delivery.session, delivery.subscription);
        self.check_order((id, group), offset, consumer, now)?;
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        partition.visible_end = partition.visible_end.max(offset + 1);
        let is_delayed =
            partition.entries.get(offset as usize).is_some_and(|entry| entry.due.is_some());
        let parks = partition.dead_letters == DeadLetters::Stay;
        let said = partition.says(offset).1;
        let Some(group) = partition.groups.get_mut(&group) else { return Ok(()) };
        let is_delayed = is_delayed || partition.gaps.contains(&offset);
        let (number, says) = (self.deliveries, said);
        let message = DeliveredMessage { offset, number, is_delayed, parks, says };
        group.deliver(delivery, message, now)
    }

    /// Checks that the bytes are those that were published at this offset, and that the message is due.
    fn check_content(
        &mut self,
        delivery: &Delivery,
        offset: u64,
        message: MessageView<'_>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(entry) = self.check_bytes(delivery, offset, message)? else { return Ok(()) };
        let wrong = |rule| {
            let number = numbered_messages::number(&message);
            let id = delivery.partition;
            let detail = format!("offset {offset} of {id} at {now:?}: {number:?}, {entry:?}");
            Err(Violation::new(rule, detail))
        };
        if entry.is_cancelled {
            return wrong("I7 a cancelled message is not delivered");
        }
        if entry.due.is_some_and(|due| now < due) {
            return wrong("I7 a delayed message is not delivered before its due time");
        }
        if entry.expiry.is_some_and(|expiry| expiry <= now) {
            return wrong("I7 an expired message is not delivered");
        }
        Ok(())
    }

    /// Checks that the bytes are those that were published at this offset, or a dead letter.
    pub(super) fn check_bytes(
        &mut self,
        delivery: &Delivery,
        offset: u64,
        message: MessageView<'_>,
    ) -> Result<Option<Entry>, Violation> {
        let id = delivery.partition;
        let partition = self.partitions.get(&id);
        let entry = partition.and_then(|partition| partition.entries.get(offset as usize));
        let Some(entry) = entry.copied() else {
            return self.check_dead_letter(id, offset, message).map(|()| None);
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

    /// Checks a message that no publisher sent: it must be a dead letter, complete and the only one of its source.
    fn check_dead_letter(
        &mut self,
        id: PartitionId,
        offset: u64,
        message: MessageView<'_>,
    ) -> Result<(), Violation> {
        let source = source_of(&message).ok_or_else(|| {
            let number = numbered_messages::number(&message);
            let detail = format!("{number:?} at {offset} of {id}");
            Violation::new("I2 nothing appears that was never sent", detail)
        })?;
        self.check_dead_letter_source(&source, (id, offset), message)?;
        let DeadLetterSource { partition: source, group, offset: source_offset, .. } = source;
        let hash = xxh3_64(message.encoded());
        let letter = DeadLetter { source, group, offset: source_offset, hash };
        let place = *self
            .dead_letters_by_source
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

    /// Checks a dead letter at `place` against the message that it names as its source.
    fn check_dead_letter_source(
        &self,
        source: &DeadLetterSource,
        place: (PartitionId, u64),
        message: MessageView<'_>,
    ) -> Result<(), Violation> {
        let DeadLetterSource { partition: id, group, offset, failed } = *source;
        let wrong = |rule, detail: &str| {
            let (at, letters) = (place.1, place.0);
            let letter = format!("{offset} of {id}, at {at} of {letters}");
            Err(Violation::new(rule, format!("{letter}{detail}")))
        };
        let has = |name: &str, expected: String| {
            let header = message.headers().filter_map(Result::ok).find(|held| held.0 == name);
            header.is_some_and(|(_, _, value)| value == expected.as_bytes())
        };
        if !has(HEADER_SOURCE_TOPIC, format!("topic-{}", id.topic.0))
            || !has(HEADER_SOURCE_GROUP, format!("group-{}", group.0))
        {
            return wrong("I1 a dead letter names its source topic and group", "");
        }
        let partition = self.partitions.get(&id);
        let entry = partition.and_then(|partition| partition.entries.get(offset as usize));
        let (Some(partition), Some(entry)) = (partition, entry) else {
            return wrong("I2 nothing appears that was never sent", "");
        };
        if entry.content != numbered_messages::content_hash(&message) {
            return wrong("I1 a dead letter carries the key and payload of its source", "");
        }
        let Some(group) = partition.groups.get(&group) else { return Ok(()) };
        if !group.states.contains_key(&offset) {
            return wrong("I7 only a delivered message becomes a dead letter", "");
        }
        let most = group.failed_attempts_max(offset);
        let least = group.failed_attempts_needed(offset);
        if failed > u64::from(most) || failed < u64::from(least) {
            return wrong(
                "I7 a message becomes a dead letter only after enough failed attempts",
                &format!(": {failed} failed attempts, expected {least} to {most}"),
            );
        }
        Ok(())
    }
}

/// The source that a dead letter names.
#[derive(Clone, Copy, Debug)]
struct DeadLetterSource {
    partition: PartitionId,
    group: GroupId,
    offset: u64,
    /// The number of failed attempts.
    failed: u64,
}

/// Reads the numbers in the headers of a dead letter.
fn source_of(message: &MessageView<'_>) -> Option<DeadLetterSource> {
    let number = |name: &str| {
        let header = message.headers().filter_map(Result::ok).find(|held| held.0 == name);
        let text = header.and_then(|(_, _, value)| std::str::from_utf8(value).ok())?;
        text.parse::<u64>().ok()
    };
    Some(DeadLetterSource {
        partition: PartitionId {
            topic: TopicId(number(HEADER_SOURCE_TOPIC_ID)? as u32),
            index: PartitionIndex(number(HEADER_SOURCE_PARTITION)? as u32),
        },
        group: GroupId(number(HEADER_SOURCE_GROUP_ID)? as u32),
        offset: number(HEADER_SOURCE_OFFSET)?,
        failed: number(HEADER_ATTEMPTS)?,
    })
}

//! The commands that open, drop, describe and locate a partition: each is refused, answered, or becomes a record.
//! The other commands of a partition are in the files of the state that they change.

use sennit_model::{
    Durability, Offset, OffsetRange, PartitionId, ReadFrom, Timestamp, TopicConfig,
};

use crate::{
    command::{CursorClaim, DeadLetters, GroupSetting, Origin, PartitionCommand},
    effect::Effect,
    engine::{Engine, Journal, Outbox},
    group::Group,
    record::Record,
    refusal::Refusal,
    reserved::reserved_max,
    stream::StreamRefusal,
};

impl Engine {
    pub(crate) fn change_partition(
        &mut self,
        origin: Origin,
        id: PartitionId,
        command: PartitionCommand,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        match command {
            PartitionCommand::Open { config, groups, dead_letters } => {
                self.open_partition(origin, id, (config, dead_letters, groups), journal, out);
            }
            PartitionCommand::Drop => self.drop_partition(origin, id, journal, out),
            PartitionCommand::SetCursor(name, offset, by) => {
                self.set_cursor(origin, id, (name, offset, by), out);
            }
            PartitionCommand::DeleteCursor(name) => {
                self.delete_cursor(origin, id, name, journal, out);
            }
            PartitionCommand::Trim(before) => self.trim(origin, id, before, journal, out),
            PartitionCommand::Name(names) => self.name_source(origin, id, names, out),
            PartitionCommand::RetryParked(group, range) => {
                self.retry_parked(origin, (id, group), range, journal, out);
            }
            PartitionCommand::ListCursors => self.list_cursors(origin, id, out),
            PartitionCommand::Locate(from, cursor) => {
                out.now.push(self.located(origin, id, from, cursor));
            }
            PartitionCommand::Explain(group, subject) => {
                self.explain(origin, (id, group), &subject, now, out);
            }
            PartitionCommand::ListKeys(group, most) => {
                self.list_keys(origin, (id, group), most, now, out);
            }
            PartitionCommand::ListDelayed(after, most) => {
                self.list_delayed(origin, id, after, most, out);
            }
            PartitionCommand::ChangeDelayed(offsets, change) => {
                self.change_delayed(origin, id, (offsets, change), now, journal, out);
            }
            PartitionCommand::Walk(walk) => self.walk(origin, id, *walk, out),
            PartitionCommand::Describe => out.now.push(self.described(origin, id)),
        }
    }

    fn open_partition(
        &mut self,
        origin: Origin,
        id: PartitionId,
        (config, dead_letters, groups): (TopicConfig, DeadLetters, Vec<GroupSetting>),
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let (mut durability_before, mut is_same) = (None, false);
        if let Some(view) = self.partitions.peek(&id) {
            let held = view.partition();
            durability_before = Some(held.config.durability);
            is_same = *held.config == config
                && held.dead_letters == dead_letters
                && held.groups.iter().map(Group::setting).eq(groups.iter().cloned());
        }
        let created = durability_before.is_none();
        if !is_same {
            self.tell_ended(id, &groups, out);
            let durability = config.durability;
            let record = Record::PartitionOpened { partition: id, config, dead_letters, groups };
            self.commit(&record, journal);
            if durability_before != Some(durability) && self.first_offset > 0 {
                self.lose_first_offsets(id, durability, journal);
            }
        }
        out.after_commit.push(Effect::Done { origin, topic: id.topic, group: None, created });
    }

    /// Skips the offsets that a partition may have used in what the journal has lost.
    fn lose_first_offsets(
        &mut self,
        id: PartitionId,
        durability: Durability,
        journal: &mut impl Journal,
    ) {
        let count = match durability {
            Durability::Durable => self.first_offset,
            _ => reserved_max(self.first_offset),
        };
        // Messages behind the hole are known, and stay.
        let end = self.end_of(id).unwrap_or_default();
        let range = OffsetRange::new(end, count);
        self.commit(&Record::Lost { partition: id, range }, journal);
    }

    fn drop_partition(
        &mut self,
        origin: Origin,
        id: PartitionId,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        if !self.partitions.has(&id) {
            return out.refuse(origin, Refusal::UnknownTopic);
        }
        self.tell_ended(id, &[], out);
        self.tell_readers_ended(id, out);
        self.refuse_reads(id, &StreamRefusal::Unknown, |_| true, out);
        self.refuse_walks(id, out);
        self.commit(&Record::PartitionDropped { partition: id }, journal);
        let (topic, created) = (id.topic, false);
        out.after_commit.push(Effect::Done { origin, topic, group: None, created });
    }

    /// The answer to [`PartitionCommand::Locate`].
    fn located(
        &self,
        origin: Origin,
        id: PartitionId,
        from: ReadFrom,
        cursor: Option<CursorClaim>,
    ) -> Effect {
        if let Some(name) = self.held_cursor(id, cursor.as_ref()) {
            return Effect::Refused { origin, refusal: Refusal::CursorHeld { name } };
        }
        let at = cursor.and_then(|claim| self.cursors.get(id, &claim.name));
        let from = at.map_or(from, |at| ReadFrom::Offset(Offset(at)));
        let Some(partition) = self.partitions.get(&id) else {
            return Effect::Refused { origin, refusal: Refusal::UnknownTopic };
        };
        let (first, end) = (partition.locate(from), Offset(partition.visible));
        Effect::Located { origin, first: Offset(first).min(end), end }
    }

    /// The answer to [`PartitionCommand::Describe`].
    fn described(&self, origin: Origin, id: PartitionId) -> Effect {
        let Some(view) = self.partitions.peek(&id) else {
            return Effect::Refused { origin, refusal: Refusal::UnknownTopic };
        };
        let lost = self.lost.of(id).map(|lost| lost.end - lost.start).sum();
        Effect::Described { origin, description: view.partition().describe(lost) }
    }

    /// Ends the subscriptions of the groups that the partition will not have any more: it keeps `kept`.
    fn tell_ended(&self, id: PartitionId, kept: &[GroupSetting], out: &mut Outbox) {
        let Some(partition) = self.partitions.get(&id) else { return };
        for group in &partition.groups {
            if kept.iter().any(|setting| setting.id == group.id()) {
                continue;
            }
            let members = &group.activity().members;
            out.now.extend(members.iter().map(|member| Effect::ended(member.holder, id)));
        }
    }
}

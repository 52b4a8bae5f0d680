//! Delivery: the members of a group take turns at its ready messages, as far as their credit and the loaded batches
//! allow. A lease is not a record; it lives in memory.

use sennit_model::{GroupId, Offset, OffsetRange, PartitionId, ReadFrom, Timestamp};

use crate::{
    command::DeadLetters,
    delivery_turn::{TURN_MESSAGES, Turn},
    effect::{Delivery, Effect, GapReason},
    engine::{Engine, Journal, Outbox, Payloads, mark_ready},
    fair_delivery::{Passed, Scheduling},
    gather::{AtHand, Part},
    group::{Activity, Group, range},
    group_counts::GroupCounts,
    log::{Entry, Place},
    readers::TURN_WORK,
    stream::StreamRefusal,
};

impl Engine {
    /// Delivers what can be delivered and moves dead letters, in every partition where something
    /// has changed. Called after each turn; costs nothing where nothing has changed.
    pub fn deliver(
        &mut self,
        now: Timestamp,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let now = self.time(now);
        out.now
            .extend(self.streams.ended.drain(..).map(|id| Effect::StreamEnded { topic: id.topic }));
        // A dead letter that is moved makes its target ready, which is served in the next round.
        let mut ready_list = std::mem::take(&mut self.ready_list);
        let mut work_left = TURN_WORK;
        for id in ready_list.drain(..) {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            partition.is_in_ready_list = false;
            partition.awaits_batch = false;
            let mut expired: Vec<(GroupId, Vec<OffsetRange>)> = Vec::new();
            let (mut any_dying, mut any_undecided) = (false, false);
            let reach = self.reserved.reach(id, partition.config.durability);
            let config = partition.config.clone();
            let (is_paused, fields) = (config.is_paused, config.fields.as_deref());
            let scheduling =
                Scheduling { classes: &partition.classes, fields, throttles: &self.throttles };
            let mut is_unfinished = false;
            for group in &mut partition.groups {
                let activity = group.activity();
                any_undecided |= activity.undecided.is_some();
                any_dying |= !activity.dying.is_empty() && group.first_to_bury().is_some();
                let mut turn = Turn {
                    id,
                    log: &partition.log,
                    expiries: partition.expiries.runs(),
                    generation: self.generation,
                    reach,
                    now,
                    wheel: &mut self.wheel,
                    expired: Vec::new(),
                    counts: GroupCounts::default(),
                };
                if is_paused || group.is_paused() {
                    continue;
                }
                if !group.is_fair(fields) {
                    group.forget_fair();
                    partition.awaits_batch |= !turn.deliver(group, payloads, out);
                } else {
                    match turn.deliver_fairly(group, &scheduling, payloads, out) {
                        Passed::Whole => {}
                        Passed::AwaitsBatch => partition.awaits_batch = true,
                        Passed::Unfinished => is_unfinished = true,
                    }
                }
                self.group_counts.add((id.topic, group.id()), turn.counts);
                if !turn.expired.is_empty() {
                    expired.push((group.id(), turn.expired));
                }
            }
            if is_unfinished {
                mark_ready(&mut self.ready_list, partition);
            }
            for (group, ranges) in expired {
                self.expire(id, group, ranges, journal);
            }
            if any_dying {
                self.bury(id, now, journal, payloads, out);
            }
            if any_undecided {
                self.ask_about_failures(id, payloads, out);
            }
            let mut at_hand = AtHand::default();
            self.serve_readers(id, &mut work_left, &mut at_hand, payloads, out);
            self.serve_stream(id, now, &mut at_hand, journal, payloads, out);
            self.serve_walks(id, now, journal, payloads, out);
        }
        if self.ready_list.is_empty() {
            self.ready_list = ready_list;
        }
    }

    /// Whether some partition may have something to deliver.
    #[must_use]
    pub fn has_ready_partitions(&self) -> bool {
        !self.ready_list.is_empty()
    }

    /// Says whether the disk is full: messages that failed for good wait where they are while it is so.
    pub fn set_storage_full(&mut self, full: bool) {
        self.storage_full = full;
        if full {
            return;
        }
        for id in std::mem::take(&mut self.waits_for_room) {
            self.mark_ready(id);
        }
    }

    /// Whether a batch of the partition is kept at `place`: not if it was moved meanwhile, say.
    pub fn keeps(&mut self, partition: PartitionId, place: Place) -> bool {
        self.batch_at(partition, place).is_some()
    }

    fn batch_at(&mut self, id: PartitionId, place: Place) -> Option<Entry> {
        let partition = self.partitions.get_mut(&id)?;
        let reading = self.readers.of(id).into_iter().flat_map(|held| held.readers.values());
        partition.batch_at(place, reading.map(|reader| reader.at))
    }

    /// The batch at `place` cannot be read: no group waits for its messages any more. They are kept
    /// and counted, and the consumers of each group receive a gap for them. Messages that become ready again
    /// later (a retry, a new group, a restart) are found damaged by reading. False if no such batch is kept, for
    /// example because it was moved.
    pub fn damaged(&mut self, partition: PartitionId, place: Place, out: &mut Outbox) -> bool {
        let id = partition;
        let Some(entry) = self.batch_at(id, place) else { return false };
        let Some(partition) = self.partitions.get_mut(&id) else { return false };
        for group in &mut partition.groups {
            // A message that cannot be read cannot be asked about.
            group.end_questions(entry.first, entry.end());
            for part in group.damage(entry.first, entry.end()) {
                let (range, reason) = (range(part.start, part.end), GapReason::Damaged);
                let holders = group.activity().members.iter().map(|member| member.holder);
                out.now.extend(holders.map(|holder| Effect::gap(holder, id, range, reason)));
            }
        }
        mark_ready(&mut self.ready_list, partition);
        self.pass_over_damaged(id, &entry, out);
        self.walk_past_damaged(id, &entry);
        let (lies_there, next) = (entry.first..entry.end(), Offset(entry.end()));
        let begins_there =
            |at| matches!(at, ReadFrom::Offset(offset) if lies_there.contains(&offset.0));
        self.refuse_reads(id, &StreamRefusal::Damaged { next }, begins_there, out);
        true
    }

    fn bury(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        if self.storage_full {
            self.waits_for_room.insert(id);
            return;
        }
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let target = match partition.dead_letters {
            DeadLetters::To(topic) => PartitionId { topic, ..id },
            DeadLetters::NotYet => {
                if !std::mem::replace(&mut partition.dead_letter_topic_requested, true) {
                    out.now.push(Effect::DeadLetterTopicNeeded { source: id.topic });
                }
                return;
            }
            DeadLetters::Stay => return,
        };
        let dying = partition.groups.iter().filter(|group| group.first_to_bury().is_some());
        let groups: Vec<GroupId> = dying.map(Group::id).collect();
        let names = self.names.of(id.topic);
        let mut is_named = true;
        for group in groups {
            let Some(source) = names.as_ref().and_then(|names| names.of(group)) else {
                is_named = false;
                continue;
            };
            let mut hint = None;
            let place = ((id, group), source);
            let mut counts = GroupCounts::default();
            while let Some(record) = self.next_burial(place, target, &mut hint, now, payloads) {
                self.commit(&record, journal);
                counts.dead_lettered += 1;
            }
            self.group_counts.add((id.topic, group), counts);
        }
        if !is_named
            && let Some(partition) = self.partitions.get_mut(&id)
            && !std::mem::replace(&mut partition.dead_letter_topic_requested, true)
        {
            out.now.push(Effect::DeadLetterTopicNeeded { source: id.topic });
        }
    }
}

impl Turn<'_> {
    /// Leases to the members of `group` what they have room for. False if a batch has to be fetched
    /// first.
    fn deliver(
        &mut self,
        group: &mut Group,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) -> bool {
        while let Some((start, end, &tries)) = group.ready.first() {
            let Some(index) = group.next_member() else { return true };
            let entry = self.log.find(start).expect("ready messages are kept");
            // A run of many batches may have a time for each: no more is checked than is delivered.
            let end = end.min(entry.end());
            let end = match self.alive(start, end) {
                Ok(end) => end,
                Err(expired_end) => {
                    group.ready.remove(start, expired_end);
                    // Held by nobody and in no state until the record that follows is applied.
                    self.expired.push(range(start, expired_end));
                    continue;
                }
            };
            let Some(batch) = payloads.batch(self.id, entry.place) else { return false };
            let Activity { members, place_hint, .. } = group.activity();
            let many = members.len() > 1;
            let member = &members[index];
            let room = member.room_messages().min(if many { TURN_MESSAGES } else { u64::MAX });
            let room_bytes = member.credit.bytes.saturating_sub(member.held_bytes);
            let wanted = start..end.min(start.saturating_add(room));
            let part = Part::of((entry, &batch), *place_hint, wanted, room_bytes);
            let delivered = start..start + u64::from(part.count);
            let holder = member.holder;
            group.lease(index, delivered, (tries, part.bytes()), self.now, self.wheel);
            self.count(tries, part.count.into());
            group.activity_mut().place_hint = part.next;
            out.now.push(Effect::Deliver(Delivery {
                session: holder.session,
                subscription: holder.subscription,
                partition: self.id,
                first: Offset(start),
                count: part.count,
                attempt: tries.next_attempt(),
                generation: self.generation,
                appended_at: entry.appended_at,
                durability: self.reach.of(entry.end()),
                messages: part.messages,
            }));
        }
        true
    }
}

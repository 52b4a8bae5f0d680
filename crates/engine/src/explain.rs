//! The reason why a message or a fair key waits in a group, from the state that delivery itself uses, and the keys
//! that have the most waiting.

use std::cmp::Reverse;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sennit_model::{GroupId, Offset, PartitionId, Timestamp, limits::READY_COUNTED_MAX};

use crate::{
    classes::NO_CLASS,
    command::{ExplainSubject, Origin},
    effect::Effect,
    engine::{Engine, Outbox},
    explanation::{Explanation, KeyDeliveries, KeyDescription, WaitReason},
    group::Group,
    partition::Partition,
    refusal::Refusal,
};

impl Engine {
    /// Explains why a message or a key waits.
    pub(crate) fn explain(
        &self,
        origin: Origin,
        (id, group): (PartitionId, GroupId),
        subject: &ExplainSubject,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let Some(view) = self.partitions.peek(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let partition = view.partition();
        let Some(group) = partition.groups.iter().find(|held| held.id() == group) else {
            return out.refuse(origin, Refusal::UnknownGroup);
        };
        let explanation = match subject {
            ExplainSubject::Offset(offset) => partition.explanation(group, offset.0, now),
            ExplainSubject::FairKey(key) => match partition.oldest_ready(group, key) {
                Some(offset) => partition.explanation(group, offset, now),
                None => Explanation {
                    offset: None,
                    fair_key: key.clone(),
                    reason: WaitReason::NoMessage,
                },
            },
        };
        out.now.push(Effect::Explained { origin, explanation });
    }

    /// Lists the keys that have the most ready messages, `most` at most.
    pub(crate) fn list_keys(
        &self,
        origin: Origin,
        (id, group): (PartitionId, GroupId),
        most: usize,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let Some(view) = self.partitions.peek(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let partition = view.partition();
        let Some(group) = partition.groups.iter().find(|held| held.id() == group) else {
            return out.refuse(origin, Refusal::UnknownGroup);
        };
        out.now.push(Effect::Keys { origin, keys: partition.keys(group, most, now) });
    }
}

impl Partition {
    fn fair_key(&self, offset: u64) -> String {
        let mut key = String::new();
        if offset >= self.log.end() {
            return key;
        }
        self.classes.runs(offset..offset + 1, |_, class| {
            key = self
                .classes
                .get(class)
                .map_or_else(String::new, |view| view.class.fair_key.to_string());
        });
        key
    }

    fn explanation(&self, group: &Group, offset: u64, now: Timestamp) -> Explanation {
        let reason = self.reason(group, offset, now);
        Explanation { offset: Some(Offset(offset)), fair_key: self.fair_key(offset), reason }
    }

    fn reason(&self, group: &Group, offset: u64, now: Timestamp) -> WaitReason {
        if offset >= self.log.end() {
            return WaitReason::NoMessage;
        }
        if offset >= self.visible {
            return WaitReason::NotCommitted;
        }
        if group.settled.holds(offset, offset + 1) {
            return WaitReason::Settled;
        }
        if self.log.find(offset).is_none() {
            return WaitReason::NoMessage;
        }
        if let [(_, _, lease)] = group.leased_within(offset, offset + 1)[..] {
            let (session, until) = (lease.holder.session, lease.deadline);
            return WaitReason::Leased { session, attempt: lease.attempt(), until };
        }
        if let Some(until) = self.delays.due_of(offset) {
            return WaitReason::Delayed { until };
        }
        let activity = group.activity();
        if let Some((_, _, waiting)) = activity.waiting.run_of(offset) {
            return WaitReason::Retrying { until: waiting.due, failed: waiting.tries.failed };
        }
        if let Some((_, _, dying)) = activity.dying.run_of(offset) {
            return WaitReason::Dead { reason: dying.reason.to_string() };
        }
        if activity.damaged.run_of(offset).is_some() {
            return WaitReason::Damaged;
        }
        self.reason_of_ready(group, offset, now)
    }

    fn reason_of_ready(&self, group: &Group, offset: u64, now: Timestamp) -> WaitReason {
        if self.config.is_paused {
            return WaitReason::TopicPaused;
        }
        if group.is_paused() {
            return WaitReason::GroupPaused;
        }
        let activity = group.activity();
        if activity.members.is_empty() {
            return WaitReason::NoConsumer;
        }
        let mut class = NO_CLASS;
        self.classes.runs(offset..offset + 1, |_, of_message| class = of_message);
        if let Some(fair) = &activity.fair
            && let Some(reason) =
                fair.hold(class, now).or_else(|| fair.order_hold(class, offset, &activity.waiting))
        {
            return reason;
        }
        if activity.members.iter().all(|member| member.room_messages() == 0) {
            return WaitReason::NoCredit;
        }
        let before = group.ready.within(0, offset);
        match &activity.fair {
            None => {
                let messages = before.iter().map(|(start, end, _)| end - start).sum();
                WaitReason::Behind { messages, keys: 0 }
            }
            Some(fair) => {
                let key = self.fair_key(offset);
                let mut messages = 0;
                let mut left = READY_COUNTED_MAX;
                for (start, end, _) in before {
                    let end = end.min(start.saturating_add(left));
                    left -= end - start;
                    self.classes.runs(start..end, |run, class| {
                        let of = self.classes.get(class).map_or("", |view| &view.class.fair_key);
                        messages += if of == key { run.end - run.start } else { 0 };
                    });
                }
                WaitReason::Behind { messages, keys: fair.keys_in_turn() }
            }
        }
    }

    fn oldest_ready(&self, group: &Group, key: &str) -> Option<u64> {
        let (mut oldest, mut left) = (None, READY_COUNTED_MAX);
        for (start, end, _) in group.ready.iter() {
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            self.classes.runs(start..end, |run, class| {
                let of = self.classes.get(class).map_or("", |view| &view.class.fair_key);
                if oldest.is_none() && of == key {
                    oldest = Some(run.start);
                }
            });
            if oldest.is_some() || left == 0 {
                break;
            }
        }
        oldest
    }

    fn keys(&self, group: &Group, most: usize, now: Timestamp) -> Vec<KeyDescription> {
        let mut counts = HashMap::<u32, (u64, u64, u64), FixedState>::default();
        let key_of = |class| self.classes.get(class).map_or(0, |view| view.key);
        let mut left = READY_COUNTED_MAX;
        for (start, end, _) in group.ready.iter() {
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            self.classes.runs(start..end, |run, class| {
                let counted = counts.entry(key_of(class)).or_insert((0, 0, run.start));
                counted.0 += run.end - run.start;
            });
        }
        for (&start, lease) in &group.activity().leases {
            self.classes.runs(start..lease.end, |run, class| {
                let counted = counts.entry(key_of(class)).or_insert((0, 0, u64::MAX));
                counted.1 += run.end - run.start;
            });
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(key, (ready, in_flight, _))| {
            (Reverse((ready, in_flight)), key)
        });
        counts.truncate(most);
        let served = group.activity().fair.iter().flat_map(|fair| fair.busiest(usize::MAX));
        let served: Vec<KeyDeliveries> = served.collect();
        let served_of = |name: &str| served.iter().find(|served| served.fair_key == name).cloned();
        let describe = |(key, (ready, in_flight, oldest)): (u32, (u64, u64, u64))| KeyDescription {
            fair_key: self.classes.key_name(key).unwrap_or_default().to_owned(),
            ready,
            in_flight,
            oldest_appended_at: self.log.find(oldest).map(|entry| entry.appended_at),
            reason: (ready > 0).then(|| self.reason_of_ready(group, oldest, now)),
            session: group.holder_of(key).filter(|_| in_flight > 0),
            served: served_of(self.classes.key_name(key).unwrap_or_default()),
        };
        counts.into_iter().map(describe).collect()
    }
}

//! Stepping down: a leader forgets what it has in memory alone, so that its state is what its records say. It decides
//! nothing and appends nothing.
//!
//! In memory alone are: leases, and how often a delivery was returned; the members of groups, readers, waiting reads
//! of streams and walks, with their sessions; what could not be read; questions about failed attempts; passes of
//! compaction; messages that have become due, and the last use of a stream. The last two stay, as a follower finds them
//! by the clock; timers stay too. The messages of topics in memory stay until a record says that they are lost.

use sennit_model::{PartitionId, Timestamp};

use crate::{
    effect::Effect,
    engine::{Engine, Outbox, mark_ready},
    group::{Damaged, Group, range},
    lease::Holder,
    partition::Partition,
    refusal::Refusal,
    sessions::Sessions,
    timer::Timer,
    wheel::Wheel,
};

impl Engine {
    /// Stops leading at `now`. What consumers held is ready again, and the attempts do not count. Consumers and readers
    /// are told to ask again; requests that wait are refused, as their outcome is unknown. Costs a step for each
    /// partition, and for each lease.
    pub fn rest(&mut self, now: Timestamp, out: &mut Outbox) {
        let now = self.time(now);
        for id in self.active_partitions() {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            for holder in partition.step_down(now, &mut self.wheel) {
                out.now.push(Effect::interrupted(holder, id));
            }
            mark_ready(&mut self.ready_list, partition);
        }
        for (id, holder) in std::mem::take(&mut self.readers).all() {
            out.now.push(Effect::interrupted(holder, id));
        }
        let reads = self.streams.take_all_waiting();
        let walks = std::mem::take(&mut self.walks).by_partition.into_values().flatten();
        for origin in reads.into_iter().chain(walks.map(|walk| walk.origin)) {
            out.refuse(origin, Refusal::OutcomeUnknown);
        }
        self.sessions = Sessions::default();
        for id in self.latest.ids() {
            if self.latest.is_in_pass(id) {
                self.put_off_compaction(id, now);
            }
        }
    }

    /// The partitions whose groups have more than what is settled and what is ready. A folded one has not.
    pub(crate) fn active_partitions(&self) -> Vec<PartitionId> {
        let is_active = |id: &PartitionId| {
            let view = self.partitions.peek_if(id, |_| false);
            view.is_some_and(|view| view.partition().groups.iter().any(Group::is_active))
        };
        self.partitions.ids().filter(is_active).collect()
    }
}

impl Partition {
    /// Has its groups forget what is in memory alone; returns their members.
    fn step_down(&mut self, now: Timestamp, wheel: &mut Wheel<Timer>) -> Vec<Holder> {
        let (mut members, mut ended) = (Vec::new(), Vec::new());
        for group in &mut self.groups {
            members.extend(group.step_down(now, wheel, &mut ended));
        }
        for (start, end) in ended {
            self.watch_expired(start, end, wheel);
        }
        self.dead_letter_topic_requested = false;
        self.awaits_batch = false;
        members
    }
}

impl Group {
    /// Forgets what is in memory alone; returns the members. The leases that have ended are appended to `ended`.
    fn step_down(
        &mut self,
        now: Timestamp,
        wheel: &mut Wheel<Timer>,
        ended: &mut Vec<(u64, u64)>,
    ) -> Vec<Holder> {
        for (start, end, tries) in self.end_leases(0, u64::MAX, wheel) {
            self.make_ready(start, end, tries.with_return());
            ended.push((start, end));
        }
        let (partition, id) = (self.partition, self.id());
        let activity = self.activity_mut();
        let members = activity.members.drain(..).map(|member| member.holder).collect();
        activity.departed.clear();
        activity.stuck.clear();
        (activity.turn, activity.place_hint, activity.fair) = (0, None, None);
        if let Some(undecided) = activity.undecided.take() {
            // The policy's decision stands, and may be due.
            for (start, end) in undecided.ranges() {
                let range = range(start, end);
                wheel.set(now, Timer::Retry { partition, group: id, range });
            }
        }
        for (start, end, damaged) in std::mem::take(&mut activity.damaged).within(0, u64::MAX) {
            match damaged {
                Damaged::Ready(tries) => self.make_ready(start, end, tries),
                Damaged::Dying(dying) => self.activity_mut().dying.insert(start, end, dying),
            }
        }
        self.rest();
        members
    }
}

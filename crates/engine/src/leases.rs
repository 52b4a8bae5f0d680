//! The leases of a group: made, extended, ended; and the part of an ended lease that counts as worked on. It does
//! not decide what becomes of a message whose lease ends.

use std::ops::Range;

use sennit_model::{Offset, Timestamp};

use crate::{
    command::{Credit, SessionId},
    group::{Activity, Group},
    lease::{Holder, Lease},
    member::Member,
    timer::Timer,
    tries::Tries,
    wheel::Wheel,
};

impl Activity {
    /// The subscription, also if its connection was lost and it may still hold something.
    fn member(&mut self, holder: Holder) -> Option<&mut Member> {
        let mut known = self.members.iter_mut().chain(&mut self.departed);
        known.find(|member| member.holder == holder)
    }

    /// Adds a lease whose messages are in no state.
    fn insert_lease(&mut self, start: u64, lease: Lease) {
        self.leased_count += lease.end - start;
        self.leases.insert(start, lease);
    }
}

impl Group {
    /// Leases `range`, which is ready after `tries`, to the member at `index`.
    pub(crate) fn lease(
        &mut self,
        index: usize,
        range: Range<u64>,
        (tries, bytes): (Tries, u64),
        now: Timestamp,
        wheel: &mut Wheel<Timer>,
    ) {
        let Range { start, end } = range;
        self.ready.remove(start, end);
        let deadline = now.plus(self.terms().config.lease);
        let timer = wheel.set(deadline, self.lease_timer(end));
        let Activity { leases, leased_count, members, .. } = self.activity_mut();
        *leased_count += end - start;
        let member = &mut members[index];
        member.held_messages += end - start;
        member.held_bytes += bytes;
        let holder = member.holder;
        let lease = Lease { end, tries, deadline, holder, bytes, started_to: start, timer };
        let attempt = lease.attempt();
        leases.insert(start, lease);
        let by = (holder, member.held_messages);
        member.deliveries.push(range, attempt, by, leases);
    }

    fn lease_timer(&self, end: u64) -> Timer {
        Timer::Lease { partition: self.partition, group: self.id(), last: Offset(end - 1) }
    }

    /// The leased parts of `start..end`: `(start, end, lease)`.
    pub(crate) fn leased_within(&self, start: u64, end: u64) -> Vec<(u64, u64, &Lease)> {
        if start >= end {
            return Vec::new();
        }
        let leases = &self.activity().leases;
        let first = leases.range(..=start).next_back().map_or(start, |(&first, _)| first);
        leases
            .range(first..end)
            .filter(|(_, lease)| lease.end > start)
            .map(|(&from, lease)| (from.max(start), lease.end.min(end), lease))
            .collect()
    }

    /// The same without the leases themselves, so that these can be changed.
    pub(crate) fn leased_parts(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        self.leased_within(start, end).iter().map(|&(from, to, _)| from..to).collect()
    }

    /// Ends the leases of `start..end` and frees their holders' credit; returns the parts, with what
    /// came of the deliveries before. Does not say what becomes of the messages: the caller puts them
    /// into another state.
    pub(crate) fn end_leases(
        &mut self,
        start: u64,
        end: u64,
        wheel: &mut Wheel<Timer>,
    ) -> Vec<(u64, u64, Tries)> {
        let parts = self.leased_parts(start, end);
        let mut ended = Vec::with_capacity(parts.len());
        for Range { start: from, end: to } in parts {
            let lease = self.cut_lease(from, to, wheel);
            wheel.cancel(lease.timer);
            ended.push((from, to, lease.tries));
            if let Some(fair) = &mut self.activity_mut().fair {
                fair.release(from, to);
            }
            if let Some(member) = self.activity_mut().member(lease.holder) {
                member.held_messages -= to - from;
                member.held_bytes -= lease.bytes;
                member.deliveries.ended(from..to, lease.attempt());
            }
        }
        ended
    }

    /// Gives the leases of `start..end` this deadline. Whoever extends a lease works on its messages.
    pub(crate) fn extend_leases(
        &mut self,
        start: u64,
        end: u64,
        deadline: Timestamp,
        wheel: &mut Wheel<Timer>,
    ) {
        for Range { start: from, end: to } in self.leased_parts(start, end) {
            let mut lease = self.cut_lease(from, to, wheel);
            wheel.cancel(lease.timer);
            lease.deadline = deadline;
            lease.started_to = to;
            lease.timer = wheel.set(deadline, self.lease_timer(to));
            self.activity_mut().insert_lease(from, lease);
        }
    }

    /// The holders of `start..end` say that they work on these messages. A lease is split only where
    /// what its holder works on is not its front.
    pub(crate) fn start_leases(&mut self, start: u64, end: u64, wheel: &mut Wheel<Timer>) {
        for Range { start: from, end: to } in self.leased_parts(start, end) {
            let leases = &self.activity().leases;
            let Some((&first, lease)) = leases.range(..=from).next_back() else { continue };
            let (holder, started_to) = (lease.holder, lease.started_to.max(first));
            // The oldest counts as worked on anyhow, as long as it is leased.
            let is_behind_oldest = from == first + 1 && self.oldest_of(holder) == Some(first);
            if from <= started_to || is_behind_oldest {
                if let Some(lease) = self.activity_mut().leases.get_mut(&first) {
                    lease.started_to = started_to.max(to);
                }
                continue;
            }
            let mut lease = self.cut_lease(from, to, wheel);
            lease.started_to = to;
            self.activity_mut().insert_lease(from, lease);
        }
    }

    /// Takes `from..to`, which lies within one lease, out of it. What is left of the lease on
    /// either side stays leased; the part that is taken keeps a timer of its own. What the holder works
    /// on is never more than the part: the rest is somebody else's by the time the part's lease ends.
    fn cut_lease(&mut self, from: u64, to: u64, wheel: &mut Wheel<Timer>) -> Lease {
        let Activity { leases, leased_count, .. } = self.activity_mut();
        let (&start, _) = leases.range(..=from).next_back().expect("the part lies within a lease");
        let mut lease = leases.remove(&start).expect("found just now");
        assert!(to <= lease.end, "the part lies within one lease");
        *leased_count -= to - from;
        if to < lease.end {
            let bytes = lease.share(start, lease.end - to);
            let rest = Lease { bytes, ..lease.clone() };
            self.activity_mut().leases.insert(to, rest);
            lease.bytes -= bytes;
            lease.timer = wheel.set(lease.deadline, self.lease_timer(to));
            lease.end = to;
            lease.started_to = lease.started_to.min(to);
        }
        if start < from {
            let bytes = lease.share(start, from - start);
            let timer = wheel.set(lease.deadline, self.lease_timer(from));
            let started_to = lease.started_to.min(from);
            let front = Lease { end: from, bytes, timer, started_to, ..lease.clone() };
            self.activity_mut().leases.insert(start, front);
            lease.bytes -= bytes;
        }
        lease
    }

    /// Adds a subscription, or replaces the window of one that is there.
    pub(crate) fn join(&mut self, holder: Holder, credit: Credit) {
        let Activity { members, departed, .. } = self.activity_mut();
        if let Some(member) = members.iter_mut().find(|member| member.holder == holder) {
            member.credit = credit;
            return;
        }
        // A holder that left with its leases and came back still has them.
        let held = departed.iter().position(|member| member.holder == holder);
        let member = match held {
            Some(index) => Member { credit, ..departed.swap_remove(index) },
            None => Member::new(holder, credit),
        };
        members.push(member);
    }

    /// Removes the subscriptions that `of` picks, which have left on purpose: the caller gives back what
    /// they hold.
    pub(crate) fn leave(&mut self, of: impl Fn(Holder) -> bool) {
        let Activity { members, stuck, .. } = self.activity_mut();
        members.retain(|member| !of(member.holder));
        stuck.retain(|holder| !of(*holder));
        self.rest();
    }

    /// A session's connection is lost: its subscriptions get nothing more, and keep their leases until
    /// these end otherwise.
    pub(crate) fn cut_off(&mut self, session: SessionId) {
        let is_cut_off = |member: &mut Member| member.holder.session == session;
        let Activity { members, departed, .. } = self.activity_mut();
        departed.extend(members.extract_if(.., is_cut_off));
        self.rest();
    }

    /// A session that was cut off does not come back.
    pub(crate) fn forget_departed(&mut self, session: SessionId) {
        let Activity { departed, stuck, .. } = self.activity_mut();
        departed.retain(|member| member.holder.session != session);
        stuck.retain(|holder| holder.session != session);
    }

    /// The runs leased by subscriptions that `of` picks.
    pub(crate) fn leases_of(&self, of: impl Fn(Holder) -> bool) -> Vec<(u64, u64, Tries)> {
        let held = self.activity().leases.iter().filter(|(_, lease)| of(lease.holder));
        held.map(|(&start, lease)| (start, lease.end, lease.tries)).collect()
    }

    /// The first offset of the oldest delivery that a subscription holds, unless it is stuck with one
    /// whose lease has ended.
    fn oldest_of(&mut self, holder: Holder) -> Option<u64> {
        let Activity { leases, members, departed, stuck, .. } = self.activity_mut();
        if stuck.contains(&holder) {
            return None;
        }
        let mut known = members.iter_mut().chain(departed);
        let member = known.find(|member| member.holder == holder)?;
        member.deliveries.oldest(holder, leases)
    }

    /// How far the lease that begins at `start` counts as worked on, should it end without a word: what
    /// its consumer has said it works on, and the oldest message that the consumer holds, with which a
    /// consumer begins that says nothing. The rest was only prefetched.
    ///
    /// `by_deadline`: the consumer is there, and its oldest lease ends. It is taken to be at work on that
    /// message still, and so on no other, until it says something.
    pub(crate) fn worked_on_to(&mut self, start: u64, by_deadline: bool) -> u64 {
        let Some(lease) = self.activity().leases.get(&start) else { return start };
        let (holder, started_to) = (lease.holder, lease.started_to.max(start));
        if self.oldest_of(holder) != Some(start) {
            return started_to;
        }
        if by_deadline {
            self.activity_mut().stuck.push(holder);
        }
        started_to.max(start + 1)
    }

    /// A session has settled or extended a delivery: its subscriptions are not stuck.
    pub(crate) fn clear_stuck(&mut self, session: SessionId) {
        if !self.activity().stuck.is_empty() {
            self.activity_mut().stuck.retain(|holder| holder.session != session);
        }
    }
}

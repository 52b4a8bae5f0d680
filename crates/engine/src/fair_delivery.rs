//! Delivery where messages have fair keys: the index says whose turn it is, and neighbours of one round are delivered
//! together.

use std::ops::Range;

use bytes::Bytes;
use sennit_model::{MessageFields, MessageView, Messages, Offset, Order};

use crate::{
    classes::Classes,
    delivery_turn::{TURN_MESSAGES, Turn},
    effect::{Delivery, Effect},
    engine::{Outbox, Payloads},
    fair::{Candidate, Fair, Setting},
    group::{Group, range},
    log::Entry,
    throttles::Throttles,
    timer::{NEVER, Timer},
    tries::Tries,
};

/// A pass in which a batch has to be fetched first looks so far ahead for others.
const MISSES_MAX: usize = 8;
/// What fair delivery has to know of a partition and its broker.
pub(crate) struct Scheduling<'a> {
    pub(crate) classes: &'a Classes,
    pub(crate) fields: Option<&'a MessageFields>,
    pub(crate) throttles: &'a Throttles,
}

/// A pass over a group.
struct Pass<'a> {
    fair: Box<Fair>,
    setting: Setting<'a>,
    fields: Option<&'a MessageFields>,
    /// Messages that were put off since the first whose batch has to be fetched.
    misses: usize,
    /// The batch of the last message.
    last: Option<(Entry, Bytes)>,
}

/// How a pass over a group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// All was delivered that may be.
    Whole,
    /// A batch has to be fetched first.
    AwaitsBatch,
    /// There is more to do at once.
    Unfinished,
}

/// A message that is about to be delivered.
struct Pick {
    round: u64,
    offset: u64,
    tries: Tries,
    entry: Entry,
    batch: Bytes,
    bytes: Range<usize>,
}

impl Turn<'_> {
    /// Leases to the members of `group` what they have room for, by fair key.
    pub(crate) fn deliver_fairly(
        &mut self,
        group: &mut Group,
        scheduling: &Scheduling<'_>,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) -> Passed {
        if group.activity().members.is_empty() {
            return Passed::Whole;
        }
        let terms = group.terms().clone();
        let setting = Setting {
            partition: self.id,
            group: group.id(),
            terms: &terms,
            classes: scheduling.classes,
            throttles: scheduling.throttles,
            now: self.now,
        };
        let mut fair = group.take_fair(&setting);
        fair.account(scheduling.classes);
        fair.follow(&setting);
        fair.note_failed(&setting);
        let is_indexed = fair.absorb(&setting);
        let mut pass = Pass { fair, setting, fields: scheduling.fields, misses: 0, last: None };
        if terms.config.order == Order::None {
            while let Some(index) = group.next_member() {
                let picks = self.pick(group, index, &mut pass, payloads);
                if picks.is_empty() {
                    break;
                }
                self.give(group, index, picks, out);
            }
        } else {
            self.give_in_order(group, &mut pass, payloads, out);
        }
        let Pass { mut fair, misses, .. } = pass;
        fair.resume();
        if fair.wakes_at <= self.now {
            fair.wakes_at = NEVER;
        }
        let wake = fair.wake(self.now);
        if wake < fair.wakes_at {
            fair.wakes_at = wake;
            self.wheel.set(wake, Timer::Throttled { partition: self.id, group: group.id() });
        }
        self.counts.throttle_waits += std::mem::take(&mut fair.throttle_waits);
        group.put_fair(fair);
        match (is_indexed, misses) {
            (false, _) => Passed::Unfinished,
            (true, 0) => Passed::Whole,
            (true, _) => Passed::AwaitsBatch,
        }
    }

    /// The next messages for the member at `index`, which may be ready no more.
    fn pick(
        &mut self,
        group: &mut Group,
        index: usize,
        pass: &mut Pass<'_>,
        payloads: &mut impl Payloads,
    ) -> Vec<Pick> {
        let member = &group.activity().members[index];
        let room = member.room_messages().min(TURN_MESSAGES);
        let room_bytes = member.credit.bytes.saturating_sub(member.held_bytes);
        let (mut picks, mut bytes) = (Vec::new(), 0);
        while (picks.len() as u64) < room
            && (picks.is_empty() || bytes < room_bytes)
            && pass.misses < MISSES_MAX
        {
            let Some(candidate) = pass.fair.next(group.pending(), &pass.setting) else { break };
            let Some(pick) = self.take(group, candidate, pass, payloads) else { continue };
            bytes += pick.bytes.len() as u64;
            picks.push(pick);
        }
        picks
    }

    /// Leases to the members of `group` what they have room for, each key to one of them at a time.
    fn give_in_order(
        &mut self,
        group: &mut Group,
        pass: &mut Pass<'_>,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        pass.fair.begin_ordered(&group.activity().members);
        let mut of_member: Vec<Vec<Pick>> = Vec::new();
        of_member.resize_with(group.activity().members.len(), Vec::new);
        while pass.misses < MISSES_MAX && pass.fair.has_room() {
            let Some(candidate) = pass.fair.next(group.pending(), &pass.setting) else { break };
            let Some(pick) = self.take(group, candidate, pass, payloads) else { continue };
            let index = candidate.consumer;
            pass.fair.use_room(index, pick.bytes.len() as u64);
            of_member[index].push(pick);
            if of_member[index].len() as u64 >= TURN_MESSAGES {
                self.give(group, index, std::mem::take(&mut of_member[index]), out);
            }
        }
        for (index, picks) in of_member.into_iter().enumerate() {
            self.give(group, index, picks, out);
        }
    }

    /// Takes the message whose turn it is, unless it is expired or its batch has to be fetched first.
    fn take(
        &mut self,
        group: &mut Group,
        candidate: Candidate,
        pass: &mut Pass<'_>,
        payloads: &mut impl Payloads,
    ) -> Option<Pick> {
        let Pass { fair, setting, fields, misses, last } = pass;
        let offset = candidate.offset;
        if let Err(expired_end) = self.alive(offset, offset + 1) {
            group.ready.remove(offset, expired_end);
            self.expired.push(range(offset, expired_end));
            fair.skip(candidate);
            return None;
        }
        let at_hand =
            last.as_ref().filter(|(entry, _)| (entry.first..entry.end()).contains(&offset));
        let (entry, batch) = match at_hand {
            Some(held) if *misses == 0 => held.clone(),
            _ => {
                let entry = *self.log.find(offset).expect("ready messages are kept");
                let Some(batch) = payloads.batch(self.id, entry.place) else {
                    *misses += 1;
                    fair.put_off(candidate);
                    return None;
                };
                last.insert((entry, batch)).clone()
            }
        };
        // The keys behind one that waits for the disk wait with it, or its share would suffer. Their batches are
        // fetched meanwhile.
        if *misses > 0 {
            *misses += 1;
            fair.put_off(candidate);
            return None;
        }
        let place = usize::try_from(offset - entry.first).expect("within the batch");
        let bytes = fair.places.of((&entry, &batch), place);
        let cost = fields.map_or(1, |fields| {
            let message = Messages::of_checked(&batch[bytes.clone()]).next();
            message.map_or(1, |message: MessageView<'_>| fields.cost(&message))
        });
        let waited = self.now.since(entry.appended_at);
        fair.take(candidate, cost, waited, setting);
        // It is nobody's until it is leased.
        group.ready.remove(offset, offset + 1);
        Some(Pick { round: fair.round, offset, tries: candidate.tries, entry, batch, bytes })
    }

    /// Leases the picked messages to the member at `index`. Within a round the order of the offsets is as good as
    /// any other, and neighbours share a lease and a frame.
    fn give(&mut self, group: &mut Group, index: usize, mut picks: Vec<Pick>, out: &mut Outbox) {
        picks.sort_unstable_by_key(|pick| (pick.round, pick.offset));
        let mut picks = picks.into_iter().peekable();
        while let Some(first) = picks.next() {
            let Pick { offset, tries, entry, batch, mut bytes, .. } = first;
            let mut end = offset + 1;
            while let Some(next) = picks.peek()
                && next.offset == end
                && next.tries == tries
                && next.entry.first == entry.first
            {
                (end, bytes.end) = (end + 1, next.bytes.end);
                picks.next();
            }
            let messages = batch.slice(bytes);
            let holder = group.activity().members[index].holder;
            let leased = (tries, messages.len() as u64);
            group.lease(index, offset..end, leased, self.now, self.wheel);
            self.count(tries, end - offset);
            out.now.push(Effect::Deliver(Delivery {
                session: holder.session,
                subscription: holder.subscription,
                partition: self.id,
                first: Offset(offset),
                count: u32::try_from(end - offset).expect("not more than the batch holds"),
                attempt: tries.next_attempt(),
                generation: self.generation,
                appended_at: entry.appended_at,
                durability: self.reach.of(entry.end()),
                messages,
            }));
        }
    }
}

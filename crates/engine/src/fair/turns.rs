//! Whose turn it is: the rings of the flows that may be served, one for each priority, and the throttles that take
//! flows out of them for a time.

use std::{
    cmp::Reverse,
    collections::{VecDeque, binary_heap::PeekMut},
    time::Duration,
};

use sennit_model::{Order, Priority, Timestamp};

use super::{Fair, Flow, FlowName, FlowState, Pending, Setting, Throttled, order::Admission};
use crate::{
    classes::ClassNumber,
    lane::NOWHERE,
    runs::Runs,
    throttles::take_of_all,
    timer::NEVER,
    tries::{Tries, Waiting},
};

/// Of so many messages one is of the lowest priority that there is, so that it is served at all.
const LOWEST_SHARE: u64 = 16;

/// After this time it is looked again whether the rules of throttles are known.
const RULES_DELAY: Duration = Duration::from_millis(20);

/// The message whose turn it is. Its tokens are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) offset: u64,
    pub(crate) tries: Tries,
    flow: u32,
    lane: ClassNumber,
    /// The place of the consumer that gets it, where the group has an order.
    pub(crate) consumer: usize,
}

/// The flows of a priority that may be served.
#[derive(Debug)]
pub(super) struct Ring {
    /// In turn; a flow that has left may still be named.
    pub(super) flows: VecDeque<FlowName>,
    /// The flow with which the round began.
    pub(super) leader: Option<FlowName>,
    /// The share of weight 1 in this round: 1, and more while nothing is served because all owe more than that.
    share: u32,
    has_served: bool,
}

impl Default for Ring {
    fn default() -> Self {
        Self { flows: VecDeque::new(), leader: None, share: 1, has_served: true }
    }
}

impl Ring {
    fn begin_round(&mut self, leader: FlowName) {
        self.leader = Some(leader);
        self.share = if self.has_served { 1 } else { self.share.saturating_mul(2) };
        self.has_served = false;
    }
}

/// What a flow has to give.
enum Head {
    Message(ClassNumber, u64, Tries),
    /// The next message in order has to wait for its throttles.
    Throttled(Timestamp),
    Empty,
}

impl Fair {
    /// Puts a flow at the end of the ring, where it joins the round that is under way.
    pub(super) fn link(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        flow.state = FlowState::InRing;
        flow.in_visit = false;
        self.rings[usize::from(flow.band)].flows.push_back((number, flow.age));
    }

    /// The flow at the head of the ring leaves it.
    fn leave_ring(&mut self, band: usize, state: FlowState) {
        let ring = &mut self.rings[band];
        let head = ring.flows.pop_front().expect("there is a head");
        ring.leader = ring.leader.filter(|leader| *leader != head);
        let flow = &mut self.flows[head.0 as usize];
        flow.state = state;
        // What it was given and has not used is not kept; what it owes is.
        flow.deficit = flow.deficit.min(0);
    }

    /// The ring to serve: the one of the highest priority, or at times the lowest.
    fn choose_band(&mut self) -> Option<usize> {
        for (band, ring) in self.rings.iter_mut().enumerate() {
            while let Some(&(flow, age)) = ring.flows.front() {
                let held = &self.flows[flow as usize];
                if held.is(age, FlowState::InRing) && usize::from(held.band) == band {
                    break;
                }
                ring.flows.pop_front();
            }
        }
        let mut bands = (0..Priority::COUNT).filter(|&band| !self.rings[band].flows.is_empty());
        if self.served % LOWEST_SHARE == LOWEST_SHARE - 1 {
            bands.next()
        } else {
            bands.next_back()
        }
    }

    /// The message whose turn it is, unless there is none or none may go; then the time may come that
    /// [`Self::wake`] says.
    pub(crate) fn next(
        &mut self,
        pending: Pending<'_>,
        setting: &Setting<'_>,
    ) -> Option<Candidate> {
        let now = setting.now;
        self.release_throttled(now);
        if self.group_free_at > now {
            return None;
        }
        loop {
            let band = self.choose_band()?;
            if band != self.band {
                (self.band, self.round) = (band, self.round + 1);
            }
            let head = *self.rings[band].flows.front().expect("it was chosen because it has one");
            let flow = head.0;
            let key = &self.keys[self.flows[flow as usize].key as usize];
            if key.is_paused || key.in_flight >= key.concurrency {
                self.leave_ring(band, FlowState::Held);
                continue;
            }
            if key.free_at > now {
                self.throttled.push(Reverse((key.free_at, Throttled::Flow(flow, head.1))));
                self.leave_ring(band, FlowState::Throttled);
                continue;
            }
            let (lane, offset, tries) = match self.head(flow, pending.ready, setting) {
                Head::Message(lane, offset, tries) => (lane, offset, tries),
                Head::Throttled(free_at) => {
                    self.throttled.push(Reverse((free_at, Throttled::Flow(flow, head.1))));
                    self.leave_ring(band, FlowState::Throttled);
                    continue;
                }
                Head::Empty => {
                    self.leave_ring(band, FlowState::Empty);
                    continue;
                }
            };
            let consumer = match self.admit(flow, offset, pending.waiting, setting) {
                Admission::Gets(place) => place,
                Admission::Held => {
                    self.leave_ring(band, FlowState::Held);
                    continue;
                }
                Admission::Parked(holder) => {
                    self.park(head, holder);
                    self.leave_ring(band, FlowState::Held);
                    continue;
                }
            };
            if !self.flows[flow as usize].in_visit {
                self.begin_visit(head, lane);
            }
            if self.flows[flow as usize].deficit <= 0 {
                self.pass_turn(band);
                continue;
            }
            let key = &self.keys[self.flows[flow as usize].key as usize];
            let of_lane = &self.lanes[lane as usize].buckets;
            if !of_lane.is_empty() && setting.throttles.awaits_rules() {
                self.lanes[lane as usize].free_at = now.plus(RULES_DELAY);
                continue;
            }
            if let Err(free_at) = take_of_all(of_lane.iter(), now) {
                self.throttle_waits += 1;
                self.lanes[lane as usize].free_at = free_at;
                continue;
            }
            if let Some(bucket) = &key.bucket
                && let Err(free_at) = bucket.take(now)
            {
                of_lane.iter().for_each(|bucket| bucket.give_back());
                let number = self.flows[flow as usize].key;
                self.throttle_waits += 1;
                self.keys[number as usize].free_at = free_at;
                continue;
            }
            if let Some(bucket) = &self.group_bucket
                && let Err(free_at) = bucket.take(now)
            {
                self.throttle_waits += 1;
                self.group_free_at = free_at;
                of_lane.iter().chain(&key.bucket).for_each(|bucket| bucket.give_back());
                return None;
            }
            return Some(Candidate { offset, tries, flow, lane, consumer });
        }
    }

    /// Which consumer gets the message of a flow; nobody knows where the group has no order.
    fn admit(
        &mut self,
        flow: u32,
        offset: u64,
        waiting: &Runs<Waiting>,
        setting: &Setting<'_>,
    ) -> Admission {
        let Some(ordered) = &mut self.ordered else { return Admission::Gets(0) };
        let number = self.flows[flow as usize].key;
        let partition = setting.partition.index.0.to_string();
        let name = match ordered.order {
            Order::Partition => &partition,
            _ => setting.classes.key_name(number).unwrap_or_default(),
        };
        let in_flight = self.keys[number as usize].in_flight;
        ordered.admit((number, name), in_flight, offset, waiting)
    }

    fn begin_visit(&mut self, head: (u32, u32), lane: ClassNumber) {
        let flow = &mut self.flows[head.0 as usize];
        let by_rule = self.keys[flow.key as usize].weight;
        let weight = if by_rule > 0 { by_rule } else { self.lanes[lane as usize].weight };
        let ring = &mut self.rings[usize::from(flow.band)];
        if ring.leader.is_none_or(|leader| leader == head) {
            ring.begin_round(head);
            self.round += 1;
        }
        flow.in_visit = true;
        flow.deficit += i64::from(weight) * i64::from(ring.share);
    }

    /// The flow at the head goes to the end.
    fn pass_turn(&mut self, band: usize) {
        let ring = &mut self.rings[band];
        let head = ring.flows.pop_front().expect("there is a head");
        self.flows[head.0 as usize].in_visit = false;
        ring.flows.push_back(head);
    }

    /// Lets in what has waited for tokens that are there now.
    fn release_throttled(&mut self, now: Timestamp) {
        while let Some(&Reverse((due, held))) = self.throttled.peek()
            && due <= now
        {
            self.throttled.pop();
            let (number, age) = match held {
                Throttled::Lane(number, age) => (number, age),
                Throttled::Flow(number, age) => {
                    if self.flows[number as usize].is(age, FlowState::Throttled) {
                        self.link(number);
                    }
                    continue;
                }
            };
            let lane = &self.lanes[number as usize];
            if lane.age == age && lane.free_at == due {
                self.let_pass(number);
            }
        }
    }

    /// The oldest message of a flow that no throttle holds back.
    fn head(&mut self, flow: u32, ready: &Runs<Tries>, setting: &Setting<'_>) -> Head {
        let Flow { queue, age, .. } = &mut self.flows[flow as usize];
        while let Some(mut first) = queue.peek_mut() {
            let Reverse((at, number)) = *first;
            let lane = &mut self.lanes[number as usize];
            if lane.flow != (flow, *age) || lane.queued_at != at {
                PeekMut::pop(first);
                continue;
            }
            if lane.free_at > setting.now && self.ordered.is_some() {
                return Head::Throttled(lane.free_at);
            }
            if lane.free_at > setting.now {
                lane.queued_at = NOWHERE;
                let held = Throttled::Lane(number, lane.age);
                self.throttled.push(Reverse((lane.free_at, held)));
                PeekMut::pop(first);
                continue;
            }
            lane.free_at = Timestamp(0);
            let before = lane.len();
            let message = lane.first(number, ready, setting.classes, self.indexed_to);
            self.runs = self.runs + lane.len() - before;
            match message {
                Some((offset, tries)) if offset == at => {
                    return Head::Message(number, offset, tries);
                }
                Some((offset, _)) => {
                    lane.queued_at = offset;
                    *first = Reverse((offset, number));
                }
                None => {
                    lane.queued_at = NOWHERE;
                    PeekMut::pop(first);
                }
            }
        }
        Head::Empty
    }

    /// The candidate is given, and costs so much; if it was appended so long ago and is given for the first time, that
    /// counts as its wait.
    pub(crate) fn take(
        &mut self,
        candidate: Candidate,
        cost: u32,
        waited: Duration,
        setting: &Setting<'_>,
    ) {
        let Candidate { offset, flow, lane, consumer, .. } = candidate;
        self.runs -= self.lanes[lane as usize].take(offset);
        self.served += 1;
        let flow = &mut self.flows[flow as usize];
        let key = flow.key;
        let held = &mut self.keys[key as usize];
        held.in_flight += 1;
        if setting.terms.config.order != Order::Partition
            && let Some(name) = setting.classes.key_name(key)
        {
            let waited = candidate.tries.is_none().then_some(waited);
            self.busiest.count((key, name), &mut held.counter, waited);
        }
        flow.deficit -= i64::from(cost);
        let (band, is_over) = (usize::from(flow.band), flow.deficit <= 0);
        self.rings[band].has_served = true;
        if is_over {
            self.pass_turn(band);
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.gets(key, consumer);
        }
    }

    /// The candidate is not given: its message is not ready any more.
    pub(crate) fn skip(&mut self, candidate: Candidate) {
        self.give_back(candidate);
        self.runs -= self.lanes[candidate.lane as usize].take(candidate.offset);
    }

    /// The candidate is not given in this pass. Its flow has its turn first in the next one.
    pub(crate) fn put_off(&mut self, candidate: Candidate) {
        self.give_back(candidate);
        let band = usize::from(self.flows[candidate.flow as usize].band);
        let ring = &mut self.rings[band].flows;
        let head = ring.pop_front().expect("the candidate's flow is the head");
        self.put_off.push((band, head));
    }

    /// The flows that were put off in this pass have the next turns, in their order. If they went to the end of
    /// the ring, what was fetched for them would be gone from the cache before their turn comes.
    pub(crate) fn resume(&mut self) {
        while let Some((band, head)) = self.put_off.pop() {
            self.rings[band].flows.push_front(head);
        }
    }

    fn give_back(&self, candidate: Candidate) {
        let key = &self.keys[self.flows[candidate.flow as usize].key as usize];
        let buckets = self.lanes[candidate.lane as usize].buckets.iter().chain(&key.bucket);
        buckets.chain(&self.group_bucket).for_each(|bucket| bucket.give_back());
    }

    /// When a throttle lets something pass next; [`NEVER`] if none holds anything back.
    pub(crate) fn wake(&self, now: Timestamp) -> Timestamp {
        let throttled = self.throttled.peek().map_or(NEVER, |Reverse((due, ..))| *due);
        if self.group_free_at > now { throttled.min(self.group_free_at) } else { throttled }
    }
}

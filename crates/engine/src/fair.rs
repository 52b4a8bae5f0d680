//! The ready messages of a group by fair key, and whose turn it is: deficit round robin over the keys of each
//! priority. A key that cannot be served leaves the ring and costs nothing until it can. What is ready says
//! `Group::ready`; this is an index of it, which may name messages that are not ready any more.
//!
//! Source: Shreedhar & Varghese, "Efficient Fair Queuing using Deficit Round Robin", SIGCOMM 1995.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
    sync::Arc,
};

use sennit_model::{Class, Order, PartitionId, Priority, Timestamp};

mod busiest;
#[cfg(any(test, debug_assertions))]
mod check;
mod order;
mod turns;

pub(crate) use self::turns::Candidate;
use self::{busiest::Busiest, order::Ordered, turns::Ring};
use crate::{
    classes::{ClassNumber, Classes},
    explanation::WaitReason,
    lane::{Lane, NOWHERE},
    lease::Holder,
    message_places::MessagePlaces,
    runs::Runs,
    terms::Terms,
    throttles::{Bucket, Throttles},
    timer::NEVER,
    tries::{Tries, Waiting},
};

/// Most messages that are taken into the index in one pass: the others follow in the next.
const INDEXED_PER_PASS: u64 = 65_536;
/// Runs of offsets in an index beyond which a key that has [`LANE_RUNS_MIN`] already is indexed no further: 32 MiB. The
/// rest of its messages are found by their classes when these are through.
const INDEX_RUNS_MAX: usize = 2 << 20;
/// So many runs each key may have whatever the others have.
const LANE_RUNS_MIN: usize = 64;
/// The queue of a flow is cleared of what is there for nothing if it has so many more than two for each lane.
const QUEUED_MIN: usize = 64;
const NONE: u32 = u32::MAX;

/// A group and its settings, as an index must know them.
pub(crate) struct Setting<'a> {
    pub(crate) partition: PartitionId,
    pub(crate) group: sennit_model::GroupId,
    pub(crate) terms: &'a Arc<Terms>,
    pub(crate) classes: &'a Classes,
    pub(crate) throttles: &'a Throttles,
    pub(crate) now: Timestamp,
}

/// The messages of a group that no consumer has.
#[derive(Clone, Copy)]
pub(crate) struct Pending<'a> {
    pub(crate) ready: &'a Runs<Tries>,
    pub(crate) waiting: &'a Runs<Waiting>,
}

/// A fair key.
#[derive(Debug)]
struct Key {
    age: u32,
    first_flow: u32,
    in_flight: u64,
    concurrency: u64,
    /// 0 where each message says it.
    weight: u32,
    is_paused: bool,
    bucket: Option<Arc<Bucket>>,
    /// When that has a token, once it had none.
    free_at: Timestamp,
    /// The place of its counter, if it has one.
    counter: u32,
}

/// A flow and its age.
type FlowName = (u32, u32);

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowState {
    /// It has no message, or only some that throttles hold back.
    Empty,
    /// In the ring of its priority.
    InRing,
    /// It waits for its key's throttle.
    Throttled,
    /// Its key is paused or has as many messages under way as it may: it waits for a message that is settled.
    Held,
}

/// Held back by a throttle, with its number and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Throttled {
    /// By those of its messages.
    Lane(ClassNumber, u32),
    /// By that of its key.
    Flow(u32, u32),
}

/// A lane with its place in the queue of its flow, the oldest first.
type QueuedLane = Reverse<(u64, ClassNumber)>;

/// The messages of a key with one priority. They have a lane for each class.
#[derive(Debug)]
struct Flow {
    /// Rises when the place is given to another.
    age: u32,
    key: u32,
    next_of_key: u32,
    /// How many lanes it has.
    lanes: u32,
    /// The lanes with messages that no throttle holds back. One that is not at its [`Lane::queued_at`] is there for
    /// nothing.
    queue: BinaryHeap<QueuedLane>,
    band: u8,
    state: FlowState,
    /// Whether it has received its share of this round.
    in_visit: bool,
    /// What is left of its share; below 0 if its last message was dearer than that.
    deficit: i64,
}

impl Flow {
    fn is(&self, age: u32, state: FlowState) -> bool {
        self.age == age && self.state == state
    }
}

/// The index of a group.
#[derive(Debug)]
pub(crate) struct Fair {
    /// By the number of their class.
    lanes: Vec<Lane>,
    /// By their number among the partition's classes.
    keys: Vec<Key>,
    flows: Vec<Flow>,
    free_flows: Vec<u32>,
    /// By priority.
    rings: [Ring; Priority::COUNT],
    /// What throttles hold back, by the time when these have tokens.
    throttled: BinaryHeap<Reverse<(Timestamp, Throttled)>>,
    /// Messages that became ready and are not in the index yet.
    arrived: VecDeque<Range<u64>>,
    /// Messages whose leases ended, and which still count for their keys.
    released: Vec<Range<u64>>,
    /// Messages that are gone although they are leased: they do not count any more, and their leases are still to
    /// end.
    gone: Runs<()>,
    /// Everything below this was in the index.
    indexed_to: u64,
    runs: usize,
    /// How many messages were given.
    served: u64,
    /// The settings that keys have theirs from.
    terms: Option<Arc<Terms>>,
    throttle_changes: u64,
    group_bucket: Option<Arc<Bucket>>,
    /// When the group's throttle lets the next message pass.
    group_free_at: Timestamp,
    /// When the timer is due that wakes it.
    pub(crate) wakes_at: Timestamp,
    pub(crate) places: MessagePlaces,
    /// Rises with each round and change of priority: messages of one number may be given in the order of their
    /// offsets.
    pub(crate) round: u64,
    band: usize,
    /// Which consumers have the keys, where the group has an order.
    ordered: Option<Box<Ordered>>,
    /// Messages that failed and whose keys are not noted yet.
    failed: Vec<Range<u64>>,
    /// The flows that were put off in this pass, with their priorities.
    put_off: Vec<(usize, FlowName)>,
    busiest: Busiest,
    /// How often a throttle had no token since that was last taken.
    pub(crate) throttle_waits: u64,
}

impl Fair {
    /// An index of what is ready, with what is leased under way.
    pub(crate) fn new(
        pending: &Pending<'_>,
        leased: impl Iterator<Item = (Range<u64>, Holder)>,
        setting: &Setting<'_>,
    ) -> Self {
        let order = setting.terms.config.order;
        let mut fair = Self {
            lanes: Vec::new(),
            keys: Vec::new(),
            flows: Vec::new(),
            free_flows: Vec::new(),
            rings: Default::default(),
            throttled: BinaryHeap::new(),
            arrived: pending.ready.iter().map(|(start, end, _)| start..end).collect(),
            released: Vec::new(),
            gone: Runs::default(),
            indexed_to: 0,
            runs: 0,
            served: 0,
            terms: None,
            throttle_changes: 0,
            group_bucket: None,
            group_free_at: Timestamp(0),
            wakes_at: NEVER,
            places: MessagePlaces::default(),
            round: 0,
            band: 0,
            ordered: (order != Order::None).then(|| Box::new(Ordered::new(order))),
            failed: Vec::new(),
            put_off: Vec::new(),
            busiest: Busiest::default(),
            throttle_waits: 0,
        };
        fair.follow(setting);
        for (run, holder) in leased {
            setting.classes.runs(run, |part, class| {
                let number = fair.key_of(class, setting);
                let key = &mut fair.keys[number as usize];
                if let Some(ordered) = &mut fair.ordered {
                    ordered.has(number, holder, key.in_flight > 0);
                }
                key.in_flight += part.end - part.start;
            });
        }
        for (start, end, _) in pending.waiting.iter() {
            fair.fail(start, end);
        }
        fair
    }

    /// The key of a class, which all messages share where the partition has one consumer at a time.
    fn key_number(&self, class: ClassNumber, classes: &Classes) -> u32 {
        let is_shared = self.order() == Order::Partition;
        classes.get(class).filter(|_| !is_shared).map_or(0, |view| view.key)
    }

    /// These messages are ready.
    pub(crate) fn arrive(&mut self, start: u64, end: u64) {
        match self.arrived.back_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.arrived.push_back(start..end),
        }
    }

    /// The leases of these messages are over.
    pub(crate) fn release(&mut self, start: u64, end: u64) {
        for counted in self.gone.gaps(start, end) {
            match self.released.last_mut() {
                Some(last) if last.end == counted.start => last.end = counted.end,
                _ => self.released.push(counted),
            }
        }
        self.gone.remove(start, end);
    }

    /// These messages are leased and go.
    pub(crate) fn forget(&mut self, leased: impl Iterator<Item = Range<u64>>) {
        for Range { start, end } in leased {
            self.release(start, end);
            self.gone.insert(start, end, ());
        }
    }

    /// Frees the keys of the messages whose leases are over. To be called before their classes are forgotten.
    pub(crate) fn account(&mut self, classes: &Classes) {
        for range in std::mem::take(&mut self.released) {
            classes.runs(range, |part, class| {
                let key = self.key_number(class, classes);
                // A message that was leased has been counted under this key, which has had it since.
                let held = &mut self.keys[key as usize];
                held.in_flight -= part.end - part.start;
                if held.in_flight < held.concurrency {
                    self.relink_key(key, |state| state == FlowState::Held);
                }
            });
        }
    }

    /// Notes the keys that failed messages hold back. A key of which nothing else is known is made for that.
    pub(crate) fn note_failed(&mut self, setting: &Setting<'_>) {
        for range in std::mem::take(&mut self.failed) {
            setting.classes.runs(range, |part, class| {
                let key = self.key_of(class, setting);
                let ordered = self.ordered.iter_mut();
                ordered.for_each(|ordered| part.clone().for_each(|at| ordered.fail(key, at)));
            });
        }
    }

    /// Follows settings that have changed.
    pub(crate) fn follow(&mut self, setting: &Setting<'_>) {
        let Setting { terms, throttles, now, .. } = setting;
        let changes = throttles.changes();
        let has_changed = !self.terms.as_ref().is_some_and(|held| Arc::ptr_eq(held, terms));
        if has_changed {
            self.terms = Some((*terms).clone());
            let name = format!("\0{}/{}", setting.partition.topic.0, setting.group.0);
            self.group_bucket = terms.config.throttle.map(|rate| throttles.own(&name, rate, *now));
            for number in 0..self.keys.len() {
                self.resolve(number as u32, setting);
            }
        }
        if has_changed || changes != self.throttle_changes {
            self.throttle_changes = changes;
            self.group_free_at = Timestamp(0);
            self.throttled.clear();
            for lane in 0..self.lanes.len() as u32 {
                self.let_pass(lane);
            }
            for key in 0..self.keys.len() as u32 {
                self.keys[key as usize].free_at = Timestamp(0);
                self.relink_key(key, |state| state != FlowState::Empty);
            }
        }
    }

    /// Takes the settings of a key from the group's rules.
    fn resolve(&mut self, number: u32, setting: &Setting<'_>) {
        let Some(name) = setting.classes.key_name(number) else { return };
        let rule = setting.terms.config.key_rules.of(name);
        let key = &mut self.keys[number as usize];
        key.concurrency = rule.and_then(|rule| rule.concurrency).map_or(u64::MAX, u64::from);
        key.weight = rule.and_then(|rule| rule.weight).unwrap_or(0);
        key.is_paused = rule.is_some_and(|rule| rule.is_paused);
        key.bucket = rule.and_then(|rule| rule.throttle).map(|rate| {
            let (topic, group) = (setting.partition.topic.0, setting.group.0);
            setting.throttles.own(&format!("\0{topic}/{group}/{name}"), rate, setting.now)
        });
    }

    /// Takes what has arrived into the index; false if there is more than a pass takes.
    pub(crate) fn absorb(&mut self, setting: &Setting<'_>) -> bool {
        let mut left = INDEXED_PER_PASS;
        while let Some(range) = self.arrived.pop_front() {
            let end = range.end.min(range.start.saturating_add(left));
            left -= end - range.start;
            setting.classes.runs(range.start..end, |part, class| {
                self.add(part.start, part.end, class, setting);
            });
            self.indexed_to = self.indexed_to.max(end);
            if end < range.end {
                self.arrived.push_front(end..range.end);
                return false;
            }
        }
        true
    }

    fn add(&mut self, start: u64, end: u64, class: ClassNumber, setting: &Setting<'_>) {
        self.key_of(class, setting);
        let is_full = self.runs >= INDEX_RUNS_MAX;
        let lane = &mut self.lanes[class as usize];
        self.runs += lane.add(start..end, is_full.then_some(LANE_RUNS_MIN));
        self.queue(class);
    }

    /// No throttle holds back a lane any more. If its class is gone, it goes as well.
    fn let_pass(&mut self, number: ClassNumber) {
        self.lanes[number as usize].free_at = Timestamp(0);
        let is_of_flow = self.is_of_flow(&self.lanes[number as usize]);
        if is_of_flow { self.queue(number) } else { self.drop_lane(number) }
    }

    /// Puts a lane into the queue of its flow, unless it is there, has no message, or is held back.
    fn queue(&mut self, number: ClassNumber) {
        let lane = &mut self.lanes[number as usize];
        let begins = lane.begins();
        let is_ordered = self.ordered.is_some();
        if begins >= lane.queued_at || lane.free_at > Timestamp(0) && !is_ordered {
            if is_ordered
                && begins < NOWHERE
                && self.flows[lane.flow.0 as usize].state == FlowState::Held
            {
                self.link(self.lanes[number as usize].flow.0);
            }
            return;
        }
        lane.queued_at = begins;
        let flow = &mut self.flows[lane.flow.0 as usize];
        assert_eq!(flow.age, lane.flow.1, "the flow of a lane with messages is not given away");
        flow.queue.push(Reverse((begins, number)));
        let state = flow.state;
        if flow.queue.len() > QUEUED_MIN + 2 * flow.lanes as usize {
            let mut queued = std::mem::take(&mut flow.queue).into_vec();
            queued.retain(|Reverse((at, lane))| self.lanes[*lane as usize].queued_at == *at);
            queued.sort_unstable();
            queued.dedup();
            flow.queue = queued.into();
        }
        if state == FlowState::Empty || is_ordered && state == FlowState::Held {
            self.link(self.lanes[number as usize].flow.0);
        }
    }

    /// The number of a class's key, with its lane, flow and key made if there are none.
    fn key_of(&mut self, class: ClassNumber, setting: &Setting<'_>) -> u32 {
        let none = Class::default();
        let view = setting.classes.get(class);
        let (age, key, key_age) = view.map_or((0, 0, 0), |view| (view.age, view.key, view.key_age));
        let (key, key_age) = if self.order() == Order::Partition { (0, 0) } else { (key, key_age) };
        let number = class as usize;
        if self.lanes.get(number).is_some_and(|lane| lane.age == age && self.is_of_flow(lane)) {
            return key;
        }
        let class = view.map_or(&none, |view| view.class);
        self.make_key(key, key_age, setting);
        // Messages that overtake others have no order.
        let is_ordered = self.ordered.is_some();
        let priority = if is_ordered { Priority::DEFAULT } else { class.priority };
        let flow = self.flow_of(key, priority);
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, Lane::default);
        }
        self.drop_lane(number as u32);
        let buckets =
            class.throttle_keys.iter().map(|key| setting.throttles.of_key(key, setting.now));
        let held = &mut self.flows[flow as usize];
        held.lanes += 1;
        self.lanes[number] = Lane::new(age, (flow, held.age), class.weight, buckets.collect());
        key
    }

    /// Whether the lane has a flow, and that was not given to another since.
    fn is_of_flow(&self, lane: &Lane) -> bool {
        lane.flow.0 != NONE && self.flows[lane.flow.0 as usize].age == lane.flow.1
    }

    fn make_key(&mut self, number: u32, age: u32, setting: &Setting<'_>) {
        let index = number as usize;
        let new = |age| Key {
            age,
            first_flow: NONE,
            in_flight: 0,
            concurrency: u64::MAX,
            weight: 0,
            is_paused: false,
            bucket: None,
            free_at: Timestamp(0),
            counter: NONE,
        };
        if let Some(key) = self.keys.get(index)
            && key.age == age
        {
            return;
        }
        let is_new = self.keys.len() <= index;
        while self.keys.len() <= index {
            // Whoever comes first in between takes its settings then.
            self.keys.push(new(u32::MAX));
        }
        if !is_new {
            // The key of this number is gone, and so are its messages.
            self.busiest.forget_number(number, self.keys[index].counter);
            let mut flow = self.keys[index].first_flow;
            while flow != NONE {
                let next = self.flows[flow as usize].next_of_key;
                self.drop_flow(flow);
                flow = next;
            }
        }
        self.keys[index] = new(age);
        if let Some(ordered) = &mut self.ordered {
            ordered.forget_key(number);
        }
        self.resolve(number, setting);
    }

    fn flow_of(&mut self, key: u32, priority: Priority) -> u32 {
        let band = priority.number();
        let mut flow = self.keys[key as usize].first_flow;
        while flow != NONE {
            let held = &self.flows[flow as usize];
            if held.band == band {
                return flow;
            }
            flow = held.next_of_key;
        }
        let next_of_key = self.keys[key as usize].first_flow;
        let new = |age| Flow {
            age,
            key,
            next_of_key,
            lanes: 0,
            queue: BinaryHeap::new(),
            band,
            state: FlowState::Empty,
            in_visit: false,
            deficit: 0,
        };
        let flow = match self.free_flows.pop() {
            Some(flow) => {
                let age = self.flows[flow as usize].age;
                self.flows[flow as usize] = new(age);
                flow
            }
            None => {
                self.flows.push(new(0));
                u32::try_from(self.flows.len() - 1).expect("there are fewer than messages")
            }
        };
        self.keys[key as usize].first_flow = flow;
        flow
    }

    /// Empties a lane whose class is gone.
    fn drop_lane(&mut self, number: ClassNumber) {
        let lane = std::mem::take(&mut self.lanes[number as usize]);
        self.runs -= lane.len();
        if self.is_of_flow(&lane) {
            self.flows[lane.flow.0 as usize].lanes -= 1;
        }
    }

    /// Makes room for another flow. Its lanes go with it; one that a throttle holds back goes when that lets it pass.
    fn drop_flow(&mut self, flow: u32) {
        for Reverse((at, lane)) in std::mem::take(&mut self.flows[flow as usize].queue) {
            let held = &self.lanes[lane as usize];
            if held.flow == (flow, self.flows[flow as usize].age) && held.queued_at == at {
                self.drop_lane(lane);
            }
        }
        let held = &mut self.flows[flow as usize];
        let ring = &mut self.rings[usize::from(held.band)];
        ring.leader = ring.leader.filter(|leader| *leader != (flow, held.age));
        held.age = held.age.wrapping_add(1);
        self.free_flows.push(flow);
    }

    fn relink_key(&mut self, key: u32, which: impl Fn(FlowState) -> bool) {
        let mut number = self.keys[key as usize].first_flow;
        while number != NONE {
            let Flow { state, next_of_key, .. } = self.flows[number as usize];
            if state != FlowState::InRing && which(state) {
                self.link(number);
            }
            number = next_of_key;
        }
    }

    /// Why a class is held back, if it is.
    pub(crate) fn hold(&self, class: ClassNumber, now: Timestamp) -> Option<WaitReason> {
        let lane = self.lanes.get(class as usize).filter(|lane| self.is_of_flow(lane))?;
        let key = &self.keys[self.flows[lane.flow.0 as usize].key as usize];
        if key.is_paused {
            return Some(WaitReason::KeyPaused);
        }
        if key.in_flight >= key.concurrency {
            let (in_flight, limit) = (key.in_flight, key.concurrency);
            return Some(WaitReason::Concurrency { in_flight, limit });
        }
        if self.group_free_at > now {
            return Some(WaitReason::GroupThrottled { until: self.group_free_at });
        }
        let until = lane.free_at.max(key.free_at);
        (until > now).then_some(WaitReason::Throttled { until })
    }

    /// How many keys take turns, each for every priority that it has.
    pub(crate) fn keys_in_turn(&self) -> u64 {
        let in_ring = |flow: &&Flow| flow.state == FlowState::InRing;
        self.flows.iter().filter(in_ring).count() as u64
    }
}

//! Order: the consumer that has a key, and the failed messages that the later ones of their key wait for. While a
//! consumer has messages of a key, nobody else is given any. Which consumer a key goes to follows from the consumers
//! that take part, so that each has its share and few keys go to others when one comes or leaves.
//!
//! Source: Thaler & Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998 (rendezvous hashing).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    hash::{BuildHasher, Hasher},
};

use foldhash::quality::FixedState;
use sennit_model::{Offset, Order};

use super::{Fair, FlowName, FlowState, NONE};
use crate::{
    classes::ClassNumber, explanation::WaitReason, lease::Holder, member::Member, runs::Runs,
    tries::Waiting,
};

/// Which consumers have the keys of a group.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) order: Order,
    /// By the number of the key.
    keys: Vec<KeyOrder>,
    /// Those that take part, as the group has them.
    consumers: Vec<Room>,
    /// Their places, by holder.
    places: BTreeMap<Holder, usize>,
    /// Rises when others take part.
    version: u32,
    /// The consumer to whom a key goes that has no better.
    turn: usize,
    /// The flows of keys whose consumer has no room.
    parked: BTreeMap<Holder, VecDeque<FlowName>>,
    /// Whether failed messages went that others may have waited for.
    pub(super) has_freed: bool,
}

/// What an ordered group knows of a key.
#[derive(Clone, Debug, Default)]
struct KeyOrder {
    /// The consumer that has messages of it, or had them last; `None` if there are several.
    holder: Option<Holder>,
    /// The consumer to whom it goes, if so many times others took part.
    owner: Option<(u32, Holder)>,
    /// In whose list of parked flows it is.
    parked_for: Option<Holder>,
    /// Failed messages that may wait for another attempt.
    failed: BinaryHeap<Reverse<u64>>,
}

/// A consumer and how much it may be given in this pass.
#[derive(Debug)]
struct Room {
    holder: Holder,
    messages: u64,
    bytes: u64,
}

/// Whether a key may be served.
pub(super) enum Admission {
    /// This consumer, by its place, gets its next message.
    Gets(usize),
    /// It waits until something happens to its messages.
    Held,
    /// It waits until this consumer has room.
    Parked(Holder),
}

impl Ordered {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            keys: Vec::new(),
            consumers: Vec::new(),
            places: BTreeMap::new(),
            version: 0,
            turn: 0,
            parked: BTreeMap::new(),
            has_freed: false,
        }
    }

    fn key(&mut self, number: u32) -> &mut KeyOrder {
        let number = number as usize;
        if self.keys.len() <= number {
            self.keys.resize(number + 1, KeyOrder::default());
        }
        &mut self.keys[number]
    }

    /// A key of this number is new.
    pub(super) fn forget_key(&mut self, number: u32) {
        if let Some(key) = self.keys.get_mut(number as usize) {
            *key = KeyOrder::default();
        }
    }

    /// This consumer has a message of the key, beside others' if `is_shared`.
    pub(super) fn has(&mut self, key: u32, holder: Holder, is_shared: bool) {
        let key = self.key(key);
        let is_its_own = !is_shared || key.holder == Some(holder);
        key.holder = is_its_own.then_some(holder);
    }

    /// The consumer at this place gets a message of the key.
    pub(super) fn gets(&mut self, key: u32, place: usize) {
        let holder = self.consumers[place].holder;
        self.key(key).holder = Some(holder);
    }

    /// The message at `offset` failed, and the later ones of its key wait for it.
    pub(super) fn fail(&mut self, key: u32, offset: u64) {
        self.key(key).failed.push(Reverse(offset));
    }

    /// The failed message that holds its key back.
    fn first_failed(&mut self, key: u32, waiting: &Runs<Waiting>) -> Option<u64> {
        let failed = &mut self.key(key).failed;
        while let Some(&Reverse(offset)) = failed.peek() {
            if waiting.run_of(offset).is_some() {
                return Some(offset);
            }
            failed.pop();
        }
        None
    }

    /// Who gets the next message of a key of which so many are under way.
    pub(super) fn admit(
        &mut self,
        (number, name): (u32, &str),
        in_flight: u64,
        offset: u64,
        waiting: &Runs<Waiting>,
    ) -> Admission {
        if self.first_failed(number, waiting).is_some_and(|failed| failed < offset) {
            return Admission::Held;
        }
        let owner = self.owner(number, name);
        let room = |place: &usize| self.consumers[*place].messages > 0;
        let holder = self.keys[number as usize].holder;
        let place = holder.and_then(|holder| self.places.get(&holder).copied());
        if in_flight == 0 {
            let mut others = (0..self.consumers.len())
                .map(|step| (self.turn + step) % self.consumers.len())
                .filter(room);
            let to = Some(owner).filter(room).or(place.filter(room)).or_else(|| others.next());
            let owner = self.consumers[owner].holder;
            return to.map_or(Admission::Parked(owner), Admission::Gets);
        }
        match (holder, place) {
            (Some(holder), Some(place)) if place == owner || !room(&owner) => {
                if room(&place) {
                    Admission::Gets(place)
                } else {
                    Admission::Parked(holder)
                }
            }
            // It is handed over once nobody has messages of it.
            _ => Admission::Held,
        }
    }

    /// The place of the consumer to whom a key goes. Costs a step for each consumer when others take part.
    fn owner(&mut self, number: u32, name: &str) -> usize {
        let version = self.version;
        if let Some((of_version, holder)) = self.key(number).owner
            && of_version == version
        {
            return self.places[&holder];
        }
        let score = |holder: Holder| {
            let mut hasher = FixedState::default().build_hasher();
            hasher.write(name.as_bytes());
            hasher.write_u64(holder.session.0);
            hasher.write_u32(holder.subscription);
            hasher.finish()
        };
        let best = self.consumers.iter().map(|room| room.holder);
        let best = best.max_by_key(|holder| (score(*holder), *holder)).expect("somebody has room");
        self.key(number).owner = Some((version, best));
        self.places[&best]
    }

    fn park(&mut self, number: u32, flow: FlowName, holder: Holder) {
        let key = self.key(number);
        if key.parked_for != Some(holder) {
            key.parked_for = Some(holder);
            self.parked.entry(holder).or_default().push_back(flow);
        }
    }
}

impl Fair {
    /// The order of the group.
    pub(crate) fn order(&self) -> Order {
        self.ordered.as_ref().map_or(Order::None, |ordered| ordered.order)
    }

    /// Begins a pass with what these consumers have room for.
    pub(crate) fn begin_ordered(&mut self, members: &[Member]) {
        let Some(ordered) = &mut self.ordered else { return };
        let room = |member: &Member| Room {
            holder: member.holder,
            messages: member.room_messages(),
            bytes: member.credit.bytes.saturating_sub(member.held_bytes),
        };
        let are_others = members.len() != ordered.consumers.len()
            || members.iter().zip(&ordered.consumers).any(|(new, old)| new.holder != old.holder);
        ordered.consumers = members.iter().map(room).collect();
        let mut freed = Vec::new();
        if are_others {
            let places = ordered.consumers.iter().enumerate();
            ordered.places = places.map(|(place, room)| (room.holder, place)).collect();
            ordered.version = ordered.version.wrapping_add(1);
            // A key may go to another now.
            freed.extend(std::mem::take(&mut ordered.parked).into_values().flatten());
            ordered.has_freed = true;
        }
        for room in &ordered.consumers {
            let Some(parked) = ordered.parked.get_mut(&room.holder) else { continue };
            let count = parked.len().min(usize::try_from(room.messages).unwrap_or(usize::MAX));
            freed.extend(parked.drain(..count));
            if parked.is_empty() {
                ordered.parked.remove(&room.holder);
            }
        }
        for (flow, age) in freed {
            let held = &self.flows[flow as usize];
            if held.age != age {
                continue;
            }
            if let Some(ordered) = &mut self.ordered {
                ordered.key(held.key).parked_for = None;
            }
            if held.state == FlowState::Held {
                self.link(flow);
            }
        }
        if self.ordered.as_mut().is_some_and(|ordered| std::mem::take(&mut ordered.has_freed)) {
            for key in 0..self.keys.len() as u32 {
                self.relink_key(key, |state| state == FlowState::Held);
            }
        }
    }

    /// The consumer that has messages of a key, where the group has an order.
    pub(crate) fn holder_of(&self, key: u32) -> Option<Holder> {
        let ordered = self.ordered.as_ref()?;
        self.keys.get(key as usize).filter(|key| key.in_flight > 0)?;
        ordered.keys.get(key as usize)?.holder
    }

    /// Whether a consumer has room in this pass.
    pub(crate) fn has_room(&self) -> bool {
        let consumers = self.ordered.iter().flat_map(|ordered| &ordered.consumers);
        consumers.into_iter().any(|room| room.messages > 0)
    }

    /// The consumer at this place is given a message of so many bytes.
    pub(crate) fn use_room(&mut self, place: usize, bytes: u64) {
        let ordered = self.ordered.as_mut().expect("it has an order");
        let room = &mut ordered.consumers[place];
        room.bytes = room.bytes.saturating_sub(bytes);
        room.messages = if room.bytes == 0 { 0 } else { room.messages.saturating_sub(1) };
        ordered.turn = place + 1;
    }

    /// Parks the flow of a key until the consumer has room.
    pub(super) fn park(&mut self, flow: FlowName, holder: Holder) {
        let key = self.flows[flow.0 as usize].key;
        let ordered = self.ordered.as_mut().expect("it has an order");
        ordered.park(key, flow, holder);
    }

    /// These messages failed, and wait.
    pub(crate) fn fail(&mut self, start: u64, end: u64) {
        if self.ordered.is_some() {
            self.failed.push(start..end);
        }
    }

    /// Failed messages wait no longer, and are not ready either.
    pub(crate) fn free_failed(&mut self) {
        if let Some(ordered) = &mut self.ordered {
            ordered.has_freed = true;
        }
    }

    /// Which consumer or failed message holds back the messages of a class behind `offset`, if any does.
    pub(crate) fn order_hold(
        &self,
        class: ClassNumber,
        offset: u64,
        waiting: &Runs<Waiting>,
    ) -> Option<WaitReason> {
        let ordered = self.ordered.as_ref()?;
        let lane = self.lanes.get(class as usize).filter(|lane| lane.flow.0 != NONE)?;
        let number = self.flows[lane.flow.0 as usize].key as usize;
        let (key, of_order) = (self.keys.get(number)?, ordered.keys.get(number)?);
        let failed = of_order.failed.iter().filter(|failed| failed.0 < offset);
        let failed = failed.filter_map(|failed| Some((failed.0, waiting.run_of(failed.0)?.2.due)));
        if let Some((failed, until)) = failed.min() {
            return Some(WaitReason::BehindFailed { offset: Offset(failed), until });
        }
        let holder = of_order.holder.filter(|_| key.in_flight > 0)?;
        Some(WaitReason::HeldBy { session: holder.session })
    }
}

//! The timer wheel: every lease, delay, retry and time to live of a shard waits here. It knows no
//! clock; its time is an argument.
//!
//! Source: Varghese & Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987.

use sennit_model::Timestamp;

const LEVELS: usize = 4;
const SLOTS: usize = 256;
const SLOT_BITS: u32 = 8;
const NONE: u32 = u32::MAX;

/// Names a timer that was set, until it fires or is cancelled. A key that is used later than that
/// names nothing, even if its place was given to another timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    age: u32,
}

#[derive(Debug)]
struct Node<T> {
    due: u64,
    previous: u32,
    next: u32,
    slot: u32,
    age: u32,
    payload: Option<T>,
}

/// A hierarchical wheel of 4 levels of 256 slots with a tick of a millisecond. Setting and
/// cancelling are O(1); a timer is moved at most once per level before it fires. Timers beyond
/// 49 days wait in the outermost slots and go round again.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// All timers due at or before this have fired.
    now: u64,
    nodes: Vec<Node<T>>,
    free: u32,
    heads: Vec<u32>,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    count: usize,
    /// The number of timers that were set so far.
    set: u64,
    /// The place that is looked at next.
    looked_at: usize,
}

impl<T> Wheel<T> {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now: now.0,
            nodes: Vec::new(),
            free: NONE,
            heads: vec![NONE; LEVELS * SLOTS],
            occupied: [[0; SLOTS / 64]; LEVELS],
            count: 0,
            set: 0,
            looked_at: 0,
        }
    }

    /// The number of timers that are set.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Sets a timer. One whose time has passed fires at the next `advance`, whatever its time.
    pub(crate) fn set(&mut self, due: Timestamp, payload: T) -> TimerKey {
        let index = match self.free {
            NONE => {
                let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 timers");
                self.nodes.push(Node {
                    due: 0,
                    previous: NONE,
                    next: NONE,
                    slot: NONE,
                    age: 0,
                    payload: None,
                });
                index
            }
            index => {
                self.free = self.nodes[index as usize].next;
                index
            }
        };
        let node = &mut self.nodes[index as usize];
        node.due = due.0;
        node.payload = Some(payload);
        let age = node.age;
        self.count += 1;
        self.set += 1;
        self.link(index, self.now + 1);
        TimerKey { index, age }
    }

    /// Cancels a timer; `None` if it has fired or was cancelled before.
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let node = self.nodes.get(key.index as usize)?;
        if node.age != key.age || node.payload.is_none() {
            return None;
        }
        self.unlink(key.index);
        self.take(key.index)
    }

    /// Whether all timers due at `time` have fired, but for those that were set later.
    pub(crate) fn has_passed(&self, time: Timestamp) -> bool {
        time.0 <= self.now
    }

    /// The number of timers that were set so far.
    pub(crate) fn set_count(&self) -> u64 {
        self.set
    }

    /// Looks at one place after the other, again and again: the timer there and its time, if
    /// there is one.
    pub(crate) fn look(&mut self) -> Option<(TimerKey, Timestamp, &T)> {
        let index = self.looked_at;
        self.looked_at = if index + 1 < self.nodes.len() { index + 1 } else { 0 };
        let Node { due, age, payload, .. } = self.nodes.get(index)?;
        let index = u32::try_from(index).expect("fewer than 2^32 timers");
        Some((TimerKey { index, age: *age }, Timestamp(*due), payload.as_ref()?))
    }

    /// A time at or before which no timer is due after `now`; `None` without timers. Waking then
    /// and advancing brings the next timer closer, and at last fires it.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if self.count == 0 {
            return None;
        }
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let here = (self.now >> shift) as usize & (SLOTS - 1);
            if let Some(distance) = self.nearest(level, here) {
                let base = self.now >> shift;
                return Some(Timestamp(((base + distance as u64) << shift).max(self.now + 1)));
            }
        }
        Some(Timestamp(self.now + 1))
    }

    /// Moves time on to `now` and appends the payloads of all timers due by then to `fired`, in
    /// order of their times.
    pub(crate) fn advance(&mut self, now: Timestamp, fired: &mut Vec<T>) {
        while self.now < now.0 {
            let next = self.next_due().map_or(now.0, |due| due.0.min(now.0));
            self.now = next;
            for level in (1..LEVELS).rev() {
                let shift = SLOT_BITS * level as u32;
                if self.now & ((1 << shift) - 1) == 0 {
                    self.cascade(level, (self.now >> shift) as usize & (SLOTS - 1));
                }
            }
            self.fire((self.now as usize) & (SLOTS - 1), fired);
        }
    }

    fn fire(&mut self, slot: usize, fired: &mut Vec<T>) {
        while self.heads[slot] != NONE {
            let index = self.heads[slot];
            self.unlink(index);
            debug_assert!(self.nodes[index as usize].due <= self.now);
            fired.extend(self.take(index));
        }
    }

    /// Spreads the timers of a slot over the levels below it.
    fn cascade(&mut self, level: usize, slot: usize) {
        let head = level * SLOTS + slot;
        let mut index = std::mem::replace(&mut self.heads[head], NONE);
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        while index != NONE {
            let next = self.nodes[index as usize].next;
            self.link(index, self.now);
            index = next;
        }
    }

    /// The distance from slot `here` of the nearest occupied slot of a level, from 1 (level 0) to
    /// 256; a full turn means the slot itself.
    fn nearest(&self, level: usize, here: usize) -> Option<usize> {
        let words = &self.occupied[level];
        (1..=SLOTS / 64 + 1).find_map(|step| {
            // Looks at the rest of the word after `here`, then at whole words, then at the rest.
            let start = if step == 1 { here + 1 } else { (here / 64 + step - 1) * 64 };
            let word = words[start / 64 % words.len()];
            let word = if step == 1 && start % 64 == 0 { 0 } else { word >> (start % 64) };
            (word != 0).then(|| start + word.trailing_zeros() as usize - here)
        })
    }

    fn take(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.age = node.age.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        self.count -= 1;
        node.payload.take()
    }

    /// Puts a timer into the slot of its time, or of `earliest` if that is later. The level is
    /// that of the highest digit (base 256) in which that time differs from now.
    fn link(&mut self, index: u32, earliest: u64) {
        let due = self.nodes[index as usize].due.max(earliest);
        let span = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
        let distance = ((due ^ self.now) | (SLOTS as u64 - 1)).min(span);
        let mut level = (63 - distance.leading_zeros() as usize) / SLOT_BITS as usize;
        let mut at = due >> (SLOT_BITS * level as u32);
        if due - self.now >= 1 << (SLOT_BITS * LEVELS as u32) {
            // Beyond the wheel: the outermost slot that comes round last.
            level = LEVELS - 1;
            at = (self.now >> (SLOT_BITS * level as u32)) + SLOTS as u64 - 1;
        }
        let slot = level * SLOTS + (at as usize & (SLOTS - 1));
        let head = self.heads[slot];
        let node = &mut self.nodes[index as usize];
        node.slot = slot as u32;
        node.previous = NONE;
        node.next = head;
        if head != NONE {
            self.nodes[head as usize].previous = index;
        }
        self.heads[slot] = index;
        self.occupied[level][slot % SLOTS / 64] |= 1 << (slot % 64);
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, slot, .. } = self.nodes[index as usize];
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous == NONE {
            self.heads[slot as usize] = next;
            if next == NONE {
                let level = slot as usize / SLOTS;
                let at = slot as usize % SLOTS;
                self.occupied[level][at / 64] &= !(1 << (at % 64));
            }
        } else {
            self.nodes[previous as usize].next = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64),
        Cancel(prop::sample::Index),
        Advance(u64),
        ToNextDue,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let span = prop_oneof![0..4u64, 0..300u64, 0..70_000u64, 0..20_000_000u64, 0..1u64 << 34];
        prop_oneof![
            4 => span.clone().prop_map(Step::Set),
            2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
            2 => span.prop_map(Step::Advance),
            2 => Just(Step::ToNextDue),
        ]
    }

    proptest! {
        /// The naive twin is a list of timers with the time at which each must fire.
        #[test]
        fn timers_fire_once_at_their_time_and_never_after_a_cancel(
            start in 0..1u64 << 40,
            steps in proptest::collection::vec(any_step(), 1..80),
        ) {
            let mut wheel = Wheel::new(Timestamp(start));
            let mut twin: Vec<(u64, u32, TimerKey)> = Vec::new();
            let mut now = start;
            for (number, step) in (0u32..).zip(steps) {
                match step {
                    Step::Set(after) => {
                        let due = (now + after).saturating_sub(2);
                        let key = wheel.set(Timestamp(due), number);
                        twin.push((due.max(now + 1), number, key));
                    }
                    Step::Cancel(which) => {
                        if !twin.is_empty() {
                            let (_, number, key) = twin.swap_remove(which.index(twin.len()));
                            prop_assert_eq!(wheel.cancel(key), Some(number));
                            prop_assert_eq!(wheel.cancel(key), None);
                        }
                    }
                    Step::Advance(_) | Step::ToNextDue => {
                        let earliest = twin.iter().map(|t| t.0).min();
                        let next = wheel.next_due().map(|due| due.0);
                        prop_assert_eq!(next.is_none(), earliest.is_none());
                        prop_assert!(next <= earliest && next.is_none_or(|next| next > now));
                        now = if let Step::Advance(by) = step { now + by } else { next.unwrap_or(now) };
                        let mut fired = Vec::new();
                        wheel.advance(Timestamp(now), &mut fired);
                        let (mut due, rest): (Vec<_>, Vec<_>) = twin.into_iter().partition(|t| t.0 <= now);
                        twin = rest;
                        let time_of = |number: &u32| due.iter().find(|t| t.1 == *number).map(|t| t.0);
                        prop_assert!(fired.iter().map(time_of).is_sorted());
                        due.sort_unstable_by_key(|t| t.1);
                        fired.sort_unstable();
                        prop_assert_eq!(due.iter().map(|t| t.1).collect::<Vec<_>>(), fired);
                    }
                }
                prop_assert_eq!(wheel.count(), twin.len());
            }
        }
    }
}

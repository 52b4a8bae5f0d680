//! How many slots a lane always holds, so that a full disk stops publishing and nothing else, and when it
//! does. One rule for the broker and the simulator: it is told how many slots are spare and whether the
//! disk has room, and says what is to be made, given back and refused. It touches no disk, and does not know
//! the other lanes that share it.

/// Slots that a full lane needs for each segment that a checkpoint takes beside the one that it begins in: for
/// the checkpoint in force, and for the next.
const PER_CHECKPOINT_SEGMENT: u64 = 2;
/// Slots that it needs beside those: those in which the two begin, the two whose headers say so, and one for a
/// start or a pack.
const BESIDE_CHECKPOINTS: u64 = 5;
/// And one more for what was accepted before publishes were refused, and one whose lack has them refused.
const BEFORE_FULL: u64 = 2;

/// Slots that a full lane needs to write a checkpoint, beside those that it takes: one for the header that says
/// that one is there, and one for a start that comes before.
const LOW_SLOTS: u64 = 2;

/// Slots that are kept written and ready, so that the lane does not wait. Each time it had to, more are.
const READY_SLOTS: usize = 2;
const READY_SLOTS_MAX: usize = 8;
/// So many spare slots more than are wanted are left alone while the disk has room.
const SURPLUS_SLOTS: usize = 2;

/// How many slots a lane holds for a disk that is full, if its checkpoints take so many segments beside the one
/// that they begin in.
#[must_use]
pub fn held_slots(checkpoint_segments: u64) -> u64 {
    PER_CHECKPOINT_SEGMENT * checkpoint_segments + BESIDE_CHECKPOINTS + BEFORE_FULL
}

/// With how many spare slots a full lane writes a checkpoint at the latest: it can then be cut short at any
/// point, and the next start can write one.
#[must_use]
pub(crate) fn low_slots(checkpoint_segments: u64) -> u64 {
    checkpoint_segments + LOW_SLOTS
}

/// How many slots a start needs: its first segment's. What that says to be needed no more is there for the next.
pub const START_SLOTS: u64 = 1;

/// The spare slots of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// How many there are.
    pub count: usize,
    /// How many of them were written before, and take writes as quickly as can be.
    pub written: usize,
}

/// A slot that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// One that is written full, to be used soon.
    Ready,
    /// One whose room is taken, to be held.
    Held,
}

/// Where a lane stands with its slots.
#[derive(Debug)]
pub struct Room {
    held: usize,
    /// Segments that a checkpoint takes beside the one that it begins in.
    checkpoint: u64,
    ready: usize,
    ready_asked: usize,
    held_asked: usize,
    /// Whether the disk had room when a slot was to be made last.
    has_room: bool,
    is_full: bool,
}

impl Room {
    /// Of a lane whose checkpoints take so many segments. It begins full where the disk has no room for the
    /// slots that it lacks: then publishes are refused from the start.
    #[must_use]
    pub fn new(checkpoint_segments: u64, begins_full: bool) -> Self {
        Self {
            held: held_slots(checkpoint_segments) as usize,
            checkpoint: checkpoint_segments,
            ready: READY_SLOTS,
            ready_asked: 0,
            held_asked: 0,
            has_room: !begins_full,
            is_full: begins_full,
        }
    }

    /// Checkpoints take so many segments now.
    pub fn checkpoint_takes(&mut self, segments: u64) {
        self.held = held_slots(segments) as usize;
        self.checkpoint = segments;
    }

    /// How many slots are to be spare. A full lane wants one more than it holds: publishing goes on with it.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.ready.max(self.held) + usize::from(self.is_full)
    }

    /// How many of the slots that are always held are missing.
    #[must_use]
    pub fn missing(&self, spare: usize) -> usize {
        (self.held + usize::from(self.is_full)).saturating_sub(spare)
    }

    /// The next slot to be asked for; it counts as asked for until [`Room::made`].
    pub fn next_wish(&mut self, spare: Spare) -> Option<Wish> {
        if spare.count + self.ready_asked + self.held_asked >= self.wanted() {
            return None;
        }
        if spare.written + self.ready_asked < self.ready {
            self.ready_asked += 1;
            return Some(Wish::Ready);
        }
        self.held_asked += 1;
        Some(Wish::Held)
    }

    /// A slot that was asked for is there.
    pub fn made(&mut self, wish: Wish) {
        let asked = match wish {
            Wish::Ready => &mut self.ready_asked,
            Wish::Held => &mut self.held_asked,
        };
        *asked = asked.saturating_sub(1);
    }

    /// The lane had to wait for a slot: more are kept ready from now on.
    pub fn waited(&mut self) {
        self.ready = (2 * self.ready).min(READY_SLOTS_MAX);
    }

    /// How many of so many spare slots are to be kept, if some are to be given back. Where the disk `is_short`
    /// others need each of them that is not held.
    pub fn surplus(&mut self, spare: usize, is_short: bool) -> Option<usize> {
        if is_short {
            // Nor are others asked for.
            self.ready = READY_SLOTS;
        }
        let keep = if is_short { self.held + usize::from(self.is_full) } else { self.wanted() };
        let left_alone = if is_short { 0 } else { SURPLUS_SLOTS };
        if spare <= keep + left_alone {
            return None;
        }
        // What was wanted in a hurry once is not wanted for ever.
        self.ready = (self.ready - 1).max(READY_SLOTS);
        Some(keep)
    }

    /// Whether the disk had room when a slot was to be made.
    pub fn set_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// Whether the disk had room when a slot was to be made last.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// Whether publishes are to be refused, if that changes: while slots are missing that are always held, and
    /// until there is one more.
    pub fn full_changed(&mut self, spare: usize) -> Option<bool> {
        let is_full = match self.is_full {
            true => spare <= self.held,
            false => !self.has_room && spare < self.held,
        };
        (std::mem::replace(&mut self.is_full, is_full) != is_full).then_some(is_full)
    }

    /// Whether the lane has begun to use the slots that it holds, and nobody has found yet that the disk has no
    /// room for others. It is to look itself before it uses more: whoever makes slots may be behind.
    #[must_use]
    pub fn is_to_look(&self, spare: usize) -> bool {
        self.has_room && !self.is_full && self.missing(spare) > 0
    }

    /// Whether publishes are refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the lane may give up a spare slot, so that a pack has its room: the segment that is emptied
    /// into it comes free for that. The lane must be able to go on meanwhile, and a start that comes before; and
    /// one that is not full does not become so for it.
    #[must_use]
    pub fn may_lend(&self, spare: usize) -> bool {
        spare > if self.is_full { low_slots(self.checkpoint) as usize } else { self.held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(count: usize) -> Spare {
        Spare { count, written: count }
    }

    /// What a lane holds whose checkpoints fit the segment that they begin in.
    const HELD: usize = 7;

    #[test]
    fn what_is_held_is_asked_for_at_once_and_only_what_is_used_soon_is_written() {
        let mut room = Room::new(0, false);
        let none = Spare { count: 0, written: 0 };
        let wishes: Vec<_> = std::iter::from_fn(|| room.next_wish(none)).collect();
        assert_eq!(wishes[..2], [Wish::Ready; 2]);
        assert_eq!(wishes[2..], [Wish::Held; HELD - 2]);
        wishes.into_iter().for_each(|wish| room.made(wish));
        // The lane has begun a segment: the next is to be ready too.
        let spare = Spare { count: HELD - 1, written: 1 };
        assert_eq!((room.next_wish(spare), room.next_wish(spare)), (Some(Wish::Ready), None));
    }

    #[test]
    fn publishes_are_refused_while_a_held_slot_cannot_be_made_and_go_on_with_one_more() {
        let mut room = Room::new(0, false);
        assert_eq!(room.full_changed(HELD - 1), None, "it is being made");
        room.set_room(false);
        assert_eq!(room.full_changed(HELD), None, "all are there");
        assert_eq!(room.full_changed(HELD - 1), Some(true));
        assert_eq!((room.wanted(), room.missing(HELD - 1)), (HELD + 1, 2));
        room.set_room(true);
        assert_eq!(room.full_changed(HELD), None);
        assert_eq!(room.full_changed(HELD + 1), Some(false));
        assert_eq!(room.wanted(), HELD);
    }

    #[test]
    fn a_short_disk_gets_back_what_a_lane_does_not_hold() {
        let mut room = Room::new(0, false);
        assert_eq!(
            (room.surplus(HELD + 2, false), room.surplus(HELD + 3, false)),
            (None, Some(HELD))
        );
        assert_eq!((room.surplus(HELD, true), room.surplus(HELD + 1, true)), (None, Some(HELD)));
        assert_eq!(room.next_wish(spare(HELD)), None);
    }

    #[test]
    fn what_is_kept_ready_beyond_what_is_held_is_given_back_on_a_short_disk() {
        let mut room = Room::new(0, false);
        (0..4).for_each(|_| room.waited());
        assert!(room.wanted() > HELD);
        assert_eq!(room.surplus(HELD + 1, true), Some(HELD));
        assert_eq!(room.next_wish(spare(HELD)), None);
    }

    #[test]
    fn a_lane_looks_for_room_itself_once_it_uses_what_it_holds_until_it_is_full() {
        let mut room = Room::new(0, false);
        assert!(!room.is_to_look(HELD) && room.is_to_look(HELD - 1));
        room.set_room(false);
        assert!(!room.is_to_look(HELD - 1), "it is known");
        room.full_changed(HELD - 1);
        room.set_room(true);
        assert!(!room.is_to_look(HELD - 1), "publishes are refused");
    }

    #[test]
    fn a_slot_is_lent_while_a_full_lane_can_write_a_checkpoint_without_it() {
        let mut room = Room::new(0, false);
        assert!(!room.may_lend(HELD) && room.may_lend(HELD + 1));
        room.set_room(false);
        room.full_changed(HELD - 1);
        assert!(!room.may_lend(2) && room.may_lend(3));
    }
}

//! The slot budget: how many slots a lane always holds for a full disk, and when publishes are refused. The broker
//! and the simulator use this one rule: it gets the number of spare slots and whether the disk has room, and says
//! which slots to create or give back. It knows neither the disk nor the other lanes.

/// Slots that a full lane needs for each segment that a checkpoint takes beside the one in which it
/// begins: for the checkpoint in force, and for the next.
const PER_CHECKPOINT_SEGMENT: u64 = 2;
/// Slots that it needs in addition: those in which the two begin, the two whose headers announce
/// them, and one for a start or a pack.
const BESIDE_CHECKPOINTS: u64 = 5;
/// Slots for publishes that were accepted before the lane became full, and the slot whose lack
/// makes it full.
const BEFORE_FULL: u64 = 2;

/// Slots that a full lane needs to write a checkpoint, in addition to those that it takes: one for
/// the header that announces it, and one for a start that comes before.
const LOW_SLOTS: u64 = 2;

/// Slots that are written and ready, so that the lane does not wait. Each wait increases the
/// number.
const READY_SLOTS: usize = 2;
const READY_SLOTS_MAX: usize = 8;
/// Spare slots beyond the wanted ones that are kept while the disk has room.
const SURPLUS_SLOTS: usize = 2;

/// The number of slots that a lane holds for a full disk, if its checkpoints take this many
/// segments beside the one in which they begin.
#[must_use]
pub fn held_slots(checkpoint_segments: u64) -> u64 {
    PER_CHECKPOINT_SEGMENT * checkpoint_segments + BESIDE_CHECKPOINTS + BEFORE_FULL
}

/// The number of spare slots at which a full lane has to write a checkpoint. The checkpoint can
/// then be interrupted at any point, and the next start can write one.
#[must_use]
pub(crate) fn low_slots(checkpoint_segments: u64) -> u64 {
    checkpoint_segments + LOW_SLOTS
}

/// The number of slots that a start needs: for its first segment, whose header frees the slot for
/// the next.
pub const START_SLOTS: u64 = 1;

/// The spare slots of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareSlots {
    /// The number of slots.
    pub count: usize,
    /// The number of slots that were written before, and are fast to write.
    pub written: usize,
}

/// A request for a new slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotRequest {
    /// A written slot, for use soon.
    Ready,
    /// An allocated slot, to be held.
    Held,
}

/// The slots of a lane.
#[derive(Debug)]
pub struct SlotBudget {
    held: usize,
    /// Segments that a checkpoint takes beside the one in which it begins.
    checkpoint: u64,
    ready: usize,
    ready_requested: usize,
    held_requested: usize,
    /// Whether the disk had room for the last new slot.
    has_room: bool,
    is_full: bool,
}

impl SlotBudget {
    /// A budget for a lane whose checkpoints take this many segments. It begins full if the disk
    /// has no room for the missing slots: then publishes are refused from the start.
    #[must_use]
    pub fn new(checkpoint_segments: u64, begins_full: bool) -> Self {
        Self {
            held: held_slots(checkpoint_segments) as usize,
            checkpoint: checkpoint_segments,
            ready: READY_SLOTS,
            ready_requested: 0,
            held_requested: 0,
            has_room: !begins_full,
            is_full: begins_full,
        }
    }

    /// Sets the number of segments that checkpoints take.
    pub fn set_checkpoint_segments(&mut self, segments: u64) {
        self.held = held_slots(segments) as usize;
        self.checkpoint = segments;
    }

    /// The wanted number of spare slots. A full lane wants one more than it holds, and accepts
    /// publishes with it.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.ready.max(self.held) + usize::from(self.is_full)
    }

    /// The number of missing held slots.
    #[must_use]
    pub fn missing(&self, spare: usize) -> usize {
        (self.held + usize::from(self.is_full)).saturating_sub(spare)
    }

    /// The next slot to create. It counts as requested until [`SlotBudget::slot_made`].
    pub fn next_request(&mut self, spare: SpareSlots) -> Option<SlotRequest> {
        if spare.count + self.ready_requested + self.held_requested >= self.wanted() {
            return None;
        }
        if spare.written + self.ready_requested < self.ready {
            self.ready_requested += 1;
            return Some(SlotRequest::Ready);
        }
        self.held_requested += 1;
        Some(SlotRequest::Held)
    }

    /// Notes that a requested slot exists.
    pub fn slot_made(&mut self, request: SlotRequest) {
        let requested = match request {
            SlotRequest::Ready => &mut self.ready_requested,
            SlotRequest::Held => &mut self.held_requested,
        };
        *requested = requested.saturating_sub(1);
    }

    /// Notes that the lane had to wait for a slot; more are kept ready from now on.
    pub fn slot_waited(&mut self) {
        self.ready = (2 * self.ready).min(READY_SLOTS_MAX);
    }

    /// The number of spare slots to keep, if some have to be given back. If the disk `is_short`,
    /// all that are not held are given back.
    pub fn surplus_over(&mut self, spare: usize, is_short: bool) -> Option<usize> {
        if is_short {
            // No others are requested.
            self.ready = READY_SLOTS;
        }
        let keep = if is_short { self.held + usize::from(self.is_full) } else { self.wanted() };
        let left_alone = if is_short { 0 } else { SURPLUS_SLOTS };
        if spare <= keep + left_alone {
            return None;
        }
        // A slot that was wanted in a hurry once is not wanted for ever.
        self.ready = (self.ready - 1).max(READY_SLOTS);
        Some(keep)
    }

    /// Sets whether the disk had room for the last new slot.
    pub fn set_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// Returns whether the disk had room for the last new slot.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// Returns whether publishes are refused, if that changes: they are refused while held slots
    /// are missing, and until there is one slot more.
    pub fn update_full(&mut self, spare: usize) -> Option<bool> {
        let is_full = match self.is_full {
            true => spare <= self.held,
            false => !self.has_room && spare < self.held,
        };
        (std::mem::replace(&mut self.is_full, is_full) != is_full).then_some(is_full)
    }

    /// Returns whether the lane has begun to use its held slots, and nobody has found that the disk
    /// is full. The lane then checks the disk itself before it uses more, because the creation of
    /// slots may be behind.
    #[must_use]
    pub fn must_check_disk(&self, spare: usize) -> bool {
        self.has_room && !self.is_full && self.missing(spare) > 0
    }

    /// Returns whether publishes are refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns whether the lane may give up a spare slot, to make room for a pack that frees a
    /// segment. The lane and a start before that must be able to continue, and a lane that is not
    /// full must not become full.
    #[must_use]
    pub fn may_release_slot(&self, spare: usize) -> bool {
        spare > if self.is_full { low_slots(self.checkpoint) as usize } else { self.held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(count: usize) -> SpareSlots {
        SpareSlots { count, written: count }
    }

    /// Slots that a lane holds if its checkpoints fit the segment in which they begin.
    const HELD: usize = 7;

    #[test]
    fn what_is_held_is_requested_at_once_and_only_what_is_used_soon_is_written() {
        let mut room = SlotBudget::new(0, false);
        let none = SpareSlots { count: 0, written: 0 };
        let wishes: Vec<_> = std::iter::from_fn(|| room.next_request(none)).collect();
        assert_eq!(wishes[..2], [SlotRequest::Ready; 2]);
        assert_eq!(wishes[2..], [SlotRequest::Held; HELD - 2]);
        wishes.into_iter().for_each(|request| room.slot_made(request));
        // The lane has begun a segment: the next is to be ready too.
        let spare = SpareSlots { count: HELD - 1, written: 1 };
        assert_eq!(
            (room.next_request(spare), room.next_request(spare)),
            (Some(SlotRequest::Ready), None)
        );
    }

    #[test]
    fn publishes_are_refused_while_a_held_slot_cannot_be_made_and_go_on_with_one_more() {
        let mut room = SlotBudget::new(0, false);
        assert_eq!(room.update_full(HELD - 1), None, "it is being made");
        room.set_room(false);
        assert_eq!(room.update_full(HELD), None, "all are there");
        assert_eq!(room.update_full(HELD - 1), Some(true));
        assert_eq!((room.wanted(), room.missing(HELD - 1)), (HELD + 1, 2));
        room.set_room(true);
        assert_eq!(room.update_full(HELD), None);
        assert_eq!(room.update_full(HELD + 1), Some(false));
        assert_eq!(room.wanted(), HELD);
    }

    #[test]
    fn a_short_disk_gets_back_what_a_lane_does_not_hold() {
        let mut room = SlotBudget::new(0, false);
        assert_eq!(
            (room.surplus_over(HELD + 2, false), room.surplus_over(HELD + 3, false)),
            (None, Some(HELD))
        );
        assert_eq!(
            (room.surplus_over(HELD, true), room.surplus_over(HELD + 1, true)),
            (None, Some(HELD))
        );
        assert_eq!(room.next_request(spare(HELD)), None);
    }

    #[test]
    fn what_is_kept_ready_beyond_what_is_held_is_given_back_on_a_short_disk() {
        let mut room = SlotBudget::new(0, false);
        (0..4).for_each(|_| room.slot_waited());
        assert!(room.wanted() > HELD);
        assert_eq!(room.surplus_over(HELD + 1, true), Some(HELD));
        assert_eq!(room.next_request(spare(HELD)), None);
    }

    #[test]
    fn a_lane_looks_for_room_itself_once_it_uses_what_it_holds_until_it_is_full() {
        let mut room = SlotBudget::new(0, false);
        assert!(!room.must_check_disk(HELD) && room.must_check_disk(HELD - 1));
        room.set_room(false);
        assert!(!room.must_check_disk(HELD - 1), "it is known");
        room.update_full(HELD - 1);
        room.set_room(true);
        assert!(!room.must_check_disk(HELD - 1), "publishes are refused");
    }

    #[test]
    fn a_slot_is_lent_while_a_full_lane_can_write_a_checkpoint_without_it() {
        let mut room = SlotBudget::new(0, false);
        assert!(!room.may_release_slot(HELD) && room.may_release_slot(HELD + 1));
        room.set_room(false);
        room.update_full(HELD - 1);
        assert!(!room.may_release_slot(2) && room.may_release_slot(3));
    }
}

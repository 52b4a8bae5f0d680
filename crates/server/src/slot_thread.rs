//! Makes and removes slots while the lane goes on: filling a file takes too long to be waited for.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use sennit_journal::{Disk, Fault, Slot, SlotMaker, disk::RealDisk};

use crate::{
    error::ServeError,
    inbox,
    lane_thread::{LaneMessage, SlotWish},
    reserve::Reserve,
};

/// How long to wait before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// How long a slot is kept that the lane does not want: what empties segments frees several at once, soon
/// they are wanted again, and to fill one costs the disk what writing a segment costs.
const KEPT_FOR: Duration = Duration::from_secs(10);

struct SlotThread<D> {
    shard: u32,
    maker: SlotMaker<D>,
    /// What is left of the disk for slots without which a lane cannot go on.
    reserve: Arc<Reserve>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
    /// Slots that are to be made.
    owed: usize,
    /// The next is for a lane that cannot go on without it.
    is_urgent: bool,
    /// The disk was full when the last one was to be made.
    was_full: bool,
    /// Slots that are to be removed, each from a moment on.
    kept: VecDeque<(Instant, Slot)>,
}

/// The broker stops, or has failed.
struct Ended;

/// Starts the thread. It fulfils each wish, and ends when there can be no more.
pub(crate) fn start(
    shard: u32,
    (maker, reserve): (SlotMaker<RealDisk>, Arc<Reserve>),
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let mut slots = SlotThread::new(shard, (maker, reserve), wishes, lane, core);
    thread::Builder::new()
        .name(format!("slots-{shard}"))
        .spawn(move || while slots.step(KEPT_FOR).is_ok() {})
        .map_err(ServeError::system("start a slot thread"))
}

impl<D: Disk> SlotThread<D> {
    fn new(
        shard: u32,
        (maker, reserve): (SlotMaker<D>, Arc<Reserve>),
        wishes: mpsc::Receiver<SlotWish>,
        lane: mpsc::Sender<LaneMessage>,
        core: inbox::Sender,
    ) -> Self {
        Self {
            shard,
            maker,
            reserve,
            wishes,
            lane,
            core,
            owed: 0,
            is_urgent: false,
            was_full: false,
            kept: VecDeque::new(),
        }
    }

    fn step(&mut self, kept_for: Duration) -> Result<(), Ended> {
        match self.next() {
            Ok(SlotWish::Make) => self.owed += 1,
            // Where none is owed, those that were wished for are on their way.
            Ok(SlotWish::Hurry) => self.is_urgent = self.owed > 0,
            Ok(SlotWish::Remove(slot)) => self.kept.push_back((Instant::now() + kept_for, slot)),
            Err(RecvTimeoutError::Timeout) if self.owed == 0 => {
                self.remove();
                if self.was_full {
                    self.look_for_room();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Ended),
        }
        if self.owed > 0 { self.give() } else { Ok(()) }
    }

    /// Wishes that come while the disk is full wait their turn; the end of the broker does not.
    fn next(&self) -> Result<SlotWish, RecvTimeoutError> {
        let kept = self.kept.front().map(|(until, _)| *until - Instant::now());
        let pause = match (self.owed, self.was_full) {
            (0, false) => kept,
            (0, true) => Some(kept.unwrap_or(FULL_PAUSE).min(FULL_PAUSE)),
            (_, true) => Some(FULL_PAUSE),
            (_, false) => Some(Duration::ZERO),
        };
        match pause {
            Some(pause) => self.wishes.recv_timeout(pause),
            None => self.wishes.recv().map_err(RecvTimeoutError::from),
        }
    }

    /// Gives the lane a slot: one that was kept, or a new one.
    fn give(&mut self) -> Result<(), Ended> {
        if let Some((_, slot)) = self.kept.pop_front() {
            self.hand_over(slot);
            return Ok(());
        }
        let reserve_bytes = if self.is_urgent { 0 } else { self.reserve.bytes() };
        match self.maker.make_beside(reserve_bytes) {
            Ok(slot) => {
                let is_of_reserve = self.is_urgent;
                self.hand_over(slot);
                if !is_of_reserve {
                    // That the next finds none is said before it is wanted: by then more is published.
                    self.look_for_room();
                }
            }
            Err(Fault::StorageFull { .. }) => self.tell_whether_full(true),
            Err(fault) => {
                let _ = self.core.send(inbox::Message::Fenced(fault));
                return Err(Ended);
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, slot: Slot) {
        self.owed -= 1;
        self.is_urgent = false;
        let _ = self.lane.send(LaneMessage::Spare(slot));
    }

    /// Looks whether there is room for one more beside the reserve, though the lane may wish for none.
    fn look_for_room(&mut self) {
        if let Ok(has_room) = self.maker.has_room_beside(self.reserve.bytes()) {
            self.tell_whether_full(!has_room);
        }
    }

    fn tell_whether_full(&mut self, is_full: bool) {
        if std::mem::replace(&mut self.was_full, is_full) != is_full {
            let _ = self.lane.send(LaneMessage::Room(!is_full));
        }
    }

    /// Removes the slot that was kept for the longest, if that was long enough.
    fn remove(&mut self) {
        if let Some((_, slot)) = self.kept.pop_front_if(|(until, _)| *until <= Instant::now())
            && let Err(fault) = self.maker.remove(&slot)
        {
            tracing::warn!(shard = self.shard, %fault, "a slot could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use sennit_journal::{
        LaneConfig, ReplayFrom,
        disk::{FaultPlan, FaultyDisk, MemoryDisk},
    };

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3600);

    const SEGMENT_BYTES: u64 = 16 << 10;
    const DIRECTORY: &str = "data/lane-0";

    /// A thread over memory that leaves five slots of the disk, what it is told by, and what it tells.
    fn thread<D: Disk>(
        disk: &D,
    ) -> (SlotThread<D>, mpsc::Sender<SlotWish>, mpsc::Receiver<LaneMessage>) {
        let config = LaneConfig {
            directory: PathBuf::from(DIRECTORY),
            lane: 0,
            segment_bytes: SEGMENT_BYTES,
            incarnation: 7,
        };
        let recovered =
            sennit_journal::recover(disk, config, ReplayFrom::Newest, |_| Ok::<_, Fault>(()));
        let reserve = Arc::new(Reserve::new(1, SEGMENT_BYTES));
        let maker = (recovered.unwrap().slots, reserve);
        let (wishes, wished) = mpsc::channel();
        let (lane, said) = mpsc::channel();
        let (core, _inbox) = tokio::sync::mpsc::unbounded_channel();
        (SlotThread::new(0, maker, wished, lane, core), wishes, said)
    }

    #[test]
    fn what_is_left_of_a_full_disk_is_for_a_lane_that_cannot_go_on_and_is_not_called_room() {
        let room = |segments| FaultPlan {
            capacity_bytes: segments * SEGMENT_BYTES,
            ..FaultPlan::default()
        };
        let disk = FaultyDisk::new(1, room(6));
        let (mut slots, wishes, said) = thread(&disk);
        let mut told = |wish| {
            wishes.send(wish).unwrap();
            assert!(slots.step(LONG).is_ok());
            said.try_iter().collect::<Vec<_>>()
        };
        let full = told(SlotWish::Make);
        assert!(matches!(full[..], [LaneMessage::Spare(_), LaneMessage::Room(false)]), "{full:?}");
        assert!(told(SlotWish::Make).is_empty());
        assert!(told(SlotWish::Make).is_empty());
        assert!(told(SlotWish::Make).is_empty());
        let [LaneMessage::Spare(slot)] = &told(SlotWish::Hurry)[..] else { panic!("no slot") };
        // Nor is one that the lane gave back a while ago.
        let kept = SlotWish::Remove(slot.clone());
        assert!(matches!(told(kept)[..], [LaneMessage::Spare(_)]));
        disk.set_plan(room(9));
        let room = told(SlotWish::Make);
        assert!(matches!(room[..], [LaneMessage::Spare(_), LaneMessage::Room(true)]), "{room:?}");
    }

    #[test]
    fn that_there_is_room_again_is_said_though_the_lane_wishes_for_nothing() {
        let room = |segments| FaultPlan {
            capacity_bytes: segments * SEGMENT_BYTES,
            ..FaultPlan::default()
        };
        let disk = FaultyDisk::new(1, room(6));
        let (mut slots, wishes, said) = thread(&disk);
        wishes.send(SlotWish::Make).unwrap();
        assert!(slots.step(LONG).is_ok());
        let Ok(LaneMessage::Spare(slot)) = said.try_recv() else { panic!("no slot") };
        assert!(matches!(said.try_recv(), Ok(LaneMessage::Room(false))));
        wishes.send(SlotWish::Make).unwrap();
        assert!(slots.step(LONG).is_ok());
        // What the lane gives back fulfils its wish, and is given back for good then.
        for kept_for in [LONG, Duration::ZERO] {
            wishes.send(SlotWish::Remove(slot.clone())).unwrap();
            assert!(slots.step(kept_for).is_ok());
        }
        assert!(matches!(said.try_recv(), Ok(LaneMessage::Spare(_))));
        assert!(slots.step(LONG).is_ok());
        assert!(matches!(said.try_recv(), Ok(LaneMessage::Room(true))));
    }

    #[test]
    fn a_slot_that_is_not_wanted_is_given_before_one_is_made_and_removed_after_its_time() {
        let disk = MemoryDisk::default();
        let (mut slots, wishes, said) = thread(&disk);
        let given = || match said.try_recv() {
            Ok(LaneMessage::Spare(slot)) => slot,
            other => panic!("{other:?}"),
        };
        let there = || disk.list(Path::new(DIRECTORY)).unwrap().len();

        wishes.send(SlotWish::Make).unwrap();
        wishes.send(SlotWish::Make).unwrap();
        assert!(slots.step(LONG).is_ok() && slots.step(LONG).is_ok());
        let [one, other] = [given(), given()];
        assert_eq!(there(), 2);
        for wish in [SlotWish::Remove(one.clone()), SlotWish::Remove(other), SlotWish::Make] {
            wishes.send(wish).unwrap();
            assert!(slots.step(LONG).is_ok());
        }
        assert_eq!((given(), there()), (one.clone(), 2));
        let (_, other) = slots.kept.pop_front().unwrap();
        wishes.send(SlotWish::Remove(other)).unwrap();
        assert!(slots.step(Duration::ZERO).is_ok() && slots.step(LONG).is_ok());
        assert_eq!(there(), 1);
        drop(wishes);
        assert!(slots.step(LONG).is_err());
    }
}

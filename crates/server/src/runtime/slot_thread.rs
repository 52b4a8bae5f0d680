//! Creates and removes slots beside the lane: filling a file takes too long to wait for.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use sennit_journal::{Disk, Fault, Slot, SlotFill, SlotMaker, disk::RealDisk};
use sennit_shard::SlotRequest;

use super::{
    disk_reserve::DiskReserve,
    error::ServeError,
    inbox::{ShardMessage, ShardSender},
    lane_thread::{LaneMessage, SlotWish},
};

/// How long to wait before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// How long a slot is kept that the lane does not want: what empties segments frees several at once, soon
/// they are wanted again, and to fill one costs the disk what writing a segment costs.
const KEPT_FOR: Duration = Duration::from_secs(10);

struct SlotThread<D> {
    maker: SlotMaker<D>,
    /// What others need of the disk.
    reserve: Arc<DiskReserve>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: ShardSender,
    /// Slots that are to be made.
    owed: VecDeque<SlotRequest>,
    /// The disk was full when the last one was to be made.
    was_full: bool,
    /// Slots that are to be removed, each from a moment on.
    kept: VecDeque<(Instant, Slot)>,
}

/// The broker stops, or has failed.
struct Ended;

/// Starts the thread. It fulfils each wish, and ends when there can be no more.
pub(crate) fn start(
    maker: SlotMaker<RealDisk>,
    reserve: Arc<DiskReserve>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: ShardSender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let name = format!("slots-{}", core.shard.0);
    let mut slots = SlotThread::new(maker, reserve, wishes, lane, core);
    thread::Builder::new()
        .name(name)
        .spawn(move || while slots.step(KEPT_FOR).is_ok() {})
        .map_err(ServeError::system("start a slot thread"))
}

impl<D: Disk> SlotThread<D> {
    fn new(
        maker: SlotMaker<D>,
        reserve: Arc<DiskReserve>,
        wishes: mpsc::Receiver<SlotWish>,
        lane: mpsc::Sender<LaneMessage>,
        core: ShardSender,
    ) -> Self {
        Self {
            maker,
            reserve,
            wishes,
            lane,
            core,
            owed: VecDeque::new(),
            was_full: false,
            kept: VecDeque::new(),
        }
    }

    fn step(&mut self, kept_for: Duration) -> Result<(), Ended> {
        match self.next() {
            Ok(SlotWish::Make(wish)) => self.owed.push_back(wish),
            Ok(SlotWish::Remove(slot)) => self.kept.push_back((Instant::now() + kept_for, slot)),
            Err(RecvTimeoutError::Timeout) if self.owed.is_empty() => {
                self.remove();
                if self.was_full && self.is_full() == Some(false) {
                    self.was_full = false;
                    self.report_room();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Ended),
        }
        if self.owed.is_empty() { Ok(()) } else { self.give() }
    }

    /// Wishes that come while the disk is full wait their turn; the end of the broker does not.
    fn next(&self) -> Result<SlotWish, RecvTimeoutError> {
        let pause = match (self.owed.is_empty(), self.was_full || !self.kept.is_empty()) {
            (true, false) => None,
            // Another lane may need by then what is kept.
            (true, true) => Some(FULL_PAUSE),
            (false, _) if self.was_full => Some(FULL_PAUSE),
            (false, _) => Some(Duration::ZERO),
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
        let fill = match self.owed.front() {
            Some(SlotRequest::Held) => SlotFill::Allocated,
            _ => SlotFill::Written,
        };
        self.reserve.add_outside_slot(self.core.shard);
        let made = self.maker.make_with_free_bytes(self.left_beside(), fill);
        if made.is_err() {
            self.reserve.remove_outside_slot(self.core.shard);
        }
        match made {
            Ok(slot) => {
                self.hand_over(slot);
                // That the next finds none is said before it is wanted: by then more is published.
                self.was_full = self.is_full().unwrap_or(self.was_full);
                self.report_room();
            }
            Err(Fault::StorageFull { .. }) => {
                self.was_full = true;
                self.report_room();
            }
            Err(fault) => {
                let _ = self.core.send(ShardMessage::Fenced(fault));
                return Err(Ended);
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, slot: Slot) {
        if let Some(wish) = self.owed.pop_front() {
            let _ = self.lane.send(LaneMessage::Spare(slot, wish));
        }
    }

    fn left_beside(&self) -> u64 {
        self.reserve.left_beside(self.core.shard)
    }

    /// Whether the disk has no room for all that the lane lacks, or for one slot: it may wish for none.
    fn is_full(&self) -> Option<bool> {
        let lacking = self.reserve.missing_bytes_of(self.core.shard);
        let own = lacking.max(self.reserve.segment_bytes());
        let needed = own.saturating_add(self.left_beside());
        self.maker.available_bytes().ok().map(|available| available < needed)
    }

    /// Tells the lane, though it may have heard it before: it looks by itself too.
    fn report_room(&self) {
        let _ = self.lane.send(LaneMessage::Room(!self.was_full));
    }

    /// Removes the slot that was kept for the longest, if that was long enough.
    fn remove(&mut self) {
        let is_short = self.reserve.is_short();
        let may_go = |(until, _): &mut (Instant, Slot)| is_short || *until <= Instant::now();
        let Some((_, slot)) = self.kept.pop_front_if(may_go) else { return };
        if let Err(fault) = self.maker.remove(&slot) {
            tracing::warn!(shard = self.core.shard.0, %fault, "a slot could not be removed");
        }
        self.reserve.remove_outside_slot(self.core.shard);
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
    use crate::runtime::index::ShardIndex;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3600);

    const SEGMENT_BYTES: u64 = 16 << 10;
    const DIRECTORY: &str = "data/lane-0";

    /// A thread over memory, how the lanes share the disk, what the thread is told by, and what it tells.
    type World<D> =
        (SlotThread<D>, Arc<DiskReserve>, mpsc::Sender<SlotWish>, mpsc::Receiver<LaneMessage>);

    fn thread<D: Disk>(disk: &D) -> World<D> {
        let config = LaneConfig {
            directory: PathBuf::from(DIRECTORY),
            lane: 0,
            segment_bytes: SEGMENT_BYTES,
            incarnation: 7,
        };
        let recovered =
            sennit_journal::recover(disk, config, ReplayFrom::Newest, |_| Ok::<_, Fault>(()));
        let (core, _inbox) = tokio::sync::mpsc::unbounded_channel();
        let reserve = Arc::new(DiskReserve::new(2, vec![core.clone()], SEGMENT_BYTES));
        let core = ShardSender { shard: ShardIndex(0), core };
        let maker = recovered.unwrap().slots;
        let (wishes, wished) = mpsc::channel();
        let (lane, said) = mpsc::channel();
        (SlotThread::new(maker, reserve.clone(), wished, lane, core), reserve, wishes, said)
    }

    fn room(segments: u64) -> FaultPlan {
        FaultPlan { capacity_bytes: segments * SEGMENT_BYTES, ..FaultPlan::default() }
    }

    #[test]
    fn room_that_another_lane_lacks_is_left_and_that_there_is_none_is_said_before_it_is_wanted() {
        let disk = FaultyDisk::new(1, room(4));
        let (mut slots, reserve, wishes, said) = thread(&disk);
        let mut told = || {
            wishes.send(SlotWish::Make(SlotRequest::Held)).unwrap();
            assert!(slots.step(LONG).is_ok());
            said.try_iter().collect::<Vec<_>>()
        };
        let has_room = told();
        assert!(matches!(has_room[..], [LaneMessage::Spare(..), LaneMessage::Room(true)]));
        reserve.lacks(ShardIndex(1), 2, true);
        let full = told();
        assert!(matches!(full[..], [LaneMessage::Spare(..), LaneMessage::Room(false)]), "{full:?}");
        assert!(matches!(told()[..], [LaneMessage::Room(false)]));
        // A lane that is full itself has as good a right to it.
        reserve.lacks(ShardIndex(0), 1, true);
        let [LaneMessage::Spare(..), ..] = &told()[..] else { panic!("no slot") };
        let lent = reserve.lend(1);
        assert!(matches!(told()[..], [LaneMessage::Room(false)]), "a pack needs it");
        drop(lent);
        let [LaneMessage::Spare(..), ..] = &told()[..] else { panic!("no slot") };
    }

    #[test]
    fn that_there_is_room_again_is_said_though_the_lane_wishes_for_nothing() {
        let disk = FaultyDisk::new(1, room(1));
        let (mut slots, _, wishes, said) = thread(&disk);
        wishes.send(SlotWish::Make(SlotRequest::Ready)).unwrap();
        assert!(slots.step(LONG).is_ok());
        let Ok(LaneMessage::Spare(slot, SlotRequest::Ready)) = said.try_recv() else {
            panic!("no slot")
        };
        assert!(matches!(said.try_recv(), Ok(LaneMessage::Room(false))));
        wishes.send(SlotWish::Make(SlotRequest::Ready)).unwrap();
        assert!(slots.step(LONG).is_ok());
        // What the lane gives back fulfils its wish, and is given back for good then.
        for kept_for in [LONG, Duration::ZERO] {
            wishes.send(SlotWish::Remove(slot.clone())).unwrap();
            assert!(slots.step(kept_for).is_ok());
        }
        assert!(slots.step(LONG).is_ok());
        let told: Vec<_> = said.try_iter().collect();
        let [LaneMessage::Room(false), LaneMessage::Spare(..), LaneMessage::Room(true)] = &told[..]
        else {
            panic!("{told:?}")
        };
    }

    #[test]
    fn what_is_kept_for_later_goes_at_once_when_another_lane_is_full() {
        let disk = MemoryDisk::default();
        let (mut slots, reserve, wishes, said) = thread(&disk);
        wishes.send(SlotWish::Make(SlotRequest::Ready)).unwrap();
        assert!(slots.step(LONG).is_ok());
        let Ok(LaneMessage::Spare(slot, _)) = said.try_recv() else { panic!("no slot") };
        wishes.send(SlotWish::Remove(slot)).unwrap();
        assert!(slots.step(LONG).is_ok());
        let there = || disk.list(Path::new(DIRECTORY)).unwrap().len();
        assert!(slots.step(LONG).is_ok());
        assert_eq!(there(), 1);
        reserve.lacks(ShardIndex(1), 1, true);
        assert!(slots.step(LONG).is_ok());
        assert_eq!(there(), 0);
    }

    #[test]
    fn a_slot_that_is_not_wanted_is_given_before_one_is_made_and_removed_after_its_time() {
        let disk = MemoryDisk::default();
        let (mut slots, _, wishes, said) = thread(&disk);
        let given = || {
            let told = said.try_iter();
            let slot = |message| match message {
                LaneMessage::Spare(slot, _) => Some(slot),
                _ => None,
            };
            told.filter_map(slot).next().expect("a slot is given")
        };
        let there = || disk.list(Path::new(DIRECTORY)).unwrap().len();

        wishes.send(SlotWish::Make(SlotRequest::Ready)).unwrap();
        wishes.send(SlotWish::Make(SlotRequest::Ready)).unwrap();
        assert!(slots.step(LONG).is_ok() && slots.step(LONG).is_ok());
        let [one, other] = [given(), given()];
        assert_eq!(there(), 2);
        for wish in [
            SlotWish::Remove(one.clone()),
            SlotWish::Remove(other),
            SlotWish::Make(SlotRequest::Ready),
        ] {
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

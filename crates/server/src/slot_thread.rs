//! Makes and removes slots while the lane goes on: filling a file takes too long to be waited for.

use std::{
    collections::VecDeque,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use sennit_journal::{Disk, Fault, Slot, SlotMaker, disk::RealDisk};

use crate::{
    error::ServeError,
    inbox,
    lane_thread::{LaneMessage, SlotWish},
};

/// How long to wait before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// How long a slot is kept that the lane does not want: what empties segments frees several at once, soon
/// they are wanted again, and to fill one costs the disk what writing a segment costs.
const KEPT_FOR: Duration = Duration::from_secs(10);

struct SlotThread<D> {
    shard: u32,
    maker: SlotMaker<D>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
    /// Slots that are to be made.
    owed: usize,
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
    maker: SlotMaker<RealDisk>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let mut slots = SlotThread::new(shard, maker, wishes, lane, core);
    thread::Builder::new()
        .name(format!("slots-{shard}"))
        .spawn(move || while slots.step(KEPT_FOR).is_ok() {})
        .map_err(ServeError::system("start a slot thread"))
}

impl<D: Disk> SlotThread<D> {
    fn new(
        shard: u32,
        maker: SlotMaker<D>,
        wishes: mpsc::Receiver<SlotWish>,
        lane: mpsc::Sender<LaneMessage>,
        core: inbox::Sender,
    ) -> Self {
        let (owed, was_full, kept) = (0, false, VecDeque::new());
        Self { shard, maker, wishes, lane, core, owed, was_full, kept }
    }

    fn step(&mut self, kept_for: Duration) -> Result<(), Ended> {
        match self.next() {
            Ok(SlotWish::Make) => self.owed += 1,
            Ok(SlotWish::Remove(slot)) => self.kept.push_back((Instant::now() + kept_for, slot)),
            Err(RecvTimeoutError::Timeout) if self.owed == 0 => self.remove(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Ended),
        }
        if self.owed > 0 { self.give() } else { Ok(()) }
    }

    /// Wishes that come while the disk is full wait their turn; the end of the broker does not.
    fn next(&self) -> Result<SlotWish, RecvTimeoutError> {
        let pause = match (self.owed, self.was_full) {
            (0, _) => self.kept.front().map(|(until, _)| *until - Instant::now()),
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
        let kept = self.kept.pop_front().map(|(_, slot)| Ok(slot));
        match kept.unwrap_or_else(|| self.maker.make()) {
            Ok(slot) => {
                self.owed -= 1;
                let _ = self.lane.send(LaneMessage::Spare(slot));
                if std::mem::take(&mut self.was_full) {
                    let _ = self.lane.send(LaneMessage::Room(true));
                }
            }
            Err(Fault::StorageFull { .. }) => {
                if !std::mem::replace(&mut self.was_full, true) {
                    let _ = self.lane.send(LaneMessage::Room(false));
                }
            }
            Err(fault) => {
                let _ = self.core.send(inbox::Message::Fenced(fault));
                return Err(Ended);
            }
        }
        Ok(())
    }

    /// Removes the slot that was kept for the longest.
    fn remove(&mut self) {
        if let Some((_, slot)) = self.kept.pop_front()
            && let Err(fault) = self.maker.remove(&slot)
        {
            tracing::warn!(shard = self.shard, %fault, "a slot could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sennit_journal::{LaneConfig, ReplayFrom, disk::MemoryDisk};

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_slot_that_is_not_wanted_is_given_before_one_is_made_and_removed_after_its_time() {
        let disk = MemoryDisk::default();
        let directory = Path::new("data/lane-0");
        let config = LaneConfig {
            directory: directory.to_owned(),
            lane: 0,
            segment_bytes: 16 << 10,
            incarnation: 7,
        };
        let recovered =
            sennit_journal::recover(&disk, config, ReplayFrom::Newest, |_| Ok::<_, Fault>(()));
        let (wishes, wished) = mpsc::channel();
        let (lane, said) = mpsc::channel();
        let (core, _inbox) = tokio::sync::mpsc::unbounded_channel();
        let mut slots = SlotThread::new(0, recovered.unwrap().slots, wished, lane, core);
        let given = || match said.try_recv() {
            Ok(LaneMessage::Spare(slot)) => slot,
            other => panic!("{other:?}"),
        };
        let there = || disk.list(directory).unwrap().len();

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

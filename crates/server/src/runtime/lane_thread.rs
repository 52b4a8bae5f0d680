//! The lane's own thread: it writes and syncs one batch of frames while the next gathers. While it rests, the core
//! may write a small batch by itself. It holds no state but the lane.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Instant,
};

use sennit_journal::{Container, Cut, Disk, Fault, Frame, Lane, Slot, disk::RealDisk};
use sennit_shard::{SlotBudget, SlotRequest, SpareSlots};

use super::{
    disk_reserve::DiskReserve,
    error::ServeError,
    inbox::{Committed, ShardMessage, ShardSender},
    metrics::ShardMetrics,
};

/// What the lane wants done with slots.
#[derive(Debug)]
pub(crate) enum SlotWish {
    /// A slot.
    Make(SlotRequest),
    /// This slot is not needed any more: its room is to be given back.
    Remove(Slot),
}

/// What the lane is told.
#[derive(Debug)]
pub(crate) enum LaneMessage {
    /// Write these frames and sync them.
    Append(Vec<Frame>),
    /// These segments are needed no more.
    Release(Vec<u64>),
    /// A slot was made that was wished for so.
    Spare(Slot, SlotRequest),
    /// There is, or is no longer, room on the disk to make one.
    Room(bool),
    /// What a pin held back may be used again.
    Unpinned,
    /// Some lane is full: each slot that this one does not hold is needed.
    Short,
    /// Write no more.
    End,
}

/// The lane, and what keeps it in slots.
#[derive(Debug)]
struct Writer<D: Disk> {
    lane: Lane<D>,
    /// Asks for a slot, or for its end.
    slots: mpsc::Sender<SlotWish>,
    /// Which slots the lane holds, and when publishes are refused.
    room: SlotBudget,
    /// What the other lanes need.
    reserve: Arc<DiskReserve>,
    /// Keeps what was released since a cut as it is.
    pin: Option<Pin>,
    core: ShardSender,
    metrics: Arc<ShardMetrics>,
}

/// Since a cut was made, slots of released segments are not used again: somebody copies them. The
/// disk holds at most what the cut held, and what the lane would hold anyway. A lane that finds no
/// room breaks the pin.
#[derive(Debug)]
struct Pin {
    released: Vec<u64>,
    /// Set before anything that the cut needs changes. Who copies looks at it after each read.
    is_broken: Arc<AtomicBool>,
}

/// What others may do with the lane while it is served. It keeps nobody from ending.
#[derive(Debug)]
pub(crate) struct LaneDoor {
    writer: Weak<Mutex<Writer<RealDisk>>>,
    messages: mpsc::Sender<LaneMessage>,
}

/// Why there is no cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCut {
    /// The lane has ended.
    Ended,
    /// The disk is full: the lane cannot spare what would be pinned.
    StorageFull,
}

impl LaneDoor {
    /// What the lane holds now. Until [`LaneDoor::unpin`] is called, or `is_broken` is set, all of
    /// it stays as it is.
    pub(crate) fn pin(&self, is_broken: &Arc<AtomicBool>) -> Result<Cut, NoCut> {
        let writer = self.writer.upgrade().ok_or(NoCut::Ended)?;
        let mut writer = locked(&writer);
        if !writer.room.has_room() {
            return Err(NoCut::StorageFull);
        }
        writer.pin = Some(Pin { released: Vec::new(), is_broken: is_broken.clone() });
        Ok(writer.lane.cut())
    }

    /// What was released since the pin is spare now.
    pub(crate) fn unpin(&self) {
        if let Some(writer) = self.writer.upgrade() {
            locked(&writer).unpin();
            let _ = self.messages.send(LaneMessage::Unpinned);
        }
    }

    /// What the lane holds now, and may have used again by the next moment.
    pub(crate) fn look(&self) -> Option<Cut> {
        self.writer.upgrade().map(|writer| locked(&writer).lane.cut())
    }

    /// A spare slot that the lane gives up, so that a pack has its room; none if it needs all that it has.
    pub(crate) fn lend_slot(&self) -> Option<Slot> {
        self.writer.upgrade().and_then(|writer| locked(&writer).lend_slot())
    }

    /// Whether the lane holds this segment, or anybody may refer to this pack.
    pub(crate) fn holds(&self, home: Container) -> bool {
        match home {
            Container::Segment(segment) => {
                self.writer.upgrade().is_some_and(|writer| locked(&writer).lane.holds(segment))
            }
            Container::Pack(_) => true,
        }
    }
}

fn locked(writer: &Mutex<Writer<RealDisk>>) -> MutexGuard<'_, Writer<RealDisk>> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The core's hold on the lane: messages for its thread, and the lane itself while that rests.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    messages: mpsc::Sender<LaneMessage>,
    writer: Arc<Mutex<Writer<RealDisk>>>,
}

impl LaneHandle {
    /// Tells the thread; false if it has ended.
    pub(crate) fn send(&self, message: LaneMessage) -> bool {
        self.messages.send(message).is_ok()
    }

    /// A way to the lane for those who copy it or read it while it is served.
    pub(crate) fn door(&self) -> LaneDoor {
        LaneDoor { writer: Arc::downgrade(&self.writer), messages: self.messages.clone() }
    }

    /// Writes and syncs `frames` here and now; `None`, with nothing done, if the thread has the
    /// lane or a slot is missing.
    pub(crate) fn append_here(&self, frames: &[Frame]) -> Option<Result<Committed, Fault>> {
        let mut writer = self.writer.try_lock().ok()?;
        match writer.append(frames) {
            Err(Fault::NoSpareSlot { .. }) => None,
            appended => Some(appended),
        }
    }
}

struct LaneThread {
    writer: Arc<Mutex<Writer<RealDisk>>>,
    messages: mpsc::Receiver<LaneMessage>,
    core: ShardSender,
}

/// Starts the thread. It ends when it is told to, or the lane has failed.
pub(crate) fn start(
    lane: Lane<RealDisk>,
    room: SlotBudget,
    reserve: Arc<DiskReserve>,
    channel: (mpsc::Sender<LaneMessage>, mpsc::Receiver<LaneMessage>),
    core: ShardSender,
    slots: mpsc::Sender<SlotWish>,
    metrics: Arc<ShardMetrics>,
) -> Result<(LaneHandle, thread::JoinHandle<()>), ServeError> {
    let name = format!("lane-{}", core.shard.0);
    let mut writer = Writer { lane, slots, room, reserve, pin: None, core: core.clone(), metrics };
    writer.ask_for_slots();
    let writer = Arc::new(Mutex::new(writer));
    let (sender, messages) = channel;
    let handle = LaneHandle { messages: sender, writer: writer.clone() };
    let lane = LaneThread { writer, messages, core };
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || lane.run())
        .map_err(ServeError::system("start a lane's thread"))?;
    Ok((handle, thread))
}

impl LaneThread {
    /// Runs `act` with the lane. The core holds it for no longer than a small batch takes.
    fn with<T>(&self, act: impl FnOnce(&mut Writer<RealDisk>) -> T) -> T {
        act(&mut locked(&self.writer))
    }

    fn run(&self) {
        let mut held_up = VecDeque::new();
        while let Some(message) = held_up.pop_front().or_else(|| self.messages.recv().ok()) {
            match message {
                LaneMessage::Append(frames) => match self.append(&frames, &mut held_up) {
                    Ok(Some(committed)) => {
                        let _ = self.core.send(ShardMessage::Committed(committed));
                    }
                    Ok(None) => return,
                    Err(fault) => {
                        let _ = self.core.send(ShardMessage::Fenced(fault));
                        return;
                    }
                },
                LaneMessage::Release(segments) => self.with(|writer| writer.release(segments)),
                LaneMessage::Spare(slot, wish) => {
                    self.with(|writer| writer.add_spare(slot, wish));
                }
                LaneMessage::Room(room) => self.with(|writer| writer.set_room(room)),
                LaneMessage::Unpinned => {}
                LaneMessage::Short => self.with(Writer::give_back_surplus),
                LaneMessage::End => return,
            }
        }
    }

    /// Appends frames as far as there are slots, says so, and waits for more: a batch may need more of
    /// them than are ever kept. `None` when there will be no more because the broker stops.
    fn append(
        &self,
        mut frames: &[Frame],
        held_up: &mut VecDeque<LaneMessage>,
    ) -> Result<Option<Committed>, Fault> {
        loop {
            let (now, later) = frames.split_at(self.with(|writer| writer.lane.fits(frames)));
            if !now.is_empty() || later.is_empty() {
                let committed = self.with(|writer| writer.append(now))?;
                if later.is_empty() {
                    return Ok(Some(committed));
                }
                let committed = Committed { is_all: false, ..committed };
                let _ = self.core.send(ShardMessage::Committed(committed));
                frames = later;
            }
            self.with(Writer::want_more_spares);
            if !self.wait_for_slot(held_up) {
                return Ok(None);
            }
        }
    }

    /// Waits for what may be a slot; false when there will be none.
    fn wait_for_slot(&self, held_up: &mut VecDeque<LaneMessage>) -> bool {
        loop {
            match self.messages.recv() {
                Ok(LaneMessage::Spare(slot, wish)) => {
                    self.with(|writer| writer.add_spare(slot, wish));
                    return true;
                }
                Ok(LaneMessage::Release(segments)) if !segments.is_empty() => {
                    self.with(|writer| writer.release(segments));
                    return true;
                }
                Ok(LaneMessage::Room(room)) => {
                    self.with(|writer| writer.set_room(room));
                    // Without room it has taken what was pinned.
                    if self.with(|writer| writer.lane.spare_count()) > 0 {
                        return true;
                    }
                }
                Ok(LaneMessage::Unpinned) => return true,
                Ok(LaneMessage::End) | Err(_) => return false,
                Ok(message) => held_up.push_back(message),
            }
        }
    }
}

impl<D: Disk> Writer<D> {
    fn append(&mut self, frames: &[Frame]) -> Result<Committed, Fault> {
        let begun = Instant::now();
        let end = self.lane.append(frames)?;
        let took = begun.elapsed();
        let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        self.metrics.counts.journal_bytes.add(bytes as u64);
        self.metrics.counts.journal_syncs.add(1);
        self.ask_for_slots();
        self.report_room();
        self.look_for_room();
        let (spare_slots, is_full) = (self.lane.spare_count(), self.room.is_full());
        Ok(Committed { end, took, is_all: true, spare_slots, is_full })
    }

    fn unpin(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.release(pin.released);
        }
    }

    fn release(&mut self, segments: Vec<u64>) {
        if let Some(pin) = &mut self.pin {
            pin.released.extend(segments);
            return;
        }
        segments.into_iter().for_each(|segment| self.lane.release(segment));
        self.give_back_surplus();
        self.report_room();
    }

    /// Has spare slots removed that are neither held nor left alone.
    fn give_back_surplus(&mut self) {
        let is_short = self.reserve.is_short();
        if let Some(keep) = self.room.surplus_over(self.lane.spare_count(), is_short) {
            for slot in self.lane.take_surplus(keep) {
                self.reserve.add_outside_slot(self.core.shard);
                let _ = self.slots.send(SlotWish::Remove(slot));
            }
        }
    }

    /// The lane has to wait for a slot. At the start it always has; later, more are kept ready.
    fn want_more_spares(&mut self) {
        if self.lane.segments().next().is_some() {
            self.room.slot_waited();
        }
        self.ask_for_slots();
        self.report_room();
    }

    fn set_room(&mut self, room: bool) {
        self.room.set_room(room);
        if !room && let Some(pin) = &self.pin {
            tracing::warn!("no room left for the journal: the backup under way is given up");
            pin.is_broken.store(true, SeqCst);
            self.unpin();
        }
        self.ask_for_slots();
        self.report_room();
    }

    /// Looks whether the disk has room for what the lanes lack, if this one has begun to use the slots that it
    /// holds: it must not use more of them while the thread that makes slots is behind, and nobody knows yet
    /// that it will make none.
    fn look_for_room(&mut self) {
        if self.room.must_check_disk(self.lane.spare_count()) {
            let available = self.lane.available_bytes();
            if available.is_ok_and(|available| available < self.reserve.needed_bytes()) {
                self.set_room(false);
            }
        }
    }

    /// Says whether publishes have to be refused, whenever that changes, and what is missing.
    fn report_room(&mut self) {
        let spare = self.lane.spare_count();
        let changed = self.room.update_full(spare);
        let (missing, is_full) = (self.room.missing(spare), self.room.is_full());
        let missing_bytes = missing as u64 * self.reserve.segment_bytes();
        if changed == Some(true) {
            let shard = self.core.shard.0;
            tracing::warn!(shard, missing_bytes, "storage full: publishes are refused");
        } else if changed == Some(false) {
            tracing::info!(
                shard = self.core.shard.0,
                "the disk has room again: publishes are accepted"
            );
        }
        self.metrics.counts.storage_full.set(is_full.into());
        self.metrics.counts.storage_needed_bytes.set(if is_full { missing_bytes } else { 0 });
        self.reserve.lacks(self.core.shard, missing, is_full);
        if let Some(is_full) = changed {
            let _ = self.core.send(ShardMessage::StorageFull(is_full));
            self.ask_for_slots();
            // It has one more than it holds, and others may have none.
            self.give_back_surplus();
        }
    }

    fn add_spare(&mut self, slot: Slot, wish: SlotRequest) {
        self.lane.add_spare(slot);
        self.reserve.remove_outside_slot(self.core.shard);
        self.room.slot_made(wish);
        self.report_room();
        // It was asked for before another lane was full, or before this one was no more.
        self.give_back_surplus();
    }

    fn lend_slot(&mut self) -> Option<Slot> {
        let spare = self.lane.spare_count();
        let lent =
            self.room.may_release_slot(spare).then(|| self.lane.take_surplus(spare - 1).pop());
        self.report_room();
        lent.flatten()
    }

    fn ask_for_slots(&mut self) {
        self.room.set_checkpoint_segments(self.reserve.checkpoint_segments(self.core.shard));
        loop {
            let (count, written) = (self.lane.spare_count(), self.lane.written_spare_count());
            let Some(wish) = self.room.next_request(SpareSlots { count, written }) else { return };
            if self.slots.send(SlotWish::Make(wish)).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;

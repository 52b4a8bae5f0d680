//! Empties old segments and thin packs, compacts partitions that keep the latest of each key, and removes unused
//! packs, beside the lane and slowly enough that commits hardly notice.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use sennit_journal::{Container, disk::RealDisk};
use sennit_shard::{CompactionStep, MoveError, Moved, Mover, StoredBatch};

use super::{
    disk_reserve::DiskReserve,
    error::ServeError,
    inbox::{ShardMessage, ShardSender},
    lane_thread::LaneDoor,
    move_permit::MovePermit,
    thread_priority::give_way,
};

/// Most batches that the core is asked about at once: others wait meanwhile.
const ASKED_MAX: usize = 512;

/// After each piece of work the thread rests for so many times as long as that took.
const REST: u32 = 2;
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(500);
/// The longest rest between two pieces of a move.
const PIECE_REST_MAX: Duration = Duration::from_millis(20);

/// How often it is looked whether packs may be removed again.
const PINNED_PAUSE: Duration = Duration::from_millis(200);

/// While it is pinned no pack is removed: somebody copies them.
#[derive(Debug, Default)]
pub(crate) struct PackPin(Mutex<bool>);

impl PackPin {
    /// Pins, once a removal that is under way is over, or unpins.
    pub(crate) fn set(&self, is_pinned: bool) {
        *self.lock() = is_pinned;
    }

    /// Held while a pack is removed.
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum MoveMessage {
    /// Empty this; without rest, if there is much to do.
    Empty(Container, bool),
    /// Do this step of a compaction.
    Compact(CompactionStep),
    /// These are wanted, of those that were asked about last.
    Wanted(Vec<StoredBatch>),
    /// Remove this pack.
    Remove(u32),
}

/// The way to the thread. Once it is gone, the thread ends with the piece it is at.
#[derive(Debug)]
pub(crate) struct MoveHandle {
    messages: mpsc::Sender<MoveMessage>,
    stop: Arc<AtomicBool>,
}

impl MoveHandle {
    pub(crate) fn send(&self, message: MoveMessage) {
        // A thread that has ended has no use for it.
        let _ = self.messages.send(message);
    }
}

impl Drop for MoveHandle {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

struct MoveThread {
    mover: Mover<RealDisk>,
    messages: mpsc::Receiver<MoveMessage>,
    core: ShardSender,
    in_hurry: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    pin: Arc<PackPin>,
    permit: Arc<MovePermit>,
    /// Where a pack gets its room from on a disk that has none.
    loans: Loans,
    /// Packs to be removed when nothing else is to be done.
    to_remove: Vec<u32>,
    /// What was said while the thread rested.
    said: VecDeque<MoveMessage>,
}

/// Who lends a pack its room on a disk that has none.
#[derive(Debug)]
pub(crate) struct Loans {
    pub(crate) lane: LaneDoor,
    pub(crate) reserve: Arc<DiskReserve>,
}

/// The broker stops.
struct Ended;

/// Starts the thread. It ends once the handle is gone.
pub(crate) fn start(
    mover: Mover<RealDisk>,
    core: ShardSender,
    pin: Arc<PackPin>,
    permit: Arc<MovePermit>,
    loans: Loans,
) -> Result<(MoveHandle, thread::JoinHandle<()>), ServeError> {
    let name = format!("move-{}", core.shard.0);
    let (handle, mut moves) = MoveThread::new(mover, core, pin, permit, loans);
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || {
            give_way();
            while moves.step().is_ok() {}
        })
        .map_err(ServeError::system("start a move thread"))?;
    Ok((handle, thread))
}

impl MoveThread {
    fn new(
        mut mover: Mover<RealDisk>,
        core: ShardSender,
        pin: Arc<PackPin>,
        permit: Arc<MovePermit>,
        loans: Loans,
    ) -> (MoveHandle, Self) {
        let in_hurry: Arc<AtomicBool> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let (mut begun, hurry, stops) = (Instant::now(), in_hurry.clone(), stop.clone());
        mover.set_pace(move |_| {
            // Between two pieces others have the disk.
            let rest = if hurry.load(Relaxed) { Duration::ZERO } else { begun.elapsed() * REST };
            thread::sleep(rest.min(PIECE_REST_MAX));
            begun = Instant::now();
            !stops.load(Relaxed)
        });
        let (send, messages) = mpsc::channel();
        let handle = MoveHandle { messages: send, stop: stop.clone() };
        let (to_remove, said) = (Vec::new(), VecDeque::new());
        let moves =
            Self { mover, messages, core, in_hurry, stop, pin, permit, loans, to_remove, said };
        (handle, moves)
    }

    fn step(&mut self) -> Result<(), Ended> {
        match self.next()? {
            Some(MoveMessage::Empty(home, in_hurry)) => {
                self.in_hurry.store(in_hurry, Relaxed);
                self.empty(home)?;
            }
            Some(MoveMessage::Compact(step)) => self.compact(&step)?,
            Some(MoveMessage::Remove(pack)) => self.to_remove.push(pack),
            Some(MoveMessage::Wanted(_)) | None => {}
        }
        self.to_remove.extend(self.mover.take_orphaned_packs());
        let pin = self.pin.clone();
        while !self.to_remove.is_empty() {
            let is_pinned = pin.lock();
            if *is_pinned {
                break;
            }
            if let Some(pack) = self.to_remove.pop() {
                self.said_to_empty(pack);
                self.remove(pack)?;
            }
        }
        Ok(())
    }

    /// The next message; `None` when it is time to look after the packs that wait to be removed.
    fn next(&mut self) -> Result<Option<MoveMessage>, Ended> {
        if let Some(said) = self.said.pop_front() {
            return Ok(Some(said));
        }
        if self.to_remove.is_empty() {
            return self.messages.recv().map(Some).map_err(|_| Ended);
        }
        match self.messages.recv_timeout(PINNED_PAUSE) {
            Ok(message) => Ok(Some(message)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }

    /// What was said of emptying `pack` is settled: nothing in it is wanted any more.
    fn said_to_empty(&mut self, pack: u32) {
        let is_it = |said: &MoveMessage| matches!(said, MoveMessage::Empty(Container::Pack(home), _) if *home == pack);
        let before = self.said.len();
        self.said.retain(|said| !is_it(said));
        if self.said.len() < before {
            let _ = self.core.send(ShardMessage::Moved(Moved::default()));
        }
    }

    fn empty(&mut self, home: Container) -> Result<(), Ended> {
        let message = match self.moved(home)? {
            Ok(moved) => {
                tracing::debug!(
                    shard = self.core.shard.0,
                    ?home,
                    batches = moved.batches.len(),
                    "moved"
                );
                ShardMessage::Moved(moved)
            }
            Err(_) if self.stop.load(Relaxed) => return Err(Ended),
            Err(error) => {
                tracing::error!(shard = self.core.shard.0, ?home, %error, "moving failed");
                ShardMessage::MoveFailed(home, error)
            }
        };
        let _ = self.core.send(message);
        Ok(())
    }

    fn compact(&mut self, step: &CompactionStep) -> Result<(), Ended> {
        self.in_hurry.store(false, Relaxed);
        let permit = self.permit.clone();
        let compacted = permit.with(|| {
            let bytes = step.batches.iter().map(|(batch, _)| u64::from(batch.place.bytes)).sum();
            let _lent = self.loans.reserve.lend(bytes);
            self.mover.set_left_bytes(self.loans.reserve.left_by_pack(bytes));
            self.mover.compact(step)
        });
        let message = match compacted {
            Ok(done) => {
                let (shard, batches) = (self.core.shard.0, step.batches.len());
                let (topic_id, partition) = (step.partition.topic.0, step.partition.index.0);
                let changed = done.batches.len() + done.superseded.len();
                tracing::debug!(shard, topic_id, partition, work = ?step.work, batches, changed, "compacted");
                ShardMessage::Compacted(done)
            }
            Err(_) if self.stop.load(Relaxed) => return Err(Ended),
            Err(error) => {
                let (topic_id, partition) = (step.partition.topic.0, step.partition.index.0);
                tracing::error!(shard = self.core.shard.0, topic_id, partition, %error, "compaction failed");
                ShardMessage::CompactionFailed
            }
        };
        let _ = self.core.send(message);
        Ok(())
    }

    fn moved(&mut self, home: Container) -> Result<Result<Moved, MoveError>, Ended> {
        let held = match self.mover.list(home) {
            Ok(held) => held,
            Err(error) => return Ok(Err(error)),
        };
        let mut wanted = Vec::new();
        for asked in held.chunks(ASKED_MAX) {
            let _ = self.core.send(ShardMessage::AreWanted(asked.to_vec()));
            wanted.extend(self.answer()?);
        }
        if wanted.is_empty() {
            return Ok(Ok(Moved::default()));
        }
        drop(held);
        let permit = self.permit.clone();
        Ok(permit.with(|| self.copy(home, &wanted)))
    }

    /// On a short disk the lane lends the pack a slot's room: the segment that is emptied pays it back.
    fn copy(&mut self, home: Container, wanted: &[StoredBatch]) -> Result<Moved, MoveError> {
        let Loans { lane, reserve } = &self.loans;
        let is_short = reserve.is_short();
        self.mover.set_in_one_pack(is_short);
        let bytes = self.mover.bytes_for(wanted);
        let _lent = reserve.lend(bytes);
        self.mover.set_left_bytes(reserve.left_by_pack(bytes));
        if is_short
            && bytes <= reserve.segment_bytes()
            && !self.mover.has_room(bytes)?
            && let Some(slot) = lane.lend_slot()
        {
            self.mover.make_room(&slot)?;
        }
        self.mover.copy(home, wanted)
    }

    /// Waits for the answer about what was asked last.
    fn answer(&mut self) -> Result<Vec<StoredBatch>, Ended> {
        loop {
            match self.messages.recv().map_err(|_| Ended)? {
                MoveMessage::Wanted(wanted) => return Ok(wanted),
                MoveMessage::Remove(pack) => self.to_remove.push(pack),
                MoveMessage::Empty(..) | MoveMessage::Compact(_) => {}
            }
        }
    }

    fn remove(&mut self, pack: u32) -> Result<(), Ended> {
        let mut removal = match self.mover.start_removal(pack) {
            Ok(removal) => removal,
            Err(fault) => return self.not_removed(pack, &fault),
        };
        loop {
            let begun = Instant::now();
            match removal.step() {
                Ok(true) => return Ok(()),
                Ok(false) => self.rest(begun)?,
                Err(fault) => return self.not_removed(pack, &fault),
            }
        }
    }

    /// The next start removes it.
    fn not_removed(&self, pack: u32, fault: &sennit_journal::Fault) -> Result<(), Ended> {
        tracing::warn!(shard = self.core.shard.0, pack, %fault, "a pack could not be removed");
        Ok(())
    }

    /// Rests in proportion to the work since `begun`; what comes meanwhile waits.
    fn rest(&mut self, begun: Instant) -> Result<(), Ended> {
        let rest =
            if self.in_hurry.load(Relaxed) { Duration::ZERO } else { begun.elapsed() * REST };
        let until = Instant::now() + rest.min(REST_MAX);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(MoveMessage::Remove(pack)) => self.to_remove.push(pack),
                Ok(message) => self.said.push_back(message),
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sennit_journal::{LaneConfig, disk::Access};
    use sennit_model::Timestamp;
    use sennit_shard::{PackLengths, Settings};

    use super::*;
    use crate::runtime::{
        inbox::{Message, Receiver},
        index::ShardIndex,
    };

    impl Loans {
        fn of_nobody(reserve: Arc<DiskReserve>) -> Self {
            Self { lane: LaneDoor::of_nobody(), reserve }
        }
    }

    fn thread(folder: &Path) -> (MoveHandle, MoveThread, Receiver) {
        let lane = LaneConfig {
            directory: folder.join("lane-0"),
            lane: 0,
            segment_bytes: 64 << 10,
            incarnation: 1,
        };
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 8,
            packs: PackLengths::default(),
            writes_superseded: false,
            replica: None,
        };
        let disk = RealDisk::new(Access::Buffered);
        let parts = sennit_shard::recover(&disk, lane, settings, Timestamp(1)).unwrap();
        let (core, inbox) = tokio::sync::mpsc::unbounded_channel();
        let permit = Arc::new(MovePermit::new(|| {}));
        let reserve = DiskReserve::new(1, vec![core.clone()], 64 << 10);
        let loans = Loans::of_nobody(Arc::new(reserve));
        let core = ShardSender { shard: ShardIndex(0), core };
        let (handle, moves) = MoveThread::new(parts.mover, core, Arc::default(), permit, loans);
        (handle, moves, inbox)
    }

    #[test]
    fn what_is_to_be_emptied_is_not_forgotten_while_a_pack_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (handle, mut moves, _inbox) = thread(folder.path());
        handle.send(MoveMessage::Remove(7));
        handle.send(MoveMessage::Empty(Container::Segment(3), true));
        // A step of a removal is done.
        assert!(moves.rest(Instant::now() - Duration::from_millis(5)).is_ok());
        assert_eq!(moves.to_remove, [7]);
        let next = moves.next();
        assert!(matches!(next, Ok(Some(MoveMessage::Empty(Container::Segment(3), true)))));
    }

    #[test]
    fn a_pack_that_is_to_be_removed_is_not_emptied_before_and_the_core_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (handle, mut moves, mut inbox) = thread(folder.path());
        handle.send(MoveMessage::Empty(Container::Pack(7), false));
        assert!(moves.rest(Instant::now() - Duration::from_millis(5)).is_ok());
        assert!(inbox.try_recv().is_err());
        moves.said_to_empty(8);
        assert_eq!(moves.said.len(), 1);
        moves.said_to_empty(7);
        assert!(moves.said.is_empty());
        assert!(matches!(
            inbox.try_recv(),
            Ok(Message::Shard(ShardIndex(0), ShardMessage::Moved(_)))
        ));
    }
}

//! The lane's own thread: it writes and syncs one batch of frames while the next gathers. It holds
//! no state but the lane.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc},
    thread,
};

use sennit_journal::{Fault, Frame, Lane, Slot, disk::RealDisk};

use crate::{error::ServeError, inbox, metrics::CoreMetrics};

/// Slots that are kept ready. Each time the lane had to wait for one, it keeps more ready.
const SPARE_SLOTS: usize = 2;
const SPARE_SLOTS_MAX: usize = 16;

/// What the lane is told.
#[derive(Debug)]
pub(crate) enum LaneMessage {
    /// Write these frames and sync them.
    Append(Vec<Frame>),
    /// These segments are needed no more.
    Release(Vec<u64>),
    /// A slot was made.
    Spare(Slot),
    /// Write no more.
    End,
}

struct LaneThread {
    lane: Lane<RealDisk>,
    messages: mpsc::Receiver<LaneMessage>,
    core: inbox::Sender,
    /// Asks for a slot.
    slots: mpsc::Sender<()>,
    slots_asked: usize,
    spare_wanted: usize,
    metrics: Arc<CoreMetrics>,
}

/// Starts the thread. It ends when it is told to, or the lane has failed.
pub(crate) fn start(
    shard: u32,
    lane: Lane<RealDisk>,
    messages: mpsc::Receiver<LaneMessage>,
    core: inbox::Sender,
    slots: mpsc::Sender<()>,
    metrics: Arc<CoreMetrics>,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let mut lane = LaneThread {
        lane,
        messages,
        core,
        slots,
        slots_asked: 0,
        spare_wanted: SPARE_SLOTS,
        metrics,
    };
    thread::Builder::new()
        .name(format!("lane-{shard}"))
        .spawn(move || lane.run())
        .map_err(ServeError::system("start a lane's thread"))
}

impl LaneThread {
    fn run(&mut self) {
        self.ask_for_slots();
        let mut held_up = VecDeque::new();
        while let Some(message) = held_up.pop_front().or_else(|| self.messages.recv().ok()) {
            match message {
                LaneMessage::Append(frames) => match self.append(&frames, &mut held_up) {
                    Ok(Some(end)) => {
                        let _ = self.core.send(inbox::Message::Committed(end));
                    }
                    Ok(None) => return,
                    Err(fault) => {
                        let _ = self.core.send(inbox::Message::Fenced(fault));
                        return;
                    }
                },
                LaneMessage::Release(segments) => {
                    segments.into_iter().for_each(|segment| self.lane.release(segment));
                }
                LaneMessage::Spare(slot) => self.add_spare(slot),
                LaneMessage::End => return,
            }
        }
    }

    /// Appends frames; waits for a slot if there is none. `None` when there will be no more slots
    /// because the broker stops.
    fn append(
        &mut self,
        frames: &[Frame],
        held_up: &mut VecDeque<LaneMessage>,
    ) -> Result<Option<sennit_journal::Position>, Fault> {
        loop {
            match self.lane.append(frames) {
                Err(Fault::NoSpareSlot { .. }) => {
                    self.spare_wanted = (2 * self.spare_wanted).min(SPARE_SLOTS_MAX);
                    self.ask_for_slots();
                    loop {
                        match self.messages.recv() {
                            Ok(LaneMessage::Spare(slot)) => {
                                self.add_spare(slot);
                                break;
                            }
                            Ok(LaneMessage::Release(segments)) if !segments.is_empty() => {
                                segments.into_iter().for_each(|segment| self.lane.release(segment));
                                break;
                            }
                            Ok(LaneMessage::End) | Err(_) => return Ok(None),
                            Ok(message) => held_up.push_back(message),
                        }
                    }
                }
                appended => {
                    let end = appended?;
                    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
                    self.metrics.journal_bytes.add(bytes as u64);
                    self.metrics.journal_syncs.add(1);
                    self.ask_for_slots();
                    return Ok(Some(end));
                }
            }
        }
    }

    fn add_spare(&mut self, slot: Slot) {
        self.lane.add_spare(slot);
        self.slots_asked -= 1;
    }

    fn ask_for_slots(&mut self) {
        while self.lane.spare_count() + self.slots_asked < self.spare_wanted {
            if self.slots.send(()).is_err() {
                return;
            }
            self.slots_asked += 1;
        }
    }
}

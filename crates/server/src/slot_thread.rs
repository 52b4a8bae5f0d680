//! Makes and removes slots while the lane goes on: filling a file takes too long to be waited for.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use sennit_journal::{Fault, SlotMaker, disk::RealDisk};

use crate::{
    error::ServeError,
    inbox,
    lane_thread::{LaneMessage, SlotWish},
};

/// How long to wait before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Starts the thread. It fulfils each wish, and ends when there can be no more.
pub(crate) fn start(
    shard: u32,
    mut maker: SlotMaker<RealDisk>,
    wishes: mpsc::Receiver<SlotWish>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let run = move || {
        let mut owed = 0usize;
        let mut was_full = false;
        loop {
            // Wishes that come while the disk is full wait their turn; the end of the broker does
            // not.
            let wish = match (owed, was_full) {
                (0, _) => wishes.recv().ok().map(Some),
                (_, false) => Some(wishes.try_recv().ok()),
                (_, true) => match wishes.recv_timeout(FULL_PAUSE) {
                    Ok(wish) => Some(Some(wish)),
                    Err(RecvTimeoutError::Timeout) => Some(None),
                    Err(RecvTimeoutError::Disconnected) => None,
                },
            };
            match wish {
                None => return,
                Some(None) => {}
                Some(Some(SlotWish::Make)) => owed += 1,
                Some(Some(SlotWish::Remove(slot))) => {
                    if let Err(fault) = maker.remove(&slot) {
                        tracing::warn!(shard, %fault, "a slot could not be removed");
                    }
                }
            }
            if owed == 0 {
                continue;
            }
            match maker.make() {
                Ok(slot) => {
                    owed -= 1;
                    let _ = lane.send(LaneMessage::Spare(slot));
                    if std::mem::take(&mut was_full) {
                        let _ = lane.send(LaneMessage::Room(true));
                    }
                }
                Err(Fault::StorageFull { .. }) => {
                    if !std::mem::replace(&mut was_full, true) {
                        let _ = lane.send(LaneMessage::Room(false));
                    }
                }
                Err(fault) => {
                    let _ = core.send(inbox::Message::Fenced(fault));
                    return;
                }
            }
        }
    };
    thread::Builder::new()
        .name(format!("slots-{shard}"))
        .spawn(run)
        .map_err(ServeError::system("start a slot thread"))
}

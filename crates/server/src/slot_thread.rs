//! Makes slots while the lane goes on: filling a file takes too long to be waited for.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use sennit_journal::{Fault, SlotMaker, disk::RealDisk};

use crate::{error::ServeError, inbox, lane_thread::LaneMessage};

/// How long to wait before a full disk is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Starts the thread. It makes a slot for each wish, and ends when there can be no more.
pub(crate) fn start(
    shard: u32,
    mut maker: SlotMaker<RealDisk>,
    wishes: mpsc::Receiver<()>,
    lane: mpsc::Sender<LaneMessage>,
    core: inbox::Sender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let run = move || {
        let mut owed = 0usize;
        let mut was_full = false;
        loop {
            if owed == 0 {
                match wishes.recv() {
                    Ok(()) => owed = 1,
                    Err(_) => return,
                }
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
                    // Wishes that come meanwhile wait their turn; the end of the broker does not.
                    match wishes.recv_timeout(FULL_PAUSE) {
                        Ok(()) => owed += 1,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return,
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

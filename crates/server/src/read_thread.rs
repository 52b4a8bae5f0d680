//! Reads batches back for consumers that lag, so that the shard never waits for the disk.

use std::{sync::mpsc, thread};

use sennit_journal::{Reader, disk::RealDisk};
use sennit_shard::Fetch;

use crate::{error::ServeError, inbox};

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum ReadMessage {
    /// Read this.
    Fetch(Fetch),
    /// This pack is to be removed: its file is to be closed, so that its room comes back.
    ForgetPack(u32),
}

/// Starts the thread. It ends when `messages` can bring no more.
pub(crate) fn start(
    shard: u32,
    mut reader: Reader<RealDisk>,
    messages: mpsc::Receiver<ReadMessage>,
    core: inbox::Sender,
) -> Result<thread::JoinHandle<()>, ServeError> {
    let run = move || {
        while let Ok(message) = messages.recv() {
            let fetch = match message {
                ReadMessage::Fetch(fetch) => fetch,
                ReadMessage::ForgetPack(pack) => {
                    reader.forget_pack(pack);
                    continue;
                }
            };
            let bytes = match reader.read(fetch.position, fetch.length) {
                Ok(bytes) => Some(bytes),
                Err(fault) => {
                    tracing::error!(shard, %fault, "reading back failed");
                    None
                }
            };
            let _ = core.send(inbox::Message::Fetched(fetch, bytes));
        }
    };
    thread::Builder::new()
        .name(format!("read-{shard}"))
        .spawn(run)
        .map_err(ServeError::system("start a read thread"))
}

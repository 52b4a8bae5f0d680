//! Reads batches back for consumers that lag, so that the shard never waits for the disk. Each shard has two such
//! threads: while one allocates for its read, the disk serves the other.

use std::{sync::mpsc, thread};

use sennit_journal::{Reader, disk::RealDisk};
use sennit_shard::Fetch;

use super::{
    error::ServeError,
    inbox::{ShardMessage, ShardSender},
};

/// What the threads are told.
#[derive(Clone, Copy, Debug)]
enum ReadMessage {
    /// Read this.
    Fetch(Fetch),
    /// This pack is to be removed: its file is to be closed, so that its room comes back.
    ForgetPack(u32),
}

/// The threads of one shard. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct ReadThreads {
    threads: [mpsc::Sender<ReadMessage>; 2],
    /// Which of them reads next.
    next: usize,
}

impl ReadThreads {
    /// Starts them.
    pub(crate) fn start(
        reader: Reader<RealDisk>,
        core: &ShardSender,
    ) -> Result<(Self, [thread::JoinHandle<()>; 2]), ServeError> {
        let (one, one_ends) = start(reader.duplicate(), core.clone())?;
        let (other, other_ends) = start(reader, core.clone())?;
        Ok((Self { threads: [one, other], next: 0 }, [one_ends, other_ends]))
    }

    /// Has this read; the core hears of it.
    pub(crate) fn fetch(&mut self, fetch: Fetch) {
        self.next = (self.next + 1) % self.threads.len();
        let _ = self.threads[self.next].send(ReadMessage::Fetch(fetch));
    }

    /// Has the file of a pack closed that is to be removed.
    pub(crate) fn forget_pack(&self, pack: u32) {
        for thread in &self.threads {
            let _ = thread.send(ReadMessage::ForgetPack(pack));
        }
    }
}

/// Starts one. It ends when nothing more can be told to it.
fn start(
    mut reader: Reader<RealDisk>,
    core: ShardSender,
) -> Result<(mpsc::Sender<ReadMessage>, thread::JoinHandle<()>), ServeError> {
    let (sender, messages) = mpsc::channel();
    let shard = core.shard.0;
    let run = move || {
        while let Ok(message) = messages.recv() {
            let fetch = match message {
                ReadMessage::Fetch(fetch) => fetch,
                ReadMessage::ForgetPack(pack) => {
                    reader.forget_pack(pack);
                    continue;
                }
            };
            let bytes = match reader.read_uncached(fetch.position, fetch.length) {
                Ok(bytes) => Some(bytes),
                Err(fault) => {
                    tracing::error!(shard, %fault, "reading back failed");
                    None
                }
            };
            let _ = core.send(ShardMessage::Fetched(fetch, bytes));
        }
    };
    let thread = thread::Builder::new()
        .name(format!("read-{shard}"))
        .spawn(run)
        .map_err(ServeError::system("start a read thread"))?;
    Ok((sender, thread))
}

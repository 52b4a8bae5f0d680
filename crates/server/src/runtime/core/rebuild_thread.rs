//! Makes the state of a replica anew on a thread of its own, while its core goes on. The thread ends with each attempt.

use std::thread;

use sennit_journal::disk::RealDisk;
use sennit_shard::{Rebuild, RecoverError};

use super::LocalShard;
use crate::runtime::inbox::{ShardMessage, ShardSender};

impl LocalShard {
    /// Has the state of its replica made anew, if that is poisoned.
    pub(super) fn rebuild_if_poisoned(&mut self) {
        let Some(log) = &self.workers.log else { return };
        let Some(group) = self.state.group() else { return };
        if let Some(rebuild) = group.begin_rebuild(|| log.duplicate()) {
            self.read_on(rebuild);
        }
    }

    /// A rebuild has read all that there was.
    pub(super) fn take_over(&mut self, rebuild: Rebuild<RealDisk>) {
        let Some(group) = self.state.group() else { return };
        if let Some(rebuild) = group.take_over(rebuild) {
            self.read_on(rebuild);
        }
    }

    /// A rebuild could not be read to its end.
    pub(super) fn handle_failed_rebuild(&mut self, error: &RecoverError) {
        if let Some(group) = self.state.group() {
            group.handle_failed_rebuild(error);
        }
    }

    fn read_on(&self, rebuild: Rebuild<RealDisk>) {
        let core = self.cores.inboxes[self.cores.placement.core_of(self.index)].clone();
        let shard = ShardSender { shard: self.index, core };
        let name = format!("rebuild-{}", self.index.0);
        let started = thread::Builder::new().name(name).spawn(move || read(rebuild, &shard));
        if let Err(error) = started {
            let shard = self.index.0;
            tracing::error!(shard, %error, "no thread can make the state of a replica anew");
        }
    }
}

/// Reads all that there is.
fn read(mut rebuild: Rebuild<RealDisk>, shard: &ShardSender) {
    let message = loop {
        match rebuild.step() {
            Ok(true) => {}
            Ok(false) => break ShardMessage::Rebuilt(Box::new(rebuild)),
            Err(error) => break ShardMessage::RebuildFailed(Box::new(error)),
        }
    };
    // A core that has ended needs no state.
    let _ = shard.send(message);
}

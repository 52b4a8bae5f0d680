//! The inbox of a core or a shard for messages from other threads: messages come in batches, with one wake for each
//! batch.

use std::{any::Any, collections::BTreeSet, rc::Rc, time::Duration};

use sennit_engine::{Command, Effect, Findings};
use sennit_journal::{Container, Fault, Position, disk::RealDisk};
use sennit_shard::{CompactionDone, Fetch, MoveError, Moved, Rebuild, RecoverError, StoredBatch};
use tokio::sync::{mpsc, oneshot};

use super::{
    index::ShardIndex,
    services::Call,
    session_takeover::{Ended, SessionToken},
};

/// What was written and synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Everything before this is durable.
    pub(crate) end: Position,
    /// How long it took.
    pub(crate) took: Duration,
    /// Whether that is all that the lane was given at once; else the rest waits for a slot.
    pub(crate) is_all: bool,
    /// How many spare slots the lane has left.
    pub(crate) spare_slots: usize,
    /// Whether publishes are to be refused, as slots are missing.
    pub(crate) is_full: bool,
}

/// What reaches a core.
#[derive(Debug)]
pub(crate) enum Message {
    /// The client of this session, if that is one of the core's, is here on another connection:
    /// the session is to end. Answered once it has.
    Replace(SessionToken, Ended),
    /// Something for one of the shards that it runs.
    Shard(ShardIndex, ShardMessage),
    /// Effects for its sessions, from another core's shard.
    Effects(Vec<Effect>),
    /// Something to do with one of its services.
    Call(Call),
    /// What a survey of a shard has found; only the first core is told.
    Found(ShardIndex, Findings),
    /// Publishes to some shard are refused, or to none any more: the disk has no room.
    DiskShort(bool),
    /// The broker stops: say so to every session, finish what is under way, answer when done.
    Drain(oneshot::Sender<()>),
    /// The end, after [`Message::Drain`] was answered.
    End,
}

/// What reaches a shard, at the core that runs it.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    /// Commands from sessions of another core.
    Commands(Vec<Command>),
    /// The lane's thread has written and synced a batch.
    Committed(Committed),
    /// The lane has failed.
    Fenced(Fault),
    /// The disk has, or has no longer, room for another segment.
    StorageFull(bool),
    /// Which of these batches are wanted?
    AreWanted(Vec<StoredBatch>),
    /// What was to be emptied was copied.
    Moved(Moved),
    /// What was to be emptied could not be.
    MoveFailed(Container, MoveError),
    /// A step of a compaction was done.
    Compacted(CompactionDone),
    /// One came to nothing.
    CompactionFailed,
    /// Which packs are in use?
    PacksInUse(oneshot::Sender<BTreeSet<u32>>),
    /// The state of a replica is made anew, as far as its lane was written.
    Rebuilt(Box<Rebuild<RealDisk>>),
    /// It cannot be.
    RebuildFailed(Box<RecoverError>),
    /// A read is done.
    Fetched(Fetch, Option<bytes::Bytes>),
}

impl Message {
    /// Has a core call the service of this type ([`Call::to`]).
    pub(crate) fn call<S: Any>(act: impl FnOnce(&Rc<S>) + Send + 'static) -> Self {
        Self::Call(Call::to(act))
    }
}

/// The way to a core. Bounded by what the senders may have under way: each session's window, the
/// one batch of the lane, the reads of the shard.
pub(crate) type Sender = mpsc::UnboundedSender<Message>;
/// The core's end of it.
pub(crate) type Receiver = mpsc::UnboundedReceiver<Message>;

/// The way to a shard for those that work for it.
#[derive(Clone, Debug)]
pub(crate) struct ShardSender {
    pub(crate) shard: ShardIndex,
    /// The way to its core.
    pub(crate) core: Sender,
}

impl ShardSender {
    /// Tells the shard; false if its core has ended.
    pub(crate) fn send(&self, message: ShardMessage) -> bool {
        self.core.send(Message::Shard(self.shard, message)).is_ok()
    }
}

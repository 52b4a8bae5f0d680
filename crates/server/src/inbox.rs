//! What reaches a core from other threads: everything in batches, one wake for each.

use std::{collections::BTreeSet, time::Duration};

use sennit_engine::{Command, Effect, HoldingGroup, SessionId};
use sennit_journal::{Fault, Home, Position};
use sennit_model::{Offset, TopicId, TopicName, TopicPattern};
use sennit_protocol::{
    Reply, Request,
    control::{self, WatchedTopic},
};
use sennit_shard::{CompactionDone, Fetch, Held, MoveError, Moved};
use tokio::sync::{mpsc, oneshot};

use crate::{
    arrival::{Arrival, HttpArrival},
    found::Found,
    stream_request::{CreateStream, Created, Located, StreamFailure},
    subscription_request::{Asked, SubscriptionRefusal, Told},
    successor::SessionToken,
    watches::Change,
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
}

/// What reaches a core.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection to serve.
    Connection(Arrival),
    /// A connection of the HTTP port to serve.
    HttpConnection(HttpArrival),
    /// The client of this session, if that is one of the core's, is here on another connection:
    /// the session is to end. Answered once it has.
    Replace(SessionToken, oneshot::Sender<()>),
    /// Commands for its shard, from sessions of another core.
    Commands(Vec<Command>),
    /// Effects for its sessions, from another core's shard.
    Effects(Vec<Effect>),
    /// A session's request about names and settings; only the first core is asked.
    Control(SessionId, Request, oneshot::Sender<ControlReply>),
    /// Watch for topics; only the first core is asked. Answered with those that there are.
    Watch(
        TopicPattern,
        mpsc::Sender<Change>,
        oneshot::Sender<Result<Vec<WatchedTopic>, control::Error>>,
    ),
    /// The groups of a shard that hold messages which others are through with; only the first core is told,
    /// which knows their names.
    Holding(usize, Vec<HoldingGroup>),
    /// The lane's thread has written and synced a batch.
    Committed(Committed),
    /// The lane has failed.
    Fenced(Fault),
    /// The disk has, or has no longer, room for another segment.
    StorageFull(bool),
    /// Publishes to some shard are refused, or to none any more: the disk has no room.
    DiskShort(bool),
    /// Which of these batches are wanted?
    AreWanted(Vec<Held>),
    /// What was to be emptied was copied.
    Moved(Moved),
    /// What was to be emptied could not be.
    MoveFailed(Home, MoveError),
    /// A step of a compaction was done.
    Compacted(CompactionDone),
    /// One came to nothing.
    CompactionFailed,
    /// Which packs are in use?
    PacksInUse(oneshot::Sender<BTreeSet<u32>>),
    /// A read is done.
    Fetched(Fetch, Option<bytes::Bytes>),
    /// An answer broke off here, because the stream could not be read on.
    BrokeOff(TopicId, Offset),
    /// Where is the topic of this name? Only the first core is asked.
    Locate(TopicName, oneshot::Sender<Option<Located>>),
    /// Have a stream be there; only the first core is asked.
    CreateStream(Box<CreateStream>, oneshot::Sender<Result<Created, StreamFailure>>),
    /// Delete a stream; only the first core is asked.
    DeleteStream(TopicName, oneshot::Sender<Result<(), StreamFailure>>),
    /// Something of subscriptions; only the first core is asked.
    Subscriptions(Asked, oneshot::Sender<Result<Told, SubscriptionRefusal>>),
    /// Bring the shards, recovered with these partitions, in line with the catalogue; only the
    /// first core is asked.
    Reconcile(Found, oneshot::Sender<()>),
    /// The broker stops: say so to every session, finish what is under way, answer when done.
    Drain(oneshot::Sender<()>),
    /// The end, after [`Message::Drain`] was answered.
    End,
}

/// The answer to a request about names and settings.
#[derive(Debug)]
pub(crate) struct ControlReply {
    /// What the client is told.
    pub(crate) reply: Reply,
    /// The topic beside which the topic in question is placed.
    pub(crate) home: TopicId,
}

/// The way to a core. Bounded by what the senders may have under way: each session's window, the
/// one batch of the lane, the reads of the shard.
pub(crate) type Sender = mpsc::UnboundedSender<Message>;
/// The core's end of it.
pub(crate) type Receiver = mpsc::UnboundedReceiver<Message>;

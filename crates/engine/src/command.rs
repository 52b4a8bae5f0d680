//! The commands to a shard. A command has been admitted: its names are parsed and its batch is checked. `decide`
//! accepts or refuses it.

use std::{sync::Arc, time::Duration};

use sennit_model::{
    Batch, CursorName, Filter, Generation, GroupConfig, GroupId, GroupName, Incarnation, Offset,
    OffsetRange, PartitionId, ProducerStamp, ReadFrom, StartAt, ThrottleRule, Timestamp,
    TopicConfig, TopicId, TopicName, WhenSlow,
};

use crate::{
    attempts::FailureAnswers,
    names::SourceNames,
    stream::{StreamAppend, StreamCommand},
    walk::Walk,
};

/// Who speaks. Given by the server to each connection, and not used twice while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Where a reply goes: the session and the number it gave its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The request that it belongs to.
    pub session: SessionId,
    /// The request's number, as the session counts them.
    pub request: u64,
}

/// How much a subscription may hold unsettled. A window, not a sum: a later one replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Messages.
    pub messages: u32,
    /// Bytes, of encoded messages. One message is always allowed, however large.
    pub bytes: u64,
}

/// A command to a shard.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Append a batch to a partition.
    Publish(Publish),
    /// Append a batch if the partition's next offset is this one, and refuse it otherwise.
    PublishAt(Publish, Offset),
    /// Settle or extend deliveries of a group.
    Settle(Settle),
    /// Take part in a group.
    Subscribe(Subscribe),
    /// Read a partition by offset, without a group.
    Read(Read),
    /// Change or end a reader.
    Reader {
        /// Whose.
        session: SessionId,
        /// The subscription, by its number in the session.
        subscription: u32,
        /// The partition that it reads.
        partition: PartitionId,
        /// How.
        change: ReaderChange,
    },
    /// Replace a subscription's window.
    SetCredit {
        /// Whose.
        session: SessionId,
        /// The subscription, by its number in the session.
        subscription: u32,
        /// The partition it was made on.
        partition: PartitionId,
        /// The group it was made on.
        group: GroupId,
        /// The new window.
        credit: Credit,
    },
    /// End a subscription; what it holds returns at once.
    Unsubscribe {
        /// Whose.
        session: SessionId,
        /// The subscription, by its number in the session.
        subscription: u32,
        /// The partition it was made on.
        partition: PartitionId,
        /// The group it was made on.
        group: GroupId,
    },
    /// A connection is gone. What its subscriptions hold returns after `grace`; until then a
    /// settle that names it is still good, from whatever connection.
    EndSession {
        /// Whose.
        session: SessionId,
        /// How long to wait for it to come back; zero when it said goodbye.
        grace: Duration,
    },
    /// Change or read the catalogue; only the shard that leads it handles this.
    Catalogue(Origin, CatalogueCommand),
    /// The rules for throttle keys, of the whole broker. They are not durable here.
    SetThrottles(Arc<[ThrottleRule]>),
    /// Ask about the failed attempts of these topics, and of no others. Not durable: a shard that starts asks about
    /// none.
    WatchFailures(Arc<[TopicId]>),
    /// Decide about failed attempts that [`crate::Effect::AttemptsFailed`] has asked about.
    DecideFailures(FailureAnswers),
    /// Change a partition; only the shard that owns it handles this.
    Partition(Origin, PartitionId, PartitionCommand),
    /// Change or read a stream; only the shard that owns it handles this.
    Stream(Origin, PartitionId, StreamCommand),
    /// Append to several streams of one group, to all of them or to none; only the shard that owns
    /// them handles this. Answered with [`crate::StreamAnswer::AppendedTogether`] or
    /// [`crate::StreamAnswer::RefusedTogether`].
    AppendTogether(Origin, Vec<(PartitionId, StreamAppend)>),
    /// Publish to several partitions and ack deliveries, all of it or nothing; only the shard that owns
    /// all of them handles this. Answered with [`crate::Effect::PublishedAtomic`].
    PublishAtomic(PublishAtomic),
}

/// Append a batch to a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    /// Who asks; a refusal carries the request, a confirm carries the sequence.
    pub origin: Origin,
    /// The partition.
    pub partition: PartitionId,
    /// Who publishes, and the sequence of the first message. With producer id 0 the sequence is
    /// only repeated in the confirm.
    pub producer: ProducerStamp,
    /// The messages.
    pub batch: Batch,
}

/// Publish batches and ack deliveries in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishAtomic {
    /// Who asks.
    pub origin: Origin,
    /// The batches, each for a partition of its own. If all were published before, the step was done:
    /// nothing is done again.
    pub parts: Vec<Publish>,
    /// The acks. A delivery that cannot be acked refuses the step.
    pub acks: Vec<AtomicAck>,
}

/// Deliveries of one group of one partition that an atomic publish acks.
#[derive(Clone, Debug, PartialEq)]
pub struct AtomicAck {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: GroupId,
    /// The deliveries, each message once.
    pub runs: Vec<DeliveryRun>,
}

/// Deliveries of one partition and group that share an attempt: `count` offsets from `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryRun {
    /// The first offset.
    pub first: Offset,
    /// The number of messages.
    pub count: u32,
    /// Their attempt, from 1.
    pub attempt: u32,
    /// The generation of the shard that delivered them.
    pub generation: Generation,
}

/// The verdict of a consumer on its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Ack,
    /// Failed; ready again now.
    Retry,
    /// Failed; ready again after this long.
    RetryAfter(Duration),
    /// Failed for good: to the dead-letter topic, with the reason.
    DeadLetter {
        /// At most [`sennit_model::limits::REASON_BYTES_MAX`] bytes.
        reason: String,
    },
    /// Still at work: the lease now ends this long from now.
    Extend(Duration),
    /// At work: should the lease end without another word, the attempt counts as failed.
    Started,
}

/// Settle or extend deliveries.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The request that it belongs to.
    pub origin: Origin,
    /// The partition they are of.
    pub partition: PartitionId,
    /// The group they were delivered to.
    pub group: GroupId,
    /// The verdict.
    pub verdict: Verdict,
    /// Which.
    pub runs: Vec<DeliveryRun>,
    /// Whether to answer once the settlement is committed. Without it only stale runs are answered.
    pub confirm: bool,
}

/// Take part in a group of one partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subscribe {
    /// The request that it belongs to.
    pub origin: Origin,
    /// The subscription's number, as the session counts them.
    pub subscription: u32,
    /// Of which partition.
    pub partition: PartitionId,
    /// In which group.
    pub group: GroupId,
    /// The window.
    pub credit: Credit,
}

/// A reader's claim to a named cursor: one reader of a partition has it at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorClaim {
    /// The cursor.
    pub name: CursorName,
    /// Whether a reader that has it ends; without, the claim is refused.
    pub take_over: bool,
    /// Which claim of this process it is, each its own: of claims that meet one wins in every
    /// partition, in whatever order these hear of them.
    pub number: u64,
}

impl CursorClaim {
    /// Whether this claim ends a reader that has the cursor by `held`, rather than be ended by it.
    pub(crate) fn beats(&self, held: &Self) -> bool {
        if self.number > held.number { self.take_over } else { !held.take_over }
    }
}

/// The session that sets a named cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorSetter {
    /// The session that speaks.
    pub session: SessionId,
    /// The reader that commits, which has to have the cursor; without, it is set by hand, which a
    /// reader of another session that has the cursor keeps from being done.
    pub subscription: Option<u32>,
    /// Whether a reader that has the cursor ends when it is set by hand.
    pub take_over: bool,
}

/// Read one partition by offset. Nothing is leased or kept for a reader.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The request that it belongs to.
    pub origin: Origin,
    /// The subscription's number, as the session counts them.
    pub subscription: u32,
    /// The partition.
    pub partition: PartitionId,
    /// The first offset that it wants; beyond the end it begins at the end.
    pub at: Offset,
    /// The window: how much may be on its way, or untaken.
    pub credit: Credit,
    /// The cursor under whose name it reads.
    pub cursor: Option<CursorClaim>,
    /// Its choice for when it is too far behind.
    pub when_slow: WhenSlow,
    /// Selects its messages; it gets all without one.
    pub filter: Option<Filter>,
}

/// A change of a reader of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderChange {
    /// Its window is replaced.
    Credit(Credit),
    /// It has taken messages: its window has room for as many more.
    Taken {
        /// The number of messages.
        messages: u32,
        /// Their bytes, encoded.
        bytes: u64,
    },
    /// It ends.
    End,
}

/// Where a new topic is to lie: it gets a number that leaves this remainder. Its first partition is on
/// that shard then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The shard.
    pub shard: u32,
    /// How many there are.
    pub shards: u32,
}

/// Changes to the catalogue: which topics and groups there are.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogueCommand {
    /// Create a topic, or find it if it has the same settings.
    CreateTopic {
        /// Its name.
        name: TopicName,
        /// Its settings.
        config: TopicConfig,
        /// A random number, drawn by the asker.
        incarnation: Incarnation,
        /// Where its partitions are to lie, if that is of account.
        placed: Option<Placed>,
        /// Whether it is made to be a stream.
        is_stream: bool,
    },
    /// Create (or find) the topic that takes the dead letters of another, placed beside it.
    CreateDeadLetterTopic {
        /// The topic whose dead letters it takes.
        source: TopicId,
        /// A random number, drawn by the asker.
        incarnation: Incarnation,
    },
    /// Have a topic again whose name and settings are lost, as a queue that begins with the earliest
    /// message that is kept.
    AdoptTopic {
        /// Which.
        topic: TopicId,
        /// How many partitions it had, at least.
        partitions: u32,
        /// The topic beside whose partitions its own are placed.
        home: TopicId,
        /// A random number, drawn by the asker.
        incarnation: Incarnation,
    },
    /// Give a topic other settings; its partitions stay as they are.
    AlterTopic {
        /// Which.
        topic: TopicId,
        /// The new settings.
        config: TopicConfig,
    },
    /// Forget a topic and its groups.
    DeleteTopic {
        /// Which.
        topic: TopicId,
    },
    /// Create a group, or find it if it has the same settings.
    CreateGroup {
        /// Of which topic.
        topic: TopicId,
        /// Its name.
        name: GroupName,
        /// Its settings.
        config: GroupConfig,
        /// Where it begins.
        start: StartAt,
    },
    /// Give a group other settings.
    AlterGroup {
        /// Of which topic.
        topic: TopicId,
        /// Which.
        group: GroupId,
        /// The new settings, all of them.
        config: GroupConfig,
    },
    /// Forget a group.
    DeleteGroup {
        /// Of which topic.
        topic: TopicId,
        /// Which.
        group: GroupId,
    },
}

/// A group as a partition must know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupSetting {
    /// Its number.
    pub id: GroupId,
    /// Its settings.
    pub config: GroupConfig,
    /// Where it begins in a partition that has not seen it yet.
    pub start: StartAt,
}

/// The destination of a partition's dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeadLetters {
    /// To a topic that does not exist yet; it is created when there is one.
    #[default]
    NotYet,
    /// To the partition of the same number of this topic.
    To(TopicId),
    /// Nowhere: the partition holds dead letters itself, and what fails there for good is parked there.
    Stay,
}

/// The message or key that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainSubject {
    /// The message at an offset.
    Offset(Offset),
    /// The oldest ready message of a fair key.
    FairKey(String),
}

/// A change of a publisher's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayChange {
    /// The message is not delivered at all: every group is through with it.
    Cancel,
    /// It is due at this time; at once if that has passed.
    DueAt(Timestamp),
    /// It is due so long from now.
    DueAfter(Duration),
}

/// Changes to one partition and questions to it. Each may be sent again: what is already so stays so.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "settings are opened rarely, and sent one by one")]
pub enum PartitionCommand {
    /// Be there, with these settings and exactly these groups.
    Open {
        /// The topic's settings.
        config: TopicConfig,
        /// Its groups.
        groups: Vec<GroupSetting>,
        /// The topic of its dead letters.
        dead_letters: DeadLetters,
    },
    /// Be gone, with all messages.
    Drop,
    /// Say how you are.
    Describe,
    /// Say where one would begin that reads from there, or where its cursor is.
    Locate(ReadFrom, Option<CursorClaim>),
    /// Have a named cursor be at this offset, or at the end if that is lower, if who says so may.
    SetCursor(CursorName, Offset, CursorSetter),
    /// Have no cursor of this name. `created` of the answer says whether there was one.
    DeleteCursor(CursorName),
    /// Say which cursors there are.
    ListCursors,
    /// Free the batches that end at this offset or before.
    Trim(Offset),
    /// Say in dead letters that the topic and its groups are called so. Sent again when a group is new.
    Name(Arc<SourceNames>),
    /// Make parked messages of a group ready again, those of a range or all. Answered with
    /// [`crate::Effect::Unparked`].
    RetryParked(GroupId, Option<OffsetRange>),
    /// Say why a message or a fair key of a group waits.
    Explain(GroupId, ExplainSubject),
    /// Say which fair keys of a group have the most ready messages, so many at most.
    ListKeys(GroupId, usize),
    /// Say which messages wait because of their publisher's delay, by due time and offset: those behind this one, so
    /// many runs at most. Answered with [`crate::Effect::Delayed`].
    ListDelayed(Option<(Timestamp, Offset)>, usize),
    /// Change the delay of these messages, of all or none. Answered with [`crate::Effect::DelaysChanged`].
    ChangeDelayed(Vec<Offset>, DelayChange),
    /// Go through the messages that a group still has: one page. Answered with [`crate::Effect::Walked`].
    Walk(Box<Walk>),
}

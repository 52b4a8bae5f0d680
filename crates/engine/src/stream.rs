//! The commands to a partition that is an HTTP stream, and their answers: settings, appends that carry a producer's
//! state and the end of the stream in the same record, reads that may wait, forks. It knows no HTTP.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{Durability, Offset, PartitionId, ReadFrom, Timestamp, TopicConfig, TopicId};

use crate::content::Content;

/// The media type that a content type says, without its parameters.
#[must_use]
pub fn media_type(content_type: &str) -> &str {
    content_type.split_once(';').map_or(content_type, |(media_type, _)| media_type).trim()
}

/// What follows a chunk, where that is not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRest {
    /// How far it can be read: the end, or what was lost.
    pub until: Offset,
    /// Whether nothing lies behind that yet.
    pub is_up_to_date: bool,
    /// Whether nothing will ever lie behind that.
    pub is_closed: bool,
}

/// Whether two content types say the same media type.
#[must_use]
pub fn is_same_media_type(one: &str, other: &str) -> bool {
    one == other || media_type(one).eq_ignore_ascii_case(media_type(other))
}

/// The settings with which a stream is created. They do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// The type of what it holds, as its creator has written it.
    pub content_type: Box<str>,
    /// Seconds after its last use at which it is gone.
    pub time_to_live: Option<u64>,
    /// When it is gone whatever happens, and how its creator has written that.
    pub expires_at: Option<(Timestamp, Box<str>)>,
    /// Whether messages are checked again before they are sent to readers.
    pub is_verified: bool,
    /// Its origin, if it is a fork.
    pub fork: Option<ForkOf>,
    /// Its stream group: those it may be appended to together with. All of one group are placed on
    /// one shard, and are durable.
    pub group: Option<Box<str>>,
}

impl StreamSettings {
    /// Of a topic that was not created as a stream.
    #[must_use]
    pub fn of_topic() -> Self {
        Self {
            content_type: "application/octet-stream".into(),
            time_to_live: None,
            expires_at: None,
            is_verified: false,
            fork: None,
            group: None,
        }
    }

    /// When it is gone if nobody has used it since `touched_at`.
    #[must_use]
    pub fn ends_at(&self, touched_at: Timestamp) -> Option<Timestamp> {
        let millis = self.time_to_live.map(|seconds| seconds.saturating_mul(1000));
        let slides = millis.map(|millis| Timestamp(touched_at.0.saturating_add(millis)));
        slides.into_iter().chain(self.expires_at.as_ref().map(|(at, _)| *at)).min()
    }
}

/// The origin of a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkOf {
    /// The stream it was made of.
    pub source: PartitionId,
    /// The topic beside whose partitions that one is placed.
    pub home: TopicId,
    /// The name of that stream.
    pub name: Box<str>,
    /// What lies before this offset is the source's, and read there.
    pub at: Offset,
    /// Where its creator requested it: the offset token, empty for the source's end, and how much
    /// behind that.
    pub requested: (Box<str>, u64),
}

/// A command to a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamCommand {
    /// Create the stream. Answered with [`StreamAnswer::Opened`]; refused if it exists with other settings.
    Open(Box<OpenStream>),
    /// Append, or close, or both. Answered with [`StreamAnswer::Appended`].
    Append(Box<StreamAppend>),
    /// Give what lies at an offset. Answered with [`StreamAnswer::Chunk`] or
    /// [`StreamAnswer::Inherited`].
    Read(StreamRead),
    /// The read of this origin is awaited no more.
    StopReading,
    /// Return the status of the stream. Answered with [`StreamAnswer::Status`].
    Status {
        /// Whether that counts as a use, which makes its time to live begin anew.
        touches: bool,
    },
    /// A fork is made of you: what lies before its beginning stays. Answered with
    /// [`StreamAnswer::Status`].
    AddFork(TopicId),
    /// A fork of yours is gone. Answered with [`StreamAnswer::Deleted`] as a deletion is: says
    /// whether nothing needs you any more.
    RemoveFork(TopicId),
    /// Be gone for all but your forks. Answered with [`StreamAnswer::Deleted`].
    Delete,
}

/// A stream to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenStream {
    /// The topic's settings.
    pub config: TopicConfig,
    /// The stream's.
    pub settings: StreamSettings,
    /// Its first messages.
    pub content: Option<Content>,
    /// Whether that is all that it will ever hold.
    pub closes: bool,
}

/// Something to be appended to a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamAppend {
    /// The messages; none only to close.
    pub content: Option<Content>,
    /// The type of what is appended; it has to be the stream's. Nothing to say where it is of no
    /// account.
    pub content_type: Option<Box<str>>,
    /// The note beside them.
    pub note: StreamNote,
}

/// What an append says beside its messages. It is in the same record, that of the last batch where there
/// are several: all is there, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamNote {
    /// The producer, if a repeated append is to count once.
    pub producer: Option<StreamProducer>,
    /// A text that has to be greater, byte by byte, than that of the append before.
    pub sequence: Option<Box<str>>,
    /// Whether nothing may follow.
    pub closes: bool,
}

/// A producer that appends to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProducer {
    /// Its name.
    pub id: Box<str>,
    /// A higher epoch fences the lower ones.
    pub epoch: u64,
    /// The append's number in that epoch, from 0.
    pub sequence: u64,
}

/// A read of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRead {
    /// Where; refused beyond the end.
    pub at: ReadFrom,
    /// The read ends before this offset.
    pub before: Option<Offset>,
    /// How many bytes, encoded; one message is always inside.
    pub bytes_max: u64,
    /// Whether to answer only once there is something, or nothing can come any more.
    pub waits: bool,
    /// Whether to give no more than what was appended together with the message at that offset.
    pub one_append: bool,
    /// Whether it is for the fork of a stream: one that is deleted gives it too.
    pub for_fork: bool,
}

/// The status of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// Its settings.
    pub settings: Arc<StreamSettings>,
    /// The first offset that is kept.
    pub start: Offset,
    /// The offset behind all that may be read.
    pub next: Offset,
    /// Whether nothing will be appended any more.
    pub is_closed: bool,
    /// When what is appended is durable.
    pub durability: Durability,
    /// Whether it was opened as a stream. A topic that was made natively is read as one, and not changed.
    pub is_opened: bool,
}

/// The answer of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAnswer {
    /// It is there.
    Opened {
        /// Whether it was not before.
        created: bool,
        /// The status of the stream.
        status: StreamStatus,
    },
    /// It was appended, or had been before.
    Appended(StreamAppended),
    /// All of it was appended, or had been before: the result of each append, in their order.
    AppendedTogether(Vec<StreamAppended>),
    /// None of what was to be appended together was.
    RefusedTogether {
        /// The index of the append that was refused.
        which: usize,
        /// Why.
        refusal: StreamRefusal,
    },
    /// The messages at the offset.
    Chunk(StreamChunk),
    /// What lies there is to be read elsewhere: it belongs to what this stream was forked from.
    Inherited {
        /// Where.
        source: PartitionId,
        /// The topic beside whose partitions that one is placed.
        home: TopicId,
        /// Up to which offset.
        before: Offset,
        /// The status of the fork.
        status: StreamStatus,
    },
    /// The status of the stream.
    Status(StreamStatus),
    /// It is deleted.
    Deleted {
        /// Whether nothing of it is needed any more: the topic is to be deleted.
        is_unused: bool,
        /// The stream from which it was forked.
        fork_of: Option<ForkOf>,
    },
    /// It was not done.
    Refused(StreamRefusal),
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAppended {
    /// The offset behind it; of a duplicate, the stream's end.
    pub next: Offset,
    /// Whether the stream is closed now.
    pub is_closed: bool,
    /// Whether it had been appended before.
    pub is_duplicate: bool,
    /// The highest sequence of the producer in its epoch, where there is one.
    pub sequence: Option<u64>,
}

/// The messages of a stream at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamChunk {
    /// The stream's topic, which no other stream of that name will ever be.
    pub topic: TopicId,
    /// Its first offset.
    pub first: Offset,
    /// The offset behind it.
    pub next: Offset,
    /// Whether nothing lies behind it yet.
    pub is_up_to_date: bool,
    /// Whether nothing will ever lie behind it.
    pub is_closed: bool,
    /// What follows, where this is not all of the read; not set for what a fork has inherited.
    pub rest: Option<StreamRest>,
    /// The messages, encoded, in parts that each hold whole ones.
    pub messages: Vec<Bytes>,
    /// The stream's settings.
    pub settings: Arc<StreamSettings>,
}

/// Why something was not done. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    /// There is no such stream, or its time is over.
    #[error("there is no such stream")]
    Unknown,
    /// It is deleted, and kept only for its forks.
    #[error("the stream is deleted; only its forks are left")]
    Deleted,
    /// What lies at this offset is not kept any more.
    #[error("what lies before offset {start} is not kept any more")]
    NotKept {
        /// The first offset that can be read.
        start: Offset,
    },
    /// The stream ends before this offset: a reader that knows it has seen what is not there any more, as of
    /// a backup that was taken before.
    #[error("the stream ends at offset {next}, before the one that was asked for")]
    BeyondEnd {
        /// Its end.
        next: Offset,
    },
    /// The topic was made natively, and not as a stream: it can be read as one, and not changed.
    #[error(
        "the topic was not made as an HTTP stream, and can only be read here: publish to it, trim or delete it natively"
    )]
    NativeTopic,
    /// What lies at this offset cannot be read: the disk has damaged or lost it.
    #[error("what lies at the offset is damaged; the stream goes on at offset {next}")]
    Damaged {
        /// The first offset behind it.
        next: Offset,
    },
    /// The message at this offset was delivered before it was durable, and a crash has taken it: the
    /// stream is not durable.
    #[error(
        "what lay at the offset was not durable, and a crash has taken it back; the stream goes on at offset {next}"
    )]
    RolledBack {
        /// The first offset behind it.
        next: Offset,
    },
    /// It is there with other settings.
    #[error("the stream is there with another {field}")]
    SettingsDiffer {
        /// The setting that differs.
        field: &'static str,
    },
    /// It is closed.
    #[error("the stream is closed")]
    Closed {
        /// Its end.
        next: Offset,
    },
    /// Its content has another type.
    #[error("the stream holds {content_type}")]
    ContentType {
        /// The stream's type.
        content_type: Box<str>,
    },
    /// The sequence is not greater than that of the append before.
    #[error("the sequence has to be greater than {last:?}")]
    Sequence {
        /// That of the append before.
        last: Box<str>,
    },
    /// The producer has begun a later epoch.
    #[error("the producer was fenced: epoch {current} has appended")]
    ProducerFenced {
        /// The epoch in force.
        current: u64,
    },
    /// A producer's first append in an epoch has another number than 0.
    #[error("an epoch begins with sequence 0")]
    ProducerBegins,
    /// An append of the producer is missing.
    #[error("the producer's next sequence is {expected}, not {received}")]
    ProducerGap {
        /// The sequence that would be accepted.
        expected: u64,
        /// The sequence of the append.
        received: u64,
    },
    /// It is not of the stream group of the first that is to be appended to, or that is of none.
    #[error("the streams are not of one group")]
    OtherGroup,
    /// It was named before among those that are to be appended to together.
    #[error("the stream is named twice")]
    Repeated,
    /// What is to be appended together was appended before in part: this one was and others were not,
    /// or the other way round.
    #[error("some of it was appended before, and some was not")]
    PartlyAppended,
    /// A limit is reached.
    #[error("{name} is {limit}")]
    Limit {
        /// The limit's name.
        name: &'static str,
        /// What it is.
        limit: u64,
    },
}

//! Requests about streams by name, and their results. It does not know the callers.

use sennit_engine::{
    Content, Refusal, StreamAppend, StreamRefusal, StreamSettings, StreamStatus, Topic,
};
use sennit_model::{
    Durability, Offset, PartitionId, PartitionIndex, Retention, TopicConfig, TopicId, TopicKind,
    TopicName, limits::MEMORY_SHARD_BYTES,
};

use super::{
    control_request::ControlRefusal,
    stream_offset::{Identified, IncarnationTag, StreamOffset},
};

/// A partition, and the topic beside whose partitions it is placed.
pub(crate) type StreamPlace = (PartitionId, TopicId);

/// Where the topic of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) topic: TopicId,
    /// The topic beside whose partitions its own are placed.
    pub(crate) home: TopicId,
    pub(crate) partitions: u32,
    /// What its offsets carry.
    pub(crate) tag: IncarnationTag,
}

impl Located {
    /// Where a topic of the catalogue is.
    pub(crate) fn of(topic: &Topic) -> Self {
        let (home, partitions) = (topic.created.home, topic.config().partitions);
        let tag = IncarnationTag::of(topic.created.incarnation);
        Self { topic: topic.id(), home, partitions, tag }
    }

    /// Its first partition.
    pub(crate) fn place(self) -> StreamPlace {
        (PartitionId { topic: self.topic, index: PartitionIndex(0) }, self.home)
    }
}

/// The settings of a stream's topic.
pub(crate) fn config_of_stream(durability: Durability) -> TopicConfig {
    let bytes = (durability == Durability::Memory).then_some(MEMORY_SHARD_BYTES);
    let retention = Retention { bytes, ..Retention::FOREVER };
    TopicConfig { retention, durability, ..TopicConfig::of_kind(TopicKind::Stream) }
}

/// A stream that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// Whether it was not before.
    pub(crate) is_new: bool,
    /// How it is.
    pub(crate) status: StreamStatus,
    pub(crate) located: Located,
}

/// A stream to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateStream {
    /// Its name.
    pub(crate) name: TopicName,
    /// When what is appended is durable; fixed at creation.
    pub(crate) durability: Durability,
    /// Its settings; `fork` is filled in by whoever creates it. Of a fork, an empty content type is
    /// the source's, and a time to live or end that is not given is the source's too.
    pub(crate) settings: StreamSettings,
    /// What it begins with.
    pub(crate) content: Option<Content>,
    /// Whether that is all.
    pub(crate) closes: bool,
    /// What it is a fork of.
    pub(crate) fork: Option<ForkRequest>,
}

/// A request for a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForkRequest {
    /// The source's name.
    pub(crate) source: TopicName,
    /// Where; the source's end without.
    pub(crate) at: Option<StreamOffset>,
    /// The client's token of that position; empty without one.
    pub(crate) token: Box<str>,
    /// How far behind that, within what was appended there at once: bytes, or messages of JSON.
    pub(crate) behind: u64,
}

/// What is to be appended to a stream together with others.
#[derive(Clone, Debug)]
pub(crate) struct AppendTo {
    pub(crate) name: TopicName,
    pub(crate) append: StreamAppend,
}

/// Why nothing was appended to any of several streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TogetherFailure {
    /// Which append was refused, if it was one.
    pub(crate) which: Option<usize>,
    pub(crate) failure: StreamFailure,
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamFailure {
    /// The stream has refused it.
    #[error(transparent)]
    Stream(#[from] StreamRefusal),
    /// The stream has refused it, and says an offset: one of this stream.
    #[error("{}", .0.answer)]
    StreamAt(Identified<StreamRefusal>),
    /// The offset was given of another stream: one that had the name before.
    #[error(
        "the offset is of another stream: the one that had this name is deleted; read from offset=-1"
    )]
    OtherStream,
    /// The broker has refused it: the disk is full, the broker is shutting down, a limit is reached.
    #[error("{0}")]
    Broker(Box<ControlRefusal>),
    /// What is to be forked is not there.
    #[error("the stream to be forked does not exist")]
    SourceUnknown,
    /// What is to be forked is deleted.
    #[error("the stream to be forked is deleted")]
    SourceDeleted,
    /// The source holds something else than the fork is to hold.
    #[error("the stream to be forked holds {0}")]
    SourceContentType(Box<str>),
    /// The source ends before that.
    #[error("the stream to be forked ends at offset {0}")]
    BeyondSource(Offset),
    /// What was appended at that offset is shorter.
    #[error("what was appended at that offset is shorter than {0}")]
    BeyondAppend(u64),
    /// The topic has several partitions, and is no stream for those who read it as one.
    #[error("the topic has {0} partitions; over HTTP topics of one partition can be read")]
    Partitioned(u32),
}

impl StreamFailure {
    /// What the stream has said, if it was the stream that refused.
    pub(crate) fn refusal(&self) -> Option<&StreamRefusal> {
        match self {
            Self::Stream(refusal) => Some(refusal),
            Self::StreamAt(refusal) => Some(&refusal.answer),
            _ => None,
        }
    }

    /// The same, said by the stream with that tag.
    pub(crate) fn said_by(self, of: IncarnationTag) -> Self {
        match self {
            Self::Stream(
                answer @ (StreamRefusal::NotKept { .. }
                | StreamRefusal::BeyondEnd { .. }
                | StreamRefusal::Damaged { .. }
                | StreamRefusal::RolledBack { .. }
                | StreamRefusal::Closed { .. }),
            ) => Self::StreamAt(Identified { of, answer }),
            other => other,
        }
    }

    pub(crate) fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::UnknownTopic => StreamRefusal::Unknown.into(),
            // As streams say it themselves.
            Refusal::Limit { limit: name, value: limit } => {
                StreamRefusal::Limit { name, limit: *limit }.into()
            }
            refusal => ControlRefusal::Engine(refusal.clone()).into(),
        }
    }
}

impl From<ControlRefusal> for StreamFailure {
    fn from(refusal: ControlRefusal) -> Self {
        Self::Broker(Box::new(refusal))
    }
}

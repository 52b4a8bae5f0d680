//! The meaning of topics, groups, leases and producers. Commands go in, records and effects come out; time, the
//! journal and the batches are arguments. It knows no disk, no network, no clock.
//!
//! In reading order: a [`Command`] is decided (`append`, `decide`, `catalogue`) and becomes a [`Record`]; records
//! are applied (`apply`) to partitions and groups (`partition`, `group`); an [`Effect`] leaves for the world
//! outside (`deliver`, `read`, `timers`). A [`Checkpoint`] writes the state piece by piece, and a [`Replay`]
//! restores it.

mod admission;
mod afar_codec;
mod append;
mod apply;
mod atomic_publish;
mod attempts;
mod catalogue;
mod checkpoint;
mod classes;
mod codec;
mod command;
mod compaction;
mod content;
mod cursors;
mod dead_letter;
mod decide;
mod dedup;
mod delayed;
mod delays;
mod deliver;
mod delivery_list;
mod delivery_turn;
mod effect;
mod engine;
mod explain;
mod explanation;
mod failures;
mod fair;
mod fair_delivery;
mod filter;
mod folded;
mod gather;
mod group;
mod group_counts;
mod group_time;
mod holding;
mod interner;
mod kept;
mod lane;
mod latest;
mod lead;
mod lease;
mod leases;
mod log;
mod lost;
mod member;
mod memory_topics;
mod message_places;
mod names;
mod naming;
mod ordered;
mod pages;
mod parked;
mod partition;
mod partition_commands;
mod partitions;
mod position;
mod producer;
mod publish_rules;
mod read;
mod readers;
mod record;
mod record_codec;
mod record_error;
mod refusal;
mod replay;
mod replicated_state;
mod requeue;
mod reserved;
mod rest;
mod retry;
mod runs;
mod scheduling_codec;
mod seen_values;
mod sessions;
mod settings_hash;
mod shared;
mod slow_reader;
mod snapshot;
mod stored;
mod stream;
mod stream_append;
mod stream_codec;
mod stream_commands;
mod stream_read;
mod streams;
mod survey;
mod terms;
mod throttles;
mod tiers;
mod timer;
mod timers;
mod topic_limit;
mod tries;
mod undecided;
mod wakeups;
mod walk;
mod walks;
mod wheel;
mod workbench;

pub use afar_codec::{AFAR_HEAD_BYTES_MAX, AFAR_PAYLOAD_BYTES_MAX, DecodeError, Encoded};
pub use attempts::{FailedAttempt, FailedAttempts, FailureAnswer, FailureAnswers, FailureDecision};
pub use catalogue::{Catalogue, CatalogueGroup, CatalogueNews, Topic};
pub use checkpoint::Checkpoint;
pub use command::{
    AtomicAck, CatalogueCommand, Command, Credit, CursorClaim, CursorSetter, DeadLetters,
    DelayChange, DeliveryRun, ExplainSubject, GroupSetting, Origin, PartitionCommand, Placed,
    Publish, PublishAtomic, Read, ReaderChange, SessionId, Settle, Subscribe, Verdict,
};
pub use compaction::{CompactionPass, CompactionScope};
pub use content::Content;
pub use dead_letter::{
    HEADER_APPENDED_AT_MS, HEADER_ATTEMPTS, HEADER_FAILED_AT_MS, HEADER_REASON, HEADER_REDRIVE,
    HEADER_SOURCE_GROUP, HEADER_SOURCE_GROUP_ID, HEADER_SOURCE_OFFSET, HEADER_SOURCE_PARTITION,
    HEADER_SOURCE_TOPIC, HEADER_SOURCE_TOPIC_ID,
};
pub use effect::{
    AtomicPart, Confirmed, ConfirmedPart, DelayedRun, Delivery, Effect, GapReason,
    GroupDescription, Holding, ParkedRun, PartitionDescription, PublishNote, Settled,
};
pub use engine::{Engine, Journal, Outbox, Payloads};
pub use explanation::{Explanation, KeyDeliveries, KeyDescription, WaitReason};
pub use group_counts::GroupCounts;
pub use latest::Tombstones;
pub use log::{KeptBatch, Place};
pub use names::SourceNames;
pub use record::{
    CompactedBatch, KeptPart, KeptRun, Outcome, Record, StreamOpened, SupersededBatch,
    TopicCreated, TopicSettings,
};
pub use record_codec::RECORD_KIND_END;
pub use record_error::RecordError;
pub use refusal::{AtomicItem, Refusal};
pub use replay::{Replay, Replayed};
pub use replicated_state::ReplicatedState;
pub use settings_hash::SettingsHash;
pub use stored::Stored;
pub use stream::{
    ForkOf, OpenStream, StreamAnswer, StreamAppend, StreamAppended, StreamChunk, StreamCommand,
    StreamNote, StreamProducer, StreamRead, StreamRefusal, StreamRest, StreamSettings,
    StreamStatus, is_same_media_type, media_type,
};
pub use survey::{Findings, GroupBacklog, HoldingGroup};
pub use throttles::Throttles;
pub use walk::{
    CountBy, CountRow, Destination, Edit, FoundMessage, MessageState, Requeue, Selection, Walk,
    WalkPage, WalkVerb,
};

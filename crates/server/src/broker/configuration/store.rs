//! The stream in which the configuration is kept: a message for each change, in the order of the decisions. When
//! it has grown to a multiple of the entries, they are written once more and everything before is trimmed: a key
//! that is set a million times costs the disk no more than a few of its values. It decides nothing.

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use sennit_engine::{
    Content, Refusal, StreamAppend, StreamNote, StreamRead, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Batch, BatchBuilder, Durability, Message, Messages, Offset, PartitionIndex, ReadFrom,
    TopicName, limits::BATCH_MESSAGES_MAX,
};

use super::change::{ConfigurationChange, KeptConfiguration};
use crate::{
    broker::{
        control,
        control_request::{ControlRefusal, ControlRequest, PartitionOffset},
        stream_request::{CreateStream, StreamFailure},
        streams::Streams,
    },
    identity::principal::Principal,
    runtime::core::CoreHandle,
};

/// The stream's name, which no client's stream has.
const STREAM: &str = "__ds/configuration";

/// Bytes of changes before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the changes may get.
const GROWN_TIMES: usize = 4;

/// Bytes that are read at once.
const READ_BYTES: u64 = 4 << 20;
/// Bytes that are appended at once.
pub(super) const APPENDED_BYTES: usize = 4 << 20;

/// What the stream gives back when the broker starts.
#[derive(Debug)]
pub(super) enum Found {
    Kept(KeptConfiguration),
    /// So many messages cannot be read; each may have been a change.
    Missing(u64),
}

/// A part of the stream.
#[derive(Debug)]
pub(super) struct ReadOn {
    pub(super) found: Vec<Found>,
    /// Where the next part begins.
    pub(super) next: Offset,
    /// Whether nothing follows by now.
    pub(super) is_up_to_date: bool,
}

/// The stream that the configuration is kept in.
#[derive(Debug)]
pub(super) struct Store {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
    /// Bytes since all of it was written.
    grown_bytes: Cell<usize>,
}

impl Store {
    pub(super) fn new(core: CoreHandle) -> Self {
        let name = STREAM.parse().expect("the name of the broker's own stream is one");
        Self { streams: Streams::new(core.clone()), core, name, grown_bytes: Cell::new(0) }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &TopicName {
        &self.name
    }

    /// Reads what was kept, from the first message on. Unreadable parts are left out, and told.
    pub(super) async fn read(&self, mut take: impl FnMut(Found)) -> Result<(), StreamFailure> {
        let mut at = None;
        loop {
            let read = StreamRead {
                at: at.map_or(ReadFrom::Earliest, ReadFrom::Offset),
                before: None,
                bytes_max: READ_BYTES,
                waits: false,
                one_append: false,
                for_fork: false,
            };
            let chunk = match self.streams.read(&Principal::broker(), &self.name, None, read).await
            {
                Ok(chunk) => chunk.answer,
                Err(failure) => match failure.refusal() {
                    Some(StreamRefusal::Unknown) => return Ok(()),
                    Some(StreamRefusal::Damaged { next }) => {
                        tracing::error!(next = next.0, "a part of the configuration is damaged");
                        take(Found::Missing(next.0 - at.map_or(0, |at: Offset| at.0)));
                        at = Some(*next);
                        continue;
                    }
                    _ => return Err(failure),
                },
            };
            for message in chunk.messages.iter().flat_map(|part| Messages::of_checked(part)) {
                take(self.found(message.key(), message.payload()));
            }
            if chunk.is_up_to_date || chunk.next <= chunk.first {
                return Ok(());
            }
            at = Some(chunk.next);
        }
    }

    /// The content of a message.
    fn found(&self, key: &[u8], payload: &[u8]) -> Found {
        self.grow(key.len() + payload.len());
        match KeptConfiguration::decode(key, payload) {
            Ok(kept) => Found::Kept(kept),
            Err(error) => {
                tracing::error!(%error, "a change of the configuration cannot be read");
                Found::Missing(1)
            }
        }
    }

    /// Reads what follows an offset, or from the first message on; waits for it, if it is to. Unreadable parts are left out, and told.
    pub(super) async fn read_on(
        &self,
        at: Option<Offset>,
        waits: bool,
    ) -> Result<ReadOn, StreamFailure> {
        let read = StreamRead {
            at: at.map_or(ReadFrom::Earliest, ReadFrom::Offset),
            before: None,
            bytes_max: READ_BYTES,
            waits,
            one_append: false,
            for_fork: false,
        };
        match self.streams.read(&Principal::broker(), &self.name, None, read).await {
            Ok(chunk) => {
                let chunk = chunk.answer;
                let mut found = Vec::new();
                for message in chunk.messages.iter().flat_map(|part| Messages::of_checked(part)) {
                    found.push(self.found(message.key(), message.payload()));
                }
                let is_up_to_date = chunk.is_up_to_date || chunk.next <= chunk.first;
                Ok(ReadOn { found, next: chunk.next, is_up_to_date })
            }
            Err(failure) => match failure.refusal() {
                Some(&StreamRefusal::Damaged { next }) => {
                    let missing = next.0 - at.map_or(0, |at| at.0);
                    let found = vec![Found::Missing(missing)];
                    Ok(ReadOn { found, next, is_up_to_date: false })
                }
                _ => Err(failure),
            },
        }
    }

    /// Where the stream ends; 0 if there is none yet.
    pub(super) async fn end(&self) -> Result<Offset, StreamFailure> {
        match self.streams.status(&Principal::broker(), &self.name, false).await {
            Ok(status) => Ok(status.answer.next),
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => Ok(Offset(0)),
            Err(failure) => Err(failure),
        }
    }

    /// Appends changes at this offset; returns where the stream ends then, and nothing if it ends elsewhere: then nothing is
    /// appended.
    pub(super) async fn append_at(
        &self,
        at: Offset,
        changes: &[ConfigurationChange],
    ) -> Result<Option<Offset>, StreamFailure> {
        let kept = changes.iter().cloned().map(KeptConfiguration::Change);
        let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
        for message in kept.map(|kept| kept.message()) {
            batch.push(&message).expect("keys, values and their number have limits");
        }
        let Some(batch) = batch.take() else { return Ok(Some(at)) };
        self.append_batch_at(at, batch).await
    }

    async fn append_batch_at(
        &self,
        at: Offset,
        batch: Batch,
    ) -> Result<Option<Offset>, StreamFailure> {
        let appended = match self.streams.append_at(&self.name, at, batch.clone()).await {
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) if at == Offset(0) => {
                self.create().await?;
                self.streams.append_at(&self.name, at, batch.clone()).await
            }
            appended => appended,
        };
        Ok(appended?.then(|| at.plus(batch.count().into())))
    }

    /// Appends changes, all or none, and waits until they are durable.
    pub(super) async fn append(
        &self,
        changes: &[ConfigurationChange],
    ) -> Result<(), StreamFailure> {
        let kept = changes.iter().cloned().map(KeptConfiguration::Change);
        self.append_messages(kept.map(|kept| kept.message())).await.map(drop)
    }

    /// Whether so much has changed since all of it was written, which has these bytes now, that it is to be
    /// written again.
    pub(super) fn has_grown(&self, whole_bytes: usize) -> bool {
        self.grown_bytes.get() > GROWN_BYTES_MIN.max(GROWN_TIMES * whole_bytes)
    }

    /// Writes all entries of this revision and trims what lies before them; in a cluster from this offset on, as long as no other
    /// node appends something. Appends that fail are made good by the next time.
    pub(super) async fn write_again(
        &self,
        revision: u64,
        entries: Vec<ConfigurationChange>,
        mut at: Option<Offset>,
    ) -> Result<(), StreamFailure> {
        let mut first = None;
        let mut whole_bytes = 0;
        let begin = KeptConfiguration::WrittenAgain { revision };
        let entries = entries.into_iter().map(KeptConfiguration::Change);
        let mut messages =
            std::iter::once(begin).chain(entries).map(|kept| kept.message()).peekable();
        while messages.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some(message) = messages.next_if(|message| {
                let with = bytes + BatchBuilder::encoded_len(message);
                part.is_empty() || (with <= APPENDED_BYTES && part.len() < BATCH_MESSAGES_MAX)
            }) {
                bytes += BatchBuilder::encoded_len(&message);
                whole_bytes += message.key.len() + message.payload.len();
                part.push(message);
            }
            let count = part.len() as u64;
            let next = match at {
                Some(expected) => self.append_messages_at(expected, &part).await?,
                None => self.append_messages(part.into_iter()).await?,
            };
            at = at.map(|_| next);
            first = first.or(Some(Offset(next.0 - count)));
        }
        let first = first.expect("the first message says the revision");
        let positions = vec![PartitionOffset { partition: PartitionIndex(0), offset: first }];
        let trim = ControlRequest::TrimTopic { topic: self.name.clone(), positions };
        let session = self.core.cores.own_session(self.core.index);
        let trimmed = control::ask(&self.core.cores, session, Principal::broker(), trim).await;
        trimmed.map_err(|_| ControlRefusal::ShuttingDown)??;
        self.grown_bytes.set(0);
        tracing::debug!(revision, whole_bytes, "the configuration was written again");
        Ok(())
    }

    async fn append_messages_at(
        &self,
        at: Offset,
        messages: &[Message],
    ) -> Result<Offset, StreamFailure> {
        let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
        for message in messages {
            batch.push(message).expect("keys, values and their number have limits");
        }
        let Some(batch) = batch.take() else { return Ok(at) };
        let appended = self.append_batch_at(at, batch).await?;
        // Another node changes something: it is written again another time.
        appended.ok_or_else(|| {
            ControlRefusal::from(Refusal::OffsetMismatch { expected: at, next: at }).into()
        })
    }

    fn grow(&self, bytes: usize) {
        self.grown_bytes.set(self.grown_bytes.get().saturating_add(bytes));
    }

    /// Appends once; returns where the stream ends then.
    async fn append_messages(
        &self,
        messages: impl Iterator<Item = Message>,
    ) -> Result<Offset, StreamFailure> {
        let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
        for message in messages {
            self.grow(message.key.len() + message.payload.len());
            batch.push(&message).expect("keys, values and their number have limits");
        }
        let content = batch.take().map(Content::from);
        let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
        match self.try_append(&append).await {
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => {
                self.create().await?;
                self.try_append(&append).await
            }
            appended => appended,
        }
    }

    async fn try_append(&self, append: &StreamAppend) -> Result<Offset, StreamFailure> {
        let append = || Some(Box::new(append.clone()));
        let appended = self.streams.append(&Principal::broker(), &self.name, append).await?;
        Ok(appended.answer.next)
    }

    async fn create(&self) -> Result<(), StreamFailure> {
        let create = CreateStream {
            name: self.name.clone(),
            durability: Durability::Durable,
            settings: StreamSettings::of_topic(),
            content: None,
            closes: false,
            fork: None,
        };
        self.streams.create(&Principal::broker(), create).await.map(drop)
    }
}

/// Room for the bytes of a change, as [`APPENDED_BYTES`] counts them.
pub(super) fn appended_bytes(key: &str, value: Option<&Bytes>) -> usize {
    64 + key.len() + value.map_or(0, Bytes::len)
}

//! The stream in which the configuration is kept: a message for each change, in the order of the decisions. When
//! it has grown to a multiple of the entries, they are written once more and everything before is trimmed: a key
//! that is set a million times costs the disk no more than a few of its values. It decides nothing.

use std::cell::Cell;

use bytes::Bytes;
use sennit_engine::{StreamRefusal, StreamSettings};
use sennit_model::{Batch, BatchBuilder, Message, Offset, TopicName, limits::BATCH_MESSAGES_MAX};

use super::change::{ConfigurationChange, KeptConfiguration};
use crate::{
    broker::{kept_stream::KeptStream, stream_request::StreamFailure},
    runtime::core::CoreHandle,
};

/// The stream's name, which no client's stream has.
const STREAM: &str = "__ds/configuration";

/// Bytes of changes before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the changes may get.
const GROWN_TIMES: usize = 4;

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
    stream: KeptStream,
    /// Bytes since all of it was written.
    grown_bytes: Cell<usize>,
}

impl Store {
    pub(super) fn new(core: CoreHandle) -> Self {
        let name = STREAM.parse().expect("the name of the broker's own stream is one");
        let stream = KeptStream::new(core, &name, StreamSettings::of_topic());
        Self { stream, grown_bytes: Cell::new(0) }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &TopicName {
        self.stream.name()
    }

    /// Reads what was kept, from the first message on. Unreadable parts are left out, and told.
    pub(super) async fn read(&self, mut take: impl FnMut(Found)) -> Result<(), StreamFailure> {
        let mut at = None;
        loop {
            let read = match self.read_on(at, false).await {
                Err(StreamFailure::Stream(StreamRefusal::Unknown)) => return Ok(()),
                read => read?,
            };
            read.found.into_iter().for_each(&mut take);
            if read.is_up_to_date {
                return Ok(());
            }
            at = Some(read.next);
        }
    }

    /// Reads what follows an offset, or from the first message on; waits for it, if it is to. Unreadable parts are left out, and told.
    pub(super) async fn read_on(
        &self,
        at: Option<Offset>,
        waits: bool,
    ) -> Result<ReadOn, StreamFailure> {
        let part = self.stream.read(at, waits).await?;
        let kept = part.messages().map(|message| self.found(message.key(), message.payload()));
        let missing = Some(part.missing).filter(|&missing| missing > 0).map(Found::Missing);
        let found = missing.into_iter().chain(kept).collect();
        Ok(ReadOn { found, next: part.next, is_up_to_date: part.is_up_to_date })
    }

    /// The content of a message.
    fn found(&self, key: &[u8], payload: &[u8]) -> Found {
        self.grow(key.len() + payload.len());
        match KeptConfiguration::decode(key, payload) {
            Ok(kept) => {
                // All of it follows, whichever node has written it again.
                if matches!(kept, KeptConfiguration::WrittenAgain { .. }) {
                    self.grown_bytes.set(0);
                }
                Found::Kept(kept)
            }
            Err(error) => {
                tracing::error!(%error, "a change of the configuration cannot be read");
                Found::Missing(1)
            }
        }
    }

    /// Where the stream ends; 0 if there is none yet.
    pub(super) async fn end(&self) -> Result<Offset, StreamFailure> {
        self.stream.end().await
    }

    /// Appends changes at this offset; returns where the stream ends then, and nothing if it ends elsewhere: then nothing is
    /// appended.
    pub(super) async fn append_at(
        &self,
        at: Offset,
        changes: &[ConfigurationChange],
    ) -> Result<Option<Offset>, StreamFailure> {
        self.stream.append_at(at, batch_of(&messages_of(changes))).await
    }

    /// Appends changes, all or none, and waits until they are durable.
    pub(super) async fn append(
        &self,
        changes: &[ConfigurationChange],
    ) -> Result<(), StreamFailure> {
        let messages = messages_of(changes);
        messages.iter().for_each(|message| self.grow(message.key.len() + message.payload.len()));
        self.stream.append(batch_of(&messages)).await.map(drop)
    }

    /// Whether so much has changed since all of it was written, which has these bytes now, that it is to be
    /// written again.
    pub(super) fn has_grown(&self, whole_bytes: usize) -> bool {
        self.grown_bytes.get() > GROWN_BYTES_MIN.max(GROWN_TIMES * whole_bytes)
    }

    /// Writes all entries of this revision and trims what lies before them; in a cluster from this offset on, unless another node
    /// appends something. Appends that fail are made good by the next time.
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
            let batch = batch_of(&part);
            let next = match at {
                Some(expected) => match self.stream.append_at(expected, batch).await? {
                    Some(next) => next,
                    // Another node has changed something: once that is read, it is tried again if there is still need.
                    None => return Ok(()),
                },
                None => self.stream.append(batch).await?,
            };
            at = at.map(|_| next);
            first = first.or(Some(Offset(next.0 - count)));
        }
        let first = first.expect("the first message says the revision");
        self.stream.trim(first).await?;
        self.grown_bytes.set(0);
        tracing::debug!(revision, whole_bytes, "the configuration was written again");
        Ok(())
    }

    fn grow(&self, bytes: usize) {
        self.grown_bytes.set(self.grown_bytes.get().saturating_add(bytes));
    }
}

fn messages_of(changes: &[ConfigurationChange]) -> Vec<Message> {
    let kept = changes.iter().cloned().map(KeptConfiguration::Change);
    kept.map(|kept| kept.message()).collect()
}

/// Messages as a batch; nothing without one.
fn batch_of(messages: &[Message]) -> Option<Batch> {
    let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
    for message in messages {
        batch.push(message).expect("keys, values and their number have limits");
    }
    batch.take()
}

/// Room for the bytes of a change, as [`APPENDED_BYTES`] counts them.
pub(super) fn appended_bytes(key: &str, value: Option<&Bytes>) -> usize {
    64 + key.len() + value.map_or(0, Bytes::len)
}

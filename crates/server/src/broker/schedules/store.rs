//! The stream in which schedules are kept: a message for each change and each step, in their order. When it has grown
//! to a multiple of what there is, all of it is written once more and everything before is trimmed. It decides nothing.

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use sennit_engine::{Content, StreamAppend, StreamNote, StreamRead, StreamRefusal, StreamSettings};
use sennit_model::{
    BatchBuilder, Durability, Message, Messages, Offset, PartitionIndex, ReadFrom, TopicName,
};

use super::kept::Kept;
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
const STREAM: &str = "__ds/schedules";

/// Bytes of texts before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the texts may get.
const GROWN_TIMES: usize = 4;

/// Bytes that are read at once.
const READ_BYTES: u64 = 4 << 20;
/// Bytes that are appended at once.
const APPENDED_BYTES: usize = 4 << 20;
/// Bytes of texts in one append.
const APPENDED_TEXTS_BYTES: usize = 1 << 20;
/// Most texts in one append.
const APPENDED_TEXTS: usize = 4096;

/// The stream that schedules are kept in.
#[derive(Debug)]
pub(super) struct Store {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
    /// Bytes since all of it was written.
    grown_bytes: Cell<usize>,
    /// Whether all of it is being written.
    is_written_again: Cell<bool>,
}

impl Store {
    pub(super) fn new(core: CoreHandle) -> Self {
        Self {
            streams: Streams::new(core.clone()),
            core,
            name: STREAM.parse().expect("the name of the broker's own stream is one"),
            grown_bytes: Cell::new(0),
            is_written_again: Cell::new(false),
        }
    }

    /// The stream's name.
    pub(super) fn name(&self) -> &TopicName {
        &self.name
    }

    /// Reads what was kept, from the first message on. Unreadable parts are left out, and told.
    pub(super) async fn read(&self, mut take: impl FnMut(Kept)) -> Result<(), StreamFailure> {
        let mut at = ReadFrom::Earliest;
        loop {
            let read = StreamRead {
                at,
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
                        tracing::error!(next = next.0, "a part of the schedules is damaged");
                        at = ReadFrom::Offset(*next);
                        continue;
                    }
                    _ => return Err(failure),
                },
            };
            for message in chunk.messages.iter().flat_map(|part| Messages::of_checked(part)) {
                self.grow(message.payload().len());
                match Kept::decode(message.payload()) {
                    Ok(kept) => take(kept),
                    Err(error) => tracing::error!(%error, "a text of a schedule cannot be read"),
                }
            }
            if chunk.is_up_to_date || chunk.next <= chunk.first {
                return Ok(());
            }
            at = ReadFrom::Offset(chunk.next);
        }
    }

    /// Appends a text, and waits until it is durable.
    pub(super) async fn append(&self, kept: &Kept) -> Result<(), StreamFailure> {
        self.append_texts(vec![kept.encode()]).await.map(drop)
    }

    /// Whether so much was appended since all of it was written, which has these bytes now, that it is to be written
    /// again.
    pub(super) fn has_grown(&self, whole_bytes: usize) -> bool {
        !self.is_written_again.get()
            && self.grown_bytes.get() > GROWN_BYTES_MIN.max(GROWN_TIMES * whole_bytes)
    }

    /// Writes everything and trims what lies before it. `all` gives what there is; nothing may be appended
    /// meanwhile. Appends that fail are made good by the next time.
    pub(super) async fn write_again(&self, all: Vec<Kept>) -> Result<(), StreamFailure> {
        self.is_written_again.set(true);
        let written = self.write_all(all).await;
        self.is_written_again.set(false);
        written
    }

    async fn write_all(&self, all: Vec<Kept>) -> Result<(), StreamFailure> {
        let mut first = None;
        let (mut part, mut bytes) = (Vec::new(), 0);
        let mut texts = all.iter().map(Kept::encode).peekable();
        while let Some(text) = texts.next() {
            bytes += text.len();
            part.push(text);
            let is_full = |next: &Bytes| {
                bytes + next.len() > APPENDED_TEXTS_BYTES || part.len() >= APPENDED_TEXTS
            };
            if texts.peek().is_none_or(is_full) {
                let count = part.len() as u64;
                let next = self.append_texts(std::mem::take(&mut part)).await?;
                first = first.or(Some(Offset(next.0 - count)));
                bytes = 0;
            }
        }
        let Some(first) = first else { return Ok(()) };
        let positions = vec![PartitionOffset { partition: PartitionIndex(0), offset: first }];
        let trim = ControlRequest::TrimTopic { topic: self.name.clone(), positions };
        let session = self.core.cores.own_session(self.core.index);
        let trimmed = control::ask(&self.core.cores, session, Principal::broker(), trim).await;
        trimmed.map_err(|_| ControlRefusal::ShuttingDown)??;
        self.grown_bytes.set(0);
        Ok(())
    }

    fn grow(&self, bytes: usize) {
        self.grown_bytes.set(self.grown_bytes.get().saturating_add(bytes));
    }

    /// Appends once; returns where the stream ends then.
    async fn append_texts(&self, texts: Vec<Bytes>) -> Result<Offset, StreamFailure> {
        let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
        for text in texts {
            self.grow(text.len());
            batch.push(&Message::new(text)).expect("schedules have limits");
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

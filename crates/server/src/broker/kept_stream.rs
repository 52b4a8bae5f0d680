//! A stream of the broker's own, in which a part of the broker keeps what it has to know after a start. It is made when something is
//! first appended, wherever it ends or at one offset alone. It knows no content.

use std::rc::Rc;

use bytes::Bytes;
use sennit_engine::{Content, StreamAppend, StreamNote, StreamRead, StreamRefusal, StreamSettings};
use sennit_model::{
    Batch, Durability, MessageView, Messages, Offset, PartitionIndex, ReadFrom, TopicName,
};

use super::{
    control,
    control_request::{ControlRefusal, ControlRequest, PartitionOffset},
    stream_request::{CreateStream, StreamFailure},
    streams::Streams,
};
use crate::{identity::principal::Principal, runtime::core::CoreHandle};

/// Bytes that are read at once.
const READ_BYTES: u64 = 4 << 20;

/// See the file's page.
#[derive(Debug)]
pub(crate) struct KeptStream {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
    settings: StreamSettings,
}

/// A part of the stream.
#[derive(Debug, Default)]
pub(crate) struct KeptPart {
    /// Whole messages, encoded.
    encoded: Vec<Bytes>,
    /// How many messages cannot be read: there is none in this part then.
    pub(crate) missing: u64,
    /// Where the next part begins.
    pub(crate) next: Offset,
    /// Whether nothing follows by now.
    pub(crate) is_up_to_date: bool,
}

impl KeptPart {
    /// Its messages.
    pub(crate) fn messages(&self) -> impl Iterator<Item = MessageView<'_>> {
        self.encoded.iter().flat_map(|messages| Messages::of_checked(messages))
    }
}

impl KeptStream {
    /// The stream of this name, made with these settings.
    pub(crate) fn new(core: CoreHandle, name: &TopicName, settings: StreamSettings) -> Self {
        Self { streams: Streams::new(core.clone()), core, name: name.clone(), settings }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &TopicName {
        &self.name
    }

    /// Reads what follows an offset, or from the first message on; waits for it, if it is to.
    ///
    /// # Errors
    /// It cannot be read, or there is none yet. A damaged part is no error.
    pub(crate) async fn read(
        &self,
        at: Option<Offset>,
        waits: bool,
    ) -> Result<KeptPart, StreamFailure> {
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
                let is_up_to_date = chunk.is_up_to_date || chunk.next <= chunk.first;
                Ok(KeptPart {
                    encoded: chunk.messages,
                    missing: 0,
                    next: chunk.next,
                    is_up_to_date,
                })
            }
            Err(failure) => match failure.refusal() {
                Some(&StreamRefusal::Damaged { next }) => {
                    let stream = self.name.as_str();
                    tracing::error!(stream, next = next.0, "a part of the stream is damaged");
                    let missing = next.0 - at.map_or(0, |at| at.0);
                    Ok(KeptPart { missing, next, ..KeptPart::default() })
                }
                _ => Err(failure),
            },
        }
    }

    /// Where it ends; 0 if there is none yet.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) async fn end(&self) -> Result<Offset, StreamFailure> {
        match self.streams.status(&Principal::broker(), &self.name, false).await {
            Ok(status) => Ok(status.answer.next),
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => Ok(Offset(0)),
            Err(failure) => Err(failure),
        }
    }

    /// Appends wherever it ends, and waits until that is durable; returns where it ends then.
    ///
    /// # Errors
    /// The batch is not known to be there.
    pub(crate) async fn append(&self, batch: Option<Batch>) -> Result<Offset, StreamFailure> {
        let content = batch.map(Content::from);
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

    /// Appends at this offset, and waits until that is durable; returns where it ends then, and nothing if it ends elsewhere: then
    /// nothing is appended.
    ///
    /// # Errors
    /// The batch is not known to be there.
    pub(crate) async fn append_at(
        &self,
        at: Offset,
        batch: Option<Batch>,
    ) -> Result<Option<Offset>, StreamFailure> {
        let Some(batch) = batch else { return Ok(Some(at)) };
        let appended = match self.streams.append_at(&self.name, at, batch.clone()).await {
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) if at == Offset(0) => {
                self.create().await?;
                self.streams.append_at(&self.name, at, batch.clone()).await
            }
            appended => appended,
        };
        Ok(appended?.then(|| at.plus(batch.count().into())))
    }

    async fn create(&self) -> Result<(), StreamFailure> {
        let create = CreateStream {
            name: self.name.clone(),
            durability: Durability::Durable,
            settings: self.settings.clone(),
            content: None,
            closes: false,
            fork: None,
        };
        self.streams.create(&Principal::broker(), create).await.map(drop)
    }

    /// Trims what lies before an offset.
    ///
    /// # Errors
    /// It is not trimmed yet.
    pub(crate) async fn trim(&self, first: Offset) -> Result<(), StreamFailure> {
        let positions = vec![PartitionOffset { partition: PartitionIndex(0), offset: first }];
        let trim = ControlRequest::TrimTopic { topic: self.name.clone(), positions };
        let session = self.core.cores.own_session(self.core.index);
        let trimmed = control::ask(&self.core.cores, session, Principal::broker(), trim).await;
        trimmed.map_err(|_| ControlRefusal::ShuttingDown)??;
        Ok(())
    }
}

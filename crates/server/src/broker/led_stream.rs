//! A stream of the broker's own that is written where the catalogue is led. A broker alone appends to it. A node of a cluster appends where
//! the stream ends as far as it knows, and nowhere else: if another node has written, nothing is appended, and what this one
//! knows is over. So that a leader before it appends nothing more, a new one writes first that it leads.

use std::rc::Rc;

use bytes::Bytes;
use sennit_engine::{
    Content, Refusal, StreamAppend, StreamNote, StreamRead, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Batch, BatchBuilder, Durability, Message, Messages, Offset, PartitionIndex, ReadFrom, TopicName,
};
use tokio::sync::Mutex;

use super::{
    control,
    control_peers::ControlPeers,
    control_request::{ControlRefusal, ControlRequest, PartitionOffset},
    stream_request::{CreateStream, StreamFailure},
    streams::Streams,
    where_led::Ending,
};
use crate::{
    identity::principal::Principal,
    runtime::{core::CoreHandle, groups::Leader, index::ShardIndex},
};

/// Bytes that are read at once.
const READ_BYTES: u64 = 4 << 20;

/// The beginning of the text by which a node says that it leads; no other text begins so.
const LEADS: &[u8] = b"{\"led_by\":";

/// Why texts are not known to be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LedAppendError {
    /// Nothing was appended, and it can be tried again.
    #[error(transparent)]
    Refused(#[from] StreamFailure),
    /// Nothing was appended: another node has written, and this one knows nothing of that.
    #[error("another node leads")]
    Superseded,
    /// It is not known whether it was appended.
    #[error("it is not known whether that was kept")]
    Unknown,
}

/// See the file's page.
#[derive(Debug)]
pub(crate) struct LedStream {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
    settings: StreamSettings,
    led: Option<LedEnd>,
    ending: Rc<Ending>,
}

/// Where the stream ends, as far as this node knows.
#[derive(Debug)]
struct LedEnd {
    peers: Rc<ControlPeers>,
    /// The term that this node leads.
    term: Option<u64>,
    /// Held while something is appended.
    end: Mutex<Offset>,
}

impl LedEnd {
    /// The text by which this node says that it leads.
    fn text(&self) -> Bytes {
        let (node, term) = (self.peers.groups.node, self.term.unwrap_or_default());
        [LEADS, format!("{node},\"term\":{term}}}").as_bytes()].concat().into()
    }

    /// Whether this node has led since it has read the stream, and no other node does now: what it knows was decided.
    fn still_leads(&self) -> bool {
        self.term.is_some() && self.term == term(&self.peers) && self.peers.has_lease()
    }
}

impl LedStream {
    /// The stream of this name, made with these settings when it is first written to. It ends `ending` when another node may have
    /// written.
    pub(crate) fn new(
        core: CoreHandle,
        name: &TopicName,
        settings: StreamSettings,
        peers: Option<Rc<ControlPeers>>,
        ending: Rc<Ending>,
    ) -> Self {
        let led =
            peers.map(|peers| LedEnd { term: term(&peers), end: Mutex::new(Offset(0)), peers });
        let streams = Streams::new(core.clone());
        Self { core, streams, name: name.clone(), settings, led, ending }
    }

    /// Gives all texts, from the first on, and has nobody before append any more. Unreadable parts are left out, and told.
    ///
    /// # Errors
    /// The stream cannot be read, or it cannot be said that this node leads.
    pub(crate) async fn take_over(&self, mut take: impl FnMut(&[u8])) -> Result<(), StreamFailure> {
        let mut at = ReadFrom::Earliest;
        loop {
            let end = self.read_on(at, &mut take).await?;
            let Some((led, end)) = self.led.as_ref().zip(end) else { return Ok(()) };
            // If another node has written meanwhile, that is read too.
            if let Some(end) = self.append_at(end, batch_of(&[led.text()])).await? {
                *led.end.lock().await = end;
                return Ok(());
            }
            at = ReadFrom::Offset(end);
        }
    }

    /// Gives the texts behind an offset; returns where the stream ends, if there is one.
    async fn read_on(
        &self,
        mut at: ReadFrom,
        take: &mut impl FnMut(&[u8]),
    ) -> Result<Option<Offset>, StreamFailure> {
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
                    Some(StreamRefusal::Unknown) => return Ok(None),
                    Some(StreamRefusal::Damaged { next }) => {
                        let stream = self.name.as_str();
                        tracing::error!(stream, next = next.0, "a part of the stream is damaged");
                        at = ReadFrom::Offset(*next);
                        continue;
                    }
                    _ => return Err(failure),
                },
            };
            let messages = chunk.messages.iter().flat_map(|part| Messages::of_checked(part));
            for message in messages.filter(|message| !message.payload().starts_with(LEADS)) {
                take(message.payload());
            }
            if chunk.is_up_to_date || chunk.next <= chunk.first {
                return Ok(Some(chunk.next));
            }
            at = ReadFrom::Offset(chunk.next);
        }
    }

    /// Appends texts, all or none, and waits until they are durable; returns where the stream ends then.
    ///
    /// # Errors
    /// They are not known to be there.
    pub(crate) async fn append(&self, texts: &[Bytes]) -> Result<Offset, LedAppendError> {
        let batch = batch_of(texts);
        let Some(led) = &self.led else { return Ok(self.append_here(batch).await?) };
        let mut end = led.end.lock().await;
        if self.ending.is_over() {
            return Err(LedAppendError::Superseded);
        }
        if !led.still_leads() {
            return Err(StreamFailure::from(ControlRefusal::from(Refusal::NoLeader)).into());
        }
        match self.append_at(*end, batch).await {
            Ok(Some(next)) => {
                *end = next;
                Ok(next)
            }
            Ok(None) => {
                self.ending.end();
                Err(LedAppendError::Superseded)
            }
            Err(failure) if is_unknown(&failure) => {
                self.ending.end();
                Err(LedAppendError::Unknown)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// The stream is there, and was not before: if this node has not made it, another may have written to it.
    pub(crate) fn appeared(&self) {
        let end = self.led.as_ref().and_then(|led| led.end.try_lock().ok());
        if end.is_some_and(|end| *end == Offset(0)) {
            self.ending.end();
        }
    }

    /// Where the stream ends; nothing if that cannot be said.
    pub(crate) async fn end(&self) -> Option<Offset> {
        match &self.led {
            Some(led) => Some(*led.end.lock().await),
            None => {
                let status = self.streams.status(&Principal::broker(), &self.name, false).await;
                status.ok().map(|status| status.answer.next)
            }
        }
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

    async fn append_here(&self, batch: Option<Batch>) -> Result<Offset, StreamFailure> {
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

    /// Appends at an offset; nothing if the stream ends elsewhere.
    async fn append_at(
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
}

/// Texts as a batch; nothing without one.
fn batch_of(texts: &[Bytes]) -> Option<Batch> {
    let bytes: usize = texts.iter().map(Bytes::len).sum();
    let bytes = bytes + texts.len() * sennit_model::limits::MESSAGE_BYTES_MIN;
    let mut batch = BatchBuilder::for_append(bytes);
    for text in texts {
        if let Err(error) = batch.push(&Message::new(text.clone())) {
            tracing::error!(%error, "a text of the broker's own cannot be kept");
        }
    }
    batch.take()
}

/// The term in which this node leads the catalogue, if it does.
fn term(peers: &ControlPeers) -> Option<u64> {
    match peers.groups.leader_of(ShardIndex::CATALOGUE) {
        Leader::Here { term } => Some(term),
        Leader::Node { .. } | Leader::Unknown => None,
    }
}

/// Whether what was to be appended may be there all the same.
fn is_unknown(failure: &StreamFailure) -> bool {
    let StreamFailure::Broker(refusal) = failure else { return false };
    matches!(
        **refusal,
        ControlRefusal::Engine(Refusal::OutcomeUnknown) | ControlRefusal::ShuttingDown
    )
}

//! A stream of the broker's own that is written where the catalogue is led. A broker alone appends to it. A node of a cluster appends where
//! the stream ends as far as it knows, and nowhere else: if another node has written, nothing is appended, and what this one
//! knows is over. So that a leader before it appends nothing more, a new one writes first that it leads.

use std::rc::Rc;

use bytes::Bytes;
use sennit_engine::{Refusal, StreamRefusal, StreamSettings};
use sennit_model::{Batch, BatchBuilder, Message, Offset, TopicName};
use tokio::sync::Mutex;

use super::{
    control_peers::ControlPeers, control_request::ControlRefusal, kept_stream::KeptStream,
    stream_request::StreamFailure, where_led::Ending,
};
use crate::runtime::{core::CoreHandle, groups::Leader, index::ShardIndex};

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
    stream: KeptStream,
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
        Self { stream: KeptStream::new(core, name, settings), led, ending }
    }

    /// Gives all texts, from the first on, and has nobody before append any more. Unreadable parts are left out, and told.
    ///
    /// # Errors
    /// The stream cannot be read, or it cannot be said that this node leads.
    pub(crate) async fn take_over(&self, mut take: impl FnMut(&[u8])) -> Result<(), StreamFailure> {
        let mut at = None;
        loop {
            let end = self.read_on(at, &mut take).await?;
            let Some((led, end)) = self.led.as_ref().zip(end) else { return Ok(()) };
            // If another node has written meanwhile, that is read too.
            if let Some(end) = self.stream.append_at(end, batch_of(&[led.text()])).await? {
                *led.end.lock().await = end;
                return Ok(());
            }
            at = Some(end);
        }
    }

    /// Gives the texts behind an offset, or from the first on; returns where the stream ends, if there is one.
    async fn read_on(
        &self,
        mut at: Option<Offset>,
        take: &mut impl FnMut(&[u8]),
    ) -> Result<Option<Offset>, StreamFailure> {
        loop {
            let part = match self.stream.read(at, false).await {
                Err(StreamFailure::Stream(StreamRefusal::Unknown)) => return Ok(None),
                part => part?,
            };
            for message in part.messages().filter(|message| !message.payload().starts_with(LEADS)) {
                take(message.payload());
            }
            if part.is_up_to_date {
                return Ok(Some(part.next));
            }
            at = Some(part.next);
        }
    }

    /// Appends texts, all or none, and waits until they are durable; returns where the stream ends then.
    ///
    /// # Errors
    /// They are not known to be there.
    pub(crate) async fn append(&self, texts: &[Bytes]) -> Result<Offset, LedAppendError> {
        let batch = batch_of(texts);
        let Some(led) = &self.led else { return Ok(self.stream.append(batch).await?) };
        let mut end = led.end.lock().await;
        if self.ending.is_over() {
            return Err(LedAppendError::Superseded);
        }
        if !led.still_leads() {
            return Err(StreamFailure::from(ControlRefusal::from(Refusal::NoLeader)).into());
        }
        match self.stream.append_at(*end, batch).await {
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
            None => self.stream.end().await.ok(),
        }
    }

    /// Trims what lies before an offset.
    ///
    /// # Errors
    /// It is not trimmed yet.
    pub(crate) async fn trim(&self, first: Offset) -> Result<(), StreamFailure> {
        self.stream.trim(first).await
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

//! The stream in which schedules are kept: a message for each change and each step, in their order. When it has grown
//! to a multiple of what there is, all of it is written once more and everything before is trimmed. It decides nothing.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use bytes::Bytes;
use sennit_engine::StreamSettings;
use sennit_model::{Offset, TopicName};
use tokio::sync::{Mutex, oneshot};

use super::kept::Kept;
use crate::{
    broker::{
        control_peers::ControlPeers,
        led_stream::{LedAppendError, LedStream},
        stream_request::StreamFailure,
        where_led::Ending,
    },
    runtime::core::CoreHandle,
};

/// The stream's name, which no client's stream has.
pub(super) const STREAM: &str = "__ds/schedules";

/// Bytes of texts before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the texts may get.
const GROWN_TIMES: usize = 4;

/// Bytes of texts in one append.
const APPENDED_TEXTS_BYTES: usize = 1 << 20;
/// Most texts in one append.
const APPENDED_TEXTS: usize = 4096;

/// A text that waits to be appended.
#[derive(Debug)]
struct Waiting {
    text: Bytes,
    appended: oneshot::Sender<Result<(), LedAppendError>>,
}

/// The stream that schedules are kept in.
#[derive(Debug)]
pub(super) struct Store {
    stream: LedStream,
    /// Texts that wait while others are appended, where one append follows the other.
    waiting: RefCell<VecDeque<Waiting>>,
    turn: Option<Mutex<()>>,
    /// Bytes since all of it was written.
    grown_bytes: Cell<usize>,
    /// Whether all of it is being written.
    is_written_again: Cell<bool>,
}

impl Store {
    pub(super) fn new(
        core: CoreHandle,
        name: &TopicName,
        peers: Option<Rc<ControlPeers>>,
        ending: Rc<Ending>,
    ) -> Self {
        let turn = peers.as_ref().map(|_| Mutex::default());
        let stream = LedStream::new(core, name, StreamSettings::of_topic(), peers, ending);
        let (waiting, grown_bytes, is_written_again) = Default::default();
        Self { stream, waiting, turn, grown_bytes, is_written_again }
    }

    /// The stream.
    pub(super) fn stream(&self) -> &LedStream {
        &self.stream
    }

    /// Reads what was kept, from the first message on, and has nobody before write any more. Unreadable parts are left out, and told.
    pub(super) async fn take_over(&self, mut take: impl FnMut(Kept)) -> Result<(), StreamFailure> {
        let read = |text: &[u8]| {
            self.grow(text.len());
            match Kept::decode(text) {
                Ok(kept) => take(kept),
                Err(error) => tracing::error!(%error, "a text of a schedule cannot be read"),
            }
        };
        self.stream.take_over(read).await
    }

    /// Appends a text, and waits until it is durable.
    pub(super) async fn append(&self, kept: &Kept) -> Result<(), LedAppendError> {
        let text = kept.encode();
        self.grow(text.len());
        let Some(turn) = &self.turn else { return self.stream.append(&[text]).await.map(drop) };
        let (sender, mut appended) = oneshot::channel();
        self.waiting.borrow_mut().push_back(Waiting { text, appended: sender });
        let _turn = turn.lock().await;
        // Whoever has the turn appends for those who wait.
        loop {
            match appended.try_recv() {
                Ok(appended) => return appended,
                Err(oneshot::error::TryRecvError::Empty) => self.append_waiting().await,
                Err(oneshot::error::TryRecvError::Closed) => return Err(LedAppendError::Unknown),
            }
        }
    }

    async fn append_waiting(&self) {
        let waiting = self.take_waiting();
        let texts: Vec<_> = waiting.iter().map(|one| one.text.clone()).collect();
        let appended = self.stream.append(&texts).await.map(drop);
        for one in waiting {
            let _ = one.appended.send(appended.clone());
        }
    }

    /// Those who come next, as many as fit into an append.
    fn take_waiting(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.borrow_mut();
        let mut bytes = 0;
        let fit = waiting.iter().take(APPENDED_TEXTS).take_while(|one| {
            let is_first = bytes == 0;
            bytes += one.text.len();
            is_first || bytes <= APPENDED_TEXTS_BYTES
        });
        let count = fit.count();
        waiting.drain(..count).collect()
    }

    /// Whether so much was appended since all of it was written, which has these bytes now, that it is to be written
    /// again.
    pub(super) fn has_grown(&self, whole_bytes: usize) -> bool {
        !self.is_written_again.get()
            && self.grown_bytes.get() > GROWN_BYTES_MIN.max(GROWN_TIMES * whole_bytes)
    }

    /// Writes everything and trims what lies before it. `all` gives what there is; nothing may be appended
    /// meanwhile. Appends that fail are made good by the next time.
    pub(super) async fn write_again(&self, all: Vec<Kept>) -> Result<(), LedAppendError> {
        self.is_written_again.set(true);
        let written = self.write_all(all).await;
        self.is_written_again.set(false);
        written
    }

    async fn write_all(&self, all: Vec<Kept>) -> Result<(), LedAppendError> {
        let mut first = None;
        let (mut part, mut bytes) = (Vec::new(), 0);
        let mut texts = all.iter().map(Kept::encode).peekable();
        while let Some(text) = texts.next() {
            bytes += text.len();
            self.grow(text.len());
            part.push(text);
            let is_full = |next: &Bytes| {
                bytes + next.len() > APPENDED_TEXTS_BYTES || part.len() >= APPENDED_TEXTS
            };
            if texts.peek().is_none_or(is_full) {
                let count = part.len() as u64;
                let next = self.stream.append(&std::mem::take(&mut part)).await?;
                first = first.or(Some(Offset(next.0 - count)));
                bytes = 0;
            }
        }
        let Some(first) = first else { return Ok(()) };
        self.stream.trim(first).await?;
        self.grown_bytes.set(0);
        Ok(())
    }

    fn grow(&self, bytes: usize) {
        self.grown_bytes.set(self.grown_bytes.get().saturating_add(bytes));
    }
}

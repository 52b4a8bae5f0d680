//! The store of subscriptions: a stream of the broker's own, with one message for each change, written in the order
//! of the decisions. When it has grown to a multiple of the live state, the state is written once more and
//! everything before is trimmed. It knows no subscription's rules.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    convert::Infallible,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::StreamSettings;
use sennit_model::{
    Offset, TopicName,
    limits::{APPEND_BYTES_MAX, BATCH_MESSAGES_MAX},
};
use tokio::sync::{Notify, oneshot};

use super::change::Change;
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
pub(crate) const STREAM: &str = "__ds/subscriptions";

/// Bytes of changes before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the changes may get.
const GROWN_TIMES: usize = 4;

/// Bytes that are appended at once.
const APPENDED_BYTES: usize = APPEND_BYTES_MAX / 4;

/// How long after a failed append the next one comes.
const REST: Duration = Duration::from_millis(500);

/// Done once what was to be kept is durable.
pub(crate) type Durable = oneshot::Receiver<()>;

/// The stream that subscriptions are kept in.
#[derive(Debug)]
pub(crate) struct Store {
    stream: LedStream,
    ending: Rc<Ending>,
    waiting: RefCell<VecDeque<Entry>>,
    notify: Notify,
    /// Whether somebody writes.
    is_served: Cell<bool>,
    /// Bytes since all of it was written.
    grown_bytes: Cell<usize>,
    /// Bytes of all of it, when that was written last.
    whole_bytes: Cell<usize>,
}

/// A change that waits to be written.
#[derive(Debug)]
struct Entry {
    text: Bytes,
    durable: Option<oneshot::Sender<()>>,
}

impl Store {
    pub(crate) fn new(
        core: CoreHandle,
        name: &TopicName,
        peers: Option<Rc<ControlPeers>>,
        ending: Rc<Ending>,
    ) -> Self {
        let json = "application/json".into();
        let settings = StreamSettings { content_type: json, ..StreamSettings::of_topic() };
        Self {
            stream: LedStream::new(core, name, settings, peers, ending.clone()),
            ending,
            waiting: RefCell::default(),
            notify: Notify::new(),
            is_served: Cell::new(false),
            grown_bytes: Cell::new(0),
            whole_bytes: Cell::new(0),
        }
    }

    /// The stream.
    pub(crate) fn stream(&self) -> &LedStream {
        &self.stream
    }

    /// How many changes wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Has changes be written, in this order and behind all that wait. They are tried again until they
    /// are; a change is never taken back. Says whether somebody has to [`Store::write`] now.
    pub(crate) fn keep(&self, changes: &[Change]) -> (Durable, bool) {
        let (sender, durable) = oneshot::channel();
        if self.ending.is_over() {
            // Nobody hears of it.
            return (durable, false);
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.extend(changes.iter().map(|change| Entry { text: text(change), durable: None }));
        match waiting.back_mut() {
            // Where others wait already, or nothing is left to be written, one follows that says nothing.
            Some(last) if last.durable.is_none() => last.durable = Some(sender),
            _ => waiting.push_back(Entry { text: Bytes::new(), durable: Some(sender) }),
        }
        self.notify.notify_one();
        (durable, !self.is_served.replace(true))
    }

    /// What was kept, from the first on, and nobody before writes any more. Unreadable parts are left out, and told.
    pub(crate) async fn take_over(
        &self,
        mut take: impl FnMut(Change),
    ) -> Result<(), StreamFailure> {
        let read = |text: &[u8]| {
            self.grown_bytes.set(self.grown_bytes.get() + text.len());
            match serde_json::from_slice(text) {
                Ok(change) => take(change),
                Err(error) => {
                    tracing::error!(%error, "what was kept of a subscription cannot be read");
                }
            }
        };
        self.stream.take_over(read).await
    }

    /// Writes what waits, until this node leads no more: nobody hears of what waits then. `all` is everything as it is now.
    pub(crate) async fn write(&self, all: impl Fn() -> Vec<Change>) {
        let written = self.write_until_over(all).await;
        tracing::info!(?written, "changes of subscriptions are written elsewhere");
        self.waiting.borrow_mut().clear();
    }

    async fn write_until_over(
        &self,
        all: impl Fn() -> Vec<Change>,
    ) -> Result<Infallible, LedAppendError> {
        loop {
            while self.waiting.borrow().is_empty() {
                if self.ending.is_over() {
                    return Err(LedAppendError::Superseded);
                }
                self.notify.notified().await;
            }
            let mut entries = self.take();
            let texts: Vec<Bytes> = entries.iter().map(|entry| entry.text.clone()).collect();
            self.append(&texts).await?;
            for durable in entries.iter_mut().filter_map(|entry| entry.durable.take()) {
                let _ = durable.send(());
            }
            let grown = self.grown_bytes.get() + bytes_of(&texts);
            self.grown_bytes.set(grown);
            if grown > GROWN_BYTES_MIN.max(GROWN_TIMES * self.whole_bytes.get()) {
                self.write_again(&all()).await?;
            }
        }
    }

    /// Nobody writes any more.
    pub(crate) fn end(&self) {
        self.waiting.borrow_mut().clear();
        self.notify.notify_one();
    }

    /// The next entries that are appended together.
    fn take(&self) -> Vec<Entry> {
        let mut waiting = self.waiting.borrow_mut();
        let mut bytes = 0;
        let fit = waiting.iter().take(BATCH_MESSAGES_MAX).take_while(|entry| {
            let is_first = bytes == 0;
            bytes += entry.text.len() + 1;
            is_first || bytes <= APPENDED_BYTES
        });
        let count = fit.count();
        waiting.drain(..count).collect()
    }

    /// Writes everything and trims what lies before it. What waits meanwhile comes behind it, and says
    /// again what everything said already.
    async fn write_again(&self, all: &[Change]) -> Result<(), LedAppendError> {
        let texts: Vec<Bytes> = all.iter().map(text).collect();
        let (mut from, mut first) = (0, None);
        while from < texts.len() {
            let (mut bytes, mut count) = (0, 0);
            for text in texts[from..].iter().take(BATCH_MESSAGES_MAX) {
                bytes += text.len();
                if count > 0 && bytes > APPENDED_BYTES {
                    break;
                }
                count += 1;
            }
            let next = self.append(&texts[from..from + count]).await?;
            first = first.or(Some(Offset(next.0 - count as u64)));
            from += count;
        }
        let first = match first {
            Some(first) => first,
            // There are none: nothing that lies there is needed.
            None => match self.stream.end().await {
                Some(end) => end,
                None => return Ok(()),
            },
        };
        self.whole_bytes.set(bytes_of(&texts));
        self.grown_bytes.set(0);
        // One that fails is made good by the next.
        let _ = self.stream.trim(first).await;
        Ok(())
    }

    /// Appends until it is done; says where the stream ends.
    async fn append(&self, texts: &[Bytes]) -> Result<Offset, LedAppendError> {
        let texts: Vec<Bytes> = texts.iter().filter(|text| !text.is_empty()).cloned().collect();
        if texts.is_empty() {
            return Ok(Offset(0));
        }
        let mut failed = 0_u32;
        loop {
            match self.stream.append(&texts).await {
                Err(LedAppendError::Refused(failure)) => {
                    if failed == 0 {
                        tracing::warn!(%failure, "a change of a subscription waits to be kept");
                    }
                    failed += 1;
                    tokio::time::sleep(REST).await;
                }
                appended => return appended,
            }
        }
    }
}

fn text(change: &Change) -> Bytes {
    serde_json::to_vec(change).expect("texts and numbers can be written").into()
}

fn bytes_of(texts: &[Bytes]) -> usize {
    texts.iter().map(Bytes::len).sum()
}

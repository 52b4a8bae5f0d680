//! The store of subscriptions: a stream of the broker's own, with one message for each change, written in the order
//! of the decisions. When it has grown to a multiple of the live state, the state is written once more and
//! everything before is trimmed. It knows no subscription's rules.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{
    Content, StreamAppend, StreamAppended, StreamNote, StreamRead, StreamRefusal, StreamSettings,
};
use sennit_model::{
    BatchBuilder, Durability, Message as BatchMessage, Messages, Offset, PartitionIndex, ReadFrom,
    TopicName,
    limits::{APPEND_BYTES_MAX, BATCH_MESSAGES_MAX},
};
use tokio::sync::{Notify, oneshot};

use super::change::Change;
use crate::{
    broker::{
        control,
        control_request::{ControlRequest, PartitionOffset},
        stream_offset::Identified,
        stream_request::{CreateStream, StreamFailure},
        streams::Streams,
    },
    identity::principal::Principal,
    runtime::core::CoreHandle,
};

/// The stream's name, which no client's stream has.
pub(crate) const STREAM: &str = "__ds/subscriptions";

/// Bytes of changes before everything is written once more, at least.
const GROWN_BYTES_MIN: usize = 1 << 20;
/// How many times as long as all of it the changes may get.
const GROWN_TIMES: usize = 4;

/// Bytes that are read at once.
const READ_BYTES: u64 = 4 << 20;
/// Bytes that are appended at once.
const APPENDED_BYTES: usize = APPEND_BYTES_MAX / 4;

/// How long after a failed append the next one comes.
const REST: Duration = Duration::from_millis(500);

/// Done once what was to be kept is durable.
pub(crate) type Durable = oneshot::Receiver<()>;

/// The stream that subscriptions are kept in.
#[derive(Debug)]
pub(crate) struct Store {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
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
    pub(crate) fn new(core: CoreHandle, streams: Rc<Streams>) -> Self {
        Self {
            core,
            streams,
            name: STREAM.parse().expect("the name of the broker's own stream is one"),
            waiting: RefCell::default(),
            notify: Notify::new(),
            is_served: Cell::new(false),
            grown_bytes: Cell::new(0),
            whole_bytes: Cell::new(0),
        }
    }

    /// The stream's name.
    pub(crate) fn name(&self) -> &TopicName {
        &self.name
    }

    /// How many changes wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Has changes be written, in this order and behind all that wait. They are tried again until they
    /// are; a change is never taken back. Says whether somebody has to [`Store::write`] now.
    pub(crate) fn keep(&self, changes: &[Change]) -> (Durable, bool) {
        let (sender, durable) = oneshot::channel();
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

    /// What was kept, from the first on. Unreadable parts are left out, and told.
    pub(crate) async fn read(&self, mut take: impl FnMut(Change)) -> Result<(), StreamFailure> {
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
                Ok(chunk) => chunk,
                Err(failure) => match failure.refusal() {
                    Some(StreamRefusal::Unknown) => return Ok(()),
                    Some(StreamRefusal::Damaged { next }) => {
                        tracing::error!(next = next.0, "what was kept of subscriptions is damaged");
                        at = ReadFrom::Offset(*next);
                        continue;
                    }
                    _ => return Err(failure),
                },
            };
            for message in chunk.answer.messages.iter().flat_map(|part| Messages::of_checked(part))
            {
                let text = message.payload();
                self.grown_bytes.set(self.grown_bytes.get() + text.len());
                match serde_json::from_slice(text) {
                    Ok(change) => take(change),
                    Err(error) => {
                        tracing::error!(%error, "what was kept of a subscription cannot be read");
                    }
                }
            }
            if chunk.answer.is_up_to_date || chunk.answer.next <= chunk.answer.first {
                return Ok(());
            }
            at = ReadFrom::Offset(chunk.answer.next);
        }
    }

    /// Writes what waits, for ever. `all` is everything as it is now.
    pub(crate) async fn write(&self, all: impl Fn() -> Vec<Change>) {
        loop {
            while self.waiting.borrow().is_empty() {
                self.notify.notified().await;
            }
            let mut entries = self.take();
            let texts: Vec<Bytes> = entries.iter().map(|entry| entry.text.clone()).collect();
            self.append(&texts).await;
            for durable in entries.iter_mut().filter_map(|entry| entry.durable.take()) {
                let _ = durable.send(());
            }
            let grown = self.grown_bytes.get() + bytes_of(&texts);
            self.grown_bytes.set(grown);
            if grown > GROWN_BYTES_MIN.max(GROWN_TIMES * self.whole_bytes.get()) {
                self.write_again(&all()).await;
            }
        }
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
    async fn write_again(&self, all: &[Change]) {
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
            let next = self.append(&texts[from..from + count]).await;
            first = first.or(Some(Offset(next.0 - count as u64)));
            from += count;
        }
        let first = match first {
            Some(first) => first,
            // There are none: nothing that lies there is needed.
            None => match self.streams.status(&Principal::broker(), &self.name, false).await {
                Ok(status) => status.answer.next,
                Err(_) => return,
            },
        };
        self.whole_bytes.set(bytes_of(&texts));
        self.grown_bytes.set(0);
        let positions = vec![PartitionOffset { partition: PartitionIndex(0), offset: first }];
        let trim = ControlRequest::TrimTopic { topic: self.name.clone(), positions };
        let session = self.core.cores.own_session(self.core.index);
        let trimmed = control::ask(&self.core.cores, session, Principal::broker(), trim);
        // One that fails is made good by the next.
        let _ = trimmed.await;
    }

    /// Appends until it is done; says where the stream ends.
    async fn append(&self, texts: &[Bytes]) -> Offset {
        let bytes = bytes_of(texts) + texts.len() * sennit_model::limits::MESSAGE_BYTES_MIN;
        let mut batch = BatchBuilder::for_append(bytes);
        for text in texts.iter().filter(|text| !text.is_empty()) {
            if let Err(error) = batch.push(&BatchMessage::new(text.clone())) {
                tracing::error!(%error, "a change of a subscription cannot be kept");
            }
        }
        let content = batch.take().map(Content::from);
        if content.is_none() {
            return Offset(0);
        }
        let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
        let mut failed = 0_u32;
        loop {
            let appended = match self.try_append(&append).await {
                Err(StreamFailure::Stream(StreamRefusal::Unknown)) => match self.create().await {
                    Ok(()) => self.try_append(&append).await,
                    Err(failure) => Err(failure),
                },
                appended => appended,
            };
            match appended {
                Ok(appended) => return appended.answer.next,
                Err(failure) => {
                    if failed == 0 {
                        tracing::warn!(%failure, "a change of a subscription waits to be kept");
                    }
                    failed += 1;
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    async fn try_append(
        &self,
        append: &StreamAppend,
    ) -> Result<Identified<StreamAppended>, StreamFailure> {
        let append = || Some(Box::new(append.clone()));
        self.streams.append(&Principal::broker(), &self.name, append).await
    }

    async fn create(&self) -> Result<(), StreamFailure> {
        let json = "application/json".into();
        let settings = StreamSettings { content_type: json, ..StreamSettings::of_topic() };
        let create = CreateStream {
            name: self.name.clone(),
            durability: Durability::Durable,
            settings,
            content: None,
            closes: false,
            fork: None,
        };
        self.streams.create(&Principal::broker(), create).await.map(drop)
    }
}

fn text(change: &Change) -> Bytes {
    serde_json::to_vec(change).expect("texts and numbers can be written").into()
}

fn bytes_of(texts: &[Bytes]) -> usize {
    texts.iter().map(Bytes::len).sum()
}

//! The way from a program's handles to the connection task: requests go through a channel; batches and settlements
//! go through the outbox, which wakes the task for all of them. The task says goodbye and ends when the last handle
//! is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sennit_protocol::{Reply, Request, Taken, control};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    configuration_event::Event, delivery_queue::DeliveryQueue, error::Error, outbox::Outbox,
    publisher_core::SharedPublisher, read_range::ReadRange, reader_queue::ReaderQueue,
    watched_topics::WatchedTopics,
};

/// Receives the answer to a request.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

/// Sends the answer, if a caller still waits for it.
pub(crate) fn respond<T>(answer: Option<ReplySender<T>>, result: Result<T, Error>) {
    if let Some(answer) = answer {
        let _ = answer.send(result);
    }
}

/// A command for the connection task.
#[expect(clippy::large_enum_variant, reason = "requests of a program are few, and short-lived")]
pub(crate) enum Command {
    /// Send a request to the broker. `resend` says whether to send it again after a lost
    /// connection.
    Ask { request: Request, resend: bool, answer: ReplySender<Reply> },
    /// Open a publisher's topic, on this and every later connection.
    OpenPublisher { publisher: SharedPublisher, answer: ReplySender<()> },
    /// Forget a publisher whose last handle was dropped, once its batches are answered.
    DropPublisher { number: u64 },
    /// Subscribe, on this and every later connection.
    Subscribe { subscribe: control::Subscribe, queue: Arc<DeliveryQueue>, answer: ReplySender<()> },
    /// Start a reader, on this and every later connection.
    Read { read: control::Read, queue: Arc<ReaderQueue>, answer: ReplySender<Vec<ReadRange>> },
    /// Watch for topics, on this and every later connection.
    Watch { watch: control::Watch, watched: watch::Sender<WatchedTopics>, answer: ReplySender<()> },
    /// Watch the configuration, on this and every later connection.
    WatchConfiguration {
        watch: control::WatchConfiguration,
        events: mpsc::Sender<Event>,
        answer: ReplySender<()>,
    },
    /// Report messages that a reader has taken. They came on the connection of this epoch.
    Taken { epoch: u64, taken: Taken },
    /// Replace a subscription's window.
    SetCredit { subscription: u32, messages: u32, bytes: u64 },
    /// Resume a subscription that the client had paused.
    Resume { subscription: u32 },
    /// Resume all readers that share a pool with this one.
    ResumePool { subscription: u32 },
    /// End a subscription.
    Unsubscribe { subscription: u32, answer: Option<ReplySender<()>> },
    /// Send everything that waits, wait for confirms, say goodbye, end.
    Close { answer: oneshot::Sender<()> },
}

/// A handle of the connection task. The task holds none itself and ends with the last one.
pub(crate) struct ConnectionHandle {
    commands: mpsc::UnboundedSender<Command>,
    pub(crate) outbox: Arc<Outbox>,
    last_number: AtomicU64,
    /// Wakes the task after the channel has closed, as fields are dropped in order.
    _wake_on_drop: WakeOnDrop,
}

struct WakeOnDrop(Arc<Outbox>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl ConnectionHandle {
    pub(crate) fn new(commands: mpsc::UnboundedSender<Command>, outbox: Arc<Outbox>) -> Self {
        let end = WakeOnDrop(Arc::clone(&outbox));
        Self { commands, outbox, last_number: AtomicU64::new(1), _wake_on_drop: end }
    }

    /// A number that no other publisher or subscription of this client has, from 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn call<T>(
        &self,
        command: impl FnOnce(ReplySender<T>) -> Command,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).map_err(|_| Error::Closed)?;
        self.outbox.notify();
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Sends a command without an answer. It is lost after the task has ended.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.outbox.notify();
    }

    /// Sends a request to the broker and waits for its reply.
    pub(crate) async fn ask(&self, request: Request, resend: bool) -> Result<Reply, Error> {
        self.call(|answer| Command::Ask { request, resend, answer }).await
    }
}

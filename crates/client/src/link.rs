//! The way from a program's handles to the connection task: requests by channel, batches and
//! settlements through the outbox, which rings for all of them. When the last handle is dropped, the task
//! says goodbye and ends.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sennit_protocol::{Reply, Request, Taken, control};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    delivery_queue::DeliveryQueue, error::Error, heard::Heard, outbox::Outbox,
    publisher_core::SharedPublisher, read_range::ReadRange, reader_queue::ReaderQueue,
};

/// Told the answer to a request.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// Answers whoever asked, who may have stopped waiting.
pub(crate) fn tell<T>(answer: Option<Answer<T>>, result: Result<T, Error>) {
    if let Some(answer) = answer {
        let _ = answer.send(result);
    }
}

/// What the connection task is asked to do.
pub(crate) enum Command {
    /// Ask the broker. `again` says whether it may be asked twice when a connection is lost.
    Ask { request: Request, again: bool, answer: Answer<Reply> },
    /// Open a publisher's topic, now and on every later connection.
    OpenPublisher { publisher: SharedPublisher, answer: Answer<()> },
    /// A publisher's last handle is gone: forget it once its batches are answered.
    DropPublisher { number: u64 },
    /// Subscribe, now and on every later connection.
    Subscribe { subscribe: control::Subscribe, queue: Arc<DeliveryQueue>, answer: Answer<()> },
    /// Read, now and on every later connection.
    Read { read: control::Read, queue: Arc<ReaderQueue>, answer: Answer<Vec<ReadRange>> },
    /// Watch for topics, now and on every later connection.
    Watch { watch: control::Watch, heard: watch::Sender<Heard>, answer: Answer<()> },
    /// A reader has taken messages that came on the connection of this number.
    Taken { epoch: u64, taken: Taken },
    /// Replace a subscription's window.
    SetCredit { subscription: u32, messages: u32, bytes: u64 },
    /// A program has taken enough of what came: the broker, which was told to pause, is to go on.
    GoOn { subscription: u32 },
    /// A program has taken enough of what came for the readers that share with this one: the broker, which
    /// was told to have all of them pause, is to have them go on.
    PoolGoesOn { subscription: u32 },
    /// End a subscription.
    Unsubscribe { subscription: u32, answer: Option<Answer<()>> },
    /// Send what waits, wait for what is unconfirmed, say goodbye, end.
    Close { answer: oneshot::Sender<()> },
}

/// The way to the connection task. The task itself holds none: it ends with the last.
pub(crate) struct Link {
    commands: mpsc::UnboundedSender<Command>,
    pub(crate) outbox: Arc<Outbox>,
    numbers: AtomicU64,
    /// Behind the channel, whose end it rings for: fields are dropped in order.
    _end: End,
}

struct End(Arc<Outbox>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Link {
    pub(crate) fn new(commands: mpsc::UnboundedSender<Command>, outbox: Arc<Outbox>) -> Self {
        let end = End(Arc::clone(&outbox));
        Self { commands, outbox, numbers: AtomicU64::new(1), _end: end }
    }

    /// A number that no other publisher or subscription of this client has, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a command whose answer is waited for: as many as callers can be under way.
    pub(crate) async fn call<T>(
        &self,
        command: impl FnOnce(Answer<T>) -> Command,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).map_err(|_| Error::Closed)?;
        self.outbox.ring();
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Sends a command that nobody waits for. After the end of the task it says nothing.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        self.outbox.ring();
    }

    /// Asks the broker.
    pub(crate) async fn ask(&self, request: Request, again: bool) -> Result<Reply, Error> {
        self.call(|answer| Command::Ask { request, again, answer }).await
    }
}

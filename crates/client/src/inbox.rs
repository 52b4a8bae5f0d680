//! The inbox of a client: the topic that replies come to, and the requests that wait for them. It knows no socket.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sennit_model::{MessageView, TopicName};
use sennit_protocol::{Request, control};
use tokio::{
    sync::{Mutex as AsyncMutex, oneshot},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    connection_handle::{Command, ConnectionHandle},
    consumer::Consumer,
    delivery::Delivery,
    publisher::Publisher,
};

/// The header with the topic that a reply goes to.
pub const HEADER_REPLY_TO: &str = "sennit-reply-to";

/// The header that a reply repeats, so that the requester knows which request it answers.
pub const HEADER_CORRELATION_ID: &str = "sennit-correlation-id";

/// How long a client that is closed waits until its inbox is deleted.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that wait for their replies, by correlation id.
pub(crate) type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<Delivery>>>>;

/// The inbox of a client, and the task that takes replies out of it.
pub(crate) struct Inbox {
    pub(crate) topic: TopicName,
    pub(crate) task: JoinHandle<()>,
}

/// The requests of a client.
pub(crate) struct Requests {
    connection: Arc<ConnectionHandle>,
    pub(crate) inbox: AsyncMutex<Option<Inbox>>,
    pub(crate) publishers: Mutex<HashMap<TopicName, Publisher>>,
    pub(crate) waiting: Waiting,
}

impl Requests {
    pub(crate) fn new(connection: Arc<ConnectionHandle>) -> Self {
        Self {
            connection,
            inbox: AsyncMutex::default(),
            publishers: Mutex::default(),
            waiting: Waiting::default(),
        }
    }

    /// Deletes the inbox.
    pub(crate) async fn end(&self) {
        lock(&self.publishers).clear();
        let Some(inbox) = self.inbox.lock().await.take() else { return };
        inbox.task.abort();
        // It may be gone already, and so may the broker.
        let deleted = self.connection.ask(delete(&inbox.topic), false);
        let _ = timeout(END_TIMEOUT, deleted).await;
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox.get_mut().take() {
            inbox.task.abort();
            // The answer has no reader.
            let (answer, _) = oneshot::channel();
            let request = delete(&inbox.topic);
            self.connection.send(Command::Ask { request, resend: false, answer });
        }
    }
}

/// The value of a lock; a panic elsewhere leaves it whole.
pub(crate) fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn delete(topic: &TopicName) -> Request {
    Request::DeleteTopic(control::DeleteTopic { name: topic.to_string() })
}

/// The text of a header; `None` if it is missing, or no text.
pub(crate) fn text_header(message: &MessageView<'_>, name: &str) -> Option<String> {
    let found = message.headers().flatten().find(|(held, ..)| *held == name);
    found.and_then(|(.., value)| String::from_utf8(value.to_vec()).ok())
}

/// Takes replies out of the inbox and gives each to its request. Those that come too late are dropped.
pub(crate) async fn take_replies(mut consumer: Consumer, waiting: Waiting) {
    while let Some(Ok(reply)) = consumer.next().await {
        reply.ack();
        let correlation_id = text_header(&reply.message(), HEADER_CORRELATION_ID);
        let waits = correlation_id.and_then(|id| lock(&waiting).remove(&id));
        if let Some(waits) = waits {
            // Its caller may have stopped waiting.
            let _ = waits.send(reply);
        }
    }
    // The inbox is gone: no reply comes.
    lock(&waiting).clear();
}

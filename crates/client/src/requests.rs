//! Requests that other programs reply to: a request is a message that names an inbox topic and a correlation id; its
//! reply comes to the inbox. It knows no socket.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sennit_model::{
    Durability, GroupName, Header, Message, Retention, Timestamp, TopicConfig, TopicKind, TopicName,
};
use sennit_protocol::{ErrorCode, Reply, Request, control};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    client::Client,
    delivery::{Delivery, DeliveryRun},
    error::Error,
    inbox::{
        HEADER_CORRELATION_ID, HEADER_REPLY_TO, Inbox, Waiting, lock, take_replies, text_header,
    },
    reconnect::random,
};

/// The names of inbox topics begin with this.
pub const INBOX_PREFIX: &str = "inbox.";

/// The age of an inbox without a consumer at which another client deletes it.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(60);

/// Most bytes of replies that an inbox holds; beyond them the oldest go.
const INBOX_BYTES: u64 = 64 << 20;

/// Most inboxes that a client looks at when it makes its own.
const LOOKED_AT_MAX: u32 = 32;

/// Forgets a request whose caller waits no more.
struct WaitingReply<'a> {
    waiting: &'a Waiting,
    correlation_id: String,
}

impl Drop for WaitingReply<'_> {
    fn drop(&mut self) {
        lock(self.waiting).remove(&self.correlation_id);
    }
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// It was published in the step that acked the request.
    Together,
    /// It was published, and the request was acked after it: their topics lie on different shards. After a crash
    /// between the two the request comes again.
    OneAfterTheOther,
    /// The inbox is gone, or the message asks for no reply: it was acked, and the reply was dropped.
    Dropped,
}

impl Client {
    /// Publishes a request to `topic` and waits for its reply, at most `limit`. The first request of a client makes
    /// its inbox, a topic in memory beside `topic` that is deleted when the client ends. A message without a time to
    /// live expires when the limit is over, so that nobody works on it for nothing.
    ///
    /// # Errors
    /// [`Error::NoReply`] if none came in time; the request may still be worked on, and a reply that comes later is
    /// dropped. Errors of publishing.
    pub async fn request(
        &self,
        topic: &TopicName,
        message: Message,
        limit: Duration,
    ) -> Result<Delivery, Error> {
        let asked = self.ask_for_reply(topic, message, limit);
        timeout(limit, asked).await.unwrap_or(Err(Error::NoReply { after: limit }))
    }

    async fn ask_for_reply(
        &self,
        topic: &TopicName,
        mut message: Message,
        limit: Duration,
    ) -> Result<Delivery, Error> {
        let inbox = self.inbox_beside(topic).await?;
        let correlation_id = format!("{:016x}", random());
        let (sender, reply) = oneshot::channel();
        let waiting = &self.requests.waiting;
        lock(waiting).insert(correlation_id.clone(), sender);
        let waits = WaitingReply { waiting, correlation_id };
        message.headers.push(Header::text(HEADER_REPLY_TO, inbox.as_str()));
        message.headers.push(Header::text(HEADER_CORRELATION_ID, waits.correlation_id.clone()));
        message.time_to_live.get_or_insert(limit);
        let known = lock(&self.requests.publishers).get(topic).cloned();
        let publisher = match known {
            Some(publisher) => publisher,
            None => {
                let opened = self.publisher(topic).open().await?;
                lock(&self.requests.publishers).insert(topic.clone(), opened.clone());
                opened
            }
        };
        if let Err(error) = publisher.publish(message).await?.await {
            lock(&self.requests.publishers).remove(topic);
            return Err(error);
        }
        // The task that takes replies has ended with the inbox.
        reply.await.map_err(|_| Error::OutcomeUnknown)
    }

    /// The client's inbox. If it was deleted meanwhile, another is made.
    async fn inbox_beside(&self, topic: &TopicName) -> Result<TopicName, Error> {
        let mut held = self.requests.inbox.lock().await;
        if let Some(inbox) = &*held
            && !inbox.task.is_finished()
        {
            return Ok(inbox.topic.clone());
        }
        self.delete_left_inboxes().await;
        let name = format!("{INBOX_PREFIX}{:016x}", random());
        let name: TopicName = name.parse().expect("it is a name");
        let queue = TopicConfig::of_kind(TopicKind::Queue);
        let config = TopicConfig {
            durability: Durability::Memory,
            retention: Retention { bytes: Some(INBOX_BYTES), ..queue.retention },
            ..queue
        };
        self.create_topic_beside(&name, config, Some(topic)).await?;
        let group = GroupName::default_group();
        let consumer = self.consumer(&name, &group).create_group_if_missing(true);
        let consumer = consumer.subscribe().await?;
        let task = tokio::spawn(take_replies(consumer, Arc::clone(&self.requests.waiting)));
        *held = Some(Inbox { topic: name.clone(), task });
        Ok(name)
    }

    /// Deletes inboxes of clients that ended without doing so. It is not needed for anything else, so errors are
    /// left alone.
    async fn delete_left_inboxes(&self) {
        // Topics are listed by name: the page that begins behind the prefix begins with inboxes.
        let (page_token, page_size) = (INBOX_PREFIX.to_owned(), LOOKED_AT_MAX);
        let list = Request::ListTopics(control::ListTopics { page_token, page_size });
        let Ok(Reply::TopicList(page)) = self.connection.ask(list, true).await else { return };
        let names = page.topics.iter().filter(|topic| topic.name.starts_with(INBOX_PREFIX));
        for name in names.filter_map(|topic| topic.name.parse::<TopicName>().ok()) {
            let Ok(described) = self.describe_topic(&name).await else { continue };
            let is_left = described.groups.iter().all(|group| group.consumers == 0)
                && described.config.durability == Durability::Memory
                && described.created_at.is_some_and(is_old);
            if is_left {
                let _ = self.delete_topic(&name).await;
            }
        }
    }

    /// Replies to a request and acks it, in one step if the inbox lies on its shard. The correlation id is added to
    /// the reply.
    ///
    /// # Errors
    /// `stale-delivery` if the request went to another consumer meanwhile, with nothing published; and others of
    /// [`crate::Atomic::commit`] and [`Delivery::ack_confirmed`].
    pub async fn reply(&self, request: &Delivery, reply: Message) -> Result<ReplyOutcome, Error> {
        self.reply_to_run(&request.to_run(), reply).await
    }

    /// As [`Self::reply`], for a run of one request. Of a run of several, the first is replied to and all are acked.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub async fn reply_to_run(
        &self,
        request: &DeliveryRun,
        mut reply: Message,
    ) -> Result<ReplyOutcome, Error> {
        let message = request.messages().next();
        let header = |name| message.as_ref().and_then(|message| text_header(message, name));
        let inbox = header(HEADER_REPLY_TO).and_then(|name| name.parse::<TopicName>().ok());
        let Some(inbox) = inbox else {
            request.ack_confirmed().await?;
            return Ok(ReplyOutcome::Dropped);
        };
        if let Some(correlation_id) = header(HEADER_CORRELATION_ID) {
            reply.headers.push(Header::text(HEADER_CORRELATION_ID, correlation_id));
        }
        let together = self.atomic().publish(&inbox, [reply.clone()]).ack_run(request);
        match together.commit().await {
            Ok(_) => return Ok(ReplyOutcome::Together),
            Err(error) if error.code() == Some(ErrorCode::TopicsApart) => {}
            Err(error) if error.is_unknown_topic() => {
                request.ack_confirmed().await?;
                return Ok(ReplyOutcome::Dropped);
            }
            Err(error) => return Err(error),
        }
        let replied = match self.atomic().publish(&inbox, [reply]).commit().await {
            Ok(_) => ReplyOutcome::OneAfterTheOther,
            Err(error) if error.is_unknown_topic() => ReplyOutcome::Dropped,
            Err(error) => return Err(error),
        };
        request.ack_confirmed().await?;
        Ok(replied)
    }
}

fn is_old(created_at: Timestamp) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(created_at.0)) > LEFT_BEHIND_AFTER
}

//! The connection with Redis: messages of channels that are subscribed to come in, others go out, many at once. When it is
//! lost it is made again, for ever. It knows no messages.

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion,
    PushInfo, PushKind, RedisError, Value, aio::MultiplexedConnection, aio::SendError,
};
use sennit_identity::Zeroizing;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::sleep,
};

use crate::doors::live::limits::{RELAY_TOGETHER_MAX, RELAY_UNREAD_MAX, RELAY_UNSENT_MAX};

/// Longest time that Redis may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The first pause before Redis is asked again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Longest silence before it is looked whether Redis is there.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The URL of a Redis, without a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(Box<str>);

/// The text is no URL of a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the URL of a Redis: write redis://[USER@]HOST[:PORT][/DATABASE], or rediss:// with TLS; a password comes from live.redis_password"
)]
pub struct RedisUrlError;

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        let info = text.into_connection_info().map_err(|_| RedisUrlError)?;
        let is_tcp = matches!(info.addr(), ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. });
        // Arguments are seen by others of the machine.
        let is_open = info.redis_settings().password().is_none();
        if is_tcp && is_open { Ok(Self(text.into())) } else { Err(RedisUrlError) }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// Something that is wanted of Redis.
#[derive(Debug)]
pub(crate) enum LinkOrder {
    /// Messages of this channel are wanted; told when they come.
    Subscribe(Channel, oneshot::Sender<()>),
    Unsubscribe(Channel),
    /// A message for a channel; told when Redis has it.
    Publish(String, Bytes, oneshot::Sender<()>),
}

/// What is subscribed to in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    /// A channel.
    Name(String),
    /// All channels that match a pattern of Redis.
    Pattern(String),
}

/// Something that comes from Redis.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// There is a connection: before, something may have been missed.
    Up,
    /// A message of a channel, and the pattern for which it was sent, if it was for one.
    Message(Bytes, Option<String>),
}

/// A link, from which events come and which takes orders.
pub(crate) type Link = (mpsc::Sender<LinkOrder>, mpsc::Receiver<LinkEvent>);

/// Begins to keep a link with a Redis.
///
/// # Errors
/// The URL names none.
pub(crate) fn begin(
    url: &RedisUrl,
    password: Option<&Zeroizing<String>>,
) -> Result<Link, RedisError> {
    let info = (&*url.0).into_connection_info()?;
    let mut settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    if let Some(password) = password {
        settings = settings.set_password(password.as_str());
    }
    let client = Client::open(info.set_redis_settings(settings))?;
    let (order_sender, orders) = mpsc::channel(RELAY_UNSENT_MAX);
    let (events, event_receiver) = mpsc::channel(RELAY_UNREAD_MAX);
    let keeper = Keeper { client, url: url.clone(), orders, events, wanted: BTreeSet::new() };
    tokio::task::spawn_local(keeper.keep());
    Ok((order_sender, event_receiver))
}

struct Keeper {
    client: Client,
    url: RedisUrl,
    orders: mpsc::Receiver<LinkOrder>,
    events: mpsc::Sender<LinkEvent>,
    /// What is subscribed to, or will be.
    wanted: BTreeSet<Channel>,
}

/// The end of a connection, and of the broker.
enum Ended {
    Lost(RedisError),
    TooMuch,
    Closed,
    Over,
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut was_told = false;
        // What Redis has not confirmed is sent again.
        let mut unsent = Vec::new();
        loop {
            let ended = self.connected(&mut unsent, &mut was_told).await;
            let why = match ended {
                Ended::Over => return,
                Ended::Lost(error) => error.to_string(),
                Ended::TooMuch => "more comes than is taken".to_owned(),
                Ended::Closed => "the connection was closed".to_owned(),
            };
            if was_told {
                // It has stood.
                pause = FIRST_PAUSE;
            }
            tracing::warn!(url = %self.url, why, "the Redis of live connections is away");
            was_told = false;
            let waited = sleep(pause);
            tokio::pin!(waited);
            loop {
                tokio::select! {
                    () = &mut waited => break,
                    // Who publishes waits; who subscribes is told later, by what is missing.
                    order = self.orders.recv(), if unsent.len() < RELAY_TOGETHER_MAX => match order {
                        None => return,
                        Some(LinkOrder::Subscribe(channel, _)) => drop(self.wanted.insert(channel)),
                        Some(LinkOrder::Unsubscribe(channel)) => drop(self.wanted.remove(&channel)),
                        Some(LinkOrder::Publish(channel, message, done)) => {
                            unsent.push((channel, message, done));
                        }
                    },
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, and does what is ordered until the connection ends.
    async fn connected(
        &mut self,
        unsent: &mut Vec<(String, Bytes, oneshot::Sender<()>)>,
        was_told: &mut bool,
    ) -> Ended {
        let (closed, is_full) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (events, rang, full) = (self.events.clone(), closed.clone(), is_full.clone());
        let taken = move |info: PushInfo| {
            match info.kind {
                PushKind::Message | PushKind::PMessage => {
                    if let Some(message) = message_of(info)
                        && events.try_send(message).is_err()
                    {
                        // What is lost now is asked for over the next connection.
                        full.store(true, Relaxed);
                        rang.notify_one();
                    }
                }
                PushKind::Disconnection => rang.notify_one(),
                _ => {}
            }
            Ok::<(), SendError>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT))
            .set_push_sender(taken);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => return Ended::Lost(error),
        };
        let (mut names, mut patterns) = (Vec::new(), Vec::new());
        for channel in &self.wanted {
            match channel {
                Channel::Name(name) => names.push(name),
                Channel::Pattern(pattern) => patterns.push(pattern),
            }
        }
        if !names.is_empty()
            && let Err(error) = connection.subscribe(names).await
        {
            return Ended::Lost(error);
        }
        if !patterns.is_empty()
            && let Err(error) = connection.psubscribe(patterns).await
        {
            return Ended::Lost(error);
        }
        tracing::info!(url = %self.url, "the Redis of live connections is there");
        *was_told = true;
        if self.events.send(LinkEvent::Up).await.is_err() {
            return Ended::Over;
        }
        loop {
            if let Err(error) = publish(&mut connection, unsent).await {
                return Ended::Lost(error);
            }
            let order = tokio::select! {
                order = self.orders.recv() => order,
                () = closed.notified() => {
                    return if is_full.load(Relaxed) { Ended::TooMuch } else { Ended::Closed };
                }
                () = sleep(SILENCE_MAX) => {
                    let is_there: Result<(), _> = redis::cmd("PING").query_async(&mut connection).await;
                    match is_there {
                        Ok(()) => continue,
                        Err(error) => return Ended::Lost(error),
                    }
                }
            };
            let mut next = order;
            while let Some(order) = next {
                let done = match order {
                    LinkOrder::Publish(channel, message, done) => {
                        unsent.push((channel, message, done));
                        Ok(())
                    }
                    LinkOrder::Subscribe(channel, done) => {
                        self.wanted.insert(channel.clone());
                        let subscribed = match channel {
                            Channel::Name(name) => connection.subscribe(name).await,
                            Channel::Pattern(pattern) => connection.psubscribe(pattern).await,
                        };
                        // Nobody may wait for it any more.
                        subscribed.map(|()| done.send(()).unwrap_or(()))
                    }
                    LinkOrder::Unsubscribe(channel) => {
                        self.wanted.remove(&channel);
                        match channel {
                            Channel::Name(name) => connection.unsubscribe(name).await,
                            Channel::Pattern(pattern) => connection.punsubscribe(pattern).await,
                        }
                    }
                };
                if let Err(error) = done {
                    return Ended::Lost(error);
                }
                let has_room = unsent.len() < RELAY_TOGETHER_MAX;
                next = if has_room { self.orders.try_recv().ok() } else { None };
            }
            if self.orders.is_closed() && self.orders.is_empty() && unsent.is_empty() {
                return Ended::Over;
            }
        }
    }
}

/// A message that Redis has sent: its channel and its bytes, behind the pattern if it is for one.
fn message_of(info: PushInfo) -> Option<LinkEvent> {
    let is_of_pattern = info.kind == PushKind::PMessage;
    let mut data = info.data.into_iter();
    let mut next = || match data.next() {
        Some(Value::BulkString(bytes)) => Some(bytes),
        _ => None,
    };
    let pattern = if is_of_pattern { String::from_utf8(next()?).ok() } else { None };
    let _channel = next()?;
    Some(LinkEvent::Message(next()?.into(), pattern))
}

/// Publishes what waits, in one go; then nothing waits.
async fn publish(
    connection: &mut MultiplexedConnection,
    unsent: &mut Vec<(String, Bytes, oneshot::Sender<()>)>,
) -> Result<(), RedisError> {
    if unsent.is_empty() {
        return Ok(());
    }
    let mut pipe = redis::pipe();
    for (channel, message, _) in &*unsent {
        pipe.cmd("PUBLISH").arg(channel).arg(&message[..]).ignore();
    }
    pipe.query_async::<()>(connection).await?;
    for (_, _, done) in unsent.drain(..) {
        // Nobody may wait for it any more.
        let _ = done.send(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_redis_and_no_password() {
        for text in
            ["redis://127.0.0.1", "redis://ada@redis.example:6380/1", "rediss://redis.example"]
        {
            assert_eq!(text.parse::<RedisUrl>().unwrap().to_string(), text);
        }
        for text in
            ["", "127.0.0.1", "http://a", "redis://:secret@a", "unix:/tmp/redis", "redis://"]
        {
            assert_eq!(text.parse::<RedisUrl>(), Err(RedisUrlError), "{text}");
        }
    }
}

//! The client as programs hold it: one connection to a broker, and what can be made from it.

use std::{fmt, sync::Arc};

use sennit_model::{GroupName, TopicName, TopicPattern, limits::FRAME_BYTES_MAX};
use tokio::sync::{mpsc, oneshot};

use crate::{
    connection::Connection,
    consumer::ConsumerBuilder,
    error::Error,
    link::{Command, Link},
    outbox::Outbox,
    pattern_reader::PatternReaderBuilder,
    publisher::PublisherBuilder,
    reader::ReaderBuilder,
    reconnect::Reconnect,
    session::{Greeting, Session},
};

/// How a client is to be. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is connected before `connect` is called"]
pub struct ClientBuilder {
    address: String,
    name: String,
    frame_bytes_max: usize,
    reconnect: Reconnect,
}

impl ClientBuilder {
    /// The name under which the broker lists this client; `sennit-client` unless told.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The largest frame this client takes, in bytes; what the broker allows unless told.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = bytes.min(FRAME_BYTES_MAX);
        self
    }

    /// How to come back after the connection was lost; for ever unless told.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Connects, once: an address where nobody listens is an error at once.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`] or, where something else than a broker answers,
    /// [`Error::Protocol`] or [`Error::Unexpected`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect(self) -> Result<Client, Error> {
        let greeting = Greeting {
            address: self.address.into(),
            name: self.name,
            frame_bytes_max: self.frame_bytes_max,
            replaces: None,
        };
        let session = Session::open(&greeting, self.reconnect.attempt_timeout).await?;
        let (commands, received) = mpsc::unbounded_channel();
        let outbox = Arc::new(Outbox::default());
        let address = Arc::clone(&greeting.address);
        let server = session.server.clone();
        let connection = Connection::new(greeting, self.reconnect, Arc::clone(&outbox), received);
        tokio::spawn(connection.run(session));
        let link = Link::new(commands, outbox);
        Ok(Client { link: Arc::new(link), address, server: server.into() })
    }
}

/// A connection to a broker that comes back by itself. Cheap to clone; all clones, publishers and
/// consumers share the one connection. When the last of them is dropped, what was published and
/// said is still sent, and then the client says goodbye.
///
/// After a lost connection, unconfirmed messages are sent again in order, subscriptions are made
/// again, and deliveries can still be settled until their leases end.
#[derive(Clone)]
pub struct Client {
    pub(crate) link: Arc<Link>,
    address: Arc<str>,
    server: Arc<str>,
}

impl Client {
    /// Connects with default settings. `address` is host and port, `127.0.0.1:4438`.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect(address: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).connect().await
    }

    /// A client that is still to be told more. `address` is host and port.
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            address: address.into(),
            name: env!("CARGO_PKG_NAME").into(),
            frame_bytes_max: FRAME_BYTES_MAX,
            reconnect: Reconnect::default(),
        }
    }

    /// The address as given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The broker's name and version, as it said at the first connection.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A publisher to `topic`, still to be told more.
    pub fn publisher(&self, topic: &TopicName) -> PublisherBuilder {
        PublisherBuilder::new(Arc::clone(&self.link), topic.clone())
    }

    /// A consumer of `topic` in `group`, still to be told more.
    pub fn consumer(&self, topic: &TopicName, group: &GroupName) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::clone(&self.link), topic, group)
    }

    /// A reader of `topic` by offset, still to be told more.
    pub fn reader(&self, topic: &TopicName) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(&self.link), topic)
    }

    /// A reader of all topics that `pattern` means, now and later, still to be told more.
    pub fn pattern_reader(&self, pattern: &TopicPattern) -> PatternReaderBuilder {
        PatternReaderBuilder::new(Arc::clone(&self.link), pattern)
    }

    /// Closes the connection for all clones: sends what was said of deliveries, waits up to 5 s for
    /// what was published to be confirmed, and says goodbye, so that what is unsettled returns to
    /// its groups at once. What is unconfirmed then fails with [`Error::OutcomeUnknown`].
    pub async fn close(self) {
        let (answer, closed) = oneshot::channel();
        self.link.tell(Command::Close { answer });
        // It was closed before if the answer does not come.
        let _ = closed.await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

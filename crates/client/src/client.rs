//! The client: one connection to a broker, and the publishers, consumers and readers that use it.

use std::{fmt, sync::Arc};

use sennit_model::{GroupName, TopicName, TopicPattern, limits::FRAME_BYTES_MAX};
use sennit_tls::{TlsFault, TlsOptions};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

use crate::{
    addresses::{Address, Addresses, split_list},
    atomic_steps::AtomicSteps,
    connection::Connection,
    connection_handle::{Command, ConnectionHandle},
    consumer::ConsumerBuilder,
    credential::Credential,
    error::Error,
    inbox::Requests,
    leaderless::GIVE_UP_AFTER,
    outbox::Outbox,
    pattern_reader::PatternReaderBuilder,
    publisher::PublisherBuilder,
    reader::ReaderBuilder,
    reconnect::{Backoff, Reconnect},
    session::{Greeting, Session},
};

/// The settings of a client. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is connected before `connect` is called"]
pub struct ClientBuilder {
    addresses: Vec<String>,
    name: String,
    frame_bytes_max: usize,
    reconnect: Reconnect,
    credential: Option<Credential>,
    tls: Option<TlsOptions>,
}

impl ClientBuilder {
    /// The address of one more node of the cluster, or a list of them with commas between.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.extend(split_list(&address.into()));
        self
    }

    /// The name under which the broker lists this client; default `sennit-client`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The largest frame that this client accepts, in bytes; default the broker's limit.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = bytes.min(FRAME_BYTES_MAX);
        self
    }

    /// How to reconnect after the connection was lost; default without limit.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// The credentials to show; default none.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }

    /// Speak TLS, and with whom; default plain TCP. The files are read once, by [`ClientBuilder::connect`].
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Connects. Each address is tried once: if no broker listens at any, the call fails at once.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Tls`], [`Error::Refused`] or, if the server is not a broker,
    /// [`Error::Protocol`] or [`Error::Unexpected`]; for several addresses [`Error::NoneReachable`] with all of these,
    /// unless one is a refusal for good.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect(self) -> Result<Client, Error> {
        let list: Arc<str> = self.addresses.join(",").into();
        let options = self.tls;
        let address = |host_port: String| {
            let name = options.as_ref().map(|options| options.name_of(&host_port)).transpose();
            let tls_name = name.map_err(|fault: TlsFault| Error::tls(&host_port, &fault))?;
            Ok(Address { host_port: host_port.into(), tls_name })
        };
        let addresses = self.addresses.into_iter().map(address).collect::<Result<_, Error>>()?;
        let addresses = Addresses::shuffled(addresses);
        let tls = options.map(|options| options.client_settings(&[])).transpose();
        let tls = tls.map_err(|fault: TlsFault| Error::tls(&list, &fault))?;
        let greeting = Greeting {
            tls,
            name: self.name,
            frame_bytes_max: self.frame_bytes_max,
            replaces: None,
            credential: self.credential,
        };
        let session = first_session(&greeting, &addresses, self.reconnect).await?;
        let (commands, received) = mpsc::unbounded_channel();
        let outbox = Arc::new(Outbox::default());
        let server = session.server.clone();
        let ways = (greeting, addresses);
        let connection = Connection::new(ways, self.reconnect, Arc::clone(&outbox), received);
        tokio::spawn(connection.run(session));
        let connection = ConnectionHandle::new(commands, outbox);
        let (connection, steps): (Arc<_>, _) = (Arc::new(connection), Arc::default());
        let requests = Arc::new(Requests::new(Arc::clone(&connection)));
        Ok(Client { connection, steps, requests, address: list, server: server.into() })
    }
}

/// The first session. Where nodes cannot tell yet who may do what, they are asked again for a while, unless the client is
/// not to connect again at all.
async fn first_session(
    greeting: &Greeting,
    addresses: &Addresses,
    reconnect: Reconnect,
) -> Result<Session, Error> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(reconnect.delay_min, reconnect.delay_max);
    loop {
        let opened = Session::open(greeting, addresses, reconnect.attempt_timeout).await;
        let goes_on = |error: &Error| {
            error.is_without_leader()
                && reconnect.attempts_max != Some(0)
                && begun.elapsed() < GIVE_UP_AFTER
        };
        match opened {
            Err(error) if goes_on(&error) => sleep(backoff.delay()).await,
            opened => return opened,
        }
    }
}

/// A connection to a broker that reconnects by itself. Cheap to clone; all clones, publishers and
/// consumers share the one connection. When the last of them is dropped, the client sends all
/// waiting messages and settlements, and then says goodbye.
///
/// After a lost connection the client sends unconfirmed messages again in order and renews
/// subscriptions. Deliveries can still be settled until their leases end. With the addresses of several nodes of a
/// cluster it does so at the next one that answers.
#[derive(Clone)]
pub struct Client {
    pub(crate) connection: Arc<ConnectionHandle>,
    pub(crate) steps: Arc<AtomicSteps>,
    pub(crate) requests: Arc<Requests>,
    address: Arc<str>,
    server: Arc<str>,
}

impl Client {
    /// Connects with default settings. `address` is host and port, `127.0.0.1:4438`, or a list of them with commas
    /// between, `a:4438,b:4438,c:4438`: the nodes of a cluster. The client uses one of them, drawn by chance, and goes
    /// to another when that one is lost.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect(address: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).connect().await
    }

    /// The settings of a client. `address` is host and port, or a list of them, as in [`Client::connect`].
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            addresses: split_list(&address.into()),
            name: env!("CARGO_PKG_NAME").into(),
            frame_bytes_max: FRAME_BYTES_MAX,
            reconnect: Reconnect::default(),
            credential: None,
            tls: None,
        }
    }

    /// The address as given, or the list of all.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The broker's name and version at the first connection.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The settings of a publisher to `topic`.
    pub fn publisher(&self, topic: &TopicName) -> PublisherBuilder {
        PublisherBuilder::new(Arc::clone(&self.connection), topic.clone())
    }

    /// The settings of a consumer of `topic` in `group`.
    pub fn consumer(&self, topic: &TopicName, group: &GroupName) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::clone(&self.connection), topic, group)
    }

    /// The settings of a reader of `topic` by offset.
    pub fn reader(&self, topic: &TopicName) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(&self.connection), topic)
    }

    /// The settings of a reader of all topics that match `pattern`, now and later.
    pub fn pattern_reader(&self, pattern: &TopicPattern) -> PatternReaderBuilder {
        PatternReaderBuilder::new(Arc::clone(&self.connection), pattern)
    }

    /// Closes the connection for all clones: sends waiting settlements, waits up to 5 s for
    /// confirms, and says goodbye, so that unsettled messages return to their groups at once.
    /// Unconfirmed messages then fail with [`Error::OutcomeUnknown`].
    pub async fn close(self) {
        self.requests.end().await;
        let (answer, closed) = oneshot::channel();
        self.connection.send(Command::Close { answer });
        // If no answer comes, the client was closed before.
        let _ = closed.await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

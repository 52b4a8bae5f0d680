//! The plans for worker processes and their reports: one JSON object a line.

use std::path::PathBuf;

use sennit_client::Header;
use serde::{Deserialize, Serialize};

use crate::{
    latency::Buckets,
    sequence_check::{MessageErrors, ReceivedSequences},
};

/// The first line to a worker: everything that it prepares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The broker's address.
    pub server: String,
    /// The topic, which exists.
    pub topic: String,
    /// The number of partitions of the topic.
    pub partitions: u32,
    /// The group, which exists.
    pub group: String,
    /// The length of a payload in bytes.
    pub size: usize,
    /// The fair keys of messages; `None` where messages have no headers.
    pub keys: Option<FairKeys>,
    /// The worker's role.
    pub role: Role,
}

/// The role of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Publishes.
    Produce(Produce),
    /// Takes and acks messages.
    Consume(Consume),
    /// Publishes, takes and acks one message at a time.
    Echo(Echo),
    /// Reads by offset: each reader reads every message.
    Read(Read),
    /// Subscribes over WebSocket, and publishes to all subscribers.
    Subscribe(Subscribe),
    /// Sends requests over HTTP.
    Http(HttpLoad),
    /// Waits over HTTP, and appends.
    Wait(HttpLoad, HttpWait),
    /// Runs a null server at `server`.
    Null(Null),
}

/// The fair keys of a load: message `n` of a producer has the key of number `n % count`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FairKeys {
    /// The number of keys, at least 1.
    pub count: u64,
    /// Other headers that each message has.
    pub others: Vec<(String, String)>,
}

impl FairKeys {
    /// The number of the key of message `sequence`.
    #[must_use]
    pub fn of(&self, sequence: u64) -> u64 {
        sequence % self.count.max(1)
    }

    /// The headers of message `sequence`.
    #[must_use]
    pub fn headers(&self, sequence: u64) -> Vec<Header> {
        let key = Header::text(KEY_HEADER, format!("tenant-{}", self.of(sequence)));
        let others = self.others.iter().map(|(name, value)| Header::text(name, value.clone()));
        std::iter::once(key).chain(others).collect()
    }
}

/// The header with the fair key of a message.
pub const KEY_HEADER: &str = "tenant";

/// Load over HTTP: each connection has one request in flight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpLoad {
    /// The kind of requests.
    pub mode: HttpMode,
    /// The path of streams, without a final slash.
    pub prefix: String,
    /// The prefix of the names of this run's streams.
    pub run: String,
    /// The number of connections; of pairs for [`HttpMode::LongPoll`] and [`HttpMode::Sse`].
    pub connections: u32,
    /// The number of streams that the connections share.
    pub streams: u64,
    /// The length of an append in bytes.
    pub size: usize,
    /// The number of threads that share the connections.
    pub threads: u32,
}

/// The appends that waiting connections receive.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HttpWait {
    /// The number of appends, one after the other.
    pub rounds: u64,
    /// Milliseconds before each append.
    pub pause_ms: u64,
}

/// The kind of requests over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HttpMode {
    /// Appends.
    Append,
    /// Requests for the state of streams.
    Head,
    /// Creates streams.
    Create,
    /// Reads of streams from their start.
    Read,
    /// Appends, each to a stream with a reader that waits by long-poll.
    LongPoll,
    /// Appends, each to a stream with a reader that receives server-sent events.
    Sse,
}

impl HttpMode {
    /// Whether a reader waits for each append.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::LongPoll | Self::Sse)
    }
}

/// A null server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Null {
    /// The number of threads that share the connections.
    pub threads: u32,
    /// The length of the answer to a read in bytes.
    pub read_bytes: usize,
    /// The log that it writes and syncs before it answers.
    pub log: Option<NullLog>,
}

/// The log of a null server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NullLog {
    /// The folder of the log's files, one for each thread.
    pub folder: PathBuf,
    /// The length of a record in bytes.
    pub record_bytes: usize,
}

/// Producers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Produce {
    /// The first number.
    pub first: u32,
    /// How many there are, each with a connection.
    pub count: u32,
    /// Messages of a batch; with `None` the client chooses.
    pub batch: Option<u32>,
    /// The greatest number of unconfirmed messages of each.
    pub window: usize,
    /// Messages per second of all of them, on a schedule; `None` for as many as possible.
    pub rate: Option<f64>,
    /// Messages of each; with `None` they publish until the window ends.
    pub messages: Option<u64>,
    /// Whether payloads are JSON.
    #[serde(default)]
    pub is_json: bool,
}

/// Consumers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consume {
    /// The first number.
    pub first: u32,
    /// How many there are, each with a connection.
    pub count: u32,
    /// Messages that each may hold.
    pub credit_messages: u32,
    /// Bytes that each may hold.
    pub credit_bytes: u64,
}

/// Subscribers over WebSocket, each with a connection, and the producers beside them in the same process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subscribe {
    /// The address of the broker's HTTP port.
    pub http: String,
    /// The number of subscribers.
    pub subscribers: u32,
    /// The number of connections beside them that are subscribed and take nothing.
    pub stalled: u32,
    /// The number of threads that share the subscribers.
    pub threads: u32,
    /// The encoding that they speak.
    pub encoding: LiveEncoding,
    /// Whether they subscribe to the topic. Otherwise they are only connected.
    pub is_subscribed: bool,
    /// The producers; without them subscribers wait until the parent ends.
    pub produce: Option<Produce>,
    /// The greatest number of messages that producers may be ahead of the slowest subscriber; `None` with a rate, and
    /// where they wait for nobody.
    pub lag: Option<u64>,
    /// Whether subscribers that are told of missing messages subscribe again. Otherwise that is an error.
    pub resubscribes: bool,
    /// Whether the sequence of each message is read as well: the topic is another one than that of the producers.
    pub checks_sequences: bool,
    /// Seconds that subscribers may take after the last confirm.
    pub drain_s: f64,
}

/// The encoding of live connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LiveEncoding {
    /// Text.
    Json,
    /// Binary.
    Protobuf,
}

/// A client that publishes, takes and acks one message at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Echo {
    /// The number of measured rounds.
    pub messages: u64,
    /// The number of rounds before those.
    pub warmup: u64,
    /// Whether a round ends with its confirmed ack; otherwise with the delivery.
    pub confirm_ack: bool,
}

/// Readers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    /// The first number.
    pub first: u32,
    /// How many there are, each with a connection.
    pub count: u32,
    /// The credit of each in messages.
    pub credit_messages: u32,
    /// The credit of each in bytes; with `None` the client chooses.
    pub credit_bytes: Option<u64>,
    /// Each reader commits a cursor of its own after this number of messages; `None` for no cursors.
    pub commit_every: Option<u64>,
    /// A slow reader.
    pub slow: Option<Slow>,
    /// The preloaded messages, if the readers read only those: they begin with the earliest message.
    pub preloaded: Option<Preloaded>,
}

/// The messages that are published before the readers start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Preloaded {
    /// The number of messages.
    pub messages: u64,
    /// The number of times that each reader reads all of them.
    pub rounds: u64,
}

/// A reader that takes a limited number of messages per second until the load has ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// Its number.
    pub reader: u32,
    /// Messages per second that it takes; 0 for none.
    pub rate: f64,
}

/// The commands to a worker, one in each further line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// Start.
    Start(Window),
    /// End. Consumers end when they have received this number of different messages together, readers when each
    /// has. All end at the deadline.
    Finish {
        /// The expected number of messages.
        expect: u64,
        /// The deadline, in nanoseconds of the shared clock.
        deadline_ns: u64,
    },
}

/// The phases of a run, in nanoseconds of the shared clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The start of the load.
    pub start_ns: u64,
    /// The start of the measurement.
    pub from_ns: u64,
    /// The end of the measurement.
    pub until_ns: u64,
}

impl Window {
    /// Whether the measurement includes `instant_ns`.
    #[must_use]
    pub fn holds(&self, instant_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&instant_ns)
    }
}

/// The messages of a worker, one in each line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The worker is connected and waits for the start.
    Ready,
    /// The number of messages that the worker has handled.
    Progress(u64),
    /// The worker has finished.
    Done(Box<Report>),
    /// The worker has failed.
    Failed(String),
}

/// The measurements of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Messages published within the window.
    pub published: u64,
    /// Messages confirmed within the window.
    pub confirmed: u64,
    /// Different messages delivered within the window.
    pub delivered: u64,
    /// Messages acked within the window.
    pub acked: u64,
    /// The instants of the first and the last confirm or delivery.
    pub span_ns: Option<(u64, u64)>,
    /// The producer, its published and its confirmed messages, inside and outside the window.
    pub sent: Vec<(u32, u64, u64)>,
    /// The messages that consumers received, inside and outside the window.
    pub received: ReceivedSequences,
    /// Processor seconds of this process within the window; only readers report them.
    pub cpu_s: Option<f64>,
    /// The measurements of each reader.
    pub readers: Vec<ReaderReport>,
    /// The time from the intended instant to the confirm.
    pub publish_to_confirm: Buckets,
    /// The time from the intended instant to the delivery.
    pub publish_to_deliver: Buckets,
    /// The time from the intended instant to the confirmed ack.
    pub publish_to_settle: Buckets,
    /// The time from an append to the last reader that receives it.
    pub publish_to_last: Buckets,
    /// Nanoseconds during which waiting readers received an append.
    pub telling_ns: u64,
    /// The errors as text.
    pub errors: Vec<String>,
    /// The measurements of subscribers.
    pub live: Option<LiveReport>,
}

/// The measurements of all subscribers of a process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LiveReport {
    /// Missing, doubled and damaged messages.
    pub message_errors: MessageErrors,
    /// The messages of all reads.
    pub messages: u64,
    /// The number of reads that had messages.
    pub reads: u64,
    /// The bytes of all reads.
    pub bytes: u64,
    /// Messages that subscribers were told to be missing.
    pub told_missing: u64,
    /// How often they were told.
    pub gaps_told: u64,
}

/// The measurements of one reader.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReaderReport {
    /// Its number.
    pub number: u32,
    /// Different messages delivered within the window.
    pub delivered: u64,
    /// The messages that it received, inside and outside the window.
    pub received: ReceivedSequences,
    /// The time from the intended instant to the delivery.
    pub publish_to_deliver: Buckets,
    /// The instant of the last delivery within the window.
    pub last_ns: u64,
}

impl LiveReport {
    /// Adds the measurements of a thread.
    pub fn add(&mut self, other: &Self) {
        self.message_errors.add(&other.message_errors);
        self.messages += other.messages;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.told_missing += other.told_missing;
        self.gaps_told += other.gaps_told;
    }
}

impl Report {
    /// Widens the span to `instant_ns`.
    pub fn mark(&mut self, instant_ns: u64) {
        let (first, last) = self.span_ns.unwrap_or((instant_ns, instant_ns));
        self.span_ns = Some((first.min(instant_ns), last.max(instant_ns)));
    }
}

//! The plans for worker processes and their reports: one JSON object a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{identity::Sighting, latency::Buckets};

/// The first line to a worker: all it has to prepare.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The broker's address.
    pub server: String,
    /// The topic, which is there.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// The group, which is there.
    pub group: String,
    /// Bytes of a payload.
    pub size: usize,
    /// What to do.
    pub role: Role,
}

/// What a worker does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Publish.
    Produce(Produce),
    /// Take and ack.
    Consume(Consume),
    /// Publish one, take it, ack it, and only then the next.
    Echo(Echo),
    /// Read everything by offset, each reader for itself.
    Read(Read),
    /// Ask over HTTP.
    Http(HttpLoad),
    /// Wait over HTTP, and append.
    Wait(HttpLoad, HttpWait),
    /// Answer over HTTP at `server`, and do nothing else.
    Null(Null),
}

/// Load over HTTP: each connection has one request on the way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpLoad {
    /// What is asked.
    pub mode: HttpMode,
    /// The path that streams lie below, without a slash at its end.
    pub prefix: String,
    /// What the names of this run's streams begin with.
    pub run: String,
    /// How many connections; pairs of them for [`HttpMode::LongPoll`] and [`HttpMode::Sse`].
    pub connections: u32,
    /// How many streams they go round.
    pub streams: u64,
    /// Bytes of an append.
    pub size: usize,
    /// Threads that the connections are spread over.
    pub threads: u32,
}

/// How long there is something to wait for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HttpWait {
    /// Appends, one after the other.
    pub rounds: u64,
    /// Milliseconds before each.
    pub pause_ms: u64,
}

/// What is asked over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HttpMode {
    /// Appends.
    Append,
    /// The state of streams.
    Head,
    /// Streams that are not there yet.
    Create,
    /// Streams from their start.
    Read,
    /// Appends, each to a stream with one who waits for it by long-poll.
    LongPoll,
    /// Appends, each to a stream with one who gets its events.
    Sse,
}

impl HttpMode {
    /// Whether somebody waits for each append.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::LongPoll | Self::Sse)
    }
}

/// A server that does nothing but answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Null {
    /// Threads that the connections are spread over.
    pub threads: u32,
    /// Bytes that a read is answered with.
    pub read_bytes: usize,
    /// It writes what it is asked first, and syncs it.
    pub log: Option<NullLog>,
}

/// What a server that does nothing else writes before it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NullLog {
    /// The folder that the files lie in, one for each thread.
    pub folder: PathBuf,
    /// Bytes for each request.
    pub record_bytes: usize,
}

/// Producers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Produce {
    /// The number of the first.
    pub first: u32,
    /// How many, each with a connection.
    pub count: u32,
    /// Messages of a batch; `None` lets the client gather by itself.
    pub batch: Option<u32>,
    /// Most messages unconfirmed of each.
    pub window: usize,
    /// Messages per second of all of them, on a schedule; `None` as fast as they can.
    pub rate: Option<f64>,
    /// Messages of each; `None` until the window of time ends.
    pub messages: Option<u64>,
}

/// Consumers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consume {
    /// The number of the first.
    pub first: u32,
    /// How many, each with a connection.
    pub count: u32,
    /// Messages that each may hold.
    pub credit_messages: u32,
    /// Bytes that each may hold.
    pub credit_bytes: u64,
}

/// One client that goes round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Echo {
    /// How many rounds are measured.
    pub messages: u64,
    /// How many rounds before those.
    pub warmup: u64,
    /// Whether a round ends with its confirmed ack; otherwise with the delivery.
    pub confirm_ack: bool,
}

/// Readers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    /// The number of the first.
    pub first: u32,
    /// How many, each with a connection.
    pub count: u32,
    /// Messages that each may have on the way or untaken.
    pub credit_messages: u32,
    /// Bytes that each may have on the way or untaken; `None` for what the client takes by itself.
    pub credit_bytes: Option<u64>,
    /// Each reads under a cursor of its own, and commits it after so many messages; `None` without.
    pub commit_every: Option<u64>,
    /// One that does not keep up.
    pub slow: Option<Slow>,
    /// What was published before, if they read only that: they begin at the start, with the earliest message.
    pub preloaded: Option<Preloaded>,
}

/// What lies there before anybody reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Preloaded {
    /// Messages.
    pub messages: u64,
    /// How often each reader reads all of them.
    pub rounds: u64,
}

/// A reader that takes less than there is, until the load has ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// Its number.
    pub reader: u32,
    /// Messages per second that it takes; 0 for none at all.
    pub rate: f64,
}

/// Further lines to a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Begin.
    Start(Window),
    /// Consumers: end when so many different messages have come, or at that instant. Readers: when
    /// so many have come to each.
    Finish {
        /// How many.
        expect: u64,
        /// When at the latest, in nanoseconds of the shared clock.
        deadline_ns: u64,
    },
}

/// When a run is what, in nanoseconds of the shared clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The load begins.
    pub start_ns: u64,
    /// What happens from here on counts.
    pub from_ns: u64,
    /// What happens from here on does not.
    pub until_ns: u64,
}

impl Window {
    /// Whether what happens at `instant_ns` counts.
    #[must_use]
    pub fn holds(&self, instant_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&instant_ns)
    }
}

/// Lines from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum News {
    /// It is connected and waits for the start.
    Ready,
    /// How many messages it has dealt with.
    Progress(u64),
    /// It is done.
    Done(Box<Report>),
    /// It cannot go on.
    Failed(String),
}

/// What a worker has measured.
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
    /// When the first and the last of those were confirmed or delivered.
    pub span_ns: Option<(u64, u64)>,
    /// For each producer all that it published and had confirmed, in the window or not.
    pub sent: Vec<(u32, u64, u64)>,
    /// What consumers saw, in the window or not.
    pub sighting: Sighting,
    /// Processor seconds that this process used within the window; only readers say so.
    pub cpu_s: Option<f64>,
    /// What each reader got, by itself.
    pub readers: Vec<ReaderReport>,
    /// From the intended instant to the confirm.
    pub publish_to_confirm: Buckets,
    /// From the intended instant to the delivery.
    pub publish_to_deliver: Buckets,
    /// From the intended instant to the confirmed ack.
    pub publish_to_settle: Buckets,
    /// From an append to the last who waited for it.
    pub publish_to_last: Buckets,
    /// Nanoseconds in which somebody was told.
    pub telling_ns: u64,
    /// What went wrong, in words.
    pub errors: Vec<String>,
}

/// What one reader has got.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReaderReport {
    /// Its number.
    pub number: u32,
    /// Different messages delivered within the window.
    pub delivered: u64,
    /// What it saw, in the window or not.
    pub sighting: Sighting,
    /// From the intended instant to the delivery.
    pub publish_to_deliver: Buckets,
    /// When the last of them came.
    pub last_ns: u64,
}

impl Report {
    /// Widens the span to `instant_ns`.
    pub fn mark(&mut self, instant_ns: u64) {
        let (first, last) = self.span_ns.unwrap_or((instant_ns, instant_ns));
        self.span_ns = Some((first.min(instant_ns), last.max(instant_ns)));
    }
}

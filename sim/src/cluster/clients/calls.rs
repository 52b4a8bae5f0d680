//! The calls of clients that wait for an answer, and the history of all calls.

use std::{collections::BTreeMap, time::Duration};

use sennit_engine::{Command, Origin, SessionId};
use sennit_history::{Content, History, MessageName, What};
use sennit_model::{BatchBuilder, Message, MessageView, PartitionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    cluster::{judge::Instant, shard_node::ShardNode},
    oracle::Violation,
};

/// A partition as clients know it.
#[derive(Clone, Copy, Debug)]
pub struct KnownPartition {
    /// Its index among all, by which the history names it.
    pub index: u32,
    /// Its id.
    pub id: PartitionId,
    /// Whether its messages are given before they are committed. Then they are in no history.
    pub is_early: bool,
}

/// The client that has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It has a partition opened, by its index.
    Opener(usize),
    /// A publisher, by its index.
    Publisher(usize),
    /// A reader, by its index.
    Reader(usize),
    /// A consumer, by its index.
    Consumer(usize),
    /// It asks how much a partition has left, by its index.
    Asker(usize),
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The client.
    pub caller: Caller,
    /// The node that was asked.
    pub node: usize,
    /// The process there.
    life: u64,
    /// When it was called, on the history's clock.
    pub begun_ns: u64,
}

/// The nodes as clients reach them.
pub struct Reach<'a> {
    /// The nodes.
    pub nodes: &'a mut [ShardNode],
    /// The time.
    pub at: &'a Instant,
}

impl Reach<'_> {
    /// Tells a node a command. A node that does nothing hears nothing; returns whether it heard.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn tell(&mut self, node: usize, command: Command) -> Result<bool, Violation> {
        if self.at.awake[node] {
            self.nodes[node].tell(command, self.at.read_us[node])?;
        }
        Ok(self.at.awake[node])
    }
}

/// The calls that wait, and the history.
#[derive(Default)]
pub struct Calls {
    waiting: BTreeMap<u64, Call>,
    requests: u64,
    sessions: u64,
    now_ns: u64,
    /// All calls that have ended.
    pub history: History,
}

impl Calls {
    /// The next instant of the history: no two things happen at the same.
    pub fn instant(&mut self, at: &Instant) -> u64 {
        self.now_ns = (self.now_ns + 1).max(at.true_us * 1000);
        self.now_ns
    }

    /// A session that nobody has had.
    pub fn session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId(self.sessions)
    }

    /// All sessions that there were.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + use<> {
        (1..=self.sessions).map(SessionId)
    }

    /// A call begins. The answer is to have this origin.
    pub fn begin(
        &mut self,
        caller: Caller,
        session: SessionId,
        node: usize,
        reach: &Reach<'_>,
    ) -> Origin {
        self.requests += 1;
        let life = reach.nodes[node].lives;
        let begun_ns = self.instant(reach.at);
        let call = Call { caller, node, life, begun_ns };
        self.waiting.insert(self.requests, call);
        Origin { session, request: self.requests }
    }

    /// Takes the call that an answer belongs to. None belongs to a client that does not wait any more.
    pub fn end(&mut self, origin: Origin) -> Option<Call> {
        self.waiting.remove(&origin.request)
    }

    /// The call that something belongs to which is not its end.
    pub fn find(&self, origin: Origin) -> Option<Call> {
        self.waiting.get(&origin.request).copied()
    }

    /// Takes the calls to processes that have ended.
    pub fn take_broken(&mut self, nodes: &[ShardNode]) -> Vec<(u64, Call)> {
        self.waiting.extract_if(.., |_, call| nodes[call.node].lives != call.life).collect()
    }

    /// Adds an operation to the history that ends now.
    pub fn ended(&mut self, process: u32, begun_ns: u64, at: &Instant, what: What) {
        let ended_ns = self.instant(at);
        self.history.add(process, begun_ns, Some(ended_ns), what);
    }
}

/// A message of a publisher, which may expire.
pub fn push_message(
    builder: &mut BatchBuilder,
    name: MessageName,
    length: u64,
    time_to_live: Option<Duration>,
) {
    let mut payload = name.publisher.to_le_bytes().to_vec();
    payload.extend(name.number.to_le_bytes());
    payload.resize(payload.len() + length as usize, name.number as u8);
    let message = Message { time_to_live, ..Message::new(payload) };
    builder.push(&message).expect("within all limits");
}

/// The message that a payload is.
pub fn content(message: &MessageView<'_>) -> Content {
    let whole = || {
        let (publisher, rest) = message.payload().split_first_chunk()?;
        let (number, filler) = rest.split_first_chunk()?;
        let number = u64::from_le_bytes(*number);
        let publisher = u32::from_le_bytes(*publisher);
        let is_whole = filler.iter().all(|byte| *byte == number as u8);
        is_whole.then_some(Content::Message(MessageName { publisher, number }))
    };
    whole().unwrap_or_else(|| Content::Foreign(xxh3_64(message.payload())))
}

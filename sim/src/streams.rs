//! The simulated stream users, their requests and the responses: writers that repeat unanswered appends, readers
//! that follow forks, and users that delete streams. They have random numbers of their own, so that they do not
//! change other runs. Their actions are in `stream_actions`.

use std::collections::BTreeMap;

use sennit_engine::{Effect, ForkOf, OpenStream, StreamAnswer, StreamAppend};
use sennit_model::{Offset, PartitionId, PartitionIndex, TopicId};

use crate::{
    atomic_writers::{AtomicWriters, SentAppend},
    native_publishers::NativePublishers,
    random::Random,
};

/// The first topic of streams. Other topics have far lower numbers.
const TOPICS: u32 = 1 << 20;

/// The appends of a writer to a stream.
#[derive(Debug, Default)]
pub struct SentAppends {
    pub epoch: u64,
    /// Its appends, by their number, and whether each has a final answer.
    pub sent: Vec<(StreamAppend, bool)>,
    /// The index of the next append to send, for the first time or again.
    pub at: usize,
}

/// A stream as its users know it.
#[derive(Debug)]
pub struct KnownStream {
    pub id: PartitionId,
    pub open: OpenStream,
    /// Its end, as far as its users know.
    pub end: u64,
    pub sent_appends: BTreeMap<u64, SentAppends>,
    /// The number in the last `Stream-Seq` that was sent.
    pub sequence: u64,
    /// Whether its deletion was requested.
    pub ends: bool,
}

/// The step that follows a response.
#[derive(Clone, Debug)]
pub enum Step {
    /// An append, with its writer, epoch and index if it is repeated until it is answered.
    Append(PartitionId, Option<(u64, u64, usize)>),
    /// An atomic append, with its writer if it is repeated until it is answered.
    Together(Option<SentAppend>),
    /// The opening of a stream. A fork that is refused releases its source.
    Open(PartitionId),
    /// A fork's reference at its source. The fork is opened after it.
    AddFork(Box<OpenStream>, PartitionId),
    /// The deletion of a stream, or of a fork's reference. The partition is dropped after it if nothing needs it.
    Delete(PartitionId),
    /// The drop of a partition. The source of a fork loses its reference after it.
    Drop(PartitionId, Option<ForkOf>),
    /// A read. An audit continues to the end of its stream, from the offset that it has reached.
    Read { of: PartitionId, audit: Option<(PartitionId, Offset)> },
    /// No step follows.
    Nothing,
}

/// All stream users.
#[derive(Debug)]
pub struct Streams {
    pub random: Random,
    /// How often a user acts, in parts of a thousand.
    pub eagerness: u32,
    /// How often a new stream has a time to live, in parts of a thousand.
    pub ends: u32,
    pub held: Vec<KnownStream>,
    /// Deleted streams.
    pub gone: Vec<PartitionId>,
    pub waiting: BTreeMap<u64, Step>,
    /// Reads that wait, by request.
    pub open_reads: BTreeMap<u64, PartitionId>,
    /// Responses that are not handled yet.
    pub responses: Vec<(u64, Response)>,
    pub ended: Vec<PartitionId>,
    pub atomic_writers: AtomicWriters,
    pub native_publishers: NativePublishers,
    next_topic: u32,
    pub next_message: u64,
}

/// A response to a request.
#[derive(Debug)]
pub enum Response {
    /// The stream's answer.
    Answer(StreamAnswer),
    /// The request is done.
    Done,
    /// The shard has refused the request.
    Refused,
}

impl Streams {
    /// The users of a seed; half of all seeds have none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x57E4_A11A);
        let eagerness = [0, 0, 0, 100, 300, 600][random.below(6) as usize];
        let ends = [0, 200, 600][random.below(3) as usize];
        Self {
            random,
            eagerness,
            ends,
            held: Vec::new(),
            gone: Vec::new(),
            waiting: BTreeMap::new(),
            open_reads: BTreeMap::new(),
            responses: Vec::new(),
            ended: Vec::new(),
            atomic_writers: AtomicWriters::new(seed),
            native_publishers: NativePublishers::new(seed),
            next_topic: TOPICS,
            next_message: 1 << 40,
        }
    }

    /// No users.
    #[must_use]
    pub fn none() -> Self {
        Self { eagerness: 0, ..Self::new(0) }
    }

    /// A partition that no stream has had.
    pub fn new_id(&mut self) -> PartitionId {
        self.next_topic += 1;
        PartitionId { topic: TopicId(self.next_topic), index: PartitionIndex(0) }
    }

    /// Handles an effect for one of the users.
    pub fn handle_effect(&mut self, effect: &Effect) {
        if let Some((id, end)) = self.native_publishers.handle_effect(effect)
            && let Some(held) = self.find(id)
        {
            held.end = held.end.max(end.0);
        }
        let (request, heard) = match effect {
            Effect::Stream(origin, answer) => {
                (origin.request, Response::Answer((**answer).clone()))
            }
            Effect::Done { origin, .. } => (origin.request, Response::Done),
            Effect::Refused { origin, .. } => (origin.request, Response::Refused),
            Effect::StreamEnded { topic } => {
                let id = PartitionId { topic: *topic, index: PartitionIndex(0) };
                return self.ended.push(id);
            }
            _ => return,
        };
        if self.waiting.contains_key(&request) {
            self.open_reads.remove(&request);
            self.responses.push((request, heard));
        }
    }

    pub fn find(&mut self, id: PartitionId) -> Option<&mut KnownStream> {
        self.held.iter_mut().find(|held| held.id == id)
    }

    /// Notes that a stream does not exist any more.
    pub fn forget(&mut self, id: PartitionId) {
        self.held.retain(|held| held.id != id);
        self.gone.push(id);
    }

    /// A random stream, at times a deleted one.
    pub fn any(&mut self) -> Option<PartitionId> {
        one_of(&mut self.random, &self.held, &self.gone)
    }

    /// Returns whether a request waits for an answer that comes by itself.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let awaits = self.waiting.keys().any(|request| !self.open_reads.contains_key(request));
        awaits || !self.responses.is_empty() || !self.ended.is_empty()
    }

    /// Handles the end of the broker: unanswered appends must be sent again.
    pub fn disconnected(&mut self) {
        self.waiting.clear();
        self.open_reads.clear();
        self.responses.clear();
        self.ended.clear();
        self.atomic_writers.disconnected();
        self.native_publishers.disconnected();
        for line in self.held.iter_mut().flat_map(|held| held.sent_appends.values_mut()) {
            line.at = line.sent.iter().position(|sent| !sent.1).unwrap_or(line.sent.len());
        }
    }
}

/// A random stream, at times a deleted one.
pub fn one_of(
    random: &mut Random,
    held: &[KnownStream],
    gone: &[PartitionId],
) -> Option<PartitionId> {
    if random.chance(30) {
        return random.pick(gone).copied();
    }
    let ids: Vec<PartitionId> = held.iter().map(|held| held.id).collect();
    random.pick(&ids).copied()
}

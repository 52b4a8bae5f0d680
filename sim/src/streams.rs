//! Those who use streams, and what each has said and heard: writers that send again what was not answered,
//! readers that go through what a fork was made of, and whoever takes streams away. They draw from chance
//! of their own, so that a world without them is what it was before there were any. What they do is in
//! `streaming`.

use std::collections::BTreeMap;

use sennit_engine::{Effect, ForkOf, OpenStream, StreamAnswer, StreamAppend};
use sennit_model::{Offset, PartitionId, PartitionIndex, TopicId};

use crate::{
    natives::Natives,
    random::Random,
    tellers::{Sent, Tellers},
};

/// The first topic that is a stream: those of others are far below.
const TOPICS: u32 = 1 << 20;

/// What a writer has sent to a stream in its life.
#[derive(Debug, Default)]
pub struct Line {
    pub epoch: u64,
    /// Its appends, by their number, and whether each was answered for good.
    pub sent: Vec<(StreamAppend, bool)>,
    /// Appends from here on have to be sent (again).
    pub at: usize,
}

/// A stream, as those know it who use it.
#[derive(Debug)]
pub struct Held {
    pub id: PartitionId,
    pub open: OpenStream,
    /// As somebody has heard last.
    pub end: u64,
    pub lines: BTreeMap<u64, Line>,
    /// The last text that was sent with an append.
    pub sequence: u64,
    /// Whether somebody takes it away: its number is given to no other stream.
    pub ends: bool,
}

/// What somebody waits for.
#[derive(Clone, Debug)]
pub enum Step {
    /// An append of a writer: its epoch and number, if it has one.
    Append(PartitionId, Option<(u64, u64, usize)>),
    /// Appends of a teller, if they are some that it sends until they are answered.
    Together(Option<Sent>),
    /// A stream to be there; a fork gives its source back if it is not.
    Open(PartitionId),
    /// The source of a fork to hold it; then the fork is opened.
    AddFork(Box<OpenStream>, PartitionId),
    /// A stream to be deleted, or to lose a fork; then its partition is dropped if nothing needs it.
    Delete(PartitionId),
    /// A partition to be dropped; then what it was forked from loses it.
    Drop(PartitionId, Option<ForkOf>),
    /// A read; an audit goes on to the end, in the stream that it is of, where it stands there.
    Read { of: PartitionId, audit: Option<(PartitionId, Offset)> },
    /// Something that nothing follows from.
    Nothing,
}

/// All of them.
#[derive(Debug)]
pub struct Streams {
    pub random: Random,
    /// How often one of them does something, in parts of a thousand.
    pub eagerness: u32,
    /// How often a new stream has a time to live, in parts of a thousand.
    pub ends: u32,
    pub held: Vec<Held>,
    /// Streams that are gone.
    pub gone: Vec<PartitionId>,
    pub waiting: BTreeMap<u64, Step>,
    /// Reads that wait, by request.
    pub open_reads: BTreeMap<u64, PartitionId>,
    /// What came and was not acted on.
    pub heard: Vec<(u64, Heard)>,
    pub ended: Vec<PartitionId>,
    pub tellers: Tellers,
    pub natives: Natives,
    next_topic: u32,
    pub next_message: u64,
}

/// What came of a request.
#[derive(Debug)]
pub enum Heard {
    /// A stream has answered.
    Answer(StreamAnswer),
    /// It is done.
    Done,
    /// The shard has refused it.
    Refused,
}

impl Streams {
    /// Those of a seed: of half of all seeds there are none.
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
            heard: Vec::new(),
            ended: Vec::new(),
            tellers: Tellers::new(seed),
            natives: Natives::new(seed),
            next_topic: TOPICS,
            next_message: 1 << 40,
        }
    }

    /// Nobody.
    #[must_use]
    pub fn none() -> Self {
        Self { eagerness: 0, ..Self::new(0) }
    }

    /// A partition that no stream had.
    pub fn new_id(&mut self) -> PartitionId {
        self.next_topic += 1;
        PartitionId { topic: TopicId(self.next_topic), index: PartitionIndex(0) }
    }

    /// Takes an effect that is meant for one of them.
    pub fn hear(&mut self, effect: &Effect) {
        if let Some((id, end)) = self.natives.hear(effect)
            && let Some(held) = self.find(id)
        {
            held.end = held.end.max(end.0);
        }
        let (request, heard) = match effect {
            Effect::Stream(origin, answer) => (origin.request, Heard::Answer((**answer).clone())),
            Effect::Done { origin, .. } => (origin.request, Heard::Done),
            Effect::Refused { origin, .. } => (origin.request, Heard::Refused),
            Effect::StreamEnded { topic } => {
                let id = PartitionId { topic: *topic, index: PartitionIndex(0) };
                return self.ended.push(id);
            }
            _ => return,
        };
        if self.waiting.contains_key(&request) {
            self.open_reads.remove(&request);
            self.heard.push((request, heard));
        }
    }

    pub fn find(&mut self, id: PartitionId) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.id == id)
    }

    /// A stream is gone.
    pub fn forget(&mut self, id: PartitionId) {
        self.held.retain(|held| held.id != id);
        self.gone.push(id);
    }

    /// One of the streams, if there is one, or was.
    pub fn any(&mut self) -> Option<PartitionId> {
        one_of(&mut self.random, &self.held, &self.gone)
    }

    /// Whether somebody waits for something that is to come by itself.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let awaits = self.waiting.keys().any(|request| !self.open_reads.contains_key(request));
        awaits || !self.heard.is_empty() || !self.ended.is_empty()
    }

    /// The broker is gone: what was not answered has to be sent again.
    pub fn disconnected(&mut self) {
        self.waiting.clear();
        self.open_reads.clear();
        self.heard.clear();
        self.ended.clear();
        self.tellers.disconnected();
        self.natives.disconnected();
        for line in self.held.iter_mut().flat_map(|held| held.lines.values_mut()) {
            line.at = line.sent.iter().position(|sent| !sent.1).unwrap_or(line.sent.len());
        }
    }
}

/// A stream that is there, or now and then one that is gone.
pub fn one_of(random: &mut Random, held: &[Held], gone: &[PartitionId]) -> Option<PartitionId> {
    if random.chance(30) {
        return random.pick(gone).copied();
    }
    let ids: Vec<PartitionId> = held.iter().map(|held| held.id).collect();
    random.pick(&ids).copied()
}

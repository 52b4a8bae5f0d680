//! A publisher: it sends batches, some under a producer id and again until they are confirmed, some at an expected
//! offset, and some once and for better or worse.

use std::{collections::VecDeque, time::Duration};

use sennit_engine::{Command, Confirmed, Publish, Refusal, SessionId};
use sennit_history::{Answer, Content, MessageName, Published, What};
use sennit_model::{Batch, BatchBuilder, Offset, ProducerId, ProducerStamp};

use super::calls::{Call, Caller, Calls, KnownPartition, Reach, push_message};
use crate::{
    cluster::{judge::Instant, shard_weather::ShardWeather},
    oracle::Violation,
    random::Random,
};

/// The promise that what is confirmed is not lost.
pub const CONFIRMED: &str = "I1 what was confirmed is not lost";

/// How a publisher publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Each batch once; its outcome may stay unknown.
    Once,
    /// Under a producer id, again until it is confirmed.
    Idempotent,
    /// At the offset that it expects to be the next.
    Expecting,
}

/// A batch that was sent, or is to be sent again.
#[derive(Debug)]
struct Sent {
    first: u64,
    batch: Batch,
    begun_ns: Option<u64>,
    expected: Option<u64>,
    /// The request that is to answer it; none if it has to be sent again.
    request: Option<u64>,
    sent_us: u64,
}

/// A publisher.
#[derive(Debug)]
pub struct Publisher {
    index: usize,
    manner: Manner,
    session: SessionId,
    partition: KnownPartition,
    window: usize,
    payload_bytes_max: u64,
    expiring: (u32, u64),
    patience_us: u64,
    sent: VecDeque<Sent>,
    next: u64,
    /// The offset that it expects to be the next.
    expected: u64,
    /// The leader, as far as it knows.
    node: Option<usize>,
}

impl Publisher {
    /// A publisher that has sent nothing.
    pub fn new(
        index: usize,
        session: SessionId,
        partition: KnownPartition,
        weather: &ShardWeather,
        random: &mut Random,
    ) -> Self {
        // At most once of a topic that is not durable: what was confirmed there may be taken back.
        let manner = match partition.is_early {
            true => [Manner::Once; 4],
            false => [Manner::Idempotent, Manner::Once, Manner::Idempotent, Manner::Expecting],
        };
        Self {
            index,
            manner: manner[index % manner.len()],
            session,
            partition,
            window: random.between(1, 4) as usize,
            payload_bytes_max: weather.payload_bytes_max,
            expiring: weather.expiring,
            patience_us: weather.patience_us,
            sent: VecDeque::new(),
            next: 0,
            expected: 0,
            node: None,
        }
    }

    /// Whether each batch has its answer.
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    fn name(&self, number: u64) -> MessageName {
        MessageName { publisher: self.index as u32, number }
    }

    /// Sends what is to be sent again, or else something new if `is_new`. `tip` is the node that is asked if it knows
    /// of no leader.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn act(
        &mut self,
        is_new: bool,
        tip: usize,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        self.lose_patience(calls, reach.at);
        if is_new && self.sent.len() < self.window {
            self.make(random);
        }
        for at in 0..self.sent.len() {
            if self.sent[at].request.is_none() {
                self.send(at, tip, calls, reach)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, random: &mut Random) {
        let mut builder = BatchBuilder::new();
        let first = self.next;
        for _ in 0..random.between(1, 3) {
            let length = random.below(self.payload_bytes_max + 1);
            let (share, most_ms) = self.expiring;
            let expires = random.chance(share);
            let time_to_live = expires.then(|| Duration::from_millis(random.between(1, most_ms)));
            push_message(&mut builder, self.name(self.next), length, time_to_live);
            self.next += 1;
        }
        let batch = builder.take().expect("it has messages");
        let (begun_ns, request, expected) = (None, None, None);
        self.sent.push_back(Sent { first, batch, begun_ns, expected, request, sent_us: 0 });
    }

    fn send(
        &mut self,
        at: usize,
        tip: usize,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
    ) -> Result<(), Violation> {
        let node = self.node.unwrap_or(tip);
        if !reach.at.awake[node] {
            self.node = None;
            return Ok(());
        }
        let origin = calls.begin(Caller::Publisher(self.index), self.session, node, reach);
        let sent = &mut self.sent[at];
        sent.begun_ns.get_or_insert(calls.instant(reach.at));
        (sent.request, sent.sent_us) = (Some(origin.request), reach.at.true_us);
        let id = match self.manner {
            Manner::Idempotent => ProducerId(self.index as u64 + 1),
            Manner::Once | Manner::Expecting => ProducerId(0),
        };
        let producer = ProducerStamp { id, epoch: 0, first_sequence: sent.first };
        let (partition, batch) = (self.partition.id, sent.batch.clone());
        let publish = Publish { origin, partition, producer, batch };
        let command = match self.manner {
            Manner::Once | Manner::Idempotent => Command::Publish(publish),
            Manner::Expecting => {
                sent.expected = Some(self.expected);
                // If it is appended, the next one follows.
                self.expected += u64::from(sent.batch.count());
                Command::PublishAt(publish, Offset(self.expected - u64::from(sent.batch.count())))
            }
        };
        reach.tell(node, command).map(drop)
    }

    fn lose_patience(&mut self, calls: &mut Calls, at: &Instant) {
        let patience_us = self.patience_us;
        let is_over = |sent: &Sent| {
            sent.request.is_some() && at.true_us.saturating_sub(sent.sent_us) > patience_us
        };
        let late: Vec<u64> =
            self.sent.iter().filter(|sent| is_over(sent)).filter_map(|sent| sent.request).collect();
        for request in late {
            self.node = None;
            self.unknown(request, calls, at);
        }
    }

    fn find(&self, request: u64) -> Option<usize> {
        self.sent.iter().position(|sent| sent.request == Some(request))
    }

    /// The outcome of a request is not known.
    pub fn unknown(&mut self, request: u64, calls: &mut Calls, at: &Instant) {
        let Some(index) = self.find(request) else { return };
        match self.manner {
            Manner::Idempotent => self.sent[index].request = None,
            Manner::Once | Manner::Expecting => self.end(index, Answer::Unknown, calls, at),
        }
    }

    fn end(&mut self, index: usize, answer: Answer, calls: &mut Calls, at: &Instant) {
        let Some(sent) = self.sent.remove(index).filter(|_| !self.partition.is_early) else {
            return;
        };
        let published = Published {
            first: self.name(sent.first),
            count: sent.batch.count(),
            partition: Some(self.partition.index),
            once: true,
            expected: sent.expected,
            answer,
        };
        let begun_ns = sent.begun_ns.unwrap_or_else(|| calls.instant(at));
        match answer {
            Answer::Unknown => {
                let what = What::Published(published);
                calls.history.add(self.index as u32, begun_ns, None, what);
            }
            _ => calls.ended(self.index as u32, begun_ns, at, What::Published(published)),
        }
    }

    /// The partition.
    pub fn partition(&self) -> KnownPartition {
        self.partition
    }

    /// The messages of the batch that a request is to answer.
    pub fn contents(&self, request: u64) -> Vec<Content> {
        let Some(index) = self.find(request) else { return Vec::new() };
        let Sent { first, batch, .. } = &self.sent[index];
        let numbers = *first..first + u64::from(batch.count());
        numbers.map(|number| Content::Message(self.name(number))).collect()
    }

    /// A batch is confirmed.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn confirmed(
        &mut self,
        request: u64,
        confirmed: &Confirmed,
        calls: &mut Calls,
        at: &Instant,
    ) -> Result<(), Violation> {
        let Some(index) = self.find(request) else { return Ok(()) };
        let sent = &self.sent[index];
        let told = (confirmed.first_sequence, confirmed.count);
        if told != (sent.first, sent.batch.count()) {
            let detail = format!("{confirmed:?} for {sent:?}");
            return Err(Violation::new("I2 a confirm is of what was published", detail));
        }
        let answer = Answer::Confirmed(confirmed.first_offset.map(|first| first.0));
        self.end(index, answer, calls, at);
        Ok(())
    }

    /// A batch is confirmed at the expected offset.
    pub fn confirmed_at(&mut self, request: u64, first: Offset, calls: &mut Calls, at: &Instant) {
        if let Some(index) = self.find(request) {
            self.end(index, Answer::Confirmed(Some(first.0)), calls, at);
        }
    }

    /// A batch is refused.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn refused(
        &mut self,
        request: u64,
        call: Call,
        refusal: &Refusal,
        calls: &mut Calls,
        at: &Instant,
    ) -> Result<(), Violation> {
        match refusal {
            Refusal::NotLeader { leader } => self.node = Some(*leader as usize - 1),
            Refusal::NoLeader | Refusal::OutcomeUnknown => self.node = None,
            _ => self.node = Some(call.node),
        }
        let Some(index) = self.find(request) else { return Ok(()) };
        let sequence = self.sent[index].first;
        match refusal {
            Refusal::OutcomeUnknown => self.unknown(request, calls, at),
            Refusal::SequenceGap { expected, .. } if index == 0 => {
                let detail = format!("the next is {expected}, and all before {sequence} were");
                return Err(Violation::new(CONFIRMED, detail));
            }
            _ if self.manner == Manner::Idempotent => self.sent[index].request = None,
            Refusal::OffsetMismatch { next, .. } => {
                self.expected = next.0;
                self.end(index, Answer::NextIs(next.0), calls, at);
            }
            _ => self.end(index, Answer::Refused, calls, at),
        }
        Ok(())
    }
}

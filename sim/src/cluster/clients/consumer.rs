//! A consumer of a group: it subscribes where it finds the leader, acks what it is given or hands it back, and leaves,
//! with a word or without.

use std::{collections::BTreeMap, time::Duration};

use sennit_engine::{
    Command, Credit, Delivery, DeliveryRun, SessionId, Settle, Settled, Subscribe, Verdict,
};
use sennit_history::{Delivered, Settlement, What};
use sennit_model::{GroupId, Messages};

use super::calls::{Call, Caller, Calls, KnownPartition, Reach, content};
use crate::{cluster::judge::Instant, oracle::Violation, random::Random};

/// The group of all consumers.
pub const GROUP: GroupId = GroupId(1);
/// The process of the first consumer in the history.
const PROCESS: u32 = 2000;

/// The state of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It has asked for its subscription.
    Asks {
        since_us: u64,
    },
    Subscribed,
}

/// A consumer.
#[derive(Debug)]
pub struct Consumer {
    index: usize,
    partition: KnownPartition,
    /// Whether it acks all, and does nothing else.
    drains: bool,
    patience_us: u64,
    state: State,
    session: SessionId,
    /// Its number in the history: a new one for each subscription.
    number: u32,
    node: Option<usize>,
    /// The request for its subscription.
    request: u64,
    /// Its messages.
    held: Vec<DeliveryRun>,
    /// Messages that were acked with a request that has no answer.
    acked: BTreeMap<u64, Vec<DeliveryRun>>,
}

impl Consumer {
    /// A consumer without a subscription.
    pub fn new(index: usize, partition: KnownPartition, drains: bool, patience_us: u64) -> Self {
        Self {
            index,
            partition,
            drains,
            patience_us,
            state: State::Idle,
            session: SessionId(0),
            number: 0,
            node: None,
            request: 0,
            held: Vec::new(),
            acked: BTreeMap::new(),
        }
    }

    /// Whether the consumer has this session.
    pub fn is(&self, session: SessionId) -> bool {
        self.state != State::Idle && self.session == session
    }

    /// The partition.
    pub fn partition(&self) -> KnownPartition {
        self.partition
    }

    /// Subscribes, or settles what it holds, or leaves.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn act(
        &mut self,
        tip: usize,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        match self.state {
            State::Idle => self.subscribe(tip, calls, reach, random),
            State::Asks { since_us } => {
                if reach.at.true_us - since_us > self.patience_us {
                    self.interrupted();
                }
                Ok(())
            }
            State::Subscribed if self.drains => {
                while !self.held.is_empty() {
                    self.settle(Verdict::Ack, true, calls, reach, random)?;
                }
                Ok(())
            }
            State::Subscribed => match random.weighted(&[60, 8, 4, 3, 2]) {
                0 => {
                    let confirm = random.chance(800);
                    self.settle(Verdict::Ack, confirm, calls, reach, random)
                }
                1 => self.settle(Verdict::Retry, false, calls, reach, random),
                2 => {
                    let longer = Verdict::Extend(Duration::from_millis(random.below(3000)));
                    self.settle(longer, false, calls, reach, random)
                }
                3 => {
                    let node = self.node.unwrap_or(tip);
                    self.leave(node, reach)
                }
                _ => {
                    // Its connection hangs: the broker does not know that it is gone.
                    self.interrupted();
                    Ok(())
                }
            },
        }
    }

    fn subscribe(
        &mut self,
        tip: usize,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let node = self.node.unwrap_or(tip);
        if !reach.at.awake[node] {
            self.node = None;
            return Ok(());
        }
        self.session = calls.session();
        let origin = calls.begin(Caller::Consumer(self.index), self.session, node, reach);
        (self.node, self.request) = (Some(node), origin.request);
        self.number = origin.request as u32;
        self.state = State::Asks { since_us: reach.at.true_us };
        let messages = if self.drains { 1000 } else { random.between(1, 20) as u32 };
        let credit = Credit { messages, bytes: 1 << 20 };
        let (partition, group) = (self.partition.id, GROUP);
        let subscribe = Subscribe { origin, subscription: 1, partition, group, credit };
        reach.tell(node, Command::Subscribe(subscribe)).map(drop)
    }

    /// Settles some of what it holds.
    fn settle(
        &mut self,
        verdict: Verdict,
        confirm: bool,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let Some(node) = self.node.filter(|node| reach.at.awake[*node]) else { return Ok(()) };
        if self.held.is_empty() {
            return Ok(());
        }
        let count = random.between(1, self.held.len().min(3) as u64) as usize;
        let runs: Vec<DeliveryRun> = match verdict {
            Verdict::Extend(_) => self.held[..count].to_vec(),
            _ => self.held.drain(..count).collect(),
        };
        let origin = calls.begin(Caller::Consumer(self.index), self.session, node, reach);
        if confirm && verdict == Verdict::Ack {
            self.acked.insert(origin.request, runs.clone());
        }
        let (partition, group) = (self.partition.id, GROUP);
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        reach.tell(node, Command::Settle(settle)).map(drop)
    }

    /// It says that it goes.
    fn leave(&mut self, node: usize, reach: &mut Reach<'_>) -> Result<(), Violation> {
        let (session, grace) = (self.session, Duration::ZERO);
        reach.tell(node, Command::EndSession { session, grace })?;
        self.interrupted();
        Ok(())
    }

    /// Its subscription has begun.
    pub fn subscribed(&mut self, request: u64) {
        if request == self.request {
            self.state = State::Subscribed;
        }
    }

    /// It has to ask again.
    pub fn interrupted(&mut self) {
        (self.state, self.node) = (State::Idle, None);
        self.held.clear();
        self.acked.clear();
    }

    /// A request is refused.
    pub fn refused(&mut self, request: u64, leader: Option<usize>) {
        self.acked.remove(&request);
        if request == self.request {
            self.interrupted();
            self.node = leader;
        }
    }

    /// Messages have come.
    pub fn delivered(&mut self, delivery: &Delivery, calls: &mut Calls, at: &Instant) {
        let &Delivery { first, count, attempt, generation, .. } = delivery;
        let messages = Messages::of_checked(&delivery.messages);
        let delivered = Delivered {
            consumer: self.number,
            group: GROUP.0,
            partition: self.partition.index,
            first: first.0,
            contents: messages.map(|message| content(&message)).collect(),
            generation: generation.0.into(),
            attempt,
        };
        let begun_ns = calls.instant(at);
        calls.ended(PROCESS + self.index as u32, begun_ns, at, What::Delivered(delivered));
        self.held.push(DeliveryRun { first, count, attempt, generation });
    }

    /// A settlement is committed. Returns the runs that are settled by it.
    pub fn settled(
        &mut self,
        (request, call): (u64, Call),
        settled: &Settled,
        calls: &mut Calls,
        at: &Instant,
    ) -> Vec<DeliveryRun> {
        let overlaps = |run: &DeliveryRun, stale: &DeliveryRun| {
            let end = |run: &DeliveryRun| run.first.0 + u64::from(run.count);
            run.first.0 < end(stale) && stale.first.0 < end(run)
        };
        let mut runs = self.acked.remove(&request).unwrap_or_default();
        runs.retain(|run| !settled.stale.iter().any(|stale| overlaps(run, stale)));
        for run in &runs {
            let settlement = Settlement {
                group: GROUP.0,
                partition: self.partition.index,
                first: run.first.0,
                count: run.count,
                generation: run.generation.0.into(),
                attempt: run.attempt,
                is_confirmed: true,
            };
            let process = PROCESS + self.index as u32;
            calls.ended(process, call.begun_ns, at, What::Settlement(settlement));
        }
        runs
    }
}

//! The consumers: they subscribe, hold what they are given, settle it rightly, late, twice or
//! wrongly, and leave. They know nothing of publishers.

use std::{collections::VecDeque, time::Duration};

use sennit_engine::{
    Command, Credit, Delivery, DeliveryRun, Origin, SessionId, Settle, Subscribe, Verdict,
};
use sennit_model::{GroupId, Offset, PartitionId};

use crate::{random::Random, swarm::Swarm};

/// How many deliveries are remembered to be settled late or twice.
const REMEMBERED: usize = 300;
/// Most runs in a settlement.
const RUNS_MAX: u64 = 12;

/// A subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taker {
    session: SessionId,
    subscription: u32,
    partition: PartitionId,
    group: GroupId,
}

/// All consumers.
#[derive(Debug)]
pub struct Consumers {
    takers: Vec<Taker>,
    held: Vec<(Taker, DeliveryRun)>,
    past: VecDeque<(Taker, DeliveryRun)>,
    next_session: u64,
    next_subscription: u32,
}

impl Default for Consumers {
    fn default() -> Self {
        let (takers, held, past) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { takers, held, past, next_session: 2, next_subscription: 0 }
    }
}

impl Consumers {
    /// Begins a subscription with this window, in a new session or in one that is there.
    pub fn subscribe(
        &mut self,
        random: &mut Random,
        (partition, group): (PartitionId, GroupId),
        credit: Credit,
        request: u64,
    ) -> Command {
        let old = random.pick(&self.takers).map(|taker| taker.session);
        let session = old.filter(|_| random.chance(400)).unwrap_or_else(|| {
            self.next_session += 1;
            SessionId(self.next_session)
        });
        self.next_subscription += 1;
        let subscription = self.next_subscription;
        self.takers.push(Taker { session, subscription, partition, group });
        let origin = Origin { session, request };
        Command::Subscribe(Subscribe { origin, subscription, partition, group, credit })
    }

    /// Gives a subscription another window.
    pub fn credit(&mut self, random: &mut Random) -> Option<Command> {
        let Taker { session, subscription, partition, group } = *random.pick(&self.takers)?;
        let credit = window(random);
        Some(Command::SetCredit { session, subscription, partition, group, credit })
    }

    /// A subscription or a session ends.
    pub fn leave(&mut self, random: &mut Random, swarm: &Swarm) -> Option<Command> {
        let taker = *random.pick(&self.takers)?;
        let Taker { session, subscription, partition, group } = taker;
        if random.chance(400) {
            self.takers.retain(|held| *held != taker);
            // Who said goodbye has no more to say of what it held.
            self.forget(|held| *held == taker);
            return Some(Command::Unsubscribe { session, subscription, partition, group });
        }
        self.takers.retain(|held| held.session != session);
        let grace = if random.chance(300) { Duration::ZERO } else { swarm.span(random) };
        if grace.is_zero() {
            self.forget(|held| held.session == session);
        }
        Some(Command::EndSession { session, grace })
    }

    fn forget(&mut self, which: impl Fn(&Taker) -> bool) {
        self.held.retain(|(taker, _)| !which(taker));
        self.past.retain(|(taker, _)| !which(taker));
    }

    /// A delivery has come.
    pub fn delivered(&mut self, delivery: &Delivery) {
        let is_own = |taker: &&Taker| {
            taker.session == delivery.session && taker.subscription == delivery.subscription
        };
        let Some(&taker) = self.takers.iter().find(is_own) else { return };
        let run = DeliveryRun {
            first: delivery.first,
            count: delivery.count,
            attempt: delivery.attempt,
            generation: delivery.generation,
        };
        self.held.push((taker, run));
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back((taker, run));
    }

    /// Settles something: what is held, what was, or what never was.
    pub fn settle(&mut self, random: &mut Random, swarm: &Swarm, request: u64) -> Option<Command> {
        let careful = random.chance(swarm.careful);
        let verdict = verdict(random, swarm, careful);
        let (taker, run) = if careful || random.chance(300) {
            let index = random.below(self.held.len() as u64) as usize;
            self.held.get(index).copied()?
        } else {
            let index = random.below(self.past.len() as u64) as usize;
            self.past.get(index).copied()?
        };
        let place = (taker.partition, taker.group);
        let mut runs = vec![run];
        if careful {
            let same = |held: &&(Taker, DeliveryRun)| {
                (held.0.partition, held.0.group) == place && held.1 != run
            };
            let more = random.below(RUNS_MAX) as usize;
            runs.extend(self.held.iter().filter(same).map(|held| held.1).take(more));
        } else if random.chance(100) {
            // Nobody was given this: another attempt, or offsets that do not exist.
            match random.below(2) {
                0 => runs[0].attempt += 1,
                _ => runs[0].first = Offset(runs[0].first.0 + random.below(1000)),
            }
        }
        if random.chance(150) {
            let run = &mut runs[0];
            let skipped = random.below(u64::from(run.count)) as u32;
            run.first = run.first.plus(u64::from(skipped));
            run.count = random.between(1, u64::from(run.count - skipped)) as u32;
        }
        if !matches!(verdict, Verdict::Extend(_) | Verdict::Started) && runs[0] == run {
            self.held.retain(|held| !runs.contains(&held.1) || held.0.group != taker.group);
        }
        let (partition, group) = place;
        let origin = Origin { session: taker.session, request };
        let confirm = random.chance(500);
        Some(Command::Settle(Settle { origin, partition, group, verdict, runs, confirm }))
    }

    /// Settles what is held at these offsets, message by message.
    pub fn settle_where(
        &mut self,
        requests: &mut u64,
        verdict: &Verdict,
        which: impl Fn(u64) -> bool,
    ) -> Vec<Command> {
        let single = |(taker, run): (Taker, DeliveryRun)| {
            let offsets = run.first.0..run.first.0 + u64::from(run.count);
            offsets.map(move |first| (taker, DeliveryRun { first: Offset(first), count: 1, ..run }))
        };
        let (settled, kept) =
            self.held.drain(..).flat_map(single).partition(|(_, run)| which(run.first.0));
        self.held = settled;
        let commands = self.settle_all(requests, verdict);
        self.held = kept;
        commands
    }

    /// Acks everything that is held, a settlement for each group.
    pub fn ack_all(&mut self, requests: &mut u64) -> Vec<Command> {
        self.settle_all(requests, &Verdict::Ack)
    }

    fn settle_all(&mut self, requests: &mut u64, verdict: &Verdict) -> Vec<Command> {
        let mut settles: Vec<Settle> = Vec::new();
        for (taker, run) in self.held.drain(..) {
            let (partition, group) = (taker.partition, taker.group);
            let is_same = |held: &&mut Settle| {
                (held.partition, held.group) == (partition, group) && held.runs.len() < 100
            };
            if let Some(held) = settles.iter_mut().rev().find(is_same) {
                held.runs.push(run);
                continue;
            }
            *requests += 1;
            let origin = Origin { session: taker.session, request: *requests };
            let (verdict, runs, confirm) = (verdict.clone(), vec![run], true);
            settles.push(Settle { origin, partition, group, verdict, runs, confirm });
        }
        settles.into_iter().map(Command::Settle).collect()
    }

    /// All sessions end, with a goodbye.
    pub fn leave_all(&mut self) -> Vec<Command> {
        let mut sessions: Vec<SessionId> = self.takers.iter().map(|taker| taker.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        self.takers.clear();
        self.held.clear();
        let grace = Duration::ZERO;
        sessions.into_iter().map(|session| Command::EndSession { session, grace }).collect()
    }

    /// A subscription has ended because its group or partition is gone.
    pub fn ended(&mut self, session: SessionId, subscription: u32) {
        self.takers.retain(|held| (held.session, held.subscription) != (session, subscription));
    }

    /// The broker is gone. What was held may still be settled, as of another generation.
    pub fn disconnected(&mut self) {
        self.takers.clear();
    }
}

/// A window: mostly small.
pub fn window(random: &mut Random) -> Credit {
    let messages = [0, 1, 3, 20, 200][random.weighted(&[5, 25, 30, 25, 15])];
    let bytes = [1, 1000, 100_000, 1 << 20][random.below(4) as usize];
    Credit { messages, bytes }
}

fn verdict(random: &mut Random, swarm: &Swarm, careful: bool) -> Verdict {
    let weights: &[u32] = if careful { &[75, 5, 5, 3, 7, 5] } else { &[25, 25, 20, 10, 15, 5] };
    match random.weighted(weights) {
        0 => Verdict::Ack,
        1 => Verdict::Retry,
        2 => Verdict::RetryAfter(swarm.span(random)),
        3 => Verdict::DeadLetter { reason: "it cannot be done".into() },
        4 => Verdict::Extend(swarm.span(random)),
        _ => Verdict::Started,
    }
}

//! The simulated consumers: they subscribe, hold deliveries, settle them correctly, late, twice or wrongly, and
//! leave.

use std::{collections::VecDeque, time::Duration};

use sennit_engine::{
    Command, Credit, Delivery, DeliveryRun, Origin, SessionId, Settle, Subscribe, Verdict,
};
use sennit_model::{GroupId, Offset, PartitionId};

use crate::{random::Random, swarm::Swarm};

/// The number of deliveries that are remembered for late or repeated settlements.
const REMEMBERED: usize = 300;
/// The greatest number of runs in a settlement.
const RUNS_MAX: u64 = 12;

/// A subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    session: SessionId,
    subscription: u32,
    partition: PartitionId,
    group: GroupId,
}

/// All consumers.
#[derive(Debug)]
pub struct Consumers {
    members: Vec<Member>,
    held: Vec<(Member, DeliveryRun)>,
    settled_before: VecDeque<(Member, DeliveryRun)>,
    next_session: u64,
    next_subscription: u32,
}

impl Default for Consumers {
    fn default() -> Self {
        let (members, held, settled_before) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { members, held, settled_before, next_session: 2, next_subscription: 0 }
    }
}

impl Consumers {
    /// Starts a subscription with this credit, in a new session or in an existing one.
    pub fn subscribe(
        &mut self,
        random: &mut Random,
        partition: PartitionId,
        group: GroupId,
        credit: Credit,
        request: u64,
    ) -> Command {
        let old = random.pick(&self.members).map(|member| member.session);
        let session = old.filter(|_| random.chance(400)).unwrap_or_else(|| {
            self.next_session += 1;
            SessionId(self.next_session)
        });
        self.next_subscription += 1;
        let subscription = self.next_subscription;
        self.members.push(Member { session, subscription, partition, group });
        let origin = Origin { session, request };
        Command::Subscribe(Subscribe { origin, subscription, partition, group, credit })
    }

    /// Changes the credit of a subscription.
    pub fn credit(&mut self, random: &mut Random) -> Option<Command> {
        let Member { session, subscription, partition, group } = *random.pick(&self.members)?;
        let credit = random_credit(random);
        Some(Command::SetCredit { session, subscription, partition, group, credit })
    }

    /// Ends a subscription or a session.
    pub fn leave(&mut self, random: &mut Random, swarm: &Swarm) -> Option<Command> {
        let member = *random.pick(&self.members)?;
        let Member { session, subscription, partition, group } = member;
        if random.chance(400) {
            self.members.retain(|held| *held != member);
            // A consumer that has unsubscribed settles nothing any more.
            self.forget(|held| *held == member);
            return Some(Command::Unsubscribe { session, subscription, partition, group });
        }
        self.members.retain(|held| held.session != session);
        let grace = if random.chance(300) { Duration::ZERO } else { swarm.span(random) };
        if grace.is_zero() {
            self.forget(|held| held.session == session);
        }
        Some(Command::EndSession { session, grace })
    }

    fn forget(&mut self, which: impl Fn(&Member) -> bool) {
        self.held.retain(|(member, _)| !which(member));
        self.settled_before.retain(|(member, _)| !which(member));
    }

    /// Takes a delivery.
    pub fn delivered(&mut self, delivery: &Delivery) {
        let is_own = |member: &&Member| {
            member.session == delivery.session && member.subscription == delivery.subscription
        };
        let Some(&member) = self.members.iter().find(is_own) else { return };
        let run = DeliveryRun {
            first: delivery.first,
            count: delivery.count,
            attempt: delivery.attempt,
            generation: delivery.generation,
        };
        self.held.push((member, run));
        if self.settled_before.len() == REMEMBERED {
            self.settled_before.pop_front();
        }
        self.settled_before.push_back((member, run));
    }

    /// Settles a delivery: a held one, an old one, or one that the consumer never had.
    pub fn settle(&mut self, random: &mut Random, swarm: &Swarm, request: u64) -> Option<Command> {
        let careful = random.chance(swarm.careful);
        let verdict = verdict(random, swarm, careful);
        let (member, run) = if careful || random.chance(300) {
            let index = random.below(self.held.len() as u64) as usize;
            self.held.get(index).copied()?
        } else {
            let index = random.below(self.settled_before.len() as u64) as usize;
            self.settled_before.get(index).copied()?
        };
        let place = (member.partition, member.group);
        let mut runs = vec![run];
        if careful {
            let same = |held: &&(Member, DeliveryRun)| {
                (held.0.partition, held.0.group) == place && held.1 != run
            };
            let more = random.below(RUNS_MAX) as usize;
            runs.extend(self.held.iter().filter(same).map(|held| held.1).take(more));
        } else if random.chance(100) {
            // A delivery that nobody has: another attempt, or offsets that do not exist.
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
            self.held.retain(|held| !runs.contains(&held.1) || held.0.group != member.group);
        }
        let (partition, group) = place;
        let origin = Origin { session: member.session, request };
        let confirm = random.chance(500);
        Some(Command::Settle(Settle { origin, partition, group, verdict, runs, confirm }))
    }

    /// Settles the held messages at these offsets, one run for each message.
    pub fn settle_where(
        &mut self,
        requests: &mut u64,
        verdict: &Verdict,
        which: impl Fn(u64) -> bool,
    ) -> Vec<Command> {
        let single = |(member, run): (Member, DeliveryRun)| {
            let offsets = run.first.0..run.first.0 + u64::from(run.count);
            offsets
                .map(move |first| (member, DeliveryRun { first: Offset(first), count: 1, ..run }))
        };
        let (settled, kept) =
            self.held.drain(..).flat_map(single).partition(|(_, run)| which(run.first.0));
        self.held = settled;
        let commands = self.settle_all(requests, verdict);
        self.held = kept;
        commands
    }

    /// Acks all held messages, with a settlement for each group.
    pub fn ack_all(&mut self, requests: &mut u64) -> Vec<Command> {
        self.settle_all(requests, &Verdict::Ack)
    }

    fn settle_all(&mut self, requests: &mut u64, verdict: &Verdict) -> Vec<Command> {
        let mut settles: Vec<Settle> = Vec::new();
        for (member, run) in self.held.drain(..) {
            let (partition, group) = (member.partition, member.group);
            let is_same = |held: &&mut Settle| {
                (held.partition, held.group) == (partition, group) && held.runs.len() < 100
            };
            if let Some(held) = settles.iter_mut().rev().find(is_same) {
                held.runs.push(run);
                continue;
            }
            *requests += 1;
            let origin = Origin { session: member.session, request: *requests };
            let (verdict, runs, confirm) = (verdict.clone(), vec![run], true);
            settles.push(Settle { origin, partition, group, verdict, runs, confirm });
        }
        settles.into_iter().map(Command::Settle).collect()
    }

    /// Ends all sessions without grace.
    pub fn leave_all(&mut self) -> Vec<Command> {
        let mut sessions: Vec<SessionId> =
            self.members.iter().map(|member| member.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        self.members.clear();
        self.held.clear();
        let grace = Duration::ZERO;
        sessions.into_iter().map(|session| Command::EndSession { session, grace }).collect()
    }

    /// Handles the end of a subscription whose group or partition was deleted.
    pub fn ended(&mut self, session: SessionId, subscription: u32) {
        self.members.retain(|held| (held.session, held.subscription) != (session, subscription));
    }

    /// Handles the end of the broker. Held messages may still be settled, under the old generation.
    pub fn disconnected(&mut self) {
        self.members.clear();
    }
}

/// A random credit: mostly small.
pub fn random_credit(random: &mut Random) -> Credit {
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

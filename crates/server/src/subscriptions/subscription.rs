//! One subscription as a state machine: its progress in each linked stream, and the holder of its work. It decides
//! changes and applies them; the time and the names of wakes are arguments. It knows neither streams nor requests,
//! and waits for nothing.

use std::collections::BTreeMap;

use sennit_model::{Offset, Timestamp, TopicId, TopicName};

use super::request::{Config, SubscriptionRefusal};
use super::{
    change::{Kept, Link, Moved},
    phase::{Phase, retry_after_ms},
};

/// Who works for a webhook that has taken a wake.
pub(crate) const WEBHOOK_HOLDER: &str = "webhook";

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) config: Config,
    /// What its own addresses begin with.
    pub(crate) base: Box<str>,
    pub(crate) created_at: Timestamp,
    /// How often it was woken; never goes back.
    generation: u64,
    phase: Phase,
    links: BTreeMap<TopicName, Link>,
    /// Links with something that is not done.
    pending: usize,
    /// Whether this wake was written into its stream. Not stored: a broker that starts anew writes it again.
    is_wake_sent: bool,
}

/// What is to be done for a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing, until something happens.
    Nothing,
    /// Nothing before then.
    At(Timestamp),
    /// It has to be woken, or a lease is over: [`Subscription::wake`].
    Wake,
    /// A wake is to be sent.
    SendWake,
}

/// By what somebody shows that they have the work: what their token says, and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The token's generation and the body's.
    pub(crate) generations: [u64; 2],
    /// The wake of the token and of the body.
    pub(crate) wakes: [Box<str>; 2],
}

/// What a webhook has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WakeOutcome {
    /// It has taken the wake and will say when it is done.
    Taken,
    /// It has done everything up to the ends of these links, as they were when it was told.
    Done(Vec<(TopicName, Link)>),
    /// It has not taken it; a random number spreads those who failed together.
    Failed(u64),
}

impl Subscription {
    /// One that begins with these links.
    pub(crate) fn new(
        config: Config,
        base: Box<str>,
        created_at: Timestamp,
        links: BTreeMap<TopicName, Link>,
    ) -> Self {
        let pending = links.values().filter(|link| link.is_pending()).count();
        let (generation, phase) = (0, Phase::Idle);
        Self { config, base, created_at, generation, phase, links, pending, is_wake_sent: false }
    }

    /// How it is kept.
    pub(crate) fn keep(&self) -> Kept {
        Kept {
            config: (&self.config).into(),
            base: self.base.clone(),
            created_at_ms: self.created_at.0,
            generation: self.generation,
            phase: self.phase.clone(),
            links: self.links.iter().map(|(stream, link)| link.keep(stream)).collect(),
        }
    }

    /// What was kept, if that can have been.
    pub(crate) fn read(kept: Kept) -> Option<Self> {
        let links = kept.links.iter().map(super::change::KeptLink::read);
        let links = links.collect::<Option<BTreeMap<_, _>>>()?;
        let (config, created_at) = (kept.config.read()?, Timestamp(kept.created_at_ms));
        let new = Self::new(config, kept.base, created_at, links);
        Some(Self { generation: kept.generation, phase: kept.phase, ..new })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn links(&self) -> &BTreeMap<TopicName, Link> {
        &self.links
    }

    /// How many streams hold something that is not done.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Whether there is something that is not done.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether it waits for something to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// What is to be done for it.
    pub(crate) fn due(&self, now: Timestamp) -> Due {
        match &self.phase {
            Phase::Idle if self.is_pending() => Due::Wake,
            Phase::Woken { next_at_ms, .. } if !self.is_wake_sent => match *next_at_ms {
                at if at > now.0 => Due::At(Timestamp(at)),
                _ => Due::SendWake,
            },
            Phase::Idle | Phase::Woken { .. } => Due::Nothing,
            Phase::Held { until_ms, .. } if *until_ms > now.0 => Due::At(Timestamp(*until_ms)),
            Phase::Held { .. } => Due::Wake,
        }
    }

    /// Wakes it under this name if there is something to be done and nobody has it; ends a lease whose
    /// time is over.
    pub(crate) fn wake(&self, now: Timestamp, wake: Box<str>) -> Option<Moved> {
        match &self.phase {
            Phase::Held { until_ms, .. } if *until_ms <= now.0 => {}
            Phase::Idle if self.is_pending() => {}
            _ => return None,
        }
        if self.is_pending() {
            let phase = Phase::Woken { wake, attempt: 0, next_at_ms: now.0 };
            Some(Moved { generation: self.generation + 1, phase, acks: Vec::new() })
        } else {
            Some(self.moved(Phase::Idle))
        }
    }

    /// Gives the work to `worker`; under a wake of this name if it has not been woken.
    pub(crate) fn claim(
        &self,
        worker: Box<str>,
        now: Timestamp,
        wake: Box<str>,
    ) -> Result<Moved, SubscriptionRefusal> {
        let until_ms = now.0.saturating_add(self.config.lease_ms);
        match &self.phase {
            Phase::Held { holder, until_ms, .. } if *until_ms > now.0 => {
                let (holder, generation) = (holder.clone(), self.generation);
                Err(SubscriptionRefusal::AlreadyClaimed { holder, generation })
            }
            Phase::Woken { wake, .. } => {
                Ok(self.moved(Phase::Held { wake: wake.clone(), holder: worker, until_ms }))
            }
            Phase::Idle | Phase::Held { .. } if self.is_pending() => {
                let phase = Phase::Held { wake, holder: worker, until_ms };
                Ok(Moved { generation: self.generation + 1, phase, acks: Vec::new() })
            }
            Phase::Idle | Phase::Held { .. } => Err(SubscriptionRefusal::NoPendingWork),
        }
    }

    /// Takes what is done, prolongs the lease, or ends it if all `is_done`. What is acked of a stream
    /// that it is not linked to changes nothing: it may just have gone.
    pub(crate) fn ack(
        &self,
        fence: &Fence,
        acks: &[(TopicName, Offset)],
        is_done: bool,
        now: Timestamp,
    ) -> Result<Moved, SubscriptionRefusal> {
        let (wake, holder) = self.holder(fence, now)?;
        for (stream, offset) in acks {
            if let Some(link) = self.links.get(stream)
                && *offset > link.end
            {
                let detail = format!("the stream ends at offset {}, not at {offset}", link.end);
                let (stream, detail) = (stream.as_str().into(), detail.into());
                return Err(SubscriptionRefusal::InvalidOffset { stream, detail });
            }
        }
        let phase = if is_done {
            Phase::Idle
        } else {
            let until_ms = now.0.saturating_add(self.config.lease_ms);
            Phase::Held { wake: wake.into(), holder: holder.into(), until_ms }
        };
        Ok(Moved { acks: self.news(acks), ..self.moved(phase) })
    }

    /// Lets go of the work, done or not.
    pub(crate) fn release(
        &self,
        fence: &Fence,
        now: Timestamp,
    ) -> Result<Moved, SubscriptionRefusal> {
        self.holder(fence, now)?;
        Ok(self.moved(Phase::Idle))
    }

    /// What the webhook has answered to this wake. `None` if that makes no difference any more.
    pub(crate) fn answered(&self, wake: &str, told: &WakeOutcome, now: Timestamp) -> Option<Moved> {
        if self.phase.wake() != Some(wake) {
            return None;
        }
        match (told, &self.phase) {
            (WakeOutcome::Done(links), _) => {
                // What was done of a stream says nothing of another one that has its name now.
                let is_same = |(stream, was): &&(TopicName, Link)| {
                    self.links.get(stream).is_some_and(|link| link.topic == was.topic)
                };
                let same = links.iter().filter(is_same);
                let acks: Vec<_> = same.map(|(stream, was)| (stream.clone(), was.end)).collect();
                Some(Moved { acks: self.news(&acks), ..self.moved(Phase::Idle) })
            }
            (WakeOutcome::Taken, Phase::Woken { wake, .. }) => {
                let until_ms = now.0.saturating_add(self.config.lease_ms);
                let holder = WEBHOOK_HOLDER.into();
                Some(self.moved(Phase::Held { wake: wake.clone(), holder, until_ms }))
            }
            (WakeOutcome::Failed(chance), Phase::Woken { wake, attempt, .. }) => {
                let next_at_ms = now.0.saturating_add(retry_after_ms(*attempt, *chance));
                let attempt = attempt.saturating_add(1);
                Some(self.moved(Phase::Woken { wake: wake.clone(), attempt, next_at_ms }))
            }
            // It works already, and says so otherwise.
            _ => None,
        }
    }

    /// Makes the state what it was decided to be.
    pub(crate) fn apply(&mut self, moved: &Moved) {
        if moved.phase.wake() != self.phase.wake() {
            self.is_wake_sent = false;
        }
        self.generation = self.generation.max(moved.generation);
        self.phase = moved.phase.clone();
        for (stream, acked) in &moved.acks {
            let name = stream.parse::<TopicName>();
            if let Some(link) = name.ok().and_then(|name| self.links.get_mut(&name)) {
                let was = link.is_pending();
                link.acked = link.acked.max(Offset(*acked));
                // What was read back knows no ends.
                link.end = link.end.max(link.acked);
                self.pending -= usize::from(was && !link.is_pending());
            }
        }
    }

    /// Notes that the wake was written into its stream, if it is still under way.
    pub(crate) fn note_wake_sent(&mut self, wake: &str) {
        self.is_wake_sent |= self.phase.wake() == Some(wake);
    }

    /// Has the wake be written again: the stream that it was written into is gone.
    pub(crate) fn send_wake_again(&mut self) {
        self.is_wake_sent = false;
    }

    /// Links it to a stream, or makes that link another one; says what it was.
    pub(crate) fn link(&mut self, stream: TopicName, link: Link) -> Option<Link> {
        self.pending += usize::from(link.is_pending());
        let was = self.links.insert(stream, link);
        self.pending -= usize::from(was.is_some_and(|was| was.is_pending()));
        was
    }

    /// Is linked to a stream no more; says how it was.
    pub(crate) fn unlink(&mut self, stream: &TopicName) -> Option<Link> {
        let was = self.links.remove(stream);
        self.pending -= usize::from(was.is_some_and(|was| was.is_pending()));
        was
    }

    /// The stream ends there now, if it is still this topic; says whether there is something to be done
    /// that was not before.
    pub(crate) fn seen(&mut self, stream: &TopicName, topic: TopicId, end: Offset) -> bool {
        let Some(link) = self.links.get_mut(stream).filter(|link| link.topic == Some(topic)) else {
            return false;
        };
        let was = link.is_pending();
        link.end = link.end.max(end);
        let is_news = !was && link.is_pending();
        self.pending += usize::from(is_news);
        is_news
    }

    /// The wake that `fence` shows, and who has it.
    fn holder(&self, fence: &Fence, now: Timestamp) -> Result<(&str, &str), SubscriptionRefusal> {
        let shown = match &self.phase {
            Phase::Held { wake, holder, until_ms } if *until_ms > now.0 => Some((wake, &**holder)),
            // It calls back before it has answered.
            Phase::Woken { wake, .. } if self.config.wake_stream().is_none() => {
                Some((wake, WEBHOOK_HOLDER))
            }
            _ => None,
        };
        let is_it = |wake: &str| {
            fence.wakes.iter().all(|shown| **shown == *wake)
                && fence.generations == [self.generation; 2]
        };
        match shown {
            Some((wake, holder)) if is_it(wake) => Ok((wake, holder)),
            _ => Err(SubscriptionRefusal::Fenced { generation: self.generation }),
        }
    }

    /// What of `acks` says more than is known.
    fn news(&self, acks: &[(TopicName, Offset)]) -> Vec<(Box<str>, u64)> {
        let is_news = |(stream, offset): &&(TopicName, Offset)| {
            self.links.get(stream).is_some_and(|link| link.acked < *offset && *offset <= link.end)
        };
        let news = acks.iter().filter(is_news);
        news.map(|(stream, offset)| (stream.as_str().into(), offset.0)).collect()
    }

    fn moved(&self, phase: Phase) -> Moved {
        Moved { generation: self.generation, phase, acks: Vec::new() }
    }
}

#[cfg(test)]
mod tests;

//! Recurring schedules: at each tick a message is published, on the first core. For each tick there is exactly one
//! message: it is published under a producer of the schedule with an epoch of the tick, so that a broker that dies
//! between the publish and the note of it finds, when it publishes the tick again, that this is done.
//!
//! In reading order: a `request` is a schedule's settings or a change of it; `cron` says when it ticks, `plan` which
//! ticks are due, `publishing` publishes them; the `store` keeps what is `kept`.

pub(crate) mod cron;
mod kept;
mod plan;
mod publishing;
mod request;
mod state;
mod store;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Bound,
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use sennit_engine::Refusal;
use sennit_identity::Verb;
use sennit_model::{
    Offset, Overlap, ScheduleName, Timestamp, TopicId, TopicName,
    limits::{SCHEDULES_BYTES_MAX, SCHEDULES_MAX},
};
use tokio::{
    sync::{Notify, RwLock, Semaphore, oneshot},
    task::spawn_local,
};

use self::{
    cron::{CronFault, Timetable, zone_named},
    kept::Kept,
    plan::due_ticks,
    publishing::{Published, Publishing},
    state::ScheduleState,
    store::Store,
};
pub(crate) use self::{
    kept::header_kind,
    request::{
        ScheduleAnswer, ScheduleChange, ScheduleConfig, ScheduleRefusal, ScheduleRequest,
        ToldSchedule,
    },
};
use super::{
    audit,
    control_request::{ControlRefusal, check_topic},
    publish_hook::PublishHook,
    stream_request::StreamFailure,
    topic_listener::TopicListener,
    topic_locks::TopicLocks,
};
use crate::{
    identity::{
        authority::Authority,
        principal::{MissingRight, Principal},
    },
    runtime::{
        clock,
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
        metrics::CoreMetrics,
        own_topic::OwnStream,
    },
};

/// Longest wait before the clock is looked at again: it may have been put forward.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long after a tick that could not be published, or noted, it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Most schedules that publish at a time.
const PUBLISHING_MAX: usize = 256;

type Answer = Result<ScheduleAnswer, ScheduleRefusal>;

/// A schedule.
#[derive(Clone, Debug)]
struct Held {
    config: Rc<ScheduleConfig>,
    /// `None` if this version cannot read its pattern or zone: it does not tick.
    timetable: Option<Rc<Timetable>>,
    state: ScheduleState,
    /// When it is to be looked at next.
    due: Option<Timestamp>,
    /// Whether its ticks are being published.
    is_at_work: bool,
}

impl Held {
    fn new(config: ScheduleConfig, state: ScheduleState) -> Self {
        let timetable = timetable(&config).ok().map(Rc::new);
        let mut held =
            Self { config: Rc::new(config), timetable, state, due: None, is_at_work: false };
        held.due = held.next();
        held
    }

    /// When it ticks next.
    fn next(&self) -> Option<Timestamp> {
        let timetable = self.timetable.as_ref().filter(|_| !self.state.is_paused)?;
        timetable.next_after(Timestamp(self.state.handled_ms))
    }

    fn told(&self, name: &ScheduleName) -> ToldSchedule {
        let (config, state) = (ScheduleConfig::clone(&self.config), self.state.clone());
        ToldSchedule { name: name.clone(), config, state, next: self.next() }
    }
}

fn timetable(config: &ScheduleConfig) -> Result<Timetable, ScheduleRefusal> {
    let zone = zone_named(&config.zone);
    let zone = zone.ok_or_else(|| ScheduleRefusal::Zone(config.zone.clone()))?;
    Ok(Timetable::new(&config.cron, zone)?)
}

/// The schedules, on the first core.
#[derive(Debug)]
pub(crate) struct Schedules {
    core: CoreHandle,
    store: Store,
    publishing: Publishing,
    held: RefCell<BTreeMap<ScheduleName, Held>>,
    /// Bytes of all settings.
    bytes: Cell<usize>,
    /// One change or tick at a time for each schedule.
    turns: TopicLocks,
    /// Held to write while everything is written once more, and to read while a text is appended.
    appends: RwLock<()>,
    at_work: Semaphore,
    changed: Notify,
    is_readable: Cell<bool>,
    /// What was due by then was missed while the broker was down.
    started: Cell<Timestamp>,
}

/// Asks the first core, on behalf of a principal. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    principal: Principal,
    request: ScheduleRequest,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    let _ = cores.inboxes[CoreIndex::FIRST].send(Message::call(move |held: &Rc<Schedules>| {
        let schedules = held.clone();
        spawn_local(async move {
            let changes = match &request {
                ScheduleRequest::Change(name, _) => Some(name.to_string()),
                ScheduleRequest::Get(_) | ScheduleRequest::List { .. } => None,
            };
            let cores = schedules.core.cores.clone();
            let answer = schedules.answer(&principal, request).await;
            if let Some(name) = changes {
                audit::note(&cores, &principal, "schedule change", name, &answer);
            }
            let _ = sender.send(answer);
        });
    }));
    answer
}

impl TopicListener for Schedules {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            if self.load().await {
                spawn_local(self.tick());
            }
        })
    }

    fn is_where_led(&self) -> bool {
        true
    }

    fn rests(self: Rc<Self>) {
        self.is_readable.set(false);
        self.held.borrow_mut().clear();
        self.bytes.set(0);
        self.changed.notify_one();
    }

    fn appeared(self: Rc<Self>, stream: &TopicName, topic: TopicId, _from: Offset) {
        if stream == self.store.name() {
            self.core.cores.own_topic.set(OwnStream::Schedules, topic);
        }
    }

    fn gone(self: Rc<Self>, _stream: &TopicName, _topic: TopicId) {}
}

impl Schedules {
    /// None yet: they are read when the broker starts.
    pub(crate) fn new(
        core: CoreHandle,
        authority: Authority,
        hook: Rc<dyn PublishHook>,
    ) -> Rc<Self> {
        Rc::new(Self {
            store: Store::new(core.clone()),
            publishing: Publishing::new(core.clone(), authority, hook),
            core,
            held: RefCell::default(),
            bytes: Cell::new(0),
            turns: TopicLocks::default(),
            appends: RwLock::new(()),
            at_work: Semaphore::new(PUBLISHING_MAX),
            changed: Notify::new(),
            is_readable: Cell::new(false),
            started: Cell::new(Timestamp(0)),
        })
    }

    /// Reads what was kept; says whether that was done. What cannot be read is not taken for nothing.
    async fn load(&self) -> bool {
        let name = self.store.name();
        let topic =
            self.core.look(|core| core.catalogue().topic_named(name).map(|topic| topic.id()));
        if let Some(topic) = topic {
            self.core.cores.own_topic.set(OwnStream::Schedules, topic);
        }
        let mut found = BTreeMap::<ScheduleName, (ScheduleConfig, ScheduleState)>::new();
        let read = self.store.read(|kept| match kept {
            Kept::Made(name, config, state) => drop(found.insert(name, (*config, state))),
            Kept::Step(name, state) => {
                if let Some(held) = found.get_mut(&name) {
                    held.1 = state;
                }
            }
            Kept::Deleted(name) => drop(found.remove(&name)),
        });
        if let Err(failure) = read.await {
            tracing::error!(%failure, "the schedules cannot be read: none of them ticks");
            return false;
        }
        self.started.set(clock::now());
        let held = found.into_iter().map(|(name, (config, state))| {
            self.bytes.set(self.bytes.get() + config.bytes());
            let held = Held::new(config, state);
            if held.timetable.is_none() {
                tracing::error!(%name, "a schedule cannot be read by this version: it does not tick");
            }
            (name, held)
        });
        self.held.replace(held.collect());
        self.is_readable.set(true);
        true
    }

    async fn answer(self: Rc<Self>, principal: &Principal, request: ScheduleRequest) -> Answer {
        if !self.is_readable.get() {
            return Err(match self.core.cores.catalogue_leader() {
                // They are where the catalogue is led.
                Some(leader) => ControlRefusal::from(Refusal::NotLeader { leader }).into(),
                None => ScheduleRefusal::Unreadable,
            });
        }
        match request {
            ScheduleRequest::Get(name) => {
                self.check_right(principal, Verb::Describe, &name, None)?;
                let schedules = vec![self.told(&name)?];
                Ok(ScheduleAnswer::Page { schedules, more: false })
            }
            ScheduleRequest::List { after, most } => {
                let may_tell = |config: &ScheduleConfig| {
                    principal.may(Verb::Describe, config.topic.as_str()).is_ok()
                };
                Ok(self.list(&after, most, may_tell))
            }
            ScheduleRequest::Change(name, change) => {
                let _turn = self.turns.of(name.as_str()).await;
                let config = match &change {
                    ScheduleChange::Create(config) => Some(&**config),
                    _ => None,
                };
                self.check_right(principal, Verb::Publish, &name, config)?;
                let created = matches!(&change, ScheduleChange::Create(_))
                    && !self.held.borrow().contains_key(&name);
                let schedule = Box::new(self.change(&name, change).await?);
                self.changed.notify_one();
                self.write_again_if_grown();
                Ok(ScheduleAnswer::Changed { schedule, created })
            }
        }
    }

    /// Checks that the principal may do this to the topic of a schedule that is there, and of one that is to be. Of a
    /// schedule that is not there only those hear who may do it to every topic.
    fn check_right(
        &self,
        principal: &Principal,
        verb: Verb,
        name: &ScheduleName,
        wanted: Option<&ScheduleConfig>,
    ) -> Result<(), ScheduleRefusal> {
        let held = self.held.borrow();
        let held = held.get(name).map(|held| held.config.topic.as_str());
        let wanted = wanted.map(|config| config.topic.as_str());
        let mut topics: Vec<_> = held.into_iter().chain(wanted).collect();
        if topics.is_empty() {
            topics.push(">");
        }
        let may = |topic| {
            principal.may(verb, topic).map_err(|_| MissingRight {
                verb,
                name: format!("the topic of the schedule {name}"),
            })
        };
        topics.into_iter().try_for_each(may).map_err(|missing| ControlRefusal::from(missing).into())
    }

    fn told(&self, name: &ScheduleName) -> Result<ToldSchedule, ScheduleRefusal> {
        let held = self.held.borrow();
        let found = held.get(name).map(|held| held.told(name));
        found.ok_or_else(|| ScheduleRefusal::Unknown(name.clone()))
    }

    fn list(
        &self,
        after: &str,
        most: usize,
        may_tell: impl Fn(&ScheduleConfig) -> bool,
    ) -> ScheduleAnswer {
        let held = self.held.borrow();
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let behind = held.range::<str, _>(behind);
        let mut behind = behind.filter(|(_, held)| may_tell(&held.config));
        let told = behind.by_ref().take(most).map(|(name, held)| {
            let mut told = held.told(name);
            told.config.payload = bytes::Bytes::new();
            told
        });
        let schedules = told.collect();
        ScheduleAnswer::Page { schedules, more: behind.next().is_some() }
    }

    /// Does a change, in the schedule's turn.
    async fn change(
        &self,
        name: &ScheduleName,
        change: ScheduleChange,
    ) -> Result<ToldSchedule, ScheduleRefusal> {
        let config = match change {
            ScheduleChange::Create(config) => return self.create(name, *config).await,
            ScheduleChange::Delete => {
                let told = self.told(name)?;
                let _append = self.appends.read().await;
                self.keep(&Kept::Deleted(name.clone())).await?;
                self.held.borrow_mut().remove(name);
                self.bytes.set(self.bytes.get() - told.config.bytes());
                return Ok(told);
            }
            ScheduleChange::Pause | ScheduleChange::Resume => None,
            ScheduleChange::RunNow => Some(self.told(name)?.config),
        };
        let mut state = self.told(name)?.state;
        if let Some(config) = config {
            let published = self.publishing.publish_now(name, &config, clock::now()).await?;
            state.last = Some(published);
            state.published += 1;
        } else {
            let pauses = change == ScheduleChange::Pause;
            if state.is_paused && !pauses {
                // What came in between was meant to be left out.
                state.handled_ms = clock::now().0;
            }
            state.is_paused = pauses;
        }
        self.step(name, state).await?;
        self.told(name)
    }

    async fn create(
        &self,
        name: &ScheduleName,
        config: ScheduleConfig,
    ) -> Result<ToldSchedule, ScheduleRefusal> {
        if let Ok(held) = self.told(name) {
            let Some((field, existing, requested)) = held.config.difference(&config) else {
                return Ok(held);
            };
            let name = name.to_string();
            return Err(ScheduleRefusal::Differs { name, field, existing, requested });
        }
        let now = clock::now();
        let timetable = timetable(&config)?;
        if timetable.next_after(now).is_none() {
            return Err(CronFault::Never(config.cron).into());
        }
        config.check(name)?;
        check_topic(&config.topic)?;
        self.publishing.find(&config.topic)?;
        if self.held.borrow().len() >= SCHEDULES_MAX {
            return Err(ScheduleRefusal::TooMany);
        }
        if self.bytes.get() + config.bytes() > SCHEDULES_BYTES_MAX {
            return Err(ScheduleRefusal::TooManyBytes);
        }
        // Producer 0 is nobody.
        let producer = getrandom::u64().map_err(ControlRefusal::NoRandomNumbers)?.max(1);
        let state = ScheduleState { producer, handled_ms: now.0, ..ScheduleState::default() };
        let _append = self.appends.read().await;
        self.keep(&Kept::Made(name.clone(), Box::new(config.clone()), state.clone())).await?;
        self.bytes.set(self.bytes.get() + config.bytes());
        let held = Held::new(config, state);
        let told = held.told(name);
        self.held.borrow_mut().insert(name.clone(), held);
        Ok(told)
    }

    /// Has a step be durable, and the schedule be as it says.
    async fn step(&self, name: &ScheduleName, state: ScheduleState) -> Result<(), ScheduleRefusal> {
        let _append = self.appends.read().await;
        self.keep(&Kept::Step(name.clone(), state.clone())).await?;
        if let Some(held) = self.held.borrow_mut().get_mut(name) {
            held.state = state;
            held.due = held.next();
        }
        Ok(())
    }

    async fn keep(&self, kept: &Kept) -> Result<(), ScheduleRefusal> {
        self.store.append(kept).await.map_err(|failure| {
            tracing::warn!(%failure, "a change of a schedule is refused");
            match failure {
                StreamFailure::Broker(refusal) => ScheduleRefusal::Broker(refusal),
                _ => ControlRefusal::WrongAnswer.into(),
            }
        })
    }

    /// Publishes what is due, until others do it.
    async fn tick(self: Rc<Self>) {
        while self.is_readable.get() {
            let now = clock::now();
            self.metrics().schedules.set(self.held.borrow().len() as u64);
            let mut next = None;
            let mut due = Vec::new();
            for (name, held) in
                self.held.borrow_mut().iter_mut().filter(|(_, held)| !held.is_at_work)
            {
                match held.due {
                    Some(at) if at <= now => {
                        held.is_at_work = true;
                        due.push(name.clone());
                    }
                    at => next = [next, at].into_iter().flatten().min(),
                }
            }
            for name in due {
                let schedules = self.clone();
                spawn_local(async move {
                    let _permit = schedules.at_work.acquire().await;
                    schedules.publish_due(&name).await;
                    if let Some(held) = schedules.held.borrow_mut().get_mut(&name) {
                        held.is_at_work = false;
                    }
                    schedules.changed.notify_one();
                    schedules.write_again_if_grown();
                });
            }
            let wait = next.map(|next| next.since(clock::now()).min(LOOK_AGAIN));
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    /// Publishes the ticks of a schedule that are due, in its turn.
    async fn publish_due(&self, name: &ScheduleName) {
        let _turn = self.turns.of(name.as_str()).await;
        let Some(held) = self.held.borrow().get(name).cloned() else { return };
        let Some(timetable) = held.timetable.filter(|_| !held.state.is_paused) else { return };
        let (config, mut state) = (held.config, held.state);
        let handled = Timestamp(state.handled_ms);
        let times = (handled, clock::now());
        let due = due_ticks(&timetable, times, config.catch_up, self.started.get());
        let until = due.until.unwrap_or(handled);
        for tick in due.ticks {
            let done = self.publish_tick(name, &config, &mut state, tick).await;
            state.handled_ms = tick.0;
            if !done || self.step(name, state.clone()).await.is_err() {
                return self.try_later(name);
            }
        }
        if state.handled_ms < until.0 {
            state.handled_ms = until.0;
            if self.step(name, state).await.is_err() {
                self.try_later(name);
            }
        } else if let Some(held) = self.held.borrow_mut().get_mut(name) {
            held.due = held.next();
        }
    }

    /// Publishes one tick, or leaves it out; says whether that was done for good.
    async fn publish_tick(
        &self,
        name: &ScheduleName,
        config: &ScheduleConfig,
        state: &mut ScheduleState,
        tick: Timestamp,
    ) -> bool {
        if config.overlap == Overlap::Skip
            && let Some(last) = &state.last
        {
            match self.publishing.is_settled(config, last).await {
                Ok(true) => {}
                Ok(false) => {
                    self.metrics().schedule_ticks_left_out.add(1);
                    state.left_out += 1;
                    return true;
                }
                Err(refusal) if is_passing(&refusal) => return false,
                // What is wrong is told by the publish.
                Err(_) => {}
            }
        }
        match self.publishing.publish_tick(name, config, state.producer, tick).await {
            Ok(Published::Now(message)) => {
                state.last = Some(message);
                self.metrics().schedule_ticks_published.add(1);
                state.published += 1;
                state.failure = None;
                true
            }
            Ok(Published::Before) => true,
            Err(refusal) if is_passing(&refusal) => {
                tracing::warn!(%name, %refusal, "a tick of a schedule is published later");
                false
            }
            Err(refusal) => {
                tracing::warn!(%name, %refusal, "a tick of a schedule is left out");
                self.metrics().schedule_ticks_failed.add(1);
                state.left_out += 1;
                state.failure = Some(refusal.to_string());
                true
            }
        }
    }

    fn metrics(&self) -> &CoreMetrics {
        &self.core.cores.metrics[self.core.index]
    }

    fn try_later(&self, name: &ScheduleName) {
        if let Some(held) = self.held.borrow_mut().get_mut(name) {
            held.due = Some(clock::now().plus(RETRY));
        }
    }

    /// Everything that is to be kept.
    fn all(&self) -> Vec<Kept> {
        let held = self.held.borrow();
        let kept = |(name, held): (&ScheduleName, &Held)| {
            let config = ScheduleConfig::clone(&held.config);
            Kept::Made(name.clone(), Box::new(config), held.state.clone())
        };
        held.iter().map(kept).collect()
    }

    fn write_again_if_grown(self: &Rc<Self>) {
        if !self.store.has_grown(self.bytes.get()) {
            return;
        }
        let schedules = self.clone();
        spawn_local(async move {
            let _nobody_appends = schedules.appends.write().await;
            if !schedules.store.has_grown(schedules.bytes.get()) {
                return;
            }
            let all = schedules.all();
            if let Err(failure) = schedules.store.write_again(all).await {
                tracing::warn!(%failure, "the schedules are written again later");
            }
        });
    }
}

/// Whether a tick that is refused for this may be published later.
fn is_passing(refusal: &ControlRefusal) -> bool {
    refusal.is_retryable()
        || matches!(
            refusal,
            ControlRefusal::Engine(Refusal::OutcomeUnknown) | ControlRefusal::OverQuota(_)
        )
}

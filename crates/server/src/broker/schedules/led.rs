//! The schedules where the catalogue is led: they are read from their stream, changed, and tick. A change is in force once it is kept. It
//! knows nobody's rights.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::Bound,
    rc::Rc,
};

use sennit_engine::Refusal;
use sennit_model::{
    ScheduleName, Timestamp, TopicName,
    limits::{SCHEDULES_BYTES_MAX, SCHEDULES_MAX},
};
use tokio::{
    sync::{Notify, RwLock, Semaphore},
    task::spawn_local,
};

use super::{
    held::{Held, check_config},
    kept::Kept,
    publishing::Publishing,
    request::{ScheduleAnswer, ScheduleChange, ScheduleConfig, ScheduleRefusal, ToldSchedule},
    state::ScheduleState,
    store::Store,
};
use crate::{
    broker::{
        control_peers::ControlPeers,
        control_request::ControlRefusal,
        led_stream::{LedAppendError, LedStream},
        stream_request::StreamFailure,
        topic_locks::TopicLocks,
        where_led::{Ending, LedPart},
    },
    runtime::{clock, core::CoreHandle, metrics::CoreMetrics},
};

/// Most schedules that publish at a time.
const PUBLISHING_MAX: usize = 256;

/// A request to the schedules. The node of the client has checked the rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// One schedule. [`ScheduleAnswer::Page`].
    Get(ScheduleName),
    /// Schedules by name, those behind this text, without payloads. [`ScheduleAnswer::Page`].
    List { after: String, most: usize },
    /// A change, if the schedule that is there, if one is, has this topic. [`ScheduleAnswer::Changed`].
    Change { name: ScheduleName, change: ScheduleChange, of: Option<TopicName> },
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(ScheduleAnswer),
    /// Nothing: the schedule that is to be changed has this topic.
    IsOf(TopicName),
    Refused(ScheduleRefusal),
}

/// See the file's page.
#[derive(Debug)]
pub(super) struct LedSchedules {
    core: CoreHandle,
    store: Store,
    pub(super) publishing: Rc<Publishing>,
    pub(super) held: RefCell<BTreeMap<ScheduleName, Held>>,
    /// Bytes of all settings.
    bytes: Cell<usize>,
    /// One change or tick at a time for each schedule.
    pub(super) turns: TopicLocks,
    /// Held to write while everything is written once more, and to read while a text is appended.
    appends: RwLock<()>,
    pub(super) at_work: Semaphore,
    pub(super) changed: Notify,
    /// Ticks that were due by then were missed while no broker looked after schedules.
    pub(super) started: Timestamp,
    peers: Option<Rc<ControlPeers>>,
    ending: Rc<Ending>,
}

impl LedPart for LedSchedules {
    fn begins(self: Rc<Self>) {
        spawn_local(self.tick());
    }

    fn ends(&self) {
        self.ending.end();
        self.metrics().schedules.set(0);
        self.changed.notify_one();
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }
}

impl LedSchedules {
    /// Those that are kept in the stream of this name. What cannot be read is not taken for nothing.
    ///
    /// # Errors
    /// The stream cannot be read, or it cannot be said that this node leads.
    pub(super) async fn load(
        core: &CoreHandle,
        name: &TopicName,
        publishing: Rc<Publishing>,
        peers: Option<Rc<ControlPeers>>,
    ) -> Result<Self, StreamFailure> {
        let ending = Rc::<Ending>::default();
        let store = Store::new(core.clone(), name, peers.clone(), ending.clone());
        let mut found = BTreeMap::<ScheduleName, (ScheduleConfig, ScheduleState)>::new();
        let read = store.take_over(|kept| match kept {
            Kept::Made(name, config, state) => drop(found.insert(name, (*config, state))),
            Kept::Step(name, state) => {
                if let Some(held) = found.get_mut(&name) {
                    held.1 = state;
                }
            }
            Kept::Deleted(name) => drop(found.remove(&name)),
        });
        read.await?;
        let started = clock::now();
        let bytes = Cell::new(found.values().map(|(config, _)| config.bytes()).sum());
        let held = found.into_iter().map(|(name, (config, state))| {
            let held = Held::new(config, state);
            if held.timetable.is_none() {
                tracing::error!(%name, "a schedule cannot be read by this version: it does not tick");
            }
            (name, held)
        });
        let held = RefCell::new(held.collect());
        let (turns, appends, changed) = Default::default();
        let (core, at_work) = (core.clone(), Semaphore::new(PUBLISHING_MAX));
        Ok(Self {
            core,
            store,
            publishing,
            held,
            bytes,
            turns,
            appends,
            at_work,
            changed,
            started,
            peers,
            ending,
        })
    }

    /// The stream that they are kept in.
    pub(super) fn stream(&self) -> &LedStream {
        self.store.stream()
    }

    /// Does what is asked.
    pub(super) async fn answer(self: Rc<Self>, asked: Asked) -> Outcome {
        let answer = match asked {
            Asked::Get(name) => {
                let page =
                    |schedule| ScheduleAnswer::Page { schedules: vec![schedule], more: false };
                self.told(&name).map(page)
            }
            Asked::List { after, most } => Ok(self.list(&after, most)),
            Asked::Change { name, change, of } => {
                let _turn = self.turns.of(name.as_str()).await;
                let held = self.held.borrow().get(&name).map(|held| held.config.topic.clone());
                let created = held.is_none() && matches!(change, ScheduleChange::Create(_));
                match held {
                    Some(topic) if of.as_ref() != Some(&topic) => return Outcome::IsOf(topic),
                    _ => {}
                }
                let changed = self.change(&name, change).await.map(Box::new);
                self.changed.notify_one();
                self.write_again_if_grown();
                changed.map(|schedule| ScheduleAnswer::Changed { schedule, created })
            }
        };
        answer.map_or_else(Outcome::Refused, Outcome::Done)
    }

    fn told(&self, name: &ScheduleName) -> Result<ToldSchedule, ScheduleRefusal> {
        let held = self.held.borrow();
        let found = held.get(name).map(|held| held.told(name));
        found.ok_or_else(|| ScheduleRefusal::Unknown(name.clone()))
    }

    fn list(&self, after: &str, most: usize) -> ScheduleAnswer {
        let held = self.held.borrow();
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let mut behind = held.range::<str, _>(behind);
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
        let Some(config) = config else {
            let pauses = change == ScheduleChange::Pause;
            if state.is_paused && !pauses {
                // What came in between was meant to be left out.
                state.handled_ms = clock::now().0;
            }
            state.is_paused = pauses;
            self.step(name, state).await?;
            return self.told(name);
        };
        let published = self.publishing.publish_now(name, &config, clock::now()).await?;
        state.last = Some(published);
        state.published += 1;
        match self.step(name, state).await {
            // It is published: asked for again, it would be so once more.
            Err(refusal) if refusal.is_without_leader() => {
                Err(ControlRefusal::from(Refusal::OutcomeUnknown).into())
            }
            stepped => {
                stepped?;
                self.told(name)
            }
        }
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
            let (name, field) = (name.to_string(), field.into());
            return Err(ScheduleRefusal::Differs { name, field, existing, requested });
        }
        let now = clock::now();
        check_config(name, &config)?;
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
    pub(super) async fn step(
        &self,
        name: &ScheduleName,
        state: ScheduleState,
    ) -> Result<(), ScheduleRefusal> {
        let _append = self.appends.read().await;
        self.keep(&Kept::Step(name.clone(), state.clone())).await?;
        if let Some(held) = self.held.borrow_mut().get_mut(name) {
            held.state = state;
            held.due = held.next();
        }
        Ok(())
    }

    async fn keep(&self, kept: &Kept) -> Result<(), ScheduleRefusal> {
        self.store.append(kept).await.map_err(|error| {
            tracing::warn!(%error, "a change of a schedule is refused");
            match error {
                LedAppendError::Refused(StreamFailure::Broker(refusal)) => {
                    ScheduleRefusal::Broker(refusal)
                }
                LedAppendError::Refused(_) => ControlRefusal::WrongAnswer.into(),
                LedAppendError::Superseded => ControlRefusal::from(Refusal::NoLeader).into(),
                LedAppendError::Unknown => ControlRefusal::from(Refusal::OutcomeUnknown).into(),
            }
        })
    }

    /// Whether no other node looks after the schedules now.
    pub(super) fn may_publish(&self) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.has_lease()) && !self.ending.is_over()
    }

    pub(super) fn metrics(&self) -> &CoreMetrics {
        &self.core.cores.metrics[self.core.index]
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

    pub(super) fn write_again_if_grown(self: &Rc<Self>) {
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
            if let Err(error) = schedules.store.write_again(all).await {
                tracing::warn!(%error, "the schedules are written again later");
            }
        });
    }
}

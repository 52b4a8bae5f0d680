//! The ticks of schedules: each is published when it is due, or left out. For each tick there is exactly one message, also if
//! two nodes publish it: the second finds that it is done.

use std::{rc::Rc, time::Duration};

use sennit_engine::Refusal;
use sennit_model::{Overlap, ScheduleName, Timestamp};
use tokio::task::spawn_local;

use super::{
    led::LedSchedules, plan::due_ticks, publishing::Published, request::ScheduleConfig,
    state::ScheduleState,
};
use crate::{
    broker::{control_request::ControlRefusal, where_led::LedPart as _},
    runtime::clock,
};

/// Longest wait before the clock is looked at again: it may have been put forward.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long after a tick that could not be published, or noted, it is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl LedSchedules {
    /// Publishes what is due, until others do it.
    pub(super) async fn tick(self: Rc<Self>) {
        while !self.ending().is_over() {
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
        let due = due_ticks(&timetable, times, config.catch_up, self.started);
        let until = due.until.unwrap_or(handled);
        for tick in due.ticks {
            if !self.may_publish() {
                return self.try_later(name);
            }
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

    fn try_later(&self, name: &ScheduleName) {
        if let Some(held) = self.held.borrow_mut().get_mut(name) {
            held.due = Some(clock::now().plus(RETRY));
        }
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

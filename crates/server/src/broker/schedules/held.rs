//! A schedule as it is held: its settings, how far it has come, and when it is to be looked at. It decides nothing.

use std::rc::Rc;

use sennit_model::{ScheduleName, Timestamp};

use super::{
    cron::{CronFault, Timetable, zone_named},
    request::{ScheduleConfig, ScheduleRefusal, ToldSchedule},
    state::ScheduleState,
};
use crate::{broker::control_request::check_topic, runtime::clock};

/// A schedule.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) config: Rc<ScheduleConfig>,
    /// `None` if this version cannot read its pattern or zone: it does not tick.
    pub(super) timetable: Option<Rc<Timetable>>,
    pub(super) state: ScheduleState,
    /// When it is to be looked at next.
    pub(super) due: Option<Timestamp>,
    /// Whether its ticks are being published.
    pub(super) is_at_work: bool,
}

impl Held {
    pub(super) fn new(config: ScheduleConfig, state: ScheduleState) -> Self {
        let timetable = timetable(&config).ok().map(Rc::new);
        let mut held =
            Self { config: Rc::new(config), timetable, state, due: None, is_at_work: false };
        held.due = held.next();
        held
    }

    /// When it ticks next.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let timetable = self.timetable.as_ref().filter(|_| !self.state.is_paused)?;
        timetable.next_after(Timestamp(self.state.handled_ms))
    }

    pub(super) fn told(&self, name: &ScheduleName) -> ToldSchedule {
        let (config, state) = (ScheduleConfig::clone(&self.config), self.state.clone());
        ToldSchedule { name: name.clone(), config, state, next: self.next() }
    }
}

fn timetable(config: &ScheduleConfig) -> Result<Timetable, ScheduleRefusal> {
    let zone = zone_named(&config.zone);
    let zone = zone.ok_or_else(|| ScheduleRefusal::Zone(config.zone.clone()))?;
    Ok(Timetable::new(&config.cron, zone)?)
}

/// Refuses settings that no schedule can have, whatever there is already.
///
/// # Errors
/// They say no time, or make no message.
pub(super) fn check_config(
    name: &ScheduleName,
    config: &ScheduleConfig,
) -> Result<(), ScheduleRefusal> {
    if timetable(config)?.next_after(clock::now()).is_none() {
        return Err(CronFault::Never(config.cron.clone()).into());
    }
    config.check(name)?;
    Ok(check_topic(&config.topic)?)
}

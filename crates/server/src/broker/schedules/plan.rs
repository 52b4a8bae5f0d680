//! Which ticks of a schedule are to be published at a moment. It knows no clock: the times are arguments.

use sennit_model::{CatchUp, Timestamp, limits::CATCH_UP_TICKS_MAX};

use super::cron::Timetable;

/// The ticks that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DueTicks {
    /// Those to publish, the oldest first.
    pub(super) ticks: Vec<Timestamp>,
    /// All ticks up to this one are done with then.
    pub(super) until: Option<Timestamp>,
}

/// The ticks behind `handled` that are due by `now`. Those up to `started`, when the broker began to look after
/// schedules, were missed, and so were all but the last where several have come together.
pub(super) fn due_ticks(
    timetable: &Timetable,
    (handled, now): (Timestamp, Timestamp),
    catch_up: CatchUp,
    started: Timestamp,
) -> DueTicks {
    let Some(last) = timetable.last_until(now).filter(|last| *last > handled) else {
        return DueTicks::default();
    };
    let ticks = match catch_up {
        CatchUp::Skip if last <= started => Vec::new(),
        CatchUp::Skip | CatchUp::One => vec![last],
        CatchUp::All => {
            let mut ticks = vec![last];
            while ticks.len() < CATCH_UP_TICKS_MAX
                && let Some(before) = ticks.last().and_then(|tick| before(timetable, *tick))
                && before > handled
            {
                ticks.push(before);
            }
            ticks.reverse();
            ticks
        }
    };
    DueTicks { ticks, until: Some(last) }
}

fn before(timetable: &Timetable, tick: Timestamp) -> Option<Timestamp> {
    timetable.last_until(Timestamp(tick.0.checked_sub(1000)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::schedules::cron::zone_named;

    const MINUTE: u64 = 60_000;
    /// A full hour.
    const BEGIN: u64 = 1_735_689_600_000;

    fn minute(n: u64) -> Timestamp {
        Timestamp(BEGIN + n * MINUTE)
    }

    fn due(handled: u64, now: Timestamp, catch_up: CatchUp, started: u64) -> DueTicks {
        let zone = zone_named("UTC").expect("a zone");
        let timetable = Timetable::new("* * * * *", zone).expect("a pattern");
        due_ticks(&timetable, (minute(handled), now), catch_up, minute(started))
    }

    #[test]
    fn a_tick_is_due_from_its_second_on_and_once() {
        for catch_up in CatchUp::ALL {
            let early = Timestamp(minute(1).0 - 1);
            assert_eq!(due(0, early, catch_up, 0), DueTicks::default());
            let one = DueTicks { ticks: vec![minute(1)], until: Some(minute(1)) };
            assert_eq!(due(0, minute(1), catch_up, 0), one);
            assert_eq!(due(1, Timestamp(minute(1).0 + 900), catch_up, 0), DueTicks::default());
        }
    }

    #[test]
    fn ticks_that_the_broker_missed_are_caught_up_as_the_schedule_says() {
        let ticks = |catch_up| due(0, minute(5), catch_up, 5);
        assert_eq!(ticks(CatchUp::Skip), DueTicks { ticks: vec![], until: Some(minute(5)) });
        assert_eq!(
            ticks(CatchUp::One),
            DueTicks { ticks: vec![minute(5)], until: Some(minute(5)) }
        );
        let all = (1..=5).map(minute).collect();
        assert_eq!(ticks(CatchUp::All), DueTicks { ticks: all, until: Some(minute(5)) });
    }

    #[test]
    fn of_ticks_that_come_together_while_the_broker_runs_the_last_is_on_time() {
        assert_eq!(due(0, minute(5), CatchUp::Skip, 0).ticks, [minute(5)]);
        assert_eq!(due(0, minute(5), CatchUp::One, 0).ticks, [minute(5)]);
        assert_eq!(due(0, minute(5), CatchUp::All, 0).ticks.len(), 5);
    }

    #[test]
    fn catching_up_all_has_a_limit_and_keeps_the_last() {
        let many = CATCH_UP_TICKS_MAX as u64 + 7;
        let ticks = due(0, minute(many), CatchUp::All, 0).ticks;
        assert_eq!(ticks.len(), CATCH_UP_TICKS_MAX);
        assert_eq!((ticks[0], ticks[ticks.len() - 1]), (minute(8), minute(many)));
    }
}

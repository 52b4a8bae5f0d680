//! Cron patterns in time zones: which second a schedule ticks next. `croner` knows patterns, `jiff` the zones, whose
//! rules are built into the program. It knows no clock.
//!
//! Where clocks are put forward, a pattern with fixed hours and minutes ticks at the first second behind the gap, once;
//! one with wildcards or steps there goes on by elapsed time. Where they are put back, a fixed time ticks at its first
//! passing, and wildcards tick in both.

use std::cmp::Ordering;

use croner::{
    CivilDate, CivilDateTime, CivilTime, Cron, CronDateTime, Resolution, Weekday,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    SignedDuration, ZonedDateTime,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};
use sennit_model::{Timestamp, limits::CRON_BYTES_MAX};

/// The fields of a pattern with seconds: their names, and what each may hold.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of the month", "1-31, L for the last or 15W for the working day next to the 15th"),
    ("month", "1-12 or JAN-DEC"),
    ("day of the week", "0-7 or SUN-SAT, FRI#2 for the second, FRI#L for the last"),
];

/// Why a text is no cron pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CronFault {
    /// It has too few or too many fields.
    #[error(
        "{cron:?} has {fields} fields: a cron pattern has 5, minute, hour, day of the month, month and day of the \
         week, or 6 with the second before them"
    )]
    Fields { cron: String, fields: usize },
    /// A field is none.
    #[error(
        "{text:?} at byte {position} of {cron:?} is no {field}: write *, */5, 1,2, 1-5 or {right}"
    )]
    Field { cron: String, position: usize, text: String, field: &'static str, right: &'static str },
    /// It is a nickname that nobody knows.
    #[error(
        "{0:?} is no cron pattern: nicknames are @yearly, @monthly, @weekly, @daily and @hourly"
    )]
    Nickname(String),
    /// It never ticks, as the 30th of February does.
    #[error("{0:?} never ticks: there is no such day")]
    Never(String),
    /// It is too long.
    #[error("a cron pattern has at most CRON_BYTES_MAX, {CRON_BYTES_MAX}, bytes, this one has {0}")]
    TooLong(usize),
}

/// When a schedule ticks.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    cron: Cron,
    zone: TimeZone,
}

impl Timetable {
    /// A pattern in a zone.
    ///
    /// # Errors
    /// The text is no pattern.
    pub(crate) fn new(cron: &str, zone: TimeZone) -> Result<Self, CronFault> {
        if cron.len() > CRON_BYTES_MAX {
            return Err(CronFault::TooLong(cron.len()));
        }
        let pattern = parsed(cron).map_err(|_| fault_of(cron))?;
        Ok(Self { cron: pattern, zone })
    }

    /// The first tick behind this time; `None` if there is none.
    pub(crate) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let found = self.cron.find_next_occurrence(&self.moment(after)?, false);
        found.ok().and_then(|found| found.timestamp())
    }

    /// The last tick at this time or before; `None` if there is none.
    pub(crate) fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        let found = self.cron.find_previous_occurrence(&self.moment(until)?, true);
        found.ok().and_then(|found| found.timestamp())
    }

    /// The second that holds this time.
    fn moment(&self, at: Timestamp) -> Option<Moment> {
        let seconds = i64::try_from(at.0 / 1000).ok()?;
        let at = jiff::Timestamp::from_second(seconds).ok()?;
        Some(Moment(at.to_zoned_datetime(self.zone.clone())))
    }
}

/// The zone of this name.
pub(crate) fn zone_named(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|_| !name.is_empty())
}

fn parsed(cron: &str) -> Result<Cron, CronError> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(cron)
}

/// What is wrong with a pattern: the first field that is none among others that are right.
fn fault_of(cron: &str) -> CronFault {
    if cron.trim_start().starts_with('@') {
        return CronFault::Nickname(cron.to_owned());
    }
    let texts: Vec<&str> = cron.split_whitespace().collect();
    let offset = match texts.len() {
        5 => 1,
        6 => 0,
        fields => return CronFault::Fields { cron: cron.to_owned(), fields },
    };
    let is_wrong = |(index, text): (usize, &&str)| {
        let mut alone = ["0", "*", "*", "*", "*", "*"];
        alone[index + offset] = text;
        parsed(&alone.join(" ")).is_err()
    };
    // Where each is right by itself, all of them together are not: then the last is told.
    let wrong = texts.iter().enumerate().position(is_wrong).unwrap_or(texts.len() - 1);
    let (field, right) = FIELDS[wrong + offset];
    let text = texts[wrong];
    let position = text.as_ptr() as usize - cron.as_ptr() as usize;
    CronFault::Field { cron: cron.to_owned(), position, text: text.to_owned(), field, right }
}

/// A time in a zone, as croner asks for it.
#[derive(Clone, Debug)]
struct Moment(ZonedDateTime);

impl Moment {
    fn timestamp(&self) -> Option<Timestamp> {
        u64::try_from(self.0.timestamp().as_millisecond()).ok().map(Timestamp)
    }
}

impl CronDateTime for Moment {
    fn to_civil(&self) -> CivilDateTime {
        let local = self.0.datetime();
        let part = |part: i8| u32::try_from(part).unwrap_or_default();
        let date = CivilDate::from_parts_unchecked(
            local.year().into(),
            part(local.month()),
            part(local.day()),
        );
        let time = CivilTime::from_parts_unchecked(
            part(local.hour()),
            part(local.minute()),
            part(local.second()),
        );
        CivilDateTime::new(date, time)
    }

    fn civil_weekday(&self) -> Weekday {
        let days = self.0.weekday().to_sunday_zero_offset();
        Weekday::from_days_from_sunday(u32::try_from(days).unwrap_or_default())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let local = DateTime::new(
            year,
            part(civil.month())?,
            part(civil.day())?,
            part(civil.hour())?,
            part(civil.minute())?,
            part(civil.second())?,
            0,
        );
        let local = local.map_err(|_| CronError::InvalidDate)?;
        let found = self.0.time_zone().to_ambiguous_zoned_datetime(local);
        let valid = |zoned: Result<ZonedDateTime, jiff::Error>| {
            zoned.map(Self).map_err(|_| CronError::InvalidTime)
        };
        Ok(match found.offset() {
            AmbiguousOffset::Unambiguous { .. } => Resolution::Single(valid(found.unambiguous())?),
            AmbiguousOffset::Fold { .. } => {
                Resolution::Ambiguous(valid(found.clone().earlier())?, valid(found.later())?)
            }
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.timestamp().cmp(&other.0.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timetable(cron: &str, zone: &str) -> Timetable {
        Timetable::new(cron, zone_named(zone).expect("a zone")).expect("a pattern")
    }

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().expect("a time");
        Timestamp(u64::try_from(time.as_millisecond()).expect("after 1970"))
    }

    /// The next ticks behind a time, in UTC.
    fn ticks(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let timetable = timetable(cron, zone);
        let mut now = at(after);
        let next = || {
            now = timetable.next_after(now)?;
            let seconds = i64::try_from(now.0 / 1000).expect("it is small");
            Some(jiff::Timestamp::from_second(seconds).expect("a time").to_string())
        };
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn a_pattern_ticks_at_its_times_in_its_zone() {
        // The 28th of March 2025 is a Friday; on Sunday clocks go forward.
        assert_eq!(
            ticks("0 9 * * MON-FRI", "Europe/Berlin", "2025-03-27T12:00:00Z", 3),
            ["2025-03-28T08:00:00Z", "2025-03-31T07:00:00Z", "2025-04-01T07:00:00Z"]
        );
        assert_eq!(
            ticks("*/20 * * * * *", "UTC", "2025-01-01T00:00:00.5Z", 2),
            ["2025-01-01T00:00:20Z", "2025-01-01T00:00:40Z"]
        );
        assert_eq!(ticks("@daily", "UTC", "2025-01-01T00:00:00Z", 1), ["2025-01-02T00:00:00Z"]);
        let timetable = timetable("0 9 * * *", "Europe/Berlin");
        assert_eq!(
            timetable.last_until(at("2025-07-01T07:00:00Z")),
            Some(at("2025-07-01T07:00:00Z"))
        );
        assert_eq!(
            timetable.last_until(at("2025-07-01T06:59:59Z")),
            Some(at("2025-06-30T07:00:00Z"))
        );
    }

    #[test]
    fn a_fixed_time_that_clocks_pass_over_ticks_once_behind_the_gap() {
        // In Berlin 02:00 was followed by 03:00 on the 30th of March 2025, which is 01:00 UTC.
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00:00Z", 2),
            ["2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"]
        );
    }

    #[test]
    fn a_fixed_time_that_clocks_show_twice_ticks_once() {
        // In Berlin 03:00 was followed by 02:00 on the 26th of October 2025, which is 01:00 UTC.
        assert_eq!(
            ticks("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", 2),
            ["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"]
        );
    }

    #[test]
    fn wildcards_go_on_by_elapsed_time_when_clocks_are_changed() {
        assert_eq!(
            ticks("*/30 * * * *", "Europe/Berlin", "2025-03-30T00:30:00Z", 3),
            ["2025-03-30T01:00:00Z", "2025-03-30T01:30:00Z", "2025-03-30T02:00:00Z"]
        );
        assert_eq!(
            ticks("0 * * * *", "Europe/Berlin", "2025-10-25T23:30:00Z", 3),
            ["2025-10-26T00:00:00Z", "2025-10-26T01:00:00Z", "2025-10-26T02:00:00Z"]
        );
    }

    #[test]
    fn a_wrong_pattern_says_which_field_is_wrong_where_and_what_would_be_right() {
        let fault =
            |cron: &str| Timetable::new(cron, TimeZone::UTC).expect_err("it is wrong").to_string();
        let said = fault("0 25 * * *");
        assert!(said.starts_with("\"25\" at byte 2 of \"0 25 * * *\" is no hour"), "{said}");
        assert!(said.ends_with("or 0-23"), "{said}");
        assert!(
            fault("0  0 * 13 *").starts_with("\"13\" at byte 7 of"),
            "{}",
            fault("0  0 * 13 *")
        );
        assert!(
            fault("0 0 * * FUNDAY").contains("is no day of the week"),
            "{}",
            fault("0 0 * * FUNDAY")
        );
        assert!(fault("61 0 0 * * *").contains("is no second"), "{}", fault("61 0 0 * * *"));
        assert!(fault("0 9 * *").contains("has 4 fields"));
        assert!(fault("").contains("has 0 fields"));
        assert!(fault("@often").contains("@hourly"));
        assert!(fault(&"*".repeat(CRON_BYTES_MAX + 1)).contains("CRON_BYTES_MAX"));
    }

    #[test]
    fn a_zone_has_the_name_of_the_time_zone_database() {
        assert!(zone_named("Europe/Berlin").is_some() && zone_named("UTC").is_some());
        assert!(zone_named("Europe/Atlantis").is_none() && zone_named("").is_none());
    }

    #[test]
    fn a_day_that_never_comes_never_ticks() {
        assert_eq!(timetable("0 0 30 2 *", "UTC").next_after(Timestamp(0)), None);
        assert_eq!(timetable("0 0 30 2 *", "UTC").last_until(at("2025-01-01T00:00:00Z")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_a_fault_that_lies_in_it(cron in "[ *0-9/,#LW@A-Za-z?+-]{0,30}") {
            match Timetable::new(&cron, TimeZone::UTC) {
                Ok(timetable) => {
                    let now = Timestamp(1_735_689_600_000);
                    if let Some(next) = timetable.next_after(now) {
                        prop_assert!(next > now);
                        prop_assert_eq!(timetable.last_until(next), Some(next));
                    }
                }
                Err(CronFault::Field { position, text, .. }) => {
                    prop_assert!(cron[position..].starts_with(&text));
                }
                Err(_) => {}
            }
        }
    }
}

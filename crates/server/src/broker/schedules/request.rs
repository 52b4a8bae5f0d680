//! The requests about schedules, their answers and refusals, in the broker's own types. It knows no protocol.

use bytes::Bytes;
use sennit_engine::Refusal;
use sennit_model::{
    BatchBuilder, BatchError, CatchUp, Header, HeaderKind, Message, Overlap, ScheduleName,
    Timestamp, TopicName,
    limits::{SCHEDULE_BYTES_MAX, SCHEDULES_BYTES_MAX, SCHEDULES_MAX},
};

use super::{cron::CronFault, state::ScheduleState};
use crate::broker::control_request::ControlRefusal;

/// The name of the header with the name of the schedule.
pub(crate) const HEADER_SCHEDULE: &str = "sennit-schedule";
/// The name of the header with the time of the tick, in milliseconds since 1970.
pub(crate) const HEADER_TICK_MS: &str = "sennit-tick-ms";

/// A request. Each variant says its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleRequest {
    /// Changes one schedule. [`ScheduleAnswer::Changed`], once that is durable.
    Change(ScheduleName, ScheduleChange),
    /// Describes one schedule. [`ScheduleAnswer::Page`].
    Get(ScheduleName),
    /// Lists schedules by name, those behind this text, without payloads. [`ScheduleAnswer::Page`].
    List { after: String, most: usize },
}

/// A change of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleChange {
    /// Makes it, or finds it if it has the same settings.
    Create(Box<ScheduleConfig>),
    Delete,
    Pause,
    /// Ticks of the pause are left out.
    Resume,
    /// Publishes its message now, whatever its times.
    RunNow,
}

/// The settings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleConfig {
    pub(crate) topic: TopicName,
    pub(crate) cron: String,
    pub(crate) zone: String,
    pub(crate) key: Bytes,
    pub(crate) headers: Vec<Header>,
    pub(crate) payload: Bytes,
    pub(crate) catch_up: CatchUp,
    pub(crate) overlap: Overlap,
}

impl ScheduleConfig {
    /// The message of a tick.
    pub(super) fn message(&self, name: &ScheduleName, tick: Timestamp) -> Message {
        let number = |name: &str, value: u64| Header {
            name: name.to_owned(),
            kind: HeaderKind::Number,
            value: Bytes::from(value.to_string()),
        };
        let mut headers = self.headers.clone();
        headers.push(Header::text(HEADER_SCHEDULE, name.as_str()));
        headers.push(number(HEADER_TICK_MS, tick.0));
        Message {
            key: self.key.clone(),
            headers,
            payload: self.payload.clone(),
            ..Message::default()
        }
    }

    /// Bytes of everything in it.
    pub(super) fn bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
        let texts = self.topic.as_str().len() + self.cron.len() + self.zone.len();
        texts + headers + self.key.len() + self.payload.len()
    }

    /// Refuses what no message can be made of.
    ///
    /// # Errors
    /// It is too long, or no message.
    pub(super) fn check(&self, name: &ScheduleName) -> Result<(), ScheduleRefusal> {
        let bytes = self.bytes();
        if bytes > SCHEDULE_BYTES_MAX {
            return Err(ScheduleRefusal::TooLong(bytes));
        }
        BatchBuilder::new().push(&self.message(name, Timestamp(u64::MAX)))?;
        Ok(())
    }

    /// The first setting that differs, with its value here and there.
    pub(super) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let fields = |of: &Self| {
            [
                ("topic", of.topic.to_string()),
                ("cron", of.cron.clone()),
                ("zone", of.zone.clone()),
                ("catch-up", of.catch_up.name().to_owned()),
                ("overlap", of.overlap.name().to_owned()),
                ("key", of.key.escape_ascii().to_string()),
                ("payload", format!("{} bytes", of.payload.len())),
                ("headers", format!("{} headers", of.headers.len())),
            ]
        };
        let differing = fields(self).into_iter().zip(fields(other));
        let mut differing = differing.filter(|((_, here), (_, there))| here != there);
        let first = differing.next().map(|((name, here), (_, there))| (name, here, there));
        let same_length = || ("payload or headers", "one value".to_owned(), "another".to_owned());
        (self != other).then(|| first.unwrap_or_else(same_length))
    }
}

/// A schedule as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToldSchedule {
    pub(crate) name: ScheduleName,
    pub(crate) config: ScheduleConfig,
    pub(crate) state: ScheduleState,
    /// When it ticks next; `None` while it is paused, and if it never does.
    pub(crate) next: Option<Timestamp>,
}

/// The answer to a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleAnswer {
    /// The change is durable.
    Changed {
        schedule: Box<ToldSchedule>,
        /// Whether it was made that was not there before.
        created: bool,
    },
    /// Schedules, by name.
    Page {
        schedules: Vec<ToldSchedule>,
        /// Whether others follow.
        more: bool,
    },
}

/// Why a request was refused. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScheduleRefusal {
    /// There is none of this name.
    #[error("there is no schedule {:?}", .0.as_str())]
    Unknown(ScheduleName),
    /// There is one of this name with other settings.
    #[error("schedule {name:?} exists with {field} {existing}, not {requested}")]
    Differs { name: String, field: Box<str>, existing: String, requested: String },
    /// The pattern is none.
    #[error(transparent)]
    Cron(#[from] CronFault),
    /// The time zone is none.
    #[error(
        "{0:?} is no time zone: use a name of the IANA database, such as Europe/Berlin, America/New_York or UTC"
    )]
    Zone(String),
    /// No message can be made of its settings.
    #[error(transparent)]
    Message(#[from] BatchError),
    /// Its settings are too long.
    #[error(
        "a schedule has at most SCHEDULE_BYTES_MAX, {SCHEDULE_BYTES_MAX}, bytes of payload, headers and other settings, \
         this one has {0}"
    )]
    TooLong(usize),
    /// There are as many as there may be.
    #[error("limit reached: SCHEDULES_MAX is {SCHEDULES_MAX}")]
    TooMany,
    /// All of them together are as long as they may be.
    #[error("limit reached: SCHEDULES_BYTES_MAX is {SCHEDULES_BYTES_MAX}")]
    TooManyBytes,
    /// What was kept cannot be read: nobody gets any of it, and nothing is written.
    #[error("the schedules cannot be read from the disk: the broker's log says why")]
    Unreadable,
    /// The broker has refused it, or what it needed.
    #[error(transparent)]
    Broker(#[from] Box<ControlRefusal>),
}

impl ScheduleRefusal {
    /// Whether nothing was done because no node leads what it needed.
    pub(super) fn is_without_leader(&self) -> bool {
        let Self::Broker(refusal) = self else { return false };
        matches!(**refusal, ControlRefusal::Engine(Refusal::NotLeader { .. } | Refusal::NoLeader))
    }
}

impl From<ControlRefusal> for ScheduleRefusal {
    fn from(refusal: ControlRefusal) -> Self {
        Self::Broker(Box::new(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(payload: &'static str) -> ScheduleConfig {
        ScheduleConfig {
            topic: "reports".parse().expect("a name"),
            cron: "* * * * *".into(),
            zone: "UTC".into(),
            key: Bytes::new(),
            headers: Vec::new(),
            payload: payload.into(),
            catch_up: CatchUp::One,
            overlap: Overlap::Allow,
        }
    }

    #[test]
    fn settings_that_differ_say_where() {
        let one = config("a");
        assert_eq!(one.difference(&one), None);
        let cron = ScheduleConfig { cron: "0 * * * *".into(), ..one.clone() };
        let differs = ("cron", "* * * * *".to_owned(), "0 * * * *".to_owned());
        assert_eq!(one.difference(&cron), Some(differs));
        assert_eq!(
            one.difference(&config("b")).map(|differs| differs.0),
            Some("payload or headers")
        );
        assert_eq!(one.difference(&config("bb")).map(|differs| differs.0), Some("payload"));
    }

    #[test]
    fn a_message_says_its_schedule_and_its_tick_and_one_that_is_too_long_is_refused() {
        let name: ScheduleName = "nightly".parse().expect("a name");
        let message = config("a").message(&name, Timestamp(5));
        let headers: Vec<_> = message.headers.iter().map(|header| &*header.name).collect();
        assert_eq!(headers, [HEADER_SCHEDULE, HEADER_TICK_MS]);
        assert_eq!(config("a").check(&name), Ok(()));
        let payload = Bytes::from(vec![0; SCHEDULE_BYTES_MAX]);
        let long = ScheduleConfig { payload, ..config("") };
        assert!(matches!(long.check(&name), Err(ScheduleRefusal::TooLong(_))));
        let unnamed = ScheduleConfig { headers: vec![Header::text("", "a")], ..config("") };
        assert!(matches!(unnamed.check(&name), Err(ScheduleRefusal::Message(_))));
    }
}

//! Recurring schedules of a broker: make, list, pause, resume, run and delete them.

use bytes::Bytes;
use sennit_model::{
    CatchUp, Header, HeaderKind, Offset, Overlap, PartitionIndex, ScheduleName, Timestamp,
    TopicName,
};
use sennit_protocol::{
    Reply, Request,
    control::{self, change_schedule::Change},
};

use crate::{admin::unexpected, client::Client, error::Error};

/// The settings of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// The topic to which a message is published at each tick.
    pub topic: TopicName,
    /// The cron pattern: minute, hour, day of the month, month and day of the week, with the second before them if
    /// there are six fields.
    pub cron: String,
    /// The time zone, by its name in the IANA database.
    pub zone: String,
    /// The key of the messages; may be empty.
    pub key: Bytes,
    /// Their headers. The broker adds `sennit-schedule` and `sennit-tick-ms`.
    pub headers: Vec<Header>,
    /// Their payload.
    pub payload: Bytes,
    /// What becomes of the ticks for which the broker was down.
    pub catch_up: CatchUp,
    /// What becomes of a tick while the default group has not settled the message of an earlier one.
    pub overlap: Overlap,
}

impl ScheduleConfig {
    /// A schedule with an empty message, in UTC.
    pub fn new(topic: TopicName, cron: impl Into<String>) -> Self {
        Self {
            topic,
            cron: cron.into(),
            zone: "UTC".into(),
            key: Bytes::new(),
            headers: Vec::new(),
            payload: Bytes::new(),
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
        }
    }
}

/// A schedule, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Its settings. A listing leaves the payload out.
    pub config: ScheduleConfig,
    /// Whether it is paused.
    pub is_paused: bool,
    /// When it ticks next; `None` while it is paused.
    pub next: Option<Timestamp>,
    /// The last message that was published for it.
    pub last: Option<LastTick>,
    /// The number of messages that were published.
    pub published: u64,
    /// The number of ticks that were left out because of an earlier message, or because they could not be published.
    pub left_out: u64,
    /// Why the last tick could not be published; empty if it was.
    pub failure: String,
}

/// The last message that was published for a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTick {
    /// The time of the tick.
    pub at: Timestamp,
    /// The partition of the message.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
}

/// A page of schedules, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulePage {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// Asks for the next page; empty on the last.
    pub next_page: String,
}

/// All of these calls return [`Error::Closed`], or [`Error::Unreachable`] when the client has given up. A change whose
/// answer was lost with the connection is [`Error::OutcomeUnknown`].
impl Client {
    /// Makes a schedule. If it exists with the same settings, this does nothing. Returns the schedule, and whether it
    /// was made.
    ///
    /// # Errors
    /// `invalid-cron`, `unknown-zone`, `unknown-topic`, `topic-exists` if the schedule has other settings,
    /// `limit-reached`; and see above.
    pub async fn create_schedule(
        &self,
        name: &ScheduleName,
        config: &ScheduleConfig,
    ) -> Result<(Schedule, bool), Error> {
        self.change_schedule(name, Change::Create(body_of(config))).await
    }

    /// Describes a schedule.
    ///
    /// # Errors
    /// `unknown-schedule`; and see above.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<Schedule, Error> {
        let body = control::ListSchedules { name: Some(name.to_string()), ..<_>::default() };
        let mut page = self.schedule_page(body).await?;
        let missing = || Error::Unexpected("the answer has no schedule".to_owned());
        page.schedules.pop().ok_or_else(missing)
    }

    /// Lists schedules by name, without their payloads: the page behind `page`, which is
    /// [`SchedulePage::next_page`] of the one before, or empty.
    ///
    /// # Errors
    /// See above.
    pub async fn list_schedules(&self, page: &str) -> Result<SchedulePage, Error> {
        let body = control::ListSchedules { page_token: page.to_owned(), ..<_>::default() };
        self.schedule_page(body).await
    }

    /// Deletes a schedule. Its messages stay.
    ///
    /// # Errors
    /// `unknown-schedule`; and see above.
    pub async fn delete_schedule(&self, name: &ScheduleName) -> Result<(), Error> {
        self.change_schedule(name, Change::Delete(true)).await.map(drop)
    }

    /// Pauses a schedule: it does not tick.
    ///
    /// # Errors
    /// `unknown-schedule`; and see above.
    pub async fn pause_schedule(&self, name: &ScheduleName) -> Result<Schedule, Error> {
        self.change_schedule(name, Change::Pause(true)).await.map(|(schedule, _)| schedule)
    }

    /// Resumes a schedule. The ticks of its pause are left out.
    ///
    /// # Errors
    /// `unknown-schedule`; and see above.
    pub async fn resume_schedule(&self, name: &ScheduleName) -> Result<Schedule, Error> {
        self.change_schedule(name, Change::Resume(true)).await.map(|(schedule, _)| schedule)
    }

    /// Publishes the message of a schedule now, also while it is paused.
    ///
    /// # Errors
    /// `unknown-schedule`, `unknown-topic`, and what a publish may be refused for; and see above.
    pub async fn run_schedule(&self, name: &ScheduleName) -> Result<Schedule, Error> {
        self.change_schedule(name, Change::RunNow(true)).await.map(|(schedule, _)| schedule)
    }

    async fn schedule_page(&self, body: control::ListSchedules) -> Result<SchedulePage, Error> {
        match self.connection.ask(Request::ListSchedules(body), true).await? {
            Reply::ScheduleList(body) => Ok(SchedulePage {
                schedules: body.schedules.into_iter().map(schedule).collect::<Result<_, _>>()?,
                next_page: body.next_page_token,
            }),
            other => Err(unexpected(&other)),
        }
    }

    async fn change_schedule(
        &self,
        name: &ScheduleName,
        change: Change,
    ) -> Result<(Schedule, bool), Error> {
        let body = control::ChangeSchedule { name: name.to_string(), change: Some(change) };
        match self.connection.ask(Request::ChangeSchedule(body), false).await? {
            Reply::ScheduleChanged(body) => {
                Ok((schedule(body.schedule.unwrap_or_default())?, body.created))
            }
            other => Err(unexpected(&other)),
        }
    }
}

fn body_of(config: &ScheduleConfig) -> control::ScheduleConfig {
    let header = |header: &Header| control::ScheduleHeader {
        name: header.name.clone(),
        kind: header.kind as u32,
        value: header.value.clone(),
    };
    let catch_up = match config.catch_up {
        CatchUp::Skip => control::CatchUp::Skip,
        CatchUp::One => control::CatchUp::One,
        CatchUp::All => control::CatchUp::All,
    };
    let overlap = match config.overlap {
        Overlap::Allow => control::Overlap::Allow,
        Overlap::Skip => control::Overlap::Skip,
    };
    control::ScheduleConfig {
        topic: config.topic.to_string(),
        cron: config.cron.clone(),
        zone: config.zone.clone(),
        key: config.key.clone(),
        headers: config.headers.iter().map(header).collect(),
        payload: config.payload.clone(),
        catch_up: catch_up.into(),
        overlap: overlap.into(),
    }
}

fn schedule(body: control::Schedule) -> Result<Schedule, Error> {
    let malformed = |error: &dyn std::fmt::Display| Error::Unexpected(error.to_string());
    let config = body.config.unwrap_or_default();
    let header = |header: control::ScheduleHeader| {
        let kind = match header.kind {
            1 => HeaderKind::Binary,
            2 => HeaderKind::Number,
            3 => HeaderKind::Boolean,
            _ => HeaderKind::Text,
        };
        Header { name: header.name, kind, value: header.value }
    };
    let last = |at| LastTick {
        at: Timestamp(at),
        partition: PartitionIndex(body.last_partition.unwrap_or_default()),
        offset: Offset(body.last_offset.unwrap_or_default()),
    };
    Ok(Schedule {
        name: body.name.parse().map_err(|error| malformed(&error))?,
        is_paused: body.paused,
        next: body.next_ms.map(Timestamp),
        last: body.last_ms.map(last),
        published: body.published,
        left_out: body.left_out,
        failure: body.failure,
        config: ScheduleConfig {
            topic: config.topic.parse().map_err(|error| malformed(&error))?,
            catch_up: match config.catch_up() {
                control::CatchUp::Skip => CatchUp::Skip,
                control::CatchUp::All => CatchUp::All,
                _ => CatchUp::One,
            },
            overlap: match config.overlap() {
                control::Overlap::Skip => Overlap::Skip,
                _ => Overlap::Allow,
            },
            cron: config.cron,
            zone: config.zone,
            key: config.key,
            headers: config.headers.into_iter().map(header).collect(),
            payload: config.payload,
        },
    })
}

//! Messages that their publisher has delayed: list them by due time, cancel and reschedule them.

use std::time::Duration;

use sennit_model::{Offset, OffsetRange, PartitionIndex, Timestamp, TopicName};
use sennit_protocol::{
    Reply, Request,
    control::{self, change_delayed::Change},
};

use crate::{admin::unexpected, client::Client, error::Error};

/// Neighbouring messages of a partition that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedRun {
    /// The partition.
    pub partition: PartitionIndex,
    /// The messages.
    pub offsets: OffsetRange,
    /// When they are due.
    pub due: Timestamp,
}

/// A page of delayed messages, by due time, partition and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedPage {
    /// The messages.
    pub runs: Vec<DelayedRun>,
    /// Asks for the next page; empty on the last.
    pub next_page: String,
}

/// When a delayed message is to be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueTime {
    /// At this time; at once if that has passed.
    At(Timestamp),
    /// So long from now, by the broker's clock.
    After(Duration),
}

/// All of these calls return [`Error::Closed`], or [`Error::Unreachable`] when the client has given up. A change whose
/// answer was lost with the connection is [`Error::OutcomeUnknown`].
impl Client {
    /// Lists the messages of a topic, or of one partition, that wait because of their publisher's delay: the page
    /// behind `page`, which is [`DelayedPage::next_page`] of the one before, or empty. It has at most `most` runs,
    /// 1000 at most.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that the topic does not have, `limit-reached`, `invalid-config` for a
    /// `page` that no page had; and see above.
    pub async fn list_delayed(
        &self,
        topic: &TopicName,
        partition: Option<PartitionIndex>,
        page: &str,
        most: u32,
    ) -> Result<DelayedPage, Error> {
        let body = control::ListDelayed {
            topic: topic.to_string(),
            partition: partition.map(|partition| partition.0),
            page_token: page.to_owned(),
            page_size: most,
        };
        match self.connection.ask(Request::ListDelayed(body), true).await? {
            Reply::DelayedList(body) => {
                let runs = body.runs.iter().map(delayed_run).collect();
                Ok(DelayedPage { runs, next_page: body.next_page_token })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Cancels delayed messages of a partition, all of them or none: they are delivered to no group. Returns their
    /// number.
    ///
    /// # Errors
    /// `not-delayed` if one is due, with a consumer or settled, `unknown-message`, `unknown-topic`, `limit-reached`
    /// for more than 1000; and see above.
    pub async fn cancel_delayed(
        &self,
        topic: &TopicName,
        partition: PartitionIndex,
        offsets: &[Offset],
    ) -> Result<u64, Error> {
        self.change_delayed(topic, partition, offsets, Change::Cancel(true)).await
    }

    /// Gives delayed messages of a partition another due time, all of them or none. Returns their number.
    ///
    /// # Errors
    /// As [`Client::cancel_delayed`], and `limit-reached` for a time that is more than a hundred years away.
    pub async fn reschedule_delayed(
        &self,
        topic: &TopicName,
        partition: PartitionIndex,
        offsets: &[Offset],
        due: DueTime,
    ) -> Result<u64, Error> {
        let change = match due {
            DueTime::At(at) => Change::DueMs(at.0),
            DueTime::After(delay) => {
                Change::DelayMs(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
            }
        };
        self.change_delayed(topic, partition, offsets, change).await
    }

    async fn change_delayed(
        &self,
        topic: &TopicName,
        partition: PartitionIndex,
        offsets: &[Offset],
        change: Change,
    ) -> Result<u64, Error> {
        let body = control::ChangeDelayed {
            topic: topic.to_string(),
            partition: partition.0,
            offsets: offsets.iter().map(|offset| offset.0).collect(),
            change: Some(change),
        };
        self.change(Request::ChangeDelayed(body)).await.map(|done| done.messages)
    }
}

fn delayed_run(body: &control::DelayedRun) -> DelayedRun {
    DelayedRun {
        partition: PartitionIndex(body.partition),
        offsets: OffsetRange { start: Offset(body.start), end: Offset(body.end) },
        due: Timestamp(body.due_ms),
    }
}

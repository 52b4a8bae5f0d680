//! The messages that have come and are not settled: taken off the connection as they come, so that their
//! leases can be prolonged while whoever they are for is slow. Knows no output and no command.

use std::{collections::VecDeque, time::Duration};

use sennit_client::{Client, Consumer, DeliveryRun, Received};
use sennit_model::{GroupName, TopicName};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use crate::exit::Failure;

/// How long nothing has to come before the broker is asked whether anything is ready.
const QUIET: Duration = Duration::from_millis(500);

/// How many bytes of messages are held unsettled.
const CREDIT_BYTES: u64 = 32 << 20;

/// How often a lease is prolonged before it would end.
const PROLONGED_PER_LEASE: u32 = 3;

/// A membership in a group, and what it has brought.
pub struct Intake<'a> {
    client: &'a Client,
    topic: &'a TopicName,
    group: &'a GroupName,
    consumer: Consumer,
    /// What has come and nobody has begun with.
    pub waiting: VecDeque<Received<DeliveryRun>>,
    /// What somebody works on: it is settled, or returns to the group.
    pub begun: Vec<DeliveryRun>,
    /// Why nothing more comes.
    end: Option<Result<(), Failure>>,
    credit: u32,
    lease: Duration,
    prolong: Interval,
}

impl<'a> Intake<'a> {
    /// Joins the group.
    ///
    /// # Errors
    /// What the broker refuses.
    pub async fn begin(
        client: &'a Client,
        topic: &'a TopicName,
        group: &'a GroupName,
        credit: u32,
    ) -> Result<Self, Failure> {
        let about = |error| Failure::from(error).about(format!("{topic} {group}"));
        let consumer = client.consumer(topic, group).credit_messages(credit);
        let consumer = consumer.credit_bytes(CREDIT_BYTES).subscribe().await.map_err(about)?;
        let lease = client.describe_group(topic, group).await.map_err(about)?.config.lease;
        let every = (lease / PROLONGED_PER_LEASE).max(Duration::from_millis(1));
        let mut prolong = interval_at(Instant::now() + every, every);
        prolong.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (waiting, begun) = (VecDeque::new(), Vec::new());
        Ok(Self {
            client,
            topic,
            group,
            consumer,
            waiting,
            begun,
            end: None,
            credit,
            lease,
            prolong,
        })
    }

    /// Waits until something has come, or it was time to prolong the leases. May be cancelled without
    /// loss.
    pub async fn tend(&mut self) {
        tokio::select! {
            received = self.consumer.receive_run(), if self.end.is_none() => match received {
                Some(Ok(received)) => self.waiting.push_back(received),
                Some(Err(error)) => self.end = Some(Err(error.into())),
                None => self.end = Some(Ok(())),
            },
            _ = self.prolong.tick() => self.prolong_leases(),
        }
    }

    /// Waits until something waits, nothing more comes, or nothing has come for a while; whether it was
    /// so long.
    pub async fn is_quiet(&mut self) -> bool {
        let comes = async {
            while self.waiting.is_empty() && self.end.is_none() {
                self.tend().await;
            }
        };
        timeout(QUIET, comes).await.is_err()
    }

    /// Why nothing more comes, once all that has come was taken.
    pub fn end(&mut self) -> Option<Result<(), Failure>> {
        if self.waiting.is_empty() { self.end.take() } else { None }
    }

    fn prolong_leases(&self) {
        let waiting = self.waiting.iter().filter_map(|received| match received {
            Received::Delivered(run) => Some(run),
            Received::Gap(_) => None,
        });
        self.begun.iter().chain(waiting).for_each(|run| run.extend(self.lease));
    }

    /// How many messages the group has ready, and how many partitions there are; `None` if the broker
    /// does not say it just now.
    ///
    /// # Errors
    /// The broker refuses for good.
    pub async fn ready(&self) -> Result<Option<(u64, u64)>, Failure> {
        match self.client.describe_group(self.topic, self.group).await {
            Ok(group) => Ok(Some((group.ready, group.settled_before.len() as u64))),
            // It stops, or starts: whether that lasts, the consumer learns.
            Err(sennit_client::Error::Refused { retryable: true, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has so many messages at most here unsettled.
    pub fn set_credit(&mut self, messages: u32) {
        if messages != self.credit {
            self.credit = messages;
            self.consumer.set_credit(messages, CREDIT_BYTES);
        }
    }

    /// Leaves the group; what is unsettled returns to it.
    ///
    /// # Errors
    /// What the broker refuses.
    pub async fn close(self) -> Result<(), Failure> {
        self.consumer.close().await.map_err(Failure::from)
    }
}

//! A member of a group and its unsettled messages. It takes messages off the connection as they come, so that it
//! can extend their leases while the printer or the commands are slow.

use std::{collections::VecDeque, time::Duration};

use sennit_client::{Backoff, Client, Consumer, DeliveryRun, GroupDescription, Received};
use sennit_model::{GroupName, TopicName};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use crate::{exit::Failure, output::print_to_stderr};

use super::held_back::{HeldBack, held_back};

/// Time without messages after which the broker is asked whether any are ready.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Bytes of unsettled messages.
const CREDIT_BYTES: u64 = 32 << 20;

/// The number of extensions within the time of a lease.
const EXTENSIONS_PER_LEASE: u32 = 3;

/// A member of a group, and its messages.
pub struct GroupConsumer<'a> {
    client: &'a Client,
    topic: &'a TopicName,
    group: &'a GroupName,
    consumer: Consumer,
    /// Messages that wait.
    pub waiting: VecDeque<Received<DeliveryRun>>,
    /// Messages in progress. They are settled, or return to the group.
    pub in_progress: Vec<DeliveryRun>,
    /// The reason why no more messages come.
    end: Option<Result<(), Failure>>,
    /// Whether the group's retry policy has delays.
    pub has_backoff: bool,
    /// Whether it was said which limit holds messages back.
    has_said_limit: bool,
    credit: u32,
    lease: Duration,
    extend: Interval,
}

impl<'a> GroupConsumer<'a> {
    /// Joins the group.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn begin(
        client: &'a Client,
        topic: &'a TopicName,
        group: &'a GroupName,
        credit: u32,
    ) -> Result<Self, Failure> {
        let about = |error| Failure::from(error).about(format!("{topic} {group}"));
        let consumer = client.consumer(topic, group).credit_messages(credit);
        let consumer = consumer.credit_bytes(CREDIT_BYTES).subscribe().await.map_err(about)?;
        let config = client.describe_group(topic, group).await.map_err(about)?.config;
        let lease = config.lease;
        let every = (lease / EXTENSIONS_PER_LEASE).max(Duration::from_millis(1));
        let mut extend = interval_at(Instant::now() + every, every);
        extend.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (waiting, in_progress) = (VecDeque::new(), Vec::new());
        Ok(Self {
            client,
            topic,
            group,
            consumer,
            waiting,
            in_progress,
            end: None,
            has_backoff: config.retry.backoff != Backoff::None,
            has_said_limit: false,
            credit,
            lease,
            extend,
        })
    }

    /// The connection to the broker.
    pub fn client(&self) -> &'a Client {
        self.client
    }

    /// Waits until an item comes, or leases have to be extended. May be cancelled without loss.
    pub async fn poll(&mut self) {
        tokio::select! {
            received = self.consumer.receive_run(), if self.end.is_none() => match received {
                Some(Ok(received)) => self.waiting.push_back(received),
                Some(Err(error)) => self.end = Some(Err(error.into())),
                None => self.end = Some(Ok(())),
            },
            _ = self.extend.tick() => self.extend_leases(),
        }
    }

    /// Waits until an item waits, no more come, or none has come for a while; returns whether none
    /// has come.
    pub async fn is_idle(&mut self) -> bool {
        let comes = async {
            while self.waiting.is_empty() && self.end.is_none() {
                self.poll().await;
            }
        };
        timeout(IDLE_AFTER, comes).await.is_err()
    }

    /// The reason why no more messages come, once all were taken.
    pub fn end(&mut self) -> Option<Result<(), Failure>> {
        if self.waiting.is_empty() { self.end.take() } else { None }
    }

    fn extend_leases(&self) {
        let waiting = self.waiting.iter().filter_map(|received| match received {
            Received::Delivered(run) => Some(run),
            Received::Gap(_) => None,
        });
        self.in_progress.iter().chain(waiting).for_each(|run| run.extend(self.lease));
    }

    /// The group's state; `None` if the broker does not answer now.
    ///
    /// # Errors
    /// The broker's final refusal.
    async fn description(&self) -> Result<Option<GroupDescription>, Failure> {
        match self.client.describe_group(self.topic, self.group).await {
            Ok(group) => Ok(Some(group)),
            // It stops, or starts: whether that lasts, the consumer learns.
            Err(sennit_client::Error::Refused { retryable: true, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether no more messages come by themselves: the broker says that none is ready, or that a pause
    /// holds all of them back, which is then printed. A limit that holds all of them back is printed once.
    ///
    /// # Errors
    /// The broker's final refusal.
    pub async fn is_drained(&mut self) -> Result<bool, Failure> {
        let Some(group) = self.description().await? else { return Ok(false) };
        if group.ready == 0 {
            return Ok(true);
        }
        match held_back(self.client, &group).await? {
            Some(HeldBack::Paused(text)) => {
                print_to_stderr(&text);
                Ok(true)
            }
            Some(HeldBack::Limited(text)) if !self.has_said_limit => {
                self.has_said_limit = true;
                print_to_stderr(&text);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// The number of partitions; `None` if the broker does not answer now.
    ///
    /// # Errors
    /// The broker's final refusal.
    pub async fn partition_count(&self) -> Result<Option<u32>, Failure> {
        Ok(self.description().await?.map(|group| group.settled_before.len() as u32))
    }

    /// Limits the number of unsettled messages.
    pub fn set_credit(&mut self, messages: u32) {
        if messages != self.credit {
            self.credit = messages;
            self.consumer.set_credit(messages, CREDIT_BYTES);
        }
    }

    /// Leaves the group; unsettled messages return to it.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn close(self) -> Result<(), Failure> {
        self.consumer.close().await.map_err(Failure::from)
    }
}

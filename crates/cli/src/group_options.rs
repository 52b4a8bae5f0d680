//! The settings of the default group of a queue, as options of `sennit topic create`.

use std::time::Duration;

use sennit_client::{Client, GroupChange};
use sennit_model::{GroupName, Order, TopicName};

use crate::{
    exit::{Exit, Failure},
    quantity::duration,
    retry_options::RetryOptions,
};

/// Settings of the default group of a queue.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct GroupOptions {
    /// For the group of a queue: the time for which a consumer may hold a message [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lease: Option<Duration>,
    /// For the group of a queue: after this many failed attempts a message goes to the dead-letter
    /// topic [default: 20]
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    #[command(flatten)]
    retry: RetryOptions,
    /// For the group of a queue: what has one active consumer at a time, so that its messages keep their
    /// order: none, each fair key, or each partition [default: none]
    #[arg(long, value_name = "none|key|partition")]
    order: Option<Order>,
}

impl GroupOptions {
    fn change(self) -> GroupChange {
        let Self { lease, attempts, retry, order } = self;
        GroupChange { lease, attempts_max: attempts, order, ..retry.change() }
    }

    /// Whether one of them is given.
    pub fn is_given(self) -> bool {
        self.change() != GroupChange::default()
    }

    /// Gives these settings to the default group of a new topic. That of a topic that was there before must
    /// have them.
    ///
    /// # Errors
    /// The broker's refusal, or the group has other settings.
    pub async fn set(
        self,
        client: &Client,
        topic: &TopicName,
        is_new: bool,
    ) -> Result<(), Failure> {
        if !self.is_given() {
            return Ok(());
        }
        let group = GroupName::default_group();
        if is_new {
            client.alter_group(topic, &group, self.change()).await?;
            return Ok(());
        }
        let held = client.describe_group(topic, &group).await?.config;
        match held.difference(&self.change().applied_to(&held)) {
            None => Ok(()),
            Some((field, held, wanted)) => Err(Failure::new(
                Exit::Conflict,
                format!("the group default exists with {field} {held}, not {wanted}"),
            )),
        }
    }
}

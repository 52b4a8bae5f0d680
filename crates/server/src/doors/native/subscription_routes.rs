//! The topics that a session has opened and its subscriptions: enough to find the shard of each.

use std::collections::{HashMap, HashSet};

use sennit_engine::{Command, Credit, ReaderChange, SessionId};
use sennit_model::{
    GroupId, PartitionId, TopicId, TopicName,
    limits::{
        SUBSCRIBED_PARTITIONS_MAX, SUBSCRIPTIONS_PER_CONNECTION_MAX, WATCHES_PER_CONNECTION_MAX,
    },
};
use sennit_protocol::{ErrorCode, control};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::{
    broker::control_request::TopicPlace,
    runtime::{index::ShardIndex, placement::Placement},
};

/// A subscription of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) place: TopicPlace,
    /// [`GroupId::NONE`] for a reader.
    pub(crate) group: GroupId,
    /// The window of each partition, as the client wants it.
    pub(crate) window: Credit,
}

impl Subscription {
    /// Whether it reads by offset, without a group.
    pub(crate) fn is_reader(&self) -> bool {
        self.group == GroupId::NONE
    }

    /// Tells a partition what the window is now.
    pub(crate) fn set_window(
        &self,
        session: SessionId,
        number: u32,
        partition: PartitionId,
        window: Credit,
    ) -> Command {
        if self.is_reader() {
            let change = ReaderChange::Credit(window);
            return Command::Reader { session, subscription: number, partition, change };
        }
        let (subscription, group, credit) = (number, self.group, window);
        Command::SetCredit { session, subscription, partition, group, credit }
    }

    /// The command that ends it in a partition.
    pub(crate) fn end(&self, session: SessionId, number: u32, partition: PartitionId) -> Command {
        if self.is_reader() {
            let change = ReaderChange::End;
            return Command::Reader { session, subscription: number, partition, change };
        }
        Command::Unsubscribe { session, subscription: number, partition, group: self.group }
    }

    pub(crate) fn each_partition(
        &self,
        placement: &Placement,
    ) -> impl Iterator<Item = (ShardIndex, PartitionId)> {
        self.place.each_partition(placement)
    }
}

/// A subscription that is asked for and not answered.
#[derive(Debug)]
pub(crate) struct Beginning {
    number: u32,
    called_off: oneshot::Receiver<()>,
}

/// The subscriptions of a session, and how many partitions they take part in.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    by_number: HashMap<u32, Subscription>,
    partitions: u64,
}

impl Subscriptions {
    /// Adds one whose number is free.
    ///
    /// # Errors
    /// It would take part in too many partitions, with the others.
    pub(crate) fn insert(
        &mut self,
        number: u32,
        subscription: Subscription,
    ) -> Result<(), Box<control::Error>> {
        let partitions = self.partitions + u64::from(subscription.place.partitions);
        if partitions > SUBSCRIBED_PARTITIONS_MAX {
            let message = format!("SUBSCRIBED_PARTITIONS_MAX is {SUBSCRIBED_PARTITIONS_MAX}");
            return Err(Box::new(control::Error::new(ErrorCode::LimitReached, message)));
        }
        self.partitions = partitions;
        self.by_number.insert(number, subscription);
        Ok(())
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Subscription> {
        let removed = self.by_number.remove(&number)?;
        self.partitions -= u64::from(removed.place.partitions);
        Some(removed)
    }

    /// Replaces the window of a subscription, and returns that.
    pub(crate) fn set_window(&mut self, number: u32, window: Credit) -> Option<Subscription> {
        let held = self.by_number.get_mut(&number)?;
        held.window = held.place.share(window);
        Some(*held)
    }

    pub(crate) fn get(&self, number: u32) -> Option<Subscription> {
        self.by_number.get(&number).copied()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.by_number.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.by_number.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }
}

/// What the session has learnt of topics, and what it takes part in.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Topics placed beside another: which.
    pub(crate) homes: HashMap<TopicId, TopicId>,
    /// Topics of several partitions, which have no core of their own.
    pub(crate) spread: HashSet<TopicId>,
    pub(crate) subscriptions: Subscriptions,
    /// The names of the topics of subscriptions for which rights are needed.
    pub(crate) topic_names: HashMap<u32, TopicName>,
    /// Those that are asked for; each is called off when this is dropped.
    pub(crate) beginning: HashMap<u32, oneshot::Sender<()>>,
    /// Its watches; each ends when this is dropped.
    pub(crate) watches: HashMap<u32, oneshot::Sender<()>>,
    /// Whether the session has ended: nothing begins any more.
    pub(crate) closed: bool,
}

impl Routes {
    /// Whether another subscription, or watch, may have this number.
    pub(crate) fn admit(&self, number: u32, is_watch: bool) -> Result<(), Box<control::Error>> {
        let (count, limit, name) = if is_watch {
            let limit = WATCHES_PER_CONNECTION_MAX;
            (self.watches.len(), limit, "WATCHES_PER_CONNECTION_MAX")
        } else {
            let limit = SUBSCRIPTIONS_PER_CONNECTION_MAX;
            let count = self.subscriptions.len() + self.beginning.len();
            (count, limit, "SUBSCRIPTIONS_PER_CONNECTION_MAX")
        };
        let refused = |code, message| Err(Box::new(control::Error::new(code, message)));
        let is_in_use = self.subscriptions.get(number).is_some()
            || self.beginning.contains_key(&number)
            || self.watches.contains_key(&number);
        if is_in_use {
            let message = format!("subscription {number} is in use");
            return refused(ErrorCode::SubscriptionExists, message);
        }
        if count >= limit {
            return refused(ErrorCode::LimitReached, format!("{name} is {limit}"));
        }
        Ok(())
    }

    /// Notes that a subscription is asked for: its number is in use.
    pub(crate) fn begin(&mut self, number: u32) -> Beginning {
        let (ends, called_off) = oneshot::channel();
        self.beginning.insert(number, ends);
        Beginning { number, called_off }
    }

    /// The answer has come: whether it is still wanted. Its number is free, or another's by now.
    pub(crate) fn answered(&mut self, mut beginning: Beginning) -> bool {
        let is_wanted = matches!(beginning.called_off.try_recv(), Err(TryRecvError::Empty));
        if is_wanted {
            self.beginning.remove(&beginning.number);
        }
        is_wanted
    }

    /// The shard of a partition.
    pub(crate) fn shard(&self, partition: PartitionId, placement: &Placement) -> ShardIndex {
        let home = self.homes.get(&partition.topic).copied().unwrap_or(partition.topic);
        placement.shard_of(home, partition.index)
    }
}

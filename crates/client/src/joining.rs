//! Begins a reader for each topic that a pattern means, for those that are there and those that appear. It
//! knows nothing of messages.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sennit_model::{ReadFrom, TopicName, TopicPattern};
use sennit_protocol::control::{self, WatchedTopic};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    error::Error,
    heard::Heard,
    link::{Command, Link},
    pool::Pool,
    reader::{Reader, ReaderBuilder},
};

/// How long to wait before a reader that the broker had no room for is begun again.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

/// A reader that has begun, or why there is nothing more.
pub(crate) type Joined = Result<Reader, Error>;

/// Readers that have begun and were not taken yet. While they wait, what appears is only noted.
const JOINED_WAITING_MAX: usize = 1;

/// Readers that begin at a time: the broker has as many requests of a connection under way.
const BEGINNING_MAX: usize = 32;

/// Begins readers. Dropping it ends its watch.
pub(crate) struct Joining {
    link: Arc<Link>,
    watch: u32,
    each: ReaderBuilder,
    /// What all of them hold.
    pool: Arc<Pool>,
    heard: watch::Receiver<Heard>,
    joined: mpsc::Sender<Joined>,
    /// The topics whose readers have begun.
    known: BTreeSet<u32>,
}

impl Joining {
    /// Watches. What joins comes to the receiver.
    pub(crate) async fn begin(
        link: Arc<Link>,
        pattern: &TopicPattern,
        (each, pool): (ReaderBuilder, Arc<Pool>),
    ) -> Result<(Self, mpsc::Receiver<Joined>), Error> {
        let watch = link.number() as u32;
        let (hears, heard) = watch::channel(Ok(None));
        let (joined, received) = mpsc::channel(JOINED_WAITING_MAX);
        let body = control::Watch { subscription: watch, pattern: pattern.to_string() };
        // Made first: if this call is cancelled, dropping it ends the watch.
        let known = BTreeSet::new();
        let joining = Self { link, watch, each, pool, heard, joined, known };
        let command = |answer| Command::Watch { watch: body, heard: hears, answer };
        joining.link.call(command).await?;
        Ok((joining, received))
    }

    /// Begins a reader for each topic that is there, a few at a time.
    pub(crate) async fn begin_all(&mut self) -> Result<Vec<Reader>, Error> {
        let there = self.heard.wait_for(|heard| !matches!(heard, Ok(None))).await;
        let there = there.map_err(|_| Error::Closed)?.clone()?.unwrap_or_default();
        let each = self.of_so_many(there.len());
        let mut readers = Vec::with_capacity(there.len());
        let mut beginning = JoinSet::new();
        for (id, topic) in there {
            if !self.known.insert(id) {
                continue;
            }
            if beginning.len() >= BEGINNING_MAX {
                self.take_begun(&mut beginning, &mut readers).await?;
            }
            let each = each.clone();
            beginning.spawn(async move { (id, begin(&each, &topic).await) });
        }
        while !beginning.is_empty() {
            self.take_begun(&mut beginning, &mut readers).await?;
        }
        Ok(readers)
    }

    async fn take_begun(
        &mut self,
        beginning: &mut JoinSet<(u32, Result<Option<Reader>, Error>)>,
        readers: &mut Vec<Reader>,
    ) -> Result<(), Error> {
        let Some(begun) = beginning.join_next().await else { return Ok(()) };
        let (id, begun) = begun.map_err(|_| Error::Closed)?;
        match begun? {
            Some(reader) => readers.push(reader),
            // Gone again, or on its way: looked at again when more is heard.
            None => drop(self.known.remove(&id)),
        }
        Ok(())
    }

    /// How a reader is to be where there are so many: each has its share of what all may hold.
    fn of_so_many(&self, readers: usize) -> ReaderBuilder {
        self.each.clone().window_unless_told(self.pool.window_bytes(readers))
    }

    /// Begins readers as topics appear, until nobody reads or the client is closed.
    pub(crate) async fn run(mut self) {
        let joined = self.joined.clone();
        tokio::select! {
            () = joined.closed() => {}
            () = self.join_those_that_appear() => {}
        }
    }

    async fn join_those_that_appear(&mut self) {
        loop {
            let appeared: Result<Vec<_>, Error> = {
                let heard = self.heard.borrow_and_update();
                let there = heard.as_ref().map(Option::as_ref).map_err(Error::clone);
                there.map(|there| {
                    self.known.retain(|id| there.is_some_and(|there| there.contains_key(id)));
                    let is_new = |(id, _): &(&u32, &WatchedTopic)| !self.known.contains(id);
                    let new = there.into_iter().flatten().filter(is_new);
                    new.map(|(_, topic)| topic.clone()).collect()
                })
            };
            let appeared = match appeared {
                Ok(appeared) => appeared,
                // Nothing is heard any more: whoever reads on would miss what appears.
                Err(error) => return drop(self.joined.send(Err(error)).await),
            };
            for topic in appeared {
                let begun = match self.begin_new(&topic).await {
                    Ok(None) => continue,
                    Ok(Some(reader)) => Ok(reader),
                    Err(error) => Err(error),
                };
                let is_last = begun.is_err();
                if self.joined.send(begun).await.is_err() || is_last {
                    return;
                }
            }
            if self.heard.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins to read a topic that has appeared, from its first message; `None` if it is read already or gone
    /// again.
    async fn begin_new(&mut self, topic: &WatchedTopic) -> Result<Option<Reader>, Error> {
        if !self.known.insert(topic.id) {
            return Ok(None);
        }
        let each = self.of_so_many(self.known.len()).from(ReadFrom::Earliest);
        let begun = begin(&each, topic).await?;
        if begun.is_none() {
            // Looked at again when more is heard.
            self.known.remove(&topic.id);
        }
        Ok(begun)
    }
}

/// Begins to read a topic; `None` if it is gone again, or on its way.
async fn begin(each: &ReaderBuilder, topic: &WatchedTopic) -> Result<Option<Reader>, Error> {
    let name: TopicName = topic
        .name
        .parse()
        .map_err(|error| Error::Unexpected(format!("a topic's name: {error}")))?;
    loop {
        match each.of_topic(&name, topic.id).start().await {
            Ok(reader) => return Ok(Some(reader)),
            Err(error) if error.is_unknown_topic() => return Ok(None),
            Err(error @ Error::Refused { retryable: true, .. }) => {
                let wait = AGAIN_DELAY.max(error.retry_after().unwrap_or_default());
                tokio::time::sleep(wait).await;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let subscription = self.watch;
        self.link.tell(Command::Unsubscribe { subscription, answer: None });
    }
}

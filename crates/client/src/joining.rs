//! Begins a reader for each topic that a pattern means, for those that are there and those that appear. It
//! knows nothing of messages.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sennit_model::{ReadFrom, TopicName, TopicPattern};
use sennit_protocol::control::{self, WatchedTopic};
use tokio::sync::{mpsc, watch};

use crate::{
    error::Error,
    heard::Heard,
    link::{Command, Link},
    reader::{Reader, ReaderBuilder},
};

/// How long to wait before a reader that the broker had no room for is begun again.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

/// A reader that has begun, or why there is nothing more.
pub(crate) type Joined = Result<Reader, Error>;

/// Readers that have begun and were not taken yet. While they wait, what appears is only noted.
const JOINED_WAITING_MAX: usize = 1;

/// Begins readers. Dropping it ends its watch.
pub(crate) struct Joining {
    link: Arc<Link>,
    watch: u32,
    each: ReaderBuilder,
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
        each: ReaderBuilder,
    ) -> Result<(Self, mpsc::Receiver<Joined>), Error> {
        let watch = link.number() as u32;
        let (hears, heard) = watch::channel(Ok(None));
        let (joined, received) = mpsc::channel(JOINED_WAITING_MAX);
        let body = control::Watch { subscription: watch, pattern: pattern.to_string() };
        // Made first: if this call is cancelled, dropping it ends the watch.
        let known = BTreeSet::new();
        let joining = Self { link, watch, each, heard, joined, known };
        let command = |answer| Command::Watch { watch: body, heard: hears, answer };
        joining.link.call(command).await?;
        Ok((joining, received))
    }

    /// Begins a reader for each topic that is there.
    pub(crate) async fn begin_all(&mut self) -> Result<Vec<Reader>, Error> {
        let there = self.heard.wait_for(|heard| !matches!(heard, Ok(None))).await;
        let there = there.map_err(|_| Error::Closed)?.clone()?.unwrap_or_default();
        let mut readers = Vec::new();
        for topic in there.into_values() {
            readers.extend(self.begin_one(&topic, false).await?);
        }
        Ok(readers)
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
                let begun = match self.begin_one(&topic, true).await {
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

    /// Begins to read a topic; `None` if it is read already or gone again. What is new is read from its
    /// first message.
    async fn begin_one(
        &mut self,
        topic: &WatchedTopic,
        is_new: bool,
    ) -> Result<Option<Reader>, Error> {
        if !self.known.insert(topic.id) {
            return Ok(None);
        }
        let name: TopicName = topic
            .name
            .parse()
            .map_err(|error| Error::Unexpected(format!("a topic's name: {error}")))?;
        loop {
            let mut builder = self.each.of_topic(&name, topic.id);
            if is_new {
                builder = builder.from(ReadFrom::Earliest);
            }
            match builder.start().await {
                Ok(reader) => return Ok(Some(reader)),
                Err(error) if error.is_unknown_topic() => {
                    // Gone again, or on its way: looked at again when more is heard.
                    self.known.remove(&topic.id);
                    return Ok(None);
                }
                Err(error @ Error::Refused { retryable: true, .. }) => {
                    let wait = AGAIN_DELAY.max(error.retry_after().unwrap_or_default());
                    tokio::time::sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let subscription = self.watch;
        self.link.tell(Command::Unsubscribe { subscription, answer: None });
    }
}

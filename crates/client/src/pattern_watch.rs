//! Starts a reader for each topic that a pattern means: for the topics that exist and for those that appear. It
//! knows nothing of messages.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sennit_model::{ReadFrom, TopicName, TopicPattern};
use sennit_protocol::control::{self, WatchedTopic};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    connection_handle::{Command, ConnectionHandle},
    error::Error,
    pool::Pool,
    reader::{Reader, ReaderBuilder},
    watched_topics::WatchedTopics,
};

/// Delay before the client starts a reader again that the broker had no room for.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// A reader that has started, or the reason why no more readers come.
pub(crate) type NewReader = Result<Reader, Error>;

/// Readers that have started and wait for their consumer. While they wait, new topics are only
/// noted.
const NEW_READERS_WAITING_MAX: usize = 1;

/// Readers that start at the same time: as many as the broker allows requests of one connection.
const STARTING_MAX: usize = 32;

/// A watch on the topics of a pattern. Dropping it ends the watch.
pub(crate) struct PatternWatch {
    connection: Arc<ConnectionHandle>,
    watch: u32,
    builder: ReaderBuilder,
    /// The byte limit that the readers share.
    pool: Arc<Pool>,
    watched: watch::Receiver<WatchedTopics>,
    new_readers: mpsc::Sender<NewReader>,
    /// The topics whose readers have started.
    known: BTreeSet<u32>,
}

impl PatternWatch {
    /// Starts the watch. The receiver gets the readers of topics that appear.
    pub(crate) async fn start(
        connection: Arc<ConnectionHandle>,
        pattern: &TopicPattern,
        builder: ReaderBuilder,
        pool: Arc<Pool>,
    ) -> Result<(Self, mpsc::Receiver<NewReader>), Error> {
        let watch = connection.next_number() as u32;
        let (watched_sender, watched) = watch::channel(Ok(None));
        let (new_readers, received) = mpsc::channel(NEW_READERS_WAITING_MAX);
        let body = control::Watch { subscription: watch, pattern: pattern.to_string() };
        // Made first: if this call is cancelled, dropping it ends the watch.
        let known = BTreeSet::new();
        let pattern_watch = Self { connection, watch, builder, pool, watched, new_readers, known };
        let command = |answer| Command::Watch { watch: body, watched: watched_sender, answer };
        pattern_watch.connection.call(command).await?;
        Ok((pattern_watch, received))
    }

    /// Starts a reader for each topic that exists, a few at a time.
    pub(crate) async fn start_all(&mut self) -> Result<Vec<Reader>, Error> {
        let topics = self.watched.wait_for(|watched| !matches!(watched, Ok(None))).await;
        let topics = topics.map_err(|_| Error::Closed)?.clone()?.unwrap_or_default();
        let builder = self.builder_for(topics.len());
        let mut readers = Vec::with_capacity(topics.len());
        let mut starting = JoinSet::new();
        for (id, topic) in topics {
            if !self.known.insert(id) {
                continue;
            }
            if starting.len() >= STARTING_MAX {
                self.collect_started(&mut starting, &mut readers).await?;
            }
            let builder = builder.clone();
            starting.spawn(async move { (id, start(&builder, &topic).await) });
        }
        while !starting.is_empty() {
            self.collect_started(&mut starting, &mut readers).await?;
        }
        Ok(readers)
    }

    async fn collect_started(
        &mut self,
        starting: &mut JoinSet<(u32, Result<Option<Reader>, Error>)>,
        readers: &mut Vec<Reader>,
    ) -> Result<(), Error> {
        let Some(started) = starting.join_next().await else { return Ok(()) };
        let (id, started) = started.map_err(|_| Error::Closed)?;
        match started? {
            Some(reader) => readers.push(reader),
            // The topic is gone, or it moves: the next change of the watched topics tries again.
            None => drop(self.known.remove(&id)),
        }
        Ok(())
    }

    /// The builder for one of this number of readers: each has its share of the pool.
    fn builder_for(&self, readers: usize) -> ReaderBuilder {
        self.builder.clone().default_window(self.pool.window_bytes(readers))
    }

    /// Starts readers as topics appear, until the receiver is dropped or the client is closed.
    pub(crate) async fn run(mut self) {
        let new_readers = self.new_readers.clone();
        tokio::select! {
            () = new_readers.closed() => {}
            () = self.start_new_readers() => {}
        }
    }

    async fn start_new_readers(&mut self) {
        loop {
            let appeared: Result<Vec<_>, Error> = {
                let watched = self.watched.borrow_and_update();
                let topics = watched.as_ref().map(Option::as_ref).map_err(Error::clone);
                topics.map(|topics| {
                    self.known.retain(|id| topics.is_some_and(|topics| topics.contains_key(id)));
                    let is_new = |(id, _): &(&u32, &WatchedTopic)| !self.known.contains(id);
                    let new = topics.into_iter().flatten().filter(is_new);
                    new.map(|(_, topic)| topic.clone()).collect()
                })
            };
            let appeared = match appeared {
                Ok(appeared) => appeared,
                // No further changes come, so the pattern reader would miss new topics.
                Err(error) => return drop(self.new_readers.send(Err(error)).await),
            };
            for topic in appeared {
                let started = match self.start_new(&topic).await {
                    Ok(None) => continue,
                    Ok(Some(reader)) => Ok(reader),
                    Err(error) => Err(error),
                };
                let is_last = started.is_err();
                if self.new_readers.send(started).await.is_err() || is_last {
                    return;
                }
            }
            if self.watched.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts a reader at the first message of a topic that has appeared; `None` if the topic has a
    /// reader or is gone.
    async fn start_new(&mut self, topic: &WatchedTopic) -> Result<Option<Reader>, Error> {
        if !self.known.insert(topic.id) {
            return Ok(None);
        }
        let builder = self.builder_for(self.known.len()).from(ReadFrom::Earliest);
        let started = start(&builder, topic).await?;
        if started.is_none() {
            // The next change of the watched topics tries again.
            self.known.remove(&topic.id);
        }
        Ok(started)
    }
}

/// Starts a reader of a topic; `None` if the topic is gone, or if its readers move.
async fn start(builder: &ReaderBuilder, topic: &WatchedTopic) -> Result<Option<Reader>, Error> {
    let name: TopicName = topic
        .name
        .parse()
        .map_err(|error| Error::Unexpected(format!("a topic's name: {error}")))?;
    loop {
        match builder.of_topic(&name, topic.id).start().await {
            Ok(reader) => return Ok(Some(reader)),
            Err(error) if error.is_unknown_topic() => return Ok(None),
            Err(error @ Error::Refused { retryable: true, .. }) => {
                let wait = RETRY_DELAY.max(error.retry_after().unwrap_or_default());
                tokio::time::sleep(wait).await;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Drop for PatternWatch {
    fn drop(&mut self) {
        let subscription = self.watch;
        self.connection.send(Command::Unsubscribe { subscription, answer: None });
    }
}

//! The watches of a client. Each connection starts them anew. It passes topics to pattern readers and knows no
//! socket.

use std::{collections::BTreeMap, time::Duration};

use sennit_protocol::{
    Request,
    control::{self, WatchedTopic},
};
use tokio::{sync::watch, time::Instant};

use crate::{connection_handle::ReplySender, error::Error, watched_topics::WatchedTopics};

/// Delay before the client starts a watch again that the broker had no room for.
const RETRY_DELAY: Duration = Duration::from_millis(250);

struct Watching {
    watch: control::Watch,
    watched: watch::Sender<WatchedTopics>,
    /// Receives the result of the first request.
    answer: Option<ReplySender<()>>,
    /// The pages of the answer that have come so far.
    topics: BTreeMap<u32, WatchedTopic>,
    retry_at: Option<Instant>,
}

/// The watches of a client, by number.
#[derive(Default)]
pub(crate) struct Watches {
    known: BTreeMap<u32, Watching>,
}

impl Watches {
    pub(crate) fn add(
        &mut self,
        watch: control::Watch,
        watched: watch::Sender<WatchedTopics>,
        answer: ReplySender<()>,
    ) {
        let (number, topics) = (watch.subscription, BTreeMap::new());
        let watching = Watching { watch, watched, answer: Some(answer), topics, retry_at: None };
        self.known.insert(number, watching);
    }

    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// The request that starts a watch.
    pub(crate) fn request(&mut self, number: u32) -> Option<Request> {
        let known = self.known.get_mut(&number)?;
        known.retry_at = None;
        known.topics.clear();
        Some(Request::Watch(known.watch.clone()))
    }

    /// Handles a page of the answer.
    pub(crate) fn listed(&mut self, page: control::Watching) {
        let Some(known) = self.known.get_mut(&page.subscription) else { return };
        known.topics.extend(page.topics.into_iter().map(|topic| (topic.id, topic)));
        if page.more {
            return;
        }
        let _ = known.watched.send_replace(Ok(Some(std::mem::take(&mut known.topics))));
        if let Some(answer) = known.answer.take() {
            let _ = answer.send(Ok(()));
        }
    }

    /// Handles a topic that has appeared.
    pub(crate) fn appeared(&mut self, body: control::TopicAppeared) {
        self.change(body.subscription, body.topic, |topics, topic| {
            topics.insert(topic.id, topic);
        });
    }

    /// Handles a topic that was deleted.
    pub(crate) fn gone(&mut self, body: control::TopicGone) {
        self.change(body.subscription, body.topic, |topics, topic| {
            topics.remove(&topic.id);
        });
    }

    fn change(
        &mut self,
        number: u32,
        topic: Option<WatchedTopic>,
        change: impl FnOnce(&mut BTreeMap<u32, WatchedTopic>, WatchedTopic),
    ) {
        if let (Some(known), Some(topic)) = (self.known.get(&number), topic) {
            known.watched.send_modify(|watched| {
                if let Ok(topics) = watched {
                    change(topics.get_or_insert_default(), topic);
                }
            });
        }
    }

    /// Handles a refused watch. Returns the time of the next attempt, if there is one. Otherwise
    /// the error goes to the caller that waits for the answer, or to the pattern reader.
    pub(crate) fn refused(&mut self, number: u32, error: &Error, now: Instant) -> Option<Instant> {
        let known = self.known.get_mut(&number)?;
        if known.answer.is_none() && error.is_retryable() {
            known.retry_at = Some(now + RETRY_DELAY.max(error.retry_after().unwrap_or_default()));
            return known.retry_at;
        }
        let Watching { watched, answer, .. } = self.known.remove(&number)?;
        match answer {
            Some(answer) => drop(answer.send(Err(error.clone()))),
            None => drop(watched.send_replace(Err(error.clone()))),
        }
        None
    }

    pub(crate) fn due(&self) -> impl Iterator<Item = (u32, Instant)> {
        self.known.iter().filter_map(|(&number, known)| Some((number, known.retry_at?)))
    }

    /// Ends all watches. Each pattern reader gets the error, unless the program has closed the
    /// client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let report = !matches!(error, Error::Closed);
        for Watching { watched, answer, .. } in std::mem::take(&mut self.known).into_values() {
            match answer {
                Some(answer) => drop(answer.send(Err(error.clone()))),
                None if report => drop(watched.send_replace(Err(error.clone()))),
                None => {}
            }
        }
    }
}

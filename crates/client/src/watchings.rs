//! The watches of a client: asked for on each connection anew. It knows no socket, and hands on what it
//! hears.

use std::{collections::BTreeMap, time::Duration};

use sennit_protocol::{
    Request,
    control::{self, WatchedTopic},
};
use tokio::{sync::watch, time::Instant};

use crate::{error::Error, heard::Heard, link::Answer};

/// How long to wait before watching again where the broker had no room.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

struct Watching {
    watch: control::Watch,
    heard: watch::Sender<Heard>,
    /// Whoever waits for the first answer.
    answer: Option<Answer<()>>,
    /// The pages of the answer that have come.
    topics: BTreeMap<u32, WatchedTopic>,
    again_at: Option<Instant>,
}

/// The watches of a client, by number.
#[derive(Default)]
pub(crate) struct Watchings {
    known: BTreeMap<u32, Watching>,
}

impl Watchings {
    pub(crate) fn add(
        &mut self,
        watch: control::Watch,
        heard: watch::Sender<Heard>,
        answer: Answer<()>,
    ) {
        let (number, topics) = (watch.subscription, BTreeMap::new());
        let watching = Watching { watch, heard, answer: Some(answer), topics, again_at: None };
        self.known.insert(number, watching);
    }

    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// What is to be asked.
    pub(crate) fn request(&mut self, number: u32) -> Option<Request> {
        let known = self.known.get_mut(&number)?;
        known.again_at = None;
        known.topics.clear();
        Some(Request::Watch(known.watch.clone()))
    }

    /// A page of the answer.
    pub(crate) fn listed(&mut self, page: control::Watching) {
        let Some(known) = self.known.get_mut(&page.subscription) else { return };
        known.topics.extend(page.topics.into_iter().map(|topic| (topic.id, topic)));
        if page.more {
            return;
        }
        let _ = known.heard.send_replace(Ok(Some(std::mem::take(&mut known.topics))));
        if let Some(answer) = known.answer.take() {
            let _ = answer.send(Ok(()));
        }
    }

    /// A topic has appeared.
    pub(crate) fn appeared(&mut self, body: control::TopicAppeared) {
        self.change(body.subscription, body.topic, |there, topic| {
            there.insert(topic.id, topic);
        });
    }

    /// A topic is gone.
    pub(crate) fn gone(&mut self, body: control::TopicGone) {
        self.change(body.subscription, body.topic, |there, topic| {
            there.remove(&topic.id);
        });
    }

    fn change(
        &mut self,
        number: u32,
        topic: Option<WatchedTopic>,
        change: impl FnOnce(&mut BTreeMap<u32, WatchedTopic>, WatchedTopic),
    ) {
        if let (Some(known), Some(topic)) = (self.known.get(&number), topic) {
            known.heard.send_modify(|heard| {
                if let Ok(there) = heard {
                    change(there.get_or_insert_default(), topic);
                }
            });
        }
    }

    /// It did not begin: asked for again at the time returned, if it may. If not, whoever waits for the
    /// answer is told, or whoever has listened so far.
    pub(crate) fn refused(&mut self, number: u32, error: &Error, now: Instant) -> Option<Instant> {
        let known = self.known.get_mut(&number)?;
        if known.answer.is_none() && error.is_retryable() {
            known.again_at = Some(now + AGAIN_DELAY.max(error.retry_after().unwrap_or_default()));
            return known.again_at;
        }
        let Watching { heard, answer, .. } = self.known.remove(&number)?;
        match answer {
            Some(answer) => drop(answer.send(Err(error.clone()))),
            None => drop(heard.send_replace(Err(error.clone()))),
        }
        None
    }

    pub(crate) fn due(&self) -> impl Iterator<Item = (u32, Instant)> {
        self.known.iter().filter_map(|(&number, known)| Some((number, known.again_at?)))
    }

    /// The end. Whoever listens is told why, unless the program itself has closed the client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let tell_why = !matches!(error, Error::Closed);
        for Watching { heard, answer, .. } in std::mem::take(&mut self.known).into_values() {
            match answer {
                Some(answer) => drop(answer.send(Err(error.clone()))),
                None if tell_why => drop(heard.send_replace(Err(error.clone()))),
                None => {}
            }
        }
    }
}

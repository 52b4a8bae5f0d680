//! Requests to watch for topics: the control finds the topics that a pattern matches now, and then reports changes.
//! It knows no session and no protocol.

use std::rc::Rc;

use sennit_model::{TopicPattern, limits::WATCH_TOPICS_MAX};
use tokio::sync::{mpsc, oneshot};

use super::{
    Control,
    descriptions::watched_topic,
    watches::{Change, WatchedTopic, may_know},
};
use crate::{
    broker::control_request::ControlRefusal,
    identity::principal::Principal,
    runtime::{core::Cores, inbox::Message, index::CoreIndex},
};

/// Has the first core watch for topics: the answer is which there are, and `changes` receives what
/// follows. Without an answer the broker stops.
pub(crate) fn watch(
    cores: &Cores,
    principal: Principal,
    pattern: TopicPattern,
    changes: mpsc::Sender<Change>,
) -> oneshot::Receiver<Result<Vec<WatchedTopic>, ControlRefusal>> {
    let (sender, answer) = oneshot::channel();
    let message = Message::call(move |control: &Rc<Control>| {
        let _ = sender.send(control.watch(&principal, pattern, changes));
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(message);
    answer
}

impl Control {
    fn watch(
        &self,
        principal: &Principal,
        pattern: TopicPattern,
        changes: mpsc::Sender<Change>,
    ) -> Result<Vec<WatchedTopic>, ControlRefusal> {
        let topics: Vec<WatchedTopic> = self.look_up(|catalogue| {
            let prefix = pattern.prefix();
            // A name that is the whole prefix comes first, and is meant only by itself.
            let exact = prefix.parse().ok().and_then(|name| catalogue.topic_named(&name));
            let named = exact.into_iter().chain(
                catalogue
                    .topics_after_name(prefix)
                    .take_while(|topic| topic.created.name.as_str().starts_with(prefix)),
            );
            let meant = named.filter(|topic| {
                pattern.matches(&topic.created.name) && may_know(principal, &topic.created.name)
            });
            meant.take(WATCH_TOPICS_MAX + 1).map(watched_topic).collect()
        })?;
        check_count(&pattern, topics.len())?;
        self.watches.borrow_mut().add(principal.clone(), pattern, topics.len(), changes);
        Ok(topics)
    }
}

/// Refuses a pattern that means too many topics.
fn check_count(pattern: &TopicPattern, count: usize) -> Result<(), ControlRefusal> {
    if count <= WATCH_TOPICS_MAX {
        return Ok(());
    }
    Err(ControlRefusal::TooManyWatched(pattern.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_so_many_topics_and_no_more() {
        let pattern = "many.*".parse().expect("it is a pattern");
        assert!(check_count(&pattern, WATCH_TOPICS_MAX).is_ok());
        let refused = check_count(&pattern, WATCH_TOPICS_MAX + 1).expect_err("it is one too many");
        assert_eq!(refused, ControlRefusal::TooManyWatched(pattern));
    }
}

//! Watches for topics, on the first core: each receives the topics that match its pattern as the catalogue commits
//! them. It knows no session and no protocol.

use sennit_identity::Verb;
use sennit_model::{TopicId, TopicName, TopicPattern, limits::WATCH_TOPICS_MAX};
use tokio::sync::mpsc;

use crate::identity::principal::Principal;

/// Changes that may wait for a session to take them. One that is so far behind watches anew.
pub(crate) const CHANGES_WAITING_MAX: usize = 1024;

/// A topic as a watch is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchedTopic {
    pub(crate) name: TopicName,
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
}

/// A change of a topic that is watched for.
#[derive(Debug)]
pub(crate) enum Change {
    /// It is there now.
    Appeared(WatchedTopic),
    /// It is there no more.
    Gone(WatchedTopic),
}

#[derive(Debug)]
struct Watch {
    /// The principal, which hears of the topics that it may know.
    principal: Principal,
    pattern: TopicPattern,
    /// How many topics it means now.
    count: usize,
    changes: mpsc::Sender<Change>,
}

/// All watches of a broker.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    held: Vec<Watch>,
}

impl Watches {
    /// Adds one that has been told of `count` topics.
    pub(crate) fn add(
        &mut self,
        principal: Principal,
        pattern: TopicPattern,
        count: usize,
        changes: mpsc::Sender<Change>,
    ) {
        self.held.retain(|watch| !watch.changes.is_closed());
        self.held.push(Watch { principal, pattern, count, changes });
    }

    /// All of them end: something may be missing.
    pub(crate) fn end(&mut self) {
        self.held.clear();
    }

    /// A topic is there, and may be read.
    pub(crate) fn appeared(&mut self, topic: &WatchedTopic) {
        self.tell(&topic.name, |watch| {
            watch.count += 1;
            (watch.count <= WATCH_TOPICS_MAX).then(|| Change::Appeared(topic.clone()))
        });
    }

    /// A topic was deleted.
    pub(crate) fn gone(&mut self, topic: &WatchedTopic) {
        self.tell(&topic.name, |watch| {
            watch.count = watch.count.saturating_sub(1);
            Some(Change::Gone(topic.clone()))
        });
    }

    /// Tells those whose pattern means the topic; a watch ends where there is nothing to tell, or no room
    /// for it.
    fn tell(&mut self, name: &TopicName, change: impl Fn(&mut Watch) -> Option<Change>) {
        self.held.retain_mut(|watch| {
            if !watch.pattern.matches(name) || !may_know(&watch.principal, name) {
                return true;
            }
            change(watch).is_some_and(|change| watch.changes.try_send(change).is_ok())
        });
    }
}

/// Whether the principal may know of a topic of this name.
pub(super) fn may_know(principal: &Principal, name: &TopicName) -> bool {
    principal.may(Verb::Describe, name.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(watches: &mut Watches, pattern: &str, count: usize) -> mpsc::Receiver<Change> {
        let (changes, received) = mpsc::channel(CHANGES_WAITING_MAX);
        watches.add(Principal::broker(), pattern.parse().unwrap(), count, changes);
        received
    }

    fn appear(watches: &mut Watches, name: &str) {
        let name = name.parse().unwrap();
        watches.appeared(&WatchedTopic { name, id: TopicId(1), partitions: 1 });
    }

    #[test]
    fn a_watch_hears_of_the_topics_it_means_and_of_no_others() {
        let mut watches = Watches::default();
        let mut orders = watch(&mut watches, "orders.*", 0);
        appear(&mut watches, "bills.eu");
        appear(&mut watches, "orders.eu");
        let heard = orders.try_recv();
        assert!(
            matches!(&heard, Ok(Change::Appeared(topic)) if topic.name.as_str() == "orders.eu")
        );
        assert!(orders.try_recv().is_err());
    }

    #[test]
    fn a_watch_that_means_too_much_or_does_not_listen_ends() {
        let mut watches = Watches::default();
        let mut full = watch(&mut watches, ">", WATCH_TOPICS_MAX);
        let mut deaf = watch(&mut watches, "a.*", 0);
        let told = CHANGES_WAITING_MAX;
        for n in 0..=told {
            appear(&mut watches, &format!("a.{n}"));
        }
        assert!(full.blocking_recv().is_none());
        assert_eq!(std::iter::from_fn(|| deaf.blocking_recv()).count(), told);
        assert!(watches.held.is_empty());
    }
}

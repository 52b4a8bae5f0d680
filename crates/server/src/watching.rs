//! A session's watch: asked of the first core, told to the client as long as both are there. It does not
//! know which topics there are.

use std::rc::Rc;

use sennit_model::{TopicPattern, limits::WATCH_TOPICS_MAX};
use sennit_protocol::{
    ErrorCode, Reply,
    control::{self, WatchedTopic},
};
use tokio::sync::{
    mpsc,
    oneshot::{self, error::TryRecvError},
};

use crate::{
    asked::Asked,
    control::{Control, Failure},
    descriptions::watched_topic,
    inbox::Message,
    outbox::Outbox,
    watches::{CHANGES_WAITING_MAX, Change},
};

/// Topics in a frame, which is then smaller than any that a client may refuse.
const PAGE_TOPICS_MAX: usize = 64;

impl Asked {
    /// Has the first core watch, and tells the client what there is and what comes, until the watch has
    /// `ended`: unsubscribed, or the session is over.
    pub(crate) async fn watch(self, body: control::Watch, mut ended: oneshot::Receiver<()>) {
        let watched = self.begin(&body).await;
        self.controls.add_permits(self.permits);
        let number = body.subscription;
        let (topics, mut changes) = match watched {
            Ok(watched) => watched,
            Err(error) => {
                self.forget(number, &mut ended);
                return self.outbox.refused(self.number, *error);
            }
        };
        self.outbox.subscription_begins(number);
        let pages = topics.chunks(PAGE_TOPICS_MAX).count().max(1);
        for page in 0..pages {
            let from = page * PAGE_TOPICS_MAX;
            let until = topics.len().min(from + PAGE_TOPICS_MAX);
            let topics = topics[from..until].to_vec();
            let more = page + 1 < pages;
            let watching = control::Watching { subscription: number, topics, more };
            self.outbox.has_room().await;
            self.outbox.reply(&Reply::Watching(watching), self.number);
        }
        tokio::select! {
            biased;
            _ = &mut ended => {}
            () = pass_on(&mut changes, &self.outbox, number) => {
                self.forget(number, &mut ended);
                let ended = control::SubscriptionEnded {
                    subscription: number,
                    code: ErrorCode::Busy.number(),
                    reason: "more has changed than could be told: watch again".to_owned(),
                };
                self.outbox.reply(&Reply::SubscriptionEnded(ended), 0);
            }
        }
    }

    /// The number is free again, unless it was given up before, and may be another's now.
    fn forget(&self, number: u32, ended: &mut oneshot::Receiver<()>) {
        if let Err(TryRecvError::Empty) = ended.try_recv() {
            self.routes.borrow_mut().watches.remove(&number);
        }
    }

    async fn begin(
        &self,
        body: &control::Watch,
    ) -> Result<(Vec<WatchedTopic>, mpsc::Receiver<Change>), Box<Failure>> {
        let pattern: TopicPattern = body.pattern.parse().map_err(|error| {
            let message = format!("{error}");
            Box::new(control::Error::new(ErrorCode::InvalidPattern, message))
        })?;
        let (changes, received) = mpsc::channel(CHANGES_WAITING_MAX);
        let (sender, answer) = oneshot::channel();
        let message = Message::call(move |control: &Rc<Control>| {
            let _ = sender.send(control.watch(pattern, changes));
        });
        let _ = self.core.cores.inboxes[0].send(message);
        match answer.await {
            Ok(Ok(topics)) => Ok((topics, received)),
            Ok(Err(error)) => Err(Box::new(error)),
            Err(_) => {
                let error = control::Error::new(ErrorCode::ShuttingDown, "the broker stops");
                Err(Box::new(error))
            }
        }
    }
}

/// Tells the client of changes, as fast as it takes them, until there are no more.
async fn pass_on(changes: &mut mpsc::Receiver<Change>, outbox: &Outbox, subscription: u32) {
    while let Some(change) = changes.recv().await {
        outbox.has_room().await;
        let reply = match change {
            Change::Appeared(topic) => {
                let topic = Some(topic);
                Reply::TopicAppeared(control::TopicAppeared { subscription, topic })
            }
            Change::Gone(topic) => {
                let topic = Some(topic);
                Reply::TopicGone(control::TopicGone { subscription, topic })
            }
        };
        outbox.reply(&reply, 0);
    }
}

impl Control {
    /// Watches for topics: says which there are, and has `changes` hear of what follows.
    #[expect(clippy::result_large_err, reason = "a failure is rare, and leaves at once as a reply")]
    pub(crate) fn watch(
        &self,
        pattern: TopicPattern,
        changes: mpsc::Sender<Change>,
    ) -> Result<Vec<WatchedTopic>, Failure> {
        let topics: Vec<WatchedTopic> = self.core.look(|core| {
            let catalogue = core.shard().catalogue();
            let prefix = pattern.prefix();
            // A name that is the whole prefix comes first, and is meant only by itself.
            let exact = prefix.parse().ok().and_then(|name| catalogue.topic_named(&name));
            let named = exact.into_iter().chain(
                catalogue
                    .topics_after_name(prefix)
                    .take_while(|topic| topic.created.name.as_str().starts_with(prefix)),
            );
            let meant = named.filter(|topic| pattern.matches(&topic.created.name));
            meant.take(WATCH_TOPICS_MAX + 1).map(watched_topic).collect()
        });
        check_count(&pattern, topics.len())?;
        self.watches.borrow_mut().add(pattern, topics.len(), changes);
        Ok(topics)
    }
}

/// Refuses a pattern that means too many topics.
#[expect(clippy::result_large_err, reason = "a failure is rare, and leaves at once as a reply")]
fn check_count(pattern: &TopicPattern, count: usize) -> Result<(), Failure> {
    if count <= WATCH_TOPICS_MAX {
        return Ok(());
    }
    let message = format!("{pattern} means more than WATCH_TOPICS_MAX topics, {WATCH_TOPICS_MAX}");
    Err(control::Error::new(ErrorCode::LimitReached, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_so_many_topics_and_no_more() {
        let pattern = "many.*".parse().expect("it is a pattern");
        assert!(check_count(&pattern, WATCH_TOPICS_MAX).is_ok());
        let refused = check_count(&pattern, WATCH_TOPICS_MAX + 1).expect_err("it is one too many");
        assert_eq!(refused.error_code(), Some(ErrorCode::LimitReached));
    }
}

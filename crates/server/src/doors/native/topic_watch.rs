//! A session's watch for topics: it is registered with the first core, and its results go to the client as long as
//! both exist. It does not know which topics there are.

use sennit_model::TopicPattern;
use sennit_protocol::{ErrorCode, Reply, control};
use tokio::sync::{
    mpsc,
    oneshot::{self, error::TryRecvError},
};

use super::{
    control_bodies::watched_topic, outbox::Outbox, pending_request::PendingRequest,
    refusal_reply::control_reply,
};
use crate::broker::{
    control::{CHANGES_WAITING_MAX, Change, WatchedTopic, watch},
    control_request::ControlRefusal,
};

/// Topics in a frame, which is then smaller than any that a client may refuse.
const PAGE_TOPICS_MAX: usize = 64;

impl PendingRequest {
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
            let topics = topics[from..until].iter().map(watched_topic).collect();
            let more = page + 1 < pages;
            let watching = control::Watching { subscription: number, topics, more };
            self.outbox.wait_for_room().await;
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
    ) -> Result<(Vec<WatchedTopic>, mpsc::Receiver<Change>), Box<control::Error>> {
        let pattern: TopicPattern = body.pattern.parse().map_err(|error| {
            let message = format!("{error}");
            Box::new(control::Error::new(ErrorCode::InvalidPattern, message))
        })?;
        let (changes, received) = mpsc::channel(CHANGES_WAITING_MAX);
        let refused = |refusal| Err(Box::new(control_reply(&refusal)));
        match watch(&self.core.cores, self.principal.clone(), pattern, changes).await {
            Ok(Ok(topics)) => Ok((topics, received)),
            Ok(Err(refusal)) => refused(refusal),
            Err(_) => refused(ControlRefusal::ShuttingDown),
        }
    }
}

/// Tells the client of changes, as fast as it takes them, until there are no more.
async fn pass_on(changes: &mut mpsc::Receiver<Change>, outbox: &Outbox, subscription: u32) {
    while let Some(change) = changes.recv().await {
        outbox.wait_for_room().await;
        let reply = match change {
            Change::Appeared(topic) => {
                let topic = Some(watched_topic(&topic));
                Reply::TopicAppeared(control::TopicAppeared { subscription, topic })
            }
            Change::Gone(topic) => {
                let topic = Some(watched_topic(&topic));
                Reply::TopicGone(control::TopicGone { subscription, topic })
            }
        };
        outbox.reply(&reply, 0);
    }
}

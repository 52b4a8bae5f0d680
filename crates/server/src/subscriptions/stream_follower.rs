//! Follows the ends of streams: one task for each stream that has subscriptions, however many. It reads only while
//! one of them rests, since a busy one looks again when it is done.

use std::{rc::Rc, time::Duration};

use sennit_engine::{StreamRead, StreamRefusal};
use sennit_model::{Offset, ReadFrom, TopicId, TopicName};
use tokio::{select, task::JoinSet};

use super::led::LedSubscriptions;
use crate::{broker::stream_request::StreamFailure, identity::principal::Principal};

/// How long after the broker could not say it is asked again.
const REST: Duration = Duration::from_secs(1);

/// Streams that are asked for their ends at once.
const ASKED_MAX: usize = 64;

/// What a read of a stream's end has come to.
enum Ended {
    /// It ends here.
    At(Offset),
    /// Nothing will come, or there is nothing: until somebody says otherwise.
    Never,
    /// The broker could not say.
    Unknown,
}

/// Whether asking again may bring what was not there: the broker could not say, or too many wait.
fn passes(failure: &StreamFailure) -> bool {
    match failure {
        StreamFailure::Stream(refusal) => matches!(refusal, StreamRefusal::Limit { .. }),
        _ => true,
    }
}

impl LedSubscriptions {
    /// Follows a stream as long as anybody is linked to it.
    pub(super) async fn follow(self: Rc<Self>, stream: TopicName, life: u64) {
        loop {
            let wanted = self.registry.borrow_mut().wanted(&stream, life);
            let Some(wanted) = wanted else { return };
            let Some(topic) = wanted.topic else {
                wanted.notify.notified().await;
                continue;
            };
            let ended = select! {
                ended = self.grown(&stream, wanted.end) => ended,
                () = wanted.notify.notified() => continue,
            };
            match ended {
                Ended::At(end) if end > wanted.end => {
                    self.registry.borrow_mut().seen(&stream, topic, end);
                }
                Ended::At(_) | Ended::Never => {
                    self.registry.borrow_mut().stop_awaiting(&stream, life);
                    wanted.notify.notified().await;
                }
                Ended::Unknown => tokio::time::sleep(REST).await,
            }
        }
    }

    /// Waits until a stream that ends at `end` has grown.
    async fn grown(&self, stream: &TopicName, end: Offset) -> Ended {
        let read = StreamRead {
            at: ReadFrom::Offset(end),
            before: None,
            bytes_max: 1,
            waits: true,
            one_append: false,
            for_fork: false,
        };
        let next = match self.streams.read(&Principal::broker(), stream, None, read).await {
            Ok(chunk) if chunk.answer.next > end => chunk.answer.next,
            Ok(_) => return Ended::Never,
            Err(failure) => match failure.refusal() {
                Some(StreamRefusal::NotKept { start }) => *start,
                Some(StreamRefusal::Damaged { next } | StreamRefusal::RolledBack { next }) => *next,
                _ if passes(&failure) => return Ended::Unknown,
                _ => return Ended::Never,
            },
        };
        // What is there by now is told at once.
        match self.streams.status(&Principal::broker(), stream, false).await {
            Ok(status) => Ended::At(status.answer.next.max(next)),
            Err(_) => Ended::At(next),
        }
    }

    /// Looks where these streams end right now.
    pub(super) async fn look(self: &Rc<Self>, streams: Vec<(TopicName, TopicId)>) {
        let mut streams = streams.into_iter();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < ASKED_MAX
                && let Some((stream, topic)) = streams.next()
            {
                let this = self.clone();
                asked.spawn_local(async move {
                    let status = this.streams.status(&Principal::broker(), &stream, false).await;
                    if let Ok(status) = status {
                        this.registry.borrow_mut().seen(&stream, topic, status.answer.next);
                    }
                });
            }
            if asked.join_next().await.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::limits::STREAM_READS_WAITING_MAX;

    use super::*;

    #[test]
    fn a_follower_that_found_too_many_waiting_asks_again() {
        let limit = STREAM_READS_WAITING_MAX as u64;
        let full = StreamRefusal::Limit { name: "STREAM_READS_WAITING_MAX", limit };
        assert!(passes(&StreamFailure::Stream(full)));
        assert!(!passes(&StreamFailure::Stream(StreamRefusal::Unknown)));
    }
}

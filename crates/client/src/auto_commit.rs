//! The commits that a reader makes by itself: when the next is due, and which one is under way. It
//! knows no cursor and no socket.

use std::{collections::BTreeMap, time::Duration};

use sennit_protocol::Reply;
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use crate::error::Error;

/// When a reader commits its cursor by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCommit {
    /// Once so many messages were given since the last time; at least one.
    Messages(u64),
    /// Once this long has gone by since the first message that is not committed was given; a
    /// millisecond at least.
    After(Duration),
}

impl From<Duration> for AutoCommit {
    fn from(span: Duration) -> Self {
        Self::After(span)
    }
}

impl From<u64> for AutoCommit {
    fn from(messages: u64) -> Self {
        Self::Messages(messages)
    }
}

/// The least time between two commits, or two looks whether one is answered.
const SPAN_MIN: Duration = Duration::from_millis(1);

/// How long until the next look whether one is answered, while another is due behind it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Behind which offset of each partition everything is done with.
pub(crate) type Done = BTreeMap<u32, u64>;

type Answered = oneshot::Receiver<Result<Reply, Error>>;

/// The commits of one reader.
pub(crate) struct AutoCommits {
    when: AutoCommit,
    /// Given since the last one.
    given: u64,
    /// When the first of them was.
    since: Option<Instant>,
    /// At most one: what it commits, and its answer.
    under_way: Option<(Done, Answered)>,
}

impl AutoCommits {
    pub(crate) fn new(when: AutoCommit) -> Self {
        let when = match when {
            // Without a pause, who waits for the answer would look for it all the time.
            AutoCommit::After(span) => AutoCommit::After(span.max(SPAN_MIN)),
            messages => messages,
        };
        Self { when, given: 0, since: None, under_way: None }
    }

    /// The program was given messages or a gap.
    pub(crate) fn has_given(&mut self, count: u64) {
        self.given += count;
        self.since.get_or_insert_with(Instant::now);
    }

    /// The program has committed everything itself.
    pub(crate) fn nothing_is_left(&mut self) {
        (self.given, self.since) = (0, None);
    }

    /// One has begun.
    pub(crate) fn begun(&mut self, done: Done, answered: Answered) {
        (self.given, self.since) = (0, None);
        self.under_way = Some((done, answered));
    }

    /// What has been committed, if an answer has come. A commit that failed is made up for by the
    /// next.
    pub(crate) fn committed(&mut self) -> Option<Done> {
        let (_, answered) = self.under_way.as_mut()?;
        let answer = answered.try_recv();
        if let Err(TryRecvError::Empty) = answer {
            return None;
        }
        let (done, _) = self.under_way.take()?;
        match answer {
            Ok(Ok(Reply::Done(_))) => return Some(done),
            Ok(Err(error)) => tracing::warn!(%error, "a cursor was not committed"),
            _ => tracing::warn!("a cursor was not committed"),
        }
        self.since.get_or_insert_with(Instant::now);
        None
    }

    /// Whether it is time for one, and none is under way.
    pub(crate) fn is_due(&self) -> bool {
        self.under_way.is_none()
            && self.since.is_some_and(|since| match self.when {
                AutoCommit::Messages(count) => self.given >= count.max(1),
                AutoCommit::After(span) => since.elapsed() >= span,
            })
    }

    /// When to look again although nothing has come.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        match (self.when, &self.under_way) {
            (AutoCommit::After(span), Some(_)) => Some(Instant::now() + span),
            (AutoCommit::After(span), None) => Some(self.since? + span),
            (AutoCommit::Messages(count), Some(_)) if self.given >= count.max(1) => {
                Some(Instant::now() + LOOK_AGAIN)
            }
            // The next message makes it due, and is itself a moment to look.
            (AutoCommit::Messages(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Done {
        BTreeMap::from([(0, 7)])
    }

    #[test]
    fn so_many_messages_make_one_due_and_none_while_another_is_under_way() {
        let mut commits = AutoCommits::new(AutoCommit::from(3));
        commits.has_given(2);
        assert!(!commits.is_due());
        commits.has_given(1);
        assert!(commits.is_due());
        let (answer, answered) = oneshot::channel();
        commits.begun(done(), answered);
        commits.has_given(5);
        assert!(!commits.is_due());
        assert_eq!(commits.committed(), None);
        answer.send(Ok(Reply::Done(sennit_protocol::control::Done::default()))).unwrap();
        assert_eq!(commits.committed(), Some(done()));
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn what_became_due_behind_another_is_committed_although_nothing_more_comes() {
        let mut commits = AutoCommits::new(AutoCommit::from(3));
        commits.has_given(3);
        let (answer, answered) = oneshot::channel();
        commits.begun(done(), answered);
        commits.has_given(2);
        assert_eq!(commits.look_at(), None);
        commits.has_given(1);
        answer.send(Ok(Reply::Done(sennit_protocol::control::Done::default()))).unwrap();
        tokio::time::sleep_until(commits.look_at().unwrap()).await;
        assert_eq!(commits.committed(), Some(done()));
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn time_makes_one_due_and_one_that_fails_is_made_again() {
        let mut commits = AutoCommits::new(Duration::from_secs(1).into());
        assert_eq!(commits.look_at(), None);
        commits.has_given(1);
        assert!(!commits.is_due());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(commits.is_due());
        let (answer, answered) = oneshot::channel();
        commits.begun(done(), answered);
        answer.send(Err(Error::OutcomeUnknown)).unwrap();
        assert_eq!(commits.committed(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_to_commit_at_once_does_not_look_for_the_answer_all_the_time() {
        let mut commits = AutoCommits::new(Duration::ZERO.into());
        commits.has_given(1);
        let (_answer, answered) = oneshot::channel();
        commits.begun(done(), answered);
        assert!(commits.look_at().unwrap() > Instant::now());
    }
}

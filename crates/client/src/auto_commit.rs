//! A reader's automatic commits: the time of the next one, and the one under way. It knows no cursor and no socket.

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
    /// After this many messages since the last commit; at least one.
    Messages(u64),
    /// This long after the first uncommitted message was delivered; at least a millisecond.
    After(Duration),
}

impl From<Duration> for AutoCommit {
    fn from(interval: Duration) -> Self {
        Self::After(interval)
    }
}

impl From<u64> for AutoCommit {
    fn from(messages: u64) -> Self {
        Self::Messages(messages)
    }
}

/// The shortest time between two commits, or between two checks for an answer.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Time between two checks for an answer, while another commit is due.
const ANSWER_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// For each partition the offset before which everything is processed.
pub(crate) type CommitOffsets = BTreeMap<u32, u64>;

type CommitReply = oneshot::Receiver<Result<Reply, Error>>;

/// The automatic commits of one reader.
pub(crate) struct AutoCommits {
    when: AutoCommit,
    /// Messages delivered since the last commit.
    delivered: u64,
    /// The time of the first of them.
    since: Option<Instant>,
    /// The offsets of the commit under way, and its answer.
    under_way: Option<(CommitOffsets, CommitReply)>,
}

impl AutoCommits {
    pub(crate) fn new(when: AutoCommit) -> Self {
        let when = match when {
            // Without a minimum the reader would check for the answer in a busy loop.
            AutoCommit::After(interval) => AutoCommit::After(interval.max(INTERVAL_MIN)),
            messages => messages,
        };
        Self { when, delivered: 0, since: None, under_way: None }
    }

    /// Notes messages or a gap that were delivered to the program.
    pub(crate) fn note_delivered(&mut self, count: u64) {
        self.delivered += count;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Notes that the program has committed everything itself.
    pub(crate) fn reset(&mut self) {
        (self.delivered, self.since) = (0, None);
    }

    /// Notes that a commit was sent.
    pub(crate) fn start(&mut self, done: CommitOffsets, answered: CommitReply) {
        (self.delivered, self.since) = (0, None);
        self.under_way = Some((done, answered));
    }

    /// The offsets of the last commit, once its answer has come. The next commit makes up for one
    /// that failed.
    pub(crate) fn committed(&mut self) -> Option<CommitOffsets> {
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

    /// Returns whether a commit is due and none is under way.
    pub(crate) fn is_due(&self) -> bool {
        self.under_way.is_none()
            && self.since.is_some_and(|since| match self.when {
                AutoCommit::Messages(count) => self.delivered >= count.max(1),
                AutoCommit::After(interval) => since.elapsed() >= interval,
            })
    }

    /// The time of the next check if no message comes.
    pub(crate) fn commit_check_at(&self) -> Option<Instant> {
        match (self.when, &self.under_way) {
            (AutoCommit::After(interval), Some(_)) => Some(Instant::now() + interval),
            (AutoCommit::After(interval), None) => Some(self.since? + interval),
            (AutoCommit::Messages(count), Some(_)) if self.delivered >= count.max(1) => {
                Some(Instant::now() + ANSWER_CHECK_INTERVAL)
            }
            // The next message makes the commit due, and the reader checks then.
            (AutoCommit::Messages(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> CommitOffsets {
        BTreeMap::from([(0, 7)])
    }

    #[test]
    fn so_many_messages_make_one_due_and_none_while_another_is_under_way() {
        let mut commits = AutoCommits::new(AutoCommit::from(3));
        commits.note_delivered(2);
        assert!(!commits.is_due());
        commits.note_delivered(1);
        assert!(commits.is_due());
        let (answer, answered) = oneshot::channel();
        commits.start(done(), answered);
        commits.note_delivered(5);
        assert!(!commits.is_due());
        assert_eq!(commits.committed(), None);
        answer.send(Ok(Reply::Done(sennit_protocol::control::Done::default()))).unwrap();
        assert_eq!(commits.committed(), Some(done()));
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn what_became_due_behind_another_is_committed_although_nothing_more_comes() {
        let mut commits = AutoCommits::new(AutoCommit::from(3));
        commits.note_delivered(3);
        let (answer, answered) = oneshot::channel();
        commits.start(done(), answered);
        commits.note_delivered(2);
        assert_eq!(commits.commit_check_at(), None);
        commits.note_delivered(1);
        answer.send(Ok(Reply::Done(sennit_protocol::control::Done::default()))).unwrap();
        tokio::time::sleep_until(commits.commit_check_at().unwrap()).await;
        assert_eq!(commits.committed(), Some(done()));
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn time_makes_one_due_and_one_that_fails_is_made_again() {
        let mut commits = AutoCommits::new(Duration::from_secs(1).into());
        assert_eq!(commits.commit_check_at(), None);
        commits.note_delivered(1);
        assert!(!commits.is_due());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(commits.is_due());
        let (answer, answered) = oneshot::channel();
        commits.start(done(), answered);
        answer.send(Err(Error::OutcomeUnknown)).unwrap();
        assert_eq!(commits.committed(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(commits.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_to_commit_at_once_does_not_look_for_the_answer_all_the_time() {
        let mut commits = AutoCommits::new(Duration::ZERO.into());
        commits.note_delivered(1);
        let (_answer, answered) = oneshot::channel();
        commits.start(done(), answered);
        assert!(commits.commit_check_at().unwrap() > Instant::now());
    }
}

//! Requests that the broker has refused because no replica leads their group: until when they are asked again, and
//! when the client leaves the node for that. It knows no socket, and time is an argument.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// How long the first request of a publisher, consumer or reader, and a program's own request, is asked again before
/// its caller is told, and how long nodes are asked for the first session. All other requests are asked again for good.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// How long one node may say of something that it has no leader before the client goes to another node. The time
/// doubles with each node that says the same.
const LEAVE_AFTER_MIN: Duration = Duration::from_secs(4);
const LEAVE_AFTER_MAX: Duration = Duration::from_secs(60);

/// The request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// Opens the topic of the publisher with this number.
    Opening(u64),
    /// A batch of this publisher, for this partition.
    Partition(u64, u32),
    /// Subscribes a consumer, or starts a reader.
    Subscription(u32),
    /// A program's request.
    Call(u64),
    /// An atomic step.
    Step,
}

#[derive(Debug)]
struct Refused {
    first_at: Instant,
    /// The first refusal of the present node.
    here_since: Option<Instant>,
}

/// The requests that wait for a leader.
#[derive(Debug)]
pub(crate) struct Leaderless {
    waiting: BTreeMap<Asker, Refused>,
    leave_after: Duration,
}

impl Default for Leaderless {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), leave_after: LEAVE_AFTER_MIN }
    }
}

impl Leaderless {
    /// Notes a refusal. Returns whether a caller may wait longer.
    pub(crate) fn refused(&mut self, asker: Asker, now: Instant) -> bool {
        let fresh = Refused { first_at: now, here_since: None };
        let refused = self.waiting.entry(asker).or_insert(fresh);
        refused.here_since.get_or_insert(now);
        now < refused.first_at + GIVE_UP_AFTER
    }

    /// Notes that a request was answered, or that nobody asks any more.
    pub(crate) fn answered(&mut self, asker: Asker) {
        if self.waiting.remove(&asker).is_some() && self.waiting.is_empty() {
            self.leave_after = LEAVE_AFTER_MIN;
        }
    }

    /// Forgets a publisher.
    pub(crate) fn forget_publisher(&mut self, publisher: u64) {
        self.waiting.retain(|asker, _| match asker {
            Asker::Opening(number) | Asker::Partition(number, _) => *number != publisher,
            _ => true,
        });
    }

    /// Returns whether no request waits for a leader.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether the node has had its time. Then it is to be left, and the next one has twice as long.
    pub(crate) fn takes_leave(&mut self, now: Instant) -> bool {
        let oldest = self.waiting.values().filter_map(|refused| refused.here_since).min();
        let leaves = oldest.is_some_and(|since| now >= since + self.leave_after);
        if leaves {
            self.leave_after = (2 * self.leave_after).min(LEAVE_AFTER_MAX);
        }
        leaves
    }

    /// Notes the end of the connection.
    pub(crate) fn connection_lost(&mut self) {
        self.waiting.values_mut().for_each(|refused| refused.here_since = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Asker = Asker::Call(3);

    #[test]
    fn a_caller_waits_over_all_nodes_and_not_longer() {
        let (mut leaderless, begin) = (Leaderless::default(), Instant::now());
        assert!(leaderless.refused(CALL, begin));
        leaderless.connection_lost();
        let almost = begin + GIVE_UP_AFTER - Duration::from_millis(1);
        assert!(leaderless.refused(CALL, almost));
        assert!(!leaderless.refused(CALL, begin + GIVE_UP_AFTER));
        leaderless.answered(CALL);
        assert!(leaderless.is_empty() && leaderless.refused(CALL, begin + GIVE_UP_AFTER));
    }

    #[test]
    fn each_node_has_a_time_of_its_own_that_doubles_until_something_is_answered() {
        let (mut leaderless, mut now) = (Leaderless::default(), Instant::now());
        let mut patience = || {
            leaderless.connection_lost();
            leaderless.refused(CALL, now);
            let begin = now;
            while !leaderless.takes_leave(now) {
                now += Duration::from_secs(1);
                // A refusal that comes elsewhere, and later, gives it no more time.
                leaderless.refused(Asker::Step, now);
            }
            now - begin
        };
        let seconds: Vec<_> = (0..6).map(|_| patience().as_secs()).collect();
        assert_eq!(seconds, [4, 8, 16, 32, 60, 60]);
        leaderless.answered(CALL);
        leaderless.answered(Asker::Step);
        leaderless.refused(CALL, now);
        assert!(leaderless.takes_leave(now + LEAVE_AFTER_MIN));
    }

    #[test]
    fn a_publisher_that_is_gone_holds_nobody_up() {
        let (mut leaderless, now) = (Leaderless::default(), Instant::now());
        for asker in [Asker::Opening(1), Asker::Partition(1, 0), Asker::Partition(2, 0)] {
            leaderless.refused(asker, now);
        }
        leaderless.forget_publisher(1);
        leaderless.answered(Asker::Partition(2, 0));
        assert!(leaderless.is_empty());
    }
}

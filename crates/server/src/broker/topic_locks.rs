//! Orders changes to names and settings: changes to one topic and to its dead-letter topic wait for each other.
//! Other changes run beside them and share their commits. It knows names only.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    rc::Rc,
};

use sennit_model::{DEAD_LETTER_SHARED_BYTES, DEAD_LETTER_SUFFIX};
use tokio::sync::{Mutex, MutexGuard};

/// Topics are spread over so many locks: as many changes can be under way.
const LOCKS: usize = 1024;

/// The right to change topics, one change at a time for each.
#[derive(Clone, Debug)]
pub(crate) struct TopicLocks {
    locks: Rc<[Mutex<()>]>,
    spread: RandomState,
}

impl Default for TopicLocks {
    fn default() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::new(())).collect(), spread: RandomState::new() }
    }
}

impl TopicLocks {
    /// Waits until nobody else changes the topic of this name, the one whose dead letters it takes,
    /// or the one that takes its own. Nobody may wait here who holds one already.
    pub(crate) async fn of(&self, topic: &str) -> MutexGuard<'_, ()> {
        let source = topic.trim_end_matches(DEAD_LETTER_SUFFIX).as_bytes();
        let mut hasher = self.spread.build_hasher();
        // What is behind that is cut off where it makes the other's name too long.
        hasher.write(&source[..source.len().min(DEAD_LETTER_SHARED_BYTES)]);
        self.locks[hasher.finish() as usize % LOCKS].lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use sennit_model::TopicName;

    use super::*;

    fn is_free(changes: &TopicLocks, topic: &str) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(pin!(changes.of(topic)).as_mut().poll(&mut context), Poll::Ready(_))
    }

    #[test]
    fn a_topic_and_its_dead_letters_wait_for_each_other_and_hardly_anybody_else_does() {
        let changes = TopicLocks::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut held = pin!(changes.of("orders"));
        let Poll::Ready(held) = held.as_mut().poll(&mut context) else { panic!("nobody has it") };
        assert!(!is_free(&changes, "orders"));
        assert!(!is_free(&changes, "orders.dead-letter"));
        let others = (0..100).filter(|n| is_free(&changes, &format!("orders.{n}"))).count();
        assert!(others > 90, "{others} of 100 others are free");
        drop(held);
        assert!(is_free(&changes, "orders.dead-letter"));
    }

    #[test]
    fn a_topic_with_a_long_name_and_its_dead_letters_wait_for_each_other() {
        for name in ["x".repeat(200), format!("{}.%2E{}", "x".repeat(168), "y".repeat(20))] {
            let changes = TopicLocks::default();
            let mut context = Context::from_waker(Waker::noop());
            let mut held = pin!(changes.of(&name));
            let Poll::Ready(_held) = held.as_mut().poll(&mut context) else { panic!("it is free") };
            let name: TopicName = name.parse().expect("it is a name");
            assert!(!is_free(&changes, name.dead_letter_topic(None).as_str()), "{name}");
        }
    }
}

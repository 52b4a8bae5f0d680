//! Which changes to names and settings wait for each other: those to one topic and to the one of its
//! dead letters. Others go on beside them and share their commits. It knows names only.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    rc::Rc,
};

use sennit_model::DEAD_LETTER_SUFFIX;
use tokio::sync::{Mutex, MutexGuard};

/// Topics are spread over so many locks: as many changes can be under way.
const LOCKS: usize = 1024;

/// The right to change topics, one change at a time for each.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    locks: Rc<[Mutex<()>]>,
    spread: RandomState,
}

impl Default for Changes {
    fn default() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::new(())).collect(), spread: RandomState::new() }
    }
}

impl Changes {
    /// Waits until nobody else changes the topic of this name, the one whose dead letters it takes,
    /// or the one that takes its own. Nobody may wait here who holds one already.
    pub(crate) async fn of(&self, topic: &str) -> MutexGuard<'_, ()> {
        let source = topic.trim_end_matches(DEAD_LETTER_SUFFIX);
        let mut hasher = self.spread.build_hasher();
        hasher.write(source.as_bytes());
        self.locks[hasher.finish() as usize % LOCKS].lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_free(changes: &Changes, topic: &str) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(pin!(changes.of(topic)).as_mut().poll(&mut context), Poll::Ready(_))
    }

    #[test]
    fn a_topic_and_its_dead_letters_wait_for_each_other_and_hardly_anybody_else_does() {
        let changes = Changes::default();
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
}

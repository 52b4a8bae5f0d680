//! A session whose client has reconnected before the broker noticed the loss. The old session ends as if the loss
//! were noticed now, and only then its successor is greeted, so that it may settle the old one's deliveries. It
//! knows nothing of deliveries.

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
};

use sennit_engine::SessionId;
use tokio::sync::{Notify, oneshot};

/// Says that the session of a token has ended, and which it was; nothing if there is none.
pub(crate) type Ended = oneshot::Sender<Option<SessionId>>;

/// What a client says of its old session to replace it. Nobody else can guess it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionToken(pub(crate) u64);

impl SessionToken {
    /// A new one.
    pub(crate) fn draw(session: u64) -> Self {
        // The standard library's keys are random; 0 is no token on the wire.
        Self(RandomState::new().hash_one(session).max(1))
    }
}

/// The way to a session for those who replace it.
#[derive(Debug, Default)]
pub(crate) struct SessionTakeover {
    /// The token of the session, once it is greeted.
    pub(crate) token: Cell<Option<SessionToken>>,
    waiting: RefCell<Vec<Ended>>,
    came: Notify,
}

impl SessionTakeover {
    /// A successor is here, and waits for the session's end.
    pub(crate) fn comes(&self, ended: Ended) {
        self.waiting.borrow_mut().push(ended);
        self.came.notify_one();
    }

    /// Waits until there is one.
    pub(crate) async fn came(&self) {
        self.came.notified().await;
    }

    /// The session has ended.
    pub(crate) fn let_in(&self, session: SessionId) {
        for ended in self.waiting.take() {
            // Its connection may be gone as well.
            let _ = ended.send(Some(session));
        }
    }
}

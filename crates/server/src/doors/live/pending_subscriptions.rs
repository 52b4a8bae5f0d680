//! Subscriptions that a program has asked for, and waits for. It knows no connections.

use std::cell::RefCell;

use tokio::sync::oneshot;

use super::{connection_id::ClientId, limits::REFUSALS_TOLD_MAX};

/// What became of the subscriptions that a program wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscribed {
    /// Connections that are subscribed now, or were before.
    pub(crate) subscribed: u64,
    pub(crate) refused: u64,
    /// The first of those that were refused, with the reason.
    pub(crate) refusals: Vec<(ClientId, String)>,
}

/// The subscriptions that a program waits for. The answer goes when the last of them is begun, refused or forgotten.
#[derive(Debug)]
pub(crate) struct PendingSubscriptions {
    subscribed: RefCell<Subscribed>,
    answer: Option<oneshot::Sender<Subscribed>>,
}

impl Drop for PendingSubscriptions {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(self.subscribed.take());
        }
    }
}

impl PendingSubscriptions {
    /// Nothing is subscribed yet.
    pub(crate) fn new(answer: oneshot::Sender<Subscribed>) -> Self {
        Self { subscribed: RefCell::default(), answer: Some(answer) }
    }

    /// What became of the subscription of a connection.
    pub(crate) fn note(&self, connection: ClientId, outcome: Result<(), String>) {
        let mut subscribed = self.subscribed.borrow_mut();
        match outcome {
            Ok(()) => subscribed.subscribed += 1,
            Err(reason) => {
                subscribed.refused += 1;
                if subscribed.refusals.len() < REFUSALS_TOLD_MAX {
                    subscribed.refusals.push((connection, reason));
                }
            }
        }
    }
}

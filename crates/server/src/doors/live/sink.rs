//! What shards send to the live connections of a core waits here until their loop takes it. It knows no connections.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use sennit_engine::{Command, Effect};
use tokio::sync::Notify;

use crate::runtime::{
    core::EffectSink,
    index::ShardIndex,
    placement::Placement,
    session_takeover::{Ended, SessionToken},
};

/// Effects that wait, and the bell that is rung for them.
#[derive(Debug, Default)]
pub(crate) struct LiveSink {
    effects: RefCell<Vec<Effect>>,
    pub(crate) notify: Rc<Notify>,
    is_closing: Cell<bool>,
    has_told_all: Cell<bool>,
}

impl LiveSink {
    /// A sink that rings this bell.
    pub(crate) fn new(notify: Rc<Notify>) -> Self {
        Self { notify, ..Self::default() }
    }

    /// Takes what has come, in exchange for an empty list.
    pub(crate) fn take_all(&self, empty: Vec<Effect>) -> Vec<Effect> {
        self.effects.replace(empty)
    }

    /// Whether the broker stops.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// All connections have been told that the broker stops.
    pub(crate) fn note_all_told(&self) {
        self.has_told_all.set(true);
    }
}

impl EffectSink for LiveSink {
    fn take(&self, effect: Effect, _: &Placement) -> Vec<(ShardIndex, Command)> {
        self.effects.borrow_mut().push(effect);
        self.notify.notify_one();
        Vec::new()
    }

    fn token(&self) -> Option<SessionToken> {
        None
    }

    fn set_token(&self, _: SessionToken) {}

    fn replaced(&self, ended: Ended) {
        drop(ended);
    }

    fn say_goodbye(&self) {
        self.is_closing.set(true);
        self.notify.notify_one();
    }

    fn has_sent_all(&self) -> bool {
        let has_told_all = self.has_told_all.get() || !self.is_closing.get();
        self.effects.borrow().is_empty() && has_told_all
    }
}

//! Something that other tasks, of this core or of others, have a loop do waits here until it does it. It does not know
//! what the loop is.

use std::{cell::RefCell, fmt, rc::Rc};

use tokio::sync::Notify;

type Act<L> = Box<dyn FnOnce(&mut L)>;

/// What a loop `L` is to do, and the bell that is rung for it.
pub(crate) struct Calls<L> {
    waiting: RefCell<Vec<Act<L>>>,
    notify: Rc<Notify>,
}

impl<L> fmt::Debug for Calls<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("waiting", &self.waiting.borrow().len()).finish()
    }
}

impl<L> Calls<L> {
    /// Calls for a loop that this bell wakes.
    pub(crate) fn new(notify: Rc<Notify>) -> Self {
        Self { waiting: RefCell::default(), notify }
    }

    /// Has the loop do this, in its next turn.
    pub(crate) fn call(&self, act: impl FnOnce(&mut L) + 'static) {
        self.waiting.borrow_mut().push(Box::new(act));
        self.notify.notify_one();
    }

    /// Takes what waits, in its order.
    pub(crate) fn take(&self) -> impl Iterator<Item = Act<L>> + use<L> {
        self.waiting.take().into_iter()
    }
}

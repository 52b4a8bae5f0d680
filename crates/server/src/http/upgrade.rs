//! A connection of HTTP/1.1 that goes on at another door, once its request is answered with 101 Switching Protocols. It
//! does not know the doors.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use bytes::BytesMut;
use tokio::sync::Notify;

use super::port_place::PortPlace;
use crate::runtime::wire::WireAtRest;

/// The state that the door of a connection finds again when the connection reaches it.
#[derive(Clone)]
pub(crate) struct Upgrade {
    state: Rc<dyn Any>,
    /// The way to the door, if it is not the one of the thread.
    entry: Option<Rc<UpgradeEntry>>,
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade(..)")
    }
}

impl Upgrade {
    pub(crate) fn new<U: Any>(state: U) -> Self {
        Self { state: Rc::new(state), entry: None }
    }

    /// One that leads elsewhere.
    pub(crate) fn to(entry: Rc<UpgradeEntry>) -> Self {
        Self { state: Rc::new(()), entry: Some(entry) }
    }

    /// Where it leads.
    pub(crate) fn entry<'e>(&'e self, of_thread: &'e UpgradeEntry) -> &'e UpgradeEntry {
        self.entry.as_deref().unwrap_or(of_thread)
    }

    /// The state, if it is of this type.
    pub(crate) fn state<U: Any + Clone>(&self) -> Option<U> {
        self.state.downcast_ref().cloned()
    }
}

/// A connection whose answer is out.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(crate) wire: WireAtRest,
    /// One of the places of the HTTP port.
    pub(crate) place: PortPlace,
    pub(crate) upgrade: Upgrade,
    /// What came behind the request.
    pub(crate) unread: BytesMut,
}

/// The way from the HTTP connections of a thread to its live ones. On a thread that has none it stays closed.
#[derive(Default)]
pub(crate) struct UpgradeEntry {
    is_open: Cell<bool>,
    /// Says whether there is room for one more.
    has_room: RefCell<Option<Box<dyn Fn() -> bool>>>,
    arriving: RefCell<Vec<Upgraded>>,
    notify: Notify,
}

impl fmt::Debug for UpgradeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeEntry").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

impl UpgradeEntry {
    /// Opens it for as many as there is room for.
    pub(crate) fn open(&self, has_room: impl Fn() -> bool + 'static) {
        self.has_room.replace(Some(Box::new(has_room)));
        self.is_open.set(true);
    }

    /// Whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room.borrow().as_ref().is_some_and(|has_room| has_room())
    }

    /// Whether somebody takes connections in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    pub(crate) fn enter(&self, upgraded: Upgraded) {
        if self.is_open.get() {
            self.arriving.borrow_mut().push(upgraded);
            self.notify.notify_one();
        }
    }

    /// The connections that have come since this was asked last.
    pub(crate) fn arrived(&self) -> Vec<Upgraded> {
        self.arriving.take()
    }

    /// Waits until one has come.
    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}

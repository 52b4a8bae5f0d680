//! The way from a core's connections to its parked ones, and the state that a connection takes along. It knows no
//! streams, and not what becomes of parked connections.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    rc::Rc,
};

use tokio::sync::Notify;

use super::{handler::Wait, http1_answers::Manner, port_place::PortPlace};
use crate::runtime::wire::WireAtRest;

/// What a connection is told in its stead when it is parked.
#[derive(Debug)]
pub(crate) struct Parking {
    /// What the one request that is under way waits for.
    pub(crate) wait: Wait,
    /// How that is answered.
    pub(crate) manner: Manner,
    /// How often the connection has moved.
    pub(crate) moves: u32,
}

/// A connection on its way to the parked ones.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) wire: WireAtRest,
    /// One of the places that there are.
    pub(crate) place: PortPlace,
    pub(crate) parking: Parking,
}

/// The way from the connections of a thread to its parked ones. On a thread that parks none it stays closed.
#[derive(Debug, Default)]
pub(crate) struct ParkingEntry {
    is_open: Cell<bool>,
    /// What the request that was worked on last could wait for without its task.
    offered: RefCell<Option<Wait>>,
    arriving: RefCell<Vec<Arriving>>,
    /// Rung for who arrives.
    pub(crate) notify: Rc<Notify>,
    /// How many are parked, or on their way there.
    count: Cell<usize>,
}

impl ParkingEntry {
    /// There is a lot.
    pub(crate) fn open(&self) {
        self.is_open.set(true);
    }

    /// Somebody's requests are worked on now: what others could wait for is nothing to it.
    pub(crate) fn attend(&self) {
        self.offered.take();
    }

    /// What could be waited for without a task since somebody was attended to.
    pub(crate) fn take_offer(&self) -> Option<Wait> {
        self.offered.take()
    }

    /// Waits, and lets whoever polls know that it could be done without a task.
    pub(crate) async fn offer<F: Future>(&self, wait: Option<Wait>, waiting: F) -> F::Output {
        let mut waiting = pin!(waiting);
        poll_fn(|context| {
            let polled = waiting.as_mut().poll(context);
            if polled.is_pending() && self.is_open.get() {
                self.offered.replace(wait.clone());
            }
            polled
        })
        .await
    }

    pub(crate) fn enter(&self, arriving: Arriving) {
        self.count.set(self.count.get() + 1);
        self.arriving.borrow_mut().push(arriving);
        self.notify.notify_one();
    }

    /// Those who have come since this was asked last.
    pub(crate) fn arrived(&self) -> Vec<Arriving> {
        self.arriving.take()
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// So many are parked, and none is on its way.
    pub(crate) fn set_count(&self, count: usize) {
        self.count.set(count);
    }
}

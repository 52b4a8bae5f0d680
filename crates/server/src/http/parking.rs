//! How a connection leaves its task for the lot of its core, and comes back to one: what it takes along
//! each time. It knows no streams, and not what goes on in the lot.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::TcpStream,
    pin::pin,
    rc::Rc,
};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::{hall::Guest, http1_answers::Manner, moving::Departure, streams::Wait};
use crate::outgoing::Outgoing;

/// Why a connection leaves its task though it goes on.
#[derive(Debug)]
pub(super) enum Left {
    /// For another core.
    Moves(Departure),
    /// For the lot.
    Parks(Parking),
}

/// What a connection is told in its stead when it leaves for the lot.
#[derive(Debug)]
pub(super) struct Parking {
    /// What the one request that is under way waits for.
    pub(super) wait: Wait,
    /// How that is answered.
    pub(super) manner: Manner,
    /// How often the connection has moved.
    pub(super) moves: u32,
}

/// A connection on its way to the lot.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) stream: TcpStream,
    /// One of the places that there are.
    pub(super) place: OwnedSemaphorePermit,
    pub(super) parking: Parking,
}

/// What a connection brings that comes back from the lot.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) guest: Guest,
    /// Whether its socket has something to be read, or its end.
    pub(super) is_heard: bool,
    /// What its socket has not taken.
    pub(super) rest: Outgoing,
    /// What its request waits for still, if one is under way.
    pub(super) wait: Option<Wait>,
    pub(super) manner: Manner,
    pub(super) moves: u32,
}

/// The door between the connections of a thread and its lot. Where there is no lot it stays closed.
#[derive(Debug, Default)]
pub(crate) struct LotDoor {
    is_open: Cell<bool>,
    /// What the request that was worked on last could wait for without its task.
    offered: RefCell<Option<Wait>>,
    arriving: RefCell<Vec<Arriving>>,
    /// Rung for who arrives.
    pub(super) bell: Rc<Notify>,
    /// How many are in the lot, or on their way there.
    count: Cell<usize>,
}

impl LotDoor {
    /// There is a lot.
    pub(super) fn open(&self) {
        self.is_open.set(true);
    }

    /// Somebody's requests are worked on now: what others could wait for is nothing to it.
    pub(super) fn attend(&self) {
        self.offered.take();
    }

    /// What could be waited for without a task since somebody was attended to.
    pub(super) fn take_offer(&self) -> Option<Wait> {
        self.offered.take()
    }

    /// Waits, and lets whoever polls know that it could be done without a task.
    pub(super) async fn offer<F: Future>(&self, wait: Option<Wait>, waiting: F) -> F::Output {
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

    pub(super) fn enter(&self, arriving: Arriving) {
        self.count.set(self.count.get() + 1);
        self.arriving.borrow_mut().push(arriving);
        self.bell.notify_one();
    }

    /// Those who have come since this was asked last.
    pub(super) fn arrived(&self) -> Vec<Arriving> {
        self.arriving.take()
    }

    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// So many are in the lot, and nobody is on his way.
    pub(super) fn set_count(&self, count: usize) {
        self.count.set(count);
    }
}

//! A connection may leave its task for another core, to be parked, or for good; this file decides when.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::{Http1, Inlet};
use crate::http::{
    core_affinity::Departure,
    http1_answers::{Manner, Streaming},
    http1_requests::UnderWay,
    parking_entry::Parking,
    upgrade::Upgrade,
};

impl<S> Http1<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Where the connection goes on, once the answer that says so is out.
    pub(super) fn take_upgrade(&mut self) -> Option<Upgrade> {
        if self.unsent.is_empty() { self.upgrade.take() } else { None }
    }

    /// Whether everything that was asked is answered, and the answers are out.
    pub(super) fn is_at_rest(&self) -> bool {
        self.begun.is_empty()
            && self.next.is_none()
            && self.streaming.is_none()
            && self.unsent.is_empty()
    }

    /// Whether nobody knows when the answer ends that goes out.
    pub(super) fn has_no_end(&self) -> bool {
        self.streaming.as_ref().is_some_and(Streaming::is_endless)
    }

    /// Where to go, if another core is the better place and nothing has to be taken along.
    pub(super) fn departure(&self) -> Option<Departure> {
        let departure = self.affinity.place(self.thread_state.peer_cores.as_deref()?)?;
        let is_free = self.inlet == Inlet::Open
            && !self.has_ended
            && self.is_at_rest()
            && self.leaves_nothing();
        is_free.then_some(departure)
    }

    /// What is parked, if what the one request under way waits for is all there is to do.
    pub(super) fn parking(&self) -> Option<Parking> {
        let wait = self.thread_state.parking_entry.take_offer()?;
        let manner = match (&self.streaming, self.begun.front()) {
            (None, Some(begun)) if self.begun.len() == 1 => begun.manner,
            (Some(Streaming::Events { is_chunked, .. }), None) => {
                Manner::of_events(*is_chunked, self.inlet != Inlet::Open)
            }
            _ => return None,
        };
        let is_free =
            !self.has_ended && !self.is_heard && self.unsent.is_empty() && self.leaves_nothing();
        is_free.then(|| Parking { wait, manner, moves: self.affinity.moves() })
    }

    /// Whether nothing has come that would have to be taken along, nor is the end near.
    fn leaves_nothing(&self) -> bool {
        self.input.is_empty()
            && self.next.is_none()
            && self.requests.under_way() == UnderWay::Nothing
            && !self.thread_state.closing.has_begun()
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        let is_last = self.inlet == Inlet::Shut
            || self.has_ended
            || (self.thread_state.closing.has_begun()
                && self.requests.under_way() != UnderWay::Body);
        is_last && self.is_at_rest()
    }

    /// Says that it was the end, and reads what comes until the client has seen it.
    pub(super) fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if ready!(Pin::new(&mut self.stream).poll_shutdown(context)).is_err() {
            return Poll::Ready(());
        }
        let thread_state = self.thread_state.clone();
        let mut read = thread_state.read.borrow_mut();
        loop {
            read.clear();
            match ready!(pin!(self.stream.read_buf(&mut *read)).poll(context)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

//! State that all HTTP connections of a thread share: the buffers for reads and writes, used one after the other,
//! so that a connection at rest has none; the date; whether the connections have to end.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use bytes::BytesMut;
use http::StatusCode;

use super::{
    answer_room::AnswerRoom,
    bad_request::Refused,
    browser_guard::{BrowserGuard, BrowserRules},
    closing::Closing,
    date::Date,
    limits::BODIES_BYTES_MAX,
    parking_entry::ParkingEntry,
    upgrade::UpgradeEntry,
};
use crate::runtime::{
    core::Closes, metrics::CoreMetrics, peer_cores::PeerCores, write_buffer::WriteBuffer,
};

/// Bytes of a read.
const READ_BYTES: usize = 64 << 10;

/// What all connections of a thread share.
#[derive(Debug)]
pub(crate) struct HttpThreadState {
    pub(crate) closing: Closing,
    /// Where those go who wait for streams.
    pub(crate) parking_entry: ParkingEntry,
    /// Where those go who go on at another door.
    pub(crate) upgrade_entry: UpgradeEntry,
    pub(crate) metrics: Arc<CoreMetrics>,
    /// The other cores; none where connections do not move.
    pub(crate) peer_cores: Option<Rc<PeerCores>>,
    /// What was read last, until it was looked at.
    pub(crate) read: RefCell<BytesMut>,
    /// What is written next, until it was.
    pub(crate) write: RefCell<WriteBuffer>,
    pub(crate) date: Date,
    /// Connections that have something to do still, if they are to end.
    open: Cell<usize>,
    /// Bytes of bodies whose requests are not answered, and of what waits behind them.
    body_bytes: Cell<usize>,
    /// What answers hold.
    pub(crate) answers: Rc<AnswerRoom>,
    /// What pages in browsers may.
    pub(crate) guard: BrowserGuard,
}

impl HttpThreadState {
    pub(crate) fn new(
        metrics: Arc<CoreMetrics>,
        peer_cores: Option<Rc<PeerCores>>,
        rules: BrowserRules,
    ) -> Self {
        Self {
            guard: BrowserGuard::new(rules),
            peer_cores,
            closing: Closing::default(),
            parking_entry: ParkingEntry::default(),
            upgrade_entry: UpgradeEntry::default(),
            metrics,
            read: RefCell::new(BytesMut::with_capacity(READ_BYTES)),
            write: RefCell::default(),
            date: Date::new(),
            open: Cell::new(0),
            body_bytes: Cell::new(0),
            answers: Rc::default(),
        }
    }

    pub(crate) fn count(&self, status: StatusCode) {
        match status.as_u16() / 100 {
            5 => self.metrics.http_answers_5xx.add(1),
            4 => self.metrics.http_answers_4xx.add(1),
            3 => self.metrics.http_answers_3xx.add(1),
            _ => self.metrics.http_answers_2xx.add(1),
        }
    }

    /// Whether every connection has done what it was asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.get() == 0 && self.parking_entry.count() == 0
    }

    pub(crate) fn enter(self: &Rc<Self>) -> OpenConnection {
        self.open.set(self.open.get() + 1);
        OpenConnection(self.clone())
    }

    /// An account of a body that comes.
    pub(crate) fn account(self: &Rc<Self>) -> BodyAccount {
        BodyAccount { thread_state: self.clone(), bytes: 0 }
    }
}

impl Closes for HttpThreadState {
    fn begin(&self) {
        self.closing.begin();
    }

    fn has_closed(&self) -> bool {
        self.is_empty()
    }
}

/// What has come of a body whose request is not answered; dropped, it holds nothing.
#[derive(Debug)]
pub(crate) struct BodyAccount {
    thread_state: Rc<HttpThreadState>,
    bytes: usize,
}

impl BodyAccount {
    /// So much of it has come now.
    ///
    /// # Errors
    /// It grows, and all bodies together hold more than they may.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Refused> {
        let all = self.thread_state.body_bytes.get() - self.bytes + bytes;
        self.thread_state.body_bytes.set(all);
        let grows = bytes > self.bytes;
        self.bytes = bytes;
        if grows && all > BODIES_BYTES_MAX {
            let detail = "requests under way hold more than BODIES_BYTES_MAX, 256 MiB; try again";
            return Err(Refused::with(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        Ok(())
    }
}

impl Drop for BodyAccount {
    fn drop(&mut self) {
        self.thread_state.body_bytes.set(self.thread_state.body_bytes.get() - self.bytes);
    }
}

/// Counts a connection as one that has something to do still, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Rc<HttpThreadState>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

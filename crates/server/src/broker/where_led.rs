//! A part of the broker that is there only where the catalogue is led. It is made anew whenever this node begins to lead, and whenever it
//! ends because another node may have written what it knows nothing of. A broker alone has it from its start on.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::spawn_local,
    time::{sleep, timeout},
};

use super::{control_peers::ControlPeers, stream_request::StreamFailure};
use crate::runtime::index::ShardIndex;

/// How long to wait before it is tried again to make it.
const AGAIN: Duration = Duration::from_millis(500);

/// The end of something, and whoever waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    is_over: Cell<bool>,
    told: Notify,
}

impl Ending {
    /// It ends now.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.told.notify_waiters();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Waits until it has ended.
    pub(crate) async fn over(&self) {
        let told = self.told.notified();
        if !self.is_over() {
            told.await;
        }
    }
}

/// See the file's page.
pub(crate) trait LedPart: fmt::Debug + 'static {
    /// It works from now on.
    fn begins(self: Rc<Self>);

    /// It works no more. It may have ended by itself already.
    fn ends(&self);

    /// When it ends by itself.
    fn ending(&self) -> &Ending;
}

/// The place of such a part.
#[derive(Debug)]
pub(crate) struct WhereLed<T> {
    part: RefCell<Option<Rc<T>>>,
    /// How often this node has begun or ceased to lead.
    turns: Cell<u64>,
    peers: Option<Rc<ControlPeers>>,
}

impl<T: LedPart> WhereLed<T> {
    /// Nothing is there yet.
    pub(crate) fn new(peers: Option<Rc<ControlPeers>>) -> Rc<Self> {
        Rc::new(Self { part: RefCell::default(), turns: Cell::new(0), peers })
    }

    /// The nodes of the cluster, if there are others.
    pub(crate) fn peers(&self) -> Option<&Rc<ControlPeers>> {
        self.peers.as_ref()
    }

    /// The part, if it is here.
    pub(crate) fn part(&self) -> Option<Rc<T>> {
        self.part.borrow().clone()
    }

    /// The part if it is here and at no other node, so that what it knows is so.
    pub(crate) fn asked(&self) -> Option<Rc<T>> {
        let may_answer = self.peers.as_ref().is_none_or(|peers| peers.has_lease());
        self.part().filter(|part| may_answer && !part.ending().is_over())
    }

    /// This node leads: `make` makes the part, now and whenever it has ended.
    ///
    /// # Errors
    /// The part of a broker alone cannot be made.
    pub(crate) async fn begin(
        self: &Rc<Self>,
        make: impl AsyncFn() -> Result<T, StreamFailure> + 'static,
    ) -> Result<(), StreamFailure> {
        self.turns.set(self.turns.get() + 1);
        match self.peers.clone() {
            None => self.place(make().await?),
            Some(peers) => {
                let turn = self.turns.get();
                spawn_local(self.clone().keep(peers, turn, make));
            }
        }
        Ok(())
    }

    /// This node leads no more.
    pub(crate) fn rest(&self) {
        self.turns.set(self.turns.get() + 1);
        if let Some(part) = self.part.take() {
            part.ends();
        }
    }

    fn place(&self, part: T) {
        let part = Rc::new(part);
        self.part.replace(Some(part.clone()));
        part.begins();
    }

    async fn keep(
        self: Rc<Self>,
        peers: Rc<ControlPeers>,
        turn: u64,
        make: impl AsyncFn() -> Result<T, StreamFailure>,
    ) {
        let mut entries = peers.groups.entries(ShardIndex::CATALOGUE);
        while self.turns.get() == turn {
            // A node that is deposed and does not know it would end the part of the node that leads.
            if !peers.has_lease() {
                let _ = timeout(AGAIN, entries.wait_for(|entries| entries.may_give)).await;
                continue;
            }
            match make().await {
                Ok(part) if self.turns.get() == turn && peers.has_lease() => {
                    self.place(part);
                    let Some(part) = self.part() else { return };
                    part.ending().over().await;
                    if self.turns.get() == turn {
                        self.part.take();
                        part.ends();
                    }
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::warn!(%failure, "what is done where the catalogue is led cannot begin yet");
                    sleep(AGAIN).await;
                }
            }
        }
    }
}

//! The HTTP port: it accepts connections, a limited number of them at once and of each address, and hands them round the
//! cores. A connection beyond the limit waits a moment, and is then refused with a time to retry; one beyond that of its
//! address is refused at once, and takes nothing from others. While there are no cores
//! to serve connections, at the start and at the end, the port's own thread serves them.

use std::{cell::Cell, fmt, rc::Rc, sync::Arc};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_local,
};

use super::{
    addresses::{AddressPlace, Addresses},
    connection,
    core_affinity::Departure,
    handler::Handlers,
    http1,
    limits::{CONNECTIONS_WAITING_MAX, PLACE_TIMEOUT, TURNED_AWAY_MAX},
    overloaded::{Overload, tls_required, turn_away},
    parking::{Back, Left},
    parking_entry::Arriving,
    port_place::PortPlace,
    socket::Socket,
    thread_state::HttpThreadState,
    upgrade::Upgraded,
};
use crate::runtime::{
    core::Cores,
    handshake::secured,
    inbox::Message,
    index::CoreIndex,
    listener::Listener,
    wire::{Wire, WireAtRest},
};

/// A connection on its way to a core.
#[derive(Debug)]
struct Arrival {
    wire: WireAtRest,
    /// One of the places that there are; free again when the connection has ended.
    place: PortPlace,
    /// How often it has moved: only one that speaks HTTP/1 does, and with nothing under way.
    moves: u32,
}

/// The HTTP connections of a thread: what they share, and who answers their requests.
#[derive(Clone, Debug)]
pub(crate) struct HttpThread {
    pub(crate) thread_state: Rc<HttpThreadState>,
    pub(crate) handlers: Rc<dyn Handlers>,
    pub(crate) cores: Arc<Cores>,
}

/// The port, from its first connection to the end of the broker.
pub(crate) struct Port {
    listener: Listener,
    cores: Arc<Cores>,
    /// Whether the cores serve.
    are_serving: Box<dyn Fn() -> bool>,
    /// Serves those who come before the cores do.
    early: HttpThread,
    /// Serves those who come when they have ended.
    late: HttpThread,
    places: Arc<Semaphore>,
    addresses: Addresses,
    /// For those whose address has as many as it may.
    turned_away: Arc<Semaphore>,
    /// For those who wait for a place.
    waiting: Arc<Semaphore>,
    /// The core that gets the next connection.
    next: Cell<CoreIndex>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Port {
    /// A port for the cores once they serve; `early` and `late` answer before and afterwards, on the thread
    /// of the port.
    pub(crate) fn new(
        listener: Listener,
        (connections_max, per_address): (usize, usize),
        are_serving: impl Fn() -> bool + 'static,
        early: HttpThread,
        late: HttpThread,
    ) -> Self {
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let waiting = Arc::new(Semaphore::new(CONNECTIONS_WAITING_MAX));
        let (cores, are_serving) = (early.cores.clone(), Box::new(are_serving));
        Self {
            listener,
            cores,
            are_serving,
            early,
            late,
            places,
            addresses: Addresses::new(per_address),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            waiting,
            next: Cell::new(CoreIndex::FIRST),
        }
    }

    /// Where those are who come before the cores serve: then they are to come again.
    pub(crate) fn early(&self) -> Rc<HttpThreadState> {
        self.early.thread_state.clone()
    }

    /// Accepts for ever.
    pub(crate) async fn serve(self) {
        let this = Rc::new(self);
        loop {
            let Ok(waits) = this.waiting.clone().acquire_owned().await else { return };
            let wire = this.listener.accept().await;
            let Some(of_address) = this.addresses.enter(wire.peer_address().map(|from| from.ip()))
            else {
                this.cores.metrics[CoreIndex::FIRST].http_refused_of_address.add(1);
                if let Ok(permit) = this.turned_away.clone().try_acquire_owned() {
                    spawn_local(this.clone().refuse(wire, Overload::OfAddress, permit));
                }
                continue;
            };
            match this.places.clone().try_acquire_owned() {
                Ok(place) => this.place(wire, PortPlace::new(place, of_address)),
                Err(_) => {
                    spawn_local(this.clone().wait_for_place(wire, of_address, waits));
                }
            }
        }
    }

    /// Tells a connection why there is no place for it, and closes it.
    async fn refuse(self: Rc<Self>, wire: WireAtRest, why: Overload, held: OwnedSemaphorePermit) {
        let metrics = &self.cores.metrics[CoreIndex::FIRST];
        match why {
            Overload::OfPort => metrics.http_answers_5xx.add(1),
            Overload::OfAddress => metrics.http_answers_4xx.add(1),
        }
        if let Some(wire) = registered(wire)
            && let Some(wire) = secured(wire, metrics, tls_required).await
        {
            turn_away(wire, why).await;
        }
        drop(held);
    }

    /// Serves a connection once there is a place, or sends it away.
    async fn wait_for_place(
        self: Rc<Self>,
        wire: WireAtRest,
        of_address: AddressPlace,
        waits: OwnedSemaphorePermit,
    ) {
        let place = self.places.clone().acquire_owned();
        match tokio::time::timeout(PLACE_TIMEOUT, place).await {
            Ok(Ok(place)) => self.place(wire, PortPlace::new(place, of_address)),
            _ => self.refuse(wire, Overload::OfPort, waits).await,
        }
    }

    /// Has a connection be served that has its place.
    fn place(&self, wire: WireAtRest, place: PortPlace) {
        if (self.are_serving)() {
            let to = self.next.get();
            let arrival = Arrival { wire, place, moves: 0 };
            let _ = self.cores.inboxes[to].send(arrives(arrival));
            self.next.set(self.cores.placement.core_after(to));
            return;
        }
        let is_early = !self.early.thread_state.closing.has_begun();
        let http = if is_early { &self.early } else { &self.late };
        let http = http.clone();
        spawn_local(async move {
            // Connections stay here: this thread has no other cores, and parks none.
            if let Some(wire) = registered(wire) {
                let _ = welcome(wire, 0, &http).await;
                http.thread_state.metrics.http_connections.less(1);
            }
            drop(place);
        });
    }
}

/// Has a core serve a connection of the HTTP port.
fn arrives(arrival: Arrival) -> Message {
    Message::call(|http: &Rc<HttpThread>| {
        spawn_local(arrive(arrival, http.clone()));
    })
}

/// Serves a connection on this thread until it ends, or leaves its task.
async fn arrive(arrival: Arrival, http: Rc<HttpThread>) {
    let Arrival { wire, place, moves } = arrival;
    if let Some(wire) = registered(wire) {
        let left = welcome(wire, moves, &http).await;
        see_off(left, place, &http);
    }
}

/// The wire, registered with the runtime of this thread; `None` if that has no room.
fn registered(wire: WireAtRest) -> Option<Wire> {
    let failed = |error: &_| tracing::warn!(%error, "an HTTP connection could not be taken over");
    wire.register().inspect_err(failed).ok()
}

/// Serves a connection that was parked. It was counted all the while.
pub(crate) async fn come_back(
    wire: WireAtRest,
    place: PortPlace,
    back: Back,
    http: Rc<HttpThread>,
) {
    let thread_state = http.thread_state.clone();
    let left = match registered(wire) {
        Some(wire) => {
            let handler = http.handlers.clone().of_peer(wire.peer());
            http1::go_on(Socket::new(wire), back, thread_state, handler).await
        }
        None => None,
    };
    see_off(left, place, &http);
}

/// Has a connection go where it wants to, if it goes on.
fn see_off(left: Option<(Socket, Left)>, place: PortPlace, http: &HttpThread) {
    let left =
        left.and_then(|(socket, left)| socket.into_inner().deregister().ok().zip(Some(left)));
    if let Some((wire, Left::Parks(parking))) = left {
        return http.thread_state.parking_entry.enter(Arriving { wire, place, parking });
    }
    http.thread_state.metrics.http_connections.less(1);
    match left {
        Some((wire, Left::Moves(Departure { to, moves }))) => {
            let arrival = Arrival { wire, place, moves };
            let _ = http.cores.inboxes[to].send(arrives(arrival));
        }
        Some((wire, Left::Upgrades(upgrade, unread))) => {
            let upgraded = Upgraded { wire, place, upgrade: upgrade.clone(), unread };
            upgrade.entry(&http.thread_state.upgrade_entry).enter(upgraded);
        }
        Some((_, Left::Parks(_))) | None => {}
    }
}

async fn welcome(wire: Wire, moves: u32, http: &HttpThread) -> Option<(Socket, Left)> {
    let metrics = &http.thread_state.metrics;
    if moves == 0 {
        wire.set_nodelay();
        metrics.http_connections_opened.add(1);
    } else {
        metrics.http_connections_moved.add(1);
    }
    metrics.http_connections.add(1);
    let wire = secured(wire, metrics, tls_required).await?;
    let thread_state = http.thread_state.clone();
    let handler = http.handlers.clone().of_peer(wire.peer());
    connection::serve(Socket::new(wire), moves, thread_state, handler).await
}

//! The HTTP port: accepts connections, a limited number of them at once, and hands them round the cores.
//! Who finds no place waits a moment, and is told to come again then.
//! While there are no cores to serve them, at the start and at the end, its own thread does.

use std::{cell::Cell, io, net, rc::Rc, sync::Arc};

use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_local,
};

use super::{
    browser_guard::BrowserRules,
    connection,
    core_affinity::Departure,
    limits::{CONNECTIONS_WAITING_MAX, PLACE_TIMEOUT},
    overloaded::turn_away,
    parking::{Back, Left},
    parking_lot_entry::Arriving,
    socket::Socket,
    thread_context::Hall,
};
use crate::doors::{http_router::Door, status::Status};
use crate::{
    doors::native::arrival::HttpArrival,
    runtime::{core::Cores, inbox::Message, listener::Listener},
};

/// The port, from its first connection to the end of the broker.
#[derive(Debug)]
pub(crate) struct Port {
    listener: Listener,
    cores: Arc<Cores>,
    status: Arc<Status>,
    /// Serves those who come before the cores do.
    early: Rc<Door>,
    /// Serves those who come when they have ended.
    late: Rc<Door>,
    places: Arc<Semaphore>,
    /// For those who wait for a place.
    waiting: Arc<Semaphore>,
    /// The core that gets the next connection.
    next: Cell<usize>,
}

impl Port {
    pub(crate) fn new(
        listener: Listener,
        connections_max: usize,
        cores: Arc<Cores>,
        status: Arc<Status>,
        rules: &BrowserRules,
    ) -> Self {
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let door = || {
            let hall = Rc::new(Hall::new(cores.metrics[0].clone(), None, rules.clone()));
            Rc::new(Door::new(hall, status.clone(), None))
        };
        let (early, late) = (door(), door());
        let waiting = Arc::new(Semaphore::new(CONNECTIONS_WAITING_MAX));
        Self { listener, cores, status, early, late, places, waiting, next: Cell::new(0) }
    }

    /// Where those are who come before the cores serve: then they are to come again.
    pub(crate) fn early(&self) -> Rc<Hall> {
        self.early.hall().clone()
    }

    /// Accepts for ever.
    pub(crate) async fn serve(self) {
        let this = Rc::new(self);
        loop {
            let Ok(waits) = this.waiting.clone().acquire_owned().await else { return };
            let stream = this.listener.accept().await;
            match this.places.clone().try_acquire_owned() {
                Ok(place) => this.place(stream, place),
                Err(_) => {
                    spawn_local(this.clone().wait_for_place(stream, waits));
                }
            }
        }
    }

    /// Serves a connection once there is a place, or sends it away.
    async fn wait_for_place(self: Rc<Self>, stream: TcpStream, waits: OwnedSemaphorePermit) {
        let place = self.places.clone().acquire_owned();
        match tokio::time::timeout(PLACE_TIMEOUT, place).await {
            Ok(Ok(place)) => self.place(stream, place),
            _ => {
                let metrics = &self.cores.metrics[0];
                metrics.http_answers_5xx.add(1);
                turn_away(stream).await;
            }
        }
        drop(waits);
    }

    /// Has a connection be served that has its place.
    fn place(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        if self.status.is_serving() {
            let to = self.next.get();
            if let Err(error) = self.hand_on(stream, place, to) {
                tracing::warn!(%error, "an HTTP connection could not be handed on");
            }
            self.next.set((to + 1) % self.cores.inboxes.len());
            return;
        }
        let is_early = !self.early.hall().closing.has_begun();
        let door = if is_early { &self.early } else { &self.late };
        let door = door.clone();
        spawn_local(async move {
            // Connections stay here: this thread has no neighbours and no lot.
            let _ = welcome(stream, 0, door.clone()).await;
            door.hall().metrics.http_connections.less(1);
            drop(place);
        });
    }

    fn hand_on(&self, stream: TcpStream, place: OwnedSemaphorePermit, to: usize) -> io::Result<()> {
        let stream = stream.into_std()?;
        let arrival = HttpArrival { stream, place, moves: 0 };
        let _ = self.cores.inboxes[to].send(arrives(arrival));
        Ok(())
    }
}

/// HTTP on a core.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) door: Rc<Door>,
    pub(crate) cores: Arc<Cores>,
}

/// Has a core serve a connection of the HTTP port.
fn arrives(arrival: HttpArrival) -> Message {
    Message::call(|http: &Rc<HttpDoor>| {
        spawn_local(arrive(arrival, http.door.clone(), http.cores.clone()));
    })
}

/// Serves a connection on the thread of `door` until it ends, or leaves its task.
async fn arrive(arrival: HttpArrival, door: Rc<Door>, cores: Arc<Cores>) {
    let HttpArrival { stream, place, moves } = arrival;
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            let left = welcome(stream, moves, door.clone()).await;
            see_off(left, place, &door, &cores);
        }
        Err(error) => tracing::warn!(%error, "an HTTP connection could not be taken over"),
    }
}

/// Serves a connection that comes back from the lot. It was counted all the while.
pub(crate) async fn come_back(
    stream: net::TcpStream,
    place: OwnedSemaphorePermit,
    back: Back,
    door: Rc<Door>,
    cores: Arc<Cores>,
) {
    let left = match TcpStream::from_std(stream) {
        Ok(stream) => connection::go_on(Socket::new(stream), back, door.clone()).await,
        Err(error) => {
            tracing::warn!(%error, "an HTTP connection could not be taken over");
            None
        }
    };
    see_off(left, place, &door, &cores);
}

/// Has a connection go where it wants to, if it goes on.
fn see_off(left: Option<(Socket, Left)>, place: OwnedSemaphorePermit, door: &Door, cores: &Cores) {
    let left = left.and_then(|(stream, left)| stream.into_inner().into_std().ok().zip(Some(left)));
    if let Some((stream, Left::Parks(parking))) = left {
        return door.hall().lot.enter(Arriving { stream, place, parking });
    }
    door.hall().metrics.http_connections.less(1);
    if let Some((stream, Left::Moves(Departure { to, moves }))) = left {
        let arrival = HttpArrival { stream, place, moves };
        let _ = cores.inboxes[to].send(arrives(arrival));
    }
}

async fn welcome(stream: TcpStream, moves: u32, door: Rc<Door>) -> Option<(Socket, Left)> {
    let metrics = &door.hall().metrics;
    if moves == 0 {
        let _ = stream.set_nodelay(true);
        metrics.http_connections_opened.add(1);
    } else {
        metrics.http_connections_moved.add(1);
    }
    metrics.http_connections.add(1);
    connection::serve(Socket::new(stream), moves, door.clone()).await
}

//! The HTTP port: accepts connections, a limited number of them at once, and hands them round the cores.
//! While there are no cores to serve them, at the start and at the end, its own thread does.

use std::{io, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::{connection, door::Door, hall::Hall, moving::Departure, status::Status};
use crate::{arrival::HttpArrival, core::Cores, inbox::Message};

/// How long nobody is accepted after that has failed: those who are here have to leave first.
const REST: Duration = Duration::from_millis(50);

/// The port, from its first connection to the end of the broker.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    cores: Arc<Cores>,
    status: Arc<Status>,
    /// Serves those who come before the cores do.
    early: Rc<Door>,
    /// Serves those who come when they have ended.
    late: Rc<Door>,
    places: Arc<Semaphore>,
}

impl Port {
    pub(crate) fn new(
        listener: TcpListener,
        connections_max: usize,
        cores: Arc<Cores>,
        status: Arc<Status>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let door = || {
            let hall = Rc::new(Hall::new(cores.metrics[0].clone(), None));
            Rc::new(Door::new(hall, status.clone(), None))
        };
        let (early, late) = (door(), door());
        Self { listener, cores, status, early, late, places }
    }

    /// Where those are who come before the cores serve: then they are to come again.
    pub(crate) fn early(&self) -> Rc<Hall> {
        self.early.hall().clone()
    }

    /// Accepts for ever.
    pub(crate) async fn serve(self) {
        let mut next = 0;
        loop {
            let Ok(place) = self.places.clone().acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting on the HTTP port failed");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            if self.status.is_serving() {
                if let Err(error) = self.hand_on(stream, place, next) {
                    tracing::warn!(%error, "an HTTP connection could not be handed on");
                }
                next = (next + 1) % self.cores.inboxes.len();
                continue;
            }
            let is_early = !self.early.hall().closing.has_begun();
            let door = if is_early { &self.early } else { &self.late };
            let door = door.clone();
            tokio::task::spawn_local(async move {
                let _ = welcome(stream, 0, door).await;
                drop(place);
            });
        }
    }

    fn hand_on(&self, stream: TcpStream, place: OwnedSemaphorePermit, to: usize) -> io::Result<()> {
        let stream = stream.into_std()?;
        let arrival = HttpArrival { stream, place, moves: 0 };
        let _ = self.cores.inboxes[to].send(Message::HttpConnection(arrival));
        Ok(())
    }
}

/// Serves a connection on the thread of `door` until it ends, or leaves for another core.
pub(crate) async fn arrive(arrival: HttpArrival, door: Rc<Door>, cores: Arc<Cores>) {
    let HttpArrival { stream, place, moves } = arrival;
    let left = match TcpStream::from_std(stream) {
        Ok(stream) => welcome(stream, moves, door).await,
        Err(error) => {
            tracing::warn!(%error, "an HTTP connection could not be taken over");
            None
        }
    };
    if let Some((stream, Departure { to, moves })) = left
        && let Ok(stream) = stream.into_std()
    {
        let arrival = HttpArrival { stream, place, moves };
        let _ = cores.inboxes[to].send(Message::HttpConnection(arrival));
    }
}

async fn welcome(stream: TcpStream, moves: u32, door: Rc<Door>) -> Option<(TcpStream, Departure)> {
    let metrics = door.hall().metrics.clone();
    if moves == 0 {
        let _ = stream.set_nodelay(true);
        metrics.http_connections_opened.add(1);
    } else {
        metrics.http_connections_moved.add(1);
    }
    metrics.http_connections.add(1);
    let left = connection::serve(stream, moves, door).await;
    metrics.http_connections.less(1);
    left
}

//! Accepts connections and hands them round the cores. One listener for all: a fair share by count
//! beats a share by the kernel's hash where connections are few, as they are between services.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::net::TcpListener;

use crate::{arrival::Arrival, core::Cores, error::ServeError, inbox};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<std::net::TcpListener, ServeError> {
    let listen = || -> io::Result<std::net::TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        // A broker that starts again must not wait for the old one's connections to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|error| ServeError::Listen { address, error })
}

/// Accepts for ever, and gives each connection to the next core.
pub(crate) async fn accept(listener: TcpListener, cores: Arc<Cores>) {
    let mut next = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.into_std() {
                Ok(stream) => {
                    let arrival = Arrival { stream, moved: None };
                    let _ = cores.inboxes[next].send(inbox::Message::Connection(arrival));
                    next = (next + 1) % cores.inboxes.len();
                }
                Err(error) => tracing::warn!(%error, "a connection could not be handed on"),
            },
            Err(error) => {
                // No descriptors are left, say: those who are here have to leave first.
                tracing::warn!(%error, "accepting failed");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

//! Accepts connections while the process has descriptors for them. It does not know what they speak.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use rustix::net::sockopt::set_tcp_congestion;
use tokio::net::TcpListener;

use super::{
    error::ServeError,
    file_descriptors::FileDescriptors,
    tls_port::{HandshakeDue, TlsPort},
    wire::{WireAtRest, dial::UNPACED},
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// How long nobody is accepted where that failed: those who are here have to leave first.
const REST: Duration = Duration::from_millis(50);

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<std::net::TcpListener, ServeError> {
    let listen = || -> io::Result<std::net::TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        // A broker that starts again must not wait for the old one's connections to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        if address.ip().is_loopback() {
            // Its connections inherit it.
            let _ = set_tcp_congestion(&socket, UNPACED);
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|error| ServeError::Listen { address, error })
}

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    descriptors: FileDescriptors,
    /// None on a plain port.
    tls: Option<Rc<TlsPort>>,
}

impl Listener {
    pub(crate) fn new(
        socket: std::net::TcpListener,
        descriptors: FileDescriptors,
        tls: Option<Rc<TlsPort>>,
    ) -> Result<Self, ServeError> {
        let socket = TcpListener::from_std(socket).map_err(ServeError::system("listen"))?;
        Ok(Self { socket, descriptors, tls })
    }

    /// The handshake of a connection that comes now.
    fn due(&self) -> Option<Arc<HandshakeDue>> {
        self.tls.as_ref().map(|tls| tls.due())
    }

    /// The next connection that there is room for; the others are closed.
    pub(crate) async fn accept(&self) -> WireAtRest {
        loop {
            let accepted = self.socket.accept().await;
            match accepted.and_then(|(stream, _)| WireAtRest::of_accepted(stream, self.due())) {
                Ok(wire) if self.descriptors.have_room_for(&wire) => return wire,
                Ok(_) => tracing::warn!("a connection was closed: too few descriptors are left"),
                Err(error) => tracing::warn!(%error, "accepting failed"),
            }
            tokio::time::sleep(REST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[test]
    fn what_is_sent_within_this_machine_is_not_paced() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert_eq!(tcp_congestion(&far).unwrap(), UNPACED);
    }
}

//! Wires that this broker dials, and the options of their sockets.

use std::io;

use rustix::net::sockopt::set_tcp_congestion;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::Wire;

/// The congestion control of connections within this machine: there is no line to be fair to, and one that paces what it
/// sends (bbr) holds up who reads. A system without it keeps its own: slower, and no less right.
pub(in crate::runtime) const UNPACED: &str = "reno";

impl Wire {
    /// The wire of a connection to this address, `host:port`. It is plain.
    pub(crate) async fn dial(address: &str) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        if tcp.peer_addr()?.ip().is_loopback() {
            let _ = set_tcp_congestion(&tcp, UNPACED);
        }
        Ok(Self { tcp, codec: None, due: None })
    }

    /// Has the system take no more of what is written while it holds so many bytes that it has not sent, where it can do
    /// that: then what comes later can be sent first.
    pub(crate) fn set_not_sent_bytes(&self, bytes: u32) {
        let _ = SockRef::from(&self.tcp).set_tcp_notsent_lowat(bytes);
    }
}

//! The wire of a connection that was accepted: where its bytes come from and go to. It is the only file that knows
//! what carries them, which is plain TCP. It knows no frames and no requests.
//!
//! A [`Wire`] is registered with the runtime of one core. A [`WireAtRest`] is registered nowhere: it can be sent to
//! another core, and is kept as it is by connections that are parked. A wire in two halves is read by one task and
//! written by another.
//!
//! TLS will make an enum of the `tcp` field in each of these types, whose second variant has the codec beside the
//! stream. Then a wire at rest keeps its codec: the keys, the part of a record that has come, and the records that
//! the socket has not taken. A wire is readable too while its codec holds bytes that nobody has read; before one is
//! parked, there must be none. [`TakesNow::take`] counts the bytes that the codec has taken, and sends the records
//! that wait before it takes more. The two halves share one codec.

use std::{
    io::{self, IoSlice, Write as _},
    net,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll},
};

use rustix::net::{SendFlags, send};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::write_buffer::TakesNow;

/// A connection's wire, registered with the runtime of the thread that serves it.
#[derive(Debug)]
pub(crate) struct Wire {
    tcp: TcpStream,
}

impl Wire {
    /// Takes the wire from its runtime.
    pub(crate) fn deregister(self) -> io::Result<WireAtRest> {
        Ok(WireAtRest { tcp: self.tcp.into_std()? })
    }

    /// Has small writes go out at once, where the system can do that.
    pub(crate) fn set_nodelay(&self) {
        let _ = self.tcp.set_nodelay(true);
    }

    /// The wire for a write before the system reports that it is writable.
    pub(crate) fn eager(&mut self) -> EagerWire<'_> {
        EagerWire { tcp: &self.tcp }
    }

    /// One half for a task that reads, one for a task that writes.
    pub(crate) fn into_split(self) -> (WireReader, WireWriter) {
        let (reading, writing) = self.tcp.into_split();
        (WireReader { tcp: reading }, WireWriter { tcp: writing })
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, read)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

/// A connection's wire that no runtime knows: on its way to a core, or parked there.
#[derive(Debug)]
pub(crate) struct WireAtRest {
    /// It does not block.
    tcp: net::TcpStream,
}

impl WireAtRest {
    /// The wire of a connection that was accepted just now.
    pub(crate) fn of_accepted(stream: TcpStream) -> io::Result<Self> {
        Wire { tcp: stream }.deregister()
    }

    /// Registers the wire with the runtime of this thread.
    pub(crate) fn register(self) -> io::Result<Wire> {
        Ok(Wire { tcp: TcpStream::from_std(self.tcp)? })
    }
}

/// The descriptor by which the system says that something has come.
impl AsFd for WireAtRest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl TakesNow for WireAtRest {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.write(bytes)
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tcp.write_vectored(slices)
    }
}

/// The half of a wire that is read.
#[derive(Debug)]
pub(crate) struct WireReader {
    tcp: OwnedReadHalf,
}

impl WireReader {
    /// Waits until there is something to read, or the end.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.tcp.readable().await
    }

    /// The wire again, of its two halves; `None` if they are not of one wire.
    pub(crate) fn reunite(self, writing: WireWriter) -> Option<Wire> {
        Some(Wire { tcp: self.tcp.reunite(writing.tcp).ok()? })
    }
}

impl AsyncRead for WireReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, read)
    }
}

/// The half of a wire that is written. Dropped, it tells the client that nothing more comes.
#[derive(Debug)]
pub(crate) struct WireWriter {
    tcp: OwnedWriteHalf,
}

impl WireWriter {
    /// Waits until the system says that the wire takes something.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// The wire for a write before the system reports that it is writable.
    pub(crate) fn eager(&mut self) -> EagerWire<'_> {
        EagerWire { tcp: self.tcp.as_ref() }
    }
}

impl TakesNow for WireWriter {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.try_write(bytes)
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tcp.try_write_vectored(slices)
    }
}

/// A wire for writes before the system reports that it is writable. The system does so only once a third of
/// the socket's buffer is free, which takes minutes with a slow client, although the client takes bytes.
#[derive(Debug)]
pub(crate) struct EagerWire<'a> {
    tcp: &'a TcpStream,
}

impl TakesNow for EagerWire<'_> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.take(slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;

    use super::*;

    /// A client, another hold on the socket that it is connected to, and the wire of that.
    pub(crate) fn connected() -> (net::TcpStream, net::TcpStream, WireAtRest) {
        let listener = net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_nonblocking(true).unwrap();
        (client, tcp.try_clone().unwrap(), WireAtRest { tcp })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_takes_a_little_is_given_more_before_the_system_says_that_there_is_room()
    {
        let (mut client, _hold, wire) = connected();
        let (_reading, mut wire) = wire.register().unwrap().into_split();
        let piece = vec![b'x'; 64 << 10];
        wire.writable().await.unwrap();
        while wire.take(&piece).is_ok() || wire.eager().take(&piece).is_ok() {}
        assert_eq!(wire.eager().take(&piece).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut taken = 0;
        let given = loop {
            taken += client.read(&mut [0; 16 << 10]).unwrap();
            match wire.eager().take_slices(&[IoSlice::new(&[]), IoSlice::new(&piece)]) {
                Ok(given) => break given,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        assert!(given > 0);
        assert_eq!(wire.take(&piece).unwrap_err().kind(), io::ErrorKind::WouldBlock, "{taken}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_wire_comes_to_rest_and_goes_on_with_what_it_was_sent() {
        let (mut client, _hold, wire) = connected();
        let (reading, writing) = wire.register().unwrap().into_split();
        client.write_all(b"asked").unwrap();
        reading.readable().await.unwrap();
        let mut wire = reading.reunite(writing).unwrap().deregister().unwrap();
        assert_eq!(wire.take(b"told").unwrap(), 4);
        let mut told = [0; 4];
        client.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"told");
        let mut asked = [0; 5];
        let mut wire = wire.register().unwrap();
        tokio::io::AsyncReadExt::read_exact(&mut wire, &mut asked).await.unwrap();
        assert_eq!(&asked, b"asked");
    }
}

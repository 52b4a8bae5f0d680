//! The wire of a connection that was accepted: where its bytes come from and go to. It is the only file that knows
//! what carries them: TCP, plain or with TLS on it. It knows no frames and no requests.
//!
//! A [`Wire`] is registered with the runtime of one core. A [`WireAtRest`] is registered nowhere: it can be sent to
//! another core, and is kept as it is by connections that are parked. A wire in two halves is read by one task and
//! written by another.
//!
//! A wire with TLS has a codec beside its stream; the halves share it, and a wire at rest keeps it: the keys, the part
//! of a record that has come, and the records that the socket has not taken. Such a wire is readable too while its
//! codec holds bytes that nobody has read ([`WireAtRest::holds_unread`]). Bytes count as taken when the socket has
//! taken their records, so a writer that has nothing left to write leaves nothing in the codec. A wire on which the
//! handshake is due carries nothing before that is done, by `handshake`.

pub(super) mod dial;

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice, Read as _, Write as _},
    net::{self, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::BufMut;
use rustix::net::{SendFlags, send};
use sennit_tls::{Codec, TlsFault};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{peer::Peer, tls_port::HandshakeDue, write_buffer::TakesNow};

/// Room for the records of one read, which all wires of a thread share, and the least that is read.
const RECORDS_BYTES: usize = 64 << 10;
const RECORDS_BYTES_MIN: usize = 4 << 10;

thread_local! {
    /// What was read last of any wire with TLS, until its codec has taken it.
    static RECORDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The codec of a wire, shared by its halves.
type SharedCodec = Rc<RefCell<Box<Codec>>>;

/// A connection's wire, registered with the runtime of the thread that serves it.
#[derive(Debug)]
pub(crate) struct Wire {
    tcp: TcpStream,
    /// None on a plain wire.
    codec: Option<SharedCodec>,
    /// The handshake that has to come first.
    due: Option<Arc<HandshakeDue>>,
}

impl Wire {
    /// Takes the wire from its runtime.
    pub(crate) fn deregister(self) -> io::Result<WireAtRest> {
        let codec = self.codec.map(alone).transpose()?;
        Ok(WireAtRest { tcp: self.tcp.into_std()?, codec, due: self.due })
    }

    /// Has small writes go out at once, where the system can do that.
    pub(crate) fn set_nodelay(&self) {
        let _ = self.tcp.set_nodelay(true);
    }

    /// The wire for a write before the system reports that it is writable.
    pub(crate) fn eager(&mut self) -> EagerWire<'_> {
        EagerWire { tcp: &self.tcp, codec: self.codec.as_deref() }
    }

    /// One half for a task that reads, one for a task that writes.
    pub(crate) fn into_split(self) -> (WireReader, WireWriter) {
        let (reading, writing) = self.tcp.into_split();
        let codec = self.codec;
        (WireReader { tcp: reading, codec: codec.clone() }, WireWriter { tcp: writing, codec })
    }

    /// The address of the client, as the system knows it; `None` once the connection is gone.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.tcp.peer_addr().ok()
    }

    /// The peer of the connection, once the handshake is done.
    pub(crate) fn peer(&self) -> Peer {
        let certificate = self.codec.as_ref().and_then(|codec| {
            codec.borrow().peer_certificate().map(|certificate| certificate.as_ref().into())
        });
        Peer::new(self.peer_address().map(|address| address.ip()), certificate)
    }

    /// The handshake that has to come before anything else.
    pub(super) fn due(&self) -> Option<&Arc<HandshakeDue>> {
        self.due.as_ref()
    }

    /// Goes on with this codec: the handshake begins.
    pub(super) fn begin_tls(&mut self, codec: Codec) {
        self.codec = Some(Rc::new(RefCell::new(Box::new(codec))));
        self.due = None;
    }

    /// The client speaks no TLS, or none that is understood: what is read and written from now on is plain.
    pub(super) fn stay_plain(&mut self) {
        self.codec = None;
        self.due = None;
    }

    /// Waits for the first bytes, and looks at them; they are read again. None at the end.
    pub(super) async fn peek(&self, first: &mut [u8]) -> io::Result<usize> {
        self.tcp.peek(first).await
    }

    /// Waits until the handshake is done.
    pub(super) async fn shake_hands(&mut self) -> io::Result<()> {
        let Some(codec) = self.codec.clone() else { return Ok(()) };
        poll_fn(|context| {
            loop {
                let mut codec = codec.borrow_mut();
                ready!(poll_flush(&mut codec, &self.tcp, context))?;
                if !codec.is_handshaking() {
                    return Poll::Ready(Ok(()));
                }
                if codec.has_ended() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                // Nobody reads before it is done: the codec keeps what comes behind it.
                let mut none: &mut [u8] = &mut [];
                let read = poll_records(&mut codec, Pin::new(&mut self.tcp), context, &mut none);
                if let Err(error) = ready!(read) {
                    let _ = codec.flush(|bytes| self.tcp.try_write(bytes));
                    return Poll::Ready(Err(error));
                }
            }
        })
        .await
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &this.codec {
            None => this.poll_read_plain(context, read),
            Some(codec) => {
                let mut codec = codec.borrow_mut();
                let read = poll_read(&mut codec, Pin::new(&mut this.tcp), context, read);
                send_pending(&mut codec, &this.tcp, context);
                read
            }
        }
    }
}

impl Wire {
    fn poll_read_plain(
        &mut self,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        debug_assert!(self.due.is_none(), "the handshake comes first");
        Pin::new(&mut self.tcp).poll_read(context, read)
    }

    fn poll_take(
        &self,
        codec: &RefCell<Box<Codec>>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match codec.borrow_mut().take(slices, |bytes| self.tcp.try_write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(context))?;
                }
                taken => return Poll::Ready(taken),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &self.codec {
            None => Pin::new(&mut self.tcp).poll_write(context, bytes),
            Some(codec) => self.poll_take(codec, context, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.codec {
            None => Pin::new(&mut self.tcp).poll_flush(context),
            Some(codec) => poll_flush(&mut codec.borrow_mut(), &self.tcp, context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(codec) = &self.codec {
            let mut codec = codec.borrow_mut();
            codec.close();
            ready!(poll_flush(&mut codec, &self.tcp, context))?;
        }
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &self.codec {
            None => Pin::new(&mut self.tcp).poll_write_vectored(context, slices),
            Some(codec) => self.poll_take(codec, context, slices),
        }
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
    codec: Option<Box<Codec>>,
    due: Option<Arc<HandshakeDue>>,
}

impl WireAtRest {
    /// The wire of a connection that was accepted just now, on which this handshake is due.
    pub(crate) fn of_accepted(
        stream: TcpStream,
        due: Option<Arc<HandshakeDue>>,
    ) -> io::Result<Self> {
        Wire { tcp: stream, codec: None, due }.deregister()
    }

    /// The address of the client, as the system knows it; `None` once the connection is gone. Costs a call of the system.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.tcp.peer_addr().ok()
    }

    /// Registers the wire with the runtime of this thread.
    pub(crate) fn register(self) -> io::Result<Wire> {
        let codec = self.codec.map(|codec| Rc::new(RefCell::new(codec)));
        Ok(Wire { tcp: TcpStream::from_std(self.tcp)?, codec, due: self.due })
    }

    /// Reads what has come, and says how much: `None` if that is nothing, or less than a record of TLS; 0 at the end.
    pub(crate) fn read_now(&mut self, into: &mut impl BufMut) -> io::Result<Option<usize>> {
        let before = into.remaining_mut();
        let tcp = &self.tcp;
        let read = |room: &mut [u8]| match (&mut &*tcp).read(room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        };
        RECORDS.with_borrow_mut(|room| {
            room.resize(RECORDS_BYTES, 0);
            let wanted = before.clamp(RECORDS_BYTES_MIN, RECORDS_BYTES);
            let Some(codec) = &mut self.codec else {
                let Some(count) = read(&mut room[..wanted.min(before)])? else { return Ok(None) };
                into.put_slice(&room[..count]);
                return Ok(Some(count));
            };
            codec.read(into).map_err(broken)?;
            while into.remaining_mut() == before && !codec.has_ended() {
                let Some(count) = read(&mut room[..wanted])? else { return Ok(None) };
                match &room[..count] {
                    [] => codec.end(),
                    records => codec.feed(records, into).map_err(broken)?,
                }
                if codec.has_pending() {
                    // What it does not take now goes before what is written next.
                    let _ = codec.flush(|bytes| (&mut &*tcp).write(bytes));
                }
            }
            Ok(Some(before - into.remaining_mut()))
        })
    }

    /// Whether there is no TLS on it. Bytes that a plain wire has not taken need not be offered again.
    pub(crate) fn is_plain(&self) -> bool {
        self.codec.is_none()
    }

    /// Nothing more is written: its client receives the end behind what was.
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        if let Some(codec) = &mut self.codec {
            codec.close();
            codec.flush(|bytes| (&self.tcp).write(bytes))?;
        }
        self.tcp.shutdown(net::Shutdown::Write)
    }

    /// Whether something has come that nobody has read and that the system does not report: it lies in the codec.
    pub(crate) fn holds_unread(&mut self) -> bool {
        self.codec.as_mut().is_some_and(|codec| codec.has_unread() || codec.has_ended())
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
        match &mut self.codec {
            None => self.tcp.write(bytes),
            Some(codec) => codec.take(&[IoSlice::new(bytes)], |bytes| (&self.tcp).write(bytes)),
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.codec {
            None => self.tcp.write_vectored(slices),
            Some(codec) => codec.take(slices, |bytes| (&self.tcp).write(bytes)),
        }
    }
}

/// The half of a wire that is read.
#[derive(Debug)]
pub(crate) struct WireReader {
    tcp: OwnedReadHalf,
    codec: Option<SharedCodec>,
}

impl WireReader {
    /// Waits until there is something to read, or the end. With TLS, what there is may be less than a record.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if let Some(codec) = &self.codec {
            let mut codec = codec.borrow_mut();
            if codec.has_unread() || codec.has_ended() {
                return Ok(());
            }
        }
        self.tcp.readable().await
    }

    /// Reads what has come, and says how much; `None` if that is nothing, or less than a record.
    pub(crate) async fn read_now(&mut self, into: &mut impl BufMut) -> io::Result<Option<usize>> {
        let mut reading = pin!(self.read_buf(into));
        poll_fn(|context| match reading.as_mut().poll(context) {
            Poll::Ready(read) => Poll::Ready(read.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        })
        .await
    }

    /// The wire again, of its two halves; `None` if they are not of one wire.
    pub(crate) fn reunite(self, writing: WireWriter) -> Option<Wire> {
        drop(writing.codec);
        Some(Wire { tcp: self.tcp.reunite(writing.tcp).ok()?, codec: self.codec, due: None })
    }
}

impl AsyncRead for WireReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &this.codec {
            None => Pin::new(&mut this.tcp).poll_read(context, read),
            Some(codec) => {
                let mut codec = codec.borrow_mut();
                let read = poll_read(&mut codec, Pin::new(&mut this.tcp), context, read);
                send_pending(&mut codec, this.tcp.as_ref(), context);
                read
            }
        }
    }
}

/// The half of a wire that is written. Dropped, it tells the client that nothing more comes.
#[derive(Debug)]
pub(crate) struct WireWriter {
    tcp: OwnedWriteHalf,
    codec: Option<SharedCodec>,
}

impl WireWriter {
    /// Waits until the system says that the wire takes something.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// The wire for a write before the system reports that it is writable.
    pub(crate) fn eager(&mut self) -> EagerWire<'_> {
        EagerWire { tcp: self.tcp.as_ref(), codec: self.codec.as_deref() }
    }

    /// Says that all was said. Without it the end of a wire with TLS could be the work of somebody in between.
    pub(crate) fn say_goodbye(self) {
        if let Some(codec) = &self.codec {
            let mut codec = codec.borrow_mut();
            codec.close();
            let _ = codec.flush(|bytes| self.tcp.try_write(bytes));
        }
    }
}

impl TakesNow for WireWriter {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.codec {
            None => self.tcp.try_write(bytes),
            Some(codec) => {
                let sink = |bytes: &[u8]| self.tcp.try_write(bytes);
                codec.borrow_mut().take(&[IoSlice::new(bytes)], sink)
            }
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.codec {
            None => self.tcp.try_write_vectored(slices),
            Some(codec) => codec.borrow_mut().take(slices, |bytes| self.tcp.try_write(bytes)),
        }
    }
}

/// A wire for writes before the system reports that it is writable. The system does so only once a third of
/// the socket's buffer is free, which takes minutes with a slow client, although the client takes bytes.
#[derive(Debug)]
pub(crate) struct EagerWire<'a> {
    tcp: &'a TcpStream,
    codec: Option<&'a RefCell<Box<Codec>>>,
}

impl TakesNow for EagerWire<'_> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sink =
            |bytes: &[u8]| Ok(send(self.tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?);
        match self.codec {
            None => sink(bytes),
            Some(codec) => codec.borrow_mut().take(&[IoSlice::new(bytes)], sink),
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.take(slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice))
    }
}

/// The codec of a wire that is not in halves.
fn alone(codec: SharedCodec) -> io::Result<Box<Codec>> {
    let shared = |_| io::Error::other("the other half of the wire is in use");
    Rc::try_unwrap(codec).map(RefCell::into_inner).map_err(shared)
}

/// Reads plain bytes, at least one if it is ready and not at the end.
fn poll_read(
    codec: &mut Codec,
    mut tcp: Pin<&mut impl AsyncRead>,
    context: &mut Context<'_>,
    read: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let before = read.filled().len();
    codec.read(read).map_err(broken)?;
    while read.filled().len() == before && read.remaining() > 0 && !codec.has_ended() {
        ready!(poll_records(codec, tcp.as_mut(), context, read))?;
    }
    Poll::Ready(Ok(()))
}

/// Has the codec take some records that have come, and reads what is in them, as far as there is room.
fn poll_records(
    codec: &mut Codec,
    tcp: Pin<&mut impl AsyncRead>,
    context: &mut Context<'_>,
    out: &mut impl BufMut,
) -> Poll<io::Result<()>> {
    RECORDS.with_borrow_mut(|room| {
        room.resize(RECORDS_BYTES, 0);
        let wanted = out.remaining_mut().clamp(RECORDS_BYTES_MIN, RECORDS_BYTES);
        let mut records = ReadBuf::new(&mut room[..wanted]);
        ready!(tcp.poll_read(context, &mut records))?;
        match records.filled() {
            [] => codec.end(),
            records => codec.feed(records, out).map_err(broken)?,
        }
        Poll::Ready(Ok(()))
    })
}

/// Sends what the codec has to say by itself, as far as the socket takes it; the rest goes before what is written next.
fn send_pending(codec: &mut Codec, tcp: &TcpStream, context: &mut Context<'_>) {
    if codec.has_pending()
        && let Poll::Ready(Err(error)) = poll_flush(codec, tcp, context)
    {
        tracing::debug!(%error, "a connection took no more");
    }
}

fn poll_flush(
    codec: &mut Codec,
    tcp: &TcpStream,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        match codec.flush(|bytes| tcp.try_write(bytes)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(tcp.poll_write_ready(context))?;
            }
            flushed => return Poll::Ready(flushed),
        }
    }
}

fn broken(fault: TlsFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

#[cfg(test)]
pub(crate) mod tests {
    mod tls;

    use std::io::Read as _;

    use super::*;

    /// A client, another hold on the socket that it is connected to, and the wire of that.
    pub(crate) fn connected() -> (net::TcpStream, net::TcpStream, WireAtRest) {
        let listener = net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_nonblocking(true).unwrap();
        (client, tcp.try_clone().unwrap(), WireAtRest { tcp, codec: None, due: None })
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

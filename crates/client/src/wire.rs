//! The carrier of a session's bytes: TCP, plain or with TLS on it. It knows no frames. A plain one costs nothing more
//! than its socket.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use sennit_tls::{Codec, TlsFault};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
};

/// Room for the records of one read.
const RECORDS_BYTES: usize = 64 << 10;

/// The stream of a session.
pub(crate) struct Wire {
    tcp: TcpStream,
    /// None on a plain stream.
    tls: Option<Mutex<Tls>>,
}

/// The codec of a stream, and room for the records that come.
struct Tls {
    codec: Codec,
    records: Box<[u8]>,
}

impl Wire {
    /// A stream without TLS.
    pub(crate) fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    /// A stream that has shaken hands. May be cancelled.
    pub(crate) async fn secure(tcp: TcpStream, codec: Codec) -> io::Result<Self> {
        let tls = Tls { codec, records: vec![0; RECORDS_BYTES].into() };
        let mut this = Self { tcp, tls: Some(Mutex::new(tls)) };
        let (mut reader, writer) = this.split();
        poll_fn(|context| {
            let Some(tls) = reader.tls else { return Poll::Ready(Ok(())) };
            loop {
                let mut tls = lock(tls);
                ready!(poll_flush(&mut tls.codec, writer.tcp.as_ref(), context))?;
                if !tls.codec.is_handshaking() {
                    return Poll::Ready(Ok(()));
                }
                if tls.codec.has_ended() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                let mut none: &mut [u8] = &mut [];
                let read = tls.poll_records(Pin::new(&mut reader.tcp), context, &mut none);
                if let Err(error) = ready!(read) {
                    let _ = tls.codec.flush(|bytes| writer.tcp.try_write(bytes));
                    return Poll::Ready(Err(error));
                }
            }
        })
        .await?;
        Ok(this)
    }

    /// One half that reads, one that writes.
    pub(crate) fn split(&mut self) -> (WireReader<'_>, WireWriter<'_>) {
        let (reading, writing) = self.tcp.split();
        let tls = self.tls.as_ref();
        (WireReader { tcp: reading, tls }, WireWriter { tcp: writing, tls })
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let (_, writer) = self.split();
        while !bytes.is_empty() {
            match writer.try_write_vectored(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    writer.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Tls {
    /// Has the codec take some records that have come, and reads what is in them, as far as there is room.
    fn poll_records(
        &mut self,
        tcp: Pin<&mut ReadHalf<'_>>,
        context: &mut Context<'_>,
        out: &mut impl bytes::BufMut,
    ) -> Poll<io::Result<()>> {
        let mut records = ReadBuf::new(&mut self.records);
        ready!(tcp.poll_read(context, &mut records))?;
        match records.filled() {
            [] => self.codec.end(),
            records => self.codec.feed(records, out).map_err(broken)?,
        }
        Poll::Ready(Ok(()))
    }
}

/// The half of a stream that reads.
pub(crate) struct WireReader<'a> {
    tcp: ReadHalf<'a>,
    tls: Option<&'a Mutex<Tls>>,
}

impl WireReader<'_> {
    /// Looks at what has come on a plain stream.
    #[cfg(test)]
    pub(crate) async fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.tcp.peek(into).await
    }

    /// Waits until there is something to read, or the end. With TLS, what there is may be less than a record.
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = self.tls {
            let mut tls = lock(tls);
            if tls.codec.has_unread() || tls.codec.has_ended() {
                return Poll::Ready(Ok(()));
            }
        }
        self.tcp.as_ref().poll_read_ready(context)
    }
}

impl AsyncRead for WireReader<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(tls) = this.tls else {
            return Pin::new(&mut this.tcp).poll_read(context, read);
        };
        let mut tls = lock(tls);
        let before = read.filled().len();
        tls.codec.read(read).map_err(broken)?;
        while read.filled().len() == before && read.remaining() > 0 && !tls.codec.has_ended() {
            let polled = tls.poll_records(Pin::new(&mut this.tcp), context, read);
            if tls.codec.has_pending() {
                // What the codec says by itself goes out now, or before what is written next.
                let _ = poll_flush(&mut tls.codec, this.tcp.as_ref(), context);
            }
            ready!(polled)?;
        }
        Poll::Ready(Ok(()))
    }
}

/// The half of a stream that writes.
pub(crate) struct WireWriter<'a> {
    tcp: WriteHalf<'a>,
    tls: Option<&'a Mutex<Tls>>,
}

impl WireWriter<'_> {
    /// Writes what the socket takes without waiting. After an error of the kind `WouldBlock` the same bytes come next.
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.tls {
            None => self.tcp.try_write_vectored(slices),
            Some(tls) => lock(tls).codec.take(slices, |bytes| self.tcp.try_write(bytes)),
        }
    }

    /// Waits until the socket takes something.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    /// Says that nothing more comes.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = self.tls {
            let codec = &mut lock(tls).codec;
            codec.close();
            // A goodbye that the socket does not take at once is not waited for.
            let _ = codec.flush(|bytes| self.tcp.try_write(bytes));
        }
        self.tcp.shutdown().await
    }
}

/// The halves of a stream are of one task, so nobody waits for the lock.
fn lock(tls: &Mutex<Tls>) -> MutexGuard<'_, Tls> {
    tls.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Reads into `input`; at least one byte, unless it is the end.
pub(crate) async fn read_some(wire: &mut Wire, input: &mut bytes::BytesMut) -> io::Result<usize> {
    wire.split().0.read_buf(input).await
}

fn broken(fault: TlsFault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

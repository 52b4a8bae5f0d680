//! The wire of an HTTP connection. A write to a slow client continues as long as the client takes bytes, whatever
//! the system reports. It knows no HTTP.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::runtime::{
    wire::{EagerWire, Wire},
    write_buffer::TakesNow,
};

/// How often a socket is tried that is said to take nothing: far more often than a client is given up, and no
/// more than that, for whoever is fast has its turn when the system says so.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// The wire of an HTTP connection.
pub(crate) struct Socket {
    wire: Wire,
    tried_at: Instant,
}

impl Socket {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, tried_at: Instant::now() }
    }

    pub(crate) fn into_inner(self) -> Wire {
        self.wire
    }

    /// The result of a polled write; if that is pending, from time to time that of an eager one.
    fn or_eager_write(
        &mut self,
        polled: Poll<io::Result<usize>>,
        write: impl FnOnce(EagerWire<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() || self.tried_at.elapsed() < TRY_EVERY {
            return polled;
        }
        self.tried_at = Instant::now();
        match write(self.wire.eager()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            written => Poll::Ready(written),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_read(context, read)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.wire).poll_write(context, bytes);
        self.or_eager_write(polled, |mut wire| wire.take(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.wire).poll_write_vectored(context, slices);
        self.or_eager_write(polled, |mut wire| wire.take_slices(slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        io::{Read as _, Write as _},
    };

    use tokio::{io::AsyncWriteExt as _, time::advance};

    use super::*;
    use crate::runtime::wire::tests::connected;

    /// What the socket takes now of a piece; none if it is said to take nothing.
    async fn taken(socket: &mut Socket) -> Option<usize> {
        let piece = vec![b'x'; 64 << 10];
        poll_fn(|context| {
            let written = Pin::new(&mut *socket).poll_write(context, &piece);
            Poll::Ready(match written {
                Poll::Ready(count) => Some(count.unwrap()),
                Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_socket_that_is_said_to_take_nothing_is_tried_now_and_then() {
        let (mut client, mut hold, wire) = connected();
        let mut socket = Socket::new(wire.register().unwrap());
        socket.write_all(b"x").await.unwrap();
        while taken(&mut socket).await.is_some() {}
        while hold.write(b"x").is_err() {
            let _ = client.read(&mut [0; 16 << 10]).unwrap();
        }
        assert_eq!(taken(&mut socket).await, None, "nobody has said so, and it is early");
        advance(TRY_EVERY).await;
        assert!(taken(&mut socket).await.is_some_and(|count| count > 0));
    }
}

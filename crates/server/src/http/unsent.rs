//! The bytes that a connection has to send and its socket has not taken yet. It knows no requests.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use crate::runtime::write_buffer::{SLICES_MAX, WriteBuffer};

/// What the socket has not taken.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    bytes: WriteBuffer,
    /// So many of them it has taken since they were kept.
    taken: usize,
}

impl From<WriteBuffer> for Unsent {
    fn from(bytes: WriteBuffer) -> Self {
        Self { bytes, taken: 0 }
    }
}

impl Unsent {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Sends `out` where nothing waits before it, and keeps what the socket does not take.
    pub(crate) fn send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        out: &WriteBuffer,
    ) -> io::Result<()> {
        let mut taken = 0;
        while taken < out.len() {
            match poll_write(stream, context, out, taken) {
                Poll::Ready(count) => taken += count?,
                Poll::Pending => {
                    *self = out.rest(taken).into();
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sends what waits; says whether the socket has taken some of it.
    pub(crate) fn flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        let before = self.taken;
        while !self.is_empty() {
            match poll_write(stream, context, &self.bytes, self.taken) {
                Poll::Ready(count) => self.taken += count?,
                Poll::Pending => return Ok(self.taken > before),
            }
        }
        let has_sent = self.taken > before;
        if has_sent {
            *self = Self::default();
        }
        Ok(has_sent)
    }
}

/// Writes once, behind the first `taken` bytes.
fn poll_write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    out: &WriteBuffer,
    taken: usize,
) -> Poll<io::Result<usize>> {
    let mut stream = Pin::new(stream);
    let count = match out.plain(taken) {
        Some(bytes) => ready!(stream.as_mut().poll_write(context, bytes))?,
        None => {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = out.slices(taken, &mut slices);
            ready!(stream.as_mut().poll_write_vectored(context, &slices[..count]))?
        }
    };
    if count == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    Poll::Ready(Ok(count))
}

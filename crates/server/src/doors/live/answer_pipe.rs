//! The way of bytes from a live connection into the body of the HTTP answer that it is: bounded, so that a client that
//! takes nothing blocks it as a socket would. Both ends are on one thread. It knows no messages.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{connection_id::ConnectionId, limits::PIPE_BYTES_MAX};
use crate::{http::body::Pieces, runtime::write_buffer::TakesNow};

/// What a pipe tells the loop of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeEvent {
    /// There is room again.
    Room,
    /// The client has gone.
    Gone,
}

/// What the pipes of a core have to tell, and the bell that is rung for it.
#[derive(Debug)]
pub(crate) struct PipeEvents {
    told: RefCell<Vec<(ConnectionId, PipeEvent)>>,
    notify: Rc<Notify>,
}

impl PipeEvents {
    /// Events for which this bell is rung.
    pub(crate) fn new(notify: Rc<Notify>) -> Self {
        Self { told: RefCell::default(), notify }
    }

    pub(crate) fn take(&self) -> Vec<(ConnectionId, PipeEvent)> {
        self.told.take()
    }

    fn tell(&self, connection: ConnectionId, event: PipeEvent) {
        self.told.borrow_mut().push((connection, event));
        self.notify.notify_one();
    }
}

/// What both ends share.
#[derive(Debug, Default)]
struct Pipe {
    bytes: Vec<u8>,
    /// Whether a write found no room.
    is_blocked: bool,
    /// Whether nothing more is written.
    is_ended: bool,
    /// Whether nothing more is read.
    is_gone: bool,
    reader: Option<Waker>,
    /// Whom to tell, once there is a connection.
    tells: Option<(ConnectionId, Rc<PipeEvents>)>,
}

impl Pipe {
    fn tell(&self, event: PipeEvent) {
        if let Some((connection, events)) = &self.tells {
            events.tell(*connection, event);
        }
    }
}

/// The end into which a connection writes. Dropped, the answer ends behind what was written.
#[derive(Debug)]
pub(crate) struct PipeWriter(Rc<RefCell<Pipe>>);

/// The end that is the body of an answer.
#[derive(Debug)]
pub(crate) struct PipeReader(Rc<RefCell<Pipe>>);

/// A pipe with nothing in it.
pub(crate) fn pipe() -> (PipeWriter, PipeReader) {
    let pipe = Rc::<RefCell<Pipe>>::default();
    (PipeWriter(pipe.clone()), PipeReader(pipe))
}

impl PipeWriter {
    /// From now on its events are told of this connection.
    pub(crate) fn tell(&self, connection: ConnectionId, events: Rc<PipeEvents>) {
        let mut pipe = self.0.borrow_mut();
        pipe.tells = Some((connection, events));
        if pipe.is_gone {
            pipe.tell(PipeEvent::Gone);
        }
    }
}

impl TakesNow for PipeWriter {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take_slices(&[IoSlice::new(bytes)])
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.0.borrow_mut();
        if pipe.is_gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = pipe.bytes.len();
        for slice in slices {
            let room = PIPE_BYTES_MAX - pipe.bytes.len();
            pipe.bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let taken = pipe.bytes.len() - before;
        if taken == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            pipe.is_blocked = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        Ok(taken)
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut pipe = self.0.borrow_mut();
        pipe.is_ended = true;
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }
}

impl Pieces<Bytes> for PipeReader {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.bytes.is_empty() {
            if pipe.is_ended {
                return Poll::Ready(None);
            }
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        // At rest it holds nothing.
        let piece = std::mem::take(&mut pipe.bytes).into();
        if std::mem::take(&mut pipe.is_blocked) {
            pipe.tell(PipeEvent::Room);
        }
        Poll::Ready(Some(piece))
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut pipe = self.0.borrow_mut();
        pipe.is_gone = true;
        pipe.bytes = Vec::new();
        pipe.tell(PipeEvent::Gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ConnectionId = ConnectionId { slot: 7, generation: 1 };

    fn read(reader: &mut PipeReader) -> Poll<Option<Bytes>> {
        reader.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_written_is_read_and_behind_it_the_end() {
        let (mut writer, mut reader) = pipe();
        assert_eq!(read(&mut reader), Poll::Pending);
        assert_eq!(writer.take(b"one").unwrap(), 3);
        assert_eq!(writer.take_slices(&[IoSlice::new(b" "), IoSlice::new(b"two")]).unwrap(), 4);
        drop(writer);
        assert_eq!(read(&mut reader), Poll::Ready(Some(Bytes::from_static(b"one two"))));
        assert_eq!(read(&mut reader), Poll::Ready(None));
    }

    #[test]
    fn a_client_that_takes_nothing_blocks_the_writer_until_there_is_room() {
        let events = Rc::new(PipeEvents::new(Rc::default()));
        let (mut writer, mut reader) = pipe();
        writer.tell(ID, events.clone());
        let much = vec![b'x'; 3 * PIPE_BYTES_MAX];
        assert_eq!(writer.take(&much).unwrap(), PIPE_BYTES_MAX);
        assert_eq!(writer.take(&much).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(events.take(), []);
        let Poll::Ready(Some(piece)) = read(&mut reader) else { panic!("nothing is read") };
        assert_eq!(piece.len(), PIPE_BYTES_MAX);
        assert_eq!(events.take(), [(ID, PipeEvent::Room)]);
        assert_eq!(writer.take(b"x").unwrap(), 1);
        assert!(read(&mut reader).is_ready());
        assert_eq!(events.take(), [], "nobody waits for it");
    }

    #[test]
    fn a_client_that_has_gone_is_told_once_there_is_somebody_to_tell() {
        let events = Rc::new(PipeEvents::new(Rc::default()));
        let (mut writer, reader) = pipe();
        drop(reader);
        assert_eq!(writer.take(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        writer.tell(ID, events.clone());
        assert_eq!(events.take(), [(ID, PipeEvent::Gone)]);
    }
}

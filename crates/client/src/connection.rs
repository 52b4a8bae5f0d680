//! The task that owns the socket: reads, writes, notices silence, reconnects. What is said is for
//! the conversation to know.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use bytes::{BufMut as _, BytesMut};
use sennit_protocol::{FrameHeader, FrameReader};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{ReadHalf, WriteHalf},
    sync::{
        mpsc::{self, error::TryRecvError},
        oneshot,
    },
    task::consume_budget,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    conversation::Conversation,
    error::Error,
    link::Command,
    outbox::{Filling, Outbox},
    reconnect::{Backoff, Reconnect},
    session::{Greeting, Session},
};

/// Silence after which the broker is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(5);

/// Silence, with that question asked, after which it is not.
const DEAD_AFTER: Duration = Duration::from_secs(15);

/// How long closing waits for confirms and for the broker to have heard everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the goodbye itself may take to be written.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session that lasted this long was a good one: the delays begin again.
const GOOD_SESSION: Duration = Duration::from_secs(1);

/// Room for a read of short frames: the least, and the most once reads fill what they are given. It shrinks
/// again where they bring little.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

/// Missing bytes of a frame that is worth a read and a place of its own.
const LONG_BYTES: usize = 32 << 10;

/// On the way out.
struct Closing {
    until: Instant,
    answer: Option<oneshot::Sender<()>>,
    /// The ping behind everything that was to be said.
    ping: Option<u64>,
    said_goodbye: bool,
}

/// How a session ended.
enum End {
    /// The client has said goodbye.
    Left,
    /// Otherwise.
    Lost(Error),
}

/// The task that owns the socket.
pub(crate) struct Connection {
    greeting: Greeting,
    reconnect: Reconnect,
    backoff: Backoff,
    outbox: Arc<Outbox>,
    commands: mpsc::UnboundedReceiver<Command>,
    conversation: Conversation,
    closing: Option<Closing>,
}

impl Connection {
    pub(crate) fn new(
        greeting: Greeting,
        reconnect: Reconnect,
        outbox: Arc<Outbox>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self {
            greeting,
            reconnect,
            backoff: Backoff::new(reconnect.delay_min, reconnect.delay_max),
            conversation: Conversation::new(Arc::clone(&outbox)),
            outbox,
            commands,
            closing: None,
        }
    }

    /// Runs until the client is closed or gives up.
    pub(crate) async fn run(mut self, mut session: Session) {
        let cause = loop {
            let began = Instant::now();
            let Session { frame_bytes_max, features, round_trip, .. } = session;
            self.conversation.connected(frame_bytes_max, (features, round_trip), began);
            self.greeting.replaces = session.token;
            let error = match self.serve(session).await {
                End::Left => break Error::Closed,
                End::Lost(error) => error,
            };
            tracing::debug!(address = %self.greeting.address, %error, "connection lost");
            self.conversation.lost();
            if began.elapsed() >= GOOD_SESSION {
                self.backoff.reset();
            }
            match self.return_to_broker(error).await {
                Ok(next) => session = next,
                Err(error) => break error,
            }
        };
        self.conversation.finish(&cause);
        if let Some(answer) = self.closing.take().and_then(|closing| closing.answer) {
            let _ = answer.send(());
        }
    }

    async fn serve(&mut self, session: Session) -> End {
        let Session { mut stream, mut frames, mut input, .. } = session;
        let (mut reader, mut writer) = stream.split();
        let outbox = Arc::clone(&self.outbox);
        let mut heard = Instant::now();
        let (mut has_read, mut pinged) = (false, false);
        let mut timer = std::pin::pin!(sleep_until(heard + PING_AFTER));
        let mut room = READ_BYTES;
        frames.make_no_room();
        loop {
            let now = Instant::now();
            if std::mem::take(&mut has_read) {
                heard = now;
                if std::mem::take(&mut pinged) {
                    timer.as_mut().reset(heard + PING_AFTER);
                }
            }
            if let Err(error) = self.take_frames(&mut frames, &mut input, now) {
                return End::Lost(error);
            }
            if now >= timer.deadline() {
                if let Err(error) = self.conversation.wake(now) {
                    return End::Lost(error);
                }
                let silence = now - heard;
                if pinged && silence >= DEAD_AFTER {
                    return self.unreachable(io::ErrorKind::TimedOut.into());
                }
                if !pinged && silence >= PING_AFTER {
                    pinged = true;
                    self.conversation.ping();
                }
                timer.as_mut().reset(heard + if pinged { DEAD_AFTER } else { PING_AFTER });
            }
            let there_is = outbox.filling();
            if there_is.to_do {
                self.take_commands(now);
            }
            if self.conversation.outgoing.is_empty()
                && (there_is.to_send || self.conversation.has_held_back())
            {
                self.conversation.fill(now);
            }
            if self.has_left(now) {
                let _ = writer.shutdown().await;
                return End::Left;
            }
            if let Some(at) = self.wake_at()
                && at < timer.deadline()
            {
                timer.as_mut().reset(at);
            }
            let has_written = match self.write(&writer) {
                Ok(has_written) => has_written,
                Err(error) => return self.unreachable(error),
            };
            if has_written {
                // A write that need not wait is not counted by the runtime.
                consume_budget().await;
            }
            let idle = self.conversation.outgoing.is_empty();
            let awaited = Filling { to_do: self.closing.is_none(), to_send: idle };
            let missing = frames.missing(&input);
            // All else is done above in each turn, so reads may come first: they are the most.
            tokio::select! {
                biased;
                read = read(&mut reader, &mut input, room, missing) => match read {
                    Ok((0, _)) => return self.unreachable(io::ErrorKind::UnexpectedEof.into()),
                    Ok((count, is_full)) => {
                        room = match is_full {
                            true => (2 * room).min(READ_BYTES_MAX),
                            false if count < room / 4 => (room / 2).max(READ_BYTES),
                            false => room,
                        };
                        has_read = true;
                    }
                    Err(error) => return self.unreachable(error),
                },
                // There may be more to write.
                () = std::future::ready(()), if has_written => {}
                () = outbox.filled(awaited) => {}
                // What is wrong with it the write says.
                _ = writer.writable(), if !idle => {}
                () = &mut timer => {}
            }
        }
    }

    /// Takes what came with the greeting, or with the last read.
    fn take_frames(
        &mut self,
        frames: &mut FrameReader,
        input: &mut BytesMut,
        now: Instant,
    ) -> Result<(), Error> {
        while let Some((header, body)) = frames.next_frame(input)? {
            self.conversation.frame(&header, body, now)?;
        }
        Ok(())
    }

    /// Writes of what waits as much as goes without waiting; whether anything went.
    fn write(&mut self, writer: &WriteHalf<'_>) -> io::Result<bool> {
        if self.conversation.outgoing.is_empty() {
            return Ok(false);
        }
        match writer.try_write_vectored(&self.conversation.outgoing.slices()) {
            Ok(written) => {
                self.conversation.outgoing.written(written);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn unreachable(&self, error: io::Error) -> End {
        End::Lost(Error::unreachable(&self.greeting.address, error))
    }

    fn wake_at(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.until);
        [closing, self.conversation.wake_at()].into_iter().flatten().min()
    }

    /// Does what was asked since the last time, unless the client is closing.
    fn take_commands(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        self.outbox.answer();
        while self.closing.is_none() {
            match self.commands.try_recv() {
                Ok(Command::Close { answer }) => self.close(Some(answer)),
                Ok(command) => self.conversation.command(command, now),
                Err(TryRecvError::Empty) => return,
                // The last handle is gone.
                Err(TryRecvError::Disconnected) => self.close(None),
            }
        }
    }

    fn close(&mut self, answer: Option<oneshot::Sender<()>>) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        self.closing = Some(Closing { until, answer, ping: None, said_goodbye: false });
    }

    /// Takes the next step out, if the client is closing; whether it was the last.
    fn has_left(&mut self, now: Instant) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let late = now >= closing.until;
        if closing.said_goodbye {
            return late || self.conversation.outgoing.is_empty();
        }
        if closing.ping.is_none() && self.conversation.is_drained() {
            self.conversation.fill(now);
            closing.ping = Some(self.conversation.ping());
        }
        if late || closing.ping.is_some_and(|ping| self.conversation.has_arrived(ping)) {
            self.conversation.leave();
            closing.said_goodbye = true;
            closing.until = now + GOODBYE_TIMEOUT;
        }
        false
    }

    /// Waits and tries until there is a session again.
    async fn return_to_broker(&mut self, lost: Error) -> Result<Session, Error> {
        let outbox = Arc::clone(&self.outbox);
        let mut last = lost;
        let mut failures = 0;
        loop {
            let is_final = matches!(&last, Error::Refused { retryable: false, .. }) && failures > 0;
            if is_final || self.reconnect.attempts_max.is_some_and(|max| failures >= max) {
                return Err(last);
            }
            let greeting = self.greeting.clone();
            let (delay, limit) = (self.backoff.delay(), self.reconnect.attempt_timeout);
            let mut attempt = std::pin::pin!(async move {
                tokio::time::sleep(delay).await;
                Session::open(&greeting, limit).await
            });
            let opened = loop {
                if let Some(closing) = &mut self.closing {
                    closing.ping = None;
                    // What was published is worth coming back for; nothing else is.
                    if self.conversation.is_drained() {
                        return Err(Error::Closed);
                    }
                    let left = closing.until.saturating_duration_since(Instant::now());
                    break timeout(left, &mut attempt).await.map_err(|_| Error::Closed)?;
                }
                tokio::select! {
                    opened = &mut attempt => break opened,
                    () = outbox.filled(Filling { to_do: true, to_send: false }) => {
                        self.take_commands(Instant::now());
                    }
                }
            };
            match opened {
                Ok(session) => return Ok(session),
                Err(error) => last = error,
            }
            failures += 1;
        }
    }
}

/// Reads into `input` once there is something to read. Says how much came, and whether all room was
/// taken. Of a long frame, `missing` bytes of which have not come, it reads no more than that and the next
/// header: what begins behind it has room of its own, and nothing is moved. May be cancelled without loss.
async fn read(
    reader: &mut ReadHalf<'_>,
    input: &mut BytesMut,
    room: usize,
    missing: usize,
) -> io::Result<(usize, bool)> {
    poll_fn(|cx| reader.as_ref().poll_read_ready(cx)).await?;
    let is_long = missing >= LONG_BYTES;
    let (room, least) = match missing {
        0 => (room, READ_BYTES / 4),
        _ if is_long => (missing + FrameHeader::BYTES, missing + FrameHeader::BYTES),
        _ => (room, missing),
    };
    // Not before: by now what the last read has brought is mostly done with, and this one goes to the
    // same place, which is in the processor's caches.
    if input.is_empty() {
        let _ = input.try_reclaim(room);
    }
    if input.capacity() - input.len() < least {
        // Its own `reserve` would move all that has been in it before.
        let mut roomier = BytesMut::with_capacity(input.len() + room);
        roomier.extend_from_slice(input);
        *input = roomier;
    }
    let given = if is_long { room } else { input.capacity() - input.len() };
    let count = reader.read_buf(&mut input.limit(given)).await?;
    Ok((count, count == given && !is_long))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const MISSING: usize = LONG_BYTES;

    /// A long frame's read, once more than that has come.
    async fn read_long(stream: &mut TcpStream, input: &mut BytesMut) -> (usize, bool) {
        let mut there = [0; MISSING + FrameHeader::BYTES + 1];
        while stream.peek(&mut there).await.unwrap() < there.len() {
            tokio::task::yield_now().await;
        }
        read(&mut stream.split().0, input, READ_BYTES, MISSING).await.unwrap()
    }

    #[tokio::test]
    async fn of_a_long_frame_no_more_is_read_than_it_lacks_and_the_next_header() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut near, mut far) = (near.unwrap(), accepted.unwrap().0);
        let sent: Vec<u8> = (0..200 << 10).map(|at: u32| at as u8).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move { far.write_all(&sent).await.map(|()| far) });
        let mut input = BytesMut::new();
        let whole = MISSING + FrameHeader::BYTES;
        assert_eq!(read_long(&mut near, &mut input).await, (whole, false));
        assert_eq!(input[..], expected[..whole]);
        // Nobody has what was there any more: the next one comes to the same place.
        let place = input.as_ptr();
        drop(input.split());
        assert_eq!(read_long(&mut near, &mut input).await, (whole, false));
        assert_eq!((input.as_ptr(), &input[..]), (place, &expected[whole..2 * whole]));
        drop(near);
        let _ = writing.await;
    }
}

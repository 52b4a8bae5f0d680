//! The connection task, which owns the socket: it reads, writes, detects silence and reconnects. The conversation
//! decides which frames it sends.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use bytes::{BufMut as _, BytesMut};
use sennit_protocol::{FrameHeader, FrameReader};
use tokio::{
    io::AsyncReadExt,
    sync::{
        mpsc::{self, error::TryRecvError},
        oneshot,
    },
    task::consume_budget,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    addresses::Addresses,
    connection_handle::Command,
    conversation::Conversation,
    error::Error,
    outbox::{Outbox, Readiness},
    reconnect::{Backoff, Reconnect},
    session::{Greeting, Session},
    wire::{WireReader, WireWriter},
};

/// Silence after which the client sends a ping, and silence after which it gives up a connection in spite of that.
const SILENCE: SilenceLimits =
    SilenceLimits { ping_after: Duration::from_secs(5), dead_after: Duration::from_secs(15) };

/// The same for a client that has another node to go to.
const SILENCE_BESIDE_OTHERS: SilenceLimits =
    SilenceLimits { ping_after: Duration::from_secs(2), dead_after: Duration::from_secs(6) };

/// Time that closing waits for confirms, and for the broker to receive all settlements.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for writing the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A session of this length resets the reconnect delays.
const GOOD_SESSION: Duration = Duration::from_secs(1);

/// Size of the buffer for short frames: its minimum, and its maximum while reads fill it.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

/// Missing bytes of a frame for which a read of its own pays.
const LONG_BYTES: usize = 32 << 10;

/// The steps of closing.
struct Closing {
    until: Instant,
    answer: Option<oneshot::Sender<()>>,
    /// The ping behind the last frame.
    ping: Option<u64>,
    goodbye_sent: bool,
}

/// How long a server may be silent.
#[derive(Clone, Copy)]
struct SilenceLimits {
    ping_after: Duration,
    dead_after: Duration,
}

/// How long the server has been silent, and whether it was pinged since.
struct Silence {
    limits: SilenceLimits,
    since: Instant,
    pinged: bool,
}

impl Silence {
    /// When the next step is due: the ping, then the end.
    fn deadline(&self) -> Instant {
        let SilenceLimits { ping_after, dead_after } = self.limits;
        self.since + if self.pinged { dead_after } else { ping_after }
    }
}

/// The end of a session.
enum SessionEnd {
    /// The client has said goodbye.
    Goodbye,
    /// The connection was lost.
    Lost(Error),
}

/// The connection task.
pub(crate) struct Connection {
    greeting: Greeting,
    addresses: Addresses,
    reconnect: Reconnect,
    backoff: Backoff,
    outbox: Arc<Outbox>,
    commands: mpsc::UnboundedReceiver<Command>,
    conversation: Conversation,
    closing: Option<Closing>,
}

impl Connection {
    pub(crate) fn new(
        (greeting, addresses): (Greeting, Addresses),
        reconnect: Reconnect,
        outbox: Arc<Outbox>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let mut conversation = Conversation::new(Arc::clone(&outbox));
        conversation.set_may_leave(addresses.has_others());
        Self {
            greeting,
            addresses,
            reconnect,
            backoff: Backoff::new(reconnect.delay_min, reconnect.delay_max),
            conversation,
            outbox,
            commands,
            closing: None,
        }
    }

    /// Runs until the client is closed or gives up.
    pub(crate) async fn run(mut self, mut session: Session) {
        let mut last_address = session.address;
        let cause = loop {
            let began = Instant::now();
            let Session { frame_bytes_max, features, round_trip, .. } = session;
            if std::mem::replace(&mut last_address, session.address) != session.address {
                self.conversation.old_session_lives_until(began + session.grace);
            }
            self.conversation.connected(frame_bytes_max, features, round_trip, began);
            self.greeting.replaces = session.token;
            self.addresses.choose(session.address);
            let error = match self.serve(session).await {
                SessionEnd::Goodbye => break Error::Closed,
                SessionEnd::Lost(error) => error,
            };
            let address = &self.addresses.current().host_port;
            tracing::debug!(%address, %error, "connection lost");
            self.addresses.leave();
            self.conversation.lost();
            if began.elapsed() >= GOOD_SESSION {
                self.backoff.reset();
            }
            match self.reopen_session(error).await {
                Ok(next) => session = next,
                Err(error) => break error,
            }
        };
        self.conversation.finish(&cause);
        if let Some(answer) = self.closing.take().and_then(|closing| closing.answer) {
            let _ = answer.send(());
        }
    }

    async fn serve(&mut self, session: Session) -> SessionEnd {
        let Session { mut stream, mut frames, mut input, .. } = session;
        let (mut reader, mut writer) = stream.split();
        let outbox = Arc::clone(&self.outbox);
        let limits = if self.addresses.has_others() { SILENCE_BESIDE_OTHERS } else { SILENCE };
        let mut silence = Silence { limits, since: Instant::now(), pinged: false };
        let mut has_read = false;
        let mut timer = std::pin::pin!(sleep_until(silence.deadline()));
        let mut room = READ_BYTES;
        frames.disable_reserve();
        loop {
            let now = Instant::now();
            if std::mem::take(&mut has_read) {
                silence.since = now;
                if std::mem::take(&mut silence.pinged) {
                    timer.as_mut().reset(silence.deadline());
                }
            }
            if let Err(error) = self.take_frames(&mut frames, &mut input, now) {
                return SessionEnd::Lost(error);
            }
            if now >= timer.deadline() {
                if let Err(end) = self.timed_out(&mut silence, now) {
                    return end;
                }
                timer.as_mut().reset(silence.deadline());
            }
            self.take_work(now);
            if self.has_closed(now) {
                let _ = writer.shutdown().await;
                return SessionEnd::Goodbye;
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
            let idle = self.conversation.write_buffer.is_empty();
            let interest = Readiness { has_commands: self.closing.is_none(), has_frames: idle };
            let missing = frames.missing(&input);
            // All else is done above in each turn, so reads may come first: they are the most.
            tokio::select! {
                biased;
                read = read(&mut reader, &mut input, room, missing) => match read {
                    Ok((0, _)) => return self.unreachable(io::ErrorKind::UnexpectedEof.into()),
                    Ok((count, is_full)) => {
                        room = next_room(room, count, is_full);
                        has_read = true;
                    }
                    Err(error) => return self.unreachable(error),
                },
                // There may be more to write.
                () = std::future::ready(()), if has_written => {}
                () = outbox.ready(interest) => {}
                // The write reports an error of the socket.
                _ = writer.writable(), if !idle => {}
                () = &mut timer => {}
            }
        }
    }

    /// Does what is due: the conversation's deadlines, and the next step of a server's silence.
    fn timed_out(&mut self, silence: &mut Silence, now: Instant) -> Result<(), SessionEnd> {
        self.conversation.wake(now).map_err(SessionEnd::Lost)?;
        if now < silence.deadline() {
            return Ok(());
        }
        if silence.pinged {
            return Err(self.unreachable(io::ErrorKind::TimedOut.into()));
        }
        silence.pinged = true;
        self.conversation.ping();
        Ok(())
    }

    /// Takes waiting commands, and encodes waiting messages once all earlier bytes are written.
    fn take_work(&mut self, now: Instant) {
        let ready = self.outbox.readiness();
        if ready.has_commands {
            self.take_commands(now);
        }
        if self.conversation.write_buffer.is_empty()
            && (ready.has_frames || self.conversation.has_unencoded())
        {
            self.conversation.fill(now);
        }
    }

    /// Handles the frames that came with the greeting or the last read.
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

    /// Writes as much as the socket takes without waiting. Returns whether it wrote anything.
    fn write(&mut self, writer: &WireWriter<'_>) -> io::Result<bool> {
        if self.conversation.write_buffer.is_empty() {
            return Ok(false);
        }
        match writer.try_write_vectored(&self.conversation.write_buffer.slices()) {
            Ok(written) => {
                self.conversation.write_buffer.written(written);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn unreachable(&self, error: io::Error) -> SessionEnd {
        SessionEnd::Lost(Error::unreachable(&self.addresses.current().host_port, error))
    }

    fn wake_at(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.until);
        [closing, self.conversation.wake_at()].into_iter().flatten().min()
    }

    /// Executes the waiting commands, unless the client is closing.
    fn take_commands(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        self.outbox.clear_notification();
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
        self.closing = Some(Closing { until, answer, ping: None, goodbye_sent: false });
    }

    /// Takes the next step of closing. Returns whether it was the last.
    fn has_closed(&mut self, now: Instant) -> bool {
        let Some(closing) = &mut self.closing else { return false };
        let late = now >= closing.until;
        if closing.goodbye_sent {
            return late || self.conversation.write_buffer.is_empty();
        }
        if closing.ping.is_none() && self.conversation.is_drained() {
            self.conversation.fill(now);
            closing.ping = Some(self.conversation.ping());
        }
        if late || closing.ping.is_some_and(|ping| self.conversation.has_arrived(ping)) {
            self.conversation.leave();
            closing.goodbye_sent = true;
            closing.until = now + GOODBYE_TIMEOUT;
        }
        false
    }

    /// Tries to connect until there is a session again.
    async fn reopen_session(&mut self, lost: Error) -> Result<Session, Error> {
        let outbox = Arc::clone(&self.outbox);
        let mut last = lost;
        let mut failures = 0;
        loop {
            let is_final = matches!(&last, Error::Refused { retryable: false, .. }) && failures > 0;
            if is_final || self.reconnect.attempts_max.is_some_and(|max| failures >= max) {
                return Err(last);
            }
            let (greeting, addresses) = (self.greeting.clone(), self.addresses.clone());
            let (delay, limit) = (self.backoff.delay(), self.reconnect.attempt_timeout);
            let mut attempt = std::pin::pin!(async move {
                tokio::time::sleep(delay).await;
                Session::open(&greeting, &addresses, limit).await
            });
            let opened = loop {
                if let Some(closing) = &mut self.closing {
                    closing.ping = None;
                    // Only unconfirmed messages are a reason to reconnect.
                    if self.conversation.is_drained() {
                        return Err(Error::Closed);
                    }
                    let left = closing.until.saturating_duration_since(Instant::now());
                    break timeout(left, &mut attempt).await.map_err(|_| Error::Closed)?;
                }
                tokio::select! {
                    opened = &mut attempt => break opened,
                    () = outbox.ready(Readiness { has_commands: true, has_frames: false }) => {
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

/// The size of the next read's buffer: it grows while reads fill it, and shrinks when they bring little.
fn next_room(room: usize, count: usize, is_full: bool) -> usize {
    match is_full {
        true => (2 * room).min(READ_BYTES_MAX),
        false if count < room / 4 => (room / 2).max(READ_BYTES),
        false => room,
    }
}

/// Reads into `input` once the socket is readable. Returns the number of bytes, and whether they
/// filled the buffer. If `missing` bytes of a long frame have not come, it reads only these and the
/// next header: the frame behind gets a buffer of its own, and no bytes are moved. May be cancelled
/// without loss.
async fn read(
    reader: &mut WireReader<'_>,
    input: &mut BytesMut,
    room: usize,
    missing: usize,
) -> io::Result<(usize, bool)> {
    poll_fn(|cx| reader.poll_read_ready(cx)).await?;
    let is_long = missing >= LONG_BYTES;
    let (room, least) = match missing {
        0 => (room, READ_BYTES / 4),
        _ if is_long => (missing + FrameHeader::BYTES, missing + FrameHeader::BYTES),
        _ => (room, missing),
    };
    // Not earlier: by now the bytes of the last read are mostly processed, so this read reuses their
    // memory, which is in the processor's caches.
    if input.is_empty() {
        let _ = input.try_reclaim(room);
    }
    if input.capacity() - input.len() < least {
        // `BytesMut::reserve` would also move the bytes that were split off.
        let mut roomier = BytesMut::with_capacity(input.len() + room);
        roomier.extend_from_slice(input);
        *input = roomier;
    }
    let limit = if is_long { room } else { input.capacity() - input.len() };
    let count = reader.read_buf(&mut input.limit(limit)).await?;
    Ok((count, count == limit && !is_long))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncWriteExt as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::wire::Wire;

    const MISSING: usize = LONG_BYTES;

    /// A long frame's read, once more than that has come.
    async fn read_long(stream: &mut Wire, input: &mut BytesMut) -> (usize, bool) {
        let mut there = [0; MISSING + FrameHeader::BYTES + 1];
        while stream.split().0.peek(&mut there).await.unwrap() < there.len() {
            tokio::task::yield_now().await;
        }
        read(&mut stream.split().0, input, READ_BYTES, MISSING).await.unwrap()
    }

    #[tokio::test]
    async fn of_a_long_frame_no_more_is_read_than_it_lacks_and_the_next_header() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut near, mut far) = (Wire::plain(near.unwrap()), accepted.unwrap().0);
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

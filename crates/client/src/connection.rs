//! The task that owns the socket: reads, writes, notices silence, reconnects. What is said is for
//! the conversation to know.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use bytes::BytesMut;
use sennit_protocol::FrameReader;
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

/// Room for a read: the least, and the most once reads fill what they are given. It shrinks again where
/// they bring little: what is half of a frame of 128 KiB is moved if the other half finds no room.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

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
        frames.trust();
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
            // All else is done above in each turn, so reads may come first: they are the most.
            tokio::select! {
                biased;
                read = read(&mut reader, &mut input, room, frames.is_between()) => match read {
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
/// taken. May be cancelled without loss.
async fn read(
    reader: &mut ReadHalf<'_>,
    input: &mut BytesMut,
    room: usize,
    is_between: bool,
) -> io::Result<(usize, bool)> {
    poll_fn(|cx| reader.as_ref().poll_read_ready(cx)).await?;
    // Not before: by now what the last read has brought is mostly done with, and this one goes to the
    // same place, which is in the processor's caches.
    if is_between && input.is_empty() {
        let _ = input.try_reclaim(room);
    }
    let left = input.capacity() - input.len();
    // Where a frame has begun, there is room for all of it.
    if left == 0 || is_between && left < READ_BYTES / 4 {
        input.reserve(room);
    }
    let given = input.capacity() - input.len();
    let count = reader.read_buf(input).await?;
    Ok((count, count == given))
}

//! The task that owns the socket: reads, writes, notices silence, reconnects. What is said is for
//! the conversation to know.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    conversation::Conversation,
    error::Error,
    link::Command,
    outbox::Outbox,
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

/// Room for a read: the least, and the most once reads fill what they are given.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

/// On the way out.
struct Closing {
    until: Instant,
    answers: Vec<oneshot::Sender<()>>,
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
            self.conversation.connected(session.frame_bytes_max, session.features);
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
        for answer in self.closing.into_iter().flat_map(|closing| closing.answers) {
            let _ = answer.send(());
        }
    }

    async fn serve(&mut self, session: Session) -> End {
        let Session { mut stream, mut frames, mut input, .. } = session;
        let (mut reader, mut writer) = stream.split();
        let outbox = Arc::clone(&self.outbox);
        let mut heard = Instant::now();
        let mut pinged = false;
        let mut timer = std::pin::pin!(sleep_until(heard + PING_AFTER));
        let mut room = READ_BYTES;
        frames.trust();
        loop {
            let now = Instant::now();
            // What came with the greeting, or with the last read.
            loop {
                let frame = match frames.next_frame(&mut input) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(error) => return End::Lost(error.into()),
                };
                if let Err(error) = self.conversation.frame(&frame.0, frame.1, now) {
                    return End::Lost(error);
                }
            }
            if self.conversation.outgoing.is_empty() {
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
            // Where a frame has begun, there is room for all of it.
            if input.capacity() == input.len()
                || frames.is_between() && input.capacity() - input.len() < READ_BYTES / 4
            {
                input.reserve(room);
            }
            let given = input.capacity() - input.len();
            let idle = self.conversation.outgoing.is_empty();
            let slices = self.conversation.outgoing.slices();
            tokio::select! {
                read = reader.read_buf(&mut input) => match read {
                    Ok(0) => return self.unreachable(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        let is_full = count == given;
                        room = if is_full { (2 * room).min(READ_BYTES_MAX) } else { READ_BYTES };
                        heard = Instant::now();
                        if std::mem::take(&mut pinged) {
                            timer.as_mut().reset(heard + PING_AFTER);
                        }
                    }
                    Err(error) => return self.unreachable(error),
                },
                written = writer.write_vectored(&slices), if !idle => match written {
                    Ok(written) => {
                        drop(slices);
                        self.conversation.outgoing.written(written);
                    }
                    Err(error) => return self.unreachable(error),
                },
                () = outbox.filled(), if idle => {}
                command = self.commands.recv(), if self.closing.is_none() => {
                    drop(slices);
                    self.command(command);
                }
                () = &mut timer => {
                    drop(slices);
                    let now = Instant::now();
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
            }
        }
    }

    fn unreachable(&self, error: io::Error) -> End {
        End::Lost(Error::unreachable(&self.greeting.address, error))
    }

    fn wake_at(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.until);
        [closing, self.conversation.wake_at()].into_iter().flatten().min()
    }

    /// `None` stands for the last handle's end.
    fn command(&mut self, command: Option<Command>) {
        let answer = match command {
            Some(Command::Close { answer }) => Some(answer),
            None => None,
            Some(command) => return self.conversation.command(command),
        };
        let until = Instant::now() + CLOSE_TIMEOUT;
        let fresh = || Closing { until, answers: Vec::new(), ping: None, said_goodbye: false };
        self.closing.get_or_insert_with(fresh).answers.extend(answer);
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
                    command = self.commands.recv() => self.command(command),
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

//! The parked connections of a core: they wait for their streams without a task, a buffer or a timer of their own.
//! One question to a stream stands for all that wait at one position; the answer is encoded once and written to
//! each of them. It decides when to write, not what.
//!
//! In reading order: `http::parking_entry` and `http::parking` are the way in and out, `readers` holds the
//! connections, `notices` encodes the answers; `deadlines` acts when nothing comes, `leaving` when a client sends
//! something, which `runtime::socket_events` detects.

mod deadlines;
mod leaving;
mod notices;
mod readers;

use std::{collections::VecDeque, io, rc::Rc};

use sennit_engine::{Command, Refusal, StreamAnswer, StreamCommand};
use sennit_identity::Verb;
use tokio::{
    task::yield_now,
    time::{Duration, Instant, sleep_until},
};

use self::{
    notices::Notice,
    readers::{Joined, Moment, Patience, Readers},
};
use super::{Live, ReadPosition, WaitingRead};
use crate::{
    broker::stream_offset::{Identified, StreamOffset},
    identity::authority::Authority,
    runtime::{
        core::CoreHandle,
        shard_answers::{Answer, ParkedQuestion},
        socket_events::{Interest, SocketEvent, Sockets},
        write_buffer::WriteBuffer,
    },
};
use crate::{
    doors::streams,
    http::{
        limits::IDLE_TIMEOUT,
        parking_entry::{Arriving, Parking},
        port::HttpThread,
        thread_state::HttpThreadState,
    },
};

/// Readers that are notified, or looked at, before other tasks on the core run.
const READERS_AT_ONCE_MAX: usize = 256;

/// The parked connections of a core.
#[derive(Debug)]
pub(crate) struct ParkedConnections {
    core: CoreHandle,
    authority: Authority,
    http: Rc<HttpThread>,
    thread_state: Rc<HttpThreadState>,
    readers: Readers,
    sockets: Sockets,
    /// Positions whose readers are being notified, one after the other. Without a notice the readers go back to
    /// tasks, which read for themselves.
    notices: VecDeque<(u32, Option<Notice>)>,
    /// Events of the sockets that are not handled yet; empty between two calls, kept for its memory.
    socket_events: Vec<SocketEvent>,
    /// The number of the last question.
    question_number: u32,
    /// How long an event stream may be silent, in milliseconds.
    silence: Moment,
    began: Instant,
}

impl ParkedConnections {
    /// Opens the parking of a core, for these HTTP connections.
    ///
    /// # Errors
    /// The kernel has no room.
    pub(crate) fn open(
        core: CoreHandle,
        http: Rc<HttpThread>,
        silence: Duration,
        authority: Authority,
    ) -> io::Result<Self> {
        let thread_state = http.thread_state.clone();
        let sockets = Sockets::new()?;
        core.with(|core| core.answers.parked_notify = thread_state.parking_entry.notify.clone());
        thread_state.parking_entry.open();
        Ok(Self {
            core,
            authority,
            http,
            thread_state,
            readers: Readers::default(),
            sockets,
            notices: VecDeque::new(),
            socket_events: Vec::new(),
            question_number: 0,
            silence: u64::try_from(silence.as_millis()).unwrap_or(Moment::MAX),
            began: Instant::now(),
        })
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let thread_state = self.thread_state.clone();
        let mut changes = self.authority.changes();
        loop {
            thread_state
                .parking_entry
                .arrived()
                .into_iter()
                .for_each(|arriving| self.park(arriving));
            self.take_answers();
            let mut has_more = self.take_socket_events();
            has_more |= self.do_what_is_due();
            has_more |= self.notify_readers();
            if changes.has_changed().is_ok_and(|changed| changed) {
                changes.mark_unchanged();
                self.send_back_who_may_not_read();
            }
            let is_closing = thread_state.closing.has_begun();
            has_more |= is_closing && self.send_all_back();
            thread_state.parking_entry.set_count(self.readers.len());
            thread_state.metrics.http_parked.set(self.readers.len() as u64);
            if has_more {
                yield_now().await;
                continue;
            }
            let due = self.readers.next_due().map(|due| self.began + Duration::from_millis(due));
            tokio::select! {
                () = thread_state.parking_entry.notify.notified() => {}
                Ok(()) = changes.changed() => self.send_back_who_may_not_read(),
                () = self.sockets.wait_for_events() => {}
                () = sleep_until(due.unwrap_or(self.began)), if due.is_some() => {}
                () = thread_state.closing.begun(), if !is_closing => {}
            }
        }
    }

    /// Has the tasks of those who may not read any more tell them so.
    fn send_back_who_may_not_read(&mut self) {
        for reader in self.readers.numbers() {
            let Some((held, at)) = self.readers.get(reader).zip(self.readers.position_of(reader))
            else {
                continue;
            };
            if held.principal.may(Verb::Read, at.position.name.as_str()).is_err() {
                let (position, patience) = (at.position.clone(), held.patience);
                let wait = self.wait(reader, position, patience, true);
                self.send_back(reader, WriteBuffer::default(), wait);
            }
        }
    }

    fn moment(&self, at: Instant) -> Moment {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(Moment::MAX)
    }

    /// When something is to be done with a reader for whom nothing comes.
    fn due(&self, live: Live, patience: Patience) -> Moment {
        match live {
            Live::LongPoll => patience.until,
            Live::Events | Live::Base64Events => {
                patience.until.min(patience.said_at.saturating_add(self.silence))
            }
        }
    }

    fn park(&mut self, arriving: Arriving) {
        let Arriving { wire, place, parking: Parking { wait, manner, moves } } = arriving;
        let Some(wait) = wait.what::<WaitingRead>() else {
            tracing::error!("an HTTP connection is parked that waits for nothing of streams");
            self.thread_state.metrics.http_connections.less(1);
            return;
        };
        let patience = Patience {
            cursor: wait.cursor,
            until: self.moment(wait.until),
            said_at: self.moment(wait.said_at),
        };
        let due = self.due(wait.position.live, patience);
        let reader = self.readers.take_in(wire, place, moves, manner, wait.principal, due);
        let Some(held) = self.readers.get(reader) else { return };
        if let Err(error) = self.sockets.add(&held.wire, reader, Interest::Reading) {
            tracing::warn!(%error, "an HTTP connection could not be parked");
            return self.part(reader);
        }
        self.join(reader, wait.position, patience);
        if self.readers.get_mut(reader).is_some_and(|held| held.wire.holds_unread()) {
            self.hear(reader);
        }
    }

    fn join(&mut self, reader: u32, position: ReadPosition, patience: Patience) {
        if let Joined::New(position) = self.readers.join(reader, position, patience) {
            self.ask(position);
        }
    }

    /// Asks for what comes at a position.
    fn ask(&mut self, at: u32) {
        self.question_number = (self.question_number + 1) & ParkedQuestion::NUMBER_MAX;
        let question = ParkedQuestion::new(self.question_number, at);
        if let Some(held) = self.readers.position_mut(at) {
            held.question = Some(question);
            let (position, read) = (held.position.clone(), held.position.question());
            self.command(&position, question, StreamCommand::Read(read));
        }
    }

    fn command(&self, position: &ReadPosition, question: ParkedQuestion, command: StreamCommand) {
        let (partition, home) = position.stream;
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        self.core.with(|core| {
            let origin = core.answers.of_parked(question);
            core.command(shard, Command::Stream(origin, partition, command));
        });
    }

    /// Has a reader wait no more.
    fn leave(&mut self, reader: u32) {
        let Some(at) = self.readers.leave(reader) else { return };
        if self.readers.position(at).is_some_and(readers::Held::is_forsaken)
            && let Some(held) = self.readers.forget_position(at)
        {
            let question = held.question.unwrap_or(ParkedQuestion::UNAWAITED);
            self.command(&held.position, question, StreamCommand::StopReading);
        }
    }

    fn take_answers(&mut self) {
        let answers = self.core.look(|core| core.answers.for_parked.take());
        for (question, answer) in answers {
            let at = question.position();
            let is_awaited = |held: &readers::Held| held.question == Some(question);
            if self.readers.position(at).is_some_and(is_awaited) {
                let news = self.news(at, answer);
                self.readers.set_answered(at);
                self.notices.push_back((at, news));
            }
        }
    }

    /// What all who wait at a position can be told alike; none if each has to ask for itself.
    fn news(&self, at: u32, answer: Result<Answer, Refusal>) -> Option<Notice> {
        let Ok(Answer::Stream(StreamAnswer::Chunk(chunk))) = answer else { return None };
        let ReadPosition { live, at: StreamOffset { of, .. }, .. } =
            self.readers.position(at)?.position;
        let has_come = chunk.is_closed || !chunk.messages.is_empty();
        let chunk = Identified { of, answer: chunk };
        (has_come && streams::is_sound(&chunk.answer)).then(|| Notice::new(chunk, live))
    }

    /// Notifies some readers; returns whether more are to be notified.
    fn notify_readers(&mut self) -> bool {
        for _ in 0..READERS_AT_ONCE_MAX {
            let Some((at, mut news)) = self.notices.pop_front() else { return false };
            match self.readers.first_at(at) {
                None => drop(self.readers.forget_position(at)),
                Some(reader) => {
                    self.notify_reader(reader, news.as_mut());
                    self.notices.push_front((at, news));
                }
            }
        }
        !self.notices.is_empty()
    }

    fn notify_reader(&mut self, reader: u32, news: Option<&mut Notice>) {
        let thread_state = self.thread_state.clone();
        let Some((held, position)) = self.readers.get(reader).zip(self.readers.position_of(reader))
        else {
            return;
        };
        let (position, manner, patience) = (position.position.clone(), held.manner, held.patience);
        // A reader that may not read any more is told so by its task.
        let may_read = held.principal.may(Verb::Read, position.name.as_str()).is_ok();
        let told = news.filter(|_| may_read).and_then(|news| {
            let cursor = news.cursor_after(patience.cursor);
            let next = news.chunk.offset(news.chunk.answer.next);
            let goes_on = position.live.is_events() && !news.chunk.answer.is_closed;
            news.encoded(manner, cursor, &thread_state).map(|out| (out, cursor, next, goes_on))
        });
        let Some((out, cursor, next, goes_on)) = told else {
            let wait = self.wait(reader, position, patience, true);
            return self.send_back(reader, WriteBuffer::default(), wait);
        };
        self.leave(reader);
        if position.live == Live::LongPoll {
            thread_state.count(http::StatusCode::OK);
        }
        let said_at = self.moment(Instant::now());
        let patience = Patience { cursor, said_at, ..patience };
        self.say(reader, out, goes_on.then_some((ReadPosition { at: next, ..position }, patience)));
    }

    /// Says something to a reader that waits nowhere, and has it go on: waiting there, or at rest.
    fn say(&mut self, reader: u32, out: &WriteBuffer, then: Option<(ReadPosition, Patience)>) {
        let Some(held) = self.readers.get_mut(reader) else { return };
        let Ok(taken) = out.write_now(&mut held.wire, 0) else { return self.part(reader) };
        let is_last = then.is_none() && held.manner.closes;
        if taken < out.len() || is_last {
            let wait =
                then.and_then(|(position, patience)| self.wait(reader, position, patience, false));
            return self.send_back(reader, out.rest(taken), wait);
        }
        match then {
            Some((position, patience)) => {
                self.readers.set_due(reader, self.due(position.live, patience));
                self.join(reader, position, patience);
            }
            None => self.readers.set_due(reader, self.moment(Instant::now() + IDLE_TIMEOUT)),
        }
    }
}

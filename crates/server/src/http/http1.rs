//! One HTTP/1 connection. Requests that arrived together start together where that is allowed, and are answered in
//! order; finished answers leave in one write. It does not know what requests mean.

mod leaving;

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BufMut as _, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::{
    answer_room::AnswerAccount,
    answer_weight,
    bad_request::Refused,
    concurrency::Concurrency,
    core_affinity::CoreAffinity,
    handler::{Answering, Handler},
    http1_answers::{Manner, Streaming, encode, ends_with_connection, go_on_with},
    http1_clock::{Clock, Late, Waits},
    http1_requests::{Received, RequestDecoder, UnderWay},
    limits::{ANSWER_BYTES_EXPECTED, ANSWERS_BYTES_MAX, HEAD_BYTES_MAX, PIPELINED_MAX},
    parking::{Back, Left},
    request::Request,
    response::Response,
    thread_state::{BodyAccount, HttpThreadState, OpenConnection},
    unsent::Unsent,
    upgrade::Upgrade,
};
use crate::runtime::write_buffer::WriteBuffer;

/// Bytes of answers that are worth a write although more are ready.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes that the buffer which all connections share keeps between writes.
const WRITE_KEPT_BYTES_MAX: usize = 1 << 20;

/// Reads in one turn of a connection.
const READS_MAX: usize = 16;

/// What is left of a body that is read into its place at once.
const DIRECT_BYTES_MIN: usize = 32 << 10;

/// The connection is of no use any more.
#[derive(Debug)]
struct Gone;

impl From<io::Error> for Gone {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "an HTTP connection ended early");
        Self
    }
}

/// What of that which comes in is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inlet {
    Open,
    /// Nothing yet: it may be for another door, to which the last request asks to go.
    Held,
    /// Nothing: the last request has come, or none that can be read.
    Shut,
}

/// A request that was begun.
struct Begun {
    answer: Answer,
    concurrency: Concurrency,
    manner: Manner,
    /// What its answer holds, or is thought to, in bytes.
    weight: usize,
    /// What it holds itself, if that counts.
    _body: Option<BodyAccount>,
}

/// A request that waits until those before it are answered.
struct Next {
    request: Rc<Request>,
    concurrency: Concurrency,
    manner: Manner,
    body: Option<BodyAccount>,
}

enum Answer {
    UnderWay(Answering),
    Ready(Response),
}

/// A connection whose requests are answered by `handler`.
struct Http1<S> {
    stream: S,
    handler: Rc<dyn Handler>,
    thread_state: Rc<HttpThreadState>,
    open_connection: Option<OpenConnection>,
    body: BodyAccount,
    /// What was read and may not be begun yet.
    input: BytesMut,
    requests: RequestDecoder,
    /// All of one kind of concurrency.
    begun: VecDeque<Begun>,
    /// The weights of their answers together.
    weight: usize,
    /// What answers hold that are there.
    held: AnswerAccount,
    /// The one behind them, if it is of another. Nothing behind it is looked at.
    next: Option<Box<Next>>,
    /// The body of the answer that goes out.
    streaming: Option<Streaming>,
    /// Where the connection goes on, once the answer that says so is out.
    upgrade: Option<Upgrade>,
    unsent: Unsent,
    inlet: Inlet,
    /// Whether the client has said that it sends no more.
    has_ended: bool,
    /// Whether the last answer is out, and the client is waited for.
    lingers: bool,
    /// Whether its socket has something that was not read yet, as is known of a parked one.
    is_heard: bool,
    clock: Clock,
    affinity: CoreAffinity,
}

/// Serves a connection until it ends, or leaves its task; `first` has been read from it, and it has
/// moved so often.
pub(crate) async fn serve<S>(
    stream: S,
    first: &[u8],
    moves: u32,
    thread_state: Rc<HttpThreadState>,
    handler: Rc<dyn Handler>,
) -> Option<(S, Left)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let open_connection = thread_state.enter();
    let mut connection = Http1::new(stream, open_connection, moves, thread_state, handler);
    connection.input = BytesMut::from(first);
    connection.run().await
}

/// The same with one that was parked.
pub(crate) async fn go_on<S>(
    stream: S,
    back: Back,
    thread_state: Rc<HttpThreadState>,
    handler: Rc<dyn Handler>,
) -> Option<(S, Left)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Back { open_connection, is_heard, rest, wait, mut manner, moves } = back;
    let mut connection = Http1::new(stream, open_connection, moves, thread_state, handler);
    connection.unsent = rest.into();
    connection.is_heard = is_heard;
    if manner.closes {
        connection.inlet = Inlet::Shut;
    }
    if let Some(wait) = wait {
        manner.is_begun = wait.is_begun;
        let answer = Answer::UnderWay(connection.handler.clone().resume(wait));
        let concurrency = Concurrency::Reads;
        connection.begun.push_back(Begun { answer, concurrency, manner, weight: 0, _body: None });
    }
    connection.run().await
}

impl<S> Http1<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn new(
        stream: S,
        open_connection: OpenConnection,
        moves: u32,
        thread_state: Rc<HttpThreadState>,
        handler: Rc<dyn Handler>,
    ) -> Self {
        Self {
            stream,
            handler,
            open_connection: Some(open_connection),
            body: thread_state.account(),
            held: thread_state.answers.account(),
            thread_state,
            input: BytesMut::new(),
            requests: RequestDecoder::default(),
            begun: VecDeque::new(),
            weight: 0,
            next: None,
            streaming: None,
            upgrade: None,
            unsent: Unsent::default(),
            inlet: Inlet::Open,
            has_ended: false,
            lingers: false,
            is_heard: false,
            clock: Clock::new(),
            affinity: CoreAffinity::after(moves),
        }
    }

    async fn run(mut self) -> Option<(S, Left)> {
        let thread_state = self.thread_state.clone();
        let mut closing = pin!(thread_state.closing.begun());
        let mut is_told = false;
        let left = poll_fn(|context| {
            if !is_told {
                // Once is enough: the notification wakes the task, and a flag is looked at then.
                is_told = true;
                let _ = closing.as_mut().poll(context);
            }
            self.poll(context)
        })
        .await;
        left.map(|left| (self.stream, left))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Left>> {
        self.clock.now = tokio::time::Instant::now();
        loop {
            if !self.lingers && self.work(context).is_err() {
                return Poll::Ready(None);
            }
            if let Some(upgrade) = self.take_upgrade() {
                return Poll::Ready(Some(Left::Upgrades(upgrade, std::mem::take(&mut self.input))));
            }
            if let Some(departure) = self.departure() {
                return Poll::Ready(Some(Left::Moves(departure)));
            }
            if let Some(parking) = self.parking() {
                return Poll::Ready(Some(Left::Parks(parking)));
            }
            if !self.lingers && self.is_done() {
                if self.has_ended {
                    return Poll::Ready(None);
                }
                self.lingers = true;
                self.open_connection = None;
                self.clock.ended_at = self.clock.now;
            }
            if self.lingers && self.poll_linger(context).is_ready() {
                return Poll::Ready(None);
            }
            match ready!(self.clock.poll_late(context, self.waits())) {
                Late::Connection => return Poll::Ready(None),
                Late::Request(detail) => {
                    self.refuse(Refused::with(StatusCode::REQUEST_TIMEOUT, detail));
                }
            }
        }
    }

    /// Reads, begins, answers and writes what can be.
    fn work(&mut self, context: &mut Context<'_>) -> Result<(), Gone> {
        loop {
            if self.unsent.flush(&mut self.stream, context)? {
                self.note_written();
            }
            self.begin_next();
            self.take_in(context)?;
            let was_full = !self.has_room();
            self.answer(context)?;
            if !(self.is_next_due() || was_full && self.has_room()) {
                self.held.set(self.held_now());
                return Ok(());
            }
        }
    }

    /// Whether another request may be begun.
    fn has_room(&self) -> bool {
        self.inlet == Inlet::Open
            && self.next.is_none()
            && self.begun.len() < PIPELINED_MAX
            && self.streaming.is_none()
            && self.has_room_for_answer()
    }

    /// Whether its client has taken so much of what it is answered that there may be another answer: all of
    /// it, where the core has no room.
    fn has_room_for_answer(&self) -> bool {
        let held = self.weight + self.unsent.len();
        let is_full = held > 0 && self.thread_state.answers.is_full();
        !is_full && held <= ANSWERS_BYTES_MAX - ANSWER_BYTES_EXPECTED
    }

    /// What its answers hold of what the core has room for.
    fn held_now(&self) -> usize {
        let of = |begun: &Begun| match &begun.answer {
            Answer::Ready(answer) => answer_weight::of_core(&answer.body),
            Answer::UnderWay(_) => 0,
        };
        self.begun.iter().map(of).sum::<usize>() + self.unsent.len()
    }

    /// Whether the request that waits for those before it need not wait any longer.
    fn is_next_due(&self) -> bool {
        self.next.is_some()
            && self.begun.is_empty()
            && self.streaming.is_none()
            && self.has_room_for_answer()
    }

    fn waits(&self) -> Waits {
        if self.lingers {
            return Waits { lingers: true, ..Waits::default() };
        }
        let under_way = self.requests.under_way();
        let reads = self.has_room() && !self.has_ended;
        Waits {
            writes: !self.unsent.is_empty(),
            head: reads && under_way == UnderWay::Head,
            // Who waits to be told to send it is not late.
            body: reads && under_way == UnderWay::Body && !self.requests.expects_continue(),
            idle: under_way == UnderWay::Nothing && self.is_at_rest(),
            half_closed: self.has_ended && (self.unsent.is_empty() || self.has_no_end()),
            lingers: false,
        }
    }

    /// Reads what has come and begins what is whole.
    fn take_in(&mut self, context: &mut Context<'_>) -> Result<(), Gone> {
        for reads in 0.. {
            if !self.input.is_empty() && self.has_room() {
                let input = std::mem::take(&mut self.input);
                let mut bytes = &input[..];
                self.begin_all(&mut bytes);
                let taken = input.len() - bytes.len();
                self.input = input;
                self.input.advance(taken);
                if self.input.is_empty() {
                    self.input = BytesMut::new();
                }
            }
            let is_full = self.inlet != Inlet::Shut && self.input.len() >= HEAD_BYTES_MAX;
            if is_full || self.has_ended {
                break;
            }
            if reads == READS_MAX {
                // Others have their turn.
                context.waker().wake_by_ref();
                break;
            }
            let read = self.poll_read(context);
            self.is_heard &= read.is_pending();
            match read {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    self.has_ended = true;
                    self.clock.ended_at = self.clock.now;
                }
                Poll::Ready(Ok(_)) => self.clock.read_at = self.clock.now,
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let has_room = self.has_room();
        if has_room
            && let Some(mut room) = self.requests.room()
            && room.remaining_mut() >= DIRECT_BYTES_MIN
        {
            let count = ready!(pin!(self.stream.read_buf(&mut room)).poll(context))?;
            self.requests.put(count);
            self.begin_all(&mut &[][..]);
            return Poll::Ready(Ok(count));
        }
        let thread_state = self.thread_state.clone();
        let mut read = thread_state.read.borrow_mut();
        read.clear();
        let count = ready!(pin!(self.stream.read_buf(&mut *read)).poll(context))?;
        let mut bytes = &read[..];
        if self.input.is_empty() && has_room {
            self.begin_all(&mut bytes);
        }
        if self.inlet != Inlet::Shut {
            self.input.extend_from_slice(bytes);
            self.hold(self.input.len());
        }
        Poll::Ready(Ok(count))
    }

    /// Counts what has come of a request and is not whole, and so many bytes that wait to be looked at.
    fn hold(&mut self, waiting: usize) {
        let waiting = if self.inlet == Inlet::Shut { 0 } else { waiting };
        if let Err(refused) = self.body.set(self.requests.weight() + waiting) {
            self.refuse(refused);
        }
    }

    /// Begins every request that is whole, as long as there is room.
    fn begin_all(&mut self, bytes: &mut &[u8]) {
        let mut was_under_way = self.requests.under_way();
        while self.has_room() {
            match self.requests.next(bytes) {
                Ok(Some(received)) => {
                    self.begin(received);
                    was_under_way = UnderWay::Nothing;
                }
                Ok(None) => break,
                Err(refused) => self.refuse(refused),
            }
        }
        self.hold(bytes.len());
        if self.inlet == Inlet::Shut {
            *bytes = &[];
        }
        if was_under_way == UnderWay::Nothing {
            self.clock.head_at = self.clock.now;
        }
    }

    /// Begins a request, or has it wait until those before it are answered.
    fn begin(&mut self, received: Received) {
        let Received { request, keep_alive } = received;
        if !keep_alive {
            self.inlet = Inlet::Shut;
        } else if request.asks_for_upgrade() {
            self.inlet = Inlet::Held;
        }
        let (concurrency, manner) =
            (self.handler.concurrency(&request), Manner::of(&request, !keep_alive));
        let mut body = None;
        let weight = request.weight();
        if weight > 0 {
            let mut account = std::mem::replace(&mut self.body, self.thread_state.account());
            if let Err(refused) = account.set(weight) {
                return self.refuse(refused);
            }
            body = Some(account);
        }
        let next = Next { request: Rc::new(request), concurrency, manner, body };
        // Those that were begun are of one kind.
        if self.begun.back().is_none_or(|last| concurrency.goes_beside(last.concurrency)) {
            self.begin_now(next);
        } else {
            self.next = Some(Box::new(next));
        }
    }

    /// Begins the request that waits for those before it, once they are answered.
    fn begin_next(&mut self) {
        if self.is_next_due()
            && let Some(next) = self.next.take()
        {
            self.begin_now(*next);
        }
    }

    fn begin_now(&mut self, next: Next) {
        let Next { request, concurrency, manner, body } = next;
        let weight = self.handler.answer_bytes_expected(&request);
        self.weight += weight;
        let answer = Answer::UnderWay(self.handler.clone().answer(request));
        self.begun.push_back(Begun { answer, concurrency, manner, weight, _body: body });
    }

    /// Answers what is no request, behind what was asked before; nothing more is read.
    fn refuse(&mut self, refused: Refused) {
        let answer = Answer::Ready(refused.answer());
        let (concurrency, manner) = (Concurrency::Alone, Manner::LAST);
        self.begun.push_back(Begun { answer, concurrency, manner, weight: 0, _body: None });
        self.requests = RequestDecoder::default();
        self.body = self.thread_state.account();
        self.input = BytesMut::new();
        self.inlet = Inlet::Shut;
    }

    /// Asks for answers, and writes those that are next.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<(), Gone> {
        self.thread_state.parking_entry.attend();
        for begun in &mut self.begun {
            if let Answer::UnderWay(answer) = &mut begun.answer {
                let peer_cores = self.thread_state.peer_cores.as_deref();
                peer_cores.inspect(|peer_cores| peer_cores.attend());
                let polled = answer.as_mut().poll(context);
                peer_cores.inspect(|peer_cores| self.affinity.learn(peer_cores));
                if let Poll::Ready(answer) = polled {
                    let weight = answer_weight::of(&answer.body);
                    self.weight = self.weight - begun.weight + weight;
                    begun.weight = weight;
                    begun.answer = Answer::Ready(answer);
                }
            }
        }
        let thread_state = self.thread_state.clone();
        let mut out = thread_state.write.borrow_mut();
        while self.unsent.is_empty() {
            let gathered = self.gather(context, &mut out);
            let written = match gathered {
                Ok(true) => self.unsent.send(&mut self.stream, context, &out).map_err(Gone::from),
                Ok(false) => break,
                Err(gone) => Err(gone),
            };
            // All connections of the core gather here: what this one leaves would be another's.
            out.clear(WRITE_KEPT_BYTES_MAX);
            written?;
            self.note_written();
        }
        Ok(())
    }

    /// Gathers what is next for the socket; false if there is nothing.
    fn gather(&mut self, context: &mut Context<'_>, out: &mut WriteBuffer) -> Result<bool, Gone> {
        self.ask_for_body(out);
        while out.len() < WRITE_BYTES {
            if let Some(streaming) = &mut self.streaming {
                if streaming.is_to_be_ended() && self.thread_state.closing.has_begun() {
                    streaming.end(out);
                    self.streaming = None;
                    self.inlet = Inlet::Shut;
                    continue;
                }
                match streaming.poll_piece(context, out) {
                    Poll::Pending => break,
                    // The next one is asked for when the socket has this one.
                    Poll::Ready(Ok(true)) => break,
                    Poll::Ready(Ok(false)) => self.streaming = None,
                    Poll::Ready(Err(error)) => return Err(error.into()),
                }
            } else if let Some(Begun { answer: Answer::Ready(_), .. }) = self.begun.front()
                && let Some(Begun { answer: Answer::Ready(answer), manner, weight, .. }) =
                    self.begun.pop_front()
            {
                self.weight -= weight;
                self.encode(answer, manner, out);
            } else {
                break;
            }
        }
        Ok(out.len() > 0)
    }

    fn encode(&mut self, answer: Response, mut manner: Manner, out: &mut WriteBuffer) {
        if manner.is_begun {
            self.streaming = go_on_with(answer, manner);
            if self.streaming.is_none() {
                // There is no other way to say that this was not all.
                self.give_up_the_others();
            }
            return;
        }
        let is_last =
            self.begun.is_empty() && self.next.is_none() && self.thread_state.closing.has_begun();
        manner.closes |= is_last || ends_with_connection(&answer, manner);
        if manner.closes {
            self.give_up_the_others();
        }
        self.thread_state.count(answer.status());
        self.upgrade = answer.upgrade.clone();
        if self.inlet == Inlet::Held && self.upgrade.is_none() && self.begun.is_empty() {
            self.inlet = Inlet::Open;
        }
        self.streaming = encode(answer, manner, &self.thread_state.date.now(), out);
    }

    /// What goes out now is the last answer.
    fn give_up_the_others(&mut self) {
        self.inlet = Inlet::Shut;
        self.begun.clear();
        self.weight = 0;
        self.next = None;
    }

    /// Tells a client that waits for it to send the body, if that is the next thing to say.
    fn ask_for_body(&mut self, out: &mut WriteBuffer) {
        if self.begun.is_empty()
            && self.next.is_none()
            && self.streaming.is_none()
            && self.requests.expects_continue()
        {
            self.requests.set_continue_sent();
            self.clock.read_at = self.clock.now;
            out.own().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// The socket has taken something. A client that sends no more is waited for again, unless what it
    /// takes has no end: then it would never be given up.
    fn note_written(&mut self) {
        self.clock.written_at = self.clock.now;
        if self.has_ended && !self.has_no_end() {
            self.clock.ended_at = self.clock.now;
        }
    }
}

#[cfg(test)]
mod tests;

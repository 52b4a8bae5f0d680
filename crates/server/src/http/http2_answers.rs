//! Answers on their way to the client of an HTTP/2 connection, and the memory that they hold until the client has
//! taken them. It knows no requests.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::{sync::Notify, time::Instant};

use super::{
    answer_room::{AnswerAccount, AnswerRoom},
    answer_weight,
    body::Body,
    limits::ANSWERS_BYTES_MAX,
};

/// What goes on on a connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    /// Requests whose answers are not out.
    pub(crate) under_way: Cell<usize>,
    /// Answers of which the client's windows have no room for the next piece.
    stuck: Cell<usize>,
    /// Bytes of pieces that the socket does not have.
    given: Cell<usize>,
    /// When anything of this was last otherwise.
    pub(crate) moved_at: Cell<Instant>,
    /// Bytes of answers that the client has not taken.
    held: Cell<usize>,
    /// Rung when they become fewer.
    room: Notify,
    /// What all connections of the core may hold.
    of_core: Rc<AnswerRoom>,
}

impl ConnectionActivity {
    pub(crate) fn new(of_core: Rc<AnswerRoom>) -> Rc<Self> {
        Rc::new(Self {
            under_way: Cell::new(0),
            stuck: Cell::new(0),
            given: Cell::new(0),
            moved_at: Cell::new(Instant::now()),
            held: Cell::new(0),
            room: Notify::new(),
            of_core,
        })
    }

    /// Whether there is something that the client is to take.
    pub(crate) fn has_something_to_give(&self) -> bool {
        self.stuck.get() > 0 || self.given.get() > 0
    }

    /// Whether an answer may hold so many bytes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let held = self.held.get();
        held == 0 || held + bytes <= ANSWERS_BYTES_MAX && !self.of_core.is_full()
    }

    /// An answer that is thought to hold so many bytes, once there is room for them.
    pub(crate) async fn room_for(self: &Rc<Self>, bytes: usize) -> Held {
        while !self.has_room(bytes) {
            tokio::select! {
                () = self.room.notified() => {}
                () = self.of_core.wait_for_room() => {}
            }
        }
        let mut held = self.hold();
        held.expect(bytes);
        held
    }

    /// An answer that holds nothing yet.
    pub(crate) fn hold(self: &Rc<Self>) -> Held {
        Held { activity: self.clone(), bytes: 0, of_core: self.of_core.account() }
    }
}

/// Bytes that an answer holds until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    activity: Rc<ConnectionActivity>,
    bytes: usize,
    /// What of them is there.
    of_core: AnswerAccount,
}

impl Held {
    /// It holds so many from now on.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.expect(bytes);
        self.of_core.set(bytes);
    }

    /// It holds what the body of an answer does.
    pub(crate) fn set_to(&mut self, body: &Body) {
        self.expect(answer_weight::of(body));
        self.of_core.set(answer_weight::of_core(body));
    }

    /// It is thought to hold so many.
    fn expect(&mut self, bytes: usize) {
        let held = &self.activity.held;
        held.set(held.get() - self.bytes + bytes);
        if bytes < self.bytes {
            self.activity.room.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Counts a request as under way until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Rc<ConnectionActivity>);

impl UnderWay {
    pub(crate) fn new(activity: Rc<ConnectionActivity>) -> Self {
        activity.under_way.set(activity.under_way.get() + 1);
        activity.moved_at.set(Instant::now());
        Self(activity)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.moved_at.set(Instant::now());
    }
}

/// A piece of an answer, until the socket has it.
pub(crate) struct Piece {
    bytes: Bytes,
    held: Held,
}

impl Piece {
    fn new(bytes: Bytes, activity: &Rc<ConnectionActivity>) -> Self {
        activity.given.set(activity.given.get() + bytes.len());
        let mut held = activity.hold();
        held.set(bytes.len());
        Self { bytes, held }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let given = &self.held.activity.given;
        given.set(given.get() - self.bytes.len());
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.held.set(self.bytes.len());
        let activity = &self.held.activity;
        activity.given.set(activity.given.get() - count);
        activity.moved_at.set(Instant::now());
    }
}

/// What ends an answer that has no end of its own.
pub(crate) type End = Pin<Box<dyn Future<Output = ()>>>;

/// The body of an answer on its way out.
pub(crate) struct OutgoingBody {
    body: Body,
    /// What of it is not in a piece yet.
    held: Held,
    /// Parts that were given.
    at: usize,
    /// Whether a piece was given and no more was asked for yet.
    is_given: bool,
    /// Ends what has no end when the connection is to.
    closing: Option<End>,
    under_way: UnderWay,
}

impl OutgoingBody {
    pub(crate) fn new(body: Body, held: Held, closing: Option<End>, under_way: UnderWay) -> Self {
        let mut this = Self { body, held, at: 0, is_given: false, closing, under_way };
        // Until it is asked for, too, the client has no room.
        this.set_given(true);
        this
    }

    /// Notes whether the client takes what it is given.
    fn set_given(&mut self, is_given: bool) {
        let activity = &self.under_way.0;
        let stuck = activity.stuck.get() - usize::from(self.is_given) + usize::from(is_given);
        activity.stuck.set(stuck);
        activity.moved_at.set(Instant::now());
        self.is_given = is_given;
    }

    /// What of the answer is held by the piece that is given now.
    fn piece(&mut self, bytes: Bytes) -> Piece {
        let piece = Piece::new(bytes, &self.under_way.0);
        match &self.body {
            Body::Full(_) | Body::Parts(_) => {
                self.held.set(self.held.bytes.saturating_sub(piece.bytes.len()));
            }
            // The next one is made when this one is out.
            Body::Empty | Body::Measured { .. } | Body::Events(_) | Body::Farewell(_) => {
                self.held.set(0);
            }
            // Others are ready.
            Body::Pages(_) => {}
        }
        piece
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(match &mut self.body {
            Body::Empty => None,
            Body::Full(bytes) => {
                Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()).map(Ok)
            }
            Body::Parts(parts) => {
                let part = parts.get_mut(self.at).map(std::mem::take);
                self.at += 1;
                part.map(Ok)
            }
            Body::Measured { source, left } => {
                let piece = ready!(source.poll_next(context));
                if let Some(Ok(piece)) = &piece {
                    *left = left.saturating_sub(piece.len() as u64);
                }
                piece
            }
            Body::Events(source) => {
                if let Some(closing) = &mut self.closing
                    && closing.as_mut().poll(context).is_ready()
                {
                    self.body = Body::Empty;
                    return Poll::Ready(None);
                }
                ready!(source.poll_next(context)).map(Ok)
            }
            Body::Farewell(source) => ready!(source.poll_next(context)).map(Ok),
            Body::Pages(source) => ready!(source.poll_next(context)),
        })
    }
}

impl Drop for OutgoingBody {
    fn drop(&mut self) {
        self.set_given(false);
    }
}

impl HttpBody for OutgoingBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let this = self.get_mut();
        this.set_given(false);
        let bytes = ready!(this.poll_bytes(context));
        this.set_given(bytes.is_some());
        Poll::Ready(bytes.map(|bytes| bytes.map(|bytes| Frame::data(this.piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Body::Empty => true,
            Body::Full(bytes) => bytes.is_empty(),
            Body::Parts(parts) => self.at >= parts.len(),
            Body::Measured { .. } | Body::Events(_) | Body::Farewell(_) | Body::Pages(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.bytes().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

//! The timeouts of an HTTP/1 connection. Each connection has one timer, moved only when it fires or has to fire
//! earlier: a busy connection does not touch it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::limits::{BODY_TIMEOUT, HALF_CLOSED, HEAD_TIMEOUT, IDLE_TIMEOUT, LINGER, WRITE_TIMEOUT};

/// What a connection waits for; several at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// For the client to take what it is sent.
    pub(crate) writes: bool,
    /// For the rest of a head.
    pub(crate) head: bool,
    /// For more of a body.
    pub(crate) body: bool,
    /// For the next request, and nothing else.
    pub(crate) idle: bool,
    /// For something to say to a client that sends no more.
    pub(crate) half_closed: bool,
    /// For a client that has its last answer to go.
    pub(crate) lingers: bool,
}

/// What has taken too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// A part of a request.
    Request(&'static str),
    /// Anything else.
    Connection,
}

/// When things happened last, and the timer.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// When something was read.
    pub(crate) read_at: Instant,
    /// When the first byte of a head came.
    pub(crate) head_at: Instant,
    /// When the socket took something.
    pub(crate) written_at: Instant,
    /// When the client ended, or has taken something since, or was told that it was the end.
    pub(crate) ended_at: Instant,
    sleep: Pin<Box<Sleep>>,
    /// Whether the timer rings at its time: it was looked at since it was set.
    is_set: bool,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            now,
            read_at: now,
            head_at: now,
            written_at: now,
            ended_at: now,
            sleep: Box::pin(sleep_until(now + IDLE_TIMEOUT)),
            is_set: false,
        }
    }

    /// Says what has taken too long, once something has.
    pub(crate) fn poll_late(&mut self, context: &mut Context<'_>, waits: Waits) -> Poll<Late> {
        let head = "the head of the request took longer than HEAD_TIMEOUT, 10 s";
        let body = "nothing more of the body came for BODY_TIMEOUT, 10 s";
        let at_rest = self.read_at.max(self.written_at);
        let mut due = None;
        let mut wait = |waits: bool, since: Instant, timeout: Duration, late: Late| {
            if waits && due.is_none_or(|(at, _)| since + timeout < at) {
                due = Some((since + timeout, late));
            }
        };
        wait(waits.writes, self.written_at, WRITE_TIMEOUT, Late::Connection);
        wait(waits.head, self.head_at, HEAD_TIMEOUT, Late::Request(head));
        wait(waits.body, self.read_at, BODY_TIMEOUT, Late::Request(body));
        wait(waits.idle, at_rest, IDLE_TIMEOUT, Late::Connection);
        wait(waits.half_closed, self.ended_at, HALF_CLOSED, Late::Connection);
        wait(waits.lingers, self.ended_at, LINGER, Late::Connection);
        let Some((at, late)) = due else { return Poll::Pending };
        if self.sleep.deadline() > at {
            self.sleep.as_mut().reset(at);
            self.is_set = false;
        }
        loop {
            if self.is_set && self.sleep.deadline() > self.now {
                return Poll::Pending;
            }
            self.is_set = true;
            ready!(self.sleep.as_mut().poll(context));
            if self.sleep.deadline() >= at {
                return Poll::Ready(late);
            }
            // It was set for something that has come meanwhile.
            self.sleep.as_mut().reset(at);
            self.is_set = false;
        }
    }
}

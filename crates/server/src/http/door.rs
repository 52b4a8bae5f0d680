//! The HTTP door of a thread: which room a request is for. It knows paths, and leaves what they mean
//! to the rooms.

use std::{rc::Rc, sync::Arc};

use http::StatusCode;

use super::{
    answer::{come_again, problem},
    hall::Hall,
    request::Request,
    response::Response,
    status::Status,
    streams::{self, StreamsDoor, Wait},
};

/// What is asked of the door.
#[derive(Debug)]
pub(crate) enum Asked {
    /// What a client says. In a box: it goes through several hands.
    Request(Box<Request>),
    /// What was waited for without a task, to be waited for with one.
    Wait(Wait),
}

/// The HTTP door of a thread.
#[derive(Debug)]
pub(crate) struct Door {
    hall: Rc<Hall>,
    status: Arc<Status>,
    /// The streams, as this thread sees them; none while the shards are recovered, and when the broker
    /// stops.
    streams: Option<StreamsDoor>,
}

impl Door {
    pub(crate) fn new(hall: Rc<Hall>, status: Arc<Status>, streams: Option<StreamsDoor>) -> Self {
        Self { hall, status, streams }
    }

    pub(crate) fn hall(&self) -> &Rc<Hall> {
        &self.hall
    }

    /// Answers what is asked. Dropped when the client goes before it is answered.
    pub(crate) async fn answer_asked(self: &Rc<Self>, asked: Asked) -> Response {
        match (asked, &self.streams) {
            (Asked::Request(request), _) => self.answer(&request).await,
            (Asked::Wait(wait), Some(streams)) => Box::pin(streams.go_on(wait)).await,
            (Asked::Wait(_), None) => not_ready(),
        }
    }

    /// Answers a request. Dropped when the client goes before it is answered.
    pub(crate) async fn answer(self: &Rc<Self>, request: &Request) -> Response {
        let path = request.path();
        if path.starts_with(streams::ROOT) || path == streams::ATOMIC {
            return match &self.streams {
                Some(streams) => streams.answer(request).await,
                None => not_ready(),
            };
        }
        match Box::pin(self.status.answer(request.method(), request.path())).await {
            Some(answer) => answer,
            None => nothing_here(),
        }
    }
}

fn not_ready() -> Response {
    come_again("not_ready", "the broker recovers, or is about to stop")
}

fn nothing_here() -> Response {
    let known =
        "there are /v1/stream/…, /v1/atomic, /healthz, /readyz, /metrics and /v1/admin/backup";
    problem(StatusCode::NOT_FOUND, known, [])
}

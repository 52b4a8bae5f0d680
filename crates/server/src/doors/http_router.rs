//! The HTTP door of a thread: looks at each request, finds its route, and hands it to the room that lies
//! there. It knows routes, and leaves what they mean to the rooms.

use std::{rc::Rc, sync::Arc};

use http::{HeaderValue, Method, StatusCode, header};

use super::{
    http_routes::{self, Captures, Reach, Room, Route},
    status::Status,
    streams::{StreamsDoor, Wait},
};
use crate::http::{
    answer::{coded_problem, come_again},
    request::Request,
    response::Response,
    thread_context::Hall,
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
        let guard = &self.hall.guard;
        let found = http_routes::find(request.path());
        let route = found.map(|(route, _)| route);
        let (mut response, reach) = match (guard.check(request, route), found) {
            // Nothing is said to a page that may not ask.
            (Err(misdirected), _) => (misdirected.answer(), Reach::OwnPages),
            (Ok(()), None) => (nothing_here(), Reach::OwnPages),
            (Ok(()), Some((route, captures))) => {
                (self.answer_at(route, captures, request).await, route.reach)
            }
        };
        guard.say(response.headers_mut(), request, reach);
        response
    }

    async fn answer_at(
        &self,
        route: &'static Route,
        captures: Captures<'_>,
        request: &Request,
    ) -> Response {
        let method = request.method();
        if !route.knows(method.as_str()) {
            return not_allowed(route.methods);
        }
        if *method == Method::OPTIONS {
            return self.hall.guard.preflight(request, route);
        }
        match route.room {
            Room::Stream | Room::Atomic | Room::Subscriptions(_) => match &self.streams {
                Some(streams) => streams.answer(request, (route.room, captures)).await,
                None => not_ready(),
            },
            Room::Alive => self.status.alive(),
            Room::Ready => self.status.ready(),
            Room::Metrics => self.status.metrics(),
            Room::Backup => Box::pin(self.status.backup()).await,
        }
    }
}

fn not_ready() -> Response {
    come_again("not_ready", "the broker recovers, or is about to stop")
}

fn nothing_here() -> Response {
    let mut paths: Vec<&str> = http_routes::all().map(|route| route.path).collect();
    paths.sort_unstable();
    let detail = format!("nothing is here; there are {}", paths.join(", "));
    coded_problem(StatusCode::NOT_FOUND, "unknown_path", &detail)
}

fn not_allowed(methods: &'static str) -> Response {
    let detail = format!("this knows {methods}");
    let mut response = coded_problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &detail);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

#[cfg(test)]
mod tests;

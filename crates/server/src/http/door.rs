//! The HTTP door of a thread: which room a request is for. It knows paths, and leaves what they mean
//! to the rooms.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::{
    answer::{Body, problem},
    hall::Hall,
    status::Status,
};
use crate::core::CoreHandle;

/// What is found behind `/v1/stream`.
const STREAMS: &str = "/v1/stream/";

/// The HTTP door of a thread.
#[derive(Debug)]
pub(crate) struct Door {
    hall: Rc<Hall>,
    status: Arc<Status>,
    /// The core of this thread; none while the shards are recovered, and when the broker stops.
    core: Option<CoreHandle>,
}

impl Door {
    pub(crate) fn new(hall: Rc<Hall>, status: Arc<Status>, core: Option<CoreHandle>) -> Self {
        Self { hall, status, core }
    }

    pub(crate) fn hall(&self) -> &Rc<Hall> {
        &self.hall
    }

    /// Answers a request. Dropped when the client goes before it is answered.
    pub(crate) async fn answer(self: &Rc<Self>, request: Request<Bytes>) -> Response<Body> {
        if let Some(name) = request.uri().path().strip_prefix(STREAMS) {
            return self.stream(name);
        }
        match self.status.answer(request.method(), request.uri().path()).await {
            Some(answer) => answer,
            None => nothing_here(),
        }
    }

    fn stream(&self, _name: &str) -> Response<Body> {
        match &self.core {
            Some(_) => nothing_here(),
            None => {
                let detail = "the broker recovers, or is about to stop";
                problem(StatusCode::SERVICE_UNAVAILABLE, detail, [])
            }
        }
    }
}

fn nothing_here() -> Response<Body> {
    let known = "there are /healthz, /readyz, /metrics and /v1/admin/backup";
    problem(StatusCode::NOT_FOUND, known, [])
}

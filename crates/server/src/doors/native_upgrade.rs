//! The answer to a request that wants to become a connection of the native protocol: a WebSocket, whose binary messages carry
//! what would go over TCP. Who the client is says its Hello, or the certificate of the connection.

use std::rc::Rc;

use http::{StatusCode, Version, header};
use sennit_websocket::{Upgrade as WebSocketUpgrade, UpgradeRefusal};

use crate::http::{
    answer::{coded_problem, come_again},
    body::Body,
    request::Request,
    response::Response,
    thread_state::HttpThreadState,
    upgrade::{Upgrade, UpgradeEntry},
};

/// Answers a request; the connection goes on at `entry`.
pub(super) fn answer(
    thread_state: &HttpThreadState,
    request: &Request,
    entry: &Rc<UpgradeEntry>,
) -> Response {
    let version = if request.is_old() { Version::HTTP_10 } else { Version::HTTP_11 };
    let upgrade = match WebSocketUpgrade::of(request.method(), version, request.headers().iter()) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refused(&refusal),
    };
    if !entry.is_open() || thread_state.closing.has_begun() {
        return come_again("not_ready", "the broker recovers, or is about to stop");
    }
    let mut response = Response::new(Body::Empty);
    response.status = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in upgrade.answer(None, None) {
        // The transport says itself what becomes of the connection.
        if name != header::CONNECTION {
            response.headers_mut().insert(name, value);
        }
    }
    response.upgrade = Some(Upgrade::to(entry.clone()));
    response
}

fn refused(refusal: &UpgradeRefusal) -> Response {
    let detail = format!("this is for WebSocket connections: {refusal}");
    let mut response = coded_problem(refusal.status(), "no_websocket", &detail);
    for (name, value) in refusal.headers() {
        if name != header::CONNECTION {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

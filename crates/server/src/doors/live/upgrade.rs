//! The answer to a request that wants to become a live connection: a WebSocket that speaks the Centrifuge client protocol.
//! Who the client is may be said here, by headers, or later in its first command.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use sennit_centrifuge::Encoding;
use sennit_websocket::{DeflateAnswer, Upgrade as WebSocketUpgrade, UpgradeRefusal};

use super::{backend::SHOWN_HEADERS, connection::Greeting, dialect::Dialect};
use crate::{
    http::{
        answer::{coded_problem, come_again},
        body::Body,
        request::Request,
        response::Response,
        thread_state::HttpThreadState,
        upgrade::Upgrade,
    },
    identity::principal::Principal,
    runtime::peer::Peer,
};

/// What a connection takes along to the live connections.
#[derive(Clone, Debug)]
pub(crate) struct LiveClient {
    pub(crate) dialect: Dialect,
    pub(crate) deflate: Option<DeflateAnswer>,
    /// On whose behalf it asks, if it has shown credentials; nobody otherwise.
    pub(crate) principal: Principal,
    pub(crate) greeting: Greeting,
}

/// Answers a request.
pub(crate) fn answer(
    thread_state: &HttpThreadState,
    request: &Request,
    principal: Principal,
    peer: &Peer,
) -> Response {
    let version = if request.is_old() { Version::HTTP_10 } else { Version::HTTP_11 };
    let upgrade = match WebSocketUpgrade::of(request.method(), version, request.headers().iter()) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refused(refusal),
    };
    if !thread_state.upgrade_entry.is_open() || thread_state.closing.has_begun() {
        return come_again("not_ready", "the broker recovers, or is about to stop");
    }
    let spoken = |name: &String| Some((name.clone(), Encoding::of_subprotocol(name)?));
    let subprotocol = upgrade.subprotocols().iter().find_map(spoken);
    let asks_for_protobuf = request.query().is_some_and(|query| {
        query.split('&').any(|part| part == "cf_protocol=protobuf" || part == "format=protobuf")
    });
    let (name, encoding) = match subprotocol {
        Some((name, encoding)) => (Some(name), encoding),
        None if asks_for_protobuf => (None, Encoding::Protobuf),
        None => (None, Encoding::Json),
    };
    let dialect = Dialect::Centrifuge(encoding);
    let deflate = upgrade.deflate();
    let mut headers = HeaderMap::new();
    for name in SHOWN_HEADERS {
        let value = request.headers().get(&name).map(HeaderValue::from_bytes);
        if let Some(Ok(value)) = value {
            headers.insert(name, value);
        }
    }
    let greeting = Greeting { peer: peer.clone(), headers };
    let mut response = Response::new(Body::Empty);
    response.status = StatusCode::SWITCHING_PROTOCOLS;
    for (header, value) in upgrade.answer(name.as_deref(), deflate) {
        // The transport says itself what becomes of the connection.
        if header != http::header::CONNECTION {
            response.headers_mut().insert(header, value);
        }
    }
    response.upgrade = Some(Upgrade::new(LiveClient { dialect, deflate, principal, greeting }));
    response
}

fn refused(refusal: UpgradeRefusal) -> Response {
    let detail = format!("this is for WebSocket connections: {refusal}");
    let mut response = coded_problem(refusal.status(), "no_websocket", &detail);
    let said: Vec<(HeaderName, HeaderValue)> = refusal.headers();
    for (header, value) in said {
        if header != http::header::CONNECTION {
            response.headers_mut().insert(header, value);
        }
    }
    response
}

//! The answer to a request that wants to become a live connection: a WebSocket that speaks the Centrifuge client protocol, or
//! the WSE protocol. Who the client is may be said here, by headers; in the first one also later, in its first command.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use sennit_centrifuge::Encoding;
use sennit_websocket::{DeflateAnswer, Upgrade as WebSocketUpgrade, UpgradeRefusal};

use super::{
    backend::SHOWN_HEADERS, connection::Greeting, dialect::Dialect, limits::SUBSCRIPTIONS_MAX,
};
use crate::{
    broker::path_encoding::decoded,
    http::{
        answer::{coded_problem, come_again},
        body::Body,
        request::Request,
        response::Response,
        thread_state::HttpThreadState,
        upgrade::Upgrade,
    },
    identity::{login::Credential, principal::Principal},
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
    /// What a client of WSE has said with its request.
    pub(crate) wse: Option<WseEntry>,
}

/// What a client of WSE says with its request.
#[derive(Clone, Debug)]
pub(crate) struct WseEntry {
    /// It is checked behind the handshake: clients of WSE learn from a close code that they are not let in.
    pub(crate) credential: Credential,
    /// What it is subscribed to at once.
    pub(crate) topics: Vec<String>,
}

/// Answers a request of a client of the Centrifuge protocol.
pub(crate) fn answer(
    thread_state: &HttpThreadState,
    request: &Request,
    principal: Principal,
    peer: &Peer,
) -> Response {
    let greeting = greeting(request, peer);
    answer_with(thread_state, request, |upgrade, deflate| {
        let spoken = |name: &String| Some((name.clone(), Encoding::of_subprotocol(name)?));
        let subprotocol = upgrade.subprotocols().iter().find_map(spoken);
        let asks_for_protobuf =
            parts(request).any(|part| part == "cf_protocol=protobuf" || part == "format=protobuf");
        let (name, encoding) = match subprotocol {
            Some((name, encoding)) => (Some(name), encoding),
            None if asks_for_protobuf => (None, Encoding::Protobuf),
            None => (None, Encoding::Json),
        };
        let dialect = Dialect::Centrifuge(encoding);
        (name, LiveClient { dialect, deflate, principal, greeting, wse: None })
    })
}

/// Answers a request of a client of the WSE protocol.
pub(crate) fn answer_wse(
    thread_state: &HttpThreadState,
    request: &Request,
    credential: Credential,
    peer: &Peer,
) -> Response {
    let greeting = greeting(request, peer);
    answer_with(thread_state, request, |_, deflate| {
        let lists = parts(request).filter_map(|part| part.strip_prefix("topics="));
        let names = lists.flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
        let topics = names.filter_map(text_of).take(SUBSCRIPTIONS_MAX).collect();
        let wse = Some(WseEntry { credential, topics });
        let (dialect, principal) = (Dialect::Wse, Principal::nobody());
        (None, LiveClient { dialect, deflate, principal, greeting, wse })
    })
}

/// A client, as far as its request says who it is.
pub(super) fn greeting(request: &Request, peer: &Peer) -> Greeting {
    let mut headers = HeaderMap::new();
    for name in SHOWN_HEADERS {
        let value = request.headers().get(&name).map(HeaderValue::from_bytes);
        if let Some(Ok(value)) = value {
            headers.insert(name, value);
        }
    }
    Greeting { peer: peer.clone(), headers }
}

/// The parts of the query of a request.
fn parts(request: &Request) -> impl Iterator<Item = &str> {
    request.query().unwrap_or_default().split('&')
}

/// The text that is written so in a query; none if it is no text.
fn text_of(written: &str) -> Option<String> {
    let bytes = decoded(written)?.into_iter().map(|(byte, _)| byte).collect();
    String::from_utf8(bytes).ok()
}

/// Refuses a live connection if there are as many as may be.
pub(super) fn check_room(thread_state: &HttpThreadState) -> Result<(), Response> {
    if thread_state.upgrade_entry.has_room() {
        return Ok(());
    }
    thread_state.metrics.live_refused.add(1);
    let detail = "there are as many live connections as may be; live.connections sets it";
    Err(come_again("limit_reached", detail))
}

/// Answers a request with a WebSocket, of the subprotocol and for the client that `client` says.
fn answer_with(
    thread_state: &HttpThreadState,
    request: &Request,
    client: impl FnOnce(&WebSocketUpgrade, Option<DeflateAnswer>) -> (Option<String>, LiveClient),
) -> Response {
    let version = if request.is_old() { Version::HTTP_10 } else { Version::HTTP_11 };
    let upgrade = match WebSocketUpgrade::of(request.method(), version, request.headers().iter()) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refused(refusal),
    };
    if !thread_state.upgrade_entry.is_open() || thread_state.closing.has_begun() {
        return come_again("not_ready", "the broker recovers, or is about to stop");
    }
    if let Err(refusal) = check_room(thread_state) {
        return refusal;
    }
    let deflate = upgrade.deflate();
    let (name, client) = client(&upgrade, deflate);
    let mut response = Response::new(Body::Empty);
    response.status = StatusCode::SWITCHING_PROTOCOLS;
    for (header, value) in upgrade.answer(name.as_deref(), deflate) {
        // The transport says itself what becomes of the connection.
        if header != http::header::CONNECTION {
            response.headers_mut().insert(header, value);
        }
    }
    response.upgrade = Some(Upgrade::new(client));
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

//! Live connections for networks that let no WebSocket through. One is the answer to a request, in which what a WebSocket
//! would carry goes on and on: events, or messages one behind the other. Its client sends commands in requests of their own,
//! which name the session and the node that the reply to its first command has told. It knows HTTP, and no commands.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use sennit_centrifuge::{
    Command, DecodeError, EmulationRequest, Encoding, Problem, Request as LiveRequest,
    decode_commands,
};
use tokio::sync::oneshot;

use super::{
    answer_pipe::pipe,
    connections::{EmulatedArrival, EmulationRefusal, LIMITS, LiveCalls, LiveConnections},
    dialect::Dialect,
    format::{Carrier, Format},
    limits::{MESSAGE_BYTES_MAX, WAITING_BYTES_MAX},
    upgrade::{check_room, greeting},
};
use crate::{
    broker::path_encoding::decoded,
    http::{
        answer::{coded_problem, come_again},
        body::{Body, EventSource},
        request::Request,
        response::Response,
        thread_state::HttpThreadState,
    },
    identity::principal::Principal,
    runtime::{core::CoreHandle, index::CoreIndex, peer::Peer},
};

/// Has nginx pass on what comes at once.
static ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What is asked of a connection without a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emulated {
    /// To begin as server-sent events.
    Events,
    /// To begin as an answer with message behind message.
    Stream,
    /// To do commands.
    Commands,
}

/// The way from the HTTP requests of a core to its live connections.
#[derive(Debug)]
pub(crate) struct LiveDoor {
    core: CoreHandle,
    thread_state: Rc<HttpThreadState>,
}

impl LiveDoor {
    pub(crate) fn new(core: CoreHandle, thread_state: Rc<HttpThreadState>) -> Self {
        Self { core, thread_state }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        asked: Emulated,
        request: &Request,
        principal: Principal,
        peer: &Peer,
    ) -> Response {
        let answer = match asked {
            Emulated::Events => {
                self.begin((Encoding::Json, Carrier::Events), request, (principal, peer))
            }
            Emulated::Stream => {
                self.begin((encoding_of(request), Carrier::Stream), request, (principal, peer))
            }
            Emulated::Commands => self.take_commands(request).await,
        };
        answer.unwrap_or_else(|refusal| refusal)
    }

    /// Begins a connection, which is the answer.
    fn begin(
        &self,
        (encoding, carrier): (Encoding, Carrier),
        request: &Request,
        (principal, peer): (Principal, &Peer),
    ) -> Result<Response, Response> {
        let commands = commands_of(encoding, request)?;
        let format = Format { dialect: Dialect::Centrifuge(encoding), carrier };
        let calls = self.core.services.find::<LiveCalls>();
        let is_open = self.thread_state.upgrade_entry.is_open();
        let is_closing = self.thread_state.closing.has_begun();
        let Some(calls) = calls.filter(|_| is_open && !is_closing) else { return Err(not_ready()) };
        check_room(&self.thread_state)?;
        let (writer, reader) = pipe();
        let greeting = greeting(request, peer);
        let arrival = EmulatedArrival { pipe: writer, format, commands, principal, greeting };
        calls.call(move |live: &mut LiveConnections| {
            if let Err(error) = live.welcome_emulated(arrival) {
                tracing::warn!(%error, "a live connection could not begin");
            }
        });
        let mut response = Response::new(Body::Farewell(EventSource::new(reader)));
        let content_type = match (carrier, encoding) {
            (Carrier::Events, _) => "text/event-stream",
            (_, Encoding::Protobuf) => "application/octet-stream",
            (_, Encoding::Json) => "application/json",
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(&ACCEL_BUFFERING, HeaderValue::from_static("no"));
        Ok(response)
    }

    /// Has the connection of a session do commands.
    async fn take_commands(&self, request: &Request) -> Result<Response, Response> {
        let read = EmulationRequest::decode(encoding_of(request), request.body(), LIMITS);
        let EmulationRequest { node, session, message } = read.map_err(|error| wrong(&error))?;
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        let core = u32::from_str_radix(&node, 16).ok().map(CoreIndex);
        let core = core.filter(|core| (core.0 as usize) < self.core.cores.inboxes.len());
        let Some(core) = core else { return Err(unknown_session()) };
        let (tell, told) = oneshot::channel();
        LiveConnections::call(&self.core.cores, core, move |live| {
            let _ = tell.send(live.emulate(&session, message));
        });
        match told.await {
            Ok(Ok(())) => {
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }
            Ok(Err(EmulationRefusal::UnknownSession)) => Err(unknown_session()),
            Ok(Err(EmulationRefusal::TooMuchWaits)) => {
                let detail = format!(
                    "more commands wait than WAITING_BYTES_MAX, {WAITING_BYTES_MAX} bytes: send them when the earlier ones are answered"
                );
                let status = StatusCode::TOO_MANY_REQUESTS;
                let mut response = coded_problem(status, "too_many_commands", &detail);
                let seconds = HeaderValue::from_static("1");
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
                Err(response)
            }
            Err(_) => Err(not_ready()),
        }
    }
}

/// The commands with which a connection begins: in the query of a GET, and in the body of a POST.
fn commands_of(encoding: Encoding, request: &Request) -> Result<Vec<Command>, Response> {
    let of_query;
    let message: &[u8] = if *request.method() == Method::GET {
        of_query = connect_parameter(request.query().unwrap_or_default()).ok_or_else(|| {
            no_connect("the query has cf_connect, and in it the connect command, as JSON")
        })?;
        &of_query
    } else {
        request.body()
    };
    let commands = decode_commands(encoding, message, LIMITS);
    let commands = commands.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))?;
    match commands.first() {
        Some(Command { request: Some(LiveRequest::Connect(_)), .. }) => Ok(commands),
        _ => Err(no_connect("the first command is a connect command")),
    }
}

/// What a query has under the name `cf_connect`, as forms write it.
fn connect_parameter(query: &str) -> Option<Bytes> {
    let value = query.split('&').find_map(|part| part.strip_prefix("cf_connect="))?;
    let letters = decoded(value)?.into_iter().map(|letter| match letter {
        (b'+', false) => b' ',
        (byte, _) => byte,
    });
    Some(letters.collect())
}

/// The encoding that a request names: what comes as bytes is Protobuf.
fn encoding_of(request: &Request) -> Encoding {
    let content_type = request.headers().get(&header::CONTENT_TYPE).unwrap_or_default();
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if kind.trim_ascii().eq_ignore_ascii_case(b"application/octet-stream") {
        Encoding::Protobuf
    } else {
        Encoding::Json
    }
}

fn not_ready() -> Response {
    come_again("not_ready", "the broker recovers, or is about to stop")
}

fn no_connect(detail: &str) -> Response {
    coded_problem(StatusCode::BAD_REQUEST, "no_connect", detail)
}

fn wrong(error: &DecodeError) -> Response {
    match error.problem {
        Problem::MessageTooLong { .. } => too_long(),
        _ => coded_problem(StatusCode::BAD_REQUEST, "bad_commands", &error.to_string()),
    }
}

fn too_long() -> Response {
    let detail = format!("commands are longer than MESSAGE_BYTES_MAX, {MESSAGE_BYTES_MAX} bytes");
    coded_problem(StatusCode::PAYLOAD_TOO_LARGE, "message_too_long", &detail)
}

fn unknown_session() -> Response {
    let detail = "no connection has this session on this node: connect again";
    coded_problem(StatusCode::NOT_FOUND, "unknown_session", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connect_command_is_read_as_forms_write_it() {
        for (query, expected) in [
            ("cf_connect=%7B%22id%22%3A1%7D", Some(r#"{"id":1}"#)),
            ("a=b&cf_connect=%7B%22a%22:+%22%2B%22}", Some(r#"{"a": "+"}"#)),
            ("cf_connect=", Some("")),
            ("cf_connect=%2", None),
            ("cf_connect", None),
            ("", None),
        ] {
            let expected = expected.map(|text| Bytes::from_static(text.as_bytes()));
            assert_eq!(connect_parameter(query), expected, "{query}");
        }
    }
}

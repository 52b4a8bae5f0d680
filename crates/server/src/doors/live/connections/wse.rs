//! What clients of the WSE protocol ask. The loop does it as it does the commands of the Centrifuge protocol; what becomes of
//! the answers says `live/wse`.

use sennit_centrifuge::{ConnectRequest, Data, HistoryRequest, PublishRequest, SubscribeRequest};
use sennit_wse::{CloseCode, Event, Position, Publish, Request, decode};

use super::{LiveConnections, subscriptions::epoch};
use crate::{
    doors::live::{
        backend::BackendAsk,
        connection::{Connection, Greeting, Phase},
        connection_id::ConnectionId,
        dialect::ClientRequest,
        upgrade::WseEntry,
        wse::{Asked, Resumption},
    },
    identity::login::Credential,
    runtime::clock::now,
};

/// Makes requests of a message; whether its client has said that it is there.
pub(super) fn take_message(connection: &mut Connection, message: &[u8]) -> bool {
    match decode(message) {
        Ok(requests) => {
            let mut pongs = false;
            for request in requests {
                match request {
                    Request::Pong => pongs = true,
                    other => connection.requests.push_back(ClientRequest::Wse(other)),
                }
            }
            pongs
        }
        Err(error) => {
            tracing::debug!(%error, "a live client sent what is no message");
            connection.end_wse(CloseCode::InvalidMessage, &error.to_string());
            false
        }
    }
}

impl LiveConnections {
    /// A client of the protocol has come. It is logged in by what came with its request.
    pub(super) fn welcome_wse(&mut self, id: ConnectionId, entry: WseEntry) {
        let Some(connection) = self.get(id) else { return };
        let Phase::Greeting(greeting) = &connection.phase else { return };
        let Greeting { peer, headers } = Greeting::clone(greeting);
        connection.is_busy = true;
        for topic in entry.topics {
            let request = Request::Subscribe { topic, recovers: None, presence: None };
            connection.requests.push_back(ClientRequest::Wse(request));
        }
        let backend = self.requests.backend();
        let is_asked = backend.is_some_and(|backend| backend.is_asked(BackendAsk::Connect));
        if is_asked && matches!(entry.credential, Credential::None) {
            let asker = self.asker(id);
            let request = ConnectRequest::default();
            return self.requests.let_in(id, 0, asker, request, (peer, headers));
        }
        self.requests.log_in(id, 0, entry.credential, peer);
    }

    pub(super) fn wse_request(&mut self, id: ConnectionId, request: Request) {
        let (client, ping_interval) = (self.client_id(id), self.rules.ping_interval);
        let Some(connection) = self.get(id) else { return };
        let time = now();
        if connection.has_expired(time) {
            return connection.end(sennit_centrifuge::DisconnectCode::Expired);
        }
        match request {
            Request::Hello { offers_encryption } => {
                connection.tell(&Event::Hello {
                    connection: &client,
                    version: env!("CARGO_PKG_VERSION"),
                    ping_interval_ms: u64::try_from(ping_interval.as_millis()).unwrap_or(u64::MAX),
                });
                if offers_encryption {
                    let message = "messages are not encrypted within the WebSocket: use TLS (wss)";
                    refuse(connection, "ENCRYPTION_NOT_SUPPORTED", message);
                }
            }
            Request::Ping { sent_ms } => {
                connection.tell(&Event::Pong { sent_ms, now_ms: time.0.cast_signed() });
            }
            Request::Pong => {}
            Request::Subscribe { topic, recovers, presence } => {
                self.wse_subscribe(id, topic, recovers, presence);
            }
            Request::Unsubscribe { topic } => {
                self.end_quietly(id, &topic);
                if let Some(connection) = self.get(id) {
                    connection.tell(&Event::Unsubscribed { topic: &topic });
                }
            }
            Request::Publish(Publish { topic, payload, correlation_id }) => {
                let asked = Asked::Publish { topic: topic.as_str().into(), correlation_id };
                let Some(number) = ask(connection, asked) else { return };
                let data = Data::of_payload(payload.into_bytes().into());
                self.publish(id, number, PublishRequest { channel: topic, data, kind: 0 });
            }
            Request::Snapshot { topic } => {
                let asked = Asked::Snapshot(topic.as_str().into());
                let Some(number) = ask(connection, asked) else { return };
                let newest =
                    HistoryRequest { channel: topic, limit: 1, reverse: true, ..<_>::default() };
                self.history(id, number, newest);
            }
            Request::SnapshotsAsked { topics } => {
                let sent = connection.wse.as_mut().map(|wse| std::mem::take(&mut wse.snapshots));
                let count = sent.unwrap_or_default();
                connection.tell(&Event::SnapshotComplete { topics: &topics, count });
            }
            Request::Other { kind } => {
                let message = format!("{kind:?} is no request that this broker knows");
                refuse(connection, "UNKNOWN_TYPE", &message);
            }
        }
    }

    fn wse_subscribe(
        &mut self,
        id: ConnectionId,
        topic: String,
        mut recovers: Option<(String, u64)>,
        presence: Option<String>,
    ) {
        let held = self.wse_position(id, &topic);
        let Some(connection) = self.get(id) else { return };
        let is_subscribed = connection.subscription(&topic).is_some();
        let Some(wse) = &mut connection.wse else { return };
        match &mut recovers {
            // It goes on where it is, and others are told something else of it.
            None if is_subscribed && presence.is_some() => recovers = held,
            None if is_subscribed => {
                // Nothing has changed, and its client is where it is.
                return connection.tell(&Event::Subscribed { topic: &topic, position: None });
            }
            Some((epoch, offset)) if is_subscribed => match wse.resume(&topic, *offset) {
                Resumption::Stale => return,
                Resumption::There => {}
                Resumption::BehindNext => {
                    *offset += 1;
                    let position = Position { epoch, offset: *offset, recovered: false };
                    let message =
                        format!("message {offset} was sent before, and is left out this time");
                    let event = Event::Error {
                        code: "MESSAGE_SKIPPED",
                        message: &message,
                        is_retryable: false,
                        topic: Some(&topic),
                        correlation_id: None,
                    };
                    connection.tell(&event);
                    let event = Event::Subscribed { topic: &topic, position: Some(position) };
                    connection.tell(&event);
                }
            },
            _ => wse.forget(&topic),
        }
        if is_subscribed {
            self.leave_quietly(id, &topic);
        }
        let Some(connection) = self.get(id) else { return };
        let Some(number) = ask(connection, Asked::Subscribe(topic.as_str().into())) else { return };
        let recover = recovers.is_some();
        let (epoch, offset) = recovers.unwrap_or_default();
        let request = SubscribeRequest {
            channel: topic,
            recover,
            epoch,
            offset,
            join_leave: presence.is_some(),
            data: presence
                .filter(|json| !json.is_empty())
                .map_or_else(Data::default, |json| Data::of_payload(json.into())),
            ..SubscribeRequest::default()
        };
        self.subscribe(id, number, request);
    }

    /// Where the subscription of a connection to a topic is, if there is one.
    fn wse_position(&mut self, id: ConnectionId, topic: &str) -> Option<(String, u64)> {
        let connection = self.get(id)?;
        let held = &connection.subscriptions[connection.subscription(topic)?];
        let (broadcast, next) = (held.broadcast, held.next);
        Some((epoch(self.broadcasts.get(&broadcast)?.located()?), next))
    }

    /// Ends a subscription for good.
    fn end_quietly(&mut self, id: ConnectionId, topic: &str) {
        self.leave_quietly(id, topic);
        if let Some(wse) = self.get(id).and_then(|connection| connection.wse.as_mut()) {
            wse.forget(topic);
        }
    }

    fn leave_quietly(&mut self, id: ConnectionId, topic: &str) {
        let Some(connection) = self.get(id) else { return };
        let Some(at) = connection.subscription(topic) else { return };
        let held = connection.subscriptions.swap_remove(at);
        let format = connection.format();
        self.leave(id, format, held.broadcast, held.place);
    }
}

fn ask(connection: &mut Connection, asked: Asked) -> Option<u32> {
    connection.wse.as_mut().map(|wse| wse.ask(asked))
}

fn refuse(connection: &mut Connection, code: &str, message: &str) {
    connection.tell(&Event::Error {
        code,
        message,
        is_retryable: false,
        topic: None,
        correlation_id: None,
    });
}

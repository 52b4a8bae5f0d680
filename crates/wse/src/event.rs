//! What the broker says to a client that is no message of a topic: `{"c":"WSE","t":"type","p":{},"v":1}`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{MESSAGE_BYTES_MAX, VERSION};

/// Where a subscription goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Position<'e> {
    /// The epoch of the topic.
    pub epoch: &'e str,
    /// The offset, from 1, behind which the next message is.
    pub offset: u64,
    /// Whether that is where the client was. If not, it forgets where it was, and goes on here.
    pub recovered: bool,
}

/// Something that the broker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'e> {
    /// The client is logged in.
    Ready {
        /// The id of the connection.
        connection: &'e str,
        /// Who it is.
        user: &'e str,
    },
    /// To `client_hello`.
    Hello {
        /// The id of the connection.
        connection: &'e str,
        /// Of the broker.
        version: &'e str,
        /// How often the broker asks whether the client is there.
        ping_interval_ms: u64,
    },
    /// Is the client there?
    Ping {
        /// Milliseconds since 1970.
        now_ms: i64,
    },
    /// To `ping`.
    Pong {
        /// When it was sent, as its client has said.
        sent_ms: Option<i64>,
        /// Milliseconds since 1970.
        now_ms: i64,
    },
    /// A subscription has begun, or goes on elsewhere.
    Subscribed {
        /// The topic.
        topic: &'e str,
        /// Where it goes on; none if nothing has changed.
        position: Option<Position<'e>>,
    },
    /// A subscription has ended, because the client wanted it.
    Unsubscribed {
        /// The topic.
        topic: &'e str,
    },
    /// There is no subscription, though the client wants one.
    NotSubscribed {
        /// The topic.
        topic: &'e str,
    },
    /// A publication with a correlation id is committed.
    Published {
        /// The topic.
        topic: &'e str,
        /// Of the publication.
        correlation_id: &'e str,
    },
    /// All snapshots that were asked for are there.
    SnapshotComplete {
        /// Their topics.
        topics: &'e [String],
        /// How many there were.
        count: u32,
    },
    /// A client came to a topic, or went.
    Presence {
        /// Whether it came.
        is_join: bool,
        /// The topic.
        topic: &'e str,
        /// Who it is.
        user: &'e str,
        /// The id of its connection.
        connection: &'e str,
        /// What is said of it: JSON, or empty.
        data: &'e str,
    },
    /// Something was refused.
    Error {
        /// A word in capitals.
        code: &'e str,
        /// For people.
        message: &'e str,
        /// Whether it may work later.
        is_retryable: bool,
        /// The topic, if it is about one.
        topic: Option<&'e str>,
        /// Of the publication that was refused, if it had one.
        correlation_id: Option<&'e str>,
    },
}

#[derive(Serialize)]
struct Envelope<'e, P> {
    c: &'static str,
    t: &'static str,
    p: P,
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<&'e str>,
}

#[derive(Serialize)]
struct Features {
    recovery: bool,
    batching: bool,
    compression: bool,
    encryption: bool,
    message_signing: bool,
}

const FEATURES: Features = Features {
    recovery: true,
    batching: true,
    compression: false,
    encryption: false,
    message_signing: false,
};

#[derive(Serialize)]
struct ReadyPayload<'e> {
    message: &'static str,
    connection_id: &'e str,
    details: Details<'e>,
}

#[derive(Serialize)]
struct Details<'e> {
    version: u32,
    features: Features,
    connection_id: &'e str,
    user_id: &'e str,
}

#[derive(Serialize)]
struct HelloPayload<'e> {
    server_version: &'e str,
    protocol_version: u32,
    connection_id: &'e str,
    features: Features,
    limits: HelloLimits,
    ping_interval: u64,
}

#[derive(Serialize)]
struct HelloLimits {
    max_message_size: usize,
}

#[derive(Serialize)]
struct PingPayload {
    server_time: i64,
}

#[derive(Serialize)]
struct PongPayload {
    client_timestamp: Option<i64>,
    server_timestamp: i64,
    latency: Option<i64>,
}

#[derive(Serialize)]
struct SubscriptionPayload<'e> {
    action: &'static str,
    success: bool,
    topics: [&'e str; 1],
    success_topics: &'e [&'e str],
    failed_topics: &'e [&'e str],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    recovery: BTreeMap<&'e str, Position<'e>>,
}

#[derive(Serialize)]
struct PublishedPayload<'e> {
    topic: &'e str,
}

#[derive(Serialize)]
struct SnapshotPayload<'e> {
    topics: &'e [String],
    count: u32,
}

#[derive(Serialize)]
struct PresencePayload<'e> {
    topic: &'e str,
    user_id: &'e str,
    connection_id: &'e str,
    data: &'e RawValue,
}

#[derive(Serialize)]
struct ErrorPayload<'e> {
    code: &'e str,
    message: &'e str,
    severity: &'static str,
    recoverable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'e str>,
}

fn is_object(json: &RawValue) -> bool {
    json.get().starts_with('{')
}

fn put<P: Serialize>(t: &'static str, p: P, cid: Option<&str>, out: &mut Vec<u8>) {
    // A vector takes all that is written to it.
    let _ = serde_json::to_writer(out, &Envelope { c: "WSE", t, p, v: VERSION, cid });
}

fn put_subscription<'e>(
    action: &'static str,
    topic: &'e str,
    outcome: (bool, Option<Position<'e>>),
    out: &mut Vec<u8>,
) {
    let (success, position) = outcome;
    let (these, none) = ([topic], [].as_slice());
    let (success_topics, failed_topics) =
        if success { (these.as_slice(), none) } else { (none, these.as_slice()) };
    let recovery = position.map(|position| (topic, position)).into_iter().collect();
    let payload = SubscriptionPayload {
        action,
        success,
        topics: these,
        success_topics,
        failed_topics,
        recovery,
    };
    put("subscription_update", payload, None, out);
}

/// Appends an event.
pub fn put_event(event: &Event<'_>, out: &mut Vec<u8>) {
    match *event {
        Event::Ready { connection, user } => {
            let details = Details {
                version: VERSION,
                features: FEATURES,
                connection_id: connection,
                user_id: user,
            };
            let message = "connected";
            let payload = ReadyPayload { message, connection_id: connection, details };
            put("server_ready", payload, None, out);
        }
        Event::Hello { connection, version, ping_interval_ms } => {
            let payload = HelloPayload {
                server_version: version,
                protocol_version: VERSION,
                connection_id: connection,
                features: FEATURES,
                limits: HelloLimits { max_message_size: MESSAGE_BYTES_MAX },
                ping_interval: ping_interval_ms,
            };
            put("server_hello", payload, None, out);
        }
        Event::Ping { now_ms } => put("ping", PingPayload { server_time: now_ms }, None, out),
        Event::Pong { sent_ms, now_ms } => {
            let latency = sent_ms.map(|sent| now_ms.saturating_sub(sent).max(0));
            let payload =
                PongPayload { client_timestamp: sent_ms, server_timestamp: now_ms, latency };
            put("PONG", payload, None, out);
        }
        Event::Subscribed { topic, position } => {
            put_subscription("subscribe", topic, (true, position), out);
        }
        Event::Unsubscribed { topic } => put_subscription("unsubscribe", topic, (true, None), out),
        Event::NotSubscribed { topic } => put_subscription("subscribe", topic, (false, None), out),
        Event::Published { topic, correlation_id } => {
            put("published", PublishedPayload { topic }, Some(correlation_id), out);
        }
        Event::SnapshotComplete { topics, count } => {
            put("snapshot_complete", SnapshotPayload { topics, count }, None, out);
        }
        Event::Presence { is_join, topic, user, connection, data } => {
            // Clients expect an object.
            let data = serde_json::from_str(data).ok().filter(|data: &&RawValue| is_object(data));
            let Some(data) = data.or_else(|| serde_json::from_str("{}").ok()) else { return };
            let payload = PresencePayload { topic, user_id: user, connection_id: connection, data };
            put(if is_join { "presence_join" } else { "presence_leave" }, payload, None, out);
        }
        Event::Error { code, message, is_retryable, topic, correlation_id } => {
            let severity = if is_retryable { "warning" } else { "error" };
            let payload =
                ErrorPayload { code, message, severity, recoverable: is_retryable, topic };
            put("error", payload, correlation_id, out);
        }
    }
}

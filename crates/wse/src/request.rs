//! A message of a client: JSON with a category `c`, a type `t` and a payload `p`. One that is of the category `U` is published to
//! the topic that its type names; the others ask something of the broker.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{
    decode_error::{DecodeError, fault},
    list::{Entries, List, is_too_long},
};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// It says what it can.
    Hello {
        /// Whether it offers a key to encrypt with.
        offers_encryption: bool,
    },
    /// It asks whether the broker is there.
    Ping {
        /// When, by its own clock, in milliseconds since 1970.
        sent_ms: Option<i64>,
    },
    /// It is there.
    Pong,
    /// It wants the messages of a topic.
    Subscribe {
        /// The topic.
        topic: String,
        /// The epoch and the offset behind which to begin; none to begin with what comes next.
        recovers: Option<(String, u64)>,
        /// What others are told of it, JSON, if it wants to know who comes and goes.
        presence: Option<String>,
    },
    /// It wants no more messages of a topic.
    Unsubscribe {
        /// The topic.
        topic: String,
    },
    /// It publishes.
    Publish(Publish),
    /// It wants the newest message of a topic.
    Snapshot {
        /// The topic.
        topic: String,
    },
    /// All snapshots that it asked for together have been asked for: it is told so.
    SnapshotsAsked {
        /// Their topics.
        topics: Vec<String>,
    },
    /// It asks for something that no broker of this kind knows, or answers what it was not asked.
    Other {
        /// The beginning of the type.
        kind: String,
    },
}

/// A message that is published.
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    /// The topic: the type of the message.
    pub topic: String,
    /// JSON.
    pub payload: String,
    /// By which its publisher knows the answer, if it wants one.
    pub correlation_id: Option<String>,
}

/// What is published is not for logs.
impl std::fmt::Debug for Publish {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Publish({:?}, {} bytes)", self.topic, self.payload.len())
    }
}

/// Letters of a type that are repeated to the client that has sent it.
const KIND_LETTERS_MAX: usize = 64;

#[derive(Deserialize)]
struct Envelope<'m> {
    #[serde(default)]
    c: Option<String>,
    #[serde(alias = "type", default)]
    t: String,
    #[serde(borrow, alias = "payload", default)]
    p: Option<&'m RawValue>,
    #[serde(default)]
    cid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HelloPayload {
    encryption_public_key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PingPayload {
    timestamp: Option<serde_json::Number>,
    client_timestamp: Option<serde_json::Number>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubscriptionPayload<'m> {
    action: String,
    topics: List<String>,
    recover: bool,
    recovery: Entries<PositionPayload>,
    #[serde(borrow)]
    presence: Option<&'m RawValue>,
}

#[derive(Deserialize)]
struct PositionPayload {
    #[serde(deserialize_with = "text_or_number")]
    epoch: String,
    offset: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SyncPayload {
    topics: List<String>,
    include_snapshots: Option<bool>,
}

#[derive(Default, Deserialize)]
struct BatchPayload<'m> {
    #[serde(borrow, default)]
    messages: List<Envelope<'m>>,
}

fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Epoch {
        Text(String),
        Number(u64),
    }
    Epoch::deserialize(from).map(|epoch| match epoch {
        Epoch::Text(text) => text,
        Epoch::Number(number) => number.to_string(),
    })
}

/// The requests of one message of the WebSocket, text or binary. There are several if it names several topics, or is a batch.
///
/// # Errors
/// It is not a message of the protocol, or has a list of more than [`LIST_MAX`](crate::LIST_MAX).
pub fn decode(message: &[u8]) -> Result<Vec<Request>, DecodeError> {
    // Clients of the first versions answer pings so.
    if message.starts_with(b"PONG:") || message.starts_with(b"WSE:PONG:") {
        return Ok(vec![Request::Pong]);
    }
    for (prefix, form) in
        [(b"C:", "compression"), (b"E:", "encryption within the WebSocket"), (b"M:", "MessagePack")]
    {
        if message.starts_with(prefix) {
            return Err(DecodeError::Form(form));
        }
    }
    let (category, json) = without_prefix(message);
    let envelope: Envelope<'_> = serde_json::from_slice(json).map_err(refused)?;
    let mut requests = Vec::new();
    add(envelope, category, &mut requests)?;
    Ok(requests)
}

/// The category that older versions write before the JSON.
fn without_prefix(message: &[u8]) -> (Option<&'static str>, &[u8]) {
    for category in ["WSE", "S", "U"] {
        if let Some(rest) = message.strip_prefix(category.as_bytes())
            && rest.first() == Some(&b'{')
        {
            return (Some(category), rest);
        }
    }
    (None, message)
}

fn refused(error: serde_json::Error) -> DecodeError {
    if is_too_long(&error) {
        return DecodeError::TooMany;
    }
    DecodeError::Json(fault(&error))
}

/// The payload of a type; a payload that is missing or null is one without fields.
fn payload<'m, P: Deserialize<'m> + Default>(
    kind: &'static str,
    of: Option<&'m RawValue>,
) -> Result<P, DecodeError> {
    let Some(raw) = of.map(RawValue::get).filter(|raw| *raw != "null") else {
        return Ok(P::default());
    };
    serde_json::from_str(raw).map_err(|error| {
        if is_too_long(&error) {
            return DecodeError::TooMany;
        }
        DecodeError::Payload { kind, fault: fault(&error) }
    })
}

/// Adds the requests of a message.
fn add(
    envelope: Envelope<'_>,
    category: Option<&str>,
    requests: &mut Vec<Request>,
) -> Result<(), DecodeError> {
    let Envelope { c, t: kind, p, cid } = envelope;
    if kind.is_empty() {
        return Err(DecodeError::NoType);
    }
    if category.or(c.as_deref()) == Some("U") {
        requests.push(publish(kind, p, cid));
        return Ok(());
    }
    match kind.as_str() {
        "client_hello" => {
            let hello: HelloPayload = payload("client_hello", p)?;
            let offers_encryption = hello.encryption_public_key.is_some();
            requests.push(Request::Hello { offers_encryption });
        }
        "ping" | "PING" => {
            let ping: PingPayload = payload("ping", p)?;
            let sent = ping.timestamp.or(ping.client_timestamp);
            let sent_ms = sent.and_then(|sent| sent.as_i64().or_else(|| whole(sent.as_f64()?)));
            requests.push(Request::Ping { sent_ms });
        }
        "pong" | "PONG" => requests.push(Request::Pong),
        "subscription_update" | "subscription" => add_subscriptions(p, requests)?,
        "sync_request" | "snapshot_request" | "request_snapshot" => {
            let sync: SyncPayload = payload("sync_request", p)?;
            let List(mut topics) = sync.topics;
            if sync.include_snapshots == Some(false) {
                topics.clear();
            }
            requests.extend(topics.iter().cloned().map(|topic| Request::Snapshot { topic }));
            requests.push(Request::SnapshotsAsked { topics });
        }
        "batch" => {
            let batch: BatchPayload<'_> = payload("batch", p)?;
            for Envelope { t, p, cid, .. } in batch.messages.0 {
                if t.is_empty() {
                    return Err(DecodeError::NoType);
                }
                requests.push(publish(t, p, cid));
            }
        }
        _ => requests.push(Request::Other { kind: kind.chars().take(KIND_LETTERS_MAX).collect() }),
    }
    Ok(())
}

fn publish(topic: String, p: Option<&RawValue>, correlation_id: Option<String>) -> Request {
    let payload = p.map_or("null", RawValue::get).to_owned();
    Request::Publish(Publish { topic, payload, correlation_id })
}

/// A time that was written with a fraction.
fn whole(ms: f64) -> Option<i64> {
    (ms.abs() < 9e15).then_some(ms as i64)
}

fn add_subscriptions(p: Option<&RawValue>, requests: &mut Vec<Request>) -> Result<(), DecodeError> {
    let kind = "subscription_update";
    let asked: SubscriptionPayload<'_> = payload(kind, p)?;
    let List(topics) = asked.topics;
    match asked.action.as_str() {
        "subscribe" => {
            let mut positions: Vec<_> = asked.recovery.0.into_iter().map(Some).collect();
            if !asked.recover {
                positions.clear();
            }
            // Clients name topics and positions in one order.
            let mut take = |topic: &str, at: usize| {
                let is_of =
                    |held: &Option<(String, _)>| held.as_ref().is_some_and(|(of, _)| of == topic);
                let found = if positions.get(at).is_some_and(is_of) {
                    Some(at)
                } else {
                    positions.iter().position(is_of)
                };
                let (_, position) = positions.get_mut(found?)?.take()?;
                Some((position.epoch, position.offset))
            };
            let presence = asked.presence.map(RawValue::get);
            for (at, topic) in topics.into_iter().enumerate() {
                let recovers = take(&topic, at);
                let presence = presence.map(str::to_owned);
                requests.push(Request::Subscribe { topic, recovers, presence });
            }
        }
        "unsubscribe" => {
            requests.extend(topics.into_iter().map(|topic| Request::Unsubscribe { topic }));
        }
        _ => {
            let fault = "`action` is `subscribe` or `unsubscribe`".to_owned();
            return Err(DecodeError::Payload { kind, fault });
        }
    }
    Ok(())
}

//! The JSON bodies of requests about subscriptions, parsed and checked, and the bodies of their answers. It knows
//! no paths and waits for nothing.

use http::StatusCode;
use sennit_model::TopicName;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    name,
    offset_token::{self, Position},
};
use crate::{
    broker::{reserved_names::is_reserved, stream_offset::StreamOffset},
    subscriptions::request::{
        Config, Glob, SubscriptionRefusal, Way,
        limits::{
            DESCRIPTION_BYTES_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN,
            SUBSCRIPTION_ID_BYTES_MAX, SUBSCRIPTION_LINKS_MAX, WORKER_BYTES_MAX,
        },
    },
};

type Refused<T> = Result<T, SubscriptionRefusal>;

/// What is to be subscribed to.
#[derive(Debug, Deserialize)]
struct CreateBody {
    #[serde(rename = "type")]
    kind: String,
    pattern: Option<String>,
    streams: Option<Vec<String>>,
    webhook: Option<WebhookBody>,
    wake_stream: Option<String>,
    lease_ttl_ms: Option<u64>,
    description: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WebhookBody {
    url: String,
}

#[derive(Debug, Deserialize)]
struct StreamsBody {
    streams: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ClaimBody {
    worker: String,
}

/// What a worker says of its work.
#[derive(Debug, Deserialize)]
struct AckBody {
    wake_id: String,
    generation: u64,
    #[serde(default)]
    acks: Vec<OneAck>,
    #[serde(default)]
    done: bool,
}

#[derive(Debug, Deserialize)]
struct OneAck {
    #[serde(alias = "path")]
    stream: String,
    offset: String,
}

/// The same, checked.
#[derive(Debug)]
pub(super) struct Acked {
    pub(super) wake: Box<str>,
    pub(super) generation: u64,
    pub(super) acks: Vec<(TopicName, StreamOffset)>,
    pub(super) is_done: bool,
}

/// The configuration of a subscription that is to be.
pub(super) fn config(body: &[u8]) -> Refused<Config> {
    let body: CreateBody = parse(body)?;
    let way = match (&*body.kind, body.webhook, body.wake_stream) {
        ("webhook", Some(webhook), None) => Way::Webhook(webhook.url.into()),
        ("pull-wake", None, Some(stream)) => Way::PullWake(stream_named(&stream)?),
        ("webhook", ..) => return invalid("type webhook takes webhook.url, and no wake_stream"),
        ("pull-wake", ..) => return invalid("type pull-wake takes wake_stream, and no webhook"),
        _ => return invalid("type is webhook or pull-wake"),
    };
    let pattern = match body.pattern {
        Some(text) => Some(Glob::parse(&text)?),
        None => None,
    };
    let streams = streams_named(&body.streams.unwrap_or_default())?;
    if pattern.is_none() && streams.is_empty() {
        return invalid("pattern or streams says what to subscribe to");
    }
    if let Way::PullWake(stream) = &way
        && streams.contains(stream)
    {
        return invalid("the wake stream cannot wake its own");
    }
    let lease_ms = body.lease_ttl_ms.unwrap_or(LEASE_MS_DEFAULT);
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
        return invalid(format!("lease_ttl_ms is {LEASE_MS_MIN} to {LEASE_MS_MAX}"));
    }
    let description = body.description.map(String::into_boxed_str);
    if description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
        return invalid(format!("DESCRIPTION_BYTES_MAX is {DESCRIPTION_BYTES_MAX}"));
    }
    Ok(Config { way, pattern, streams, lease_ms, description })
}

/// The streams that are named in a body.
pub(super) fn streams(body: &[u8]) -> Refused<Vec<TopicName>> {
    let body: StreamsBody = parse(body)?;
    if body.streams.is_empty() {
        return invalid("streams names at least one");
    }
    streams_named(&body.streams)
}

/// The name of a worker that wants the work.
pub(super) fn worker(body: &[u8]) -> Refused<Box<str>> {
    let body: ClaimBody = parse(body)?;
    if body.worker.is_empty() || body.worker.len() > WORKER_BYTES_MAX {
        return invalid(format!("worker has 1 to {WORKER_BYTES_MAX} bytes (WORKER_BYTES_MAX)"));
    }
    Ok(body.worker.into())
}

/// What a worker says of its work.
pub(super) fn acked(body: &[u8]) -> Refused<Acked> {
    let body: AckBody = parse(body)?;
    let mut acks = Vec::with_capacity(body.acks.len().min(SUBSCRIPTION_LINKS_MAX));
    for OneAck { stream, offset } in &body.acks {
        let name = stream_named(stream)?;
        match offset_token::parse(offset) {
            Some(Position::Earliest) => acks.push((name, StreamOffset::BEGINNING)),
            Some(Position::At(offset)) => acks.push((name, offset)),
            _ => {
                let (stream, detail) = (stream.as_str().into(), format!("{offset:?} is no offset"));
                return Err(SubscriptionRefusal::InvalidOffset { stream, detail: detail.into() });
            }
        }
    }
    let (wake, generation, is_done) = (body.wake_id.into(), body.generation, body.done);
    Ok(Acked { wake, generation, acks, is_done })
}

/// The id of a subscription, which stands so in its path.
pub(super) fn id(text: &str) -> Refused<Box<str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    if text.is_empty() || text.len() > SUBSCRIPTION_ID_BYTES_MAX || !text.bytes().all(is_plain) {
        return invalid(format!(
            "the id of a subscription is made of A-Z a-z 0-9 - _ . ~ :, and has 1 to \
             {SUBSCRIPTION_ID_BYTES_MAX} of them (SUBSCRIPTION_ID_BYTES_MAX)"
        ));
    }
    Ok(text.into())
}

/// The stream of this path, as it stands in addresses.
pub(super) fn stream_named(path: &str) -> Refused<TopicName> {
    let name = name::of_path(&[name::ROOT, path].concat()).ok();
    match name.filter(|name| !is_reserved(name)) {
        Some(name) => Ok(name),
        None => invalid(format!("{path:?} is no path of a stream")),
    }
}

fn streams_named(paths: &[String]) -> Refused<Vec<TopicName>> {
    if paths.len() > SUBSCRIPTION_LINKS_MAX {
        let (name, limit) = ("SUBSCRIPTION_LINKS_MAX", SUBSCRIPTION_LINKS_MAX);
        return Err(SubscriptionRefusal::Limit { name: name.into(), limit });
    }
    let mut names = paths.iter().map(|path| stream_named(path)).collect::<Refused<Vec<_>>>()?;
    names.sort();
    names.dedup();
    Ok(names)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Refused<T> {
    serde_json::from_slice(body)
        .map_err(|error| SubscriptionRefusal::invalid(format!("the body: {error}")))
}

fn invalid<T>(detail: impl Into<Box<str>>) -> Refused<T> {
    Err(SubscriptionRefusal::invalid(detail))
}

/// What somebody is told whose request was refused.
pub(super) fn refused(refusal: &SubscriptionRefusal) -> (StatusCode, serde_json::Value) {
    use SubscriptionRefusal as Refusal;
    let status = match refusal {
        Refusal::Invalid(_) | Refusal::UrlRejected(_) => StatusCode::BAD_REQUEST,
        Refusal::TokenInvalid | Refusal::TokenExpired => StatusCode::UNAUTHORIZED,
        Refusal::Missing(_) => StatusCode::FORBIDDEN,
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::Exists
        | Refusal::Fenced { .. }
        | Refusal::AlreadyClaimed { .. }
        | Refusal::NoPendingWork
        | Refusal::InvalidOffset { .. } => StatusCode::CONFLICT,
        Refusal::Limit { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut error = json!({ "code": refusal.code(), "message": refusal.to_string() });
    match refusal {
        Refusal::Fenced { generation } => error["generation"] = (*generation).into(),
        Refusal::AlreadyClaimed { holder, generation } => {
            error["current_holder"] = (&**holder).into();
            error["generation"] = (*generation).into();
        }
        _ => {}
    }
    (status, json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use sennit_model::Offset;

    use super::*;
    use crate::broker::stream_offset::IncarnationTag;

    fn code<T: std::fmt::Debug>(refused: Refused<T>) -> &'static str {
        refused.unwrap_err().code()
    }

    #[test]
    fn what_is_subscribed_to_is_spelled_in_one_way() {
        let one =
            br#"{"type":"webhook","webhook":{"url":"https://a.b/c"},"streams":["b","a%2fx","b"]}"#;
        let other = br#"{"lease_ttl_ms":30000,"streams":["a%2Fx","%62"],"webhook":{"url":"https://a.b/c"},"type":"webhook"}"#;
        let config = config(one).unwrap();
        assert_eq!(config, super::config(other).unwrap());
        assert_eq!(config.lease_ms, 30_000);
        assert!(config.names(&"a%2Fx".parse().unwrap()));
    }

    #[test]
    fn what_does_not_hang_together_is_refused() {
        let url = r#""webhook":{"url":"https://a.b"}"#;
        for body in [
            "",
            "{}",
            "[]",
            r#"{"type":"webhook","pattern":"a"}"#,
            r#"{"type":"pull-wake","pattern":"a"}"#,
            r#"{"type":"other","pattern":"a","wake_stream":"w"}"#,
            r#"{"type":"pull-wake","wake_stream":"w"}"#,
            r#"{"type":"pull-wake","wake_stream":"w","streams":["w"]}"#,
            r#"{"type":"pull-wake","wake_stream":"__ds/x","pattern":"a"}"#,
            r#"{"type":"pull-wake","wake_stream":"w","streams":["__ds/subscriptions"]}"#,
            r#"{"type":"pull-wake","wake_stream":"w","streams":[""]}"#,
            r#"{"type":"pull-wake","wake_stream":"w","pattern":"a**"}"#,
            r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":999}"#,
            r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":600001}"#,
            r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":-1}"#,
            &format!(r#"{{"type":"webhook","wake_stream":"w","pattern":"a",{url}}}"#),
            &format!(r#"{{"type":"pull-wake","wake_stream":"w","pattern":"a",{url}}}"#),
        ] {
            assert_eq!(code(config(body.as_bytes())), "INVALID_REQUEST", "{body}");
        }
    }

    #[test]
    fn an_ack_names_offsets() {
        let acked = acked(
            br#"{"wake_id":"w","generation":3,"acks":[{"stream":"a","offset":"0000000000000007_0000000000030000"},{"stream":"b","offset":"-1"}]}"#,
        );
        let acked = acked.unwrap();
        let of = IncarnationTag::of_number(3).unwrap();
        let seventh = StreamOffset { of, at: Offset(7) };
        let offsets: Vec<_> = acked.acks.iter().map(|ack| ack.1).collect();
        assert_eq!(offsets, [seventh, StreamOffset::BEGINNING]);
        assert!(!acked.is_done);
        for offset in ["now", "7", "", "x_y", "7_0"] {
            let body = format!(
                r#"{{"wake_id":"w","generation":3,"acks":[{{"stream":"a","offset":"{offset}"}}]}}"#
            );
            assert_eq!(code(super::acked(body.as_bytes())), "INVALID_OFFSET", "{offset}");
        }
        for body in
            ["{}", r#"{"wake_id":"w"}"#, r#"{"generation":1}"#, r#"{"wake_id":1,"generation":1}"#]
        {
            assert_eq!(code(super::acked(body.as_bytes())), "INVALID_REQUEST", "{body}");
        }
    }

    #[test]
    fn an_id_stands_for_itself() {
        for good in ["a", "sub-1_2.3~4:5"] {
            assert_eq!(&*id(good).unwrap(), good);
        }
        let long = "x".repeat(SUBSCRIPTION_ID_BYTES_MAX + 1);
        for bad in ["", "a b", "a%20b", "ä", "a\"b", &long] {
            assert_eq!(code(id(bad)), "INVALID_REQUEST", "{bad:?}");
        }
    }

    #[test]
    fn a_refusal_says_who_holds_what() {
        let holder = "one".into();
        let (status, body) =
            refused(&SubscriptionRefusal::AlreadyClaimed { holder, generation: 4 });
        assert_eq!(status, StatusCode::CONFLICT);
        assert_eq!(body["error"]["code"], "ALREADY_CLAIMED");
        assert_eq!(body["error"]["current_holder"], "one");
        assert_eq!(body["error"]["generation"], 4);
    }
}

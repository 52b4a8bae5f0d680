//! Subscriptions as JSON, in the shape of the protocol. It knows no requests.

use sennit_model::TopicId;
use serde_json::{Value, json};

use super::request::Way;
use super::{keys::Keys, phase::Phase, subscription::Subscription};
use crate::broker::stream_offset::{IncarnationTag, StreamOffset};

/// The streams that it is linked to; `tag` says what the offsets of a topic carry.
pub(crate) fn streams(it: &Subscription, tag: impl Fn(TopicId) -> IncarnationTag) -> Value {
    let streams = it.links().iter().map(|(stream, link)| {
        let of = link.topic.map_or(IncarnationTag::NONE, &tag);
        let text = |at| StreamOffset { of, at }.to_string();
        json!({
            "path": stream.as_str(),
            "link_type": if link.is_explicit { "explicit" } else { "pattern" },
            "acked_offset": text(link.acked),
            "tail_offset": text(link.end),
            "has_pending": link.is_pending(),
        })
    });
    Value::Array(streams.collect())
}

/// All subscriptions, each in a few words.
pub(crate) fn all<'a>(all: impl Iterator<Item = (&'a str, &'a Subscription)>) -> Value {
    let each = all.map(|(id, it)| {
        json!({
            "id": id,
            "type": type_of(it),
            "status": status_of(it),
            "generation": it.generation(),
            "streams": it.links().len(),
            "pending": it.pending(),
        })
    });
    json!({ "subscriptions": each.collect::<Vec<_>>() })
}

fn type_of(it: &Subscription) -> &'static str {
    match it.config.way {
        Way::Webhook(_) => "webhook",
        Way::PullWake(_) => "pull-wake",
    }
}

fn status_of(it: &Subscription) -> &'static str {
    match it.phase() {
        Phase::Idle => "idle",
        Phase::Woken { .. } => "woken",
        Phase::Held { .. } => "held",
    }
}

/// A whole subscription.
pub(crate) fn subscription(
    id: &str,
    it: &Subscription,
    keys: &Keys,
    tag: impl Fn(TopicId) -> IncarnationTag,
) -> Value {
    let mut told = json!({
        "id": id,
        "subscription_id": id,
        "lease_ttl_ms": it.config.lease_ms,
        "created_at_ms": it.created_at.0,
        "type": type_of(it),
        "status": status_of(it),
        "generation": it.generation(),
        "streams": streams(it, tag),
    });
    match &it.config.way {
        Way::Webhook(url) => {
            told["webhook"] = json!({
                "url": url,
                "signing": {
                    "alg": "ed25519",
                    "kid": keys.id(),
                    "jwks_url": format!("{}/jwks.json", it.base),
                },
            });
        }
        Way::PullWake(stream) => {
            told["wake_stream"] = stream.as_str().into();
        }
    }
    if let Some(pattern) = &it.config.pattern {
        told["pattern"] = pattern.as_str().into();
    }
    if let Some(description) = &it.config.description {
        told["description"] = (&**description).into();
    }
    if let Phase::Held { holder, .. } = it.phase() {
        told["holder"] = (&**holder).into();
    }
    told
}

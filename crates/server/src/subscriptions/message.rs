//! What nodes ask each other about subscriptions, and the answers, as JSON texts. Rights are checked where a request arrives; its public
//! keys are told there too.

use bytes::Bytes;
use sennit_model::{Offset, TopicName};
use serde::{Deserialize, Serialize};

use super::request::{
    Ack, KeptConfig, NewSubscription, SubscriptionAnswer, SubscriptionRefusal, SubscriptionRequest,
};
use crate::broker::stream_offset::{IncarnationTag, StreamOffset};

pub(super) type Outcome = Result<SubscriptionAnswer, SubscriptionRefusal>;

/// Why a text of another node cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageFault {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its {0} is none")]
    Field(&'static str),
}

/// The request.
#[derive(Serialize, Deserialize)]
enum AskedText {
    Create { id: Box<str>, config: KeptConfig, base: Box<str> },
    Get { id: Box<str> },
    List,
    Delete { id: Box<str> },
    Link { id: Box<str>, streams: Vec<String> },
    Unlink { id: Box<str>, stream: String },
    Claim { id: Box<str>, worker: Box<str> },
    Ack(AckText),
    Release(AckText),
    Keys,
}

#[derive(Serialize, Deserialize)]
struct AckText {
    id: Box<str>,
    is_callback: bool,
    token: Box<str>,
    generation: u64,
    wake: Box<str>,
    /// A stream, and an offset with the tag of what it was given of.
    acks: Vec<(String, u64, u64)>,
    is_done: bool,
}

/// What becomes of it; nothing if the node that was asked does not lead.
#[derive(Serialize, Deserialize)]
struct OutcomeText(Option<Outcome>);

/// The text of what is asked.
pub(super) fn encode_asked(asked: &SubscriptionRequest) -> Bytes {
    let name = |stream: &TopicName| stream.to_string();
    let text = match asked {
        SubscriptionRequest::Create(NewSubscription { id, config, base }) => {
            AskedText::Create { id: id.clone(), config: config.into(), base: base.clone() }
        }
        SubscriptionRequest::Get(id) => AskedText::Get { id: id.clone() },
        SubscriptionRequest::List => AskedText::List,
        SubscriptionRequest::Delete(id) => AskedText::Delete { id: id.clone() },
        SubscriptionRequest::Link(id, streams) => {
            AskedText::Link { id: id.clone(), streams: streams.iter().map(name).collect() }
        }
        SubscriptionRequest::Unlink(id, stream) => {
            AskedText::Unlink { id: id.clone(), stream: name(stream) }
        }
        SubscriptionRequest::Claim(id, worker) => {
            AskedText::Claim { id: id.clone(), worker: worker.clone() }
        }
        SubscriptionRequest::Ack(ack) => AskedText::Ack(ack_text(ack)),
        SubscriptionRequest::Release(ack) => AskedText::Release(ack_text(ack)),
        SubscriptionRequest::Keys => AskedText::Keys,
    };
    serde_json::to_vec(&text).expect("texts and numbers are JSON").into()
}

fn ack_text(ack: &Ack) -> AckText {
    let one = |(stream, offset): &(TopicName, StreamOffset)| {
        (stream.to_string(), offset.of.number(), offset.at.0)
    };
    AckText {
        id: ack.id.clone(),
        is_callback: ack.is_callback,
        token: ack.token.clone(),
        generation: ack.generation,
        wake: ack.wake.clone(),
        acks: ack.acks.iter().map(one).collect(),
        is_done: ack.is_done,
    }
}

/// What a text asks.
///
/// # Errors
/// The text is none of this version.
pub(super) fn decode_asked(text: &[u8]) -> Result<SubscriptionRequest, MessageFault> {
    Ok(match serde_json::from_slice(text)? {
        AskedText::Create { id, config, base } => {
            let config = config.read().ok_or(MessageFault::Field("configuration"))?;
            SubscriptionRequest::Create(NewSubscription { id, config, base })
        }
        AskedText::Get { id } => SubscriptionRequest::Get(id),
        AskedText::List => SubscriptionRequest::List,
        AskedText::Delete { id } => SubscriptionRequest::Delete(id),
        AskedText::Link { id, streams } => {
            let streams = streams.iter().map(|stream| stream_of(stream));
            SubscriptionRequest::Link(id, streams.collect::<Result<_, _>>()?)
        }
        AskedText::Unlink { id, stream } => SubscriptionRequest::Unlink(id, stream_of(&stream)?),
        AskedText::Claim { id, worker } => SubscriptionRequest::Claim(id, worker),
        AskedText::Ack(ack) => SubscriptionRequest::Ack(ack_of(ack)?),
        AskedText::Release(ack) => SubscriptionRequest::Release(ack_of(ack)?),
        AskedText::Keys => SubscriptionRequest::Keys,
    })
}

fn ack_of(text: AckText) -> Result<Ack, MessageFault> {
    let one = |(stream, of, at): (String, u64, u64)| {
        let of = IncarnationTag::of_number(of).ok_or(MessageFault::Field("tag of an offset"))?;
        Ok::<_, MessageFault>((stream_of(&stream)?, StreamOffset { of, at: Offset(at) }))
    };
    Ok(Ack {
        id: text.id,
        is_callback: text.is_callback,
        token: text.token,
        generation: text.generation,
        wake: text.wake,
        acks: text.acks.into_iter().map(one).collect::<Result<_, _>>()?,
        is_done: text.is_done,
    })
}

fn stream_of(text: &str) -> Result<TopicName, MessageFault> {
    text.parse().map_err(|_| MessageFault::Field("stream"))
}

/// The text of an outcome; without one, of that this node does not lead.
pub(super) fn encode_outcome(outcome: Option<Outcome>) -> Bytes {
    let text = serde_json::to_vec(&OutcomeText(outcome)).or_else(|error| {
        tracing::error!(%error, "an answer about subscriptions cannot travel");
        let refused = SubscriptionRefusal::Unavailable("its answer cannot travel".into());
        serde_json::to_vec(&OutcomeText(Some(Err(refused))))
    });
    text.expect("a short text is JSON").into()
}

/// The outcome that a text tells; nothing if the node that was asked does not lead.
///
/// # Errors
/// The text is none of this version.
pub(super) fn decode_outcome(text: &[u8]) -> Result<Option<Outcome>, MessageFault> {
    Ok(serde_json::from_slice::<OutcomeText>(text)?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::subscriptions::request::{Config, UrlRejected, Way};

    fn name(text: &str) -> TopicName {
        text.parse().expect("a name")
    }

    fn ack() -> Ack {
        let of = IncarnationTag::of_number(7).expect("streams have such tags");
        Ack {
            id: "s".into(),
            is_callback: true,
            token: "t.t".into(),
            generation: u64::MAX,
            wake: "w".into(),
            acks: vec![(name("a/b"), StreamOffset { of, at: Offset(u64::MAX) })],
            is_done: true,
        }
    }

    #[test]
    fn what_is_asked_comes_as_it_was_asked() {
        let config = Config {
            way: Way::Webhook("https://example.com/hook".into()),
            pattern: None,
            streams: vec![name("a"), name("b")],
            lease_ms: 1000,
            description: Some("for a test".into()),
        };
        let base = "https://here/v1/stream/__ds".into();
        for asked in [
            SubscriptionRequest::Create(NewSubscription { id: "s".into(), config, base }),
            SubscriptionRequest::Get("s".into()),
            SubscriptionRequest::List,
            SubscriptionRequest::Delete("s".into()),
            SubscriptionRequest::Link("s".into(), vec![name("a"), name("b/c")]),
            SubscriptionRequest::Unlink("s".into(), name("a")),
            SubscriptionRequest::Claim("s".into(), "worker".into()),
            SubscriptionRequest::Ack(ack()),
            SubscriptionRequest::Release(ack()),
            SubscriptionRequest::Keys,
        ] {
            assert_eq!(decode_asked(&encode_asked(&asked)).expect("it was written"), asked);
        }
    }

    #[test]
    fn an_outcome_comes_as_it_was_told_and_so_does_that_a_node_does_not_lead() {
        let refused = [
            SubscriptionRefusal::Invalid("why".into()),
            UrlRejected::NotTls.into(),
            UrlRejected::NotPublic([10, 0, 0, 1].into()).into(),
            SubscriptionRefusal::Unknown,
            SubscriptionRefusal::Exists,
            SubscriptionRefusal::TokenInvalid,
            SubscriptionRefusal::TokenExpired,
            SubscriptionRefusal::Fenced { generation: 5 },
            SubscriptionRefusal::AlreadyClaimed { holder: "one".into(), generation: 6 },
            SubscriptionRefusal::NoPendingWork,
            SubscriptionRefusal::InvalidOffset { stream: "a".into(), detail: "no".into() },
            SubscriptionRefusal::Limit { name: "LINKS_IN_ALL_MAX".into(), limit: 9 },
            SubscriptionRefusal::Unavailable("later".into()),
        ];
        let body = || json!({ "generation": 1, "streams": [] });
        let told = [
            SubscriptionAnswer::Created(body()),
            SubscriptionAnswer::Body(body()),
            SubscriptionAnswer::Done,
            SubscriptionAnswer::Keys(body()),
        ];
        let outcomes = told.into_iter().map(Ok).chain(refused.into_iter().map(Err));
        for outcome in outcomes.map(Some).chain([None]) {
            let text = encode_outcome(outcome.clone());
            assert_eq!(decode_outcome(&text).expect("it was written"), outcome);
        }
    }

    #[test]
    fn an_answer_that_cannot_travel_is_refused_for_now() {
        let missing = crate::identity::principal::Principal::nobody();
        let missing = missing.may(sennit_identity::Verb::Webhook, "").expect_err("nobody may");
        let text = encode_outcome(Some(Err(missing.into())));
        let told = decode_outcome(&text).expect("it was written").expect("it was told");
        assert!(matches!(told, Err(SubscriptionRefusal::Unavailable(_))), "{told:?}");
    }

    #[test]
    fn a_text_that_nobody_writes_is_refused() {
        let unlink = "{\"Unlink\":{\"id\":\"s\",\"stream\":\"a b\"}}";
        for text in ["", "{}", "\"Nothing\"", unlink] {
            assert!(decode_asked(text.as_bytes()).is_err(), "{text}");
        }
        for text in ["", "{}", "{\"Ok\":\"Nothing\"}"] {
            assert!(decode_outcome(text.as_bytes()).is_err(), "{text}");
        }
    }
}
